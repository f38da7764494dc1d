//! The request body: read whole (memory, then a temporary file), piece by piece, or thrown away.

use crate::conf::BodyInFile;
use crate::h2;
use crate::module::Flow;
use crate::output::CONTINUE;
use crate::request::Request;
use bytes::Bytes;
use std::io::Write;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::temp::{Life, TempFile};
use weir_core::ConnError;
use weir_core::Session;
use weir_runtime::clock;
use weir_wire::http1::chunked::{ChunkError, Decoder, Event};
use weir_wire::http1::framing::BodyFraming;

/// Bytes asked of the socket at once.
const READ_ROOM_BYTES: usize = 16 * 1024;

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
    pub(crate) at: usize,
    remaining: u64,
    /// Decoded bytes so far.
    pub length: u64,
    /// The body, or the part of it not in the file.
    pub memory: Vec<u8>,
    pub file: Option<Rc<TempFile>>,
    /// All of it has been read from the connection.
    pub done: bool,
    /// A handler has begun to read it.
    pub started: bool,
    /// All of it is in `memory` or `file`.
    pub complete: bool,
    pub expect_continue: bool,
    /// The size limit does not hold (a discarded body).
    pub too_large_ok: bool,
    /// It is being read whole, so that no handler holds it back.
    pub(crate) whole: bool,
    /// The stream it comes by has ended.
    pub(crate) ended: bool,
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
enum BadBody {
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
    fn text(self) -> &'static str {
        match self {
            BadBody::Chunks => "client sent invalid chunked body",
            BadBody::TooShort => "client prematurely closed stream",
            BadBody::TooLong => "client intended to send body data larger than declared",
        }
    }
}

enum Piece {
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
        if memory.capacity() > KEEP_MEMORY_MAX_BYTES {
            *memory = Vec::new();
        }
        if pending.capacity() > KEEP_MEMORY_MAX_BYTES {
            *pending = Vec::new();
        }
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

    /// The request has no body at all.
    pub fn is_none(&self) -> bool {
        self.framing == Framing::None
    }

    /// Content-Length, when there is one.
    pub fn announced(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(n) => Some(n),
            Framing::Stream(n) => n,
            _ => None,
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
    fn step(&mut self) -> Result<Piece, BadBody> {
        if self.done {
            return Ok(Piece::End);
        }
        if matches!(self.framing, Framing::Stream(_)) {
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

    fn compact(&mut self) {
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

    /// The whole body has been read from the socket already.
    pub fn has_arrived(&self) -> bool {
        match self.framing {
            Framing::None => true,
            Framing::Length(_) => self.leftover().len() as u64 >= self.remaining,
            Framing::Chunked => self.done,
            Framing::Stream(_) => self.ended,
        }
    }

    /// Bytes behind the body that belong to the next request.
    pub(crate) fn leftover(&self) -> &[u8] {
        &self.pending[self.at..]
    }
}

/// `100 Continue`, once, when the client waits for it.
async fn send_continue(r: &mut Request) -> Result<(), BodyError> {
    if !std::mem::take(&mut r.body.expect_continue) {
        return Ok(());
    }
    let conn = Rc::clone(r.conn());
    r.sent += conn.out.borrow_mut().write(|t| t.extend_from_slice(CONTINUE));
    let timeout = *r.loc().core.send_timeout;
    conn.drain(0, timeout).await.map_err(|_| BodyError::Closed)
}

/// The next piece as it arrives; `None` at the end. Also checks `client_max_body_size`.
pub async fn next(r: &mut Request) -> Result<Option<Bytes>, BodyError> {
    if !r.body.started {
        r.body.started = true;
        // Also for an empty body: the client waits all the same.
        if r.body.leftover().is_empty() {
            send_continue(r).await?;
        }
        r.body.expect_continue = false;
    }
    loop {
        let before = r.body.at;
        let piece = r.body.step();
        if r.stream().is_none() {
            r.received += (r.body.at - before) as u64;
        }
        match piece {
            Ok(Piece::Data(start, end)) => {
                check_size(r, (end - start) as u64)?;
                r.body.length += (end - start) as u64;
                return Ok(Some(Bytes::copy_from_slice(&r.body.pending[start..end])));
            }
            Ok(Piece::End) => return Ok(None),
            Ok(Piece::NeedMore) => {
                check_size(r, 0)?;
                fill(r).await?;
            }
            Err(e) => {
                r.log(LogLevel::Error, e.text());
                r.keepalive = false;
                return Err(BodyError::Status(400));
            }
        }
    }
}

/// A chunked body is too large as soon as a size line says so; `come` is what is here of its chunk.
fn check_size(r: &Request, come: u64) -> Result<(), BodyError> {
    if !r.body.is_chunked() || r.body.too_large_ok {
        return Ok(());
    }
    let chunk = match r.stream() {
        None => r.body.decoder.chunk_remaining().saturating_add(come),
        Some(_) => come,
    };
    let before = r.body.length;
    let max = *r.loc().core.client_max_body_size;
    if max == 0 || before.saturating_add(chunk) <= max {
        return Ok(());
    }
    let text = format!("client intended to send too large chunked body: {before}+{chunk} bytes");
    r.log(LogLevel::Error, &text);
    Err(BodyError::Status(413))
}

async fn fill(r: &mut Request) -> Result<(), BodyError> {
    let timeout = *r.loc().core.client_body_timeout;
    fill_within(r, timeout).await
}

async fn fill_within(r: &mut Request, timeout_ms: u64) -> Result<(), BodyError> {
    r.body.compact();
    if let Some(stream) = r.stream().cloned() {
        return h2::body::fill(r, &stream, timeout_ms).await;
    }
    let conn = Rc::clone(r.conn());
    let deadline = clock::mono_ms() + timeout_ms;
    let read = conn.read(&mut r.body.pending, READ_ROOM_BYTES, deadline).await;
    if !matches!(read, Ok(n) if n > 0) {
        r.keepalive = false;
    }
    match read {
        Ok(n) if n > 0 => Ok(()),
        Err(ConnError::Timeout) => {
            conn.timed_out.set(true);
            Err(BodyError::Status(408))
        }
        Ok(_) => Err(cut(r)),
        Err(ConnError::Io(e)) => {
            let why = weir_conf::messages::os_error(&e);
            r.log(LogLevel::Info, &format!("recv() failed ({why}){}", doing(r)));
            Err(cut(r))
        }
    }
}

/// The client is gone, or says no more: there is nobody to answer. A body that is thrown away may end
/// so without a word.
fn cut(r: &Request) -> BodyError {
    if !r.discard_body {
        r.log(LogLevel::Info, &format!("client prematurely closed connection{}", doing(r)));
    }
    r.conn().broken.set(true);
    BodyError::Status(400)
}

/// nginx's words for what it reads the body for.
fn doing(r: &Request) -> &'static str {
    match r.has_upstream() {
        true => " while sending request to upstream",
        false => "",
    }
}

/// Reads the whole body: into memory up to `client_body_buffer_size`, the rest into a file.
pub async fn read_all(r: &mut Request) -> Result<(), BodyError> {
    if r.body.complete {
        return match r.body.awaits_continue() {
            true => send_continue(r).await,
            false => Ok(()),
        };
    }
    let loc = Rc::clone(r.loc());
    let core = &loc.core;
    let always_file = *core.client_body_in_file_only != BodyInFile::Off;
    let buffer = *core.client_body_buffer_size as usize;
    let announced = r.body.announced();
    if let Some(n) = announced.filter(|n| *n <= buffer as u64) {
        r.body.memory.reserve_exact(n as usize);
    }
    r.body.whole = true;
    while let Some(piece) = next(r).await? {
        if r.body.memory.len() + piece.len() > buffer && r.body.length > buffer as u64 {
            spill(r)?;
        }
        r.body.memory.extend_from_slice(&piece);
    }
    let some = r.body.length > 0 || r.stream().is_some();
    if r.body.file.is_some() || (always_file && some) {
        spill(r)?;
    }
    r.body.complete = true;
    Ok(())
}

/// Moves what is in memory to the temporary file.
fn spill(r: &mut Request) -> Result<(), BodyError> {
    let loc = Rc::clone(r.loc());
    if r.body.file.is_none() {
        let life = match *loc.core.client_body_in_file_only {
            BodyInFile::Off => Life::Nameless,
            BodyInFile::Clean => Life::Named,
            BodyInFile::On => Life::Kept,
        };
        match TempFile::create(&loc.core.client_body_temp_path, life) {
            Ok(f) => {
                let path = f.path.display().to_string();
                r.log(
                    LogLevel::Warn,
                    &format!("a client request body is buffered to a temporary file {path}"),
                );
                r.body.file = Some(Rc::new(f));
            }
            Err(e) => return Err(file_error(r, &e)),
        }
    }
    let Some(file) = r.body.file.clone() else { return Ok(()) };
    let written = (&*file.file).write_all(&r.body.memory);
    r.body.memory.clear();
    written.map_err(|e| file_error(r, &e))
}

fn file_error(r: &Request, e: &std::io::Error) -> BodyError {
    r.log(LogLevel::Crit, &format!("a temporary file for a request body failed: {e}"));
    BodyError::Status(500)
}

/// Nobody will read the body: what has come of it is thrown away now, the rest when the request
/// ends. A malformed one is refused.
pub fn discard(r: &mut Request) -> Result<(), Flow> {
    r.discard_body = true;
    r.body.too_large_ok = true;
    if r.body.done || r.body.started {
        return Ok(());
    }
    if let Some(stream) = r.stream() {
        stream.skip_body();
        return Ok(());
    }
    r.body.drop_arrived().map_err(|_| {
        r.keepalive = false;
        r.body.done = true;
        Flow::Status(400)
    })
}

/// Reads and drops what is left of the body, so that the connection can be used again.
/// `false`: it could not be read to its end in time.
pub(crate) async fn drop_rest(r: &mut Request) -> bool {
    let loc = Rc::clone(r.loc());
    let end = clock::mono_ms() + *loc.core.lingering_time;
    r.body.too_large_ok = true;
    loop {
        match r.body.step() {
            Ok(Piece::End) => return true,
            Ok(Piece::Data(..)) => continue,
            Err(_) => return false,
            Ok(Piece::NeedMore) => {}
        }
        let now = clock::mono_ms();
        if now >= end {
            return false;
        }
        let wait = (*loc.core.lingering_timeout).min(end - now);
        if fill_within(r, wait).await.is_err() {
            return false;
        }
    }
}
