//! Running a program. Reached by every request of a location that has one, so the plain `return`
//! makes no allocation.

use super::step::Program;
use super::{Cond, FileTest, Op, Return, Rewrite, RewriteLoc, Text};
use std::rc::Rc;
use weir_base::escape::{escape_uri, unescape_uri, EscapeKind, Unescape};
use weir_base::units::parse_int;
use weir_core::eval;
use weir_core::eval::with_scratch;
use weir_core::logger::LogLevel;
use weir_core::unknown::regex_match;
use weir_core::{LocalFuture, Session};
use weir_http::body::BodyError;
use weir_http::buf::Buf;
use weir_http::generation::Location;
use weir_http::module::Flow;
use weir_http::{body, special, Request};
use weir_runtime::files::{is_executable, EXECUTABLES_ARE_MARKED};
use weir_runtime::paths;
use weir_script::template::{Env, Template, VarId};

/// What a program carries from one operation to the next.
struct Engine {
    /// Captures of an encoded URI are encoded again. nginx does so until the first `rewrite` that
    /// matches, and in redirects.
    quote: bool,
    /// The status the program ends with when nothing else decides.
    status: Option<u16>,
    log: bool,
}

/// Evaluates strings the way the rewrite program does.
struct Script<'a> {
    r: &'a mut Request,
    escape: bool,
}

impl Env for Script<'_> {
    fn var(&mut self, id: VarId, out: &mut Vec<u8>) {
        self.r.var(id, out);
    }

    fn capture(&mut self, n: usize, out: &mut Vec<u8>) {
        let Some(text) = self.r.values.captures.get(n) else { return };
        match self.escape {
            true => escape_uri(out, text, EscapeKind::Args),
            false => out.extend_from_slice(text),
        }
    }
}

pub(super) fn eval(r: &mut Request, template: &Template, quote: bool, out: &mut Vec<u8>) {
    let escape = quote && (r.head.quoted_uri || r.head.plus_in_uri);
    template.eval(&mut Script { r, escape }, out);
}

pub fn server(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    run(r, &loc)
}

pub fn location(r: &mut Request) -> Flow {
    // No location was found: the server's own program has run already.
    if r.loc().id == r.server().location {
        return Flow::Declined;
    }
    let loc = Rc::clone(r.loc());
    run(r, &loc)
}

fn run(r: &mut Request, loc: &Location) -> Flow {
    let conf = loc.conf::<RewriteLoc>();
    match conf.wants_body {
        Some(wants) if !r.body.complete && wants(r) => Flow::Wait(read_body),
        _ => execute(r, conf),
    }
}

fn read_body(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        match body::read_all(r).await {
            Ok(()) => {}
            Err(BodyError::Status(status)) => return Flow::Status(status),
            Err(BodyError::Closed) => return Flow::Status(499),
        }
        let loc = Rc::clone(r.loc());
        execute(r, loc.conf())
    })
}

fn execute(r: &mut Request, conf: &RewriteLoc) -> Flow {
    let mut e = Engine { quote: true, status: None, log: *conf.log };
    let mut at = 0;
    while let Some(op) = conf.ops.get(at) {
        at += 1;
        match op {
            Op::Return(ret) => return answer(r, ret),
            Op::Set(var, value) => set(r, &e, *var, value),
            Op::Break => {
                if r.flags.uri_changed {
                    r.flags.uri_changed = false;
                    r.flags.valid_location = false;
                }
                break;
            }
            Op::If { cond, location, next } => match holds(r, &e, cond) {
                Err(Failed) => return Flow::Status(500),
                Ok(false) => at = *next,
                Ok(true) => {
                    if let Some(id) = location {
                        r.set_location(*id);
                    }
                }
            },
            Op::Other(step) => {
                if let Err(Failed) = step.run(&mut Program { r, quote: e.quote }) {
                    return Flow::Status(500);
                }
            }
            Op::Rewrite(rule) => match rewrite(r, &mut e, rule) {
                Err(Failed) => return Flow::Status(500),
                Ok(true) if rule.last => break,
                Ok(_) => {}
            },
        }
    }
    match e.status {
        Some(status) => Flow::Status(status),
        None => Flow::Declined,
    }
}

/// The request ends with 500; why has been logged.
#[derive(Debug)]
pub struct Failed;

fn set(r: &mut Request, e: &Engine, var: VarId, value: &Template) {
    with_scratch(|buf| {
        eval(r, value, e.quote, buf);
        r.set_var(var, buf);
    });
}

fn answer(r: &mut Request, ret: &Return) -> Flow {
    if matches!(ret.text, Text::None) && ret.status >= 400 {
        return Flow::Status(ret.status);
    }
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    r.out.status = ret.status;
    if matches!(ret.status, 301 | 302 | 303 | 307 | 308) {
        return redirect(r, ret);
    }
    let buf = match &ret.text {
        Text::None => Buf::last(),
        Text::Constant(text) => Buf::mem(text.get()).and_last(),
        Text::Computed(template) => Buf::mem(r.eval(template)).and_last(),
    };
    r.out.content_length = Some(buf.len());
    special::set_content_type(r);
    special::finish(r, buf)
}

fn redirect(r: &mut Request, ret: &Return) -> Flow {
    r.flags.own_location = true;
    r.out.remove(b"Location");
    match &ret.text {
        Text::None => r.out.add(b"Location", b""),
        Text::Constant(text) => r.out.add(b"Location", &text.get()),
        Text::Computed(template) => with_scratch(|buf| {
            r.eval_into(template, buf);
            r.out.add(b"Location", buf);
        }),
    }
    Flow::Status(ret.status)
}

fn holds(r: &mut Request, e: &Engine, cond: &Cond) -> Result<bool, Failed> {
    with_scratch(|buf| match cond {
        Cond::True(var) => {
            r.var(*var, buf);
            Ok(eval::is_true(buf))
        }
        Cond::Equal { var, value, negated } => {
            r.var(*var, buf);
            let equal = match value.as_constant() {
                Some(text) => buf == text,
                None => with_scratch(|other| {
                    eval(r, value, e.quote, other);
                    buf == other
                }),
            };
            Ok(equal != *negated)
        }
        Cond::Order { var, value, holds } => {
            r.var(*var, buf);
            let number = |text: &[u8]| parse_int(text).filter(|n| i64::try_from(*n).is_ok());
            let Some(left) = number(buf) else { return Ok(false) };
            let right = with_scratch(|other| {
                eval(r, value, e.quote, other);
                number(other)
            });
            Ok(right.is_some_and(|right| holds(&left, &right)))
        }
        Cond::Match { var, regex, negated } => {
            r.var(*var, buf);
            Ok(matches(r, e.log, regex, buf)? != *negated)
        }
        Cond::File { path, test, negated } => {
            eval(r, path, e.quote, buf);
            Ok(file(r, buf, *test) != *negated)
        }
    })
}

fn matches(
    r: &mut Request,
    log: bool,
    (regex, vars): &weir_core::registry::NamedRegex,
    subject: &[u8],
) -> Result<bool, Failed> {
    let hit = regex_match(r, regex, vars, subject).map_err(|_| Failed)?;
    if !hit {
        r.values.captures.captures.clear();
    }
    if log {
        let how: &[u8] = if hit { b"\" matches \"" } else { b"\" does not match \"" };
        let text = [b"\"", regex.pattern(), how, subject, b"\""].concat();
        r.log_bytes(LogLevel::Notice, &text);
    }
    Ok(hit)
}

fn file(r: &mut Request, path: &[u8], test: FileTest) -> bool {
    let meta = match weir_http::symlinks::metadata(r, path) {
        Ok(meta) => meta,
        Err(e) => {
            let quiet = [std::io::ErrorKind::NotFound, std::io::ErrorKind::NotADirectory];
            if !quiet.contains(&e.kind()) {
                let why = weir_conf::messages::os_error(&e);
                let path = paths::path(path);
                let text = format!("stat() \"{}\" failed ({why})", path.display());
                r.log(LogLevel::Crit, &text);
            }
            return false;
        }
    };
    match test {
        FileTest::Plain => meta.is_file(),
        FileTest::Directory => meta.is_dir(),
        FileTest::Exists => meta.is_file() || meta.is_dir(),
        FileTest::Executable => EXECUTABLES_ARE_MARKED && is_executable(&meta),
    }
}

/// Answers whether the expression matched.
fn rewrite(r: &mut Request, e: &mut Engine, rule: &Rewrite) -> Result<bool, Failed> {
    let uri = std::mem::take(&mut r.uri);
    let hit = matches(r, e.log, &rule.regex, &uri);
    r.uri = uri;
    if !hit? {
        return Ok(false);
    }
    r.flags.internal = true;
    r.flags.valid_unparsed_uri = false;
    match rule.break_cycle {
        true => {
            r.flags.uri_changed = false;
            r.flags.valid_location = false;
        }
        false => r.flags.uri_changed = true,
    }
    match rule.redirect {
        Some(status) => {
            e.status = Some(status);
            write_redirect(r, e, rule);
        }
        None => write_uri(r, e, rule)?,
    }
    e.quote = false;
    Ok(true)
}

fn write_redirect(r: &mut Request, e: &Engine, rule: &Rewrite) {
    with_scratch(|raw| {
        eval(r, &rule.path, true, raw);
        with_scratch(|target| {
            let taken = unescape_uri(target, raw, Unescape::Redirect);
            target.extend_from_slice(&raw[taken..]);
            if rule.add_args && !r.args.is_empty() {
                target.push(if rule.has_args { b'&' } else { b'?' });
                target.extend_from_slice(&r.args);
            }
            if e.log {
                let text = [b"rewritten redirect: \"", target.as_slice(), b"\""].concat();
                r.log_bytes(LogLevel::Notice, &text);
            }
            special::set_location(r, target);
        });
    });
}

fn write_uri(r: &mut Request, e: &Engine, rule: &Rewrite) -> Result<(), Failed> {
    with_scratch(|path| {
        eval(r, &rule.path, false, path);
        match &rule.args {
            Some(template) => with_scratch(|args| {
                eval(r, template, true, args);
                if rule.add_args && !r.args.is_empty() {
                    args.push(b'&');
                    args.extend_from_slice(&r.args);
                }
                std::mem::swap(&mut r.args, args);
            }),
            None if !rule.add_args => r.args.clear(),
            None => {}
        }
        std::mem::swap(&mut r.uri, path);
    });
    if e.log {
        let text = [b"rewritten data: \"", &r.uri[..], b"\", args: \"", &r.args, b"\""].concat();
        r.log_bytes(LogLevel::Notice, &text);
    }
    if r.uri.is_empty() {
        r.log(LogLevel::Error, "the rewritten URI has a zero length");
        return Err(Failed);
    }
    Ok(())
}
