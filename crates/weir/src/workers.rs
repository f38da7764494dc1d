//! The worker threads: each an event loop, its listening sockets, its connections.

mod datagrams;

use crate::agent;
use crate::globals::Global;
use crate::heirs::Successor;
use crate::protocols;
use crate::quiet::Quiet;
use crate::shares::Share;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use tokio::sync::mpsc::{
    unbounded_channel, UnboundedReceiver, UnboundedSender, WeakUnboundedSender,
};
use weir_core::carried::Carried;
use weir_core::counters::{AllCounters, Counters, Tally, WORKERS_MAX};
use weir_core::datagrams::Sessions;
use weir_core::generation::{Generation, WorkerGen};
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::ClientAddr;
use weir_core::Connection;
use weir_core::Worker;
use weir_runtime::event_loop::{self, spawn, Task, Turns};
use weir_runtime::listen::{self, Acceptor, ListenAddr, Listener, Peer};
use weir_runtime::net::{is_out_of_descriptors, Stream};
use weir_runtime::sockets::OwnedFd;
use weir_runtime::{clock, memory, stack, timer};

/// Threads of a worker for file reads under `aio threads`, as many as nginx's default pool has.
const BLOCKING_THREADS_MAX: usize = 32;

/// What the main thread tells a worker.
pub enum Command {
    /// Serve this generation from these sockets.
    Serve {
        generation: Arc<Generation>,
        listeners: Vec<Arc<Listener>>,
        connections_max: usize,
        cpus: Option<Vec<usize>>,
    },
    /// Accept from exactly these sockets.
    Listen(Vec<Arc<Listener>>),
    /// Tell that the event loop comes back, by storing this number.
    Answer(u64),
    /// No new connections will come: let go of what is kept for them.
    Rest,
    /// An old generation is gone: give free memory back to the system.
    GiveBack,
    /// Write out what is buffered: the logs are about to be opened anew.
    FlushLogs,
    /// Stop accepting, finish requests, close idle connections, end. The time is the longest.
    Quit { timeout_ms: Option<u64>, successor: Option<Arc<Successor>> },
    /// Serve this connection of another process from now on.
    TakeOn(OwnedFd, Box<Carried>),
    /// End at once.
    Stop,
}

pub struct WorkerHandle {
    pub commands: UnboundedSender<Command>,
    pub thread: JoinHandle<()>,
    /// Its own code has had it end.
    has_left: Arc<AtomicBool>,
}

impl WorkerHandle {
    /// Says that it has ended, and that another begins.
    pub fn tell_ended(&self, gen: &Generation, name: &str) {
        let level = match self.has_left.load(Ordering::Relaxed) {
            true => LogLevel::Notice,
            false => LogLevel::Alert,
        };
        let text = format!("{name} has ended, starting it again");
        gen.error_log.log(level, None, text.as_bytes());
    }
}

/// `$connection` counts over all workers.
static SERIAL: AtomicU64 = AtomicU64::new(1);

/// How a worker thread is set up.
pub struct Setup {
    pub id: usize,
    pub all: Arc<AllCounters>,
    pub cpus: Option<Vec<usize>>,
    pub priority: Option<i32>,
    pub generation: Arc<Generation>,
    pub listeners: Vec<Arc<Listener>>,
    pub connections_max: usize,
}

impl Setup {
    pub fn new(
        id: usize,
        all: &Arc<AllCounters>,
        generation: &Arc<Generation>,
        listeners: Vec<Arc<Listener>>,
    ) -> Setup {
        let global = generation.global.get::<Global>();
        Setup {
            id,
            all: Arc::clone(all),
            cpus: global.cpus_of(id),
            priority: global.worker_priority.as_option().copied(),
            generation: Arc::clone(generation),
            listeners,
            connections_max: global.connections(),
        }
    }
}

pub fn start(setup: Setup) -> io::Result<WorkerHandle> {
    let (commands, inbox) = unbounded_channel();
    weir_core::logger::begin_threads();
    let name = match setup.id {
        WORKERS_MAX => "agent".to_owned(),
        id => format!("worker {id}"),
    };
    let has_left = Arc::<AtomicBool>::default();
    let quit = Quitting { inbox: commands.downgrade(), has_left: Arc::clone(&has_left) };
    let thread = std::thread::Builder::new().name(name).stack_size(stack::BYTES);
    let thread = thread.spawn(move || {
        let log = Arc::clone(&setup.generation.error_log);
        if let Err(e) = run(setup, inbox, quit) {
            log.log(LogLevel::Alert, None, format!("worker failed: {e}").as_bytes());
        }
    })?;
    Ok(WorkerHandle { commands, thread, has_left })
}

/// By which a worker has itself end.
struct Quitting {
    inbox: WeakUnboundedSender<Command>,
    has_left: Arc<AtomicBool>,
}

impl Quitting {
    fn quit(&self, timeout_ms: Option<u64>) {
        self.has_left.store(true, Ordering::Relaxed);
        if let Some(inbox) = self.inbox.upgrade() {
            let _ = inbox.send(Command::Quit { timeout_ms, successor: None });
        }
    }
}

fn run(setup: Setup, inbox: UnboundedReceiver<Command>, quit: Quitting) -> io::Result<()> {
    let _sampled = weir_runtime::sampling::enroll(setup.id);
    let log = &setup.generation.error_log;
    if let Some(cpus) = &setup.cpus {
        pin(cpus, log);
    }
    if let Some(nice) = setup.priority {
        if let Err(e) = weir_runtime::process::set_priority(nice) {
            let text = format!("setpriority({nice}) failed: {e}");
            log.log(LogLevel::Alert, None, text.as_bytes());
        }
    }
    let counters = Arc::clone(&setup.all.each[setup.id]);
    let quiet = Arc::<Quiet>::default();
    counters.thread.store(weir_runtime::process::thread_id(), Ordering::Relaxed);
    counters.beat(clock::tick());
    memory::keep_blocks();
    let turns = Watched { counters, quiet: Arc::clone(&quiet) };
    let done = event_loop::run(&turns, BLOCKING_THREADS_MAX, serve(setup, (inbox, quit), quiet));
    memory::keep_no_blocks();
    done
}

/// The event loop's turns, as others see them.
struct Watched {
    counters: Arc<Counters>,
    quiet: Arc<Quiet>,
}

impl Turns for Watched {
    fn rests(&self) {
        self.counters.beat(0);
    }

    fn goes_on(&self) {
        self.counters.beat(clock::tick());
        self.quiet.stir();
    }
}

/// Binds the thread to CPUs.
fn pin(cpus: &[usize], log: &ErrorLog) {
    if let Err(e) = weir_runtime::process::set_affinity(cpus) {
        log.log(LogLevel::Alert, None, format!("sched_setaffinity() failed: {e}").as_bytes());
    }
}

/// A listening socket and the task that accepts from it.
type Accepting = (Arc<Listener>, Task);

/// Connections taken at once from a socket that is let go of: no queue is longer, unless the
/// system's `somaxconn` was raised a lot.
const LEFT_WAITING_MAX: usize = 65_536;

/// What a worker thread holds besides the `Worker` its requests see.
struct State {
    worker: Rc<Worker>,
    accepting: RefCell<Vec<Accepting>>,
    connections: RefCell<Registry>,
    /// Tasks whose connection has ended, waiting for another: making one costs more than serving
    /// a short connection does.
    idle_tasks: RefCell<Vec<Rc<Seat>>>,
    /// Of a socket that workers share one connection is accepted at a time (`multi_accept off`),
    /// so that the others get theirs.
    in_turns: Cell<bool>,
    share: Share,
    /// The monotonic second in which it was last said that connections are reused.
    reuse_told_secs: Cell<u64>,
    /// The CPUs that it is bound to.
    cpus: RefCell<Option<Vec<usize>>>,
    /// Those of clients that send datagrams.
    sessions: Rc<Sessions>,
    /// Datagrams for which there was no room.
    dropped: Tally,
}

/// A mask of CPUs has no more.
const CPUS_MAX: usize = 1024;

/// Tasks kept for the connections to come.
const IDLE_TASKS_MAX: usize = 128;

/// Where a connection's task finds its next connection.
#[derive(Default)]
struct Seat {
    next: RefCell<Option<Rc<Connection>>>,
    waker: RefCell<Option<Waker>>,
}

impl Seat {
    fn give(&self, conn: Rc<Connection>) {
        *self.next.borrow_mut() = Some(conn);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Rc<Connection>> {
        // The task, and so its waker, stays the same.
        self.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
        self.next.borrow_mut().take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// The worker's connections, each at a number of its own while it lives.
#[derive(Default)]
struct Registry {
    seats: Vec<(Weak<Connection>, Weak<Seat>)>,
    free: Vec<u32>,
}

impl Registry {
    fn add(&mut self, conn: &Rc<Connection>, seat: &Rc<Seat>) -> u32 {
        let taken = (Rc::downgrade(conn), Rc::downgrade(seat));
        match self.free.pop() {
            Some(at) => {
                self.seats[at as usize] = taken;
                at
            }
            None => {
                self.seats.push(taken);
                self.seats.len() as u32 - 1
            }
        }
    }

    fn remove(&mut self, at: u32) {
        self.seats[at as usize] = (Weak::new(), Weak::new());
        self.free.push(at);
    }

    /// Lets go of the memory for more than there are.
    fn shrink(&mut self) {
        if self.free.len() == self.seats.len() {
            *self = Registry::default();
        }
    }

    fn iter(&self) -> impl Iterator<Item = Rc<Connection>> + '_ {
        self.seats.iter().filter_map(|(conn, _)| conn.upgrade())
    }

    /// Ends those connections both ways, whatever their tasks wait for.
    fn cut(&self, is_meant: impl Fn(&Connection) -> bool) {
        let all = self.seats.iter().filter_map(|(conn, seat)| Some((conn.upgrade()?, seat)));
        for (conn, seat) in all.filter(|(conn, _)| is_meant(conn)) {
            conn.cut();
            seat.upgrade().iter().for_each(|seat| seat.wake());
        }
    }
}

async fn serve(
    setup: Setup,
    (mut inbox, quit): (UnboundedReceiver<Command>, Quitting),
    quiet: Arc<Quiet>,
) {
    let gen = Rc::new(WorkerGen::new(setup.generation));
    let worker = Rc::new(Worker::new(setup.id, gen, setup.all));
    worker.connections_max.set(setup.connections_max);
    protocols::begin(&worker);
    let (sessions, handed) = Sessions::new(setup.id);
    let state = Rc::new(State {
        worker,
        accepting: RefCell::default(),
        connections: RefCell::default(),
        idle_tasks: RefCell::default(),
        in_turns: Cell::new(false),
        share: Share::default(),
        reuse_told_secs: Cell::new(0),
        cpus: RefCell::new(setup.cpus),
        sessions,
        dropped: Tally::default(),
    });
    state.take_turns();
    state.obey(quit);
    let watched = Rc::clone(&state.worker);
    spawn(async move { watched.deadlines.run().await });
    let resting = Rc::clone(&state);
    spawn(async move {
        quiet.run(Rc::clone(&resting.worker), || resting.shrink()).await;
    });
    spawn(datagrams::take_over(Rc::downgrade(&state), handed));
    state.listen(setup.listeners);
    state.serves();
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Quit { timeout_ms, successor } => {
                tokio::select! {
                    () = state.quit(timeout_ms, successor) => {}
                    () = stopped(&mut inbox) => {}
                }
                break;
            }
            Command::Stop => break,
            other => state.follow(other).await,
        }
    }
    protocols::over(&state.worker);
    state.worker.flush();
}

/// Waits to be told to end at once.
async fn stopped(inbox: &mut UnboundedReceiver<Command>) {
    while let Some(command) = inbox.recv().await {
        if matches!(command, Command::Stop) {
            return;
        }
    }
    // The main thread lets go of its end when it ends itself.
    std::future::pending().await
}

impl State {
    /// Does what the main thread tells, but for the end.
    async fn follow(self: &Rc<Self>, command: Command) {
        match command {
            Command::Serve { generation, listeners, connections_max, cpus } => {
                self.pin(cpus, &generation.error_log);
                // What waits where no one listens any more belongs to the old configuration.
                self.leave(&listeners).await;
                let fresh = Rc::new(WorkerGen::new(generation));
                let old = self.worker.renew(fresh);
                self.retire(old);
                self.bring_idle();
                protocols::renew(&self.worker);
                self.worker.take_all();
                self.worker.connections_max.set(connections_max);
                self.take_turns();
                self.listen(listeners);
                self.serves();
            }
            Command::Listen(listeners) => {
                self.leave(&listeners).await;
                self.listen(listeners);
            }
            Command::Answer(number) => {
                self.worker.counters.answered.store(number, Ordering::Relaxed);
            }
            Command::Rest => self.rest(),
            Command::GiveBack => memory::give_back(),
            Command::FlushLogs => self.worker.flush(),
            Command::TakeOn(fd, carried) => self.take_on(fd, *carried),
            Command::Quit { .. } | Command::Stop => {}
        }
    }

    /// Nothing is done for a while: lets go of most of what is kept for connections to come.
    fn shrink(&self) {
        self.connections.borrow_mut().shrink();
        self.worker.shrink_pools();
        event_loop::shrink();
        protocols::shrink(&self.worker);
    }

    /// Lets go of what is kept for connections to come: none will.
    fn rest(&self) {
        self.idle_tasks.take();
        self.worker.free_pools();
        // That has forgotten which upstreams are old: what still works by them keeps nothing.
        protocols::renew(&self.worker);
        protocols::rest();
    }

    /// Binds the thread to other CPUs, or no more to any.
    fn pin(&self, cpus: Option<Vec<usize>>, log: &ErrorLog) {
        if *self.cpus.borrow() == cpus {
            return;
        }
        match &cpus {
            Some(cpus) => pin(cpus, log),
            None => pin(&(0..CPUS_MAX).collect::<Vec<_>>(), log),
        }
        self.cpus.replace(cpus);
    }

    /// It works by a configuration from now on: what workers do besides serving is shared out among those
    /// that it has; a surplus one has no part of it.
    fn serves(&self) {
        let gen = self.worker.generation();
        let workers = gen.shared.global.get::<Global>().workers();
        protocols::serves(&self.worker, workers);
        if !self.worker.is_agent() {
            agent::serve(&gen.shared, &self.worker.all);
        }
    }

    /// Reads from the configuration whether connections are accepted one at a time.
    fn take_turns(&self) {
        let gen = self.worker.generation();
        let global = gen.shared.global.get::<Global>();
        let at_once = global.multi_accept.as_option().copied().unwrap_or(false);
        self.in_turns.set(!at_once && global.workers() > 1);
    }

    /// Stops watching the sockets that are not among these, and takes the connections that wait
    /// in them: this worker may be the last that has them open.
    async fn leave(self: &Rc<Self>, stay: &[Arc<Listener>]) {
        let stay: HashSet<*const Listener> = stay.iter().map(Arc::as_ptr).collect();
        let leaving: Vec<Accepting> = {
            let mut accepting = self.accepting.borrow_mut();
            let (stay, leaving) = std::mem::take(&mut *accepting)
                .into_iter()
                .partition(|(l, _)| stay.contains(&Arc::as_ptr(l)));
            *accepting = stay;
            leaving
        };
        for (listener, task) in leaving {
            task.abort();
            // The task has the socket open until it is gone: what comes until then is to be taken.
            task.finished().await;
            if listener.addr.is_udp() {
                datagrams::take_waiting(self, &listener);
                continue;
            }
            for _ in 0..LEFT_WAITING_MAX {
                let Ok((stream, peer)) = listener.accept() else { break };
                accepted(self, &listener, stream, peer);
            }
        }
    }

    /// What modules may have the worker do.
    fn obey(self: &Rc<Self>, quit: Quitting) {
        let leaving = Rc::downgrade(self);
        self.worker.on_leave(move |addr| {
            if let Some(state) = leaving.upgrade() {
                state.stop_accepting(addr);
            }
        });
        let ending = Rc::downgrade(self);
        self.worker.on_quit(move || {
            let gen = ending.upgrade().map(|state| state.worker.generation());
            quit.quit(gen.and_then(|gen| {
                gen.shared.global.get::<Global>().worker_shutdown_timeout.as_option().copied()
            }));
        });
    }

    /// What waits at that address is the other workers', which have been woken by it as well.
    fn stop_accepting(&self, addr: &ListenAddr) {
        let is_left = |(l, task): &Accepting| {
            let is_it = l.addr == *addr;
            if is_it {
                task.abort();
            }
            is_it
        };
        self.accepting.borrow_mut().retain(|accepting| !is_left(accepting));
    }

    /// Accepts from these sockets too.
    fn listen(self: &Rc<Self>, listeners: Vec<Arc<Listener>>) {
        let mut accepting = self.accepting.borrow_mut();
        let mut known: HashSet<*const Listener> =
            accepting.iter().map(|(l, _)| Arc::as_ptr(l)).collect();
        for l in listeners {
            if self.worker.has_left(&l.addr) || !known.insert(Arc::as_ptr(&l)) {
                continue;
            }
            let task = match l.addr.is_udp() {
                true => spawn(datagrams::receive(Rc::clone(self), Arc::clone(&l))),
                false => spawn(accept_loop(Rc::clone(self), Arc::clone(&l))),
            };
            accepting.push((l, task));
        }
    }

    /// Connections that wait for a request take the newest configuration, so that the old one is
    /// not kept for them; those that may not are closed, as in nginx all are.
    fn bring_idle(&self) {
        for conn in self.connections.borrow().iter().filter(|c| c.idle.get()) {
            if !conn.look_again() && !conn.keep_up() {
                close_idle(&conn);
            }
        }
    }

    /// Requests that still work by an older configuration are ended its `worker_shutdown_timeout`
    /// after the reload.
    fn retire(self: &Rc<Self>, old: Rc<WorkerGen>) {
        let timeout_ms = &old.shared.global.get::<Global>().worker_shutdown_timeout;
        let Some(ms) = timeout_ms.as_option().copied() else { return };
        let (state, old) = (Rc::downgrade(self), Rc::downgrade(&old));
        spawn(async move {
            timer::sleep_ms(ms).await;
            // It is not kept for this.
            let (Some(state), Some(old)) = (state.upgrade(), old.upgrade()) else { return };
            state.connections.borrow().cut(|conn| conn.works_by(&old));
        });
    }

    /// All connections are taken: the one that has been idle for longest gives way, as in nginx.
    /// `false`: none is idle, and the new one must go.
    fn make_room(&self) -> bool {
        let has_room = self.give_way();
        if !has_room {
            self.tell_full();
        }
        has_room
    }

    fn tell_full(&self) {
        let n = self.worker.connections_max.get();
        let text = format!("{n} worker_connections are not enough");
        let log = Arc::clone(&self.worker.generation().shared.error_log);
        log.log(LogLevel::Alert, None, text.as_bytes());
    }

    /// The same without a word if nobody gives way.
    fn give_way(&self) -> bool {
        let n = self.worker.connections_max.get();
        let log = Arc::clone(&self.worker.generation().shared.error_log);
        let connections = self.connections.borrow();
        let idle = connections.iter().filter(|c| c.waiting.get());
        let now = clock::mono_ms();
        let idle = idle.filter(|c| c.keepalive_least.get() <= now);
        match idle.min_by_key(|c| c.keepalive_deadline.get()) {
            Some(c) => {
                // Once a second, as in nginx: a client that comes again and again fills no disk.
                if self.reuse_told_secs.replace(now / 1000) != now / 1000 {
                    let text =
                        format!("{n} worker_connections are not enough, reusing connections");
                    log.log(LogLevel::Warn, None, text.as_bytes());
                }
                c.waiting.set(false);
                c.stream.shutdown_read();
                true
            }
            None => false,
        }
    }

    /// Ends gracefully: requests in flight are finished; idle connections are closed, or go to the
    /// process that takes this one's place.
    async fn quit(self: &Rc<Self>, timeout_ms: Option<u64>, successor: Option<Arc<Successor>>) {
        self.worker.closing.set(true);
        protocols::end(&self.worker);
        self.worker.has_successor.set(successor.is_some());
        self.worker.hands_on.set(successor.as_ref().is_some_and(|s| s.may_take()));
        let connections: Vec<_> = self.connections.borrow().iter().collect();
        connections.iter().filter_map(|c| c.datagrams.get()).for_each(|d| d.hold());
        drop(connections);
        for (_, task) in self.accepting.borrow_mut().drain(..) {
            task.abort();
        }
        for conn in self.connections.borrow().iter() {
            if !conn.tell_of_end() && conn.idle.get() && (successor.is_none() || conn.is_passed()) {
                close_idle(&conn);
            }
        }
        let idle = async {
            if let Some(s) = &successor {
                self.hand_over(s).await;
            }
            while !self.worker.is_done() {
                self.worker.one_ended.notified().await;
            }
        };
        tokio::pin!(idle);
        let Some(ms) = timeout_ms else { return idle.await };
        if timer::within_ms(ms, &mut idle).await.is_some() {
            return;
        }
        // Their requests end, and are logged.
        self.connections.borrow().cut(|_| true);
        // What does not hear of that ends with the worker.
        timer::within_ms(LAST_MOMENT_MS, idle).await;
    }
}

impl State {
    /// Gives connections to the process that takes this one's place, each as soon as it is idle,
    /// while that takes them.
    async fn hand_over(&self, successor: &Successor) {
        let is_done = || self.worker.is_done();
        let mut takes = successor.wait_ready(is_done).await;
        while takes && !is_done() {
            takes = self.hand_on(successor).await;
            if takes && !is_done() {
                self.worker.one_ended.notified().await;
            }
        }
        self.worker.hands_on.set(false);
        if !is_done() && successor.has_link() {
            let n = self.worker.connections.get();
            let text = format!("the new process takes no connections, {n} end here");
            self.worker.generation().shared.error_log.log(LogLevel::Info, None, text.as_bytes());
        }
    }

    /// Gives those that are idle now; `false` once the other side takes none.
    async fn hand_on(&self, successor: &Successor) -> bool {
        let idle: Vec<_> =
            self.connections.borrow().iter().filter(|c| c.can_be_carried()).collect();
        for conn in idle {
            if !successor.give(&conn).await {
                return false;
            }
        }
        true
    }

    /// Goes on with a connection that another process had.
    fn take_on(self: &Rc<Self>, fd: OwnedFd, carried: Carried) {
        let worker = &self.worker;
        let gen = worker.generation();
        let is_tcp = matches!(carried.listen, ListenAddr::Ip(_));
        let stream = Stream::from_fd(fd, is_tcp);
        let local = || stream.local_addr();
        let Some(at) = gen.shared.same_door(&carried.listen, &carried.door, local) else {
            return;
        };
        if worker.connections.get() >= worker.connections_max.get() && !self.make_room() {
            return;
        }
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let client = carried.client;
        let mut conn = Connection::new(Rc::clone(worker), stream, client, (gen, at), serial);
        conn.take_on(carried);
        self.run(Rc::new(conn));
    }

    /// Counts a connection and has a task serve it.
    fn run(self: &Rc<Self>, conn: Rc<Connection>) {
        let worker = &self.worker;
        Counters::add(&worker.counters.active, 1);
        worker.connections.set(worker.connections.get() + 1);
        let idle = self.idle_tasks.borrow_mut().pop();
        if let Some(seat) = idle {
            return seat.give(conn);
        }
        let seat = Rc::new(Seat::default());
        seat.give(conn);
        spawn(connections(Rc::clone(self), seat));
    }
}

/// What requests have for their end after `worker_shutdown_timeout`.
const LAST_MOMENT_MS: u64 = 500;

/// Closes an idle connection, after its `keepalive_min_timeout`.
fn close_idle(conn: &Rc<Connection>) {
    let left_ms = conn.keepalive_least.get().saturating_sub(clock::mono_ms());
    if left_ms == 0 {
        return conn.stream.shutdown_read();
    }
    let conn = Rc::downgrade(conn);
    spawn(async move {
        timer::sleep_ms(left_ms).await;
        if let Some(conn) = conn.upgrade().filter(|c| c.idle.get()) {
            conn.stream.shutdown_read();
        }
    });
}

/// How long accepting rests when the process is out of descriptors or memory, or whatever else
/// would fail at once again.
const ACCEPT_REST_MS: u64 = 500;

async fn accept_loop(state: Rc<State>, listener: Arc<Listener>) {
    let log = || Arc::clone(&state.worker.generation().shared.error_log);
    let acceptor = match Acceptor::new(Arc::clone(&listener)) {
        Ok(a) => a,
        Err(e) => {
            let text = format!("watching {} failed: {e}", listener.addr);
            return log().log(LogLevel::Alert, None, text.as_bytes());
        }
    };
    // Known from the first connection on.
    let mut is_own = true;
    loop {
        if !is_own && state.in_turns.get() {
            state.share.wait(&state.worker, &acceptor).await;
        }
        match poll_fn(|cx| acceptor.poll_accept(cx)).await {
            Ok((stream, peer)) => {
                is_own = accepted(&state, &listener, stream, peer);
                if state.in_turns.get() && !is_own {
                    event_loop::yield_now().await;
                }
            }
            // The connection waits to be accepted now.
            Err(e) if is_out_of_descriptors(&e) && protocols::spare(&state.worker) => {}
            Err(e) => {
                let text = format!("accept4() failed ({})", weir_core::os_text(&e));
                let is_over = listen::concerns_one_connection(&e);
                // As nginx has it of a client that has gone.
                let level = if is_over { LogLevel::Error } else { LogLevel::Crit };
                log().log(level, None, text.as_bytes());
                if !is_over {
                    timer::sleep_ms(ACCEPT_REST_MS).await;
                }
            }
        }
    }
}

/// Takes a connection on; answers whether the socket it came by is this worker's own.
fn accepted(
    state: &Rc<State>,
    listener: &Arc<Listener>,
    stream: weir_runtime::net::Stream,
    peer: Peer,
) -> bool {
    let worker = &state.worker;
    let gen = worker.generation();
    let Some(at) = gen.shared.listens.place(&listener.addr) else {
        return true;
    };
    let own = listen::HAS_REUSEPORT && gen.shared.listens[at].options.reuseport;
    Counters::add(&worker.counters.accepted, 1);
    if worker.connections.get() >= worker.connections_max.get() && !state.make_room() {
        return own;
    }
    Counters::add(&worker.counters.handled, 1);
    let client = match peer {
        Peer::Ip(a) => ClientAddr::Ip(a),
        Peer::Unix => ClientAddr::Unix,
    };
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let conn = Rc::new(Connection::new(Rc::clone(worker), stream, client, (gen, at), serial));
    state.run(conn);
    own
}

/// Serves one connection after another.
async fn connections(state: Rc<State>, seat: Rc<Seat>) {
    loop {
        let conn = poll_fn(|cx| seat.poll_next(cx)).await;
        let at = state.connections.borrow_mut().add(&conn, &seat);
        let leaving = Leaving(&state, at);
        protocols::serve(conn).await;
        drop(leaving);
        let mut idle = state.idle_tasks.borrow_mut();
        if idle.len() >= IDLE_TASKS_MAX {
            return;
        }
        idle.push(Rc::clone(&seat));
    }
}

/// Counts a connection out, however it ends.
struct Leaving<'a>(&'a State, u32);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let worker = &self.0.worker;
        Counters::add(&worker.counters.active, -1);
        worker.connections.set(worker.connections.get() - 1);
        self.0.connections.borrow_mut().remove(self.1);
        if worker.closing.get() {
            worker.one_ended.notify_one();
        }
    }
}
