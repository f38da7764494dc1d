//! Somebody looks on: requests that have failed or were slow are told as they end.
//!
//! While nobody does, a request pays the reading of one number.

use crate::Request;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// Nobody looks on.
const NOBODY: u64 = u64::MAX;
/// Microseconds from which on a request is slow.
static SLOW_US: AtomicU64 = AtomicU64::new(NOBODY);
static TELLS: OnceLock<fn(&Request)> = OnceLock::new();

/// From now on requests that fail (500 and above) or take so long are told, by any worker. There can be one only who
/// is told.
pub fn begin(slow_ms: u64, tells: fn(&Request)) {
    let _ = TELLS.set(tells);
    SLOW_US.store(slow_ms.saturating_mul(1000).min(NOBODY - 1), Ordering::Relaxed);
}

/// No more.
pub fn end() {
    SLOW_US.store(NOBODY, Ordering::Relaxed);
}

/// Whether anybody looks on.
#[inline]
pub(crate) fn is_wanted() -> bool {
    SLOW_US.load(Ordering::Relaxed) != NOBODY
}

/// A client's request is over.
#[inline]
pub(crate) fn ended(r: &Request, status: u16, took_us: Option<u64>) {
    let slow_us = SLOW_US.load(Ordering::Relaxed);
    if slow_us != NOBODY && (status >= 500 || took_us.is_some_and(|us| us >= slow_us)) {
        tell(r);
    }
}

#[cold]
fn tell(r: &Request) {
    if let Some(tells) = TELLS.get() {
        tells(r);
    }
}
