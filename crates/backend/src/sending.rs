//! A request on its way out: its text, its body from memory, file or client, and what is put around
//! the body's pieces.

use crate::conf::BackendLoc;
use crate::framing::Framing;
use crate::h2;
use crate::link::h2::Rest;
use crate::link::rest::Unsent;
use crate::upload::{Body, FILE_PIECE_BYTES};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::rc::Rc;
use weir_core::temp::TempFile;
use weir_http::Request;

impl Framing {
    fn of(conf: &BackendLoc, chunked: bool) -> Framing {
        match conf.family.ways.frame {
            Some(frame) => Framing::Own(frame),
            None if chunked && !conf.h2 => Framing::Chunked,
            None => Framing::Plain,
        }
    }
}

/// What is still to be sent.
pub(crate) struct Outgoing {
    /// What is left of the request's text, and of its body in memory.
    text: Range<usize>,
    memory: Range<usize>,
    /// The body, where it does not go as it stands in memory.
    pieces: Option<Box<Pieces>>,
}

/// A body that goes out piece by piece.
struct Pieces {
    file: Option<(Rc<TempFile>, u64)>,
    stream: bool,
    /// It was one at first.
    streamed: bool,
    framing: Framing,
    /// The piece of a file or stream being sent, and how much of it is.
    piece: Vec<u8>,
    at: usize,
}

impl Outgoing {
    /// The request as written, and its body; `chunked`: that goes out so.
    #[inline]
    pub(crate) fn new(r: &Request, conf: &BackendLoc, body: &Body, chunked: bool) -> Outgoing {
        let text = 0..r.exchange.request.len();
        let is_plain = conf.family.ways.frame.is_none();
        match body {
            Body::None if is_plain => Outgoing { text, memory: 0..0, pieces: None },
            Body::Memory if is_plain => {
                Outgoing { text, memory: 0..r.body.memory.len(), pieces: None }
            }
            // It goes from where it is, and what stands behind it is all that is written.
            Body::Memory if conf.family.ways.frames_end_only => {
                let pieces = Pieces::new(r, &Body::None, Framing::of(conf, chunked));
                let memory = 0..r.body.memory.len();
                Outgoing { text, memory, pieces: Some(Box::new(pieces)) }
            }
            _ => {
                let pieces = Pieces::new(r, body, Framing::of(conf, chunked));
                Outgoing { text, memory: 0..0, pieces: Some(Box::new(pieces)) }
            }
        }
    }

    /// The text's beginning goes another way.
    pub(crate) fn skip(&mut self, n: usize) {
        self.text.start = n;
    }

    /// What is there to send, without the empty parts before it.
    #[inline(always)]
    pub(crate) fn parts<'r>(&'r self, r: &'r Request) -> ([IoSlice<'r>; 2], usize) {
        let text = &r.exchange.request[self.text.clone()];
        if self.memory.is_empty() && self.pieces.is_none() {
            return ([IoSlice::new(text), IoSlice::new(b"")], 1);
        }
        let memory = &r.body.memory[self.memory.clone()];
        let parts = [text, memory, self.piece()];
        let mut filled = parts.iter().filter(|p| !p.is_empty());
        let first = filled.next().map_or(IoSlice::new(b""), |p| IoSlice::new(p));
        match filled.next() {
            Some(second) => ([first, IoSlice::new(second)], 2),
            None => ([first, IoSlice::new(b"")], 1),
        }
    }

    fn piece(&self) -> &[u8] {
        self.pieces.as_ref().map_or(b"", |p| &p.piece[p.at..])
    }

    /// All of them as one.
    fn rest(&self, r: &Request) -> Vec<u8> {
        let text = &r.exchange.request[self.text.clone()];
        [text, &r.body.memory[self.memory.clone()], self.piece()].concat()
    }

    pub(crate) fn has_bytes(&self) -> bool {
        !(self.text.is_empty() && self.memory.is_empty())
            || self.pieces.as_ref().is_some_and(|p| p.at < p.piece.len())
    }

    pub(crate) fn is_done(&self) -> bool {
        !self.has_bytes() && !self.has_more()
    }

    /// There is more of it than the bytes at hand.
    pub(crate) fn has_more(&self) -> bool {
        self.pieces.as_ref().is_some_and(|p| p.file.is_some() || p.stream)
    }

    /// The rest of it is in a file.
    pub(crate) fn has_file(&self) -> bool {
        self.pieces.as_ref().is_some_and(|p| p.file.is_some())
    }

    /// The rest of it comes from the client.
    pub(crate) fn is_stream(&self) -> bool {
        self.pieces.as_ref().is_some_and(|p| p.stream)
    }

    #[inline]
    pub(crate) fn consume(&mut self, mut n: usize) {
        for part in [&mut self.text, &mut self.memory] {
            let here = n.min(part.len());
            part.start += here;
            n -= here;
        }
        if let Some(pieces) = &mut self.pieces {
            pieces.at += n;
        }
    }

    /// There is nothing to send now, but there will be.
    pub(crate) fn waits(&self) -> bool {
        !self.has_bytes() && self.has_more()
    }

    /// Reads the next piece of the file.
    pub(crate) fn refill(&mut self) -> io::Result<()> {
        self.pieces.as_mut().map_or(Ok(()), |p| p.refill())
    }

    /// All that is left, of a body that is not a stream.
    pub(crate) fn take_rest(&mut self, r: &Request) -> Rest {
        let bytes = self.rest(r);
        let file = self.pieces.as_mut().and_then(|p| p.file.take());
        let source = file.map(|(temp, at)| h2::file_source(temp, at, FILE_PIECE_BYTES));
        Rest { bytes, source, more: false }
    }

    /// What the connection is left with as the answer begins, of a request whose body is not framed by
    /// HTTP/2: as in nginx, only what comes from the client meanwhile is still sent.
    pub(crate) fn leave(&self, r: &Request, timeout_ms: u64) -> Unsent {
        match &self.pieces {
            Some(p) if p.streamed => Unsent::new(p.framing, self.rest(r), p.stream, timeout_ms),
            _ => Unsent::given_up(),
        }
    }

    /// Takes a part of a body and puts around it what the protocol wants.
    pub(crate) fn put_piece(&mut self, bytes: &[u8], ended: bool) {
        if let Some(pieces) = &mut self.pieces {
            pieces.put(bytes, ended);
        }
    }
}

impl Pieces {
    #[inline(never)]
    fn new(r: &Request, body: &Body, framing: Framing) -> Pieces {
        let file = match body {
            Body::File(f) => Some((Rc::clone(f), 0)),
            _ => None,
        };
        let stream = matches!(body, Body::Stream);
        let mut out = Pieces { file, stream, streamed: stream, framing, piece: Vec::new(), at: 0 };
        if stream {
            // The part of the body that had come before a server was chosen.
            out.put(&r.body.memory, false);
        } else if matches!(framing, Framing::Own(_)) && out.file.is_none() {
            let memory = if matches!(body, Body::Memory) { &r.body.memory[..] } else { b"" };
            out.put(memory, true);
        }
        out
    }

    fn refill(&mut self) -> io::Result<()> {
        let Some((temp, at)) = &mut self.file else { return Ok(()) };
        self.piece.clear();
        self.at = 0;
        let last = h2::read_piece(temp, at, FILE_PIECE_BYTES, &mut self.piece)?;
        if last {
            self.file = None;
        }
        if matches!(self.framing, Framing::Own(_)) {
            let bytes = std::mem::take(&mut self.piece);
            self.put(&bytes, last);
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8], ended: bool) {
        self.piece.clear();
        self.at = 0;
        if ended {
            self.stream = false;
        }
        self.framing.put(bytes, ended, &mut self.piece);
    }
}
