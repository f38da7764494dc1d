//! Descriptors that a loop watches, edge-triggered: what has happened is noted until a call finds that it is
//! used up.

use super::{with, Loop};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, RawFd};
use std::task::{Context, Poll, Waker};

/// What may be waited for.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Read,
    Write,
}

const READ: u8 = 1;
const WRITE: u8 = 2;
/// No call takes these away: the other side sends no more, and nobody takes any more.
const READ_CLOSED: u8 = 4;
const WRITE_CLOSED: u8 = 8;
/// So many bits each stands above what it makes ready for good.
const CLOSED_ABOVE: u32 = 2;
/// Urgent data has come, at which a read ends though there is more behind it: a short one has not found all.
const URGENT: u8 = 16;
/// Both sides have ended, or the other one has reset the connection.
const BROKEN: u8 = 32;

impl Way {
    /// What it is ready by, and what a call takes away.
    fn bits(self) -> (u8, u8) {
        match self {
            Way::Read => (READ | READ_CLOSED, READ),
            Way::Write => (WRITE | WRITE_CLOSED, WRITE),
        }
    }
}

#[derive(Default)]
struct Slot {
    /// Which watch this is of those that have had the place.
    turn: u32,
    ready: u8,
    /// For what somebody waits, of [`READ`] and [`WRITE`].
    waits: u8,
    /// Who waits, or has waited: to read, and to write.
    who: [Option<Waker>; 2],
}

#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// What the first watch of a new place is called: places that were let go of have had others before.
    first_turn: u32,
}

impl Table {
    fn add(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { turn: self.first_turn, ..Slot::default() });
            self.slots.len() as u32 - 1
        })
    }

    fn remove(&mut self, at: u32) -> [Option<Waker>; 2] {
        let slot = &mut self.slots[at as usize];
        let turn = slot.turn.wrapping_add(1);
        let old = std::mem::replace(slot, Slot { turn, ..Slot::default() });
        self.free.push(at);
        old.who
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.slots.len()
    }

    /// Lets go of memory for places behind the last that is taken.
    pub(super) fn shrink(&mut self) {
        self.free.sort_unstable();
        while self.free.last().is_some_and(|at| *at as usize + 1 == self.slots.len()) {
            self.free.pop();
            let gone = self.slots.pop().map_or(0, |s| s.turn);
            self.first_turn = self.first_turn.max(gone);
        }
        self.free.shrink_to_fit();
        self.slots.shrink_to_fit();
    }
}

/// A descriptor's place among those that the thread's loop watches. Who drops it closes the descriptor as
/// well, by which the system forgets it; who does not says so first ([`Watch::leave`]).
pub(crate) struct Watch {
    at: u32,
    writes: Cell<bool>,
    /// It is its thread's.
    here: PhantomData<*const ()>,
}

fn no_loop() -> io::Error {
    io::Error::other("this thread has no event loop")
}

/// Lends a descriptor to a call of the system's.
fn lent<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: only epoll's calls are made with it, at once; of a number that is no descriptor they fail.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// For reading. A fresh socket can be written to, and would be reported for it at once: a turn of the loop
/// for nothing. So that comes when a write first would block.
const FOR_READING: EventFlags =
    EventFlags::IN.union(EventFlags::PRI).union(EventFlags::RDHUP).union(EventFlags::ET);

impl Watch {
    /// Begins to watch for reading.
    ///
    /// # Errors
    ///
    /// The thread has no loop, or the system watches no descriptor of that kind, or no further one.
    pub(crate) fn new(fd: RawFd) -> io::Result<Watch> {
        debug_assert!(fd >= 0);
        with(|l| {
            let (at, data) = {
                let mut table = l.watched.borrow_mut();
                let at = table.add();
                (at, data(at, table.slots[at as usize].turn))
            };
            let this = Watch { at, writes: Cell::new(false), here: PhantomData };
            epoll::add(&l.epoll, lent(fd), EventData::new_u64(data), FOR_READING)?;
            Ok(this)
        })
        .unwrap_or_else(|| Err(no_loop()))
    }

    /// Watches for writing too.
    pub(crate) fn add_writes(&self, fd: RawFd) -> io::Result<()> {
        if self.writes.get() {
            return Ok(());
        }
        with(|l| {
            let turn = l.watched.borrow().slots[self.at as usize].turn;
            let flags = FOR_READING | EventFlags::OUT;
            epoll::modify(&l.epoll, lent(fd), EventData::new_u64(data(self.at, turn)), flags)?;
            self.writes.set(true);
            Ok(())
        })
        .unwrap_or_else(|| Err(no_loop()))
    }

    /// Whether writes are watched for.
    pub(crate) fn has_writes(&self) -> bool {
        self.writes.get()
    }

    /// Has the system forget the descriptor, which stays open for somebody else.
    pub(crate) fn leave(&self, fd: RawFd) {
        with(|l| epoll::delete(&l.epoll, lent(fd)));
    }

    /// Ready when a call has not found it used up since something happened.
    #[inline]
    pub(crate) fn poll_ready(&self, way: Way, cx: &Context<'_>) -> Poll<()> {
        self.poll_for(way.bits().0, way, cx)
    }

    /// Ready when nothing can be said over it any more, which an end of the other side alone does not mean. One that
    /// has ended there is woken by whatever happens.
    pub(crate) fn poll_broken(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll_for(BROKEN, Way::Read, cx)
    }

    #[inline(always)]
    fn poll_for(&self, by: u8, way: Way, cx: &Context<'_>) -> Poll<()> {
        with(|l| {
            let takes = way.bits().1;
            let mut table = l.watched.borrow_mut();
            let slot = &mut table.slots[self.at as usize];
            if slot.ready & by != 0 {
                drop(table);
                return if l.may_call(cx) { Poll::Ready(()) } else { Poll::Pending };
            }
            slot.waits |= takes;
            let who = &mut slot.who[way as usize];
            if who.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                return Poll::Pending;
            }
            let old = who.replace(cx.waker().clone());
            // Whatever that does when it is dropped, the table is not in use.
            drop(table);
            drop(old);
            Poll::Pending
        })
        .unwrap_or(Poll::Pending)
    }

    /// The same without waiting.
    #[inline]
    pub(crate) fn is_ready(&self, way: Way) -> bool {
        let is_ready = |l: &Loop| l.watched.borrow().slots[self.at as usize].ready & way.bits().0;
        with(is_ready).is_some_and(|bits| bits != 0)
    }

    /// A call has found that it is used up.
    #[inline]
    pub(crate) fn clear(&self, way: Way) {
        with(|l| l.watched.borrow_mut().slots[self.at as usize].ready &= !way.bits().1);
    }

    /// A read has not filled its room: mostly there is no more, so that the system need not be asked.
    #[inline]
    pub(crate) fn clear_short_read(&self) {
        with(|l| {
            let mut table = l.watched.borrow_mut();
            let slot = &mut table.slots[self.at as usize];
            if slot.ready & URGENT == 0 {
                slot.ready &= !READ;
            }
        });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let who = with(|l| l.watched.borrow_mut().remove(self.at));
        drop(who);
    }
}

fn data(at: u32, turn: u32) -> u64 {
    u64::from(turn) << 32 | u64::from(at)
}

/// Notes what the system has seen, and wakes who waits for it.
#[inline]
pub(super) fn happened(this: &Loop, number: u64, flags: EventFlags) {
    let mut table = this.watched.borrow_mut();
    let Some(slot) = table.slots.get_mut(number as u32 as usize) else { return };
    if slot.turn != (number >> 32) as u32 {
        return;
    }
    slot.ready |= bits(flags);
    let wakes = slot.waits & (slot.ready | slot.ready >> CLOSED_ABOVE);
    slot.waits &= !wakes;
    let mut tasks = this.tasks.borrow_mut();
    let mut others = 0;
    for (who, way) in slot.who.iter().zip([READ, WRITE]) {
        if wakes & way != 0 && who.as_ref().is_some_and(|who| !tasks.wake_own(who)) {
            others |= way;
        }
    }
    drop((tasks, table));
    if others != 0 {
        wake_others(this, number as u32 as usize, others);
    }
}

/// Wakes who is no task of this loop's, or goes by another name.
#[cold]
fn wake_others(this: &Loop, at: usize, ways: u8) {
    let woken = [Way::Read, Way::Write].map(|way| {
        let table = this.watched.borrow();
        table.slots[at].who[way as usize].clone().filter(|_| ways & way.bits().1 != 0)
    });
    woken.into_iter().flatten().for_each(Waker::wake);
}

/// An error is there to be found by whatever call comes next.
fn bits(flags: EventFlags) -> u8 {
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
    bits
}
