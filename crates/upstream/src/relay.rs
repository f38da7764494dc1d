//! Bytes both ways between a client and a server, until one of them is done.
//!
//! What is read is written on at once from a buffer that all sessions of a worker share; only what the
//! other side does not take is kept, so that a session that is quiet holds no buffer. A plain sender that
//! keeps filling the buffer is spliced: its bytes go on within the kernel for as long as they come.

use crate::Link;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use weir_core::logger::LogLevel;
use weir_core::{socket_errors, Session};
use weir_runtime::clock;
use weir_runtime::net::Pipe;
use weir_runtime::timer::LazyTimer;
use weir_tls::Channel;

/// A session whose bytes are moved.
pub trait Relayed: Session {
    /// What it is doing, for the error log's lines.
    fn doing(&mut self) -> &mut &'static str;

    /// The server has sent something; so many milliseconds of the monotonic clock it was when the two were
    /// joined.
    fn heard(&mut self, _begun_ms: u64) {}
}

/// How two sides are joined.
pub struct How {
    /// Bytes that are read at once.
    pub size: usize,
    /// How long both may be quiet.
    pub timeout_ms: u64,
    /// Each direction is closed on its own.
    pub half_close: bool,
    /// Bytes a second from the client, and from the server; 0 for no limit.
    pub rates: [u64; 2],
}

thread_local! {
    static SHARED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Empty pipes for those that will have much to send.
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// Reads in a row that fill the buffer before a sender is spliced.
const FULL_READS: u8 = 4;
/// Pipes that a worker keeps.
const PIPES_MAX: usize = 16;

/// Who sends on a way.
pub const CLIENT: usize = 0;
/// The same.
pub const SERVER: usize = 1;

const READING: [&str; 2] =
    ["proxying and reading from client", "proxying and reading from upstream"];
const SENDING: [&str; 2] = ["proxying and sending to upstream", "proxying and sending to client"];

/// What flows one way.
#[derive(Default)]
struct Way {
    /// What the other side has not taken yet, from `at` on.
    rest: Vec<u8>,
    at: usize,
    eof: bool,
    /// The other side has been told of the end.
    closed: bool,
    received: u64,
    sent: u64,
    /// Until when nothing is read, by the rate.
    paced_until_ms: u64,
    /// Reads in a row that have filled the buffer.
    full_reads: u8,
    /// While its bytes go on within the kernel.
    pipe: Option<Pipe>,
}

impl Way {
    fn is_empty(&self) -> bool {
        self.at == self.rest.len() && self.pipe.as_ref().is_none_or(|p| p.held() == 0)
    }

    fn consume(&mut self, n: usize) {
        self.at += n;
        self.sent += n as u64;
        if self.is_empty() {
            // A quiet way holds no buffer.
            (self.rest, self.at) = (Vec::new(), 0);
        }
    }
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By whom: [`CLIENT`] or [`SERVER`].
    Done(usize),
    /// Both were quiet for too long.
    Timeout,
    /// A write to the other side failed, which has been logged.
    Broken,
    /// By `worker_shutdown_timeout`.
    Cut,
}

/// What has passed, by who has sent it.
pub struct Passed {
    /// How it ended.
    pub end: End,
    /// Bytes that were read from [`CLIENT`] and [`SERVER`].
    pub received: [u64; 2],
    /// Bytes that went on to the other side.
    pub sent: [u64; 2],
    /// For how long, in milliseconds.
    pub took_ms: u64,
}

struct Relay<'a, S> {
    s: &'a mut S,
    link: Box<Link>,
    how: How,
    ways: [Way; 2],
    start_secs: u64,
    begun_ms: u64,
    deadline_ms: u64,
    timer: LazyTimer,
}

/// Lets them talk; of each what is already there of its bytes, and how many have been read of the client's.
pub async fn run<S: Relayed>(
    s: &mut S,
    link: Box<Link>,
    how: How,
    [from_client, from_server]: [Vec<u8>; 2],
    read: u64,
) -> Passed {
    let begun_ms = clock::mono_ms();
    let up = Way { rest: from_client, received: read, ..Way::default() };
    let down = Way { received: from_server.len() as u64, rest: from_server, ..Way::default() };
    let mut relay = Relay {
        s,
        link,
        how,
        ways: [up, down],
        start_secs: clock::mono_secs(),
        begun_ms,
        deadline_ms: 0,
        timer: LazyTimer::new(),
    };
    let end = match poll_fn(|cx| relay.poll(cx)).await {
        End::Done(_) if relay.s.conn().is_cut.get() => End::Cut,
        end => end,
    };
    let [up, down] = &relay.ways;
    Passed {
        end,
        received: [up.received, down.received],
        sent: [up.sent, down.sent],
        took_ms: clock::mono_ms().saturating_sub(begun_ms),
    }
}

impl<S: Relayed> Relay<'_, S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let mut moved = false;
            for from in [CLIENT, SERVER] {
                match self.pump(cx, from) {
                    Ok(some) => moved |= some,
                    Err(end) => return Poll::Ready(end),
                }
                if self.is_over() {
                    return Poll::Ready(End::Done(from));
                }
                self.half_close(from);
            }
            let now = clock::mono_ms();
            if moved || self.deadline_ms == 0 {
                self.deadline_ms = now + self.how.timeout_ms;
            }
            let paced = self.ways.iter().map(|w| w.paced_until_ms).filter(|at| *at > now).min();
            match paced {
                // While a rate holds one side back, being quiet is no fault.
                Some(at) => {
                    self.deadline_ms = 0;
                    if self.timer.poll_until(cx, at).is_pending() {
                        return Poll::Pending;
                    }
                }
                None => return self.timer.poll_until(cx, self.deadline_ms).map(|()| End::Timeout),
            }
        }
    }

    /// nginx's rule: one side has ended and the other has taken all of it.
    fn is_over(&self) -> bool {
        let [up, down] = &self.ways;
        if self.how.half_close {
            return up.eof && down.eof && up.is_empty() && down.is_empty();
        }
        (up.eof && (up.is_empty() || down.eof)) || (down.eof && (down.is_empty() || up.eof))
    }

    fn half_close(&mut self, from: usize) {
        let way = &mut self.ways[from];
        if self.how.half_close && way.eof && way.is_empty() && !way.closed {
            way.closed = true;
            match from {
                CLIENT => self.link.stream.shutdown_write(),
                _ => self.s.conn().stream.shutdown_write(),
            }
        }
    }

    /// Moves what can be moved one way; whether anything was.
    fn pump(&mut self, cx: &mut Context<'_>, from: usize) -> Result<bool, End> {
        let conn = Rc::clone(self.s.conn());
        let (source, to) = match from {
            CLIENT => (&conn.stream, &self.link.stream),
            _ => (&self.link.stream, &conn.stream),
        };
        let way = &mut self.ways[from];
        let mut moved = false;
        loop {
            if let Some(done) = splice(cx, source, to, way) {
                match done {
                    Ok(some) => moved |= some,
                    Err(Failed::Reading(e)) => {
                        failed(self.s, "recv()", &e, READING[from]);
                        (way.eof, moved) = (true, true);
                    }
                    Err(Failed::Writing(e)) => {
                        return Err(failed(self.s, "send()", &e, SENDING[from]));
                    }
                }
                return Ok(moved);
            }
            if !way.is_empty() {
                match to.poll_write(cx, &[IoSlice::new(&way.rest[way.at..])], false) {
                    Poll::Ready(Ok(n)) => {
                        way.consume(n);
                        moved = true;
                        continue;
                    }
                    Poll::Ready(Err(e)) => return Err(failed(self.s, "send()", &e, SENDING[from])),
                    Poll::Pending => return Ok(moved),
                }
            }
            let room = allowed(way, self.how.rates[from], self.how.size, self.start_secs);
            if way.eof || room == 0 {
                return Ok(moved);
            }
            match SHARED.with_borrow_mut(|buf| pass_on(cx, source, to, way, buf, room)) {
                Poll::Ready(Ok(0)) => {
                    way.eof = true;
                    return Ok(true);
                }
                Poll::Ready(Ok(n)) => {
                    moved = true;
                    way.full_reads = if n == room { way.full_reads.saturating_add(1) } else { 0 };
                    begin_splicing(way, self.how.rates[from], source, to);
                    pace(way, self.how.rates[from], n as u64);
                    if from == SERVER {
                        self.s.heard(self.begun_ms);
                    }
                }
                Poll::Ready(Err(Failed::Reading(e))) => {
                    failed(self.s, "recv()", &e, READING[from]);
                    way.eof = true;
                    return Ok(true);
                }
                Poll::Ready(Err(Failed::Writing(e))) => {
                    return Err(failed(self.s, "send()", &e, SENDING[from]));
                }
                Poll::Pending => return Ok(moved),
            }
        }
    }
}

enum Failed {
    Reading(io::Error),
    Writing(io::Error),
}

/// Reads into the shared buffer and writes from there; what is not taken is kept. Answers how much was
/// read.
fn pass_on(
    cx: &mut Context<'_>,
    source: &Channel,
    to: &Channel,
    way: &mut Way,
    buf: &mut Vec<u8>,
    room: usize,
) -> Poll<Result<usize, Failed>> {
    buf.clear();
    let n = match source.poll_read_lazy(cx, room, buf, |buf| buf) {
        Poll::Ready(Ok(n)) => n,
        Poll::Ready(Err(e)) => return Poll::Ready(Err(Failed::Reading(e))),
        Poll::Pending => return Poll::Pending,
    };
    way.received += n as u64;
    let mut taken = 0;
    while taken < n {
        match to.poll_write(cx, &[IoSlice::new(&buf[taken..])], false) {
            Poll::Ready(Ok(sent)) => {
                taken += sent;
                way.sent += sent as u64;
            }
            Poll::Ready(Err(e)) => return Poll::Ready(Err(Failed::Writing(e))),
            Poll::Pending => {
                way.rest.extend_from_slice(&buf[taken..]);
                break;
            }
        }
    }
    Poll::Ready(Ok(n))
}

/// A plain sender with much to send gets a pipe, if there is one to be had.
fn begin_splicing(way: &mut Way, rate: u64, source: &Channel, to: &Channel) {
    let is_plain = rate == 0 && !source.is_tls() && !to.is_tls();
    if way.full_reads >= FULL_READS && is_plain && way.is_empty() {
        way.full_reads = 0;
        way.pipe = PIPES.with_borrow_mut(Vec::pop).or_else(|| Pipe::new().ok());
    }
}

/// Moves bytes through the pipe, if the way has one; whether any were moved. The pipe is given back when
/// the sender has nothing more.
fn splice(
    cx: &mut Context<'_>,
    source: &Channel,
    to: &Channel,
    way: &mut Way,
) -> Option<Result<bool, Failed>> {
    let pipe = way.pipe.as_mut()?;
    let mut moved = false;
    loop {
        while pipe.held() > 0 {
            match pipe.poll_drain(cx, to.socket()) {
                Poll::Ready(Ok(n)) => {
                    way.sent += n as u64;
                    moved = true;
                }
                Poll::Ready(Err(e)) => return Some(Err(Failed::Writing(e))),
                Poll::Pending => return Some(Ok(moved)),
            }
        }
        match pipe.poll_fill(cx, source.socket()) {
            Poll::Ready(Ok(n)) if n > 0 => way.received += n as u64,
            ended => {
                let pipe = way.pipe.take();
                PIPES.with_borrow_mut(|pipes| {
                    pipes.extend(pipe.filter(|_| pipes.len() < PIPES_MAX));
                });
                return Some(match ended {
                    Poll::Ready(Ok(_)) => {
                        way.eof = true;
                        Ok(true)
                    }
                    Poll::Ready(Err(e)) => Err(Failed::Reading(e)),
                    Poll::Pending => Ok(moved),
                });
            }
        }
    }
}

/// How much may be read now; a rate counts from the session's first second on, as in nginx.
fn allowed(way: &mut Way, rate: u64, size: usize, start_secs: u64) -> usize {
    if rate == 0 {
        return size;
    }
    let now = clock::mono_ms();
    if way.paced_until_ms > now {
        return 0;
    }
    let due = rate.saturating_mul(clock::mono_secs() - start_secs + 1);
    if way.received >= due {
        way.paced_until_ms = now + (way.received - due) * 1000 / rate + 1;
        return 0;
    }
    size.min((due - way.received) as usize)
}

/// What was read is paid for with a pause.
fn pace(way: &mut Way, rate: u64, n: u64) {
    if let Some(pause_ms) = (n * 1000).checked_div(rate) {
        way.paced_until_ms = clock::mono_ms() + pause_ms;
    }
}

#[cold]
fn failed<S: Relayed>(s: &mut S, call: &str, e: &io::Error, doing: &'static str) -> End {
    let before = std::mem::replace(s.doing(), doing);
    let text = format!("{call} failed ({})", weir_core::os_text(e));
    s.log(socket_errors::level(e, LogLevel::Info), &text);
    *s.doing() = before;
    End::Broken
}
