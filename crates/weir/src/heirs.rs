//! Kept connections go to the process that takes this one's place (an upgrade, or a reload that
//! needs a new process), so that no client sees its connection closed. The new process says that
//! it is ready; until then, and where it never says so (it may be nginx), connections stay where
//! they are and end with the answer to their next request.

use crate::workers::Command;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::UnboundedSender;
use weir_http::carried::Carried;
use weir_http::conn::Connection;
use weir_http::worker::AllCounters;
use weir_runtime::packets::{self, Packets};
use weir_runtime::timer;

/// What the new process says first, and by it which form of messages it reads.
const READY: &[u8] = b"weir connections 1";
/// The variable that tells a new program the number of its end.
pub const VARIABLE: &str = "WEIR_CONNECTIONS";
/// For so long the new process is waited for.
const START_MS: u64 = 10_000;
/// For so long it is given time to read.
const PATIENCE_MS: u64 = 2000;
const LOOK_MS: u64 = 2;

/// The way to the process that takes this one's place.
pub struct Successor {
    /// `None`: it has no such way, for example because it is nginx.
    link: Option<Packets>,
    is_ready: AtomicBool,
}

impl Successor {
    pub fn new(link: Option<Packets>) -> Arc<Successor> {
        Arc::new(Successor { link, is_ready: AtomicBool::new(false) })
    }

    fn is_ready(&self) -> bool {
        let Some(link) = &self.link else { return false };
        if self.is_ready.load(Ordering::Relaxed) {
            return true;
        }
        let mut said = Vec::new();
        let ready = link.try_receive(&mut said).is_ok() && said == READY;
        if ready {
            self.is_ready.store(true, Ordering::Relaxed);
        }
        // Another worker may have heard it.
        self.is_ready.load(Ordering::Relaxed)
    }

    /// Waits for the new process; `false` if it does not come, or nothing is left for it.
    pub async fn wait_ready(&self, is_done: impl Fn() -> bool) -> bool {
        for _ in 0..START_MS / LOOK_MS {
            if self.is_ready() {
                return true;
            }
            if self.link.is_none() || is_done() {
                return false;
            }
            timer::sleep_ms(LOOK_MS).await;
        }
        false
    }

    /// Gives it a connection, as soon as that is idle and the other side reads.
    pub async fn give(&self, conn: &Connection) {
        let Some(link) = &self.link else { return };
        for _ in 0..PATIENCE_MS / LOOK_MS {
            if !conn.can_be_carried() {
                return;
            }
            match link.send(&conn.carried().pack(), Some(conn.stream.fd())) {
                Ok(()) => return conn.carry_away(),
                Err(e) if waits(&e) => timer::sleep_ms(LOOK_MS).await,
                // The other process has gone; the connection stays here.
                Err(_) => return,
            }
        }
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

/// Takes the end that an older program has left open under the number in the environment.
pub fn take_link() {
    let number = std::env::var(VARIABLE).ok().and_then(|n| n.parse::<RawFd>().ok());
    succeed(number.and_then(packets::inherit));
}

/// Begins to receive connections for these workers, if this process takes another's place.
pub fn receive(workers: Vec<UnboundedSender<Command>>, counters: &Arc<AllCounters>) {
    let link = PREDECESSOR.lock().unwrap_or_else(|e| e.into_inner());
    let Some(link) = link.as_ref().and_then(|l| l.try_clone().ok()) else { return };
    let counters = Arc::clone(counters);
    // Without the thread connections stay where they are.
    let _ = std::thread::Builder::new().name("heir".into()).spawn(move || {
        if link.send(READY, None).is_ok() {
            let mut turn = 0;
            while receive_one(&link, &workers, &counters, &mut turn) {}
        }
    });
}

fn receive_one(
    link: &Packets,
    workers: &[UnboundedSender<Command>],
    all: &AllCounters,
    turn: &mut usize,
) -> bool {
    let mut body = Vec::new();
    let fd: OwnedFd = match link.receive(&mut body) {
        Ok(Some(fd)) => fd,
        Err(e) if e.kind() == io::ErrorKind::Interrupted => return true,
        Ok(None) if !body.is_empty() => return true,
        Ok(None) | Err(_) => return false,
    };
    let Some(carried) = Carried::unpack(&body) else { return true };
    let working = workers.len().min(all.workers()).max(1);
    *turn = (*turn + 1) % working;
    // A worker that has ended takes nothing; the connection is closed then.
    let _ = workers[*turn].send(Command::TakeOn(fd, Box::new(carried)));
    true
}

/// Both ends: this process' own, and that of the one to come.
pub fn pair() -> Option<(Packets, Packets)> {
    packets::pair().ok()
}

/// The number to be told to the new program.
pub fn number(link: &Packets) -> String {
    link.as_raw_fd().to_string()
}
