//! The body of an answer on its way from the server to the client.
//!
//! Buffered, it is read ahead of a slow client into memory and then into a temporary file, so
//! that the server is free as soon as possible; nothing is read when both are full. Unbuffered,
//! each piece is sent before the next is read.
//!
//! Difference from nginx: the buffers are one amount of memory, not a number of pieces.

use super::cache::Keep;
use super::conf::BackendLoc;
use super::exchange::Fault;
use super::Wire;
use bytes::Bytes;
use std::fs::File;
use std::future::{poll_fn, Future};
use std::io::{self, Seek, SeekFrom, Write};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use weir_http::body;
use weir_http::logger::LogLevel;
use weir_http::module::FilterResult;
use weir_http::temp::TempFile;
use weir_http::{output, Buf, Chain, ClientWatch, Request};
use weir_runtime::{clock, timer};
use weir_upstream::h2::Rest;
use weir_upstream::link::{Link, LinkError};
use weir_upstream::reply::{BadBody, BodyReader};

/// Larger pieces are passed on where they are instead of being copied.
const COPY_MAX_BYTES: usize = 16 * 1024;
/// Read at once from a server with much to say.
const READ_ROOM_BYTES: usize = 64 * 1024;

const READING: &str = "reading upstream";

impl From<BadBody> for Fault {
    fn from(e: BadBody) -> Fault {
        Fault::BadBody(match e {
            BadBody::Chunks => "upstream sent invalid chunked response while reading upstream",
            BadBody::Trailers => "upstream sent invalid trailer while reading upstream",
            BadBody::TooLong => {
                "upstream sent response body larger than indicated content length while reading \
                 upstream"
            }
            BadBody::TooShort => "upstream prematurely closed stream while reading upstream",
            BadBody::Cut => "upstream prematurely closed FastCGI stdout while reading upstream",
        })
    }
}

/// Passes the body on, from what came with the head to its end.
pub async fn run(
    r: &mut Request,
    conf: &BackendLoc,
    link: &mut Link,
    reader: &mut BodyReader,
    keep: &mut Keep,
) -> Result<(), Fault> {
    let mut relay = Relay {
        conf,
        reader,
        buffering: keep.buffering,
        watch: ClientWatch::new(r, keep.ignore_abort),
        keep,
        temp: None,
        uploads: conf.family.wire == Wire::Grpc && !r.body.is_none() && !r.body.complete,
        came: None,
        cut: false,
        read: 0,
        start_ms: 0,
    };
    let mut first = std::mem::take(&mut r.exchange.reply);
    let from = r.exchange.head_at + r.exchange.head.head_len;
    relay.hear(r, link);
    relay.reader.follow(link);
    let taken = relay.take(r, &mut first, from);
    let done = match taken {
        Ok(()) => relay.emit_first(r, &first[from..]),
        Err(e) => Err(e),
    };
    first.truncate(from);
    r.exchange.reply = first;
    done?;
    relay.go_on()?;
    relay.rest(r, link).await
}

/// A response's temporary file.
struct Spill {
    file: Rc<File>,
    /// Deletes it at the end.
    _temp: TempFile,
    written: u64,
}

struct Relay<'a> {
    conf: &'a BackendLoc,
    reader: &'a mut BodyReader,
    keep: &'a mut Keep,
    buffering: bool,
    watch: ClientWatch,
    temp: Option<Spill>,
    /// The request's body is still coming, and goes to the server meanwhile.
    uploads: bool,
    /// So much was read while it was waited for.
    came: Option<usize>,
    /// The answer has ended too early.
    cut: bool,
    /// Bytes read so far, and since when, for `…_limit_rate`.
    read: u64,
    start_ms: u64,
}

enum Step {
    Read(usize),
    Flushed,
}

impl Relay<'_> {
    /// Decodes what was read, `buf[from..]`, in place.
    fn take(&mut self, r: &mut Request, buf: &mut Vec<u8>, from: usize) -> Result<(), Fault> {
        let came = (buf.len() - from) as u64;
        self.read += came;
        if let Some(state) = r.upstream.last_mut() {
            state.response_length += came;
        }
        match self.reader.feed(buf, from) {
            // What came before the end is still passed on.
            Err(BadBody::Cut) => self.cut = true,
            fed => fed?,
        }
        self.keep.write(r, &buf[from..]);
        if self.reader.done && self.reader.excess {
            let text = "upstream sent more data than specified in \"Content-Length\" header \
                        while reading upstream";
            r.log(LogLevel::Warn, text);
        }
        if self.reader.done {
            r.exchange.trailers = std::mem::take(&mut self.reader.trailers);
            self.pass_trailers(r);
        }
        Ok(())
    }

    /// Logs what the server has to say besides its answer.
    fn hear(&self, r: &Request, link: &mut Link) {
        if let Some(decoder) = &mut link.decoder {
            super::decoder::log_aside(r, decoder, READING);
        }
    }

    fn go_on(&self) -> Result<(), Fault> {
        match self.cut {
            true => Err(BadBody::Cut.into()),
            false => Ok(()),
        }
    }

    fn pass_trailers(&self, r: &mut Request) {
        if !*self.conf.pass_trailers {
            return;
        }
        for (name, value) in &r.exchange.trailers {
            if !self.conf.hide.hides_name(name) {
                r.out.trailers.push((name.clone(), value.clone()));
            }
        }
    }

    fn emit_first(&mut self, r: &mut Request, bytes: &[u8]) -> Result<(), Fault> {
        let last = self.reader.done;
        if self.keep.is_quiet(r) {
            return Ok(());
        }
        if bytes.is_empty() && !last {
            return match self.buffering {
                true => Ok(()),
                false => filtered(r.output(Chain::one(Buf::flush()))),
            };
        }
        if r.body_is_plain() && bytes.len() <= COPY_MAX_BYTES * 2 {
            output::send_slice(r, bytes, last);
            return Ok(());
        }
        self.emit(r, Bytes::copy_from_slice(bytes))
    }

    fn emit(&mut self, r: &mut Request, bytes: Bytes) -> Result<(), Fault> {
        let mut buf = Buf::mem(bytes);
        buf.last = self.reader.done;
        buf.flush = !self.buffering;
        filtered(r.output(Chain::one(buf)))
    }

    async fn rest(&mut self, r: &mut Request, link: &mut Link) -> Result<(), Fault> {
        let mut buf = Vec::new();
        let limited = r.limit_rate.map_or(r.loc().core.limit_rate.is_some(), |n| n > 0);
        let conf = self.conf;
        let rate = conf.limit_rate.as_ref().map_or(0, |t| r.eval_size(t));
        let rate = if self.buffering { rate } else { 0 };
        while !self.reader.done {
            let by_itself = self.buffering && !limited && !r.has_parts() && !r.holds();
            if !self.keep.is_quiet(r) && !by_itself {
                let leave = if self.buffering { self.conf.buffers_bytes() } else { 0 };
                let drained = self.drain(r, leave).await;
                self.keep.unless_kept(drained)?;
            }
            let room = self.slow_down(rate).await;
            let mut deadline = 0;
            let mut write_deadline = 0;
            if self.uploads {
                if let Some(piece) = self.upload(r, link, &mut buf, room).await? {
                    self.pass_piece(link, piece);
                    continue;
                }
            }
            let step = match std::mem::take(&mut self.came) {
                Some(n) => Ok(Step::Read(n)),
                None => {
                    poll_fn(|cx| {
                        self.step(cx, r, link, &mut buf, room, (&mut deadline, &mut write_deadline))
                    })
                    .await
                }
            };
            let step = match step {
                Err(Fault::ClientGone) => {
                    self.keep.unless_kept(Err(Fault::ClientGone))?;
                    continue;
                }
                step => step?,
            };
            let Step::Read(n) = step else { continue };
            if let Some(state) = r.upstream.last_mut() {
                state.bytes_received += n as u64;
            }
            if n == 0 {
                if !self.reader.ends_with_connection() {
                    return Err(Fault::Eof(READING));
                }
                self.reader.done = true;
            }
            self.hear(r, link);
            self.reader.follow(link);
            self.take(r, &mut buf, 0)?;
            if !buf.is_empty() || self.reader.done {
                self.put(r, &mut buf)?;
            }
            buf.clear();
            self.go_on()?;
        }
        match self.buffering || self.keep.is_quiet(r) {
            true => Ok(()),
            false => self.drain(r, 0).await,
        }
    }

    /// Waits for more of the request's body or of the answer, whichever comes first; the part of the
    /// body that has come, empty for its end.
    async fn upload(
        &mut self,
        r: &mut Request,
        link: &mut Link,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Result<Option<Bytes>, Fault> {
        let wait = *self.conf.read_timeout;
        let mut deadline = 0;
        let mut next = pin!(body::next(r));
        poll_fn(|cx| {
            if let Poll::Ready(read) = link.poll_read(cx, buf, room, &mut deadline, wait) {
                let read = read.map_err(read_fault);
                return Poll::Ready(read.map(|n| {
                    self.came = Some(n);
                    None
                }));
            }
            // What was taken over before goes first, as far as windows allow.
            if !link.h2.as_ref().is_some_and(|h2| h2.wants_more()) {
                return Poll::Pending;
            }
            next.as_mut().poll(cx).map(|piece| match piece {
                Ok(piece) => Ok(Some(piece.unwrap_or_default())),
                Err(e) => Err(Fault::Client(e)),
            })
        })
        .await
    }

    fn pass_piece(&mut self, link: &mut Link, piece: Bytes) {
        let more = !piece.is_empty();
        self.uploads = more;
        if let Some(h2) = &mut link.h2 {
            h2.finish_later(Rest { bytes: piece.to_vec(), source: None, more });
        }
    }

    async fn drain(&self, r: &mut Request, leave: u64) -> Result<(), Fault> {
        r.drain(leave).await.map_err(|_| Fault::ClientGone)
    }

    /// Holds reading to `…_limit_rate`; how much may be read now.
    async fn slow_down(&mut self, rate: u64) -> usize {
        let room = match self.buffering {
            true => READ_ROOM_BYTES,
            false => *self.conf.buffer_size as usize,
        };
        if rate == 0 {
            return room;
        }
        if self.start_ms == 0 {
            self.start_ms = clock::mono_ms();
        }
        loop {
            let secs = clock::mono_ms().saturating_sub(self.start_ms) / 1000 + 1;
            let allowed = (rate * secs).saturating_sub(self.read);
            if allowed > 0 {
                return room.min(allowed as usize);
            }
            let over = self.read - rate * secs + 1;
            timer::sleep_ms((over * 1000 / rate + 1).min(1000)).await;
        }
    }

    fn step(
        &mut self,
        cx: &mut Context<'_>,
        r: &Request,
        link: &mut Link,
        buf: &mut Vec<u8>,
        room: usize,
        deadlines: (&mut u64, &mut u64),
    ) -> Poll<Result<Step, Fault>> {
        let queued = r.queued();
        // Small pieces wait for more, as in nginx; a full buffer goes out.
        if self.buffering && !self.keep.silent && queued >= *self.conf.buffer_size {
            match r.poll_flush(cx) {
                Poll::Ready(Ok(_)) => return Poll::Ready(Ok(Step::Flushed)),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Fault::ClientGone)),
                Poll::Pending => {}
            }
            let deadline = deadlines.1;
            if *deadline == 0 {
                *deadline = clock::mono_ms() + *r.loc().core.send_timeout;
            }
            if r.poll_send_timeout(cx, *deadline).is_ready() {
                return Poll::Ready(Err(Fault::ClientGone));
            }
        }
        let full = !self.keep.silent && queued >= self.conf.buffers_bytes();
        // What goes into the file is written as it was read.
        let room = if full { room.min(self.conf.temp_write_bytes()) } else { room };
        if !full || self.may_spill(r) {
            let wait = *self.conf.read_timeout;
            match link.poll_read(cx, buf, room, deadlines.0, wait) {
                Poll::Ready(Ok(n)) => return Poll::Ready(Ok(Step::Read(n))),
                Poll::Ready(Err(e)) => return Poll::Ready(Err(read_fault(e))),
                Poll::Pending => {}
            }
        }
        match self.watch.is_gone(cx) {
            true => Poll::Ready(Err(Fault::ClientGone)),
            false => Poll::Pending,
        }
    }

    fn may_spill(&self, r: &Request) -> bool {
        let max = self.conf.max_temp_bytes();
        let written = self.temp.as_ref().map_or(0, |t| t.written);
        self.buffering && !r.filter_needs_memory && (written < max || self.keep.fill.is_some())
    }

    /// Hands a piece to the filters, by way of the temporary file when memory is full. The file's
    /// beginning is never used again: its pages may still be on their way to the client.
    fn put(&mut self, r: &mut Request, buf: &mut Vec<u8>) -> Result<(), Fault> {
        if self.keep.is_quiet(r) {
            return Ok(());
        }
        let queued = r.queued();
        if queued >= self.conf.buffers_bytes() && !buf.is_empty() && self.may_spill(r) {
            return self.spill(r, buf);
        }
        if buf.len() <= COPY_MAX_BYTES && r.body_is_plain() {
            output::send_slice(r, buf, self.reader.done);
            return Ok(());
        }
        self.emit(r, Bytes::from(std::mem::take(buf)))
    }

    fn spill(&mut self, r: &mut Request, bytes: &[u8]) -> Result<(), Fault> {
        if self.temp.is_none() {
            let temp = TempFile::create(&self.conf.temp_path, false).map_err(Fault::File)?;
            let path = temp.path.display().to_string();
            let text = format!(
                "an upstream response is buffered to a temporary file {path} \
                                while reading upstream"
            );
            r.log(LogLevel::Warn, &text);
            let file = Rc::new(temp.file.try_clone().map_err(Fault::File)?);
            self.temp = Some(Spill { file, _temp: temp, written: 0 });
        }
        let Some(spill) = &mut self.temp else { return Ok(()) };
        let at = spill.written;
        write_at(&spill.file, at, bytes).map_err(Fault::File)?;
        spill.written += bytes.len() as u64;
        let mut buf = Buf::file(Rc::clone(&spill.file), at, bytes.len() as u64);
        buf.last = self.reader.done;
        filtered(r.output(Chain::one(buf)))
    }
}

fn read_fault(e: LinkError) -> Fault {
    match e {
        LinkError::Timeout => Fault::Timeout(READING),
        LinkError::Io(e) => Fault::Read(e),
        LinkError::Protocol(text) => Fault::Protocol(format!("{text} while {READING}")),
    }
}

fn write_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mut file = file;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

fn filtered(result: FilterResult) -> Result<(), Fault> {
    result.map_err(|_| Fault::Filter)
}
