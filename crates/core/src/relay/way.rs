//! What flows one way.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use weir_runtime::net::Pipe;
use weir_tls::Channel;

thread_local! {
    static SHARED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Empty pipes for those that will have much to send.
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// Reads in a row that fill the buffer before a sender is spliced.
const FULL_READS: u8 = 4;
/// Pipes that a worker keeps.
const PIPES_MAX: usize = 16;

#[derive(Default)]
pub(super) struct Way {
    pub(super) received: u64,
    pub(super) sent: u64,
    /// What the other side has not taken yet.
    held: Option<Box<Held>>,
    pub(super) eof: bool,
    /// The other side has been told of the end.
    pub(super) closed: bool,
    /// Reads in a row that have filled the buffer.
    full_reads: u8,
}

enum Held {
    /// From there on.
    Bytes(Vec<u8>, usize),
    /// Its bytes go on within the kernel.
    Pipe(Pipe),
}

pub(super) enum Failed {
    Reading(io::Error),
    Writing(io::Error),
}

impl Way {
    pub(super) fn is_empty(&self) -> bool {
        match self.held.as_deref() {
            None => true,
            Some(Held::Bytes(..)) => false,
            Some(Held::Pipe(pipe)) => pipe.held() == 0,
        }
    }

    /// Keeps what cannot be sent now; nothing is kept yet.
    pub(super) fn keep(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.held = Some(Box::new(Held::Bytes(bytes, 0)));
        }
    }

    /// Sends of what was kept; whether anything was taken.
    pub(super) fn send_rest(&mut self, cx: &mut Context<'_>, to: &Channel) -> Result<bool, Failed> {
        let Some(Held::Bytes(rest, at)) = self.held.as_deref_mut() else { return Ok(false) };
        match to.poll_write(cx, &[IoSlice::new(&rest[*at..])], false) {
            Poll::Ready(Ok(n)) => {
                *at += n;
                self.sent += n as u64;
                if *at == rest.len() {
                    // A quiet way holds no buffer.
                    self.held = None;
                }
                Ok(true)
            }
            Poll::Ready(Err(e)) => Err(Failed::Writing(e)),
            Poll::Pending => Ok(false),
        }
    }

    /// Reads into the shared buffer and writes from there; what is not taken is kept. Answers how much
    /// was read, 0 at the end.
    pub(super) fn pass_on(
        &mut self,
        cx: &mut Context<'_>,
        source: &Channel,
        to: &Channel,
        room: usize,
    ) -> Result<Poll<usize>, Failed> {
        SHARED.with_borrow_mut(|buf| {
            buf.clear();
            let n = match source.poll_read_lazy(cx, room, buf, |buf| buf) {
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(e)) => {
                    self.eof = true;
                    return Err(Failed::Reading(e));
                }
                Poll::Pending => return Ok(Poll::Pending),
            };
            self.eof = n == 0;
            self.received += n as u64;
            let mut taken = 0;
            while taken < n {
                match to.poll_write(cx, &[IoSlice::new(&buf[taken..])], false) {
                    Poll::Ready(Ok(sent)) => {
                        taken += sent;
                        self.sent += sent as u64;
                    }
                    Poll::Ready(Err(e)) => return Err(Failed::Writing(e)),
                    Poll::Pending => {
                        self.keep(buf[taken..].to_vec());
                        break;
                    }
                }
            }
            Ok(Poll::Ready(n))
        })
    }

    /// A plain sender with much to send gets a pipe, if there is one to be had.
    pub(super) fn note_full(&mut self, is_full: bool, source: &Channel, to: &Channel) {
        self.full_reads = if is_full { self.full_reads.saturating_add(1) } else { 0 };
        let is_plain = !source.is_tls() && !to.is_tls();
        if self.full_reads >= FULL_READS && is_plain && self.held.is_none() {
            self.full_reads = 0;
            let pipe = PIPES.with_borrow_mut(Vec::pop).or_else(|| Pipe::new().ok());
            self.held = pipe.map(|pipe| Box::new(Held::Pipe(pipe)));
        }
    }

    /// Moves bytes through the pipe, if the way has one; whether any were moved. The pipe is given back
    /// when the sender has nothing more.
    pub(super) fn splice(
        &mut self,
        cx: &mut Context<'_>,
        source: &Channel,
        to: &Channel,
    ) -> Option<Result<bool, Failed>> {
        let Some(Held::Pipe(pipe)) = self.held.as_deref_mut() else { return None };
        let mut moved = false;
        loop {
            while pipe.held() > 0 {
                match pipe.poll_drain(cx, to.socket()) {
                    Poll::Ready(Ok(n)) => {
                        self.sent += n as u64;
                        moved = true;
                    }
                    Poll::Ready(Err(e)) => return Some(Err(Failed::Writing(e))),
                    Poll::Pending => return Some(Ok(moved)),
                }
            }
            match pipe.poll_fill(cx, source.socket()) {
                Poll::Ready(Ok(n)) if n > 0 => self.received += n as u64,
                ended => {
                    self.give_pipe();
                    self.eof = ended.is_ready();
                    return Some(match ended {
                        Poll::Ready(Ok(_)) => Ok(true),
                        Poll::Ready(Err(e)) => Err(Failed::Reading(e)),
                        Poll::Pending => Ok(moved),
                    });
                }
            }
        }
    }

    fn give_pipe(&mut self) {
        if let Some(Held::Pipe(pipe)) = self.held.take().map(|held| *held) {
            PIPES.with_borrow_mut(|pipes| {
                if pipes.len() < PIPES_MAX {
                    pipes.push(pipe);
                }
            });
        }
    }
}
