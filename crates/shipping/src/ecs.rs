//! Events as documents of the Elastic Common Schema, with the names that filebeat's nginx module gives to what it
//! reads in nginx's logs, so that dashboards and queries made for that find the same here.
//!
//! A document is made in a buffer that is used again; what of it is the same for all events of a receiver (host, data
//! stream) is a text that stands at its end ([`Tail`]).

mod access;
mod error;
mod session;

pub use access::{Access, Tls, Upstream};
pub use error::{severity, ErrorLine};
pub use session::{Session, Went};

use weir_base::bytes::fmt_u64;

/// Of texts that anybody may make long, so many bytes are shown.
pub const TEXT_MAX_BYTES: usize = 8 * 1024;
/// The version of the schema whose fields these are.
const ECS_VERSION: &str = "8.11.0";

/// What ends each document of one kind for one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail(Box<[u8]>);

impl Tail {
    /// `dataset` is `nginx.access` and the like, `stream` is `logs` or `metrics`.
    pub fn new(stream: &str, dataset: &str, namespace: &str, host: &str) -> Tail {
        let mut out = Vec::new();
        out.extend_from_slice(b",\"data_stream\":{\"type\":");
        push_text(&mut out, stream.as_bytes());
        out.extend_from_slice(b",\"dataset\":");
        push_text(&mut out, dataset.as_bytes());
        out.extend_from_slice(b",\"namespace\":");
        push_text(&mut out, namespace.as_bytes());
        out.extend_from_slice(b"},\"host\":{\"name\":");
        push_text(&mut out, host.as_bytes());
        out.extend_from_slice(b"},\"service\":{\"type\":\"nginx\"},\"agent\":{\"type\":\"weir\"},\"ecs\":{\"version\":\"");
        out.extend_from_slice(ECS_VERSION.as_bytes());
        out.extend_from_slice(b"\"}}");
        Tail(out.into())
    }

    /// Ends a document.
    pub fn push(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

/// A string of JSON. Bytes that are no UTF-8 are replaced: receivers refuse documents that have them.
pub fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(TEXT_MAX_BYTES)];
    out.push(b'"');
    // One look at each byte, without a branch for each.
    let is_odd = |b: &u8| *b < b' ' || *b >= 0x7f || *b == b'"' || *b == b'\\';
    match text.iter().fold(false, |odd, b| odd | is_odd(b)) {
        false => out.extend_from_slice(text),
        true => push_odd(out, text),
    }
    out.push(b'"');
}

#[inline(never)]
fn push_odd(out: &mut Vec<u8>, text: &[u8]) {
    // Escaped it is no longer either.
    let end = out.len() + TEXT_MAX_BYTES;
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            if out.len() >= end {
                return;
            }
            match c {
                '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
                '\0'..='\x1f' | '\x7f' => {
                    const HEX: &[u8; 16] = b"0123456789abcdef";
                    let n = c as usize;
                    out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[n >> 4], HEX[n & 15]]);
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() && out.len() < end {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

/// `lead` is what stands before the value: names, colons, and the comma of who went before.
fn text(out: &mut Vec<u8>, lead: &[u8], value: &[u8]) {
    out.extend_from_slice(lead);
    push_text(out, value);
}

/// The same for a value that may not be there.
fn text_if_any(out: &mut Vec<u8>, lead: &[u8], value: &[u8]) {
    if !value.is_empty() {
        text(out, lead, value);
    }
}

/// As Elastic's integration of nginx has it: by what is asked for in all kinds of events. What is empty, or no IP address, is
/// left out.
fn related(out: &mut Vec<u8>, addresses: [&[u8]; 2], user: &[u8]) {
    let is_ip = |a: &&[u8]| !a.is_empty() && !a.starts_with(b"unix:");
    let [first, second] = addresses;
    let second = Some(second).filter(|second| *second != first);
    let mut lead: &[u8] = b",\"related\":{\"ip\":[";
    for address in [Some(first), second].into_iter().flatten().filter(is_ip) {
        text(out, lead, address);
        lead = b",";
    }
    let has_ip = lead == b",";
    if has_ip {
        out.push(b']');
    }
    if !user.is_empty() {
        text(out, if has_ip { b",\"user\":[" } else { b",\"related\":{\"user\":[" }, user);
        out.push(b']');
    }
    if has_ip || !user.is_empty() {
        out.push(b'}');
    }
}

fn number(out: &mut Vec<u8>, lead: &[u8], value: u64) {
    out.extend_from_slice(lead);
    fmt_u64(out, value);
}

/// What `docs/events.md` says of documents.
#[cfg(test)]
pub(crate) mod page {
    use serde_json::Value;
    use std::collections::BTreeSet;

    const PAGE: &str = include_str!("../../../docs/events.md");

    fn leaves(value: &Value, path: &str, out: &mut BTreeSet<String>) {
        match value {
            Value::Object(all) => all.iter().for_each(|(name, inner)| {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(inner, &format!("{path}{dot}{name}"), out);
            }),
            _ => {
                out.insert(path.to_owned());
            }
        }
    }

    /// All words in backquotes of what is no heading and no variable.
    fn named(part: &str) -> BTreeSet<String> {
        let lines =
            part.lines().filter(|line| line.starts_with('|') || line.starts_with("All events"));
        let cells =
            lines.map(|l| l.strip_prefix('|').map_or(l, |l| l.split('|').next().unwrap_or(l)));
        cells
            .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned))
            .filter(|word| word.contains('.') || ["message", "@timestamp"].contains(&&word[..]))
            .collect()
    }

    /// A document that has all fields has those of the section whose heading names the dataset, and no others.
    pub fn agrees(doc: &Value) {
        let dataset = doc["event"]["dataset"].as_str().unwrap();
        let mut sections = PAGE.split("\n## ");
        let of_all = named(sections.next().unwrap());
        let section =
            sections.find(|s| s.lines().next().unwrap().contains(&format!("`{dataset}`")));
        let mut told = named(section.unwrap());
        told.extend(of_all);
        let mut has = BTreeSet::new();
        leaves(doc, "", &mut has);
        assert_eq!(has, told, "{dataset}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_what_json_has() {
        for (text, expected) in [
            (&b"plain /a?b=c"[..], "\"plain /a?b=c\""),
            (b"a\"b\\c", "\"a\\\"b\\\\c\""),
            (b"a\nb\x7f\x00", "\"a\\u000ab\\u007f\\u0000\""),
            ("\u{e4}\u{1f600}".as_bytes(), "\"\u{e4}\u{1f600}\""),
            (b"a\xffb\xe4", "\"a\u{fffd}b\u{fffd}\""),
        ] {
            let mut out = Vec::new();
            push_text(&mut out, text);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let mut out = Vec::new();
        push_text(&mut out, &[b'x'; TEXT_MAX_BYTES + 1]);
        assert_eq!(out.len(), TEXT_MAX_BYTES + 2);
        out.clear();
        push_text(&mut out, &[1; TEXT_MAX_BYTES]);
        assert!((TEXT_MAX_BYTES..TEXT_MAX_BYTES + 10).contains(&out.len()));
    }

    #[test]
    fn a_tail_ends_a_document() {
        let mut out = b"{\"a\":1".to_vec();
        Tail::new("logs", "nginx.access", "default", "h\"1").push(&mut out);
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(read["data_stream"]["dataset"], "nginx.access");
        assert_eq!((&read["host"]["name"], &read["a"]), (&"h\"1".into(), &1.into()));
    }
}
