//! What libraries call of nginx's own functions by the FFI (`ffi.C.ngx_hex_dump`), as safe code. `border.rs` has the
//! functions themselves, and `crates/weir/build.rs` shows them in the program.

use crate::api::encode::KINDS as ESCAPES;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_base::units;

/// What answers that are no number are.
const ERROR: isize = -1;

/// The two digits of a byte.
pub(crate) fn hex(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

fn number(found: Option<u64>) -> isize {
    found.and_then(|n| isize::try_from(n).ok()).unwrap_or(ERROR)
}

/// `ngx_atoi`
pub(crate) fn atoi(text: &[u8]) -> isize {
    number(units::parse_int(text))
}

/// `ngx_hextoi`
pub(crate) fn hextoi(text: &[u8]) -> isize {
    number(units::parse_hex(text))
}

/// `ngx_parse_time`
pub(crate) fn parse_time(text: &[u8], is_sec: bool) -> isize {
    number(if is_sec { units::parse_sec(text) } else { units::parse_msec(text) })
}

/// `ngx_escape_uri`: the text as it is behind it. The kinds are by nginx's numbers.
pub(crate) fn escaped(text: &[u8], kind: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() * 3);
    escape_uri(&mut out, text, ESCAPES.get(kind).copied().unwrap_or(EscapeKind::Uri));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!((atoi(b"0120"), atoi(b""), atoi(b"1a"), atoi(b"-1")), (120, -1, -1, -1));
        assert_eq!(atoi(b"99999999999999999999"), -1);
        assert_eq!((hextoi(b"fF"), hextoi(b"g"), hextoi(b"")), (255, -1, -1));
        assert_eq!((parse_time(b"1h", true), parse_time(b"1h", false)), (3600, 3_600_000));
        assert_eq!(parse_time(b"1x", true), -1);
    }
}
