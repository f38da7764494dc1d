//! What the system sees, on Windows: its sockets' driver (AFD) by a completion port, which tells once of what was asked
//! for. So what a call has used up is asked for again ([`System::ask`]).

use super::watch::{BROKEN, READ, READ_CLOSED, WRITE, WRITE_CLOSED};
use crate::clock;
use polling::{Event as Seen, Events, PollMode, Poller};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::windows::io::{BorrowedSocket, RawSocket};
use std::sync::Arc;
use std::time::Duration;

/// A socket.
pub(crate) type Raw = RawSocket;

/// What has happened: which watch, and what it is ready by.
pub(super) type Event = (u64, u8);

/// What an event of the loop's own says, which others have woken.
pub(super) const WOKEN: u64 = u64::MAX;

/// Nothing is waited for.
const NEVER: u64 = u64::MAX;

pub(super) struct System {
    poller: Arc<Poller>,
    seen: RefCell<Events>,
    /// When the wait is over at the latest, in monotonic milliseconds.
    alarm_ms: Cell<u64>,
}

/// Others ring it to have the loop look at what they have woken.
pub(super) struct Bell(Arc<Poller>);

impl Bell {
    pub(super) fn ring(&self) {
        // A port that is closed has nobody who would hear.
        let _ = self.0.notify();
    }
}

/// Lends a socket to a call of the system's.
fn lent<'a>(raw: Raw) -> BorrowedSocket<'a> {
    // SAFETY: only calls of the port are made with it, at once; of a number that is no socket they fail.
    unsafe { BorrowedSocket::borrow_raw(raw) }
}

fn asked(number: u64, ways: u8) -> Seen {
    Seen::new(number as usize, ways & READ != 0, ways & WRITE != 0)
}

impl System {
    pub(super) fn new() -> io::Result<(System, Bell)> {
        let poller = Arc::new(Poller::new()?);
        let bell = Bell(Arc::clone(&poller));
        let seen = RefCell::new(Events::new());
        Ok((System { poller, seen, alarm_ms: Cell::new(NEVER) }, bell))
    }

    /// Asks for what has happened; waits for it if that is to be.
    pub(super) fn wait(&self, events: &mut Vec<Event>, waits: bool) -> io::Result<()> {
        events.clear();
        let mut seen = self.seen.borrow_mut();
        seen.clear();
        let left = match (waits, self.alarm_ms.get()) {
            (false, _) => Some(Duration::ZERO),
            (true, NEVER) => None,
            (true, at) => {
                clock::renew();
                Some(Duration::from_millis(at.saturating_sub(clock::mono_ms())))
            }
        };
        match self.poller.wait(&mut seen, left) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        events.extend(seen.iter().map(|e| (e.key as u64, bits(&e))));
        // What others have woken is looked at after each wait: the port does not say who has rung.
        events.push((WOKEN, 0));
        Ok(())
    }

    /// The wait is over at that time (monotonic ms).
    pub(super) fn set_alarm(&self, at_ms: u64) {
        self.alarm_ms.set(at_ms);
    }

    /// Whether that time has come; then there is none any more.
    pub(super) fn is_due(&self) -> bool {
        let at = self.alarm_ms.get();
        if at == NEVER {
            return false;
        }
        clock::renew();
        let is_due = clock::mono_ms() >= at;
        if is_due {
            self.alarm_ms.set(NEVER);
        }
        is_due
    }

    /// Begins to watch for reading.
    pub(super) fn watch(&self, raw: Raw, number: u64) -> io::Result<()> {
        // SAFETY: a watch is forgotten before its socket is closed (`Watch`'s drop).
        unsafe { self.poller.add_with_mode(raw, asked(number, READ), PollMode::Oneshot) }
    }

    /// Watches for writing too.
    pub(super) fn watch_writes(&self, raw: Raw, number: u64) -> io::Result<()> {
        self.ask(raw, number, READ | WRITE)
    }

    /// Tells once, from now on, of those ways.
    pub(super) fn ask(&self, raw: Raw, number: u64, ways: u8) -> io::Result<()> {
        self.poller.modify_with_mode(lent(raw), asked(number, ways), PollMode::Oneshot)
    }

    /// Forgets a socket.
    pub(super) fn forget(&self, raw: Raw) {
        // It fails for what is not watched.
        let _ = self.poller.delete(lent(raw));
    }
}

/// What is ready. An error is there to be found by whatever call comes next.
fn bits(event: &Seen) -> u8 {
    let mut bits = 0;
    if event.readable {
        bits |= READ;
    }
    if event.writable {
        bits |= WRITE;
    }
    if event.is_err().unwrap_or(false) {
        bits |= READ | WRITE | BROKEN;
    }
    if event.is_interrupt() {
        bits |= READ_CLOSED | WRITE_CLOSED | BROKEN;
    }
    bits
}

/// Which watch, and what it is ready by.
pub(super) fn seen(event: &Event) -> (u64, u8) {
    *event
}
