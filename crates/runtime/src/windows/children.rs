//! Programs with pipes to them (`ngx.pipe`): none is started yet.

use super::process::Exit;
pub use crate::program::{NotSent, NotStarted, Program};
use std::convert::Infallible;
use std::io;
use std::task::{Context, Poll};

/// So many children a process has at most.
pub const MAX: usize = 1024;

/// A child, and this side's ends of its pipes.
pub struct Started {
    pub child: Child,
    pub stdin: PipeEnd,
    pub stdout: PipeEnd,
    /// Not where it is merged with the other.
    pub stderr: Option<PipeEnd>,
}

/// A child.
pub struct Child(Infallible);

/// Starts a program.
///
/// # Errors
///
/// In any case.
pub fn start(_: &Program<'_>) -> Result<Started, NotStarted> {
    Err(NotStarted::Execute(io::ErrorKind::Unsupported.into()))
}

/// A line for the system's own shell.
pub fn of_shell(line: &[u8]) -> (&'static [u8], Vec<&[u8]>) {
    (b"cmd.exe", vec![b"cmd.exe", b"/c", line])
}

impl Child {
    pub fn pid(&self) -> i32 {
        match self.0 {}
    }

    pub fn exit(&self) -> Option<Exit> {
        match self.0 {}
    }

    pub fn poll_exit(&self, _: &Context<'_>) -> Poll<Exit> {
        match self.0 {}
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn send(&self, _: i32) -> Result<(), NotSent> {
        match self.0 {}
    }
}

/// Takes notice of children that have ended.
pub fn reap() {}

/// Ends all children.
pub fn end() {}

/// This side's end of a pipe.
pub struct PipeEnd(Infallible);

impl PipeEnd {
    pub fn poll_read(&self, _: &Context<'_>, _: &mut Vec<u8>, _: usize) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    pub fn poll_write(&self, _: &Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match self.0 {}
    }
}
