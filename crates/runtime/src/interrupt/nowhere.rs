//! Where nothing interrupts a thread.

use super::{Called, Place};
use std::io;

pub(super) type Own = Place;

pub(super) const fn own() -> Own {
    Place::new()
}

/// See what Linux has.
///
/// # Safety
///
/// Nothing is called.
///
/// # Errors
///
/// Always.
pub unsafe fn install(_: Called) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A thread that cannot be interrupted.
#[derive(Debug)]
pub struct Thread(());

impl Thread {
    /// The one that calls.
    pub fn own() -> Thread {
        Thread(())
    }

    /// Does nothing.
    pub fn interrupt(&self) {}
}
