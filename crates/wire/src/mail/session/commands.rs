//! What each protocol's commands do to a session.

use super::{good, Outcome, Phase, Reader, Session};
use crate::mail::sasl::{self, Credentials, Method, Turn};
use crate::mail::{imap, pop3, smtp, AuthMethods, Notice, Progress};

impl Session {
    pub(super) fn on_pop3(&mut self, buf: &[u8]) -> Progress<Outcome> {
        let Reader::Lines(reader) = &mut self.reader else { return Progress::NeedMore };
        let progress = reader.command(buf);
        let args: Vec<&[u8]> = reader.args().iter().map(|arg| arg.of(buf)).collect();
        good(progress, |command| self.pop3_command(command, &args))
    }

    fn pop3_command(&mut self, command: pop3::Command, args: &[&[u8]]) -> Outcome {
        use pop3::Command;
        let name = match &self.phase {
            Phase::Named(name) => Some(name.clone()),
            _ => None,
        };
        match (command, name) {
            (Command::Noop, _) => self.say(pop3::OK),
            (Command::Quit, _) => {
                self.say(pop3::OK);
                Outcome::Bye
            }
            (Command::Capa, name) => {
                let settings = self.settings.clone();
                let starttls = settings.starttls;
                self.say(pop3::capa(&settings.lists, starttls, self.tls, name.is_some()))
            }
            (Command::Pass, Some(login)) if args.len() == 1 => {
                done(Method::Plain, &login, args.first().copied())
            }
            (Command::Stls, None) => self.start_tls(pop3::OK),
            (_, None) if self.needs_tls() => Outcome::Invalid,
            (Command::User, None) => match args {
                [name] => {
                    self.phase = Phase::Named(name.to_vec());
                    self.say(pop3::OK)
                }
                _ => Outcome::Invalid,
            },
            (Command::Apop, None) => match args {
                [name, digest] if self.settings.methods.has(AuthMethods::APOP) => {
                    done(Method::Apop, name, Some(digest))
                }
                _ => Outcome::Invalid,
            },
            (Command::Auth, None) if args.is_empty() => {
                self.out = self.settings.lists.auth.clone();
                Outcome::Said
            }
            (Command::Auth, None) => Outcome::Auth(sasl::begin(args, self.settings.methods)),
            (Command::Pass, _)
            | (Command::Stls | Command::User | Command::Apop | Command::Auth, Some(_)) => {
                Outcome::Invalid
            }
        }
    }

    pub(super) fn on_imap(&mut self, buf: &[u8]) -> Progress<Outcome> {
        let Reader::Imap(reader) = &mut self.reader else { return Progress::NeedMore };
        let progress = reader.command(buf);
        let args: Vec<_> = reader.args().iter().map(|arg| arg.value(buf)).collect();
        let args: Vec<&[u8]> = args.iter().map(|arg| &**arg).collect();
        good(progress, |command| self.imap_command(command, &args))
    }

    fn imap_command(&mut self, command: imap::Command, args: &[&[u8]]) -> Outcome {
        use imap::Command;
        match command {
            Command::Noop => self.say_tagged(b""),
            Command::Logout => {
                self.say_tagged(imap::BYE);
                Outcome::Bye
            }
            Command::Capability => {
                let settings = self.settings.clone();
                self.say_tagged(settings.lists.of(settings.starttls, self.tls))
            }
            Command::Starttls => self.start_tls(imap::OK),
            Command::Login | Command::Authenticate if self.needs_tls() => Outcome::Invalid,
            Command::Login => match args {
                [name, password] if !name.is_empty() => done(Method::Plain, name, Some(password)),
                _ => Outcome::Invalid,
            },
            Command::Authenticate => Outcome::Auth(sasl::begin(args, self.settings.methods)),
        }
    }

    fn say_tagged(&mut self, before: &[u8]) -> Outcome {
        self.out = [before, self.tag(), imap::OK].concat();
        Outcome::Said
    }

    pub(super) fn on_smtp(&mut self, buf: &[u8]) -> Progress<Outcome> {
        let Reader::Lines(reader) = &mut self.reader else { return Progress::NeedMore };
        let progress = reader.command(buf);
        let args: Vec<&[u8]> = reader.args().iter().map(|arg| arg.of(buf)).collect();
        let line = reader.line().of(buf);
        let whole = match progress {
            Progress::Done { len, .. } => buf.get(..len).unwrap_or_default(),
            _ => b"",
        };
        good(progress, |command| self.smtp_command(command, &args, line, whole))
    }

    fn smtp_command(
        &mut self,
        command: smtp::Command,
        args: &[&[u8]],
        line: &[u8],
        whole: &[u8],
    ) -> Outcome {
        use smtp::Command;
        match command {
            Command::Noop => self.say(smtp::OK),
            Command::Quit => {
                self.say(smtp::BYE);
                Outcome::Bye
            }
            Command::Rset => {
                self.forget_mail();
                self.say(smtp::OK)
            }
            Command::Helo | Command::Ehlo => self.hello(command, args),
            Command::Starttls => {
                let outcome = self.start_tls(smtp::START_TLS);
                if matches!(outcome, Outcome::StartTls) {
                    self.envelope.helo.clear();
                    self.forget_mail();
                }
                outcome
            }
            Command::Auth if self.needs_tls() => Outcome::Invalid,
            Command::Auth if args.is_empty() => self.say(smtp::INVALID_ARGUMENT),
            Command::Auth => Outcome::Auth(sasl::begin(args, self.settings.methods)),
            Command::Mail if !self.settings.methods.has(AuthMethods::NONE) => {
                self.notice = Some(Notice::Rejected(whole.to_vec()));
                self.say(smtp::AUTH_REQUIRED)
            }
            Command::Mail if !self.envelope.from.is_empty() => self.say(smtp::BAD_SEQUENCE),
            Command::Rcpt if self.envelope.from.is_empty() => self.say(smtp::BAD_SEQUENCE),
            Command::Mail | Command::Rcpt if args.is_empty() => self.say(smtp::INVALID_ARGUMENT),
            Command::Mail => {
                self.envelope.from = line.to_vec();
                self.say(smtp::OK)
            }
            Command::Rcpt => {
                self.envelope.to = line.to_vec();
                let none = Credentials { method: Method::None, ..Credentials::default() };
                Outcome::Auth(Turn::Done(none))
            }
            Command::Vrfy | Command::Expn | Command::Help => Outcome::Invalid,
        }
    }

    fn hello(&mut self, command: smtp::Command, args: &[&[u8]]) -> Outcome {
        let [name] = args else { return self.say(smtp::INVALID_ARGUMENT) };
        self.envelope.helo = name.to_vec();
        self.forget_mail();
        let settings = self.settings.clone();
        if command == smtp::Command::Helo {
            return self.say(&smtp::helo(&settings.server_name));
        }
        self.envelope.esmtp = true;
        self.say(settings.lists.of(settings.starttls, self.tls))
    }

    fn forget_mail(&mut self) {
        self.envelope.from.clear();
        self.envelope.to.clear();
    }
}

fn done(method: Method, login: &[u8], password: Option<&[u8]>) -> Outcome {
    let (login, password) = (login.to_vec(), password.map(<[u8]>::to_vec));
    Outcome::Auth(Turn::Done(Credentials { method, login, password }))
}
