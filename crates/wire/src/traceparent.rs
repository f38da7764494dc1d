//! `traceparent` of W3C's trace context: version, trace, span and flags as hexadecimal digits.

pub const SAMPLED: u8 = 1;
/// `00-` 32 digits `-` 16 digits `-` 2 digits.
pub const TEXT_BYTES: usize = 55;

/// Whose span it is, of which trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub flags: u8,
}

impl Context {
    /// What the fields of a request say; two `traceparent` say nothing.
    pub fn of_fields<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Context> {
        let mut told = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"traceparent"));
        let first = told.next();
        first.filter(|_| told.next().is_none()).and_then(|(_, value)| Context::parse(value))
    }

    /// Newer versions may have more behind the flags. Ids of zeros are none.
    pub fn parse(value: &[u8]) -> Option<Context> {
        let (version, rest) = value.split_at_checked(3)?;
        let [version] = unhex::<1>(version.strip_suffix(b"-")?)?;
        let (trace, rest) = rest.split_at_checked(33)?;
        let trace = unhex::<16>(trace.strip_suffix(b"-")?)?;
        let (span, rest) = rest.split_at_checked(17)?;
        let span = unhex::<8>(span.strip_suffix(b"-")?)?;
        let (flags, rest) = rest.split_at_checked(2)?;
        let [flags] = unhex::<1>(flags)?;
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with(b"-"),
        };
        (is_whole && trace != [0; 16] && span != [0; 8]).then_some(Context { trace, span, flags })
    }

    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// As it is passed on. Flags that nobody knows yet are not.
    pub fn text(&self) -> [u8; TEXT_BYTES] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        put_hex(&self.trace, &mut text[3..35]);
        put_hex(&self.span, &mut text[36..52]);
        text[TEXT_BYTES - 1] += self.flags & SAMPLED;
        text
    }
}

fn put_hex(bytes: &[u8], text: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(text.chunks_exact_mut(2)) {
        (pair[0], pair[1]) = (DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]);
    }
}

/// Small letters only, as W3C has it.
fn unhex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_of_w3c() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let good = format!("00-{trace}-b7ad6b7169203331-01");
        let context = Context::parse(good.as_bytes()).unwrap();
        let Context { trace: id, span, flags } = context;
        assert_eq!((id[0], id[15], span[0], flags), (0x0a, 0x9c, 0xb7, 1));
        assert_eq!(context.text(), good.as_bytes());
        assert!(context.is_sampled());
        let unsampled = Context { flags: 0xfe, ..context };
        assert!(unsampled.text().ends_with(b"-00") && !unsampled.is_sampled());
        let newer = format!("01-{trace}-b7ad6b7169203331-01-more");
        assert!(Context::parse(newer.as_bytes()).is_some());
        for bad in [
            "".to_string(),
            "00".to_string(),
            good.to_uppercase(),
            format!("{good}-more"),
            format!("ff-{trace}-b7ad6b7169203331-01"),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{trace}-b7ad6b716920333-01"),
            format!("01-{trace}-b7ad6b7169203331-01x"),
            format!("00_{trace}-b7ad6b7169203331-01"),
        ] {
            assert!(Context::parse(bad.as_bytes()).is_none(), "{bad}");
        }
        for end in 0..good.len() {
            assert!(Context::parse(&good.as_bytes()[..end]).is_none());
        }
    }

    #[test]
    fn two_fields_say_nothing() {
        let good = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let field = (&b"Traceparent"[..], &good[..]);
        assert!(Context::of_fields([(&b"a"[..], &b"b"[..]), field].into_iter()).is_some());
        assert!(Context::of_fields([field, field].into_iter()).is_none());
    }
}
