//! The sending half of a session: slices to records, records to the socket in one call.

use crate::session::{Inner, Session, BATCH_MAX_BYTES};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::task::{Context, Poll};
use weir_runtime::net::Stream;

/// The most that a record adds to its plain bytes (TLS 1.2 with AES-GCM).
const RECORD_EXTRA_BYTES: usize = 29;
/// Unused in front of what is read from a file: some processors (AMD's) copy with `rep movsb`
/// many times slower from the very beginning of a page. Of the time for 1 MB over TLS the copy
/// took 38 %, and takes 5.
const FILE_LEAD_BYTES: usize = 64;
/// Slices taken into one batch.
const BATCH_MAX_PIECES: usize = 16;

thread_local! {
    /// Where files are read into before they are encrypted, one for a worker.
    static FILE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that were encrypted together.
#[derive(Clone, Copy, Default)]
pub(crate) struct Batch {
    plain: usize,
    /// Of those, how many were reported as written.
    reported: usize,
    /// Ciphertext that has left.
    left: usize,
    /// Other records stand before it, so the count tells nothing until all is out.
    pub behind: bool,
}

impl Batch {
    pub fn is_open(&self) -> bool {
        self.reported < self.plain
    }

    /// How many plain bytes have surely left beyond those reported.
    fn progress(&self, all_left: bool, record: usize) -> usize {
        let surely = match (all_left, self.behind) {
            (true, _) => self.plain,
            (false, true) => 0,
            (false, false) => self.left / (record + RECORD_EXTRA_BYTES) * record,
        };
        surely.saturating_sub(self.reported)
    }
}

/// The socket as rustls writes to it, waiting or not.
pub(crate) struct Out<'a, 'b, 'c> {
    pub socket: &'a Stream,
    pub cx: Option<&'b mut Context<'c>>,
    pub more: bool,
}

impl Write for Out<'_, '_, '_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(cx) = &mut self.cx else { return self.socket.try_write(pieces, self.more) };
        match self.socket.poll_write(cx, pieces, self.more) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_wait(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::WouldBlock
}

impl Inner {
    /// Sends the records that are made; `false` when the socket takes no more now.
    pub fn flush(&mut self, mut out: Out<'_, '_, '_>) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut out) {
                Ok(n) => self.batch.left += n,
                Err(e) if is_wait(&e) => return Ok(false),
                Err(e) => {
                    self.failed = true;
                    return Err(e);
                }
            }
        }
        self.batch.behind = false;
        Ok(true)
    }

    pub fn flush_now(&mut self, socket: &Stream) -> io::Result<bool> {
        self.flush(Out { socket, cx: None, more: false })
    }

    /// Makes records of the slices, up to a batch.
    fn seal(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let behind = self.tls.wants_write();
        let plain = if pieces.iter().map(|p| p.len()).sum::<usize>() <= BATCH_MAX_BYTES {
            self.tls.writer().write_vectored(pieces)?
        } else {
            let mut part = [IoSlice::new(&[]); BATCH_MAX_PIECES];
            let (mut count, mut bytes) = (0, 0);
            for piece in pieces.iter().take(BATCH_MAX_PIECES) {
                let n = piece.len().min(BATCH_MAX_BYTES - bytes);
                part[count] = IoSlice::new(&piece[..n]);
                count += 1;
                bytes += n;
            }
            self.tls.writer().write_vectored(&part[..count])?
        };
        self.batch = Batch { plain, reported: 0, left: 0, behind };
        Ok(plain)
    }
}

impl Session {
    /// Writes the slices, or the first of them; what it answers has left. While a batch is not
    /// gone, the slices are the same again (or what is left of them) and are not looked at.
    pub(crate) fn poll_write(
        &self,
        socket: &Stream,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        let inner = &mut *self.inner.borrow_mut();
        if inner.failed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if !inner.batch.is_open() {
            inner.seal(pieces)?;
        }
        inner.poll_progress(socket, cx, self.record, more)
    }

    /// The same with a range of a file.
    pub(crate) fn poll_write_file(
        &self,
        socket: &Stream,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        if self.inner.borrow().batch.is_open() {
            return self.poll_write(socket, cx, &[], false);
        }
        with_file(file, offset, len, |part| match part {
            [] => Poll::Ready(Ok(0)),
            part => self.poll_write(socket, cx, &[IoSlice::new(part)], false),
        })
    }

    /// Says once that nothing more will be sent, as far as the socket takes it.
    pub(crate) fn close(&self, socket: &Stream) {
        let inner = &mut *self.inner.borrow_mut();
        if inner.closed || inner.failed || inner.tls.is_handshaking() {
            return;
        }
        inner.closed = true;
        inner.tls.send_close_notify();
        // The connection ends whether it arrives or not.
        let _ = inner.flush_now(socket);
    }

    /// Ends without `close_notify`.
    pub(crate) fn be_quiet(&self) {
        self.inner.borrow_mut().closed = true;
    }
}

impl Inner {
    /// Sends what is sealed and reports the bytes whose records have left.
    fn poll_progress(
        &mut self,
        socket: &Stream,
        cx: &mut Context<'_>,
        record: usize,
        more: bool,
    ) -> Poll<io::Result<usize>> {
        let all = self.flush(Out { socket, cx: Some(cx), more })?;
        let n = self.batch.progress(all, record);
        if n == 0 && !all {
            return Poll::Pending;
        }
        self.batch.reported += n;
        Poll::Ready(Ok(n))
    }
}

/// Runs `f` with a bounded part of a file, read into the worker's buffer.
fn with_file<T>(
    file: &File,
    offset: u64,
    len: usize,
    f: impl FnOnce(&[u8]) -> Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    FILE.with(|slot| {
        let mut buf = slot.take();
        buf.resize(FILE_LEAD_BYTES + BATCH_MAX_BYTES, 0);
        let part = &mut buf[FILE_LEAD_BYTES..][..len.min(BATCH_MAX_BYTES)];
        let done = match weir_runtime::files::read_at(file, part, offset) {
            Ok(n) => f(&part[..n]),
            Err(e) => Poll::Ready(Err(e)),
        };
        slot.replace(buf);
        done
    })
}
