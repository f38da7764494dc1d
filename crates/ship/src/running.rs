//! The receivers of this process, by the folders of their queues: a reload that names a folder goes on with its queue.

use crate::conf::{Batching, Queue as QueueConf, Retry};
use crate::counts::Counts;
use crate::queue::Queue;
use crate::receiver::{Ground, Stop, Target};
use crate::secrets::Secrets;
use crate::{keeper, sending};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};
use weir_core::logger::{ErrorLog, LogLevel};
use weir_runtime::clock;
use weir_shipping::ecs::Tail;

/// How long a graceful end waits for what is left to be sent.
const FINISH: Duration = Duration::from_secs(3);
/// The same line is told again after so long.
const TOLD_SECS: i64 = 60;

/// What a configuration says of a receiver.
pub struct Plan {
    pub name: Arc<str>,
    pub kind: &'static str,
    pub queue: QueueConf,
    pub batch: Batching,
    pub retry: Retry,
    pub target: Arc<dyn Target>,
    /// What of its words is not to be shown.
    pub secrets: Secrets,
    pub access_tail: Tail,
    pub session_tail: Tail,
    pub error_tail: Tail,
    pub metric_tail: Tail,
    /// Filled when this process begins to serve by it.
    pub running: OnceLock<Arc<Ship>>,
}

impl Plan {
    pub fn queue(&self) -> Option<&Queue> {
        self.running.get().map(|ship| &ship.queue)
    }

    /// The same without the receiver at work.
    fn bare(&self) -> Plan {
        Plan {
            name: Arc::clone(&self.name),
            kind: self.kind,
            queue: self.queue.clone(),
            batch: self.batch.clone(),
            retry: self.retry.clone(),
            target: Arc::clone(&self.target),
            secrets: self.secrets.clone(),
            access_tail: self.access_tail.clone(),
            session_tail: self.session_tail.clone(),
            error_tail: self.error_tail.clone(),
            metric_tail: self.metric_tail.clone(),
            running: OnceLock::new(),
        }
    }
}

/// A receiver at work.
pub struct Ship {
    pub queue: Queue,
    pub counts: Counts,
    /// The newest, and how many there have been.
    plan: Mutex<Arc<Plan>>,
    version: AtomicU64,
    /// All that may still write: those of generations in use.
    users: Mutex<Vec<Weak<Plan>>>,
    pub stop: Arc<Stop>,
    /// What is left is sent, once, and then the thread ends.
    pub is_finishing: AtomicBool,
    pub has_ended: AtomicBool,
    told: Mutex<Option<(String, i64)>>,
}

static ALL: Mutex<Vec<Arc<Ship>>> = Mutex::new(Vec::new());
/// Where lines about receivers go.
static LOG: Mutex<Option<Arc<ErrorLog>>> = Mutex::new(None);
static FINISHING: Mutex<Option<Instant>> = Mutex::new(None);

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Those at work.
pub fn all() -> Vec<Arc<Ship>> {
    lock(&ALL).clone()
}

impl Ship {
    fn new(plan: &Arc<Plan>) -> Ship {
        Ship {
            queue: Queue::new(&plan.queue.dir, plan.queue.bytes),
            counts: Counts::default(),
            plan: Mutex::new(Arc::clone(plan)),
            version: AtomicU64::new(1),
            users: Mutex::default(),
            stop: Arc::default(),
            is_finishing: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            told: Mutex::default(),
        }
    }

    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&lock(&self.plan))
    }

    /// Changes with every reload.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn follow(&self, plan: &Arc<Plan>) {
        self.queue.set_most_bytes(plan.queue.bytes);
        *lock(&self.plan) = Arc::clone(plan);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The thread has ended. Plan and receiver let go of each other.
    pub fn end(&self) {
        let mut plan = lock(&self.plan);
        *plan = Arc::new(plan.bare());
        drop(plan);
        self.queue.seal();
        self.has_ended.store(true, Ordering::Release);
    }

    /// No configuration in use names it any more: nobody writes.
    pub fn is_left(&self) -> bool {
        let mut users = lock(&self.users);
        users.retain(|user| user.strong_count() > 0);
        // The one that it has itself.
        let own = lock(&self.plan);
        let is_own = |user: &Weak<Plan>| std::ptr::eq(user.as_ptr(), Arc::as_ptr(&own));
        users.iter().all(|user| is_own(user) && user.strong_count() == 1)
    }

    pub fn ground(self: &Arc<Self>) -> Ground {
        let ship = Arc::clone(self);
        Ground {
            name: Arc::clone(&self.plan().name),
            stop: Arc::clone(&self.stop),
            say: Arc::new(move |level, text| ship.say(level, &ship.clean(text))),
        }
    }

    /// A receiver's words as they may be shown.
    pub fn clean(&self, text: &str) -> String {
        self.plan().secrets.clean(text)
    }

    /// Writes a line of the error log, unless it is the one that was written last and that is not long ago.
    pub fn say(&self, level: LogLevel, text: &str) {
        let now = clock::wall_secs();
        let mut told = lock(&self.told);
        if told.as_ref().is_some_and(|(last, at)| last == text && now - at < TOLD_SECS) {
            return;
        }
        *told = Some((text.to_owned(), now));
        drop(told);
        self.log(level, text);
    }

    /// The same without a look at what was said.
    pub fn log(&self, level: LogLevel, text: &str) {
        let line = format!("ship \"{}\": {text}", self.plan().name);
        if let Some(log) = lock(&LOG).clone() {
            crate::errors::quietly(|| log.log(level, None, line.as_bytes()));
        }
    }
}

/// A configuration is about to be served by this process.
pub fn follow(plans: &[Arc<Plan>], log: &Arc<ErrorLog>) {
    *lock(&LOG) = Some(Arc::clone(log));
    let mut all = lock(&ALL);
    all.retain(|ship| !ship.has_ended.load(Ordering::Acquire));
    for plan in plans {
        let found = all.iter().find(|ship| ship.queue.dir == plan.queue.dir).cloned();
        let ship = found.unwrap_or_else(|| {
            let ship = Arc::new(Ship::new(plan));
            sending::start(&ship);
            all.push(Arc::clone(&ship));
            ship
        });
        ship.follow(plan);
        lock(&ship.users).push(Arc::downgrade(plan));
        // Only this function sets it.
        let _ = plan.running.set(ship);
    }
    let is_any = !all.is_empty();
    drop(all);
    if is_any {
        keeper::begin();
    }
}

/// The process is to end at once: what is being sent is given up.
pub fn stop() {
    for ship in all() {
        ship.stop.set();
    }
}

/// To be asked when nobody writes any more: whether the process may end. What is left is sent first, for as long as
/// that takes and is not too long; the queue keeps the rest.
pub fn has_ended() -> bool {
    let all = all();
    let until = *lock(&FINISHING).get_or_insert_with(|| {
        for ship in &all {
            ship.queue.seal();
            ship.is_finishing.store(true, Ordering::Release);
        }
        Instant::now() + FINISH
    });
    let is_done = |ship: &Arc<Ship>| ship.stop.is_set() || ship.has_ended.load(Ordering::Acquire);
    all.iter().all(is_done) || Instant::now() >= until
}
