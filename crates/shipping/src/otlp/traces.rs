//! Spans of requests (`ExportTraceServiceRequest`), as nginx's OpenTelemetry module fills them.
//!
//! A span is written as the field that it is of its scope, so that a batch is spans one behind the other. Text that comes
//! from outside is cut, and what is no UTF-8 in it is replaced: receivers refuse a whole batch for one such text.

use super::logs::envelope;
use super::proto::Message;
use std::borrow::Cow;

/// Of one value, and of a span's name.
pub const VALUE_MAX_BYTES: usize = 4096;
/// W3C: of a longer list a part may be left out; whoever sends one gets none of it.
pub const STATE_MAX_BYTES: usize = 4096;
const SERVER: u64 = 2;
const ERROR: u64 = 2;

/// What a span is of.
pub struct Head<'a> {
    pub trace: &'a [u8; 16],
    pub span: &'a [u8; 8],
    pub parent: Option<&'a [u8; 8]>,
    /// `tracestate`
    pub state: &'a [u8],
    pub name: &'a [u8],
    /// Microseconds since 1970.
    pub began_us: u64,
    pub ended_us: u64,
    pub is_error: bool,
}

/// Writes a span at the end of `out`; `fill` adds its attributes.
pub fn span(out: &mut Vec<u8>, head: &Head<'_>, fill: impl FnOnce(&mut Attributes<'_, '_>)) {
    Message::new(out).message(2, |m| {
        m.bytes(1, head.trace);
        m.bytes(2, head.span);
        if !head.state.is_empty() && head.state.len() <= STATE_MAX_BYTES {
            m.text(3, &shown(head.state));
        }
        if let Some(parent) = head.parent {
            m.bytes(4, parent);
        }
        m.text(5, &shown(head.name));
        m.number(6, SERVER);
        m.fixed64(7, head.began_us * 1000);
        m.fixed64(8, head.ended_us * 1000);
        fill(&mut Attributes(m));
        if head.is_error {
            m.message(15, |status| status.number(3, ERROR));
        }
    });
}

/// A span's, one after the other.
pub struct Attributes<'a, 'm>(&'a mut Message<'m>);

impl Attributes<'_, '_> {
    pub fn text(&mut self, name: &str, value: &[u8]) {
        self.pair(name, |v| v.text(1, &shown(value)));
    }

    pub fn number(&mut self, name: &str, value: u64) {
        self.pair(name, |v| v.number(3, value));
    }

    /// A list of one text.
    pub fn list(&mut self, name: &str, value: &[u8]) {
        self.pair(name, |v| v.message(5, |list| list.message(1, |v| v.text(1, &shown(value)))));
    }

    fn pair(&mut self, name: &str, write: impl FnOnce(&mut Message<'_>)) {
        self.0.message(9, |pair| {
            pair.text(1, name);
            pair.message(2, write);
        });
    }
}

fn shown(value: &[u8]) -> Cow<'_, str> {
    match value.len() > VALUE_MAX_BYTES {
        true => {
            let text = String::from_utf8_lossy(&value[..VALUE_MAX_BYTES]);
            // What was cut in the middle.
            Cow::Owned(text.trim_end_matches('\u{fffd}').to_owned())
        }
        false => String::from_utf8_lossy(value),
    }
}

/// A request with spans as [`span`] has written them.
pub fn request(spans: &[u8], attributes: &[(String, String)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(spans.len() + 512);
    envelope(&mut out, attributes, |scope| scope.raw(spans));
    out
}

#[cfg(test)]
mod tests {
    use super::super::proto::found::{bytes, number};
    use super::*;

    #[test]
    fn a_batch_is_spans_one_behind_the_other() {
        let (trace, id, parent) = ([1; 16], [2; 8], [3; 8]);
        let head = |name: &'static [u8], parent, is_error| Head {
            trace: &trace,
            span: &id,
            parent,
            state: b"a=b",
            name,
            began_us: 5,
            ended_us: 7,
            is_error,
        };
        let mut spans = Vec::new();
        span(&mut spans, &head(b"/a", Some(&parent), true), |a| {
            a.text("http.method", b"GET");
            a.number("http.status_code", 500);
            a.list("http.request.header.x", b"y");
        });
        span(&mut spans, &head(b"/\xff", None, false), |_| ());
        let message = request(&spans, &[("service.name".into(), "s".into())]);
        let of = bytes(&message, 1)[0];
        assert_eq!(bytes(bytes(bytes(of, 1)[0], 1)[0], 1), [b"service.name"]);
        let scope = bytes(of, 2)[0];
        assert_eq!(bytes(bytes(scope, 1)[0], 1), [b"weir"]);
        let all = bytes(scope, 2);
        assert_eq!(all.len(), 2);
        let first = all[0];
        assert_eq!(
            (bytes(first, 1), bytes(first, 2), bytes(first, 4)),
            (vec![&trace[..]], vec![&id[..]], vec![&parent[..]])
        );
        assert_eq!((bytes(first, 3), bytes(first, 5)), (vec![&b"a=b"[..]], vec![&b"/a"[..]]));
        assert_eq!(
            (number(first, 6), number(first, 7), number(first, 8)),
            (Some(2), Some(5000), Some(7000))
        );
        assert_eq!(number(bytes(first, 15)[0], 3), Some(2));
        let attributes = bytes(first, 9);
        assert_eq!(bytes(attributes[0], 1), [b"http.method"]);
        assert_eq!(bytes(bytes(attributes[0], 2)[0], 1), [b"GET"]);
        assert_eq!(number(bytes(attributes[1], 2)[0], 3), Some(500));
        let list = bytes(bytes(attributes[2], 2)[0], 5)[0];
        assert_eq!(bytes(bytes(list, 1)[0], 1), [b"y"]);
        assert_eq!(bytes(all[1], 5), ["/\u{fffd}".as_bytes()]);
        assert!(bytes(all[1], 4).is_empty() && bytes(all[1], 15).is_empty());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "\u{e9}".repeat(VALUE_MAX_BYTES);
        let text = shown(&long.as_bytes()[1..]);
        assert!(text.len() <= VALUE_MAX_BYTES + 3 && text.ends_with('\u{e9}'), "{}", text.len());
    }
}
