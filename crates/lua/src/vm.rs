//! Lua states: one for each worker, generation and block (`http`, `stream`) that has code.

use crate::apart::Threads;
use crate::api::pipe::Processes;
use crate::api::pool::Pools;
use crate::api::regex::Compiled;
use crate::api::semaphore::Semaphores;
use crate::api::ssl_client::Sessions;
use crate::border::{Engine, Thread};
use crate::code::Code;
use crate::conf::{DictConf, LuaLoc, LuaMain};
use crate::crossing::{kept, Failure, Values, Went};
use crate::machine::State;
use crate::run::{context, entry, Outcome, Reply, Run, Step, Told};
use crate::site::{Block, Who};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use weir_core::generation::{Generation, WorkerGen};
use weir_core::logger::LogLevel;
use weir_core::session::Part as _;
use weir_core::{Session as _, Worker};
use weir_dict::Dict;
use weir_http::generation::HttpConf;
use weir_http::Request;
use weir_runtime::{clock, event_loop, timer};
use weir_stream::{Session, StreamConf};

/// A state of Lua's, and what goes with it.
pub(crate) struct Vm {
    engine: OnceCell<Engine>,
    pub worker: Weak<Worker>,
    pub gen: Arc<Generation>,
    pub block: Block,
    numbers: Cell<u64>,
    contexts: Contexts,
    begun_ms: u64,
    /// Runs and requests that are over, which Lua has not been told of.
    over: RefCell<Vec<(i32, i64)>>,
    /// Its `init_by_lua` has failed: no code runs in it.
    has_failed: Cell<bool>,
    /// How many workers there are to be, as long as there are none.
    pub workers: Cell<usize>,
    /// Where only that is looked at: what it has failed by.
    pub attempt: RefCell<Option<Vec<u8>>>,
    /// What code posts to and waits for.
    pub semaphores: Semaphores,
    /// Programs that code has started.
    pub processes: Processes,
    /// States that have threads of their own.
    pub threads: Threads,
    /// Runs that have made sockets.
    pub with_socks: RefCell<foldhash::HashSet<u64>>,
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
    /// The generation that its worker has begun it for, as long as somebody works by that.
    served: RefCell<Weak<WorkerGen>>,
    pub timers: RefCell<Vec<Rc<Told>>>,
}

/// The states of one worker.
#[derive(Default)]
struct Vms(RefCell<Vec<Rc<Vm>>>, RefCell<Vec<Weak<Vm>>>);

impl Vms {
    /// A worker's state, not one of a request's, goes.
    fn leave(&self, vm: &Rc<Vm>) {
        let is_there = self.0.borrow().iter().any(|known| Rc::ptr_eq(known, vm));
        if is_there {
            crate::phases::leave(vm);
            self.0.borrow_mut().retain(|known| !Rc::ptr_eq(known, vm));
        }
    }
}

/// A state of one request, where code is not kept.
struct Own(Rc<Vm>);

/// A state that is out of memory is not begun anew more often than this.
const SPENT_MS: u64 = 3000;

/// Whether somebody still works by an older configuration is looked at so soon, and less and less often.
const LOOK_MS: std::ops::RangeInclusive<u64> = 20..=5000;

/// The text that a state begins with.
const PRELUDE: &str = include_str!("lua/prelude.lua");

impl Vm {
    /// The one of a worker for its generation, which is begun when it is first asked for.
    pub(crate) fn of(worker: &Rc<Worker>, gen: &Arc<Generation>, block: Block) -> Rc<Vm> {
        let spent = match Vm::known(worker, gen.number, block) {
            Some(found) if !found.is_spent() => return found,
            spent => spent,
        };
        let vms = worker.local::<Vms>();
        let fresh = Vm::new(Rc::downgrade(worker), gen, block);
        let newest = worker.generation();
        if newest.shared.number == gen.number {
            fresh.served.replace(Rc::downgrade(&newest));
        }
        vms.0.borrow_mut().push(Rc::clone(&fresh));
        if let Some(spent) = &spent {
            spent.give_way(&vms);
        }
        fresh.begin();
        if let (Some(_), Some(code)) = (spent, fresh.main().and_then(|main| main.init_worker)) {
            Run::new(&fresh, context::INIT_WORKER).begin(Who::Nobody, code);
        }
        fresh
    }

    /// Whether another is to be begun in its place, for its code keeps all the memory there is.
    pub(crate) fn is_spent(&self) -> bool {
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
        let fresh = Vm::new(Rc::downgrade(worker), gen, block);
        let vms = worker.local::<Vms>();
        let mut own = vms.1.borrow_mut();
        own.retain(|vm| vm.strong_count() > 0);
        own.push(Rc::downgrade(&fresh));
        fresh
    }

    fn new(worker: Weak<Worker>, gen: &Arc<Generation>, block: Block) -> Rc<Vm> {
        let confs = main_of(gen, block).map(|main| main.dicts.as_slice()).unwrap_or_default();
        Rc::new(Vm {
            engine: OnceCell::new(),
            worker,
            gen: Arc::clone(gen),
            block,
            numbers: Cell::new(0),
            contexts: Contexts::default(),
            begun_ms: clock::mono_ms(),
            over: RefCell::default(),
            has_failed: Cell::new(false),
            workers: Cell::new(1),
            attempt: RefCell::default(),
            semaphores: Semaphores::default(),
            processes: Processes::default(),
            threads: Threads::default(),
            with_socks: RefCell::default(),
            dicts: dicts_of(confs),
            pools: Pools::default(),
            sessions: Sessions::default(),
            compiled: Compiled::default(),
            pending_timers: Cell::new(0),
            running_timers: Cell::new(0),
            is_ending: Cell::new(false),
            served: RefCell::default(),
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

    /// The worker ends, and its states' timers come now.
    pub(crate) fn end_all(worker: &Worker) {
        let vms = worker.local::<Vms>();
        let all: Vec<Rc<Vm>> = vms.0.borrow().iter().map(Rc::clone).collect();
        let own = vms.1.borrow().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        all.iter().chain(&own).for_each(|vm| vm.end());
    }

    /// Those of older generations are to end, and go when nobody uses them.
    pub(crate) fn end_others(worker: &Rc<Worker>, number: Option<u64>) {
        let vms = worker.local::<Vms>();
        let mut all: Vec<Rc<Vm>> = vms.0.borrow().iter().map(Rc::clone).collect();
        all.extend(vms.1.borrow().iter().filter_map(Weak::upgrade));
        for vm in all.iter().filter(|vm| Some(vm.gen.number) != number && !vm.is_ending.get()) {
            vm.end();
            let (vms, vm) = (Rc::clone(&vms), Rc::downgrade(vm));
            event_loop::spawn(async move {
                let mut wait_ms = *LOOK_MS.start();
                while vm.upgrade().is_some_and(|vm| vm.is_in_use()) {
                    timer::sleep_ms(wait_ms).await;
                    wait_ms = (wait_ms * 2).min(*LOOK_MS.end());
                }
                if let Some(vm) = vm.upgrade() {
                    vms.leave(&vm);
                }
            });
        }
    }

    /// By a request, a timer, or a connection that may have a request of its generation yet.
    fn is_in_use(self: &Rc<Vm>) -> bool {
        // The worker's list has it, and who asks.
        const OTHERS: usize = 2;
        Rc::strong_count(self) > OTHERS || self.served.borrow().strong_count() > 0
    }

    /// The worker is over.
    pub(crate) fn leave_all(worker: &Worker) {
        let vms = worker.local::<Vms>();
        let all: Vec<Rc<Vm>> = vms.0.borrow().iter().map(Rc::clone).collect();
        all.iter().for_each(|vm| vms.leave(vm));
    }

    /// The configuration of the block.
    pub(crate) fn main(&self) -> Option<&LuaMain> {
        main_of(&self.gen, self.block)
    }

    /// No text of Lua's is longer.
    pub(crate) fn text_max_bytes(&self) -> usize {
        const OF_LUA: usize = 0x7fff_ff00;
        self.main().map_or(usize::MAX, LuaMain::memory_max).min(OF_LUA)
    }

    pub(crate) fn next(&self) -> u64 {
        let next = self.numbers.get() + 1;
        self.numbers.set(next);
        next
    }

    /// A number for a context that no other has.
    pub(crate) fn next_context(&self) -> u64 {
        self.contexts.next()
    }

    /// Whether code may have a context by a number that it says itself; then it is given to nothing else.
    pub(crate) fn is_context(&self, number: u64) -> bool {
        self.contexts.is_taken(number)
    }

    /// Has Lua told that a run or a request is over, at the next entry.
    pub(crate) fn forget(&self, what: i32, id: i64) {
        self.over.borrow_mut().push((what, id));
    }

    /// Nobody goes on with that coroutine.
    pub(crate) fn release(&self, thread: Thread) {
        if let Some(engine) = self.engine.get() {
            engine.release(thread);
        }
    }

    /// One that no worker has, without what `init_by_lua` would make.
    pub(crate) fn apart(worker: Weak<Worker>, gen: &Arc<Generation>, block: Block) -> Rc<Vm> {
        let fresh = Vm::new(worker, gen, block);
        fresh.begin_bare();
        fresh
    }

    fn begin(self: &Rc<Vm>) {
        let Some(mut run) = self.begin_bare() else { return };
        if let Some(init) = self.main().and_then(|main| main.init) {
            run.begin(Who::Nobody, init);
            self.has_failed.set(matches!(run.outcome, Outcome::Failed));
        }
    }

    /// All but code of the configuration's; what that would run in, if all went well.
    fn begin_bare(self: &Rc<Vm>) -> Option<Run> {
        let none = LuaMain::default();
        let main = self.main().unwrap_or(&none);
        let bounds = (main.memory_max(), main.thread_cache_max());
        let mut run = Run::new(self, context::INIT);
        let mut state = State { r: None, s: None, run: &mut run, vm: self };
        match Engine::new(bounds, &self.dicts, PRELUDE.as_bytes(), &mut state) {
            Ok(engine) => drop(self.engine.set(engine)),
            Err(e) => {
                self.log(LogLevel::Alert, &format!("Lua: {}", text_of(&e)));
                return None;
            }
        }
        let done = enter(Who::Nobody, &mut run, entry::PIECES, 0.0);
        (done == Step::Ended).then_some(run)
    }

    /// Begins a state that nobody is served by, as a worker would; what its `init_by_lua` has failed by.
    fn attempt(gen: &Arc<Generation>, block: Block, workers: usize) -> Result<(), Vec<u8>> {
        let vm = Vm::new(Weak::new(), gen, block);
        vm.attempt.replace(Some(Vec::new()));
        vm.workers.set(workers);
        vm.begin();
        match vm.has_failed.get() {
            true => Err(vm.attempt.take().unwrap_or_default()),
            false => Ok(()),
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

/// Runs what is to be run before workers begin, by whoever is to serve by that configuration or looks whether it could
/// be, with so many workers, and where `master_process off` says so as the only process. Each worker runs it once more,
/// in its own state. A test of the configuration runs it where there are no dictionaries.
///
/// # Errors
///
/// What it has failed by: the configuration is not served by.
pub fn attempt_init(
    gen: &Arc<Generation>,
    workers: usize,
    is_alone: bool,
    is_test: bool,
) -> Result<(), String> {
    crate::api::process::is_alone(is_alone);
    for block in [Block::Http, Block::Stream] {
        let Some(main) = main_of(gen, block) else { continue };
        let Some(code) = main.init.and_then(|init| main.codes.get(init as usize)) else { continue };
        // As in OpenResty, where dictionaries are made when it is served by.
        if is_test && !main.dicts.is_empty() {
            continue;
        }
        Vm::attempt(gen, block, workers).map_err(|text| {
            let file = if matches!(code, Code::File { .. }) { "_file" } else { "" };
            format!("init_by_lua{file} error: {}", String::from_utf8_lossy(&text).trim_end())
        })?;
    }
    Ok(())
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

/// The numbers of `ngx.ctx`s. Libraries know them as C's `int`, so that they do not grow for ever: those of contexts that are
/// over are given again.
#[derive(Default)]
struct Contexts {
    last: Cell<u64>,
    over: RefCell<Vec<u64>>,
}

impl Contexts {
    /// Libraries can be told of no larger one.
    const MAX: u64 = i32::MAX as u64;
    /// So many that are over are known.
    const OVER_MAX: usize = 4096;

    fn next(&self) -> u64 {
        if self.last.get() >= Self::MAX {
            if let Some(number) = self.over.borrow_mut().pop() {
                return number;
            }
        }
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// Lua has forgotten that context.
    fn is_over(&self, number: u64) {
        let mut over = self.over.borrow_mut();
        if over.len() < Self::OVER_MAX && number <= Self::MAX && !over.contains(&number) {
            over.push(number);
        }
    }

    /// Code finds a free place in the table by itself, at most one behind the last.
    fn is_taken(&self, number: u64) -> bool {
        if number > self.last.get() + 1 {
            return false;
        }
        self.last.set(self.last.get().max(number));
        self.over.borrow_mut().retain(|over| *over != number);
        true
    }
}

/// Has Lua told of what is over.
#[inline]
fn tell_over(vm: &Vm, engine: &Engine, run: &mut Run) {
    if vm.over.borrow().is_empty() || Engine::runs_here() {
        return;
    }
    loop {
        let Some((what, id)) = vm.over.borrow_mut().pop() else { break };
        if what == entry::FREE {
            engine.forget_context(id);
            vm.contexts.is_over(id as u64);
            continue;
        }
        let mut state = State::of(Who::Nobody, run, vm);
        if let Err(e) = engine.enter(&mut state, what, id as f64, id as f64) {
            vm.log(LogLevel::Alert, &format!("Lua: {}", text_of(&e)));
        }
    }
}

/// Enters the state of a run.
pub(crate) fn enter(mut who: Who<'_>, run: &mut Run, what: i32, x: f64) -> Step {
    let vm = Rc::clone(&run.vm);
    let y = run.id as f64;
    let Some(engine) = vm.engine.get() else { return failed(who, run, "there is no Lua state") };
    tell_over(&vm, engine, run);
    let mut state = State::of(who.again(), run, &vm);
    match engine.enter(&mut state, what, x, y) {
        Ok(0) => Step::Ended,
        Ok(_) => Step::Waits,
        Err(e) => failed_with(who, run, engine, &e),
    }
}

/// Begins a run with the code of that number.
pub(crate) fn begin(mut who: Who<'_>, run: &mut Run, code: u32) -> Step {
    let vm = Rc::clone(&run.vm);
    let Some(engine) = vm.engine.get() else { return failed(who, run, "there is no Lua state") };
    if vm.has_failed.get() {
        return failed(who, run, "init_by_lua has failed");
    }
    tell_over(&vm, engine, run);
    let mut place = kept::CODES + code as usize;
    if engine.kept(place) == 0 {
        // It is compiled; what may be other code the next time is for this run only.
        if enter(who.again(), run, entry::COMPILE, f64::from(code)) == Step::Ended {
            return Step::Ended;
        }
        if engine.kept(place) == 0 {
            place = kept::HELD;
        }
    }
    let context = run.context;
    let mut state = State::of(who.again(), run, &vm);
    if context & context::WAITING == 0 {
        return match engine.call(&mut state, place, context == context::SET) {
            Ok(returned) => {
                run.returned = returned;
                Step::Ended
            }
            Err(e) => failed_with(who, run, engine, &e),
        };
    }
    match engine.begin(&mut state, place) {
        Ok((thread, went)) => {
            run.thread = Some(thread);
            settle(who, run, engine, went)
        }
        Err(e) => failed_with(who, run, engine, &e),
    }
}

/// Does the job that a run of a state apart is for; why it has not.
pub(crate) fn call_apart(run: &mut Run) -> Result<(), Vec<u8>> {
    let vm = Rc::clone(&run.vm);
    let Some(engine) = vm.engine.get().filter(|engine| engine.kept(kept::APART) != 0) else {
        return Err(b"there is no Lua state".to_vec());
    };
    let mut state = State::of(Who::Nobody, run, &vm);
    engine.call(&mut state, kept::APART, false).map(drop).map_err(|e| {
        engine.recover();
        text_of(&e).as_bytes().to_vec()
    })
}

/// What a run has waited for has come.
pub(crate) fn wake(who: Who<'_>, run: &mut Run, id: u64, reply: Reply) -> Step {
    if run.is_scheduled {
        run.reply = reply;
        return enter(who, run, entry::WAKE, id as f64);
    }
    if run.waits_for != id {
        // Nobody has asked for it yet.
        run.early.push(id);
        return Step::Waits;
    }
    run.waits_for = 0;
    let values = Values { code: reply.code, x: reply.x, text: &reply.text };
    go_on(who, run, Some(&values))
}

fn go_on(mut who: Who<'_>, run: &mut Run, values: Option<&Values<'_>>) -> Step {
    let vm = Rc::clone(&run.vm);
    let (Some(engine), Some(thread)) = (vm.engine.get(), run.thread.take()) else {
        return Step::Ended;
    };
    tell_over(&vm, engine, run);
    let mut state = State::of(who.again(), run, &vm);
    let went = engine.resume(&mut state, &thread, values);
    run.thread = Some(thread);
    settle(who, run, engine, went)
}

/// What becomes of a run when its coroutine has stopped.
fn settle(mut who: Who<'_>, run: &mut Run, engine: &Engine, went: Result<Went, Failure>) -> Step {
    let vm = Rc::clone(&run.vm);
    let Some(thread) = run.thread.take() else { return Step::Ended };
    let went = match went {
        Ok(went) => went,
        Err(e) => {
            engine.release(thread);
            return failed_with(who, run, engine, &e);
        }
    };
    if run.is_scheduled {
        // There is more than one thread now, or there may be: their order is Lua's.
        let id = run.id;
        let mut state = State::of(who.again(), run, &vm);
        let done = engine.hand_over(&mut state, entry::GO_ON, id, &thread, went);
        engine.release(thread);
        return match done {
            Ok(0) => Step::Ended,
            Ok(_) => Step::Waits,
            Err(e) => failed_with(who, run, engine, &e),
        };
    }
    match went {
        Went::Ended => {
            engine.put_back(thread);
            Step::Ended
        }
        Went::Waits(id) => {
            run.waits_for = id;
            run.thread = Some(thread);
            Step::Waits
        }
        Went::Left => {
            engine.release(thread);
            Step::Ended
        }
        Went::Failed => {
            let mut state = State::of(who.again(), run, &vm);
            let told = engine.tell_aborted(&mut state, &thread);
            engine.release(thread);
            match told {
                Ok(()) => {
                    engine.recover();
                    Step::Ended
                }
                Err(e) => failed_with(who, run, engine, &e),
            }
        }
        Went::Yielded => {
            run.thread = Some(thread);
            go_on(who, run, None)
        }
    }
}

/// A run has failed within the state, which is put in order.
fn failed_with(who: Who<'_>, run: &mut Run, engine: &Engine, e: &Failure) -> Step {
    if run.is_scheduled {
        // What it has is garbage only once it is over.
        let (vm, id) = (Rc::clone(&run.vm), run.id as f64);
        let mut state = State::of(Who::Nobody, run, &vm);
        engine.enter_at_end(&mut state, entry::DROP, id);
    }
    engine.recover();
    failed(who, run, text_of(e))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_contexts_do_not_grow_for_ever() {
        let all = Contexts::default();
        assert_eq!((all.next(), all.next()), (1, 2));
        assert!(!all.is_taken(4) && all.is_taken(3));
        assert_eq!(all.next(), 4);
        [2, 2, 3].iter().for_each(|over| all.is_over(*over));
        assert!(all.is_taken(3));
        all.last.set(Contexts::MAX);
        assert_eq!((all.next(), all.next()), (2, Contexts::MAX + 1));
        all.is_over(Contexts::MAX + 1);
        all.is_over(1);
        assert_eq!((all.next(), all.next()), (1, Contexts::MAX + 2));
    }
}
