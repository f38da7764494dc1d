//! The body of a request as it comes: where it ends, what of it is here, and where it is kept.

use crate::packing::Pack;
use std::rc::Rc;
use weir_core::temp::TempFile;
use weir_wire::http1::chunked::{ChunkError, Decoder, Event};
use weir_wire::http1::framing::BodyFraming;

/// Why a body cannot be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// Answer with this status.
    Status(u16),
    /// The client has gone or sent nonsense after the answer began.
    Closed,
}

/// Where a request's body is and how much of it has come.
#[derive(Default)]
pub struct RequestBody {
    framing: Framing,
    decoder: Decoder,
    /// What was read behind the head and is not decoded yet, from `at` on.
    pub(crate) pending: Vec<u8>,
    pub(super) at: usize,
    remaining: u64,
    /// Decoded bytes so far.
    pub length: u64,
    /// The body, or the part of it not in the file.
    pub memory: Vec<u8>,
    /// What `client_body_buffer_size` had no room for.
    pub file: Option<Rc<TempFile>>,
    /// All of it has been read from the connection.
    pub done: bool,
    /// A handler has begun to read it.
    pub started: bool,
    /// All of it is in `memory` or `file`.
    pub complete: bool,
    pub(crate) expect_continue: bool,
    /// The size limit does not hold (a discarded body).
    pub(crate) too_large_ok: bool,
    /// It is being read whole, so that no handler holds it back.
    pub(crate) whole: bool,
    /// The stream it comes by has ended.
    pub(crate) ended: bool,
    /// A part of it has gone to a server and is kept nowhere.
    pub(super) passed_on: bool,
    /// Handlers find none: it is thrown away, or what is left of it is not the whole.
    lost: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Framing {
    #[default]
    None,
    Length(u64),
    Chunked,
    /// It ends with its stream; the length is what the client has announced.
    Stream(Option<u64>),
}

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadBody {
    Chunks,
    TooShort,
    TooLong,
}

impl From<ChunkError> for BadBody {
    fn from(_: ChunkError) -> BadBody {
        BadBody::Chunks
    }
}

impl BadBody {
    pub(super) fn text(self) -> &'static str {
        match self {
            BadBody::Chunks => "client sent invalid chunked body",
            BadBody::TooShort => "client prematurely closed stream",
            BadBody::TooLong => "client intended to send body data larger than declared",
        }
    }
}

pub(super) enum Piece {
    Data(usize, usize),
    NeedMore,
    End,
}

/// A body buffer that grew beyond this is not kept for the next request.
const KEEP_MEMORY_MAX_BYTES: usize = 64 * 1024;

impl RequestBody {
    pub(crate) fn kept_bytes(&self) -> usize {
        self.memory.capacity() + self.pending.capacity()
    }

    /// Forgets the body and keeps the memory.
    pub(crate) fn recycle(&mut self) {
        let RequestBody {
            framing,
            decoder,
            pending,
            at,
            remaining,
            length,
            memory,
            file,
            done,
            started,
            complete,
            expect_continue,
            too_large_ok,
            whole,
            ended,
            passed_on,
            lost,
        } = self;
        *framing = Framing::None;
        *decoder = Decoder::new();
        pending.clear();
        *at = 0;
        *remaining = 0;
        *length = 0;
        memory.clear();
        *file = None;
        *done = false;
        *started = false;
        *complete = false;
        *expect_continue = false;
        *too_large_ok = false;
        *whole = false;
        *ended = false;
        *passed_on = false;
        *lost = false;
        if memory.capacity() > KEEP_MEMORY_MAX_BYTES {
            *memory = Vec::new();
        }
        if pending.capacity() > KEEP_MEMORY_MAX_BYTES {
            *pending = Vec::new();
        }
    }

    /// Of a request without a body, behind whose head nothing has come.
    pub(crate) fn visit(&mut self, pack: &mut impl Pack) {
        let RequestBody {
            framing: _,
            decoder: _,
            pending: _,
            at: _,
            file: _,
            remaining,
            length,
            memory,
            done,
            started,
            complete,
            expect_continue,
            too_large_ok,
            whole,
            ended,
            passed_on,
            lost,
        } = self;
        [remaining, length].into_iter().for_each(|n| pack.num(n));
        pack.bytes(memory);
        pack.flags([done, started, complete, expect_continue, too_large_ok]);
        pack.flags([whole, ended, passed_on, lost]);
    }

    pub(crate) fn begin(&mut self, framing: BodyFraming) {
        self.framing = match framing {
            BodyFraming::None => Framing::None,
            BodyFraming::Length(n) => Framing::Length(n),
            BodyFraming::Chunked => Framing::Chunked,
        };
        self.decoder = Decoder::new();
        self.remaining = self.announced().unwrap_or(0);
        self.done = self.is_none() || self.framing == Framing::Length(0);
        self.complete = self.done;
    }

    /// The same body for a subrequest: what has been read whole, or nothing.
    pub(crate) fn shared(&self) -> RequestBody {
        let none =
            RequestBody { done: true, complete: true, too_large_ok: true, ..Self::default() };
        if !self.complete || self.is_none() {
            return none;
        }
        RequestBody {
            framing: Framing::Length(self.length),
            length: self.length,
            memory: self.memory.clone(),
            file: self.file.clone(),
            started: true,
            ..none
        }
    }

    /// A body that a module makes, all of it in memory or in a file of so many bytes.
    pub fn made(memory: Vec<u8>, file: Option<(Rc<TempFile>, u64)>) -> RequestBody {
        let length = file.as_ref().map_or(memory.len() as u64, |(_, bytes)| *bytes);
        RequestBody {
            framing: Framing::Length(length),
            length,
            memory,
            file: file.map(|(file, _)| file),
            started: true,
            done: true,
            complete: true,
            too_large_ok: true,
            ..RequestBody::default()
        }
    }

    /// Takes another body in the place of one that has been read whole. What was read behind that, such as the
    /// client's next request, stays.
    pub fn replace(&mut self, made: RequestBody) {
        let (pending, at) = (std::mem::take(&mut self.pending), self.at);
        *self = RequestBody { pending, at, ..made };
    }

    /// There is no body, whatever the header says.
    pub fn nothing(&mut self) {
        *self = RequestBody { done: true, complete: true, ..Self::default() };
    }

    /// A body that comes by a stream of its own.
    pub(crate) fn begin_stream(&mut self, announced: Option<u64>) {
        self.framing = Framing::Stream(announced);
        self.remaining = announced.unwrap_or(u64::MAX);
        self.done = false;
        self.complete = false;
    }

    /// The request has no body, or none any more: of one that was thrown away no handler gets a part.
    pub fn is_none(&self) -> bool {
        self.lost || self.framing == Framing::None
    }

    /// The request came with a body, whatever has become of it.
    #[inline]
    pub fn was_announced(&self) -> bool {
        self.framing != Framing::None
    }

    /// A part of it has gone to a server and is kept nowhere: see [`super::next_to_pass_on`].
    pub fn is_passed_on(&self) -> bool {
        self.passed_on
    }

    /// No handler gets any of it from now on.
    pub(super) fn lose(&mut self) {
        self.lost = true;
        self.memory = Vec::new();
        self.file = None;
    }

    /// Content-Length, when there is one.
    pub fn announced(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(n) => Some(n),
            Framing::Stream(n) => n,
            _ => None,
        }
    }

    /// It comes by a stream of its own, and ends where that does.
    pub(super) fn has_stream(&self) -> bool {
        matches!(self.framing, Framing::Stream(_))
    }

    /// Bytes of the chunk that is being read which have not come.
    pub(super) fn chunk_remaining(&self) -> u64 {
        match self.framing {
            Framing::Chunked => self.decoder.chunk_remaining(),
            _ => 0,
        }
    }

    /// Its length is not known before its end.
    pub fn is_chunked(&self) -> bool {
        matches!(self.framing, Framing::Chunked | Framing::Stream(None))
    }

    fn stream_step(&mut self) -> Result<Piece, BadBody> {
        let here = self.pending.len() - self.at;
        if here as u64 > self.remaining {
            return Err(BadBody::TooLong);
        }
        if here > 0 {
            let start = self.at;
            self.at += here;
            self.remaining -= here as u64;
            return Ok(Piece::Data(start, start + here));
        }
        if !self.ended {
            return Ok(Piece::NeedMore);
        }
        if self.announced().is_some() && self.remaining > 0 {
            return Err(BadBody::TooShort);
        }
        self.done = true;
        Ok(Piece::End)
    }

    /// The next decoded range of `pending`.
    pub(super) fn step(&mut self) -> Result<Piece, BadBody> {
        if self.done {
            return Ok(Piece::End);
        }
        if self.has_stream() {
            return self.stream_step();
        }
        if self.framing != Framing::Chunked {
            let n = (self.pending.len() - self.at).min(self.remaining as usize);
            if n == 0 {
                return Ok(Piece::NeedMore);
            }
            let start = self.at;
            self.at += n;
            self.remaining -= n as u64;
            self.done = self.remaining == 0;
            return Ok(Piece::Data(start, start + n));
        }
        let (used, event) = self.decoder.decode(&self.pending[self.at..])?;
        let base = self.at;
        self.at += used;
        Ok(match event {
            Event::Data(range) => Piece::Data(base + range.start, base + range.end),
            Event::NeedMore => Piece::NeedMore,
            Event::End => {
                self.done = true;
                Piece::End
            }
        })
    }

    pub(super) fn compact(&mut self) {
        if self.at == self.pending.len() {
            self.pending.clear();
        } else if self.at > 0 {
            self.pending.drain(..self.at);
        }
        self.at = 0;
    }

    /// What was read behind the head, for a connection that becomes a tunnel.
    pub fn take_pending(&mut self) -> Vec<u8> {
        self.compact();
        std::mem::take(&mut self.pending)
    }

    /// The client waits for `100 Continue` and nothing of the body has come.
    pub(crate) fn awaits_continue(&self) -> bool {
        self.expect_continue && self.leftover().is_empty()
    }

    /// Throws away what has arrived of the body; an error is a malformed one.
    pub(crate) fn drop_arrived(&mut self) -> Result<(), ()> {
        loop {
            match self.step().map_err(drop)? {
                Piece::Data(..) => {}
                Piece::NeedMore | Piece::End => return Ok(()),
            }
        }
    }

    /// Bytes behind the body that belong to the next request.
    pub(crate) fn leftover(&self) -> &[u8] {
        &self.pending[self.at..]
    }
}
