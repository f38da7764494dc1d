//! What the process is called in lists: its program's name, always.

use std::ffi::OsString;
use std::sync::OnceLock;

static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// What the program was started with.
pub fn arguments() -> &'static [OsString] {
    ARGUMENTS.get_or_init(|| std::env::args_os().collect())
}

/// There is nothing to be prepared.
pub fn prepare() {}

/// It cannot be called otherwise.
pub fn set(_: &str) {}
