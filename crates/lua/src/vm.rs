//! Lua states: one for each worker and generation.

use crate::api::pool::Pools;
use crate::api::regex::Compiled;
use crate::api::ssl_client::Sessions;
use crate::border::{Engine, Failure};
use crate::conf::{LuaLoc, LuaMain};
use crate::machine::State;
use crate::run::{context, entry, Outcome, Run, Step, Told};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use weir_core::generation::Generation;
use weir_core::logger::LogLevel;
use weir_core::{Session, Worker};
use weir_dict::Dict;
use weir_http::generation::HttpConf;
use weir_http::Request;
use weir_runtime::clock;

/// A state of Lua's, and what goes with it.
pub(crate) struct Vm {
    engine: OnceCell<Engine>,
    pub worker: Weak<Worker>,
    pub gen: Arc<Generation>,
    numbers: Cell<u32>,
    begun_ms: u64,
    /// Runs and requests that are over, which Lua has not been told of.
    over: RefCell<Vec<(i32, u32)>>,
    /// Who waits to be told something, by the waits' numbers.
    pub told: RefCell<HashMap<u32, Rc<Told>>>,
    /// The dictionaries, in the order of the configuration.
    pub dicts: Vec<Arc<Dict>>,
    /// Connections that are kept.
    pub pools: Pools,
    /// Sessions with servers, for those who go on with them.
    pub sessions: Sessions,
    /// Expressions of `ngx.re`.
    pub compiled: Compiled,
    /// Timers that wait, and that run.
    pub pending_timers: Cell<usize>,
    pub running_timers: Cell<usize>,
    /// The worker has a newer configuration, or ends.
    pub is_ending: Cell<bool>,
    pub timers: RefCell<Vec<Rc<Told>>>,
}

/// The states of one worker.
#[derive(Default)]
struct Vms(RefCell<Vec<Rc<Vm>>>, RefCell<Vec<Weak<Vm>>>);

/// A state of one request, where code is not kept.
struct Own(Rc<Vm>);

/// A state that is out of memory is not begun anew more often than this.
const SPENT_MS: u64 = 3000;

/// The text that a state begins with.
const PRELUDE: &str = include_str!("lua/prelude.lua");

impl Vm {
    /// The one of a worker for its generation, which is begun when it is first asked for.
    pub(crate) fn of(worker: &Rc<Worker>, gen: &Arc<Generation>) -> Rc<Vm> {
        let vms = worker.local::<Vms>();
        let found = vms.0.borrow().iter().find(|vm| vm.gen.number == gen.number).map(Rc::clone);
        let spent = match found {
            Some(found) if !found.is_spent() => return found,
            spent => spent,
        };
        let fresh = Vm::new(worker, gen);
        vms.0.borrow_mut().push(Rc::clone(&fresh));
        if let Some(spent) = &spent {
            spent.give_way(&vms);
        }
        fresh.begin();
        if let (Some(_), Some(code)) = (spent, fresh.main().and_then(|main| main.init_worker)) {
            Run::new(&fresh, context::INIT_WORKER).begin(None, code);
        }
        fresh
    }

    /// Whether another is to be begun in its place, for its code keeps all the memory there is.
    fn is_spent(&self) -> bool {
        self.engine.get().is_some_and(Engine::is_spent)
            && !Engine::runs_here()
            && clock::mono_ms() >= self.begun_ms + SPENT_MS
    }

    /// It goes when its last run has ended.
    fn give_way(self: &Rc<Vm>, vms: &Vms) {
        self.log(
            LogLevel::Alert,
            "code of Lua's keeps all of lua_vm_memory: its state is begun anew",
        );
        vms.0.borrow_mut().retain(|vm| !Rc::ptr_eq(vm, self));
        vms.1.borrow_mut().push(Rc::downgrade(self));
        self.end();
    }

    /// The one that a request's code runs in.
    #[inline]
    pub(crate) fn of_request(r: &mut Request) -> Rc<Vm> {
        if *r.loc().conf::<LuaLoc>().code_cache {
            return Vm::of(&r.conn().worker, &r.gen().core);
        }
        if let Some(own) = r.ctx_ref::<Own>() {
            return Rc::clone(&own.0);
        }
        let (worker, gen) = (Rc::clone(&r.conn().worker), Arc::clone(&r.gen().core));
        let fresh = Vm::new(&worker, &gen);
        r.set_ctx(Own(Rc::clone(&fresh)));
        let vms = worker.local::<Vms>();
        let mut own = vms.1.borrow_mut();
        own.retain(|vm| vm.strong_count() > 0);
        own.push(Rc::downgrade(&fresh));
        drop(own);
        fresh.begin();
        fresh
    }

    fn new(worker: &Rc<Worker>, gen: &Arc<Generation>) -> Rc<Vm> {
        Rc::new(Vm {
            engine: OnceCell::new(),
            worker: Rc::downgrade(worker),
            gen: Arc::clone(gen),
            numbers: Cell::new(0),
            begun_ms: clock::mono_ms(),
            over: RefCell::default(),
            told: RefCell::default(),
            dicts: dicts_of(gen),
            pools: Pools::default(),
            sessions: Sessions::default(),
            compiled: Compiled::default(),
            pending_timers: Cell::new(0),
            running_timers: Cell::new(0),
            is_ending: Cell::new(false),
            timers: RefCell::default(),
        })
    }

    /// The one of that generation, if it has begun.
    pub(crate) fn known(worker: &Worker, number: u64) -> Option<Rc<Vm>> {
        let vms = worker.local::<Vms>();
        let found = vms.0.borrow().iter().find(|vm| vm.gen.number == number).map(Rc::clone);
        found
    }

    /// Its timers come now.
    pub(crate) fn end(&self) {
        self.is_ending.set(true);
        self.timers.borrow_mut().drain(..).for_each(|t| t.tell(crate::run::Reply::ok()));
    }

    /// Those of older generations are to end, and go when nobody uses them.
    pub(crate) fn end_others(worker: &Rc<Worker>, number: Option<u64>) {
        let vms = worker.local::<Vms>();
        let mut all: Vec<Rc<Vm>> = vms.0.borrow().iter().map(Rc::clone).collect();
        all.extend(vms.1.borrow().iter().filter_map(Weak::upgrade));
        for vm in all.iter().filter(|vm| Some(vm.gen.number) != number) {
            vm.end();
        }
        drop(all);
        vms.0.borrow_mut().retain(|vm| Some(vm.gen.number) == number || Rc::strong_count(vm) > 1);
    }

    /// The configuration of the block.
    pub(crate) fn main(&self) -> Option<&LuaMain> {
        Some(self.gen.part::<HttpConf>()?.main.get::<LuaMain>())
    }

    pub(crate) fn next(&self) -> u32 {
        let next = self.numbers.get().wrapping_add(1).max(1);
        self.numbers.set(next);
        next
    }

    /// Has Lua told that a run or a request is over, at the next entry.
    pub(crate) fn forget(&self, what: i32, id: u32) {
        self.over.borrow_mut().push((what, id));
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.engine.get().map_or(0, Engine::used_bytes)
    }

    fn begin(self: &Rc<Vm>) {
        let max = self.main().map_or(usize::MAX, |main| main.memory_max());
        let mut run = Run::new(self, context::INIT);
        let mut state = State { r: None, run: &mut run, vm: self };
        match Engine::new(max, PRELUDE.as_bytes(), &mut state) {
            Ok(engine) => drop(self.engine.set(engine)),
            Err(e) => return self.log(LogLevel::Alert, &format!("Lua: {}", text_of(&e))),
        }
        let done = enter(None, &mut run, entry::PIECES, 0.0);
        let init = self.main().and_then(|main| main.init);
        if let (Step::Ended, Some(init)) = (done, init) {
            run.begin(None, init);
        }
    }

    /// A line of the error log that no request is about.
    pub(crate) fn log(&self, level: LogLevel, text: &str) {
        self.gen.error_log.log(level, None, text.as_bytes());
    }
}

fn dicts_of(gen: &Generation) -> Vec<Arc<Dict>> {
    let http = gen.part::<HttpConf>();
    let confs = http.map(|http| http.main.get::<LuaMain>().dicts.as_slice()).unwrap_or_default();
    confs.iter().filter_map(|conf| conf.dict.get()).map(Arc::clone).collect()
}

fn text_of(e: &Failure) -> &str {
    match e {
        Failure::Error(text) => text,
        Failure::Memory => "not enough memory",
    }
}

/// Enters the state of a run.
pub(crate) fn enter(mut r: Option<&mut Request>, run: &mut Run, what: i32, x: f64) -> Step {
    let vm = Rc::clone(&run.vm);
    let y = f64::from(run.id);
    let Some(engine) = vm.engine.get() else { return failed(r, run, "there is no Lua state") };
    loop {
        let Some((what, id)) = vm.over.borrow_mut().pop() else { break };
        let mut state = State { r: None, run, vm: &vm };
        if let Err(e) = engine.enter(&mut state, what, f64::from(id), f64::from(id)) {
            vm.log(LogLevel::Alert, &format!("Lua: {}", text_of(&e)));
        }
    }
    let mut state = State { r: r.as_deref_mut(), run, vm: &vm };
    match engine.enter(&mut state, what, x, y) {
        Ok(0) => Step::Ended,
        Ok(_) => Step::Waits,
        Err(e) => {
            // What it has is garbage only once it is over.
            let id = f64::from(run.id);
            let mut state = State { r: None, run, vm: &vm };
            engine.enter_at_end(&mut state, entry::DROP, id);
            failed(r, run, text_of(&e))
        }
    }
}

fn failed(r: Option<&mut Request>, run: &mut Run, why: &str) -> Step {
    let text = format!("lua entry thread aborted: {why}");
    match r {
        Some(r) => r.log(LogLevel::Error, &text),
        None => run.vm.log(LogLevel::Error, &text),
    }
    run.outcome = Outcome::Failed;
    Step::Ended
}
