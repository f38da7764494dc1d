//! One worker: a thread, its event loop, its view of the configuration, its pools.

use crate::counters::{AllCounters, Counters, Tally, WORKERS_MAX};
use crate::deadlines::Deadlines;
use crate::generation::WorkerGen;
use crate::OutQueue;
use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use weir_runtime::listen::ListenAddr;

/// Requests kept for reuse; so many of them with buffers of any size in bounds, and the others only
/// while theirs are small: a worker that once had many at the same time does not keep that memory.
const POOL_MAX: usize = 256;
const POOL_LARGE_MAX: usize = 32;
const POOL_SMALL_BYTES: usize = 8 * 1024;
/// So many are kept by a worker that has nothing to do.
pub const POOL_REST_MAX: usize = 8;
/// Misses in a row before early reads rest, and for how many connections they do.
const EARLY_TRIES: u8 = 4;
const EARLY_REST: u8 = 68;

/// What a module does with workers, besides serving their connections.
#[derive(Clone, Copy)]
pub struct AtWorker {
    /// The worker begins, once in its life.
    pub begins: Option<fn(&Worker)>,
    /// It has had nothing to do for a while: what it keeps for answers to come is let go of.
    pub quiet: Option<fn(&Worker)>,
    /// Descriptors have run out: what need not be open is closed. Whether there was anything.
    pub spare: Option<fn(&Worker) -> bool>,
    /// It is to end, and finishes what it has.
    pub ends: Option<fn(&Worker)>,
    /// It has finished, or is told not to: nothing runs in it any more.
    pub over: Option<fn(&Worker)>,
}

impl AtWorker {
    /// Nothing.
    pub const NOTHING: AtWorker =
        AtWorker { begins: None, quiet: None, spare: None, ends: None, over: None };
}

/// Stops accepting from an address.
type Leaver = Box<dyn Fn(&ListenAddr)>;

/// What the connections of one worker share. It never leaves its thread.
pub struct Worker {
    /// From 0; its place in `all.each`.
    pub id: usize,
    /// The newest generation; a connection takes it at its next request.
    gen: RefCell<Rc<WorkerGen>>,
    /// How many there have been: tells connections quickly whether theirs is the newest.
    turn: Cell<u32>,
    /// Its own of `all`.
    pub counters: Arc<Counters>,
    /// For sums.
    pub all: Arc<AllCounters>,
    /// Output queues without anything in them, with their memory.
    queues: RefCell<Vec<OutQueue>>,
    /// Of the connections, for what they are to send.
    pub deadlines: Deadlines,
    /// A few.
    locals: RefCell<Vec<(TypeId, Rc<dyn Any>)>>,
    flushers: RefCell<Vec<Box<dyn Fn()>>>,
    /// Addresses whose connections the other workers take, by this configuration.
    left: RefCell<Vec<ListenAddr>>,
    /// Told of each.
    leaver: RefCell<Option<Leaver>>,
    /// Has it end.
    quitter: RefCell<Option<Box<dyn Fn()>>>,
    /// Whether requests have lately been there when their connection was accepted.
    early: Cell<u8>,
    /// Set when the worker is to finish: keep-alive connections are closed after their request.
    pub closing: Cell<bool>,
    /// With `closing`: another process goes on with the same sockets.
    pub has_successor: Cell<bool>,
    /// With `has_successor`: it takes connections too, as far as is known.
    pub hands_on: Cell<bool>,
    /// Tells the finishing worker that a connection has ended.
    pub one_ended: tokio::sync::Notify,
    /// Clients', waiting ones too.
    pub connections: Cell<usize>,
    /// `worker_connections`.
    pub connections_max: Cell<usize>,
    /// Requests that run behind answers.
    pub detached: Cell<usize>,
    /// What runs by itself and is to come to its end before the worker does ([`Running`]).
    running: Cell<usize>,
    /// Those that could not, for there were too many ([`Worker::detached_max`]).
    pub not_detached: Tally,
}

/// Something that runs by itself: as long as this is there, the worker does not quit.
pub struct Running(Rc<Worker>);

impl Running {
    /// From now on.
    pub fn new(worker: Rc<Worker>) -> Running {
        worker.running.set(worker.running.get() + 1);
        Running(worker)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
        if self.0.closing.get() {
            self.0.one_ended.notify_one();
        }
    }
}

impl Worker {
    /// One that serves a generation and has no connections yet.
    pub fn new(id: usize, gen: Rc<WorkerGen>, all: Arc<AllCounters>) -> Worker {
        Worker {
            id,
            gen: RefCell::new(gen),
            turn: Cell::new(1),
            counters: Arc::clone(&all.each[id]),
            all,
            queues: RefCell::new(Vec::new()),
            deadlines: Deadlines::default(),
            locals: RefCell::default(),
            flushers: RefCell::default(),
            left: RefCell::default(),
            leaver: RefCell::default(),
            quitter: RefCell::default(),
            early: Cell::new(EARLY_TRIES),
            closing: Cell::new(false),
            has_successor: Cell::new(false),
            hands_on: Cell::new(false),
            one_ended: tokio::sync::Notify::new(),
            connections: Cell::new(0),
            connections_max: Cell::new(usize::MAX),
            detached: Cell::new(0),
            running: Cell::new(0),
            not_detached: Tally::default(),
        }
    }

    /// Whether it is the privileged agent, which serves nobody.
    pub fn is_agent(&self) -> bool {
        self.id == WORKERS_MAX
    }

    /// Ends as if the main thread had told it so; another is begun in its place.
    pub fn leave(&self) {
        if let Some(quit) = &*self.quitter.borrow() {
            quit();
        }
    }

    /// Registers what has it end.
    pub fn on_quit(&self, f: impl Fn() + 'static) {
        *self.quitter.borrow_mut() = Some(Box::new(f));
    }

    /// The newest.
    pub fn generation(&self) -> Rc<WorkerGen> {
        Rc::clone(&self.gen.borrow())
    }

    /// There is a newer one; answers the one before.
    pub fn renew(&self, fresh: Rc<WorkerGen>) -> Rc<WorkerGen> {
        self.turn.set(self.turn.get().wrapping_add(1).max(1));
        self.gen.replace(fresh)
    }

    /// The number of the newest among those of this worker, from 1.
    #[inline]
    pub(crate) fn turn(&self) -> u32 {
        self.turn.get()
    }

    /// Whether to read from a fresh connection before the event loop says that there is something.
    /// Under load there mostly is, and the connection need not be registered; otherwise the call
    /// would be wasted, so after a few misses only one connection in many is tried.
    pub fn try_early(&self) -> bool {
        match self.early.get() {
            0 => {
                self.early.set(EARLY_REST);
                true
            }
            n if n > EARLY_TRIES => {
                self.early.set(if n == EARLY_TRIES + 1 { 0 } else { n - 1 });
                false
            }
            _ => true,
        }
    }

    /// Tells whether an early read has found something.
    pub fn early_result(&self, hit: bool) {
        match (hit, self.early.get()) {
            (true, _) => self.early.set(EARLY_TRIES),
            (false, n) if n <= EARLY_TRIES => {
                self.early.set(if n <= 1 { EARLY_REST } else { n - 1 });
            }
            _ => {}
        }
    }

    /// How many requests may run behind answers: each has a connection to a server, and clients
    /// are not to suffer from them.
    pub fn detached_max(&self) -> usize {
        (self.connections_max.get() / 2).max(1)
    }

    /// Whether nothing is served any more, neither for a client nor behind an answer, and nothing runs by itself.
    pub fn is_done(&self) -> bool {
        self.connections.get() == 0 && self.detached.get() == 0 && self.running.get() == 0
    }

    /// Lets go of what is kept for requests to come, the modules' part (open files, idle upstream
    /// connections) as well: the worker is about to rest.
    pub fn free_pools(&self) {
        self.queues.take();
        self.locals.take();
    }

    /// Lets go of most of what is kept for requests to come.
    pub fn shrink_pools(&self) {
        let mut queues = self.queues.borrow_mut();
        queues.truncate(POOL_REST_MAX);
        queues.shrink_to_fit();
    }

    /// One with memory if any is kept.
    pub fn take_queue(&self) -> OutQueue {
        self.queues.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_queue(&self, queue: OutQueue) {
        let mut pool = self.queues.borrow_mut();
        let is_kept = match pool.len() {
            0..POOL_LARGE_MAX => true,
            POOL_LARGE_MAX..POOL_MAX => queue.kept_bytes() <= POOL_SMALL_BYTES,
            _ => false,
        };
        if is_kept {
            pool.push(queue);
        }
    }

    /// State that a module keeps per worker, made at first use.
    pub fn local<T: Any + Default>(&self) -> Rc<T> {
        let id = TypeId::of::<T>();
        let found = self.locals.borrow().iter().find(|l| l.0 == id).map(|l| Rc::clone(&l.1));
        if let Some(Ok(found)) = found.map(Rc::downcast) {
            return found;
        }
        let fresh = Rc::new(T::default());
        self.locals.borrow_mut().push((id, Rc::clone(&fresh) as Rc<dyn Any>));
        fresh
    }

    /// Leaves the connections of an address to the other workers, until there is a newer configuration.
    pub fn leave_to_others(&self, addr: &ListenAddr) {
        if self.has_left(addr) {
            return;
        }
        self.left.borrow_mut().push(addr.clone());
        if let Some(leave) = &*self.leaver.borrow() {
            leave(addr);
        }
    }

    /// Whether it takes no connections of that address.
    pub fn has_left(&self, addr: &ListenAddr) -> bool {
        self.left.borrow().contains(addr)
    }

    /// It takes those of all addresses again.
    pub fn take_all(&self) {
        self.left.borrow_mut().clear();
    }

    /// Registers what has it stop to accept from an address.
    pub fn on_leave(&self, f: impl Fn(&ListenAddr) + 'static) {
        *self.leaver.borrow_mut() = Some(Box::new(f));
    }

    /// Registers what is to be written out before logs are opened anew and before the worker ends.
    pub fn on_flush(&self, f: impl Fn() + 'static) {
        self.flushers.borrow_mut().push(Box::new(f));
    }

    /// Has everybody write out who has asked for it ([`Worker::on_flush`]).
    pub fn flush(&self) {
        self.flushers.borrow().iter().for_each(|f| f());
    }
}
