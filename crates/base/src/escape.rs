//! Escaping and unescaping, byte for byte as nginx does it.

use crate::bytes::{hex_value, ByteSet, HEX_UPPER};

/// What the escaped text is for, which decides the bytes that are escaped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EscapeKind {
    /// A path: everything not allowed in a URI, and `#`, `%`, `?`.
    Uri,
    /// A query string: as `Uri`, and `&`, `+`, `;`.
    Args,
    /// One component: everything but letters, digits and `-._~`.
    UriComponent,
    /// A URI inside an HTML attribute: as `Uri` without `?`, and `'`.
    Html,
    /// A URI in a `Refresh` header or page: `#`, `%` and `?` pass.
    Refresh,
    /// Only what breaks a line or is not text at all.
    Controls,
    /// A memcached key: controls, space and `%`.
    Memcached,
    /// Values of the mail authentication protocol: the same as `Memcached`.
    MailAuth,
    /// SMTP xtext, escaped with `+` instead of `%`.
    MailXtext,
}

const CONTROL: ByteSet = ByteSet::EMPTY.with_range(0, 0x1f);
const CONTROLS: ByteSet = CONTROL.with_range(0x7f, 0x7f);
const NOT_IN_URI: ByteSet = CONTROL.with(b" \"<>\\^`{|}").with_range(0x7f, 0xff);
const URI: ByteSet = NOT_IN_URI.with(b"#%?");
const ARGS: ByteSet = URI.with(b"&+;");
const URI_COMPONENT: ByteSet = ByteSet::ALNUM.with(b"-._~").inverted();
const HTML: ByteSet = NOT_IN_URI.with(b"#%'");
// nginx leaves "}" out of this one and escapes "~".
const REFRESH: ByteSet = CONTROL.with(b" \"'<>\\^`{|~").with_range(0x7f, 0xff);
const MEMCACHED: ByteSet = CONTROL.with(b" %");
const MAIL_XTEXT: ByteSet = CONTROL.with(b" +=").with_range(0x7f, 0xff);
const LOG: ByteSet = CONTROL.with(b"\"\\").with_range(0x7f, 0xff);
const HTML_TEXT: ByteSet = ByteSet::of(b"<>&\"");
const JSON: ByteSet = CONTROL.with(b"\"\\");

impl EscapeKind {
    const fn set(self) -> &'static ByteSet {
        match self {
            EscapeKind::Uri => &URI,
            EscapeKind::Args => &ARGS,
            EscapeKind::UriComponent => &URI_COMPONENT,
            EscapeKind::Html => &HTML,
            EscapeKind::Refresh => &REFRESH,
            EscapeKind::Controls => &CONTROLS,
            EscapeKind::Memcached | EscapeKind::MailAuth => &MEMCACHED,
            EscapeKind::MailXtext => &MAIL_XTEXT,
        }
    }
}

/// Appends `src` with the bytes that `kind` does not allow as `%XX`.
pub fn escape_uri(out: &mut Vec<u8>, src: &[u8], kind: EscapeKind) {
    let prefix: &[u8] = if kind == EscapeKind::MailXtext { b"+" } else { b"%" };
    escape_with(out, src, kind.set(), |out, byte| {
        out.extend_from_slice(prefix);
        push_hex_upper(out, byte);
    });
}

/// Whether [`escape_uri`] would change anything.
pub fn needs_escape(src: &[u8], kind: EscapeKind) -> bool {
    kind.set().find(src).is_some()
}

/// Appends `src` for HTML text or an attribute in double quotes.
pub fn escape_html(out: &mut Vec<u8>, src: &[u8]) {
    escape_with(out, src, &HTML_TEXT, |out, byte| {
        out.extend_from_slice(match byte {
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'&' => b"&amp;",
            _ => b"&quot;",
        });
    });
}

/// Appends `src` for the inside of a JSON string; bytes above 0x7f pass as they are.
pub fn escape_json(out: &mut Vec<u8>, src: &[u8]) {
    escape_with(out, src, &JSON, |out, byte| match byte {
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0x08 => out.extend_from_slice(b"\\b"),
        0x0c => out.extend_from_slice(b"\\f"),
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        _ => {
            out.extend_from_slice(b"\\u00");
            push_hex_upper(out, byte);
        }
    });
}

/// Appends `src` as the access log's default format does: `\xXX` for controls, 0x7f and
/// above, `"` and `\`.
pub fn escape_log(out: &mut Vec<u8>, src: &[u8]) {
    escape_with(out, src, &LOG, |out, byte| {
        out.extend_from_slice(b"\\x");
        push_hex_upper(out, byte);
    });
}

/// Copies the runs between escaped bytes whole.
fn escape_with(out: &mut Vec<u8>, mut src: &[u8], set: &ByteSet, push: impl Fn(&mut Vec<u8>, u8)) {
    while let Some(at) = set.find(src) {
        out.extend_from_slice(&src[..at]);
        push(out, src[at]);
        src = &src[at + 1..];
    }
    out.extend_from_slice(src);
}

fn push_hex_upper(out: &mut Vec<u8>, byte: u8) {
    out.push(HEX_UPPER[usize::from(byte >> 4)]);
    out.push(HEX_UPPER[usize::from(byte & 15)]);
}

/// How far and how much [`unescape_uri`] decodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unescape {
    /// Everything.
    Plain,
    /// A URI: stops behind the first `?`, written plainly or as `%3F`.
    Uri,
    /// The target of a redirect: stops as `Uri`, and keeps escaped what must stay escaped
    /// (controls, space, `"#$%` and the upper half).
    Redirect,
}

/// Percent-decodes `src` onto `out`; returns how much of `src` was taken.
///
/// As in nginx a broken escape loses its `%` (`%zz` gives `zz`), `%4z` gives nothing, and
/// an escape cut off by the end is dropped.
pub fn unescape_uri(out: &mut Vec<u8>, src: &[u8], kind: Unescape) -> usize {
    let mut at = 0;
    while at < src.len() {
        let byte = src[at];
        at += 1;
        if byte != b'%' {
            out.push(byte);
            if byte == b'?' && kind != Unescape::Plain {
                return at;
            }
            continue;
        }
        let Some(&first) = src.get(at) else { return at };
        at += 1;
        let Some(high) = hex_value(first) else {
            out.push(first);
            continue;
        };
        let Some(&second) = src.get(at) else { return at };
        at += 1;
        let Some(low) = hex_value(second) else { continue };
        let decoded = high << 4 | low;
        if kind != Unescape::Plain && decoded == b'?' {
            out.push(decoded);
            return at;
        }
        if kind == Unescape::Redirect && !(decoded > b'%' && decoded < 0x7f) {
            out.extend_from_slice(&[b'%', first, second]);
        } else {
            out.push(decoded);
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nginx's bit tables, as numbers: the sets above must agree with them exactly.
    #[test]
    fn sets_agree_with_nginx() {
        const ALL: u32 = u32::MAX;
        for (kind, words) in [
            (EscapeKind::Uri, [ALL, 0xd000_002d, 0x5000_0000, 0xb800_0001, ALL]),
            (EscapeKind::Args, [ALL, 0xd800_086d, 0x5000_0000, 0xb800_0001, ALL]),
            (EscapeKind::UriComponent, [ALL, 0xfc00_9fff, 0x7800_0001, 0xb800_0001, ALL]),
            (EscapeKind::Html, [ALL, 0x5000_00ad, 0x5000_0000, 0xb800_0001, ALL]),
            (EscapeKind::Refresh, [ALL, 0x5000_0085, 0x5000_0000, 0xd800_0001, ALL]),
            (EscapeKind::Memcached, [ALL, 0x21, 0, 0, 0]),
            (EscapeKind::MailAuth, [ALL, 0x21, 0, 0, 0]),
            (EscapeKind::MailXtext, [ALL, 0x2000_0801, 0, 0x8000_0000, ALL]),
        ] {
            for byte in 0..=255u8 {
                let word = words[usize::from(byte >> 5).min(4)];
                let expected = word >> (byte & 31) & 1 == 1;
                assert_eq!(kind.set().contains(byte), expected, "{kind:?} {byte:#x}");
            }
        }
    }

    fn uri(text: &str, kind: EscapeKind) -> String {
        let mut out = Vec::new();
        escape_uri(&mut out, text.as_bytes(), kind);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escaping_uris() {
        assert_eq!(uri("/a b?c%é", EscapeKind::Uri), "/a%20b%3Fc%25%C3%A9");
        assert_eq!(uri("a&b+c;d", EscapeKind::Args), "a%26b%2Bc%3Bd");
        assert_eq!(uri("/a-b_c.d~e", EscapeKind::UriComponent), "%2Fa-b_c.d~e");
        assert_eq!(uri("a+b=c", EscapeKind::MailXtext), "a+2Bb+3Dc");
        assert!(needs_escape(b"a b", EscapeKind::Memcached));
        assert!(!needs_escape(b"a?b", EscapeKind::Memcached));
    }

    #[test]
    fn escaping_text() {
        let mut out = Vec::new();
        escape_html(&mut out, b"<a href=\"x&y\">'");
        assert_eq!(out, b"&lt;a href=&quot;x&amp;y&quot;&gt;'");
        out.clear();
        escape_json(&mut out, b"\"\\\n\r\t\x08\x0c\x01\x1f\x7f\xe9");
        assert_eq!(out, b"\\\"\\\\\\n\\r\\t\\b\\f\\u0001\\u001F\x7f\xe9");
        out.clear();
        escape_log(&mut out, b"a\"\\\x01\x7f\xff b");
        assert_eq!(out, b"a\\x22\\x5C\\x01\\x7F\\xFF b");
    }

    fn decoded(text: &str, kind: Unescape) -> (String, usize) {
        let mut out = Vec::new();
        let taken = unescape_uri(&mut out, text.as_bytes(), kind);
        (String::from_utf8(out).unwrap(), taken)
    }

    #[test]
    fn unescaping() {
        assert_eq!(decoded("a%20b%2fc?d%3F", Unescape::Plain), ("a b/c?d?".into(), 14));
        assert_eq!(decoded("a?b", Unescape::Uri), ("a?".into(), 2));
        assert_eq!(decoded("a%3fb", Unescape::Uri), ("a?".into(), 4));
        assert_eq!(decoded("%41%20%25%7f%26", Unescape::Redirect), ("A%20%25%7f&".into(), 15));
        assert_eq!(decoded("%3Fx", Unescape::Redirect), ("?".into(), 3));
        assert_eq!(decoded("%zz%4zx", Unescape::Plain), ("zzx".into(), 7));
        assert_eq!(decoded("a%", Unescape::Plain), ("a".into(), 2));
        assert_eq!(decoded("a%4", Unescape::Plain), ("a".into(), 3));
    }
}
