//! Lua states: one for each worker, generation and block (`http`, `stream`) that has code.

use crate::api::pool::Pools;
use crate::api::regex::Compiled;
use crate::api::ssl_client::Sessions;
use crate::border::{Engine, Failure};
use crate::conf::{DictConf, LuaLoc, LuaMain};
use crate::machine::State;
use crate::run::{context, entry, Outcome, Run, Step, Told};
use crate::site::{Block, Who};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use weir_core::generation::Generation;
use weir_core::logger::LogLevel;
use weir_core::session::Part as _;
use weir_core::{Session as _, Worker};
use weir_dict::Dict;
use weir_http::generation::HttpConf;
use weir_http::Request;
use weir_stream::{Session, StreamConf};

/// A state of Lua's, and what goes with it.
pub(crate) struct Vm {
    engine: OnceCell<Engine>,
    pub worker: Weak<Worker>,
    pub gen: Arc<Generation>,
    pub block: Block,
    numbers: Cell<u32>,
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

/// The text that a state begins with.
const PRELUDE: &str = include_str!("lua/prelude.lua");

impl Vm {
    /// The one of a worker for its generation, which is begun when it is first asked for.
    pub(crate) fn of(worker: &Rc<Worker>, gen: &Arc<Generation>, block: Block) -> Rc<Vm> {
        if let Some(found) = Vm::known(worker, gen.number, block) {
            return found;
        }
        let vms = worker.local::<Vms>();
        let fresh = Vm::new(worker, gen, block);
        vms.0.borrow_mut().push(Rc::clone(&fresh));
        fresh.begin();
        fresh
    }

    /// The one that a request's code runs in.
    #[inline]
    pub(crate) fn of_request(r: &mut Request) -> Rc<Vm> {
        if *r.loc().conf::<LuaLoc>().code_cache {
            return Vm::of(&r.conn().worker, &r.gen().core, Block::Http);
        }
        if let Some(own) = r.ctx_ref::<Own>() {
            return Rc::clone(&own.0);
        }
        let (worker, gen) = (Rc::clone(&r.conn().worker), Arc::clone(&r.gen().core));
        let fresh = Vm::own(&worker, &gen, Block::Http);
        r.set_ctx(Own(Rc::clone(&fresh)));
        fresh.begin();
        fresh
    }

    /// The one that a session's code runs in.
    pub(crate) fn of_session(s: &mut Session) -> Rc<Vm> {
        let (worker, gen) = (Rc::clone(&s.conn().worker), Arc::clone(s.part().core()));
        if *s.base().conf::<LuaLoc>().code_cache {
            return Vm::of(&worker, &gen, Block::Stream);
        }
        if let Some(own) = s.ctx_ref::<Own>() {
            return Rc::clone(&own.0);
        }
        let fresh = Vm::own(&worker, &gen, Block::Stream);
        s.set_ctx(Own(Rc::clone(&fresh)));
        fresh.begin();
        fresh
    }

    /// One that goes with what it was made for.
    fn own(worker: &Rc<Worker>, gen: &Arc<Generation>, block: Block) -> Rc<Vm> {
        let fresh = Vm::new(worker, gen, block);
        let vms = worker.local::<Vms>();
        let mut own = vms.1.borrow_mut();
        own.retain(|vm| vm.strong_count() > 0);
        own.push(Rc::downgrade(&fresh));
        fresh
    }

    fn new(worker: &Rc<Worker>, gen: &Arc<Generation>, block: Block) -> Rc<Vm> {
        let confs = main_of(gen, block).map(|main| main.dicts.as_slice()).unwrap_or_default();
        Rc::new(Vm {
            engine: OnceCell::new(),
            worker: Rc::downgrade(worker),
            gen: Arc::clone(gen),
            block,
            numbers: Cell::new(0),
            over: RefCell::default(),
            told: RefCell::default(),
            dicts: dicts_of(confs),
            pools: Pools::default(),
            sessions: Sessions::default(),
            compiled: Compiled::default(),
            pending_timers: Cell::new(0),
            running_timers: Cell::new(0),
            is_ending: Cell::new(false),
            timers: RefCell::default(),
        })
    }

    /// The one of that generation and block, if it has begun.
    pub(crate) fn known(worker: &Worker, number: u64, block: Block) -> Option<Rc<Vm>> {
        let vms = worker.local::<Vms>();
        let is_it = |vm: &&Rc<Vm>| vm.gen.number == number && vm.block == block;
        let found = vms.0.borrow().iter().find(is_it).map(Rc::clone);
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
        main_of(&self.gen, self.block)
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
        let mut state = State { r: None, s: None, run: &mut run, vm: self };
        match Engine::new(max, PRELUDE.as_bytes(), &mut state) {
            Ok(engine) => drop(self.engine.set(engine)),
            Err(e) => return self.log(LogLevel::Alert, &format!("Lua: {}", text_of(&e))),
        }
        let done = enter(Who::Nobody, &mut run, entry::PIECES, 0.0);
        let init = self.main().and_then(|main| main.init);
        if let (Step::Ended, Some(init)) = (done, init) {
            run.begin(Who::Nobody, init);
        }
    }

    /// A line of the error log that no request is about.
    pub(crate) fn log(&self, level: LogLevel, text: &str) {
        self.gen.error_log.log(level, None, text.as_bytes());
    }
}

/// What the directives of a block come to.
pub(crate) fn main_of(gen: &Generation, block: Block) -> Option<&LuaMain> {
    Some(match block {
        Block::Http => gen.part::<HttpConf>()?.main.get::<LuaMain>(),
        Block::Stream => gen.part::<StreamConf>()?.main.get::<LuaMain>(),
    })
}

fn dicts_of(confs: &[DictConf]) -> Vec<Arc<Dict>> {
    confs.iter().filter_map(|conf| conf.dict.get()).map(Arc::clone).collect()
}

fn text_of(e: &Failure) -> &str {
    match e {
        Failure::Error(text) => text,
        Failure::Memory => "not enough memory",
    }
}

/// Enters the state of a run.
pub(crate) fn enter(mut who: Who<'_>, run: &mut Run, what: i32, x: f64) -> Step {
    let vm = Rc::clone(&run.vm);
    let y = f64::from(run.id);
    let Some(engine) = vm.engine.get() else { return failed(who, run, "there is no Lua state") };
    loop {
        let Some((what, id)) = vm.over.borrow_mut().pop() else { break };
        let mut state = State { r: None, s: None, run, vm: &vm };
        if let Err(e) = engine.enter(&mut state, what, f64::from(id), f64::from(id)) {
            vm.log(LogLevel::Alert, &format!("Lua: {}", text_of(&e)));
        }
    }
    let (r, s) = match who.again() {
        Who::Nobody => (None, None),
        Who::Request(r) => (Some(r), None),
        Who::Session(s) => (None, Some(s)),
    };
    let mut state = State { r, s, run, vm: &vm };
    match engine.enter(&mut state, what, x, y) {
        Ok(0) => Step::Ended,
        Ok(_) => Step::Waits,
        Err(e) => failed(who, run, text_of(&e)),
    }
}

fn failed(who: Who<'_>, run: &mut Run, why: &str) -> Step {
    let text = format!("lua entry thread aborted: {why}");
    match who {
        Who::Nobody => run.vm.log(LogLevel::Error, &text),
        who => who.log(LogLevel::Error, &text),
    }
    run.outcome = Outcome::Failed;
    Step::Ended
}
