//! A system without services of that kind.

use super::{Event, New, Work};

/// Whether the system has services.
pub const IS_THERE: bool = false;

const NONE: &str = "this system has no such services";

/// # Errors
///
/// In any case, as with the others.
pub fn install(_: &New<'_>) -> Result<Vec<String>, String> {
    Err(NONE.into())
}

/// # Errors
///
/// In any case.
pub fn start(_: &str) -> Result<(), String> {
    Err(NONE.into())
}

/// # Errors
///
/// In any case.
pub fn stop(_: &str) -> Result<(), String> {
    Err(NONE.into())
}

/// # Errors
///
/// In any case.
pub fn reload(_: &str) -> Result<(), String> {
    Err(NONE.into())
}

/// # Errors
///
/// In any case.
pub fn reopen(_: &str) -> Result<(), String> {
    Err(NONE.into())
}

/// # Errors
///
/// In any case.
pub fn upgrade(_: &str) -> Result<(), String> {
    Err(NONE.into())
}

/// # Errors
///
/// In any case.
pub fn remove(_: &str) -> Result<(), String> {
    Err(NONE.into())
}

/// # Errors
///
/// In any case.
pub fn run(_: &str, _: Work) -> Result<(), String> {
    Err(NONE.into())
}

/// Whether this process is a service.
pub fn is_one() -> bool {
    false
}

/// Whether the system hears from this process how the service is.
pub fn is_main() -> bool {
    false
}

/// This process is part of no service.
pub fn speak_as(_: &str) {}

/// Nobody asks.
pub fn is_ready() {}

/// Nobody asks.
pub fn is_ending() {}

/// There is no event log.
pub fn report(_: Event, _: &[u8]) {}
