//! The request body: read whole (memory, then a temporary file), piece by piece, or thrown away.

mod incoming;

pub use incoming::{BodyError, RequestBody};

use crate::client::{answer, upload};
use crate::conf::BodyInFile;
use crate::flow::Flow;
use crate::request::Request;
use bytes::Bytes;
use incoming::Piece;
use std::io::{self, Seek, Write};
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::temp::{Life, TempFile};
use weir_core::Session;
use weir_runtime::clock;

/// `100 Continue`, once, when the client waits for it.
async fn send_continue(r: &mut Request) -> Result<(), BodyError> {
    if !std::mem::take(&mut r.body.expect_continue) {
        return Ok(());
    }
    if r.flags.header_sent {
        // It would stand in the middle of the answer.
        return Ok(());
    }
    answer::send_continue(r);
    let timeout = *r.loc().core.send_timeout;
    r.to_client().drain(0, 0, timeout).await.map_err(|_| BodyError::Closed)
}

/// The next piece as it arrives; `None` at the end. Also checks `client_max_body_size`. Of a body that is
/// refused nothing is left for who answers instead (`error_page`).
pub async fn next(r: &mut Request) -> Result<Option<Bytes>, BodyError> {
    let piece = next_piece(r).await;
    if matches!(piece, Err(BodyError::Status(_))) {
        refuse(r);
    }
    piece
}

/// As [`next`], for who passes the piece on and does not keep it: from then on nobody else can have the
/// body.
pub async fn next_to_pass_on(r: &mut Request) -> Result<Option<Bytes>, BodyError> {
    let piece = next(r).await?;
    if piece.is_some() && !std::mem::replace(&mut r.body.passed_on, true) {
        r.body.memory = Vec::new();
    }
    Ok(piece)
}

async fn next_piece(r: &mut Request) -> Result<Option<Bytes>, BodyError> {
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
        if !r.body.has_stream() {
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
                r.flags.keepalive = false;
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
    let chunk = r.body.chunk_remaining().saturating_add(come);
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
    upload::fill(r, timeout_ms).await
}

/// Reads the whole body into a file of its own, be it empty. The file lives as long as it is used, and
/// whoever renames it has it.
pub async fn read_to_file(r: &mut Request) -> Result<Rc<TempFile>, BodyError> {
    read_whole(r, Some(Life::Named), Life::Named).await?;
    if let Some(file) = r.body.file.as_ref().filter(|f| f.has_name()) {
        return Ok(Rc::clone(file));
    }
    // It was read before, by somebody who needed no name.
    let earlier = r.body.file.take();
    let copied = new_file(r, Life::Named).and_then(|to| {
        let copied = match earlier {
            Some(from) => {
                (&*from.file).rewind().and_then(|()| io::copy(&mut &*from.file, &mut &*to.file))
            }
            None => (&*to.file).write_all(&r.body.memory).map(|()| 0),
        };
        copied.map(|_| to).map_err(|e| file_error(r, &e))
    })?;
    r.body.memory.clear();
    r.body.file = Some(Rc::clone(&copied));
    Ok(copied)
}

/// What `client_body_in_file_only` says.
fn whole_in_file(r: &Request) -> Option<Life> {
    match *r.loc().core.client_body_in_file_only {
        BodyInFile::Off => None,
        BodyInFile::Clean => Some(Life::Named),
        BodyInFile::On => Some(Life::Kept),
    }
}

/// Reads the whole body: into memory up to `client_body_buffer_size`, the rest into a file.
pub async fn read_all(r: &mut Request) -> Result<(), BodyError> {
    let life = whole_in_file(r);
    read_whole(r, life, Life::Nameless).await
}

/// The same for somebody who is told the file's name: it has one until the request ends.
pub async fn read_all_named(r: &mut Request) -> Result<(), BodyError> {
    let life = whole_in_file(r);
    read_whole(r, life, Life::Named).await
}

/// `file`: into a file as a whole; `otherwise`: into such a file, if it is too large for memory.
async fn read_whole(r: &mut Request, file: Option<Life>, otherwise: Life) -> Result<(), BodyError> {
    if r.body.complete || r.body.is_none() {
        return match r.body.awaits_continue() {
            true => send_continue(r).await,
            false => Ok(()),
        };
    }
    let loc = Rc::clone(r.loc());
    let core = &loc.core;
    let life = file.unwrap_or(otherwise);
    // Somebody wants it there, or it is larger than what was meant to be enough.
    let level = if file.is_none() { LogLevel::Warn } else { LogLevel::Notice };
    let buffer = *core.client_body_buffer_size as usize;
    let announced = r.body.announced();
    if let Some(n) = announced.filter(|n| *n <= buffer as u64) {
        r.body.memory.reserve_exact(n as usize);
    }
    r.body.whole = true;
    while let Some(piece) = next(r).await? {
        if r.body.memory.len() + piece.len() > buffer && r.body.length > buffer as u64 {
            spill(r, life, level)?;
        }
        r.body.memory.extend_from_slice(&piece);
    }
    let some = r.body.length > 0 || r.body.has_stream();
    if r.body.file.is_some() || (file.is_some() && some) {
        spill(r, life, level)?;
    }
    r.body.complete = true;
    Ok(())
}

/// Moves what is in memory to the temporary file.
fn spill(r: &mut Request, life: Life, level: LogLevel) -> Result<(), BodyError> {
    let file = match &r.body.file {
        Some(file) => Rc::clone(file),
        None => {
            let file = new_file(r, life)?;
            let text = format!(
                "a client request body is buffered to a temporary file {}",
                file.path.display()
            );
            r.log(level, &text);
            r.body.file = Some(Rc::clone(&file));
            file
        }
    };
    let written = (&*file.file).write_all(&r.body.memory);
    r.body.memory.clear();
    written.map_err(|e| file_error(r, &e))
}

/// A body that a module makes piece by piece: in memory up to a size, from there on in a file.
pub struct Making {
    memory: Vec<u8>,
    file: Option<(Rc<TempFile>, u64)>,
    memory_max: u64,
}

impl Making {
    /// Nothing yet; in memory so many bytes at most, or `client_body_buffer_size`.
    pub fn new(r: &Request, memory_max: Option<u64>) -> Making {
        let usual = *r.loc().core.client_body_buffer_size;
        Making { memory: Vec::new(), file: None, memory_max: memory_max.unwrap_or(usual) }
    }

    /// A further piece.
    ///
    /// # Errors
    ///
    /// The file could not be written, which is logged.
    pub fn append(&mut self, r: &mut Request, text: &[u8]) -> Result<(), BodyError> {
        let fits = self.memory.len() as u64 + text.len() as u64 <= self.memory_max;
        if self.file.is_none() && fits {
            self.memory.extend_from_slice(text);
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some((new_file(r, Life::Named)?, 0));
        }
        let Some((file, length)) = &mut self.file else { return Ok(()) };
        let before = std::mem::take(&mut self.memory);
        let written = (&*file.file).write_all(&before).and_then(|()| (&*file.file).write_all(text));
        *length += before.len() as u64 + text.len() as u64;
        written.map_err(|e| file_error(r, &e))
    }

    /// All of it.
    ///
    /// # Errors
    ///
    /// As [`Making::append`].
    pub fn finish(self, r: &mut Request) -> Result<RequestBody, BodyError> {
        if let Some((file, _)) = &self.file {
            (&*file.file).rewind().map_err(|e| file_error(r, &e))?;
        }
        Ok(RequestBody::made(self.memory, self.file))
    }
}

/// Takes another body in the place of the request's own. What has not come of that is nobody's: it is never taken for
/// the client's next request.
pub fn put(r: &mut Request, made: RequestBody) {
    if r.body.was_announced() && !r.body.done {
        if r.body.has_stream() {
            r.to_client().skip_body();
        } else {
            r.flags.keepalive = false;
            r.body.take_pending();
        }
    }
    r.body.replace(made);
}

fn new_file(r: &mut Request, life: Life) -> Result<Rc<TempFile>, BodyError> {
    let loc = Rc::clone(r.loc());
    match TempFile::create(&loc.core.client_body_temp_path, life) {
        Ok(file) => Ok(Rc::new(file)),
        Err(e) => Err(file_error(r, &e)),
    }
}

fn file_error(r: &mut Request, e: &std::io::Error) -> BodyError {
    r.log(LogLevel::Crit, &format!("a temporary file for a request body failed: {e}"));
    refuse(r);
    BodyError::Status(500)
}

/// The body is not wanted: the client is not asked for it, and no handler gets any of it.
pub(crate) fn refuse(r: &mut Request) {
    r.body.expect_continue = false;
    // Who is to explain that is asked as if there had been none.
    r.body.passed_on = false;
    // That it is malformed is known, or does not matter any more.
    let _ = discard(r);
}

/// The request goes on to another handler, which could only have what is left of a body that is passed on
/// as it comes. A part of it would be taken for the whole, or waited for in vain.
pub(crate) fn leave_behind(r: &mut Request) {
    if r.body.passed_on {
        let _ = discard(r);
    }
}

/// Nobody will read the body: what has come of it is thrown away now, the rest when the request
/// ends. A malformed one is refused. One that has been read whole is there still for who comes later.
pub fn discard(r: &mut Request) -> Result<(), Flow> {
    r.flags.discard_body = true;
    r.body.too_large_ok = true;
    if r.body.complete {
        return Ok(());
    }
    r.body.lose();
    if r.body.has_stream() {
        r.to_client().skip_body();
        return Ok(());
    }
    if r.body.done || r.body.started {
        return Ok(());
    }
    r.body.drop_arrived().map_err(|_| {
        r.flags.keepalive = false;
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
