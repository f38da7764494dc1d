//! Bytes both ways between a client and a server, until one of them is done: a session of stream, a
//! tunnel behind `101`.
//!
//! What is read is written on at once from a buffer that all of a worker's relays share; only what the
//! other side does not take is kept, so that a relay that is quiet holds no buffer. A plain sender that
//! keeps filling the buffer is spliced: its bytes go on within the kernel for as long as they come and are
//! taken, through a pipe that all of a worker's relays share too: one that waits holds its sockets and
//! no other descriptor. Nobody moves more than a turn's bytes before others have theirs.

mod pace;
mod talk;
#[cfg(test)]
mod tests;
mod way;

pub use pace::Pace;
pub use talk::{End, Passed, Relayed, Talk};

use crate::counters::Counters;
use crate::Connection;
use std::io;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};
use way::{Failed, Turn, Way};
use weir_runtime::clock;
use weir_runtime::timer::LazyTimer;
use weir_runtime::turns;
use weir_tls::Channel;

/// The side that has connected to us, as the sender on a way.
pub const CLIENT: usize = 0;
/// The side that we have connected to.
pub const SERVER: usize = 1;

/// Copied one way in one turn; of what is spliced it is four times as much.
const TURN_BYTES: usize = 256 * 1024;

/// How two sides are joined.
pub struct How {
    /// Bytes that are read at once.
    pub size: usize,
    /// When it is given up.
    pub waits: Waits,
    /// Each direction is closed on its own.
    pub half_close: bool,
    /// Bytes a second from the client, and from the server; 0 for no limit.
    pub rates: [u64; 2],
}

/// How long nothing may pass, in milliseconds.
#[derive(Clone, Copy)]
pub struct Waits {
    /// While nothing is to be sent.
    pub quiet_ms: u64,
    /// While the client does not take what it is sent.
    pub client_ms: u64,
    /// While the server does not take what it is sent.
    pub server_ms: u64,
}

impl Waits {
    /// The same in any case.
    pub fn all(ms: u64) -> Waits {
        Waits { quiet_ms: ms, client_ms: ms, server_ms: ms }
    }
}

/// What a relay tells of. Behind `Unread` it goes on, with the others it is over.
pub enum Event {
    /// Reading from that side has failed, which counts as its end.
    Unread(usize, io::Error),
    /// What comes from that side cannot be sent to the other.
    Unsent(usize, io::Error),
    /// It took too long.
    Late(Late),
    /// That side has ended, and the other has all of it.
    Done(usize),
}

/// Who let time run out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// The client did not take what it was sent.
    Client,
    /// The server did not take what it was sent.
    Server,
    /// Both were quiet.
    Both,
}

/// Where rates are limited.
struct Paced {
    pace: Pace,
    timer: LazyTimer,
}

/// What a relay waits for, besides its sides, when it has moved what it could.
enum Until {
    /// Others have had their turn.
    Turn,
    /// This time (monotonic ms), by a rate.
    Paced(u64),
    /// Its deadline.
    Late(Late),
}

/// The two ways between a client and a server.
pub struct Relay {
    waits: Waits,
    ways: [Way; 2],
    /// Moved on by every byte that passes.
    deadline_ms: u64,
    paced: Option<Box<Paced>>,
    size: u32,
    half_close: bool,
}

impl Relay {
    /// Nothing has passed yet.
    pub fn new(how: How) -> Relay {
        let How { size, waits, half_close, rates } = how;
        let pace = Pace::new(rates, clock::mono_ms());
        let paced = pace.map(|pace| Box::new(Paced { pace, timer: LazyTimer::new() }));
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        Relay { size, waits, ways: Default::default(), deadline_ms: 0, paced, half_close }
    }

    /// What goes to the other side ahead of all that is read from this one; so many bytes count as
    /// received.
    pub fn begin_with(&mut self, from: usize, bytes: Vec<u8>, received: u64) {
        self.ways[from].keep(bytes);
        self.ways[from].received += received;
    }

    /// Bytes that were received from a side.
    pub fn received(&self, from: usize) -> u64 {
        self.ways[from].received
    }

    /// Whether nothing more comes from that side.
    pub fn has_ended(&self, from: usize) -> bool {
        self.ways[from].eof
    }

    /// Those of them, and of what they began with, that the other side has taken.
    pub fn sent(&self, from: usize) -> u64 {
        self.ways[from].sent
    }

    /// Lets them talk. All waiting is the client's connection's task's.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &Connection,
        server: &Channel,
    ) -> Poll<Event> {
        let (sides, released) = ([&client.stream, server], &client.worker.counters.released);
        loop {
            match self.move_both(cx, sides, released) {
                Err(event) => return Poll::Ready(event),
                Ok(Until::Turn) => {
                    turns::let_others(cx);
                    return Poll::Pending;
                }
                Ok(Until::Late(late)) => {
                    return client.poll_timeout(cx, self.deadline_ms).map(|()| Event::Late(late));
                }
                Ok(Until::Paced(at_ms)) => {
                    let timer = self.paced.as_mut().map(|paced| &mut paced.timer);
                    if timer.is_some_and(|timer| timer.poll_until(cx, at_ms).is_pending()) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Moves what can be moved both ways and in one turn.
    fn move_both(
        &mut self,
        cx: &mut Context<'_>,
        sides: [&Channel; 2],
        released: &AtomicU64,
    ) -> Result<Until, Event> {
        if let Some(paced) = &mut self.paced {
            paced.pace.set_now(clock::mono_ms());
        }
        let (mut moved, mut has_more) = (false, false);
        // The server first: a reset by it is told of by what is read, not by what cannot be sent any more.
        for from in [SERVER, CLIENT] {
            let mut turn = Turn::of(TURN_BYTES);
            moved |= self.pump(cx, from, sides, &mut turn, released)?;
            has_more |= turn.is_over();
            if self.is_over() {
                return Err(Event::Done(self.ender(from)));
            }
            self.close_half(from, sides[1 - from]);
        }
        if has_more {
            self.deadline_ms = 0;
            return Ok(Until::Turn);
        }
        if let Some(at_ms) = self.paced.as_ref().and_then(|paced| paced.pace.held_until()) {
            // While a rate holds one side back, being quiet is no fault.
            self.deadline_ms = 0;
            return Ok(Until::Paced(at_ms));
        }
        let (wait_ms, late) = self.wait();
        if moved || self.deadline_ms == 0 {
            self.deadline_ms = clock::mono_ms() + wait_ms;
        }
        Ok(Until::Late(late))
    }

    /// How long what they wait for may take now, and whose fault it is then.
    fn wait(&self) -> (u64, Late) {
        let Waits { quiet_ms, client_ms, server_ms } = self.waits;
        match () {
            () if !self.ways[SERVER].is_empty() => (client_ms, Late::Client),
            () if !self.ways[CLIENT].is_empty() => (server_ms, Late::Server),
            () => (quiet_ms, Late::Both),
        }
    }

    /// nginx's rule: one side has ended and the other has taken all of it.
    fn is_over(&self) -> bool {
        let [up, down] = &self.ways;
        if self.half_close {
            return up.eof && down.eof && up.is_empty() && down.is_empty();
        }
        (up.eof && (up.is_empty() || down.eof)) || (down.eof && (down.is_empty() || up.eof))
    }

    /// Who has ended it: of two the one that was looked at last.
    fn ender(&self, last: usize) -> usize {
        match [CLIENT, SERVER].map(|from| self.ways[from].eof) {
            [true, false] => CLIENT,
            [false, true] => SERVER,
            _ => last,
        }
    }

    fn close_half(&mut self, from: usize, to: &Channel) {
        let way = &mut self.ways[from];
        if self.half_close && way.eof && way.is_empty() && !way.closed {
            way.closed = true;
            to.shutdown_write();
        }
    }

    /// Moves what can be moved one way and in one turn; whether anything was.
    fn pump(
        &mut self,
        cx: &mut Context<'_>,
        from: usize,
        sides: [&Channel; 2],
        turn: &mut Turn,
        released: &AtomicU64,
    ) -> Result<bool, Event> {
        let ends = [sides[from], sides[1 - from]];
        let (way, size) = (&mut self.ways[from], self.size as usize);
        let mut pace = self.paced.as_mut().map(|paced| &mut paced.pace);
        let event = |failed| match failed {
            Failed::Reading(e) => Event::Unread(from, e),
            Failed::Writing(e) => Event::Unsent(from, e),
        };
        let mut moved = false;
        while !turn.is_over() {
            if let Some(done) = way.splice(cx, ends, turn) {
                moved |= done.map_err(event)?;
                if way.eof {
                    return Ok(moved);
                }
                continue;
            }
            if !way.is_empty() {
                match way.send_rest(cx, ends[1]).map_err(event)? {
                    true => moved = true,
                    false => return Ok(moved),
                }
                if way.is_empty() {
                    Counters::add(released, 1);
                }
                continue;
            }
            let room = pace.as_mut().map_or(size, |p| p.allowed(from, way.received, size));
            if way.eof || room == 0 {
                return Ok(moved);
            }
            match way.pass_on(cx, ends, room, turn).map_err(event)? {
                Poll::Ready(0) => return Ok(true),
                Poll::Ready(n) => {
                    moved = true;
                    match pace.as_mut().filter(|p| p.limits(from)) {
                        Some(pace) => pace.pay(from, n as u64),
                        None => way.note_full(n == room, ends),
                    }
                }
                Poll::Pending => return Ok(moved),
            }
        }
        Ok(moved)
    }
}
