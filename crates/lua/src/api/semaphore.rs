//! `ngx.semaphore`: who waits is here, so that what was posted to somebody who has gone is the next one's.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::{self, ANY, WAITING};
use crate::run::{Reply, Told, WaitFor};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use weir_runtime::timer;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("sem_new", ANY, new),
    OpRow::any("sem_wait", ANY, wait),
    OpRow::any("sem_post", ANY, post),
    OpRow::any("sem_count", ANY, count),
    OpRow::any("sem_free", ANY, |state, args, _| {
        state.vm.semaphores.0.borrow_mut().remove(&args.id);
        code::TRUE
    }),
];

/// Those of a state, by their numbers.
#[derive(Default)]
pub(crate) struct Semaphores(RefCell<HashMap<u64, Rc<Semaphore>>>);

#[derive(Default)]
pub(crate) struct Semaphore {
    resources: Cell<f64>,
    waiting: RefCell<VecDeque<Rc<Told>>>,
}

impl Semaphore {
    /// One of Rust's own.
    pub(crate) fn of(resources: f64) -> Rc<Semaphore> {
        Rc::new(Semaphore { resources: Cell::new(resources), ..Semaphore::default() })
    }

    /// Takes one resource, however long that takes.
    pub(crate) async fn take(self: &Rc<Self>) {
        if self.resources.get() >= 1.0 && self.waiting.borrow().is_empty() {
            return self.resources.set(self.resources.get() - 1.0);
        }
        let mut turn = Turn { semaphore: Rc::clone(self), told: Rc::default(), has_got: false };
        self.waiting.borrow_mut().push_back(Rc::clone(&turn.told));
        poll_fn(|cx| turn.told.poll(cx)).await;
        turn.has_got = true;
    }

    pub(crate) fn post(&self, n: f64) {
        self.resources.set(self.resources.get() + n);
        while self.resources.get() >= 1.0 {
            let Some(told) = self.waiting.borrow_mut().pop_front() else { break };
            self.resources.set(self.resources.get() - 1.0);
            told.tell(Reply::ok());
        }
    }
}

/// Somebody's place among those that wait.
struct Turn {
    semaphore: Rc<Semaphore>,
    told: Rc<Told>,
    has_got: bool,
}

impl Drop for Turn {
    /// Who goes without having got anything leaves the row; what was on its way to it is the next one's.
    fn drop(&mut self) {
        if self.has_got {
            return;
        }
        let mut waiting = self.semaphore.waiting.borrow_mut();
        match waiting.iter().position(|told| Rc::ptr_eq(told, &self.told)) {
            Some(at) => drop(waiting.remove(at)),
            None => {
                drop(waiting);
                self.semaphore.post(1.0);
            }
        }
    }
}

fn find(state: &State<'_>, args: &Args<'_>) -> Option<Rc<Semaphore>> {
    state.vm.semaphores.0.borrow().get(&args.id).map(Rc::clone)
}

/// With `x` resources; its number.
fn new(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let id = state.vm.next();
    let fresh = Semaphore { resources: Cell::new(args.x), ..Semaphore::default() };
    state.vm.semaphores.0.borrow_mut().insert(id, Rc::new(fresh));
    answer.number(id as f64)
}

/// Takes one resource, waiting `x` seconds for it at most.
fn wait(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if state.run.context & WAITING == 0 {
        let shown = context::shown(state.run.context);
        return answer.fail(format!("API disabled in the context of {shown}"));
    }
    let Some(semaphore) = find(state, args) else { return answer.fail("timeout") };
    if semaphore.resources.get() >= 1.0 && semaphore.waiting.borrow().is_empty() {
        semaphore.resources.set(semaphore.resources.get() - 1.0);
        return code::TRUE;
    }
    let ms = (args.x * 1000.0).min(1e12) as u64;
    if ms == 0 {
        return answer.fail("timeout");
    }
    let turn = Turn { semaphore, told: Rc::default(), has_got: false };
    turn.semaphore.waiting.borrow_mut().push_back(Rc::clone(&turn.told));
    state.wait(
        WaitFor::Future(Box::pin(async move {
            let mut turn = turn;
            let come = timer::within_ms(ms, poll_fn(|cx| turn.told.poll(cx))).await;
            turn.has_got = come.is_some();
            come.unwrap_or_else(|| Reply::fail("timeout"))
        })),
        answer,
    )
}

/// Adds `x` resources.
fn post(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    if let Some(semaphore) = find(state, args) {
        semaphore.post(args.x);
    }
    code::TRUE
}

/// How many resources there are, less those who wait.
fn count(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let count = find(state, args).map_or(0.0, |semaphore| {
        semaphore.resources.get() - semaphore.waiting.borrow().len() as f64
    });
    answer.number(count)
}
