//! Events as log records (`ExportLogsServiceRequest`).
//!
//! A record's attributes are the event's fields under their ECS names, flat and with dots; its body is the event's message,
//! or what the request line was. `log.record.uid` is the event's id, by which a receiver may know what it has already.

use super::proto::Message;
use crate::field;
use serde_json::Value;
use weir_base::bytes::parse_hex_bytes;

/// Fields of fields are followed so far.
const DEPTH_MAX: usize = 16;
const NANOS_A_MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub id: &'a str,
    pub time_ms: u64,
    pub kind: &'a str,
    /// 0 (emergency) to 7 (debug), as syslog has them.
    pub severity: u8,
    pub json: &'a [u8],
}

/// A request with all records, of one resource.
pub fn request(records: &[Record<'_>], resource: &[(String, String)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(records.iter().map(|r| r.json.len() * 3 / 2 + 100).sum());
    envelope(&mut out, resource, |scope| {
        records.iter().for_each(|record| scope.message(2, |m| record.write(m)));
    });
    out
}

/// What logs, metrics and spans are in, alike: a resource, and in it one scope, this program.
pub(super) fn envelope(
    out: &mut Vec<u8>,
    attributes: &[(String, String)],
    fill: impl FnOnce(&mut Message<'_>),
) {
    Message::new(out).message(1, |of| {
        of.message(1, |r| resource(attributes, r));
        of.message(2, |scope| {
            scope.message(1, |s| {
                s.text(1, "weir");
                s.text(2, env!("CARGO_PKG_VERSION"));
            });
            fill(scope);
        });
    });
}

/// The attributes of a resource.
pub fn resource(attributes: &[(String, String)], m: &mut Message<'_>) {
    for (key, value) in attributes {
        m.message(1, |pair| {
            pair.text(1, key);
            pair.message(2, |v| v.text(1, value));
        });
    }
}

impl Record<'_> {
    fn write(&self, m: &mut Message<'_>) {
        let event = field::parse(self.json);
        let find = |name: &str| field::find(event.as_ref()?, name).and_then(field::text);
        m.fixed64(1, self.time_ms * NANOS_A_MS);
        let (number, text) = severity(self.severity);
        m.number(2, number);
        m.text(3, text);
        let body = find("message").or_else(|| request_line(&find)).unwrap_or_default();
        m.message(5, |v| v.text(1, &body));
        attribute("log.record.uid", &Value::String(self.id.to_owned()), m);
        match &event {
            Some(Value::Object(fields)) => flat(fields, "", DEPTH_MAX, m),
            // Never lost, even if it is not what it should be.
            _ => attribute("event.original", &Value::String(lossy(self.json)), m),
        }
        m.fixed64(11, self.time_ms * NANOS_A_MS);
        for (field, name, bytes) in [(9, "trace.id", 16), (10, "span.id", 8)] {
            let id = find(name).and_then(|text| parse_hex_bytes(text.as_bytes()));
            if let Some(id) = id.filter(|id| id.len() == bytes) {
                m.bytes(field, &id);
            }
        }
        m.text(12, self.kind);
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// "GET /a 200" of an access event.
fn request_line(find: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let method = find("http.request.method")?;
    let url = find("url.original").or_else(|| find("url.path")).unwrap_or_default();
    let status = find("http.response.status_code").unwrap_or_default();
    Some(format!("{method} {url} {status}").trim_end().to_owned())
}

/// The number and text of a severity.
fn severity(syslog: u8) -> (u64, &'static str) {
    match syslog {
        0 => (24, "EMERG"),
        1 => (22, "ALERT"),
        2 => (21, "CRIT"),
        3 => (17, "ERROR"),
        4 => (13, "WARN"),
        5 => (10, "NOTICE"),
        6 => (9, "INFO"),
        _ => (5, "DEBUG"),
    }
}

fn flat(fields: &serde_json::Map<String, Value>, before: &str, depth: usize, m: &mut Message<'_>) {
    for (name, value) in fields {
        let name = format!("{before}{name}");
        match value {
            Value::Null => {}
            Value::Object(inner) if depth > 0 => flat(inner, &format!("{name}."), depth - 1, m),
            value => attribute(&name, value, m),
        }
    }
}

/// An attribute of a record, or of a span: both are field 6 and 9 of theirs.
fn attribute(name: &str, value: &Value, m: &mut Message<'_>) {
    m.message(6, |pair| {
        pair.text(1, name);
        pair.message(2, |v| any(value, v));
    });
}

fn any(value: &Value, m: &mut Message<'_>) {
    match value {
        Value::String(text) => m.text(1, text),
        Value::Bool(is) => m.number(2, u64::from(*is)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => m.number(3, whole as u64),
            (None, Some(float)) => m.fixed64(4, float.to_bits()),
            (None, None) => m.text(1, &number.to_string()),
        },
        Value::Array(values) => m.message(5, |list| {
            for value in values {
                list.message(1, |v| any_plain(value, v));
            }
        }),
        Value::Null => {}
        Value::Object(_) => m.text(1, &value.to_string()),
    }
}

/// Lists in lists are text.
fn any_plain(value: &Value, m: &mut Message<'_>) {
    match value {
        Value::Array(_) => m.text(1, &value.to_string()),
        value => any(value, m),
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::{Field, Fields};
    use super::*;

    fn inner<'a>(bytes: &'a [u8], field: u32) -> Vec<&'a [u8]> {
        let of = |(n, f): (u32, Field<'a>)| match f {
            Field::Bytes(b) if n == field => Some(b),
            _ => None,
        };
        Fields::of(bytes).filter_map(of).collect()
    }

    /// The attributes of a record, values as the bytes of an AnyValue.
    fn attributes(record: &[u8]) -> Vec<(String, Vec<u8>)> {
        let pair = |bytes: &[u8]| (lossy(inner(bytes, 1)[0]), inner(bytes, 2)[0].to_vec());
        inner(record, 6).into_iter().map(pair).collect()
    }

    fn record(json: &str) -> Vec<u8> {
        let record =
            Record { id: "u1", time_ms: 5, kind: "access", severity: 6, json: json.as_bytes() };
        let bytes = request(&[record], &[("service.name".into(), "w".into())]);
        let logs = inner(&bytes, 1)[0];
        let scope = inner(logs, 2)[0];
        inner(scope, 2)[0].to_vec()
    }

    #[test]
    fn fields_are_attributes() {
        let bytes = record(
            r#"{"http":{"request":{"method":"GET"},"response":{"status_code":200}},
            "url":{"original":"/a?b"},"tags":["x"],"ok":true,"t":0.5,"none":null,
            "trace":{"id":"0102030405060708090a0b0c0d0e0f10"},"span":{"id":"zz"}}"#,
        );
        let found = attributes(&bytes);
        let of = |name: &str| {
            let found = found.iter().find(|(n, _)| n == name);
            Fields::of(&found.unwrap().1).map(|(n, _)| n).collect::<Vec<_>>()
        };
        assert_eq!(found[0], ("log.record.uid".to_owned(), b"\x0a\x02u1".to_vec()));
        assert_eq!(of("http.request.method"), [1]);
        assert_eq!(of("http.response.status_code"), [3]);
        assert_eq!(of("tags"), [5]);
        assert_eq!(of("ok"), [2]);
        assert_eq!(of("t"), [4]);
        assert!(found.iter().all(|(n, _)| n != "none"));
        assert_eq!(inner(&bytes, 5)[0], b"\x0a\x0cGET /a?b 200");
        assert_eq!(inner(&bytes, 9)[0][..2], [1, 2]);
        assert_eq!(inner(&bytes, 10).len(), 0, "no id of a span");
        assert_eq!(inner(&bytes, 12)[0], b"access");
        assert!(Fields::of(&bytes).any(|f| f == (1, Field::Number(5_000_000))));
        assert!(Fields::of(&bytes).any(|f| f == (2, Field::Number(9))));
    }

    #[test]
    fn messages_are_bodies_and_nothing_is_lost() {
        let bytes = record(r#"{"message":"it failed","http":{"request":{"method":"GET"}}}"#);
        assert_eq!(inner(&bytes, 5)[0], b"\x0a\x09it failed");
        let bytes = record("{broken");
        assert!(attributes(&bytes)
            .iter()
            .any(|(n, v)| n == "event.original" && v.ends_with(b"{broken")));
        let deep = format!("{}1{}", "{\"a\":".repeat(60), "}".repeat(60));
        let bytes = record(&deep);
        assert_eq!(attributes(&bytes).len(), 2);
    }
}
