//! Which header fields go to the backend: compiled once.

use crate::ask::BodyLength;
use crate::cache::lookup::Condition;
use crate::cache::vars as cached;
use crate::hide::has_name;
use weir_base::bytes::fmt_u64;
use weir_base::line;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::module::{Getter, VarArg};
use weir_http::Request;
use weir_script::template::Template;
use weir_wire::http1::names::HeaderId;
use weir_wire::Range32;

/// One `proxy_set_header`.
#[derive(Clone, Debug)]
pub(crate) struct SetHeader {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Template,
}

#[derive(Debug)]
enum Line {
    /// Whole lines that never change.
    Text(Vec<u8>),
    /// `Name: ` and its value; left out when that is empty.
    Value {
        name: Vec<u8>,
        value: Template,
    },
    ContentLength,
    TransferEncoding,
    /// A value of our own.
    Own {
        name: &'static [u8],
        value: Getter,
    },
    /// What a stale answer is to be confirmed by, or what the configuration puts in its place.
    Condition {
        name: Vec<u8>,
        value: Condition,
        set: Option<Template>,
    },
}

/// The header of requests to a backend.
#[derive(Debug, Default)]
pub(crate) struct HeaderPlan {
    /// Instead of the backend's own name.
    host: Option<Template>,
    lines: Vec<Line>,
    /// Some of them are not about the body alone.
    has_own: bool,
    /// What the client sent under these names stays here.
    drop_ids: u64,
    drop_names: Vec<Vec<u8>>,
}

/// Names that end at this hop, or that this hop writes itself.
const OWN: [&[u8]; 9] = [
    b"Host",
    b"Connection",
    b"Proxy-Connection",
    b"Content-Length",
    b"Transfer-Encoding",
    b"TE",
    b"Keep-Alive",
    b"Expect",
    b"Upgrade",
];

/// Of a request whose answer may be kept: conditions and ranges are not the client's.
const OWN_CACHED: [&[u8]; 6] = [
    b"If-Modified-Since",
    b"If-Unmodified-Since",
    b"If-None-Match",
    b"If-Match",
    b"Range",
    b"If-Range",
];

const CONDITIONS: [(&[u8], Condition); 2] =
    [(b"If-Modified-Since", Condition::LastModified), (b"If-None-Match", Condition::Etag)];

impl SetHeader {
    fn is(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

impl HeaderPlan {
    /// The plan for a request whose answer may be kept; `parts`: so may be a part of it.
    pub(crate) fn for_cache(set: &[SetHeader], parts: bool) -> HeaderPlan {
        let is_condition = |h: &&SetHeader| CONDITIONS.iter().any(|(name, _)| h.is(name));
        let others: Vec<_> = set.iter().filter(|h| !is_condition(h)).cloned().collect();
        let mut plan = HeaderPlan::new(&others);
        for name in OWN_CACHED {
            plan.drop(name);
        }
        for (name, value) in CONDITIONS {
            let mut given = set.iter().filter(|h| h.is(name)).peekable();
            if given.peek().is_none() {
                let name = [name, &b": "[..]].concat();
                plan.push(Line::Condition { name, value, set: None });
            }
            for h in given {
                let name = [&h.name, &b": "[..]].concat();
                plan.push(Line::Condition { name, value, set: Some(h.value.clone()) });
            }
        }
        if parts {
            plan.push(Line::Own { name: b"Range: ", value: cached::range });
            plan.push(Line::Own { name: b"If-Range: ", value: cached::if_range });
        }
        plan
    }

    /// The plan with a `TE` of our own, unless one is set.
    pub(crate) fn with_te(set: &[SetHeader], value: Getter) -> HeaderPlan {
        let mut plan = HeaderPlan::new(set);
        if !set.iter().any(|h| h.name.eq_ignore_ascii_case(b"TE")) {
            plan.push(Line::Own { name: b"TE: ", value });
        }
        plan
    }

    pub(crate) fn new(set: &[SetHeader]) -> HeaderPlan {
        let mut plan = HeaderPlan::default();
        for name in OWN {
            plan.drop(name);
        }
        for h in set {
            plan.drop(&h.name);
            if h.name.eq_ignore_ascii_case(b"Host") {
                plan.host = Some(h.value.clone());
                continue;
            }
            let name = [&h.name, &b": "[..]].concat();
            match h.value.as_constant() {
                Some(b"") => {}
                Some(text) => plan.text(&[&name, text, b"\r\n"].concat()),
                None => plan.push(Line::Value { name, value: h.value.clone() }),
            }
        }
        let given = |name: &[u8]| set.iter().any(|h| h.name.eq_ignore_ascii_case(name));
        if !given(b"Content-Length") {
            plan.push(Line::ContentLength);
        }
        if !given(b"Transfer-Encoding") {
            plan.push(Line::TransferEncoding);
        }
        plan
    }

    /// The configuration says what the server is called.
    pub(crate) fn sets_host(&self) -> bool {
        self.host.is_some()
    }

    fn drop(&mut self, name: &[u8]) {
        match HeaderId::of(name) {
            HeaderId::Other => self.drop_names.push(name.to_ascii_lowercase()),
            id => self.drop_ids |= id.bit(),
        }
    }

    fn push(&mut self, line: Line) {
        self.has_own |= !matches!(line, Line::ContentLength | Line::TransferEncoding);
        self.lines.push(line);
    }

    fn text(&mut self, line: &[u8]) {
        match self.lines.last_mut() {
            Some(Line::Text(t)) => t.extend_from_slice(line),
            _ => self.push(Line::Text(line.to_vec())),
        }
    }

    /// The `Host` line: what was set, or the backend's own name.
    pub(crate) fn write_host(&self, r: &mut Request, own: &[u8], needed: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(b"Host: ");
        let value = out.len();
        match &self.host {
            Some(t) => eval_line(r, t, out),
            None => out.extend_from_slice(own),
        }
        if out.len() == value && needed {
            out.extend_from_slice(own);
        }
        match out.len() == value {
            true => out.truncate(start),
            false => out.extend_from_slice(b"\r\n"),
        }
    }

    /// The lines that the configuration sets.
    #[inline(always)]
    pub(crate) fn write_lines(&self, r: &mut Request, length: BodyLength, out: &mut Vec<u8>) {
        if self.has_own || length != BodyLength::None {
            self.write_each(r, length, out);
        }
    }

    #[inline(never)]
    fn write_each(&self, r: &mut Request, length: BodyLength, out: &mut Vec<u8>) {
        for line in &self.lines {
            match line {
                Line::Text(t) => out.extend_from_slice(t),
                Line::Value { name, value } => {
                    let start = out.len();
                    out.extend_from_slice(name);
                    eval_line(r, value, out);
                    match out.len() == start + name.len() {
                        true => out.truncate(start),
                        false => out.extend_from_slice(b"\r\n"),
                    }
                }
                Line::ContentLength => {
                    if let BodyLength::Known(n) = length {
                        out.extend_from_slice(b"Content-Length: ");
                        fmt_u64(out, n);
                        out.extend_from_slice(b"\r\n");
                    }
                }
                Line::Own { name, value } => {
                    let start = out.len();
                    out.extend_from_slice(name);
                    match value(r, &VarArg::default(), out) {
                        true => out.extend_from_slice(b"\r\n"),
                        false => out.truncate(start),
                    }
                }
                Line::Condition { name, value, set } => {
                    write_condition(r, name, *value, set.as_ref(), out);
                }
                Line::TransferEncoding => {
                    if length == BodyLength::Chunked {
                        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
                    }
                }
            }
        }
    }

    /// The client's own fields, but for those that the plan replaces. Lines that stand as they are to be and
    /// follow one another go as one piece.
    pub(crate) fn write_client(&self, r: &Request, out: &mut Vec<u8>) {
        let buf = &r.buf;
        let mut piece = Range32::EMPTY;
        for h in &r.head.headers {
            let is_dropped = match h.id {
                HeaderId::Other => has_name(&self.drop_names, h.name.of(buf)),
                id => self.drop_ids & id.bit() != 0,
            };
            if is_dropped {
                continue;
            }
            let is_plain = h.name.end + 2 == h.value.start
                && has_pair(buf, h.name.end, b": ")
                && has_pair(buf, h.value.end, b"\r\n");
            if !is_plain || piece.end != h.name.start {
                write_piece(piece, buf, out);
                piece = Range32 { start: h.name.start, end: h.name.start };
            }
            match is_plain {
                true => piece.end = h.value.end + 2,
                false => write_line(h.name.of(buf), h.value.of(buf), out),
            }
        }
        write_piece(piece, buf, out);
    }
}

/// Apart, so that what goes over the fields stays small.
#[inline(never)]
fn write_piece(piece: Range32, buf: &[u8], out: &mut Vec<u8>) {
    if !piece.is_empty() {
        out.extend_from_slice(piece.of(buf));
    }
}

#[inline(never)]
fn write_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

#[inline(always)]
fn has_pair(buf: &[u8], at: u32, pair: &[u8; 2]) -> bool {
    buf.get(at as usize..).and_then(|rest| rest.first_chunk()) == Some(pair)
}

fn write_condition(
    r: &mut Request,
    name: &[u8],
    value: Condition,
    set: Option<&Template>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.extend_from_slice(name);
    let from = out.len();
    match set {
        Some(template) => eval_line(r, template, out),
        None => {
            let own = match value {
                Condition::Etag => cached::etag,
                Condition::LastModified => cached::last_modified,
            };
            own(r, &VarArg::default(), out);
        }
    }
    if out.len() == from {
        return out.truncate(start);
    }
    value.sent(r, &out[from..]);
    out.extend_from_slice(b"\r\n");
}

/// Evaluates onto `out` what must stay one line, whatever a variable brings along.
fn eval_line(r: &mut Request, value: &Template, out: &mut Vec<u8>) {
    let start = out.len();
    r.eval_into(value, out);
    if line::is_broken(&out[start..]) {
        line::blank_breaks(&mut out[start..]);
        let is_grpc = r.exchange.scheme.is_some_and(|s| s.starts_with("grpc"));
        let family = if is_grpc { "grpc" } else { "proxy" };
        let by = format!("\"{family}_set_header\"");
        r.log(LogLevel::Error, &format!("a variable in {by} held line ends, which were taken out"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> SetHeader {
        SetHeader { name: name.into(), value: Template::constant(value.as_bytes()) }
    }

    #[test]
    fn constant_lines_are_one_text_and_empty_ones_none() {
        let plan = HeaderPlan::new(&[set("A", "1"), set("B", ""), set("C", "2"), set("te", "x")]);
        assert!(matches!(&plan.lines[0], Line::Text(t) if t == b"A: 1\r\nC: 2\r\nte: x\r\n"));
        assert!(matches!(plan.lines[1..], [Line::ContentLength, Line::TransferEncoding]));
        assert!(has_name(&plan.drop_names, b"b"));
        for id in [HeaderId::Host, HeaderId::Te, HeaderId::Upgrade, HeaderId::Expect] {
            assert!(plan.drop_ids & id.bit() != 0);
        }
        assert_eq!(plan.drop_ids & HeaderId::Cookie.bit(), 0);
    }
}
