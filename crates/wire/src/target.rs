//! Targets and hosts of requests, and names of fields, looked at sixteen bytes at a time.

use crate::scan::LF;
use wide::u8x16;

const STEP: usize = 16;
const STEP_BITS: u32 = (1 << STEP) - 1;

/// What a look at a target finds.
pub(crate) struct Target {
    /// A control, a space or DEL stands there, or it is where the look was to end.
    pub(crate) end: usize,
    pub(crate) path: Path,
}

/// What its path is like.
pub(crate) enum Path {
    /// It ends there, at a `?` or with the target, and nothing in it is to be decoded. `complex`: a slash is
    /// followed by a slash or dot.
    Plain { end: usize, complex: bool },
    /// Look at it byte by byte.
    Other,
}

/// Sixteen bytes from `at`, with line ends where the buffer has ended.
#[inline(always)]
fn step(buf: &[u8], at: usize) -> u8x16 {
    match buf.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => u8x16::new(*bytes),
        None => last_step(buf, at),
    }
}

#[cold]
fn last_step(buf: &[u8], at: usize) -> u8x16 {
    let mut bytes = [LF; STEP];
    let rest = buf.get(at..).unwrap_or_default();
    bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    u8x16::new(bytes)
}

#[inline(always)]
fn are(bytes: u8x16, b: u8) -> u8x16 {
    bytes.simd_eq(u8x16::splat(b))
}

/// A bit for each byte that stands before the lowest bit of `marks`.
#[inline(always)]
fn before(marks: u32) -> u32 {
    let lowest = marks & marks.wrapping_neg();
    lowest.wrapping_sub(1) & STEP_BITS
}

/// Looks at what begins at `from`, and no further than to `limit`.
#[inline(always)]
pub(crate) fn look(buf: &[u8], from: usize, limit: usize) -> Target {
    let mut path = None;
    let (mut complex, mut after_slash) = (0, 0);
    let mut at = from;
    loop {
        let bytes = step(buf, at);
        let controls = bytes.min(u8x16::splat(b' ')).simd_eq(bytes);
        let mut ends = (controls | are(bytes, 0x7f)).to_bitmask();
        if limit - at < STEP {
            ends |= 1 << (limit - at);
        }
        if path.is_none() {
            let odd = are(bytes, b'?') | are(bytes, b'%') | are(bytes, b'+') | are(bytes, b'#');
            let odd = odd.to_bitmask() & before(ends);
            let inside = before(ends | odd);
            let (slashes, dots) = (are(bytes, b'/'), are(bytes, b'.'));
            let second = (slashes | dots).to_bitmask() & inside;
            let slashes = slashes.to_bitmask();
            complex |= (slashes << 1 | after_slash) & second;
            after_slash = slashes >> (STEP - 1) & 1;
            if odd != 0 {
                let end = at + odd.trailing_zeros() as usize;
                path = Some(match buf.get(end) {
                    Some(b'?') => Path::Plain { end, complex: complex != 0 },
                    _ => Path::Other,
                });
            }
        }
        if ends != 0 {
            let end = at + ends.trailing_zeros() as usize;
            let path = path.unwrap_or(Path::Plain { end, complex: complex != 0 });
            return Target { end, path };
        }
        at += STEP;
    }
}

#[inline(always)]
fn are_within(bytes: u8x16, low: u8, high: u8) -> u8x16 {
    let above = bytes - u8x16::splat(low);
    above.min(u8x16::splat(high - low)).simd_eq(above)
}

/// Whether what stands from `from` to `to` is letters, digits and `-`.
#[inline(always)]
pub(crate) fn is_name(buf: &[u8], from: usize, to: usize) -> bool {
    let mut at = from;
    while at < to {
        let bytes = step(buf, at);
        let inside = if to - at < STEP { (1 << (to - at)) - 1 } else { STEP_BITS };
        let letters = are_within(bytes | u8x16::splat(0x20), b'a', b'z');
        let plain = letters | are_within(bytes, b'0', b'9') | are(bytes, b'-');
        if !plain.to_bitmask() & inside != 0 {
            return false;
        }
        at += STEP;
    }
    true
}

/// Whether a host is what most are: small letters, digits and `-`, and single dots between them.
#[inline(always)]
pub(crate) fn is_plain_host(buf: &[u8], from: usize, to: usize) -> bool {
    let (mut at, mut after_dot) = (from, 1);
    while at < to {
        let bytes = step(buf, at);
        let inside = if to - at < STEP { (1 << (to - at)) - 1 } else { STEP_BITS };
        let dots = are(bytes, b'.');
        let plain = are_within(bytes, b'a', b'z') | are_within(bytes, b'0', b'9');
        let plain = (plain | are(bytes, b'-') | dots).to_bitmask();
        let dots = dots.to_bitmask();
        if (!plain | dots & (dots << 1 | after_dot)) & inside != 0 {
            return false;
        }
        after_dot = dots >> (STEP - 1);
        at += STEP;
    }
    from < to && buf.get(to - 1) != Some(&b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_by_steps_as_by_bytes() {
        for len in 0..40usize {
            for b in 0..=255u8 {
                for at in 0..len {
                    let mut name = b"X-Forwarded-For-Name9".repeat(2)[..len].to_vec();
                    name[at] = b;
                    let good = b.is_ascii_alphanumeric() || b == b'-';
                    for behind in [&b""[..], b": value of the field\r\n"] {
                        let text = [b"\r\n", &name[..], behind].concat();
                        assert_eq!(is_name(&text, 2, 2 + len), good, "{b} at {at} of {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn plain_hosts_need_no_second_look() {
        use crate::http1::framing::{validate_host, ValidHost};
        for len in 0..40usize {
            for b in 0..=255u8 {
                for at in 0..len {
                    let mut host = b"a.b-c0".repeat(8)[..len].to_vec();
                    host[at] = b;
                    let text = [b"Host: ", &host[..], b"\r\n"].concat();
                    let plain = is_plain_host(&text, 6, 6 + len);
                    let good = ValidHost { name_len: len, port: 0, has_upper_case: false };
                    let valid = validate_host(&host) == Ok(good);
                    let allowed =
                        |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(b);
                    let simple = host.iter().all(allowed) && host.first() != Some(&b'.');
                    assert_eq!(plain, valid && simple, "{host:?}");
                }
            }
        }
    }

    /// The same, byte by byte.
    fn slow(text: &[u8]) -> (usize, Option<(usize, bool)>) {
        let end = text.iter().position(|b| *b <= b' ' || *b == 0x7f).unwrap_or(text.len());
        let odd = text[..end].iter().position(|b| b"?%+#".contains(b));
        let path = &text[..odd.unwrap_or(end)];
        let complex = path.windows(2).any(|w| w == b"//" || w == b"/.");
        let is_plain = odd.is_none_or(|at| text[at] == b'?');
        (end, is_plain.then_some((path.len(), complex)))
    }

    #[test]
    fn looking_by_steps_agrees_with_looking_by_bytes() {
        let bytes = b"/.?%+# a\x7f\r";
        for len in 0..50usize {
            for (i, first) in bytes.iter().enumerate() {
                for second in &bytes[i..] {
                    for at in 0..len {
                        for step in [1, 2, 15, 16] {
                            let mut text = vec![b'a'; len];
                            text[at] = *first;
                            text[(at + step) % len] = *second;
                            let target = look(&text, 0, len);
                            let path = match target.path {
                                Path::Plain { end, complex } => Some((end, complex)),
                                Path::Other => None,
                            };
                            assert_eq!((target.end, path), slow(&text), "{text:?}");
                        }
                    }
                }
            }
        }
    }
}
