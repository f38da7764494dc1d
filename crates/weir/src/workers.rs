//! The worker threads: each an event loop, its listening sockets, its connections.

use crate::globals::Global;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio::task::{spawn_local, LocalSet};
use weir_http::conn::{ClientAddr, Connection};
use weir_http::generation::{Generation, WorkerGen};
use weir_http::logger::LogLevel;
use weir_http::worker::{AllCounters, Counters, Worker};
use weir_runtime::listen::{Acceptor, Listener, Peer};

/// What the main thread tells a worker.
pub enum Command {
    /// Serve this generation from these sockets.
    Serve { generation: Arc<Generation>, listeners: Vec<Arc<Listener>>, connections_max: usize },
    /// Write out what is buffered: the logs are about to be opened anew.
    FlushLogs,
    /// Stop accepting, finish requests, close idle connections, end. The time is the longest.
    Quit { timeout_ms: Option<u64> },
    /// End at once.
    Stop,
}

pub struct WorkerHandle {
    pub commands: UnboundedSender<Command>,
    pub thread: JoinHandle<()>,
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
    let name = format!("worker {}", setup.id);
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let log = Arc::clone(&setup.generation.error_log);
        if let Err(e) = run(setup, inbox) {
            log.log(LogLevel::Alert, None, format!("worker failed: {e}").as_bytes());
        }
    })?;
    Ok(WorkerHandle { commands, thread })
}

fn run(setup: Setup, inbox: UnboundedReceiver<Command>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let log = &setup.generation.error_log;
        if let Some(cpus) = &setup.cpus {
            if let Err(e) = weir_runtime::process::set_affinity(cpus) {
                log.log(
                    LogLevel::Alert,
                    None,
                    format!("sched_setaffinity() failed: {e}").as_bytes(),
                );
            }
        }
        if let Some(nice) = setup.priority {
            if let Err(e) = weir_runtime::process::set_priority(nice) {
                log.log(
                    LogLevel::Alert,
                    None,
                    format!("setpriority({nice}) failed: {e}").as_bytes(),
                );
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    runtime.block_on(local.run_until(serve(setup, inbox)));
    Ok(())
}

/// What a worker thread holds besides the `Worker` its requests see.
struct State {
    worker: Rc<Worker>,
    accepting: RefCell<Vec<(Arc<Listener>, tokio::task::JoinHandle<()>)>>,
    connections: RefCell<HashMap<u64, Weak<Connection>>>,
}

async fn serve(setup: Setup, mut inbox: UnboundedReceiver<Command>) {
    let gen = Rc::new(WorkerGen::new(setup.generation));
    let worker = Rc::new(Worker::new(setup.id, gen, setup.all));
    worker.connections_max.set(setup.connections_max);
    let state =
        Rc::new(State { worker, accepting: RefCell::default(), connections: RefCell::default() });
    state.listen(setup.listeners);
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Serve { generation, listeners, connections_max } => {
                *state.worker.gen.borrow_mut() = Rc::new(WorkerGen::new(generation));
                state.worker.connections_max.set(connections_max);
                state.listen(listeners);
            }
            Command::FlushLogs => state.worker.flush(),
            Command::Quit { timeout_ms } => {
                state.quit(timeout_ms).await;
                break;
            }
            Command::Stop => break,
        }
    }
    state.worker.flush();
}

impl State {
    /// Accepts from exactly these sockets; those already watched are left alone.
    fn listen(self: &Rc<Self>, listeners: Vec<Arc<Listener>>) {
        let mut accepting = self.accepting.borrow_mut();
        accepting.retain(|(l, task)| {
            let stays = listeners.iter().any(|n| Arc::ptr_eq(n, l));
            if !stays {
                task.abort();
            }
            stays
        });
        for l in listeners {
            if accepting.iter().any(|(have, _)| Arc::ptr_eq(have, &l)) {
                continue;
            }
            let task = spawn_local(accept_loop(Rc::clone(self), Arc::clone(&l)));
            accepting.push((l, task));
        }
    }

    /// All connections are taken: the one that has been idle for longest gives way, as in nginx.
    /// `false`: none is idle, and the new one must go.
    fn make_room(&self) -> bool {
        let n = self.worker.connections_max.get();
        let log = Arc::clone(&self.worker.generation().shared.error_log);
        let connections = self.connections.borrow();
        let idle = connections.values().filter_map(Weak::upgrade).filter(|c| c.waiting.get());
        match idle.min_by_key(|c| c.keepalive_deadline.get()) {
            Some(c) => {
                let text = format!("{n} worker_connections are not enough, reusing connections");
                log.log(LogLevel::Warn, None, text.as_bytes());
                c.waiting.set(false);
                c.stream.shutdown_read();
                true
            }
            None => {
                let text = format!("{n} worker_connections are not enough");
                log.log(LogLevel::Alert, None, text.as_bytes());
                false
            }
        }
    }

    /// Ends gracefully: requests in flight are finished, idle connections closed.
    async fn quit(self: &Rc<Self>, timeout_ms: Option<u64>) {
        self.worker.closing.set(true);
        for (_, task) in self.accepting.borrow_mut().drain(..) {
            task.abort();
        }
        for conn in self.connections.borrow().values().filter_map(Weak::upgrade) {
            conn.end_when_idle();
        }
        let idle = async {
            while self.worker.connections.get() > 0 {
                self.worker.one_ended.notified().await;
            }
        };
        match timeout_ms {
            Some(ms) => drop(tokio::time::timeout(Duration::from_millis(ms), idle).await),
            None => idle.await,
        }
    }
}

/// How long accepting rests when the process is out of descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(500);

async fn accept_loop(state: Rc<State>, listener: Arc<Listener>) {
    let log = Arc::clone(&state.worker.generation().shared.error_log);
    let acceptor = match Acceptor::new(Arc::clone(&listener)) {
        Ok(a) => a,
        Err(e) => {
            let text = format!("watching {} failed: {e}", listener.addr);
            return log.log(LogLevel::Alert, None, text.as_bytes());
        }
    };
    loop {
        match poll_fn(|cx| acceptor.poll_accept(cx)).await {
            Ok((stream, peer)) => accepted(&state, &listener, stream, peer),
            Err(e) => {
                let text = format!("accept4() failed ({})", weir_http::core_rows::os_text(&e));
                log.log(LogLevel::Crit, None, text.as_bytes());
                if matches!(e.raw_os_error(), Some(23 | 24)) {
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
        }
    }
}

fn accepted(
    state: &Rc<State>,
    listener: &Arc<Listener>,
    stream: weir_runtime::net::Stream,
    peer: Peer,
) {
    let worker = &state.worker;
    let gen = worker.generation();
    let Some(at) = gen.shared.listens.iter().position(|l| l.addr == listener.addr) else {
        return;
    };
    Counters::add(&worker.counters.accepted, 1);
    if worker.connections.get() >= worker.connections_max.get() && !state.make_room() {
        return;
    }
    Counters::add(&worker.counters.handled, 1);
    Counters::add(&worker.counters.active, 1);
    worker.connections.set(worker.connections.get() + 1);
    let client = match peer {
        Peer::Ip(a) => ClientAddr::Ip(a),
        Peer::Unix => ClientAddr::Unix,
    };
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let conn = Rc::new(Connection::new(Rc::clone(worker), stream, client, at, serial));
    state.connections.borrow_mut().insert(serial, Rc::downgrade(&conn));
    let guard = Leaving(Rc::clone(state), serial);
    spawn_local(async move {
        let _guard = guard;
        weir_http::h1::serve(conn).await;
    });
}

/// Counts a connection out, however its task ends.
struct Leaving(Rc<State>, u64);

impl Drop for Leaving {
    fn drop(&mut self) {
        let worker = &self.0.worker;
        Counters::add(&worker.counters.active, -1);
        worker.connections.set(worker.connections.get() - 1);
        self.0.connections.borrow_mut().remove(&self.1);
        if worker.closing.get() {
            worker.one_ended.notify_one();
        }
    }
}
