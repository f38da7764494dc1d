//! Descriptors that a loop watches, edge-triggered: what has happened is noted until a call finds that it is
//! used up.

use super::system::Raw;
use super::{with, Loop};
use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::task::{Context, Poll, Waker};

/// What may be waited for.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Read,
    Write,
}

pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;
/// No call takes these away: the other side sends no more, and nobody takes any more.
pub(super) const READ_CLOSED: u8 = 4;
pub(super) const WRITE_CLOSED: u8 = 8;
/// So many bits each stands above what it makes ready for good.
const CLOSED_ABOVE: u32 = 2;
/// Urgent data has come, at which a read ends though there is more behind it: a short one has not found all.
pub(super) const URGENT: u8 = 16;
/// Both sides have ended, or the other one has reset the connection.
pub(super) const BROKEN: u8 = 32;

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
    #[cfg(windows)]
    socket: Raw,
    /// What the system is to tell of, of [`READ`] and [`WRITE`].
    #[cfg(windows)]
    wanted: u8,
}

#[cfg(windows)]
impl Slot {
    /// The system tells once of what it is asked for: of what is not ready it is to tell again.
    fn ask(&self, system: &super::System, at: u32) {
        let ways = self.wanted & !(self.ready | self.ready >> CLOSED_ABOVE);
        if ways != 0 {
            // A socket that is dead is found by the next call.
            let _ = system.ask(self.socket, data(at, self.turn), ways);
        }
    }
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
/// well, by which Linux forgets it (Windows is told); who does not says so first ([`Watch::leave`]).
pub(crate) struct Watch {
    at: u32,
    writes: Cell<bool>,
    #[cfg(windows)]
    socket: Raw,
    /// It is its thread's.
    here: PhantomData<*const ()>,
}

fn no_loop() -> io::Error {
    io::Error::other("this thread has no event loop")
}

impl Watch {
    /// Begins to watch for reading.
    ///
    /// # Errors
    ///
    /// The thread has no loop, or the system watches no descriptor of that kind, or no further one.
    pub(crate) fn new(fd: Raw) -> io::Result<Watch> {
        with(|l| {
            let (at, data) = {
                let mut table = l.watched.borrow_mut();
                let at = table.add();
                let slot = &mut table.slots[at as usize];
                #[cfg(windows)]
                {
                    (slot.socket, slot.wanted) = (fd, READ);
                }
                (at, data(at, slot.turn))
            };
            let this = Watch {
                at,
                writes: Cell::new(false),
                #[cfg(windows)]
                socket: fd,
                here: PhantomData,
            };
            l.system.watch(fd, data)?;
            Ok(this)
        })
        .unwrap_or_else(|| Err(no_loop()))
    }

    /// Watches for writing too.
    pub(crate) fn add_writes(&self, fd: Raw) -> io::Result<()> {
        if self.writes.get() {
            return Ok(());
        }
        with(|l| {
            #[cfg(windows)]
            {
                l.watched.borrow_mut().slots[self.at as usize].wanted |= WRITE;
            }
            let turn = l.watched.borrow().slots[self.at as usize].turn;
            l.system.watch_writes(fd, data(self.at, turn))?;
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
    pub(crate) fn leave(&self, fd: Raw) {
        with(|l| l.system.forget(fd));
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
        #[cfg(windows)]
        self.ask_again();
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
        #[cfg(windows)]
        self.ask_again();
    }

    /// The socket was ended by its owner, of which the system tells nobody.
    #[cfg(windows)]
    pub(crate) fn ended_here(&self, writes_too: bool) {
        let writes = if writes_too { WRITE | WRITE_CLOSED | BROKEN } else { 0 };
        with(|l| {
            let turn = l.watched.borrow().slots[self.at as usize].turn;
            happened(l, data(self.at, turn), READ | READ_CLOSED | writes);
        });
    }

    #[cfg(windows)]
    fn ask_again(&self) {
        with(|l| l.watched.borrow().slots[self.at as usize].ask(&l.system, self.at));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        #[cfg(windows)]
        with(|l| l.system.forget(self.socket));
        let who = with(|l| l.watched.borrow_mut().remove(self.at));
        drop(who);
    }
}

fn data(at: u32, turn: u32) -> u64 {
    u64::from(turn) << 32 | u64::from(at)
}

/// Notes what the system has seen, and wakes who waits for it.
#[inline]
pub(super) fn happened(this: &Loop, number: u64, bits: u8) {
    let mut table = this.watched.borrow_mut();
    let Some(slot) = table.slots.get_mut(number as u32 as usize) else { return };
    if slot.turn != (number >> 32) as u32 {
        return;
    }
    slot.ready |= bits;
    #[cfg(windows)]
    slot.ask(&this.system, number as u32);
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
