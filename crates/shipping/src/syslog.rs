//! Events as syslog messages (RFC 5424), and how they follow each other on a stream (RFC 6587, RFC 5425).

use crate::shorter;
use std::fmt::Write;
use weir_base::date::Civil;

/// A datagram of IPv4 holds no more (65,535 less the heads of IP and UDP).
pub const DATAGRAM_MAX_BYTES: usize = 65_507;
/// RFC 5424's bounds, in characters.
const HOST_MAX: usize = 255;
const APP_MAX: usize = 48;
const PROCESS_MAX: usize = 128;
const KIND_MAX: usize = 32;
/// An SD-ID's.
pub const STRUCTURE_MAX: usize = 32;

pub const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv",
    "ftp", "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

/// How one message ends and the next begins on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// By its length before it. The only way over TLS (RFC 5425).
    #[default]
    Counted,
    /// By a line feed behind it.
    Line,
}

/// What all messages of a receiver begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub facility: u8,
    pub host: String,
    /// The tag.
    pub app: String,
    pub process: String,
    /// The name of the element that has the event's id: `name@number`.
    pub structure: String,
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// 0 (emergency) to 7 (debug).
    pub severity: u8,
    pub time_ms: u64,
    pub kind: &'a str,
    pub id: &'a str,
    pub text: &'a [u8],
}

/// Whether it may be the name of an element of structured data: `name@number`, printable.
pub fn is_structure(name: &str) -> bool {
    let Some((word, number)) = name.split_once('@') else { return false };
    let fits = name.len() <= STRUCTURE_MAX && !word.is_empty() && !number.is_empty();
    let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'=' | b']' | b'"' | b'@');
    fits && word.bytes().all(plain) && number.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

impl Head {
    /// One message without what frames it, of at most so many bytes: the text, JSON, has its longest values cut. One that
    /// does not fit all the same is written whole.
    pub fn write(&self, message: Message<'_>, most: usize, out: &mut Vec<u8>) {
        let mut head = String::with_capacity(200);
        let priority = u32::from(self.facility) * 8 + u32::from(message.severity.min(7));
        let time = Civil::from_unix((message.time_ms / 1000) as i64);
        // A String takes whatever is written to it.
        let _ = write!(
            head,
            "<{priority}>1 {:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z {} {} {} {} [{} id=\"{}\"] ",
            time.year,
            time.month,
            time.day,
            time.hour,
            time.min,
            time.sec,
            message.time_ms % 1000,
            name(&self.host, HOST_MAX),
            name(&self.app, APP_MAX),
            name(&self.process, PROCESS_MAX),
            name(message.kind, KIND_MAX),
            self.structure,
            quoted(message.id),
        );
        out.extend_from_slice(head.as_bytes());
        let short = shorter::json(message.text, most.saturating_sub(head.len()));
        // Where a line feed would end the message; JSON has none outside of its escapes.
        out.extend(short.iter().map(|b| if *b == b'\n' { b' ' } else { *b }));
    }

    /// One message on a stream.
    pub fn frame(&self, message: Message<'_>, most: usize, framing: Framing, out: &mut Vec<u8>) {
        match framing {
            Framing::Line => {
                self.write(message, most, out);
                out.push(b'\n');
            }
            Framing::Counted => {
                let mut text = Vec::with_capacity(message.text.len() + 256);
                self.write(message, most, &mut text);
                out.extend_from_slice(text.len().to_string().as_bytes());
                out.push(b' ');
                out.extend_from_slice(&text);
            }
        }
    }
}

/// A name of the head: printable, and `-` if it is none.
fn name(text: &str, most: usize) -> String {
    let name: String = text.chars().filter(char::is_ascii_graphic).take(most).collect();
    match name.is_empty() {
        true => "-".to_owned(),
        false => name,
    }
}

/// The value of a parameter of structured data.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace(']', "\\]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        Head {
            facility: 23,
            host: "my host".into(),
            app: "weir".into(),
            process: "12".into(),
            structure: "event@32473".into(),
        }
    }

    fn message(text: &[u8]) -> Message<'_> {
        Message { severity: 6, time_ms: 1_000_000_000_123, kind: "access", id: "a\"]1", text }
    }

    #[test]
    fn a_message() {
        let mut out = Vec::new();
        head().write(message(b"{\"a\":1}"), 8192, &mut out);
        let expected = "<190>1 2001-09-09T01:46:40.123Z myhost weir 12 access \
            [event@32473 id=\"a\\\"\\]1\"] {\"a\":1}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn messages_on_a_stream() {
        let mut out = Vec::new();
        head().frame(message(b"x"), 8192, Framing::Counted, &mut out);
        head().frame(message(b"yz"), 8192, Framing::Counted, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (len, rest) = text.split_once(' ').unwrap();
        let (first, rest) = rest.split_at(len.parse().unwrap());
        assert!(first.ends_with("] x"), "{first}");
        let (len, rest) = rest.split_once(' ').unwrap();
        assert!(rest.len() == len.parse::<usize>().unwrap() && rest.ends_with("] yz"), "{rest}");
        let mut out = Vec::new();
        head().frame(message(b"x\ny"), 8192, Framing::Line, &mut out);
        assert!(out.ends_with(b"] x y\n"), "{}", out.escape_ascii());
    }

    #[test]
    fn names_of_elements() {
        assert!(is_structure("event@32473") && is_structure("a@1.2"));
        for bad in ["", "event", "@1", "a@", "a b@1", "a]@1", "a@b", "a@1@2"] {
            assert!(!is_structure(bad), "{bad}");
        }
        assert!(!is_structure(&format!("{}@1", "x".repeat(31))));
    }
}
