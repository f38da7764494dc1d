//! The engine with sockets and a clock: queries go out from the resolver thread.

use crate::conf::{ResolverConf, Server};
use crate::engine::{Engine, Failed, Found, Outcome, Output, Query, Question, Settings, RESEND_MS};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, OwnedSemaphorePermit, Semaphore};
use weir_runtime::{clock, timer};

/// A socket listens for a response for so long, and looks now and then whether it is still wanted.
const LISTEN_MS: u64 = 2 * RESEND_MS;
const LOOK_MS: u64 = 1000;
/// Sockets of one `resolver` at the same time; further queries wait for one.
const SOCKETS_MAX: usize = 512;
const TCP_MS: u64 = 5000;
const UDP_MAX_BYTES: usize = 4096;
const SERVFAIL: u16 = 2;
/// nginx's code for a name that took too long.
pub const TIMED_OUT: u16 = 110;

/// Where lines about name servers go.
pub type Logger = Box<dyn Fn(&str) + Send + Sync>;

/// What the name servers have been asked and have answered, for `status_zone=`.
#[derive(Debug, Default)]
pub struct Stats {
    pub names: AtomicU64,
    pub services: AtomicU64,
    pub addresses: AtomicU64,
    /// By the codes of answers, from 0 (which is none) to 5; and others.
    pub codes: [AtomicU64; 7],
    pub timed_out: AtomicU64,
}

/// One `resolver` directive.
pub struct Resolver {
    pub conf: ResolverConf,
    pub stats: Arc<Stats>,
    servers: OnceLock<Vec<SocketAddr>>,
    inner: OnceLock<Mutex<Inner>>,
    logger: OnceLock<Logger>,
    sockets: Arc<Semaphore>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.conf.fmt(f)
    }
}

struct Inner {
    engine: Engine,
    callers: HashMap<u64, oneshot::Sender<Outcome>>,
    /// A task watches the engine's deadline.
    ticking: bool,
}

impl Resolver {
    pub fn new(conf: ResolverConf) -> Resolver {
        Resolver {
            conf,
            stats: Arc::default(),
            servers: OnceLock::new(),
            inner: OnceLock::new(),
            logger: OnceLock::new(),
            sockets: Arc::new(Semaphore::new(SOCKETS_MAX)),
        }
    }

    /// Looks name servers up that are given by name; the error is the name that is not known.
    pub fn build(&self) -> Result<(), String> {
        if self.servers.get().is_some() {
            return Ok(());
        }
        let mut servers = Vec::new();
        for server in &self.conf.servers {
            match server {
                Server::Addr(addr) => servers.push(*addr),
                Server::Name { name, port, written } => {
                    let found = (name.as_str(), *port).to_socket_addrs();
                    servers.extend(found.map_err(|_| written.clone())?);
                }
            }
        }
        // A second thread can only have found the same.
        let _ = self.servers.set(servers);
        Ok(())
    }

    /// Where its lines go; the first call counts.
    pub fn log_to(&self, logger: impl FnOnce() -> Logger) {
        self.logger.get_or_init(logger);
    }

    fn log(&self, text: &str) {
        if let Some(logger) = self.logger.get() {
            logger(text);
        }
    }

    fn servers(&self) -> &[SocketAddr] {
        self.servers.get().map_or(&[], Vec::as_slice)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        let inner = self.inner.get_or_init(|| {
            let settings = Settings {
                servers: self.servers().len().max(1),
                ipv4: self.conf.ipv4,
                ipv6: self.conf.ipv6,
                valid_secs: self.conf.valid_secs,
            };
            let engine = Engine::new(settings, random());
            Mutex::new(Inner { engine, callers: HashMap::new(), ticking: false })
        });
        inner.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Asks, and waits that long at most.
    pub async fn resolve(self: &Arc<Self>, question: Question<'_>, wait_ms: u64) -> Outcome {
        match question {
            Question::Name(_) => &self.stats.names,
            Question::Address(_) => &self.stats.addresses,
            Question::Service { .. } => &self.stats.services,
        }
        .fetch_add(1, Ordering::Relaxed);
        let outcome = self.ask(question, wait_ms).await;
        match &outcome {
            Ok(_) => &self.stats.codes[0],
            Err(failed) if failed.code == TIMED_OUT => &self.stats.timed_out,
            Err(failed) => &self.stats.codes[usize::from(failed.code.min(6))],
        }
        .fetch_add(1, Ordering::Relaxed);
        outcome
    }

    async fn ask(self: &Arc<Self>, question: Question<'_>, wait_ms: u64) -> Outcome {
        let now = clock::mono_ms();
        let failed = |code| Failed { code, until_ms: now + wait_ms };
        let (token, result) = self.put(now, question);
        let waiting = Waiting { resolver: self, token };
        let outcome = timer::within_ms(wait_ms, result).await;
        drop(waiting);
        match outcome {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(failed(SERVFAIL)),
            None => Err(failed(TIMED_OUT)),
        }
    }

    fn put(self: &Arc<Self>, now: u64, question: Question) -> (u64, oneshot::Receiver<Outcome>) {
        let mut inner = self.lock();
        let token = inner.engine.ask(now, question);
        let (done, result) = oneshot::channel();
        inner.callers.insert(token, done);
        self.pump(inner);
        (token, result)
    }

    /// Does what the engine wants done.
    fn pump(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) {
        let mut sends = Vec::new();
        let mut lines = Vec::new();
        while let Some(output) = inner.engine.take() {
            match output {
                Output::Send(query, bytes) => sends.push((query, bytes)),
                Output::Log(line) => lines.push(line),
                Output::Done(token, outcome) => {
                    if let Some(caller) = inner.callers.remove(&token) {
                        // Nobody may wait any more.
                        let _ = caller.send(outcome);
                    }
                }
            }
        }
        let tick = !sends.is_empty() && !std::mem::replace(&mut inner.ticking, true);
        drop(inner);
        lines.iter().for_each(|line| self.log(line));
        if sends.is_empty() {
            return;
        }
        let Some(handle) = handle() else {
            return self.log("the resolver thread could not be started");
        };
        for (query, bytes) in sends {
            let Some(server) = self.servers().get(query.server).copied() else { continue };
            let me = Arc::downgrade(self);
            match query.tcp {
                false => handle.spawn(over_udp(me, query, bytes, server)),
                true => handle.spawn(over_tcp(me, query, bytes, server)),
            };
        }
        if tick {
            handle.spawn(tick_on(Arc::downgrade(self)));
        }
    }

    /// Lets time pass in the engine; how long until the next time.
    fn tick(self: &Arc<Self>) -> Option<u64> {
        let mut inner = self.lock();
        let now = clock::mono_ms();
        inner.engine.tick(now);
        let next = inner.engine.deadline();
        inner.ticking = next.is_some();
        self.pump(inner);
        next.map(|at| at.saturating_sub(now).max(1))
    }

    fn failed(self: &Arc<Self>, query: &Query, server: SocketAddr, what: &str, e: &io::Error) {
        let mut inner = self.lock();
        if !inner.engine.waits(query) {
            return;
        }
        inner.engine.unreachable(clock::mono_ms(), query);
        self.pump(inner);
        let why = weir_base::system::error(e);
        self.log(&format!("{what}() failed ({why}) while resolving, resolver: {server}"));
    }

    /// Whether the query has its answer now.
    fn response(self: &Arc<Self>, query: &Query, bytes: &[u8]) -> bool {
        let mut inner = self.lock();
        inner.engine.response(clock::mono_ms(), query, bytes);
        let done = !inner.engine.waits(query);
        self.pump(inner);
        done
    }
}

/// Takes the question back when the caller goes away.
struct Waiting<'a> {
    resolver: &'a Arc<Resolver>,
    token: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut inner = self.resolver.lock();
        if inner.callers.remove(&self.token).is_some() {
            inner.engine.cancel(self.token);
        }
    }
}

/// Numbers that nobody outside can foresee: a keyed hash of a counter.
fn random() -> Box<dyn FnMut() -> u64 + Send> {
    let key = RandomState::new();
    let mut count = 0u64;
    Box::new(move || {
        count += 1;
        key.hash_one(count)
    })
}

async fn tick_on(resolver: Weak<Resolver>) {
    loop {
        let Some(wait_ms) = resolver.upgrade().and_then(|r| r.tick()) else { return };
        timer::sleep_ms(wait_ms).await;
    }
}

fn is_wanted(me: &Weak<Resolver>, query: &Query) -> bool {
    me.upgrade().is_some_and(|r| r.lock().engine.wants(query))
}

/// The right to open a socket, if the query is still wanted when there is one.
async fn permit(me: &Weak<Resolver>, query: &Query) -> Option<OwnedSemaphorePermit> {
    let sockets = Arc::clone(&me.upgrade()?.sockets);
    let permit = sockets.acquire_owned().await.ok()?;
    is_wanted(me, query).then_some(permit)
}

async fn over_udp(me: Weak<Resolver>, query: Query, bytes: Vec<u8>, server: SocketAddr) {
    let failed = |what: &str, e: io::Error| {
        if let Some(resolver) = me.upgrade() {
            resolver.failed(&query, server, what, &e);
        }
    };
    let Some(_permit) = permit(&me, &query).await else { return };
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = match UdpSocket::bind(any).await {
        Ok(socket) => socket,
        Err(e) => return failed("bind", e),
    };
    if let Err(e) = socket.connect(server).await {
        return failed("connect", e);
    }
    if let Err(e) = socket.send(&bytes).await {
        return failed("send", e);
    }
    let listen = async {
        let mut buf = vec![0; UDP_MAX_BYTES];
        loop {
            match timer::within_ms(LOOK_MS, socket.recv(&mut buf)).await {
                Some(Ok(n)) => {
                    let done = me.upgrade().is_none_or(|r| r.response(&query, &buf[..n]));
                    if done {
                        return;
                    }
                }
                Some(Err(e)) => return failed("recv", e),
                None if is_wanted(&me, &query) => {}
                None => return,
            }
        }
    };
    // Too late for it: it has long been sent again.
    timer::within_ms(LISTEN_MS, listen).await;
}

async fn over_tcp(me: Weak<Resolver>, query: Query, bytes: Vec<u8>, server: SocketAddr) {
    let Some(_permit) = permit(&me, &query).await else { return };
    let exchange = async {
        let mut stream = TcpStream::connect(server).await?;
        let length = u16::try_from(bytes.len()).map_err(io::Error::other)?.to_be_bytes();
        stream.write_all(&[&length[..], &bytes].concat()).await?;
        let length = stream.read_u16().await?;
        let mut message = vec![0; usize::from(length)];
        stream.read_exact(&mut message).await?;
        Ok(message)
    };
    let done = timer::within_ms(TCP_MS, exchange).await;
    let Some(resolver) = me.upgrade() else { return };
    match done {
        Some(Ok(message)) => drop(resolver.response(&query, &message)),
        Some(Err(e)) => resolver.failed(&query, server, "connect", &e),
        None => resolver.failed(&query, server, "connect", &io::ErrorKind::TimedOut.into()),
    }
}

/// The event loop of the resolver thread, which is started at the first call.
pub fn handle() -> Option<&'static Handle> {
    static HANDLE: OnceLock<Option<Handle>> = OnceLock::new();
    HANDLE.get_or_init(|| start().ok()).as_ref()
}

fn start() -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("resolver".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}

/// What the system's resolver knows of a name, asked on a thread of its own; nothing for an error.
pub async fn system(name: String) -> Found {
    let look_up = move || (name.as_str(), 0).to_socket_addrs().map(Vec::from_iter);
    let found = match handle() {
        Some(handle) => {
            handle.spawn_blocking(look_up).await.map_or(Vec::new(), Result::unwrap_or_default)
        }
        None => Vec::new(),
    };
    let mut targets: Vec<crate::Target> = Vec::new();
    for addr in found {
        let ip = addr.ip();
        if targets.iter().all(|t| t.ip != ip) {
            targets.push(crate::Target {
                ip,
                port: 0,
                priority: 0,
                weight: 1,
                name: String::new(),
            });
        }
    }
    targets.sort_by_key(|t| t.ip.is_ipv6());
    Found { targets, until_ms: 0 }
}
