//! Lua states apart from a worker's: each has a thread, and does there what may take long (`ngx.run_worker_thread`).

use crate::api::semaphore::Semaphore;
use crate::run::{context, Run};
use crate::site::Block;
use crate::vm::{self, Vm};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use weir_core::generation::Generation;
use weir_runtime::own_thread::OwnThread;

/// Beginning with no number in the configuration, and at most.
pub(crate) const USUAL: u64 = 10;
pub(crate) const MAX: u64 = 100;

/// What is to be done: as the Lua side has packed it.
pub(crate) struct Job {
    /// Module, function, arguments, and where modules are looked for.
    pub words: Vec<Vec<u8>>,
}

/// What it has come to: its results as the Lua side there has packed them, or why there are none.
pub(crate) type Done = Result<Vec<u8>, Vec<u8>>;

type Apart = OwnThread<Job, Done>;

/// Those of one worker's state.
#[derive(Default)]
pub(crate) struct Threads {
    idle: RefCell<Vec<Apart>>,
    /// How many there are, those at work included.
    count: Cell<u64>,
    /// Places in the pools that the configuration names.
    places: RefCell<HashMap<Vec<u8>, Rc<Semaphore>>>,
}

impl Threads {
    /// One that has nothing to do, if there may be one more; an error is the system's.
    pub(crate) fn lease(
        &self,
        gen: &Arc<Generation>,
        block: Block,
        max: u64,
    ) -> std::io::Result<Option<Apart>> {
        if let Some(idle) = self.idle.borrow_mut().pop() {
            return Ok(Some(idle));
        }
        if self.count.get() >= max {
            return Ok(None);
        }
        let gen = Arc::clone(gen);
        let fresh = OwnThread::start("lua apart", move || {
            let mut state = None;
            move |job| work(&mut state, &gen, block, job)
        })?;
        self.count.set(self.count.get() + 1);
        Ok(Some(fresh))
    }

    /// It has done its work; one that has broken off has not.
    pub(crate) fn give_back(&self, thread: Apart, is_well: bool) {
        match is_well {
            true => self.idle.borrow_mut().push(thread),
            false => self.count.set(self.count.get() - 1),
        }
    }

    /// The places of the pool of that name.
    pub(crate) fn places(&self, pool: &[u8], threads: usize) -> Rc<Semaphore> {
        let mut places = self.places.borrow_mut();
        let fresh = || Semaphore::of(threads.max(1) as f64);
        Rc::clone(places.entry(pool.to_vec()).or_insert_with(fresh))
    }
}

/// In the thread: does a job in its state, which begins with the first one.
fn work(state: &mut Option<Rc<Vm>>, gen: &Arc<Generation>, block: Block, job: Job) -> Done {
    let vm = Rc::clone(state.get_or_insert_with(|| Vm::apart(Weak::new(), gen, block)));
    let mut run = Run::new(&vm, context::APART);
    run.args = job.words;
    let failed = vm::call_apart(&mut run);
    let result = run.result.take();
    drop(run);
    if vm.is_spent() {
        // Its code keeps all the memory there is: the next job has another one.
        *state = None;
    }
    match (failed, result) {
        (Err(why), _) => Err(why),
        (Ok(()), Some(text)) => match text.split_first() {
            Some((b'+', text)) => Ok(text.to_vec()),
            _ => Err(text.get(1..).unwrap_or_default().to_vec()),
        },
        (Ok(()), None) => Err(b"there are no results".to_vec()),
    }
}
