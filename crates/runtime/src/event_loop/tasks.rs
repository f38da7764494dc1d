//! The tasks of a loop, and the wakers that name them.

use std::collections::VecDeque;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::ptr;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// Of the 64 bits of a task's number, so many say its place, and so many which task of that place it is;
/// the others are the loop's.
const PLACE_BITS: u32 = 24;
const TURN_BITS: u32 = 24;
const PLACE_MASK: usize = (1 << PLACE_BITS) - 1;
const TURN_MASK: u32 = (1 << TURN_BITS) - 1;
/// The place of what the loop is run for.
const MAIN: u32 = PLACE_MASK as u32;

const _: () = assert!(usize::BITS == 64, "a task's number has 64 bits");

type Future_ = Pin<Box<dyn Future<Output = ()>>>;

/// Where a task is, and which one of that place.
#[derive(Clone, Copy)]
pub(super) struct Place {
    at: u32,
    turn: u32,
}

struct Slot {
    /// None while it runs, and when there is none.
    future: Option<Future_>,
    /// Which task this is of those that have had the place.
    turn: u32,
    has_task: bool,
    /// It is in the queue.
    is_queued: bool,
    is_aborted: bool,
}

pub(super) struct Tasks {
    /// The loop's number, where a task's number has it.
    loop_bits: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    main_is_woken: bool,
    /// What the first task of a new place is called: places that were let go of have had others before.
    first_turn: u32,
}

/// A task's turn: it is out of the table meanwhile, which others may then be added to.
pub(super) struct Turn {
    future: Option<Future_>,
    place: Place,
    number: usize,
    is_aborted: bool,
}

impl Turn {
    /// Runs the task until it waits; whether it is over.
    pub(super) fn run(&mut self) -> bool {
        let Some(future) = self.future.as_mut().filter(|_| !self.is_aborted) else { return true };
        let waker = ManuallyDrop::new(waker(self.number));
        let cx = &mut Context::from_waker(&waker);
        let done = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        !matches!(done, Ok(Poll::Pending))
    }

    /// Drops the task.
    pub(super) fn end(self) -> Place {
        let future = self.future;
        // It has been said already, by what a panic is told to.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
        self.place
    }
}

impl Tasks {
    pub(super) fn new(id: u16) -> Tasks {
        Tasks {
            loop_bits: usize::from(id) << (PLACE_BITS + TURN_BITS),
            slots: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            main_is_woken: true,
            first_turn: 0,
        }
    }

    fn number(&self, place: Place) -> usize {
        self.loop_bits | (place.turn as usize) << PLACE_BITS | place.at as usize
    }

    pub(super) fn add(&mut self, future: Future_) -> Place {
        let at = self.free.pop().unwrap_or_else(|| {
            let (future, turn) = (None, self.first_turn);
            let slot = Slot { future, turn, has_task: false, is_queued: false, is_aborted: false };
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        });
        assert!(at < MAIN, "more tasks than descriptors");
        let slot = &mut self.slots[at as usize];
        slot.future = Some(future);
        (slot.has_task, slot.is_aborted) = (true, false);
        let place = Place { at, turn: slot.turn };
        self.go_on(at);
        place
    }

    pub(super) fn main_waker(&self) -> Waker {
        waker(self.number(Place { at: MAIN, turn: 0 }))
    }

    /// Whether what the loop is run for has been woken since.
    pub(super) fn take_main(&mut self) -> bool {
        std::mem::take(&mut self.main_is_woken)
    }

    pub(super) fn can_go_on(&self) -> bool {
        self.main_is_woken || !self.queue.is_empty()
    }

    #[inline]
    fn go_on(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        if !slot.is_queued {
            slot.is_queued = true;
            self.queue.push_back(at);
        }
    }

    /// Wakes a task by its number, if it is still there.
    #[inline]
    pub(super) fn wake(&mut self, number: usize) {
        let at = (number & PLACE_MASK) as u32;
        if at == MAIN {
            self.main_is_woken = true;
            return;
        }
        let turn = (number >> PLACE_BITS) as u32 & TURN_MASK;
        if self.slots.get(at as usize).is_some_and(|s| s.turn == turn && s.has_task) {
            self.go_on(at);
        }
    }

    /// Wakes the task that a waker names, if that is one of this loop's; otherwise that is another's to do.
    #[inline]
    pub(super) fn wake_own(&mut self, waker: &Waker) -> bool {
        let number = waker.data().addr();
        let is_own = ptr::eq(waker.vtable(), &VTABLE) && self.names(number);
        if is_own {
            self.wake(number);
        }
        is_own
    }

    /// Whether a task's number is of this loop.
    fn names(&self, number: usize) -> bool {
        self.loop_bits == number >> (PLACE_BITS + TURN_BITS) << (PLACE_BITS + TURN_BITS)
    }

    pub(super) fn has(&self, place: Place) -> bool {
        let slot = self.slots.get(place.at as usize);
        slot.is_some_and(|s| s.has_task && s.turn == place.turn)
    }

    pub(super) fn abort(&mut self, place: Place) {
        if self.has(place) {
            self.slots[place.at as usize].is_aborted = true;
            self.go_on(place.at);
        }
    }

    /// The next one that can go on.
    pub(super) fn next(&mut self) -> Option<Turn> {
        loop {
            let at = self.queue.pop_front()?;
            let slot = &mut self.slots[at as usize];
            slot.is_queued = false;
            if slot.future.is_some() {
                return Some(self.take(at));
            }
        }
    }

    /// One of them all.
    pub(super) fn any(&mut self) -> Option<Turn> {
        let at = self.slots.iter().position(|s| s.future.is_some())?;
        Some(self.take(at as u32))
    }

    fn take(&mut self, at: u32) -> Turn {
        let slot = &mut self.slots[at as usize];
        let place = Place { at, turn: slot.turn };
        let (future, is_aborted) = (slot.future.take(), slot.is_aborted);
        Turn { future, place, number: self.number(place), is_aborted }
    }

    /// It waits.
    pub(super) fn put_back(&mut self, turn: Turn) {
        self.slots[turn.place.at as usize].future = turn.future;
    }

    /// It is gone. Who still has its number wakes nobody, at least until so many others have had the place.
    pub(super) fn remove(&mut self, place: Place) {
        let slot = &mut self.slots[place.at as usize];
        slot.turn = (slot.turn + 1) & TURN_MASK;
        slot.has_task = false;
        self.free.push(place.at);
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.slots.len()
    }

    /// Lets go of memory for places behind the last that is taken.
    pub(super) fn shrink(&mut self) {
        let taken = self.slots.iter().rposition(|s| s.has_task || s.is_queued);
        let gone = self.slots.drain(taken.map_or(0, |at| at + 1)..);
        self.first_turn = gone.map(|s| s.turn).fold(self.first_turn, u32::max);
        self.slots.shrink_to_fit();
        let left = self.slots.len() as u32;
        self.free.retain(|at| *at < left);
        self.free.shrink_to_fit();
        self.queue.shrink_to_fit();
    }
}

/// What wakes a task is its number, which owns nothing.
static VTABLE: RawWakerVTable =
    RawWakerVTable::new(|number| RawWaker::new(number, &VTABLE), wake, wake, |_| {});

fn waker(number: usize) -> Waker {
    // SAFETY: the functions take the pointer for a number, from whatever thread they are called.
    unsafe { Waker::from_raw(RawWaker::new(ptr::without_provenance(number), &VTABLE)) }
}

fn wake(number: *const ()) {
    let number = number.addr();
    let is_here = super::with(|l| {
        let mut tasks = l.tasks.borrow_mut();
        let is_here = tasks.names(number);
        if is_here {
            tasks.wake(number);
        }
        is_here
    });
    if is_here != Some(true) {
        super::remote::wake((number >> (PLACE_BITS + TURN_BITS)) as u16, number);
    }
}
