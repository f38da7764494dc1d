//! The sending half of a session: slices to records, records to the socket in one call.

use crate::engine::{Queue, Task};
use crate::session::{Inner, Session, BATCH_MAX_BYTES};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use weir_runtime::net::Stream;

/// The most that a record adds to its plain bytes (TLS 1.2 with AES-GCM).
const RECORD_EXTRA_BYTES: usize = 29;
/// Unused in front of what is read from a file: some processors (AMD's) copy with `rep movsb`
/// many times slower from the very beginning of a page. Of the time for 1 MB over TLS the copy
/// took 38 %, and takes 5.
const FILE_LEAD_BYTES: usize = 64;

thread_local! {
    /// Where files are read into before they are encrypted, one for a worker.
    static FILE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Where records are made, and where slices are put together for one; a worker's too.
    static RECORDS: RefCell<(Queue, Vec<u8>)> = RefCell::default();
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
        // An alert may have left behind it.
        surely.min(self.plain).saturating_sub(self.reported)
    }
}

/// The socket as records go to it, waiting or not.
pub(crate) struct Out<'a, 'b, 'c> {
    pub socket: &'a Stream,
    pub cx: Option<&'b mut Context<'c>>,
    pub more: bool,
}

impl Out<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let pieces = [IoSlice::new(bytes)];
        let Some(cx) = &mut self.cx else { return self.socket.try_write(&pieces, self.more) };
        match self.socket.poll_write(cx, &pieces, self.more) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Slices, as records take from them.
struct Pieces<'a, 'b> {
    pieces: &'b [IoSlice<'a>],
    /// Taken of the first.
    taken: usize,
}

impl<'b> Pieces<'_, 'b> {
    fn first(&self) -> &'b [u8] {
        self.pieces.first().map_or(&[][..], |piece| &piece[self.taken..])
    }

    fn take(&mut self, bytes: usize) {
        self.taken += bytes;
        while self.pieces.first().is_some_and(|piece| piece.len() <= self.taken) {
            self.pieces = &self.pieces[1..];
            self.taken = 0;
        }
    }

    /// The next bytes: records of a slice as they are; or one that takes from several, put together.
    fn next<'n>(&mut self, record: usize, most: usize, gathered: &'n mut Vec<u8>) -> &'n [u8]
    where
        'b: 'n,
    {
        // Empty ones stand first.
        self.take(0);
        let first = self.first();
        if self.pieces.len() < 2 || first.len() >= record {
            let whole =
                if self.pieces.len() < 2 { first.len() } else { first.len() / record * record };
            let n = whole.min(most);
            self.take(n);
            return &first[..n];
        }
        gathered.clear();
        while gathered.len() < record.min(most) && !self.pieces.is_empty() {
            let first = self.first();
            let n = first.len().min(record.min(most) - gathered.len());
            gathered.extend_from_slice(&first[..n]);
            self.take(n);
        }
        gathered
    }
}

impl Inner {
    /// Sends the records that wait; `false` when the socket takes no more now.
    pub fn flush(&mut self, out: Out<'_, '_, '_>) -> io::Result<bool> {
        let mut waiting = std::mem::take(&mut self.out);
        let all = self.send(&mut waiting, out);
        if !waiting.is_empty() {
            self.out = waiting;
        }
        all
    }

    pub fn flush_now(&mut self, socket: &Stream) -> io::Result<bool> {
        self.flush(Out { socket, cx: None, more: false })
    }

    fn send(&mut self, records: &mut Queue, mut out: Out<'_, '_, '_>) -> io::Result<bool> {
        while !records.is_empty() {
            match out.write(records.pending()) {
                Ok(n) => {
                    records.left(n);
                    self.batch.left += n;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => {
                    self.failed = true;
                    return Err(e);
                }
            }
        }
        self.batch.behind = false;
        Ok(true)
    }

    /// Makes records of the slices, up to a batch.
    fn make(
        &mut self,
        pieces: &[IoSlice<'_>],
        record: usize,
        records: &mut Queue,
        gathered: &mut Vec<u8>,
    ) -> io::Result<()> {
        records.clear();
        records.push(self.out.pending());
        self.out = Queue::default();
        self.batch = Batch { behind: !records.is_empty(), ..Batch::default() };
        let mut pieces = Pieces { pieces, taken: 0 };
        loop {
            let part = pieces.next(record, BATCH_MAX_BYTES - self.batch.plain, gathered);
            if part.is_empty() {
                return Ok(());
            }
            let about = part.len() + part.len().div_ceil(record) * RECORD_EXTRA_BYTES;
            self.seal(Task::Seal(part, about), records)?;
            self.batch.plain += part.len();
        }
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
        let out = Out { socket, cx: Some(cx), more };
        if inner.batch.is_open() {
            let all = inner.flush(out)?;
            return inner.report(all, self.record);
        }
        RECORDS.with_borrow_mut(|(records, gathered)| {
            if let Err(e) = inner.make(pieces, self.record, records, gathered) {
                inner.goodbye(socket, records);
                return Poll::Ready(Err(e));
            }
            let all = inner.send(records, out)?;
            inner.out.push(records.pending());
            inner.report(all, self.record)
        })
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
        let mut records = std::mem::take(&mut inner.out);
        // It is over either way.
        let _ = inner.seal(Task::Close, &mut records);
        inner.goodbye(socket, &records);
    }

    /// Ends without `close_notify`.
    pub(crate) fn be_quiet(&self) {
        self.inner.borrow_mut().closed = true;
    }
}

impl Inner {
    /// Sends the last records, behind which may come an alert, as far as the socket takes them.
    fn goodbye(&mut self, socket: &Stream, records: &Queue) {
        let alert = std::mem::take(&mut self.out);
        self.out.push(records.pending());
        self.out.push(alert.pending());
        let _ = self.flush_now(socket);
    }

    /// Reports the bytes whose records have left.
    fn report(&mut self, all: bool, record: usize) -> Poll<io::Result<usize>> {
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
