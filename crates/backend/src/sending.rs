//! A request on its way out: its text, its body from memory, file or client, and what is put around
//! the body's pieces.

use crate::conf::BackendLoc;
use crate::framing::Framing;
use crate::h2;
use crate::link::h2::Rest;
use crate::link::rest::Unsent;
use crate::upload::{Body, FILE_PIECE_BYTES};
use std::io::{self, IoSlice};
use std::rc::Rc;
use weir_core::temp::TempFile;

/// What is sent, whichever server it goes to.
pub(crate) struct Sent<'a> {
    pub(crate) conf: &'a BackendLoc,
    pub(crate) body: &'a Body,
    /// The body goes out chunked.
    pub(crate) chunked: bool,
    /// The client's going does not end it.
    pub(crate) ignores_abort: bool,
}

impl Framing {
    fn of(sent: &Sent) -> Framing {
        match sent.conf.family.ways.frame {
            Some(frame) => Framing::Own(frame),
            None if sent.chunked && !sent.conf.h2 => Framing::Chunked,
            None => Framing::Plain,
        }
    }
}

/// What is still to be sent.
pub(crate) struct Outgoing<'a> {
    pub(crate) first: &'a [u8],
    second: &'a [u8],
    pub(crate) file: Option<(Rc<TempFile>, u64)>,
    pub(crate) stream: bool,
    /// It was one at first.
    streamed: bool,
    framing: Framing,
    /// The piece of a file or stream being sent, and how much of it is.
    piece: Vec<u8>,
    at: usize,
}

impl<'a> Outgoing<'a> {
    pub(crate) fn new(sent: &Sent, request: &'a [u8], memory: &'a [u8]) -> Outgoing<'a> {
        let file = match sent.body {
            Body::File(f) => Some((Rc::clone(f), 0)),
            _ => None,
        };
        let mut out = Outgoing {
            first: request,
            second: if matches!(sent.body, Body::Memory) { memory } else { b"" },
            file,
            stream: matches!(sent.body, Body::Stream),
            streamed: matches!(sent.body, Body::Stream),
            framing: Framing::of(sent),
            piece: Vec::new(),
            at: 0,
        };
        if out.stream {
            // The part of the body that had come before a server was chosen.
            out.put_piece(memory, false);
        } else if matches!(out.framing, Framing::Own(_)) && out.file.is_none() {
            let body = std::mem::take(&mut out.second);
            out.put_piece(body, true);
        }
        out
    }

    /// What is there to send, without the empty parts before it.
    pub(crate) fn parts(&self) -> ([IoSlice<'_>; 2], usize) {
        let parts = [self.first, self.second, &self.piece[self.at..]];
        let mut filled = parts.iter().filter(|p| !p.is_empty());
        let first = filled.next().map_or(IoSlice::new(b""), |p| IoSlice::new(p));
        match filled.next() {
            Some(second) => ([first, IoSlice::new(second)], 2),
            None => ([first, IoSlice::new(b"")], 1),
        }
    }

    pub(crate) fn has_bytes(&self) -> bool {
        !(self.first.is_empty() && self.second.is_empty() && self.at == self.piece.len())
    }

    pub(crate) fn is_done(&self) -> bool {
        !self.has_bytes() && !self.has_more()
    }

    /// There is more of it than the bytes at hand.
    pub(crate) fn has_more(&self) -> bool {
        self.file.is_some() || self.stream
    }

    pub(crate) fn consume(&mut self, mut n: usize) {
        for part in [&mut self.first, &mut self.second] {
            let here = n.min(part.len());
            *part = &part[here..];
            n -= here;
        }
        self.at += n;
    }

    /// There is nothing to send now, but there will be.
    pub(crate) fn waits(&self) -> bool {
        !self.has_bytes() && !self.is_done()
    }

    /// Reads the next piece of the file.
    pub(crate) fn refill(&mut self) -> io::Result<()> {
        let Some((temp, at)) = &mut self.file else { return Ok(()) };
        self.piece.clear();
        self.at = 0;
        let last = h2::read_piece(temp, at, FILE_PIECE_BYTES, &mut self.piece)?;
        if last {
            self.file = None;
        }
        if matches!(self.framing, Framing::Own(_)) {
            let bytes = std::mem::take(&mut self.piece);
            self.put_piece(&bytes, last);
        }
        Ok(())
    }

    /// All that is left, of a body that is not a stream.
    pub(crate) fn take_rest(&mut self) -> Rest {
        let bytes = [self.first, self.second, &self.piece[self.at..]].concat();
        let file = self.file.take();
        let source = file.map(|(temp, at)| h2::file_source(temp, at, FILE_PIECE_BYTES));
        Rest { bytes, source, more: false }
    }

    /// What the connection is left with as the answer begins, of a request whose body is not framed by
    /// HTTP/2: as in nginx, only what comes from the client meanwhile is still sent.
    pub(crate) fn leave(&self, timeout_ms: u64) -> Unsent {
        if !self.streamed {
            return Unsent::given_up();
        }
        let bytes = [self.first, self.second, &self.piece[self.at..]].concat();
        Unsent::new(self.framing, bytes, self.stream, timeout_ms)
    }

    /// Takes a part of a body and puts around it what the protocol wants.
    pub(crate) fn put_piece(&mut self, bytes: &[u8], ended: bool) {
        self.piece.clear();
        self.at = 0;
        if ended {
            self.stream = false;
        }
        self.framing.put(bytes, ended, &mut self.piece);
    }
}
