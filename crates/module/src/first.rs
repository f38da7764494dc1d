//! Readers of a directive's first argument, for [`crate::set`].

use crate::{ArgsExt, ConfResult, Directive};

/// `on` or `off`.
///
/// # Errors
///
/// These and the others': it is something else.
pub fn flag(d: &Directive) -> ConfResult<bool> {
    d.flag()
}

/// A number.
pub fn num(d: &Directive) -> ConfResult<u64> {
    d.num(0)
}

/// Bytes, with `k` or `m`.
pub fn size(d: &Directive) -> ConfResult<u64> {
    d.size(0)
}

/// Bytes of a file, also with `g`.
pub fn offset(d: &Directive) -> ConfResult<u64> {
    d.offset(0)
}

/// A time in milliseconds; without a unit it is in seconds.
pub fn msec(d: &Directive) -> ConfResult<u64> {
    d.msec(0)
}

/// A time in seconds.
pub fn sec(d: &Directive) -> ConfResult<u64> {
    d.sec(0)
}

/// As it stands: a path, or a name that need not be text.
pub fn bytes(d: &Directive) -> ConfResult<Vec<u8>> {
    Ok(d.arg(0).to_vec())
}

/// As it stands, in UTF-8.
pub fn text(d: &Directive) -> ConfResult<String> {
    d.text(0).map(str::to_owned)
}
