//! What programs are started by, and why they are not, on every system.

#[cfg(any(windows, test))]
pub(crate) mod words;

use std::io;

/// What is to be started.
pub struct Program<'a> {
    /// Looked for as a shell would, if it is a name alone.
    pub file: &'a [u8],
    /// Its own name first.
    pub arguments: Vec<&'a [u8]>,
    /// `NAME=value`; this process's where there are none.
    pub environment: Option<Vec<&'a [u8]>>,
    /// Both its outputs are one.
    pub merges: bool,
}

/// Why there is no child.
#[derive(Debug)]
pub enum NotStarted {
    TooMany,
    Pipe(io::Error),
    /// The system makes no further process.
    Fork(io::Error),
    /// It cannot be executed.
    Execute(io::Error),
}

/// Why no signal was sent.
#[derive(Debug)]
pub enum NotSent {
    Ended,
    System(io::Error),
}
