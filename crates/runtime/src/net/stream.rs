//! Connected sockets: system calls first, the event loop only when one would block. A connection
//! whose request has arrived by the time it is accepted is answered and closed without ever
//! being registered.

use super::system::{raw, Owned, Raw, NOWHERE};
use crate::event_loop::{Watch, Way};
use crate::sockets::RawFd;
use std::cell::OnceCell;
use std::io::{self, IoSlice};
use std::task::{ready, Context, Poll};

/// A connected stream socket.
pub struct Stream {
    /// Made when a call first would block. The socket is closed after it, and by that forgotten by the system.
    watch: OnceCell<Watch>,
    /// None for a stream that leads nowhere.
    pub(super) socket: Option<Owned>,
    pub(super) tcp: bool,
    /// The receiving half was closed here: behind what has come there is the end.
    #[cfg(windows)]
    pub(super) reads_end: std::cell::Cell<bool>,
}

/// Whether what is read stays to be read.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Peek {
    No,
    Yes,
}

impl Stream {
    /// Takes a connected, non-blocking socket, accepted here or by another process.
    pub fn from_fd(socket: impl Into<Owned>, tcp: bool) -> Stream {
        Stream::of(Some(socket.into()), tcp)
    }

    /// A stream that leads nowhere and takes no descriptor: nobody sends, nobody hangs up, and
    /// what reads or writes fails.
    pub fn nowhere() -> Stream {
        Stream::of(None, false)
    }

    fn of(socket: Option<Owned>, tcp: bool) -> Stream {
        Stream {
            watch: OnceCell::new(),
            socket,
            tcp,
            #[cfg(windows)]
            reads_end: std::cell::Cell::new(false),
        }
    }

    /// The descriptor, -1 for a stream that leads nowhere: every call on that fails.
    pub fn fd(&self) -> RawFd {
        // Windows: of a handle 32 bits are used.
        self.raw() as RawFd
    }

    /// As the event loop takes it.
    fn raw(&self) -> Raw {
        self.socket.as_ref().map_or(NOWHERE, raw)
    }

    /// Registers the socket with the worker's event loop, for reading at least.
    fn watch(&self) -> io::Result<&Watch> {
        if let Some(watch) = self.watch.get() {
            return Ok(watch);
        }
        if self.socket.is_none() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let watch = Watch::new(self.raw())?;
        Ok(self.watch.get_or_init(|| watch))
    }

    /// As [`Stream::watch`], for writing too.
    fn watch_writes(&self) -> io::Result<&Watch> {
        let watch = self.watch()?;
        watch.add_writes(self.raw())?;
        Ok(watch)
    }

    /// Notes that the socket was ended here, which the system does not tell of by itself.
    #[cfg(windows)]
    pub(super) fn ended_here(&self, writes_too: bool) {
        self.reads_end.set(true);
        self.watch.get().iter().for_each(|w| w.ended_here(writes_too));
    }

    /// The socket has been given to another process: this one's event loop hears no more of it, though it
    /// stays open there.
    pub fn leave(&self) {
        self.watch.get().iter().for_each(|w| w.leave(self.raw()));
    }

    /// Reads into the buffer's spare room, at most `room` bytes more; 0 is the end of the stream.
    ///
    /// A read that does not fill the room has drained the socket, so its readiness is cleared at
    /// once and the next poll waits for the kernel instead of asking it again.
    pub fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let watch = match self.watch.get() {
            Some(watch) => watch,
            None => match self.try_read(buf, room) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.watch()?,
                done => return Poll::Ready(done),
            },
        };
        self.poll_read_watched(watch, cx, || self.try_read(buf, room), room)
    }

    /// The same of a socket that is registered.
    #[inline]
    fn poll_read_watched(
        &self,
        watch: &Watch,
        cx: &mut Context<'_>,
        mut read: impl FnMut() -> io::Result<usize>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(watch.poll_ready(Way::Read, cx));
            match read() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => watch.clear(Way::Read),
                Ok(n) => {
                    if n > 0 && n < room {
                        watch.clear_short_read();
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Waits until there is something to read, then reads it into the buffer that `buf` gives: a
    /// connection that waits needs no buffer.
    pub fn poll_read_lazy<S>(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        slot: &mut S,
        buf: impl Fn(&mut S) -> &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let watch = self.watch()?;
        self.poll_read_watched(watch, cx, || self.try_read(buf(slot), room), room)
    }

    /// Runs a call that reads, waiting while it would block.
    #[cfg(target_os = "linux")]
    pub(super) fn poll_read_with(
        &self,
        cx: &mut Context<'_>,
        call: impl Fn() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let watch = self.watch()?;
        loop {
            ready!(watch.poll_ready(Way::Read, cx));
            match call() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => watch.clear(Way::Read),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Waits for a datagram and reads it into the buffer; an empty one is one too.
    pub fn poll_datagram(
        &self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let watch = self.watch()?;
        loop {
            ready!(watch.poll_ready(Way::Read, cx));
            match self.try_read(buf, room) {
                // Behind a short one there may be more, so only this tells that there is none.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => watch.clear(Way::Read),
                done => return Poll::Ready(done),
            }
        }
    }

    /// The same, once, without waiting.
    pub fn try_read(&self, buf: &mut Vec<u8>, room: usize) -> io::Result<usize> {
        self.receive(buf, room, Peek::No)
    }

    /// Whether something waits to be read: `Ok(0)` is the end of the stream. Takes nothing, and
    /// asks the kernel only when the event loop has seen something happen.
    pub fn peek(&self) -> io::Result<usize> {
        let watch = self.watch.get();
        if watch.is_some_and(|w| !w.is_ready(Way::Read)) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let seen = self.peek_now();
        if is_wait(&seen) {
            watch.iter().for_each(|w| w.clear(Way::Read));
        }
        seen
    }

    /// What waits to be read, into the buffer's spare room and without taking it: at most `room` bytes.
    pub fn peek_into(&self, buf: &mut Vec<u8>, room: usize) -> io::Result<usize> {
        self.receive(buf, room, Peek::Yes)
    }

    /// Ready when a read would not block (data, end or error).
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.socket.is_none() {
            return Poll::Pending;
        }
        self.watch()?.poll_ready(Way::Read, cx).map(Ok)
    }

    /// Ready when the connection is broken: both sides have ended, or the other one has reset it.
    pub fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.watch() {
            Ok(watch) => watch.poll_broken(cx),
            Err(_) => Poll::Pending,
        }
    }

    /// Forgets that the socket was readable: a call has found that it is not.
    pub fn not_readable(&self) {
        self.watch.get().iter().for_each(|w| w.clear(Way::Read));
    }

    /// Ready when a write may make progress.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch_writes()?.poll_ready(Way::Write, cx).map(Ok)
    }

    /// Runs a call that writes, waiting while it would block.
    ///
    /// Once a call has found no room, the next is made when the event loop has seen room again, and
    /// not whenever the task wakes: the kernel may take a little at any time, and what a timer's
    /// firing lets through is no sign of a client that reads.
    pub(super) fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        call: impl Fn() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        // As long as there was room, the event loop need not be asked.
        let mut watch = self.watch_for_writes();
        loop {
            if let Some(watch) = watch {
                ready!(watch.poll_ready(Way::Write, cx));
            }
            match call() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match watch {
                    Some(watch) => watch.clear(Way::Write),
                    None => watch = Some(self.watch_writes()?),
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Writes the pieces in one call, without a task that would wait: nothing is answered when it would
    /// have to, or has had to before.
    pub fn write_at_once(&self, pieces: &[IoSlice<'_>], more: bool) -> Option<io::Result<usize>> {
        if self.watch_for_writes().is_some() {
            return None;
        }
        let is_later = |e: &io::Error| {
            matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        };
        match self.try_write(pieces, more) {
            Err(e) if is_later(&e) => None,
            done => Some(done),
        }
    }

    /// The registration, if it is one for writing.
    fn watch_for_writes(&self) -> Option<&Watch> {
        self.watch.get().filter(|w| w.has_writes())
    }

    /// Writes the pieces in one call; `more` says that further bytes follow at once.
    pub fn poll_write(
        &self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, || self.try_write(pieces, more))
    }
}

fn is_wait(done: &io::Result<usize>) -> bool {
    done.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
}
