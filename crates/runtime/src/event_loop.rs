//! A worker's event loop: tasks, and the sockets and files they wait for.
//!
//! One thread, futures that stay in it, and epoll, edge-triggered. What wakes a task is a number (which
//! loop, which place, which of the tasks that have had that place), so a waker is made, copied and dropped
//! for nothing, and one that outlives its task wakes nobody. An event of the system's costs a look into a
//! table and a place in the queue of tasks that can go on: some 700 instructions less than by tokio, which is
//! made for tasks that move between threads (BENCHMARKS.md). What is not on the way of a request stays tokio's:
//! channels, and the threads for work that blocks. A task that panics is dropped, and the others go on.
//!
//! Windows: the same loop over AFD and a completion port (`afd.rs`); timers end its wait.

#[cfg(windows)]
mod afd;
#[cfg(target_os = "linux")]
mod epoll;
mod remote;
mod tasks;
mod watch;

#[cfg(windows)]
use afd as system;
#[cfg(target_os = "linux")]
use epoll as system;
pub(crate) use system::Raw;
pub(crate) use watch::{Watch, Way};

use crate::timer::Timers;
use remote::Remote;
use std::cell::{Cell, RefCell};
use std::future::{poll_fn, Future};
use std::io;
use std::marker::PhantomData;
use std::pin::pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use system::{Event, System, WOKEN};
use tasks::{Place, Tasks};

/// What tells of events, by the name that logs show.
pub const METHOD: &str = if cfg!(windows) { "iocp" } else { "epoll" };

/// Tasks that run before the system is asked for further events.
const TASKS_PER_TURN_MAX: usize = 128;
/// Work that is known to take long, in a turn: tasks behind it wait until the system has been asked.
const WORK_PER_TURN_MAX_MICROS: u32 = 5000;
/// Events taken from the system at once.
const EVENTS_MAX: usize = 512;
/// Calls that a task may make on sockets that are always ready before it is somebody else's turn.
const CALLS_PER_TURN_MAX: u8 = 128;

/// What is to be told of a loop's turns.
pub trait Turns {
    /// It is about to wait, with nothing to do.
    fn rests(&self) {}
    /// It has asked the system for events, and goes on.
    fn goes_on(&self) {}
}

impl Turns for () {}

struct Loop {
    system: System,
    tasks: RefCell<Tasks>,
    watched: RefCell<watch::Table>,
    /// Tasks that go on when the system has been asked for events.
    let_others: RefCell<Vec<Waker>>,
    /// Calls that the task that runs may still make.
    calls_left: Cell<u8>,
    /// What [`worked`] has been told of in this turn.
    worked_micros: Cell<u32>,
    remote: Arc<Remote>,
    /// Who is woken when the wait was to end.
    #[cfg(windows)]
    alarmed: Cell<Option<Waker>>,
}

thread_local! {
    static HERE: Cell<*const Loop> = const { Cell::new(ptr::null()) };
}

/// Does something with this thread's loop, if it has one.
#[inline]
fn with<T>(f: impl FnOnce(&Loop) -> T) -> Option<T> {
    let here = HERE.get();
    // SAFETY: `run` names its loop here for as long as it lives, in its own thread, where nobody has it
    // exclusively; `f` cannot keep what it is lent.
    (!here.is_null()).then(|| f(unsafe { &*here }))
}

/// Takes the loop's name away when it ends, however it does.
struct Named;

impl Drop for Named {
    fn drop(&mut self) {
        HERE.set(ptr::null());
    }
}

/// Runs an event loop in this thread until `main` is over, and answers what that came to. Other tasks are
/// dropped then. Work that blocks is done by so many threads at most ([`crate::threads`]).
///
/// # Errors
///
/// The system gives no further descriptors, or no events.
pub fn run<F: Future>(turns: &impl Turns, blocking_max: usize, main: F) -> io::Result<F::Output> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let threads = builder.max_blocking_threads(blocking_max).build()?;
    let done = {
        let _inside = threads.enter();
        let this = Loop::new()?;
        let _named = Named;
        HERE.set(&this);
        let timers = Timers::begin()?;
        spawn(timers.run());
        let done = this.run(turns, main);
        this.end();
        done
    };
    // A thread may read a file that never comes.
    threads.shutdown_background();
    done
}

/// Begins a task of this thread's loop.
///
/// # Panics
///
/// In a thread that has none.
pub fn spawn(task: impl Future<Output = ()> + 'static) -> Task {
    let task = Box::pin(task);
    let place = with(|l| l.tasks.borrow_mut().add(task));
    #[expect(clippy::expect_used, reason = "as tokio's: who has no loop is written wrongly")]
    Task(place.expect("a task is begun in a thread that has an event loop"), PhantomData)
}

/// A task that has been begun. It goes on when this is dropped.
pub struct Task(Place, PhantomData<*const ()>);

impl Task {
    /// Has the task dropped before it would go on.
    pub fn abort(&self) {
        with(|l| l.tasks.borrow_mut().abort(self.0));
    }

    /// Whether it is gone, with all that it had.
    pub fn is_finished(&self) -> bool {
        with(|l| !l.tasks.borrow().has(self.0)).unwrap_or(true)
    }

    /// Waits until it is gone.
    pub async fn finished(self) {
        poll_fn(|cx| match self.is_finished() {
            true => Poll::Ready(()),
            false => {
                let_others(cx);
                Poll::Pending
            }
        })
        .await;
    }
}

/// Has the task woken once all others that can go on have done so, and the system has been asked for events.
/// In threads without a loop of this kind it is woken at once.
pub(crate) fn let_others(cx: &Context<'_>) {
    if with(|l| l.let_others.borrow_mut().push(cx.waker().clone())).is_none() {
        cx.waker().wake_by_ref();
    }
}

/// So long something has taken that is known to take long.
pub(crate) fn worked(time: Duration) {
    let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    with(|l| l.worked_micros.set(l.worked_micros.get().saturating_add(micros)));
}

/// Whether that is enough for a turn.
#[inline]
pub(crate) fn is_spent() -> bool {
    with(Loop::is_spent).unwrap_or(false)
}

/// Waits until the others have had their turn.
pub async fn yield_now() {
    let mut is_first = true;
    poll_fn(|cx| match std::mem::take(&mut is_first) {
        true => {
            let_others(cx);
            Poll::Pending
        }
        false => Poll::Ready(()),
    })
    .await;
}

/// Has the waker woken at that time (monotonic ms), and not at one that was said before.
#[cfg(windows)]
pub(crate) fn set_alarm(at_ms: u64, waker: &Waker) {
    with(|l| {
        l.system.set_alarm(at_ms);
        drop(l.alarmed.replace(Some(waker.clone())));
    });
}

/// Lets go of memory for more tasks and sockets than there are.
pub fn shrink() {
    with(|l| {
        l.tasks.borrow_mut().shrink();
        l.watched.borrow_mut().shrink();
    });
}

impl Loop {
    fn new() -> io::Result<Loop> {
        let (system, bell) = System::new()?;
        let remote = Remote::new(bell)?;
        Ok(Loop {
            system,
            tasks: RefCell::new(Tasks::new(remote.id())),
            watched: RefCell::default(),
            let_others: RefCell::default(),
            calls_left: Cell::new(CALLS_PER_TURN_MAX),
            worked_micros: Cell::new(0),
            remote,
            #[cfg(windows)]
            alarmed: Cell::default(),
        })
    }

    fn run<F: Future>(&self, turns: &impl Turns, main: F) -> io::Result<F::Output> {
        let mut main = pin!(main);
        let main_waker = self.tasks.borrow().main_waker();
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            self.worked_micros.set(0);
            if self.tasks.borrow_mut().take_main() {
                self.calls_left.set(CALLS_PER_TURN_MAX);
                if let Poll::Ready(done) = main.as_mut().poll(&mut Context::from_waker(&main_waker))
                {
                    return Ok(done);
                }
            }
            self.run_tasks();
            let others = std::mem::take(&mut *self.let_others.borrow_mut());
            let waits = others.is_empty() && !self.tasks.borrow().can_go_on();
            if waits {
                turns.rests();
            }
            self.system.wait(&mut events, waits)?;
            turns.goes_on();
            events.iter().for_each(|e| self.happened(e));
            #[cfg(windows)]
            if self.system.is_due() {
                self.alarmed.take().into_iter().for_each(Waker::wake);
            }
            if !others.is_empty() {
                others.into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Runs those that can go on, each once or more, but not for ever.
    fn run_tasks(&self) {
        for _ in 0..TASKS_PER_TURN_MAX {
            if self.is_spent() {
                break;
            }
            let Some(mut turn) = self.tasks.borrow_mut().next() else { break };
            self.calls_left.set(CALLS_PER_TURN_MAX);
            let is_over = turn.run();
            match is_over {
                false => self.tasks.borrow_mut().put_back(turn),
                true => {
                    let place = turn.end();
                    self.tasks.borrow_mut().remove(place);
                }
            }
        }
    }

    fn happened(&self, event: &Event) {
        let (number, bits) = system::seen(event);
        if number != WOKEN {
            return watch::happened(self, number, bits);
        }
        let mut tasks = self.tasks.borrow_mut();
        self.remote.take().into_iter().for_each(|number| tasks.wake(number));
    }

    fn is_spent(&self) -> bool {
        self.worked_micros.get() >= WORK_PER_TURN_MAX_MICROS
    }

    /// Drops all tasks, also those that are begun by that.
    fn end(&self) {
        loop {
            let Some(turn) = self.tasks.borrow_mut().any() else { break };
            let place = turn.end();
            self.tasks.borrow_mut().remove(place);
        }
    }

    /// Whether the task that runs may call once more; if not, it goes on when others have.
    #[inline]
    fn may_call(&self, cx: &Context<'_>) -> bool {
        match self.calls_left.get() {
            0 => {
                self.let_others.borrow_mut().push(cx.waker().clone());
                false
            }
            n => {
                self.calls_left.set(n - 1);
                true
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.remote.end();
    }
}

#[cfg(all(test, unix))]
mod tests;
