//! Buffers of a thread that are used again, for values that are looked at and not kept.

use crate::Request;
use std::cell::RefCell;
use weir_script::template::Template;

/// A buffer that has grown beyond this is not kept.
const KEEP_MAX_BYTES: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
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
pub fn with_value<T>(
    r: &mut Request,
    template: &Template,
    f: impl FnOnce(&mut Request, &[u8]) -> T,
) -> T {
    if let Some(text) = template.as_constant() {
        return f(r, text);
    }
    with_scratch(|buf| {
        r.eval_into(template, buf);
        f(r, buf)
    })
}

/// nginx's truth: neither empty nor `0`.
pub fn is_true(value: &[u8]) -> bool {
    !value.is_empty() && value != b"0"
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
