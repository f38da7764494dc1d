//! Running a program.

use super::vars::{Item, Timer};
use super::{parts, Command, EchoLoc, Line, Program};
use bytes::Bytes;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use weir_base::units::parse_fixed;
use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session};
use weir_http::body::{self, BodyError};
use weir_http::module::{FilterError, Flow};
use weir_http::redirect::{internal_redirect, named_location};
use weir_http::{special, Buf, Chain, Request};
use weir_runtime::{clock, event_loop, timer};
use weir_script::template::Template;
use weir_wire::http1::uri::unsafe_uri;

/// What is put out goes no further ahead of the client.
const AHEAD_BYTES: u64 = 64 * 1024;
/// What a string that is repeated is put out in.
const BLOCK_BYTES: usize = 32 * 1024;
/// After so much, others have their turn.
const TURN_BYTES: u64 = 1024 * 1024;
/// What a round of a loop counts, and a buffer besides what is in it.
const ROUND_BYTES: u64 = 1024;

pub(super) fn handler(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    let Some(program) = loc.conf::<EchoLoc>().program.as_deref() else { return Flow::Declined };
    if !program.reads_body() {
        if let Err(flow) = body::discard(r) {
            return flow;
        }
    }
    match program.is_plain() {
        true => plain(r, program).unwrap_or_else(|flow| flow),
        false => Flow::Wait(wait),
    }
}

fn wait(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let loc = Rc::clone(r.loc());
        let Some(program) = loc.conf::<EchoLoc>().program.as_deref() else { return Flow::Declined };
        // An end that comes later is the client's going.
        let half_closed = r.is_half_closed();
        let mut run = Run { r, begun: false, turn_bytes: 0, half_closed };
        run.all(program).await.unwrap_or_else(|flow| flow)
    })
}

/// Lines alone: one buffer.
fn plain(r: &mut Request, program: &Program) -> Result<Flow, Flow> {
    let mut text = Vec::new();
    let mut begun = false;
    for command in &program.commands {
        let Command::Echo(line) = command else { continue };
        write(r, line, &mut text);
        if !std::mem::replace(&mut begun, true) {
            send_header(r)?;
        }
    }
    if r.flags.header_only {
        return Ok(Flow::Ok);
    }
    let put = r.output(Chain::one(Buf::mem(text).and_last()));
    put.map_err(|_| Flow::Close)?;
    Ok(Flow::Ok)
}

/// Appends a line's words.
pub(super) fn write(r: &mut Request, line: &Line, out: &mut Vec<u8>) {
    for (at, word) in line.words.iter().enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        r.eval_into(word, out);
    }
    if line.ends {
        out.push(b'\n');
    }
}

fn send_header(r: &mut Request) -> Result<(), Flow> {
    let loc = Rc::clone(r.loc());
    r.out.status = *loc.conf::<EchoLoc>().status;
    special::set_content_type(r);
    r.out.clear_content_length();
    r.send_header().map_err(|e| match e {
        FilterError::Status(status) if !r.flags.header_sent => Flow::Status(status),
        _ => Flow::Close,
    })
}

/// A pause in milliseconds.
pub(super) fn sleep_ms(secs: &[u8]) -> Option<u64> {
    parse_fixed(secs, 3)
}

/// A loop that runs.
struct Loop {
    /// The command behind its head.
    from: usize,
    pieces: Pieces,
}

impl Loop {
    /// Gives `$echo_it` the next piece, if there is one.
    fn next(&mut self, r: &mut Request) -> bool {
        let next = self.pieces.next();
        match next {
            Some(piece) => r.set_ctx(Item(piece.to_vec())),
            None => drop(r.take_ctx::<Item>()),
        }
        next.is_some()
    }
}

/// What stands between separators and is not empty.
struct Pieces {
    text: Vec<u8>,
    separator: Vec<u8>,
    at: usize,
}

impl Pieces {
    fn next(&mut self) -> Option<&[u8]> {
        while self.at < self.text.len() {
            let from = self.at;
            let end = match self.separator.is_empty() {
                true => None,
                false => memchr::memmem::find(&self.text[from..], &self.separator),
            };
            let length = end.unwrap_or(self.text.len() - from);
            self.at = from + length + self.separator.len();
            if length > 0 {
                return Some(&self.text[from..from + length]);
            }
        }
        None
    }
}

pub(super) struct Run<'a> {
    pub(super) r: &'a mut Request,
    /// The header has gone through the filters, though one may hold it.
    begun: bool,
    /// What was done since others had their turn, by its bytes.
    turn_bytes: u64,
    /// The client had ended its side together with its request.
    half_closed: bool,
}

impl Run<'_> {
    async fn all(&mut self, program: &Program) -> Result<Flow, Flow> {
        let mut at = 0;
        let mut open: Option<Loop> = None;
        while let Some(command) = program.commands.get(at) {
            at += 1;
            match command {
                Command::Foreach(separator, text) => {
                    let (separator, text) = (self.r.eval(separator), self.r.eval(text));
                    let mut begun = Loop { from: at, pieces: Pieces { text, separator, at: 0 } };
                    if begun.next(self.r) {
                        open = Some(begun);
                    } else {
                        let is_end = |c: &Command| matches!(c, Command::End);
                        at += program.commands[at..].iter().take_while(|c| !is_end(c)).count() + 1;
                    }
                }
                Command::End => {
                    self.pause(ROUND_BYTES).await;
                    let has_next = open.as_mut().is_some_and(|again| again.next(self.r));
                    match &open {
                        Some(again) if has_next => at = again.from,
                        _ => open = None,
                    }
                }
                Command::Exec(uri, args) => return self.exec(uri, args.as_ref()),
                command => self.one(command).await?,
            }
        }
        self.begin()?;
        if !self.r.flags.header_only {
            self.r.output(Chain::one(Buf::last())).map_err(|_| Flow::Close)?;
        }
        Ok(Flow::Ok)
    }

    async fn one(&mut self, command: &Command) -> Result<(), Flow> {
        match command {
            Command::Echo(line) => {
                let mut text = Vec::new();
                write(self.r, line, &mut text);
                match text.is_empty() {
                    true => Ok(()),
                    false => self.put(Buf::mem(text)).await,
                }
            }
            Command::Duplicate(count, text) => self.duplicate(count, text).await,
            Command::Flush => self.flush().await,
            Command::Sleep(secs) => self.sleep(secs).await,
            Command::ResetTimer => {
                self.r.set_ctx(Timer { begun_ms: clock::mono_ms() });
                Ok(())
            }
            Command::ReadBody => self.read_body().await,
            Command::Body => self.body().await,
            Command::Ask(ask) => parts::run(self, ask).await,
            Command::Foreach(..) | Command::End | Command::Exec(..) => Ok(()),
        }
    }

    /// Sends the header, once.
    pub(super) fn begin(&mut self) -> Result<(), Flow> {
        match std::mem::replace(&mut self.begun, true) {
            true => Ok(()),
            false => send_header(self.r),
        }
    }

    /// The request fails in a way that the log knows of.
    pub(super) fn fail(&self, text: &str, status: u16) -> Flow {
        self.r.log(LogLevel::Error, text);
        self.end(status)
    }

    /// Somebody asks for what is out of the site.
    pub(super) fn refuse(&self, name: &str, uri: &[u8], status: u16) -> Flow {
        let shown = String::from_utf8_lossy(uri);
        self.r.log(LogLevel::Warn, &format!("{name} sees unsafe uri: \"{shown}\""));
        self.end(status)
    }

    fn end(&self, status: u16) -> Flow {
        if self.begun {
            Flow::Close
        } else {
            Flow::Status(status)
        }
    }

    /// Lets others have their turn, if enough was done.
    async fn pause(&mut self, bytes: u64) {
        self.turn_bytes += bytes;
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            event_loop::yield_now().await;
        }
    }

    /// Puts out a buffer, and waits for room behind it.
    pub(super) async fn put(&mut self, buf: Buf) -> Result<(), Flow> {
        self.begin()?;
        if self.r.flags.header_only {
            return Ok(());
        }
        let bytes = buf.len() + ROUND_BYTES;
        self.r.output(Chain::one(buf)).map_err(|_| Flow::Close)?;
        self.pause(bytes).await;
        let is_crowded = self.r.queued() > AHEAD_BYTES || self.r.has_parts() || self.r.holds();
        match is_crowded {
            true => self.r.drain(AHEAD_BYTES).await.map_err(|_| Flow::Close),
            false => Ok(()),
        }
    }

    async fn duplicate(&mut self, count: &Template, text: &Template) -> Result<(), Flow> {
        let (count, text) = (self.r.eval(count), self.r.eval(text));
        let digits: Vec<u8> = count.iter().copied().filter(|b| *b != b'_').collect();
        let Some(mut left) = weir_base::units::parse_int(&digits) else {
            let shown = String::from_utf8_lossy(&count);
            return Err(self.fail(&format!("invalid size specified: \"{shown}\""), 500));
        };
        self.begin()?;
        if left == 0 || text.is_empty() || self.r.flags.header_only {
            return Ok(());
        }
        let fit = (BLOCK_BYTES / text.len()).max(1).min(left.min(BLOCK_BYTES as u64) as usize);
        let block = Bytes::from(text.repeat(fit));
        while left > 0 {
            let times = left.min(fit as u64);
            let piece = block.slice(..times as usize * text.len());
            left -= times;
            self.put(Buf::mem(piece)).await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Flow> {
        self.put(Buf::flush()).await?;
        // What stands behind a part leaves when that has ended.
        if self.r.flags.header_only || self.r.is_part() || self.r.running_parts() > 0 {
            return Ok(());
        }
        self.r.drain(0).await.map_err(|_| Flow::Close)
    }

    async fn sleep(&mut self, secs: &Template) -> Result<(), Flow> {
        let secs = self.r.eval(secs);
        let Some(ms) = sleep_ms(&secs) else {
            let shown = String::from_utf8_lossy(&secs);
            return Err(self.fail(&format!("invalid sleep duration \"{shown}\""), 400));
        };
        let end = clock::mono_ms().saturating_add(ms);
        if self.r.running_parts() > 0 {
            // They go on meanwhile, and so does what they have put out.
            let going = self.r.drain_on(0);
            let over = timer::sleep_until_ms(end);
            let (mut going, mut over) = (pin!(going), pin!(over));
            let gone = poll_fn(|cx| match going.as_mut().poll(cx) {
                Poll::Ready(ended) => Poll::Ready(ended.is_err()),
                Poll::Pending => over.as_mut().poll(cx).map(|()| false),
            });
            if gone.await {
                return Err(Flow::Close);
            }
        }
        let left = end.saturating_sub(clock::mono_ms());
        match left == 0 || self.r.sleep_while_open(left, self.half_closed).await.is_ok() {
            true => Ok(()),
            false if self.begun => Err(Flow::Close),
            false => Err(Flow::Status(499)),
        }
    }

    pub(super) async fn read_body(&mut self) -> Result<(), Flow> {
        body::read_all(self.r).await.map_err(|e| match e {
            BodyError::Status(status) if !self.begun => Flow::Status(status),
            BodyError::Closed if !self.begun => Flow::Status(499),
            _ => Flow::Close,
        })
    }

    /// The body as it was read: from memory, or from its file piece by piece.
    async fn body(&mut self) -> Result<(), Flow> {
        if !self.r.body.complete || self.r.body.is_none() {
            return Ok(());
        }
        let Some(temp) = self.r.body.file.clone() else {
            let text = self.r.body.memory.clone();
            return if text.is_empty() { Ok(()) } else { self.put(Buf::mem(text)).await };
        };
        let (mut at, length) = (0, self.r.body.length);
        while at < length {
            let piece = AHEAD_BYTES.min(length - at);
            self.put(Buf::file(Rc::clone(&temp.file), at, piece)).await?;
            at += piece;
        }
        Ok(())
    }

    fn exec(&mut self, uri: &Template, args: Option<&Template>) -> Result<Flow, Flow> {
        if self.begun {
            return Err(self.fail("echo_exec behind what has been put out", 500));
        }
        let target = self.r.eval(uri);
        let given = args.map(|args| self.r.eval(args));
        let mut path = Vec::new();
        let Ok(own) = unsafe_uri(&target, &mut path) else {
            return Err(self.refuse("echo_exec", &target, 400));
        };
        let args = given.as_deref().or(own).unwrap_or_default();
        if path.first() != Some(&b'@') {
            return Ok(internal_redirect(self.r, &path, args));
        }
        if !args.is_empty() {
            let (args, name) = (String::from_utf8_lossy(args), String::from_utf8_lossy(&path));
            let text = format!("querystring {args} ignored when exec'ing named location {name}");
            self.r.log(LogLevel::Warn, &text);
        }
        Ok(named_location(self.r, &path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_separators() {
        let cut = |text: &str, by: &str| {
            let mut pieces = Pieces { text: text.into(), separator: by.into(), at: 0 };
            let next = || pieces.next().map(|piece| String::from_utf8_lossy(piece).into_owned());
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        assert_eq!(cut("a,b,c", ","), ["a", "b", "c"]);
        assert_eq!(cut(",a,,b,", ","), ["a", "b"]);
        assert_eq!(cut("a-x-b", "-x-"), ["a", "b"]);
        assert_eq!(cut("&&", "&"), Vec::<String>::new());
        assert_eq!(cut("", "&"), Vec::<String>::new());
        assert_eq!(cut("ab", ""), ["ab"]);
    }
}
