//! What the tests of POP3 and SMTP share.

use super::lines::{Reader, Verb};
use super::*;

fn shown<T>(verdict: Verdict<T>, good: impl FnOnce(T) -> String) -> String {
    match verdict {
        Verdict::Good(found) => good(found),
        Verdict::Invalid { hides_literal } => {
            assert!(!hides_literal);
            "invalid".into()
        }
        Verdict::TooLong => "too long".into(),
    }
}

fn args(reader: &Reader, buf: &[u8]) -> String {
    let show = |arg: &crate::Range32| format!("|{}", String::from_utf8_lossy(arg.of(buf)));
    reader.args().iter().map(show).collect()
}

/// Every command of a text, with its arguments.
pub fn commands<V: Verb + fmt::Debug>(text: &str, max: usize) -> String {
    let mut reader = Reader::new(max);
    let mut buf = text.as_bytes();
    let mut out = Vec::new();
    loop {
        let Progress::Done { len, verdict } = reader.command::<V>(buf) else {
            if !buf.is_empty() || out.is_empty() {
                out.push("more".to_owned());
            }
            return out.join(";");
        };
        out.push(shown(verdict, |verb| format!("{verb:?}{}", args(&reader, buf))));
        if matches!(verdict, Verdict::TooLong) {
            return out.join(";");
        }
        buf = &buf[len..];
    }
}

/// The one response of a text.
pub fn responses<V: Verb>(text: &str) -> String {
    let mut reader = Reader::new(128);
    match reader.response::<V>(text.as_bytes()) {
        Progress::Done { len, verdict } => {
            assert_eq!(len, text.len());
            shown(verdict, |()| args(&reader, text.as_bytes()))
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn words_for_the_log() {
    for (notice, text) in [
        (Notice::TooLong(b"abc".to_vec()), "client sent too long command \"abc\""),
        (
            Notice::InvalidBase64("LOGIN"),
            "client sent invalid base64 encoding in AUTH LOGIN command",
        ),
        (Notice::Rejected(b"MAIL\r\n".to_vec()), "client was rejected: \"MAIL__\""),
    ] {
        assert_eq!(notice.to_string(), text);
    }
}
