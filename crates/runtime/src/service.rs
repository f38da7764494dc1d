//! Services: programs that Windows starts, tells to end and starts again, and its event log, which is where such a program
//! is heard by whoever does not read its error log. Other systems have files that say the same (units), and nothing here.

#[cfg(not(windows))]
#[path = "service/absent.rs"]
mod system;
#[cfg(any(windows, test))]
pub(crate) mod words;

#[cfg(windows)]
use crate::windows::service as system;
use std::ffi::OsString;

pub use system::{
    install, is_ending, is_main, is_one, is_ready, reload, remove, reopen, report, run, speak_as,
    start, stop, upgrade, IS_THERE,
};

/// A service that is to be made.
pub struct New<'a> {
    pub name: &'a str,
    /// What lists show.
    pub title: &'a str,
    pub description: &'a str,
    /// What stands behind the program's name when it is started.
    pub words: Vec<OsString>,
}

/// Words behind the program's name by which it knows that the system has started it; services with others are not ours.
pub const RUN: [&str; 2] = ["service", "run"];

/// How grave an event is: the number that the event log shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Emerg = 1,
    Alert,
    Crit,
}

/// What the service does. Its answer is the program's status: 0, or what the system is told that it has failed with.
pub type Work = Box<dyn FnOnce() -> u8 + Send>;
