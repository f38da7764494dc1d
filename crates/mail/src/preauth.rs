//! What a client says until it has a server.

use crate::facts::Came;
use crate::proxy;
use crate::serve::{read, send, wait, Over};
use crate::{auth, host_name, tls, Session};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::relay::Talk as Joined;
use weir_core::{ConnError, Session as _};
use weir_runtime::clock;
use weir_wire::mail::auth_answer::Answer;
use weir_wire::mail::session::{Session as Dialogue, Step};
use weir_wire::mail::Protocol;

/// Who answers `auth_http` with "ask again" and no time is asked again after this: nginx asks at once, for as
/// long as that is the answer.
const AGAIN_LEAST_SECS: u64 = 1;

/// Commands that a client may have answered before others are looked at.
const STEPS_PER_TURN: u32 = 32;

/// Greets the client and talks with it; nothing if the session is over.
pub(crate) async fn run(s: &mut Session, buf: Vec<u8>) -> Option<Joined> {
    let settings = Arc::clone(&s.server().settings);
    let now_secs = u64::try_from(clock::wall_secs()).unwrap_or_default();
    let random = RandomState::new().hash_one(s.conn().serial) as u32;
    let dialogue = Dialogue::new(settings, random, now_secs, s.conn().is_tls());
    let mut talk = Talk { s, dialogue, buf, deadline: 0, steps: 0 };
    talk.run().await.ok().flatten()
}

struct Talk<'a> {
    s: &'a mut Session,
    dialogue: Dialogue,
    /// What has been read and not yet understood.
    buf: Vec<u8>,
    /// When the client must have said who it is, in monotonic ms.
    deadline: u64,
    steps: u32,
}

impl Talk<'_> {
    async fn run(&mut self) -> Result<Option<Joined>, Over> {
        self.greet().await?;
        self.s.doing = "in auth state";
        loop {
            self.take_turns().await;
            match self.next_step() {
                Step::NeedMore => self.read().await?,
                Step::Reply => self.reply().await?,
                Step::Bye => return self.end().await,
                // In boxes: a client that says nothing keeps no room for them.
                Step::StartTls => Box::pin(self.start_tls()).await?,
                Step::Ask => match Box::pin(self.ask()).await? {
                    Some(joined) => return Ok(Some(joined)),
                    None => self.s.doing = "in auth state",
                },
            }
        }
    }

    /// A client that sends without a pause leaves others theirs.
    async fn take_turns(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STEPS_PER_TURN) {
            weir_runtime::event_loop::yield_now().await;
        }
    }

    fn next_step(&mut self) -> Step {
        let (read, step) = self.dialogue.advance(&self.buf);
        self.buf.drain(..read);
        if self.buf.is_empty() {
            self.buf = Vec::new();
        }
        if !self.dialogue.login().is_empty() {
            self.s.login = self.dialogue.login().to_vec();
        }
        if let Some(notice) = self.dialogue.notice.take() {
            self.s.log(LogLevel::Info, &notice.to_string());
        }
        step
    }

    async fn greet(&mut self) -> Result<(), Over> {
        let timeout_ms = *self.s.server().core.timeout;
        self.s.doing = "sending client greeting line";
        if self.dialogue.protocol() == Protocol::Smtp {
            self.s.host = Box::pin(host_name::of_client(self.s)).await;
            let delay_ms = *self.s.server().core.greeting_delay;
            if delay_ms > 0 {
                self.s.doing = "in delay pipelining state";
                Box::pin(self.keep_silent(delay_ms)).await?;
            }
        }
        self.deadline = clock::mono_ms() + timeout_ms;
        self.dialogue.greet();
        self.reply().await
    }

    /// Nobody speaks until the greeting comes.
    async fn keep_silent(&mut self, delay_ms: u64) -> Result<(), Over> {
        if self.buf.is_empty() {
            let room = self.room();
            match wait(self.s, &mut self.buf, room, clock::mono_ms() + delay_ms).await {
                Err(ConnError::Timeout) => return Ok(()),
                Err(ConnError::Io(_)) => return Err(Over),
                Ok(()) => {}
            }
        }
        self.dialogue.spoke_too_early(&self.buf);
        if let Some(notice) = self.dialogue.notice.take() {
            self.s.log(LogLevel::Info, &notice.to_string());
        }
        self.reply().await?;
        Err(Over)
    }

    fn room(&self) -> usize {
        self.s.server().settings.command_max_bytes.saturating_sub(self.buf.len())
    }

    async fn read(&mut self) -> Result<(), Over> {
        match self.room() {
            0 => Err(Over),
            room => read(self.s, &mut self.buf, room, self.deadline).await,
        }
    }

    async fn reply(&mut self) -> Result<(), Over> {
        let out = std::mem::take(&mut self.dialogue.out);
        send(self.s, &out).await
    }

    async fn end(&mut self) -> Result<Option<Joined>, Over> {
        self.reply().await.map(|()| None)
    }

    async fn start_tls(&mut self) -> Result<(), Over> {
        self.reply().await?;
        // Anybody may have put it there (RFC 3207, section 4.2).
        self.buf = Vec::new();
        self.s.starttls = true;
        self.s.doing = "in starttls state";
        if let Err(words) = tls::begin(self.s, Vec::new(), self.deadline).await {
            self.s.facts.came(Came::TlsFailed);
            send(self.s, words).await?;
            return Err(Over);
        }
        self.dialogue.tls_begun();
        self.s.doing = "in auth state";
        Ok(())
    }

    /// Asks for the client's server and goes there; nothing if the client may try again.
    async fn ask(&mut self) -> Result<Option<Joined>, Over> {
        loop {
            self.s.doing = "in http auth state";
            match auth::ask(self.s, &self.dialogue).await {
                None => return self.fail().await,
                Some(Answer::Wait { secs }) => {
                    self.sleep(secs.max(AGAIN_LEAST_SECS)).await?;
                    // What it has sent may hide that it has gone.
                    if self.s.conn().stream.socket().has_ended() {
                        return Err(Over);
                    }
                }
                Some(Answer::Refused { reason, words, wait_secs }) => {
                    let text = [b"client login failed: \"", &reason[..], b"\""].concat();
                    self.s.log_bytes(LogLevel::Info, &text);
                    self.dialogue.refused(&words);
                    self.s.facts.came(Came::Refused);
                    if wait_secs == 0 {
                        self.reply().await?;
                        return Err(Over);
                    }
                    self.sleep(wait_secs).await?;
                    self.reply().await?;
                    self.deadline = clock::mono_ms() + *self.s.server().core.timeout;
                    return Ok(None);
                }
                Some(Answer::Pass { server, credentials }) => {
                    self.s.login.clone_from(&credentials.login);
                    let buf = std::mem::take(&mut self.buf);
                    return match proxy::join(self.s, &self.dialogue, server, credentials, buf).await
                    {
                        Ok(joined) => Ok(Some(joined)),
                        Err(words) => {
                            self.s.facts.came(Came::Failed);
                            send(self.s, &words).await?;
                            Err(Over)
                        }
                    };
                }
            }
        }
    }

    async fn fail(&mut self) -> Result<Option<Joined>, Over> {
        self.s.facts.came(Came::Failed);
        self.dialogue.internal_error();
        self.reply().await?;
        Err(Over)
    }

    async fn sleep(&self, secs: u64) -> Result<(), Over> {
        let wait = self.s.conn().sleep_while_open(secs.saturating_mul(1000), false).await;
        wait.map_err(|_| Over)
    }
}
