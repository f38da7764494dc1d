//! Loki's push API: events as lines of streams, and what the answer says.
//!
//! Loki takes the same line of the same stream at the same time once, so a batch may be sent again. Lines that it will
//! not have (too old, too long, too far out of order) it names in an answer of 400, and keeps the others.

use crate::field;
use std::collections::BTreeMap;
use weir_base::escape::escape_json;

/// Of an answer so much is shown.
const SHOWN_MAX_CHARS: usize = 400;
/// Of an answer so much is looked through for how many lines it is about.
const COUNTED_MAX_BYTES: usize = 1 << 20;
/// A label's value that comes of an event is cut there.
const VALUE_MAX_BYTES: usize = 1024;

/// Where a label's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Text(String),
    /// A field of the event; without it the event has no such label.
    Field(String),
}

#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    pub time_ms: u64,
    pub json: &'a [u8],
}

/// Whether Loki takes it as a label's name.
pub fn is_label(name: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    name.bytes().all(word) && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

/// The body of a push (JSON): a stream for each set of labels, its lines in order of time.
pub fn push(lines: &[Line<'_>], labels: &[(String, Source)]) -> Vec<u8> {
    let from_fields = labels.iter().any(|(_, source)| matches!(source, Source::Field(_)));
    let mut streams: BTreeMap<Vec<u8>, Vec<Line<'_>>> = BTreeMap::new();
    for line in lines {
        let event = if from_fields { field::parse(line.json) } else { None };
        let value = |source: &Source| match source {
            Source::Text(text) => Some(text.clone()),
            Source::Field(name) => field::text(field::find(event.as_ref()?, name)?),
        };
        let mut key = Vec::new();
        for (name, value) in labels.iter().filter_map(|(n, s)| Some((n, value(s)?))) {
            key.push(if key.is_empty() { b'{' } else { b',' });
            text(name, &mut key);
            key.push(b':');
            text(cut(&value), &mut key);
        }
        streams.entry(key).or_default().push(*line);
    }
    let mut out = Vec::with_capacity(lines.iter().map(|l| l.json.len() * 5 / 4 + 40).sum());
    out.extend_from_slice(b"{\"streams\":[");
    for (n, (labels, mut lines)) in streams.into_iter().enumerate() {
        lines.sort_by_key(|line| line.time_ms);
        out.extend_from_slice(if n == 0 { b"{\"stream\":" } else { b",{\"stream\":" });
        out.extend_from_slice(if labels.is_empty() { b"{" } else { &labels });
        out.extend_from_slice(b"},\"values\":[");
        for (n, line) in lines.iter().enumerate() {
            out.extend_from_slice(if n == 0 { b"[\"" } else { b",[\"" });
            out.extend_from_slice(format!("{}000000\",\"", line.time_ms).as_bytes());
            escape_json(&mut out, &String::from_utf8_lossy(line.json).into_owned().into_bytes());
            out.extend_from_slice(b"\"]");
        }
        out.extend_from_slice(b"]}");
    }
    out.extend_from_slice(b"]}");
    out
}

fn text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escape_json(out, text.as_bytes());
    out.push(b'"');
}

/// What an answer means for the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All are there.
    Taken,
    /// So many were not taken, and will not be: the first of the reasons. The others are there.
    Refused(usize, String),
    /// The same again later.
    Later(String),
}

/// Judges an answer to a push of `count` lines.
pub fn verdict(status: u16, body: &[u8], count: usize) -> Verdict {
    let why = shown(body);
    match status {
        200..=299 => Verdict::Taken,
        // What is wrong with the batch stays wrong.
        400 | 413 | 422 => {
            let text = String::from_utf8_lossy(&body[..body.len().min(COUNTED_MAX_BYTES)]);
            Verdict::Refused(refused(&text).unwrap_or(count).min(count), why)
        }
        _ => Verdict::Later(format!("answered {status}: {why}")),
    }
}

/// How many lines an answer is about, in Loki's words, where it says so; the others are there. `None`: all of them, or nobody
/// knows.
fn refused(text: &str) -> Option<usize> {
    // Of what is wrong with times only the ingester knows: "…, total ignored: 2 out of 7".
    if let Some((_, rest)) = text.split_once("total ignored: ") {
        return rest.split(' ').next()?.parse().ok();
    }
    // "2 errors like: A; 1 errors like: B", and A alone where there is one.
    const LIKE: &str = " errors like: ";
    if !text.contains(LIKE) {
        return is_of_line(text).then_some(1);
    }
    let mut all = 0_usize;
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(LIKE) {
        let digits = before.rsplit(' ').next()?;
        if !is_of_line(behind) {
            return None;
        }
        all = all.saturating_add(digits.parse().ok()?);
        rest = behind;
    }
    Some(all)
}

/// Whether an error is about one line, not about a stream or the whole push.
fn is_of_line(error: &str) -> bool {
    ["max entry size ", "Max entry size ", "entry for stream "].iter().any(|w| error.starts_with(w))
}

/// Text of a stranger for the log: one line of bounded length.
pub fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_MAX_CHARS * 16)]);
    let words: Vec<&str> = text.split(|c: char| c.is_control() || c == ' ').collect();
    let line = words.into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ");
    let end = line.find("total ignored: ").filter(|at| *at > SHOWN_MAX_CHARS);
    let cut: String = line.chars().take(SHOWN_MAX_CHARS).collect();
    match end {
        Some(at) => format!("{cut} … {}", line[at..].chars().take(60).collect::<String>()),
        None => cut,
    }
}

/// As much of it as is told.
fn cut(value: &str) -> &str {
    let end = (0..=value.len().min(VALUE_MAX_BYTES)).rev().find(|at| value.is_char_boundary(*at));
    &value[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_by_labels() {
        let labels = [
            ("job".to_owned(), Source::Text("we\"ir".into())),
            ("host".to_owned(), Source::Field("url.domain".into())),
        ];
        let line = |time_ms, json: &'static [u8]| Line { time_ms, json };
        let lines = [
            line(2, br#"{"url":{"domain":"b"}}"#),
            line(3, br#"{"x":"\n"}"#),
            line(1, br#"{"url":{"domain":"b"},"n":1}"#),
        ];
        let body = String::from_utf8(push(&lines, &labels)).unwrap();
        let expected = concat!(
            r#"{"streams":[{"stream":{"job":"we\"ir"},"values":[["3000000","{\"x\":\"\\n\"}"]]},"#,
            r#"{"stream":{"job":"we\"ir","host":"b"},"values":["#,
            r#"["1000000","{\"url\":{\"domain\":\"b\"},\"n\":1}"],"#,
            r#"["2000000","{\"url\":{\"domain\":\"b\"}}"]]}]}"#
        );
        assert_eq!(body, expected);
    }

    #[test]
    fn answers() {
        assert_eq!(verdict(204, b"", 3), Verdict::Taken);
        let body = b"entry with timestamp 2026 ignored, reason: 'entry too far behind',\n\
            user 'fake', total ignored: 2 out of 3 for stream: {a=\"b\"}";
        assert!(
            matches!(verdict(400, body, 3), Verdict::Refused(2, why) if why.contains("too far"))
        );
        assert!(matches!(verdict(400, b"bad labels", 3), Verdict::Refused(3, _)));
        for status in [401, 404, 429, 500, 503, 302] {
            assert!(matches!(verdict(status, b"x", 3), Verdict::Later(_)), "{status}");
        }
        let long = [&b"y ".repeat(5000)[..], b" total ignored: 1 out of 2"].concat();
        assert!(shown(&long).len() < 1000);
        let long = [&b"y ".repeat(2500)[..], b" total ignored: 1 out of 2"].concat();
        assert!(matches!(verdict(400, &long, 3), Verdict::Refused(1, why) if why.len() < 1000));
    }

    /// As Loki 3.7 words them.
    #[test]
    fn how_many_lines_an_answer_is_about() {
        const LONG: &str = "max entry size '100' bytes exceeded for stream '{a=\"1\"}' while adding an entry with length '301' bytes";
        const OLD: &str = "entry for stream '{a=\"1\"}' has timestamp too old: 2026-10-24T21:43:09Z, oldest acceptable timestamp is: 2026-11-16T21:43:09Z";
        const LABEL: &str = "stream '{a=\"1\"}' has label name too long: 'x'";
        let many: String = (0..50).map(|_| format!("1 errors like: {LONG}; ")).collect();
        for (text, expected) in [
            (LONG.to_owned(), 1),
            (OLD.to_owned(), 1),
            (format!("2 errors like: {OLD}; 1 errors like: {LONG}\n"), 3),
            (many, 50),
            (LABEL.to_owned(), 90),
            (format!("1 errors like: {LABEL}; 1 errors like: {LONG}"), 90),
            ("error at least one label pair is required per stream".to_owned(), 90),
        ] {
            let Verdict::Refused(count, _) = verdict(400, text.as_bytes(), 90) else { panic!() };
            assert_eq!(count, expected, "{text}");
        }
    }

    #[test]
    fn names_of_labels() {
        assert!(is_label("job") && is_label("_a1"));
        assert!(!is_label("") && !is_label("1a") && !is_label("a-b"));
    }
}
