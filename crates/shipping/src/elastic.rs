//! Elasticsearch's and OpenSearch's bulk interface: what is sent, and what of the answer says which document is there.
//!
//! A document is created under the event's own name: one that is there already (409) was sent before.

use crate::event::EventId;
use serde_json::Value;
use std::fmt::Write as _;

/// Of an answer's words, so many are told.
const REASON_MAX_CHARS: usize = 300;

/// Appends the two lines of a document.
pub fn push_document(out: &mut Vec<u8>, index: &str, id: EventId, json: &[u8]) {
    let mut line = String::with_capacity(128);
    // Writing into a string cannot fail. An index's name needs no escapes: the configuration is checked.
    let _ = write!(line, "{{\"create\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}");
    out.extend_from_slice(line.as_bytes());
    out.push(b'\n');
    out.extend_from_slice(json);
    out.push(b'\n');
}

/// What became of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Done,
    /// The receiver has too much to do.
    Again,
    /// For good, with its words.
    Refused(String),
}

/// What the answer to `expected` documents says of each.
///
/// # Errors
///
/// It is not an answer to that: nothing is known.
pub fn read_answer(body: &[u8], expected: usize) -> Result<Vec<Item>, String> {
    let answer: Value =
        serde_json::from_slice(body).map_err(|e| format!("the answer is no JSON: {e}"))?;
    let items = answer.get("items").and_then(Value::as_array);
    let items = items.ok_or_else(|| format!("the answer has no items: {}", reason(&answer)))?;
    if items.len() != expected {
        return Err(format!("the answer has {} items for {expected} documents", items.len()));
    }
    // What somebody has yet to put there is no fault of the documents.
    match items.iter().find_map(missing_pipeline) {
        Some(why) => Err(why),
        None => Ok(items.iter().map(item).collect()),
    }
}

fn missing_pipeline(item: &Value) -> Option<String> {
    let result = item.get("create").or_else(|| item.get("index")).unwrap_or(item);
    let why = result.get("error")?.get("reason")?.as_str()?;
    let is_it = why.starts_with("pipeline with id [") && why.ends_with("] does not exist");
    is_it.then(|| reason(result))
}

fn item(item: &Value) -> Item {
    let result = item.get("create").or_else(|| item.get("index")).unwrap_or(item);
    match result.get("status").and_then(Value::as_u64) {
        Some(200..=299 | 409) => Item::Done,
        Some(429 | 500..=599) => Item::Again,
        Some(status) => Item::Refused(format!("{status} {}", reason(result))),
        None => Item::Again,
    }
}

/// `type: reason` of an error, or the beginning of what there is.
pub fn reason(answer: &Value) -> String {
    let error = answer.get("error").unwrap_or(answer);
    let part = |name: &str| error.get(name).and_then(Value::as_str);
    let text = match (part("type"), part("reason")) {
        (Some(kind), Some(why)) => format!("{kind}: {why}"),
        (kind, why) => kind.or(why).map_or_else(|| error.to_string(), str::to_owned),
    };
    text.chars().take(REASON_MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Whether a name can be an index's or a data stream's.
pub fn is_index_name(name: &str) -> bool {
    let is_good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
    let begins = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.');
    begins && name.len() <= 200 && name.bytes().all(is_good)
}

/// Whether a name can be an ingest pipeline's, and stand in a URL as it is.
pub fn is_pipeline_name(name: &str) -> bool {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-_.~@:!$'()*,;".contains(&b);
    !name.is_empty() && name.len() <= 255 && name.bytes().all(is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_two_lines() {
        let mut out = Vec::new();
        push_document(
            &mut out,
            "logs-nginx.access-default",
            EventId { random: 1, segment: 2, at: 3 },
            b"{\"a\":1}",
        );
        let expected = "{\"create\":{\"_index\":\"logs-nginx.access-default\",\"_id\":\"0000000000000001-2-3\"}}\n{\"a\":1}\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn each_item_has_its_own_fate() {
        let body = br#"{"took":1,"errors":true,"items":[
            {"create":{"_id":"a","status":201}},
            {"create":{"_id":"b","status":409,"error":{"type":"version_conflict_engine_exception"}}},
            {"create":{"_id":"c","status":429,"error":{"type":"es_rejected_execution_exception"}}},
            {"create":{"_id":"d","status":400,"error":{"type":"mapper_parsing_exception","reason":"no\nnumber"}}},
            {"create":{"_id":"e","status":503}},
            {"create":{"_id":"f"}}]}"#;
        let refused = Item::Refused("400 mapper_parsing_exception: no number".into());
        let expected = [Item::Done, Item::Done, Item::Again, refused, Item::Again, Item::Again];
        assert_eq!(read_answer(body, 6).unwrap(), expected);
        assert!(read_answer(body, 5).is_err());
    }

    #[test]
    fn a_pipeline_that_is_not_there_yet_refuses_nothing() {
        let body =
            br#"{"items":[{"create":{"status":400,"error":{"type":"illegal_argument_exception",
            "reason":"pipeline with id [x] does not exist"}}}]}"#;
        let why = "illegal_argument_exception: pipeline with id [x] does not exist";
        assert_eq!(read_answer(body, 1), Err(why.to_owned()));
    }

    #[test]
    fn what_is_no_answer_says_nothing() {
        for body in [&b""[..], b"<html>", b"[]", b"{\"items\":3}", b"{\"error\":{\"type\":\"x\"}}"]
        {
            assert!(read_answer(body, 1).is_err());
        }
        let long =
            format!("{{\"error\":{{\"type\":\"t\",\"reason\":\"{}\"}}}}", "x".repeat(10_000));
        assert!(read_answer(long.as_bytes(), 1).unwrap_err().len() < 400);
    }

    #[test]
    fn names_of_indices() {
        assert!(is_index_name("logs-nginx.access-default") && is_index_name(".x"));
        for bad in ["", "A", "a\"b", "_a", "a/b", "-a", &"a".repeat(201)] {
            assert!(!is_index_name(bad), "{bad}");
        }
        assert!(is_pipeline_name("logs-nginx.access-1.25.0") && is_pipeline_name("_none"));
        for bad in ["", "a b", "a&b", "a%b", "a#", &"a".repeat(256)] {
            assert!(!is_pipeline_name(bad), "{bad}");
        }
    }
}
