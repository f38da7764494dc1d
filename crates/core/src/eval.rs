//! Values that are looked at and forgotten: buffers used again, getters that lead to others.

use crate::logger::LogLevel;
use crate::session::Session;
use std::cell::{Cell, RefCell};
use weir_script::template::Template;

/// A buffer that has grown beyond this is not kept.
const KEEP_MAX_BYTES: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Lends an empty buffer of this thread; calls may nest.
pub fn with_scratch<T>(f: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut buf = SCRATCH.with_borrow_mut(Vec::pop).unwrap_or_default();
    let value = f(&mut buf);
    if buf.capacity() <= KEEP_MAX_BYTES {
        buf.clear();
        SCRATCH.with_borrow_mut(|pool| pool.push(buf));
    }
    value
}

/// Evaluates a string into a lent buffer and hands both on.
pub fn with_value<S: Session, T>(
    s: &mut S,
    template: &Template,
    f: impl FnOnce(&mut S, &[u8]) -> T,
) -> T {
    if let Some(text) = template.as_constant() {
        return f(s, text);
    }
    with_scratch(|buf| {
        s.eval_into(template, buf);
        f(s, buf)
    })
}

/// nginx's truth: neither empty nor `0`.
pub fn is_true(value: &[u8]) -> bool {
    !value.is_empty() && value != b"0"
}

/// How deep variables may be defined by other variables.
const DEPTH_MAX: u32 = 100;

/// Runs a getter that evaluates further variables; one that leads back to itself has no value.
pub fn guarded<S: Session>(s: &mut S, name: &[u8], f: impl FnOnce(&mut S) -> bool) -> bool {
    if DEPTH.get() >= DEPTH_MAX {
        let shown = String::from_utf8_lossy(name);
        s.log(LogLevel::Error, &format!("cycle while evaluating variable \"{shown}\""));
        return false;
    }
    DEPTH.set(DEPTH.get() + 1);
    let found = f(s);
    DEPTH.set(DEPTH.get() - 1);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_nests_and_is_empty() {
        with_scratch(|a| {
            a.push(1);
            with_scratch(|b| assert!(b.is_empty()));
        });
        with_scratch(|a| assert!(a.is_empty()));
    }

    #[test]
    fn truth() {
        assert!(is_true(b"1") && is_true(b"00") && is_true(b"off"));
        assert!(!is_true(b"") && !is_true(b"0"));
    }
}
