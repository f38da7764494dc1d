//! What the system sees, on Linux: epoll, edge-triggered. What a call has used up comes again by itself.

use super::watch::{BROKEN, READ, READ_CLOSED, URGENT, WRITE, WRITE_CLOSED};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// A socket, or another thing that can be watched.
pub(crate) type Raw = RawFd;

/// What has happened.
pub(super) type Event = epoll::Event;

/// What an event of the loop's own says, which others have woken.
pub(super) const WOKEN: u64 = u64::MAX;

/// For reading. A fresh socket can be written to, and would be reported for it at once: a turn of the loop
/// for nothing. So that comes when a write first would block.
const FOR_READING: EventFlags =
    EventFlags::IN.union(EventFlags::PRI).union(EventFlags::RDHUP).union(EventFlags::ET);

pub(super) struct System(OwnedFd);

/// Others ring it to have the loop look at what they have woken. It is watched for edges, so that it need not be read.
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn ring(&self) {
        // It fails when it has been written to 2^64 times.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// Lends a descriptor to a call of the system's.
fn lent<'a>(fd: Raw) -> BorrowedFd<'a> {
    // SAFETY: only epoll's calls are made with it, at once; of a number that is no descriptor they fail.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

impl System {
    pub(super) fn new() -> io::Result<(System, Bell)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, bell.as_fd(), EventData::new_u64(WOKEN), flags)?;
        Ok((System(epoll), Bell(bell)))
    }

    /// Asks for what has happened; waits for it if that is to be.
    pub(super) fn wait(&self, events: &mut Vec<Event>, waits: bool) -> io::Result<()> {
        events.clear();
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = (!waits).then_some(&none);
        match epoll::wait(&self.0, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Begins to watch for reading.
    pub(super) fn watch(&self, raw: Raw, number: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, lent(raw), EventData::new_u64(number), FOR_READING)?)
    }

    /// Watches for writing too.
    pub(super) fn watch_writes(&self, raw: Raw, number: u64) -> io::Result<()> {
        let flags = FOR_READING | EventFlags::OUT;
        Ok(epoll::modify(&self.0, lent(raw), EventData::new_u64(number), flags)?)
    }

    /// Forgets what stays open for somebody else.
    pub(super) fn forget(&self, raw: Raw) {
        // It fails for what is not watched.
        let _ = epoll::delete(&self.0, lent(raw));
    }
}

/// Which watch, and what it is ready by. An error is there to be found by whatever call comes next.
#[inline]
pub(super) fn seen(event: &Event) -> (u64, u8) {
    let flags = event.flags;
    let mut bits = 0;
    if flags.intersects(EventFlags::IN | EventFlags::PRI | EventFlags::ERR) {
        bits |= READ;
    }
    if flags.contains(EventFlags::PRI) {
        bits |= URGENT;
    }
    if flags.intersects(EventFlags::OUT | EventFlags::ERR) {
        bits |= WRITE;
    }
    if flags.intersects(EventFlags::RDHUP | EventFlags::HUP) {
        bits |= READ_CLOSED;
    }
    if flags.contains(EventFlags::HUP) {
        bits |= WRITE_CLOSED;
    }
    if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
        bits |= BROKEN;
    }
    (event.data.u64(), bits)
}
