//! The exporters that have a thread in this process. One that a reload leaves as it was goes over to the new configuration
//! with its thread, connection and what waits; of those that are gone only so many may still send.

use super::door::Target;
use super::sender::Sender;
use super::trays::Trays;
use crate::errors;
use crate::line::tls::Root;
use crate::receiver::Stop;
use crate::running::lock;
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::{os_text, Worker};

/// Exporters of configurations that are gone and still send what they have: what is more ends, the oldest first.
const LEFT_MAX: usize = 4;
/// How long a graceful end waits for what is left to be sent.
const FINISH: Duration = Duration::from_secs(3);
/// The same where the process is to end at once.
const FINISH_AT_ONCE: Duration = Duration::from_millis(300);
/// What was not taken is counted and told within it.
const TELL_LEFT: Duration = Duration::from_millis(500);

/// What a configuration says of its exporter, files' contents among it: where it is the same, the exporter is.
#[derive(PartialEq, Eq)]
pub struct Said {
    pub endpoint: String,
    pub is_http: bool,
    pub fields: Vec<(String, String)>,
    /// What the collector's certificate is verified by.
    pub roots: Option<Vec<Root>>,
    pub resource: Vec<(String, String)>,
    pub interval: Duration,
    pub batch_size: usize,
    /// Spans of a worker that may wait.
    pub most: usize,
}

/// Whoever has it may still add spans.
pub struct Exporter {
    pub said: Said,
    pub target: Target,
    trays: OnceLock<Trays>,
}

impl Exporter {
    pub fn new(said: Said, target: Target) -> Exporter {
        Exporter { said, target, trays: OnceLock::new() }
    }

    /// All workers', for as many as there may ever be; made when there is the first span.
    #[inline]
    pub fn trays(&self, worker: &Worker) -> &Trays {
        self.trays.get_or_init(|| Trays::new(worker.all.each.len(), self.said.most))
    }

    /// If there was a span.
    pub fn trays_in_use(&self) -> Option<&Trays> {
        self.trays.get()
    }
}

/// A thread of this process.
pub struct Running {
    exporter: Weak<Exporter>,
    /// The newest configuration's.
    log: Mutex<Arc<ErrorLog>>,
    pub stop: Arc<Stop>,
    pub is_finishing: AtomicBool,
    /// No configuration can take it over any more.
    is_closed: AtomicBool,
    has_ended: AtomicBool,
}

static ALL: Mutex<Vec<Arc<Running>>> = Mutex::new(Vec::new());
/// When an end waits no longer.
static LIMIT: Mutex<Option<Instant>> = Mutex::new(None);

impl Running {
    fn new(exporter: &Arc<Exporter>, log: &Arc<ErrorLog>) -> Running {
        Running {
            exporter: Arc::downgrade(exporter),
            log: Mutex::new(Arc::clone(log)),
            stop: Arc::default(),
            is_finishing: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    pub fn log(&self) -> Arc<ErrorLog> {
        Arc::clone(&lock(&self.log))
    }

    /// Only its thread has the exporter. What those have added who have let go of it is seen from here on.
    pub fn is_left(&self) -> bool {
        let is_left = self.exporter.strong_count() <= 1;
        fence(Ordering::Acquire);
        is_left
    }

    /// The thread is about to end: `false` if a configuration has taken the exporter over meanwhile.
    pub fn close(&self) -> bool {
        // Taking over is done under the same lock.
        let _all = lock(&ALL);
        let may_end = self.stop.is_set()
            || self.is_finishing.load(Ordering::Acquire)
            || self.exporter.strong_count() <= 1;
        if may_end {
            self.is_closed.store(true, Ordering::Release);
        }
        may_end
    }

    fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire) && !self.stop.is_set()
    }

    /// The exporter, if it is one that says the same and may be taken over.
    fn same(&self, said: &Said) -> Option<Arc<Exporter>> {
        self.exporter.upgrade().filter(|found| self.is_open() && found.said == *said)
    }
}

/// A configuration is about to be served by this process: the exporter that it is to use.
pub fn start(built: &Arc<Exporter>, log: &Arc<ErrorLog>) -> Arc<Exporter> {
    let mut all = lock(&ALL);
    all.retain(|running| !running.has_ended.load(Ordering::Acquire));
    let found = all.iter().find_map(|running| Some((running, running.same(&built.said)?)));
    if let Some((running, exporter)) = found {
        *lock(&running.log) = Arc::clone(log);
        return exporter;
    }
    let left: Vec<_> = all.iter().filter(|r| r.is_open() && r.is_left()).collect();
    let too_many = left.len().saturating_sub(LEFT_MAX);
    left.into_iter().take(too_many).for_each(|running| running.stop.set());
    let running = Arc::new(Running::new(built, log));
    all.push(Arc::clone(&running));
    drop(all);
    let (exporter, own) = (Arc::clone(built), Arc::clone(&running));
    let run = move || {
        errors::quietly(|| Sender::new(exporter, Arc::clone(&own)).run());
        own.has_ended.store(true, Ordering::Release);
    };
    if let Err(e) = thread::Builder::new().name("otel".into()).spawn(run) {
        running.has_ended.store(true, Ordering::Release);
        log.log(LogLevel::Alert, None, format!("otel: no thread: {}", os_text(&e)).as_bytes());
    }
    Arc::clone(built)
}

/// The process is to end at once: what waits has a moment.
pub fn stop() {
    *lock(&LIMIT) = Some(Instant::now() + FINISH_AT_ONCE);
}

/// To be asked when nobody adds spans any more: whether the process may end. What is left is sent first, for as long as
/// that takes and is not too long.
pub fn has_ended() -> bool {
    let all = lock(&ALL).clone();
    all.iter().for_each(|running| running.is_finishing.store(true, Ordering::Release));
    let until = *lock(&LIMIT).get_or_insert_with(|| Instant::now() + FINISH);
    if Instant::now() >= until {
        all.iter().for_each(|running| running.stop.set());
        if Instant::now() >= until + TELL_LEFT {
            return true;
        }
    }
    all.iter().all(|running| running.has_ended.load(Ordering::Acquire))
}
