//! ctrl-C, and the end of a session: what was read so far is told. The second one ends the process at once.

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use weir_runtime::signals::{Signal, Waiter, Wake};

/// How long it takes at most until a reader that waits notices.
pub const NOTICE_MS: u64 = 100;
/// As shells tell of who was ended by SIGINT.
const STATUS: i32 = 130;

static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Begins to listen; before there are threads. Without it signals do what they do to any program.
pub fn listen() {
    let Ok(waiter) = Waiter::of(&[Signal::Int, Signal::Term]) else { return };
    let listening = thread::Builder::new().name("signals".into()).spawn(move || {
        let mut signals = std::iter::repeat_with(|| waiter.wait(None, None));
        signals.find(|wake| matches!(wake, Wake::Signal(_)));
        IS_WANTED.store(true, Ordering::Relaxed);
        signals.find(|wake| matches!(wake, Wake::Signal(_)));
        std::process::exit(STATUS);
    });
    if listening.is_err() {
        weir_runtime::signals::unblock_all();
    }
}

/// Whether reading is to end.
pub fn is_wanted() -> bool {
    IS_WANTED.load(Ordering::Relaxed)
}

/// Why what is behind is not counted.
pub fn interrupted() -> io::Error {
    io::Error::other("interrupted")
}

/// What may have nothing to read for long: standard input, a pipe.
pub struct Patient(pub File);

impl Read for Patient {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !weir_runtime::files::is_readable_within(&self.0, NOTICE_MS)? {
            if is_wanted() {
                return Err(interrupted());
            }
        }
        self.0.read(buf)
    }
}
