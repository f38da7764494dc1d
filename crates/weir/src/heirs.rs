//! Kept connections go to the process that takes this one's place (an upgrade, a reload that needs
//! a new process, a new master after the old one has died), so that no client sees its connection
//! closed. The new process says that it is ready. Until then, and while it takes them, those that
//! are busy are answered as ever and go once they are idle. Where it never says so (it may be nginx),
//! or ends, or reads no more, connections stay where they are and end with the answer to their
//! next request.

use crate::workers::Command;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use weir_core::carried::Carried;
use weir_core::counters::AllCounters;
use weir_core::Connection;
use weir_runtime::packets::{self, Packets};
use weir_runtime::sockets::{OwnedFd, RawFd};
use weir_runtime::{clock, timer};

/// What the new process says first, and by it which form of messages it reads.
const READY: &[u8] = b"weir connections 2";
/// For so long the new process is waited for.
const START_MS: u64 = 10_000;
/// It has gone, or is stopped, if it reads nothing for so long.
const PATIENCE_MS: u64 = 5000;
const LOOK_MS: u64 = 2;

/// The way to the process that takes this one's place; all workers have the same.
pub struct Successor {
    /// `None`: it has no such way, for example because it is nginx.
    link: Option<Packets>,
    is_ready: AtomicBool,
    is_gone: AtomicBool,
    /// It was waited for, and has not come.
    is_late: AtomicBool,
    /// Monotonic ms since when nothing but its answer is waited for; 0 before.
    asked_since_ms: AtomicU64,
    /// Monotonic ms since when it has read nothing; 0 when it reads.
    stuck_since_ms: AtomicU64,
}

impl Successor {
    pub fn new(link: Option<Packets>) -> Arc<Successor> {
        Arc::new(Successor {
            link,
            is_ready: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            asked_since_ms: AtomicU64::new(0),
            stuck_since_ms: AtomicU64::new(0),
        })
    }

    pub fn has_link(&self) -> bool {
        self.link.is_some()
    }

    /// Whether it takes connections, as far as is known.
    pub fn may_take(&self) -> bool {
        self.link.is_some() && !self.is_gone.load(Ordering::Relaxed)
    }

    /// Hears whether it is ready, or has gone before.
    fn is_ready(&self) -> bool {
        let Some(link) = &self.link else { return false };
        if self.is_ready.load(Ordering::Relaxed) {
            return true;
        }
        let mut said = Vec::new();
        match link.try_receive(&mut said) {
            Ok(_) if said == READY => self.is_ready.store(true, Ordering::Relaxed),
            Err(e) if waits(&e) => {}
            // Its end is closed.
            Ok(_) | Err(_) => self.is_gone.store(true, Ordering::Relaxed),
        }
        // Another worker may have heard it.
        self.is_ready.load(Ordering::Relaxed)
    }

    /// Waits for the new process; `false` if it does not come, or nothing is left for it.
    pub async fn wait_ready(&self, is_done: impl Fn() -> bool) -> bool {
        let end_ms = clock::mono_ms() + START_MS;
        while clock::mono_ms() < end_ms {
            if self.is_ready() {
                return true;
            }
            if !self.may_take() || is_done() {
                return false;
            }
            timer::sleep_ms(LOOK_MS).await;
        }
        self.is_late.store(true, Ordering::Relaxed);
        false
    }

    /// Whether it is ready, or will not be. For who has nothing else to wait for, and asks again and again: what it has to
    /// give would be nobody's if it ended as soon as the other has begun.
    pub fn has_answered(&self) -> bool {
        if self.is_ready() || !self.may_take() || self.is_late.load(Ordering::Relaxed) {
            return true;
        }
        let now = clock::mono_ms();
        let since = match self.asked_since_ms.load(Ordering::Relaxed) {
            0 => {
                self.asked_since_ms.store(now, Ordering::Relaxed);
                now
            }
            since => since,
        };
        now.saturating_sub(since) >= START_MS
    }

    /// Tells it what is no connection, waiting so long altogether where it does not read; whether all was told. `false` at
    /// once where it is not ready.
    pub fn tell(&self, messages: &mut dyn Iterator<Item = Vec<u8>>, patience: Duration) -> bool {
        let Some(link) = self.link.as_ref().filter(|_| self.is_ready()) else { return false };
        let end = Instant::now() + patience;
        for message in messages {
            loop {
                match link.send(&message, None) {
                    Ok(()) => break,
                    Err(e) if waits(&e) && Instant::now() < end => {
                        std::thread::sleep(Duration::from_millis(LOOK_MS));
                    }
                    Err(_) => return false,
                }
            }
        }
        true
    }

    /// Tells it something with a descriptor, waiting so long where it does not read; whether it was told.
    pub fn tell_with(&self, message: &[u8], fd: RawFd, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while let Some(link) = self.link.as_ref().filter(|_| self.may_take()) {
            match link.send(message, Some(fd)) {
                Ok(()) => return true,
                Err(e) if waits(&e) && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(LOOK_MS));
                }
                Err(_) => return false,
            }
        }
        false
    }

    /// Waits for the new process in a thread that has nothing else to do; `false` if it does not come.
    pub fn wait_in_thread(&self) -> bool {
        let end = Instant::now() + Duration::from_millis(START_MS);
        while !self.is_ready() {
            if !self.may_take() || self.is_late.load(Ordering::Relaxed) {
                return false;
            }
            if Instant::now() >= end {
                self.is_late.store(true, Ordering::Relaxed);
                return false;
            }
            std::thread::sleep(Duration::from_millis(10 * LOOK_MS));
        }
        true
    }

    /// Gives it a connection, if that is idle still when the other side reads; `false` if it takes
    /// no more.
    pub async fn give(&self, conn: &Connection) -> bool {
        while let Some(link) = self.link.as_ref().filter(|_| self.may_take()) {
            if !conn.can_be_carried() {
                return true;
            }
            match link.send(&conn.carried().pack(), Some(conn.stream.fd())) {
                Ok(()) => {
                    self.stuck_since_ms.store(0, Ordering::Relaxed);
                    conn.carry_away();
                    return true;
                }
                Err(e) if waits(&e) && !self.is_stuck() => timer::sleep_ms(LOOK_MS).await,
                // The other process has gone; the connection stays here.
                Err(_) => self.is_gone.store(true, Ordering::Relaxed),
            }
        }
        false
    }

    /// It has not read; whether for too long.
    fn is_stuck(&self) -> bool {
        let now = clock::mono_ms();
        let first =
            self.stuck_since_ms.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        first.is_err_and(|since| now.saturating_sub(since) > PATIENCE_MS)
    }
}

/// Not read yet: the queue is full, or too many descriptors are on their way.
fn waits(e: &io::Error) -> bool {
    const ETOOMANYREFS: i32 = 109;
    e.kind() == io::ErrorKind::WouldBlock || e.raw_os_error() == Some(ETOOMANYREFS)
}

/// This process' end, if it takes another's place. The master keeps it for whichever serving
/// process it starts.
static PREDECESSOR: Mutex<Option<Packets>> = Mutex::new(None);

/// Sets it; answers what it was.
pub fn succeed(link: Option<Packets>) -> Option<Packets> {
    std::mem::replace(&mut *PREDECESSOR.lock().unwrap_or_else(|e| e.into_inner()), link)
}

/// Begins with the end that an older program has handed to this one.
pub fn begin(link: Option<Packets>) {
    succeed(link);
    told_at_once().iter().for_each(|body| crate::figures::told(body));
}

/// The end that this process has, to be handed to the serving process that it starts.
pub fn handed_on() -> Option<io::Result<OwnedFd>> {
    let link = PREDECESSOR.lock().unwrap_or_else(|e| e.into_inner());
    link.as_ref().map(Packets::to_owned_fd)
}

/// Where the connections of the process before this one come in.
struct Inlet {
    link: Packets,
    workers: Vec<UnboundedSender<Command>>,
    counters: Arc<AllCounters>,
    turn: usize,
}

/// `None`: none come, or no more.
static INLET: Mutex<Option<Inlet>> = Mutex::new(None);

/// Begins to receive connections for these workers, if this process takes another's place.
pub fn receive(workers: Vec<UnboundedSender<Command>>, counters: &Arc<AllCounters>) {
    let link = PREDECESSOR.lock().unwrap_or_else(|e| e.into_inner());
    let clone = || link.as_ref().and_then(|l| l.try_clone().ok());
    let (Some(link), Some(watched)) = (clone(), clone()) else { return };
    // Where the other side has gone, what it gave before may still be on its way.
    let _ = link.send(READY, None);
    let inlet = Inlet { link, workers, counters: Arc::clone(counters), turn: 0 };
    INLET.lock().unwrap_or_else(|e| e.into_inner()).replace(inlet);
    // Without the thread connections stay where they are.
    let _ = std::thread::Builder::new()
        .name("heir".into())
        .spawn(move || while watched.wait_readable() && take_waiting(false) {});
}

/// Takes all connections that are on their way, and then no more: the workers are about to finish
/// and to hand on what they have.
pub fn receive_last() {
    take_waiting(true);
}

/// Takes what has arrived; `false` once nothing more will.
fn take_waiting(is_last: bool) -> bool {
    let mut slot = INLET.lock().unwrap_or_else(|e| e.into_inner());
    let goes_on = slot.as_mut().is_some_and(Inlet::take_waiting) && !is_last;
    if !goes_on {
        slot.take();
    }
    goes_on
}

impl Inlet {
    /// `false` at the end.
    fn take_waiting(&mut self) -> bool {
        use io::ErrorKind::{ConnectionReset, Interrupted};
        let mut body = Vec::new();
        loop {
            match self.link.try_receive(&mut body) {
                Ok(Some(fd)) if crate::dicts::is_meant(&body) => crate::dicts::take(&body, fd),
                Ok(Some(fd)) => self.take(fd, &body),
                Ok(None) if !body.is_empty() => crate::figures::take(&body),
                // A reset is told once, before what is still in the queue: the other side has
                // ended without hearing that a second process is ready.
                Err(e) if matches!(e.kind(), Interrupted | ConnectionReset) => {}
                Err(e) if waits(&e) => return true,
                Ok(None) | Err(_) => return false,
            }
        }
    }

    fn take(&mut self, fd: OwnedFd, body: &[u8]) {
        let Some(carried) = Carried::unpack(body) else { return };
        let working = self.workers.len().min(self.counters.workers()).max(1);
        self.turn = (self.turn + 1) % working;
        // A worker that has ended takes nothing; the connection is closed then.
        let _ = self.workers[self.turn].send(Command::TakeOn(fd, Box::new(carried)));
    }
}

/// Both ends: this process' own, and that of the one to come, which finds there what it is to know before it serves.
pub fn pair() -> Option<(Packets, Packets)> {
    let (own, theirs) = packets::pair().ok()?;
    // What finds no room is found out anew.
    let _ = crate::figures::standings().iter().try_for_each(|piece| own.send(piece, None));
    Some((own, theirs))
}

/// What the process before this one told at once. To be called before any process has said that it is ready, upon which
/// connections come.
fn told_at_once() -> Vec<Vec<u8>> {
    let link = PREDECESSOR.lock().unwrap_or_else(|e| e.into_inner());
    let Some(link) = &*link else { return Vec::new() };
    let mut all = Vec::new();
    loop {
        let mut body = Vec::new();
        match link.try_receive(&mut body) {
            Ok(None) if !body.is_empty() => all.push(body),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return all,
        }
    }
}
