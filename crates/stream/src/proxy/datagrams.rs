//! Datagrams both ways between a client and a server, until enough have passed or both are quiet.
//!
//! A datagram goes on whole, whatever its size, from a buffer that all sessions of a worker share.

use crate::serve::{BAD_GATEWAY, ERROR, OK};
use crate::Session;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use weir_core::datagrams::Datagrams;
use weir_core::logger::LogLevel;
use weir_core::relay::{Pace, Relayed, CLIENT, SERVER};
use weir_core::{socket_errors, Session as _, Worker};
use weir_runtime::clock;
use weir_runtime::datagrams::DATAGRAM_MAX_BYTES;
use weir_runtime::net::{is_out_of_descriptors, Stream};
use weir_runtime::timer::LazyTimer;
use weir_upstream::{close_spare, PeerAddr, SocketOptions};

/// How two sides are joined.
pub(super) struct How {
    /// Datagrams of the client that belong to the session; 0 for all.
    pub requests: u64,
    /// Datagrams that the server answers each with; `u64::MAX` if that is not known.
    pub responses: u64,
    /// How long both may be quiet.
    pub timeout_ms: u64,
    /// Bytes a second from the client, and from the server; 0 for no limit.
    pub rates: [u64; 2],
}

/// When a client's socket has no room, it is tried again so soon.
const SEND_AGAIN_MS: u64 = 1;

thread_local! {
    static SHARED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A socket to a server.
pub(super) fn connect(
    addr: &PeerAddr,
    options: &SocketOptions,
    worker: &Worker,
) -> io::Result<Stream> {
    loop {
        let opened = match addr {
            PeerAddr::Ip(addr) => Stream::connect_udp(*addr, options),
            PeerAddr::Unix(path) => Stream::connect_datagram_path(path),
        };
        match opened {
            Err(e) if is_out_of_descriptors(&e) && close_spare(worker) => {}
            other => return other,
        }
    }
}

/// How it ended.
enum End {
    /// All that was expected has passed.
    Done,
    /// Quiet, and nothing is missing.
    Quiet,
    /// Quiet, and the server owes answers.
    Unanswered,
    /// The worker ends.
    Shutdown,
    /// The worker waits for it no longer.
    Cut,
    /// A datagram could not be sent.
    Broken,
}

struct Relay<'a> {
    s: &'a mut Session,
    datagrams: Rc<Datagrams>,
    link: &'a Stream,
    how: &'a How,
    requests: u64,
    responses: u64,
    /// What the other side has not taken yet, by who has sent it.
    rest: [Option<Vec<u8>>; 2],
    pace: Option<Pace>,
    /// Until when a client is not tried again whose socket had no room.
    blocked_until_ms: u64,
    from_server: u64,
    to_server: u64,
    server_failed: bool,
    begun_us: u64,
    /// By which all is decided in one look: who is refused by it waits by it too.
    now_ms: u64,
    deadline_ms: u64,
    timer: LazyTimer,
}

/// Lets them talk; `first` goes to the server before anything else. Answers the session's status, and
/// whether the server has failed.
pub(super) async fn run(
    s: &mut Session,
    link: &Stream,
    how: &How,
    first: &mut Vec<u8>,
) -> (u16, bool) {
    // Only sessions that have them come here.
    let Some(datagrams) = s.conn().datagrams.get().cloned() else { return (ERROR, false) };
    let now_ms = clock::mono_ms();
    let mut relay = Relay {
        s,
        datagrams,
        link,
        how,
        requests: 1,
        responses: 0,
        rest: [Some(std::mem::take(first)), None],
        pace: Pace::new(how.rates, now_ms),
        blocked_until_ms: 0,
        from_server: 0,
        to_server: 0,
        server_failed: false,
        begun_us: clock::mono_us(),
        now_ms,
        deadline_ms: 0,
        timer: LazyTimer::new(),
    };
    relay.release_if_full();
    let end = poll_fn(|cx| relay.poll(cx)).await;
    relay.tell();
    relay.log_end(&end);
    match end {
        End::Unanswered => (BAD_GATEWAY, true),
        _ => (OK, relay.server_failed),
    }
}

impl Relay<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.watch(cx);
        loop {
            self.now_ms = clock::mono_ms();
            self.pace.iter_mut().for_each(|pace| pace.set_now(self.now_ms));
            if self.datagrams.is_cut() {
                return Poll::Ready(End::Cut);
            }
            let moved = match self.move_both(cx) {
                Ok(moved) => moved,
                Err(end) => return Poll::Ready(end),
            };
            if self.is_done() {
                return Poll::Ready(End::Done);
            }
            if self.s.conn().worker.closing.get() && !self.awaits_answers() {
                return Poll::Ready(End::Shutdown);
            }
            if moved || self.deadline_ms == 0 {
                self.deadline_ms = self.now_ms + self.how.timeout_ms;
            }
            match self.held_until() {
                // While a rate holds one side back, being quiet is no fault.
                Some(at) => {
                    self.deadline_ms = 0;
                    if self.timer.poll_until(cx, at).is_pending() {
                        return Poll::Pending;
                    }
                }
                None => return self.timer.poll_until(cx, self.deadline_ms).map(|()| self.late()),
            }
        }
    }

    /// When (monotonic ms) something can be done that cannot be done now, of itself.
    fn held_until(&self) -> Option<u64> {
        let blocked = Some(self.blocked_until_ms).filter(|at| *at > self.now_ms);
        let paced = self.pace.as_ref().and_then(Pace::held_until);
        blocked.into_iter().chain(paced).min()
    }

    /// Has the task woken by datagrams, and when the worker is to end.
    fn watch(&self, cx: &Context<'_>) {
        self.datagrams.watch(cx);
        let mut ender = self.s.conn().ender.borrow_mut();
        if !ender.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *ender = Some(cx.waker().clone());
        }
    }

    /// Whether the server is known to owe answers.
    fn awaits_answers(&self) -> bool {
        self.how.responses != u64::MAX
            && self.responses < self.how.responses.saturating_mul(self.requests)
    }

    fn has_all_requests(&self) -> bool {
        self.how.requests > 0 && self.requests >= self.how.requests
    }

    fn is_done(&self) -> bool {
        (self.how.requests == 0 || self.has_all_requests())
            && self.how.responses != u64::MAX
            && !self.awaits_answers()
            && self.rest.iter().all(Option::is_none)
    }

    fn late(&self) -> End {
        match self.awaits_answers() {
            true => End::Unanswered,
            false => End::Quiet,
        }
    }

    /// What the client sends from now on is for another session.
    fn release_if_full(&self) {
        if self.has_all_requests() {
            self.datagrams.release();
        }
    }

    /// Moves what can be moved; whether anything was.
    fn move_both(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        // Its errors are told of by what is read, before anything more is sent there.
        let down = self.pass_down(cx)?;
        Ok(self.pass_up(cx)? || down)
    }

    fn pass_up(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut moved = false;
        loop {
            if let Some(data) = &self.rest[CLIENT] {
                match self.link.poll_write(cx, &[IoSlice::new(data)], false) {
                    Poll::Ready(Ok(n)) => self.to_server += n as u64,
                    Poll::Ready(Err(e)) => {
                        self.server_failed = true;
                        return Err(self.broken(&e, "proxying and sending to upstream"));
                    }
                    Poll::Pending => return Ok(moved),
                }
                self.rest[CLIENT] = None;
                moved = true;
            }
            if self.has_all_requests() || !self.may_read(CLIENT, self.s.received) {
                return Ok(moved);
            }
            let Poll::Ready(data) = self.datagrams.poll_take(cx) else { return Ok(moved) };
            self.s.received += data.len() as u64;
            self.requests += 1;
            self.pay(CLIENT, data.len());
            self.rest[CLIENT] = Some(data);
            self.release_if_full();
        }
    }

    fn pass_down(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut buf = SHARED.take();
        let moved = self.answer_all(cx, &mut buf);
        SHARED.set(buf);
        moved
    }

    fn answer_all(&mut self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Result<bool, End> {
        let mut moved = false;
        loop {
            if self.rest[SERVER].is_some() && self.blocked_until_ms > self.now_ms {
                return Ok(moved);
            }
            if let Some(data) = self.rest[SERVER].take() {
                if !self.answer(&data)? {
                    return Ok(moved);
                }
                moved = true;
            }
            if !self.may_read(SERVER, self.from_server) {
                return Ok(moved);
            }
            buf.clear();
            match self.link.poll_datagram(cx, buf, DATAGRAM_MAX_BYTES) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(e)) => {
                    self.refused(&e);
                    moved = true;
                    continue;
                }
                Poll::Pending => return Ok(moved),
            }
            self.s.heard(self.begun_us);
            self.responses += 1;
            self.from_server += buf.len() as u64;
            self.pay(SERVER, buf.len());
            if !self.answer(buf)? {
                return Ok(moved);
            }
            moved = true;
        }
    }

    /// Sends to the client; `false`, and kept for later, when there is no room.
    fn answer(&mut self, data: &[u8]) -> Result<bool, End> {
        match self.datagrams.send(data) {
            Ok(n) => {
                self.s.sent += n as u64;
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.rest[SERVER] = Some(data.to_vec());
                self.blocked_until_ms = self.now_ms + SEND_AGAIN_MS;
                Ok(false)
            }
            // Nobody listens on the address any more.
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Err(End::Shutdown),
            Err(e) => Err(self.broken(&e, "proxying and sending to client")),
        }
    }

    fn may_read(&mut self, from: usize, received: u64) -> bool {
        self.pace.as_mut().is_none_or(|pace| pace.allowed(from, received, 1) > 0)
    }

    fn pay(&mut self, from: usize, bytes: usize) {
        self.pace.iter_mut().for_each(|pace| pace.pay(from, bytes as u64));
    }

    #[cold]
    fn refused(&mut self, e: &io::Error) {
        self.s.heard(self.begun_us);
        // It is all the answer that there will be.
        self.responses += 1;
        self.server_failed = true;
        self.log_failed("recv()", e, LogLevel::Error, "proxying and reading from upstream");
    }

    #[cold]
    fn broken(&mut self, e: &io::Error, doing: &'static str) -> End {
        self.log_failed("sendmsg()", e, LogLevel::Error, doing);
        End::Broken
    }

    fn log_failed(&mut self, call: &str, e: &io::Error, most: LogLevel, doing: &'static str) {
        self.tell();
        let before = std::mem::replace(&mut self.s.doing, doing);
        let text = format!("{call} failed ({})", weir_core::os_text(e));
        self.s.log(socket_errors::level(e, most), &text);
        self.s.doing = before;
    }

    /// Puts what has passed where variables and logs find it.
    fn tell(&mut self) {
        let took_us = clock::mono_us().saturating_sub(self.begun_us);
        if let Some(state) = self.s.upstream.last_mut() {
            state.bytes_received = self.from_server;
            state.bytes_sent = self.to_server;
            state.response_us = Some(state.connect_us.unwrap_or_default() + took_us);
        }
    }

    fn log_end(&self, end: &End) {
        let how = match end {
            End::Done => "udp done",
            End::Quiet => "udp timed out",
            End::Unanswered => {
                let text = "upstream timed out (110: Connection timed out)";
                return self.s.log(LogLevel::Error, text);
            }
            End::Shutdown => return self.log_plain("disconnected on shutdown"),
            End::Cut => return self.s.log(LogLevel::Info, "shutdown timeout"),
            End::Broken => return,
        };
        self.log_plain(&format!(
            "{how}, packets from/to client:{}/{}, bytes from/to client:{}/{}, \
             bytes from/to upstream:{}/{}",
            self.requests,
            self.responses,
            self.s.received,
            self.s.sent,
            self.from_server,
            self.to_server
        ));
    }

    fn log_plain(&self, text: &str) {
        let serial = Some(self.s.conn().serial);
        self.s.error_log().log(LogLevel::Info, serial, text.as_bytes());
    }
}
