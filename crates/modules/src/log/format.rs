//! A log format as operations. Hot: run once per request and log.

use weir_base::bytes::fmt_u64;
use weir_base::escape::{escape_json, escape_log};
use weir_core::common::{push_msec, push_seconds, push_time_iso8601, push_time_local};
use weir_core::eval::with_scratch;
use weir_core::Session;
use weir_http::core_vars::shown_status;
use weir_http::vars::registry;
use weir_http::Request;
use weir_module::{ArgsExt, Cf, ConfResult, Directive};
use weir_script::template::VarId;

const COMBINED: &[u8] = b"$remote_addr - $remote_user [$time_local] \"$request\" $status \
$body_bytes_sent \"$http_referer\" \"$http_user_agent\"";

pub struct Format {
    pub name: Vec<u8>,
    ops: Vec<Op>,
    escape: Escape,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Escape {
    Default,
    Json,
    None,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Op {
    Text(Box<[u8]>),
    Pipe,
    TimeLocal,
    TimeIso8601,
    Msec,
    RequestTime,
    Status,
    BytesSent,
    BodyBytesSent,
    RequestLength,
    Var(VarId),
}

/// Variables that have an operation of their own.
fn own_op(name: &[u8]) -> Option<Op> {
    Some(match name {
        b"pipe" => Op::Pipe,
        b"time_local" => Op::TimeLocal,
        b"time_iso8601" => Op::TimeIso8601,
        b"msec" => Op::Msec,
        b"request_time" => Op::RequestTime,
        b"status" => Op::Status,
        b"bytes_sent" => Op::BytesSent,
        b"body_bytes_sent" => Op::BodyBytesSent,
        b"request_length" => Op::RequestLength,
        _ => return None,
    })
}

/// Appends a value escaped.
type Append = fn(&mut Vec<u8>, &[u8]);
type Resolve<'a> = &'a mut dyn FnMut(&[u8]) -> VarId;

/// Appends one argument's operations; errors in nginx's words.
fn compile(text: &[u8], resolve: Resolve<'_>, ops: &mut Vec<Op>) -> Result<(), String> {
    let mut rest = text;
    while !rest.is_empty() {
        let Some(reference) = rest.strip_prefix(b"$") else {
            let end = rest.iter().position(|b| *b == b'$').unwrap_or(rest.len());
            ops.push(Op::Text(rest[..end].into()));
            rest = &rest[end..];
            continue;
        };
        let bracketed = reference.strip_prefix(b"{");
        let named = bracketed.unwrap_or(reference);
        let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        let len = named.iter().take_while(|b| is_name(b)).count();
        let name = &named[..len];
        if bracketed.is_some() && !named.is_empty() && named.get(len) != Some(&b'}') {
            let shown = String::from_utf8_lossy(name);
            return Err(format!("the closing bracket in \"{shown}\" variable is missing"));
        }
        if name.is_empty() {
            return Err(format!("invalid parameter \"{}\"", String::from_utf8_lossy(rest)));
        }
        ops.push(own_op(name).unwrap_or_else(|| Op::Var(resolve(name))));
        rest = &named[len + usize::from(bracketed.is_some())..];
    }
    Ok(())
}

impl Format {
    pub fn combined(resolve: Resolve<'_>) -> Format {
        let mut ops = Vec::new();
        let compiled = compile(COMBINED, resolve, &mut ops);
        debug_assert_eq!(compiled, Ok(()));
        Format { name: b"combined".to_vec(), ops, escape: Escape::Default }
    }

    /// `log_format name [escape=…] strings…`
    pub fn read(cf: &mut Cf, d: &Directive) -> ConfResult<Format> {
        let mut escape = Escape::Default;
        let mut first = 1;
        if let Some(how) = d.keyed(1, "escape") {
            first = 2;
            escape = match how {
                b"default" => Escape::Default,
                b"json" => Escape::Json,
                b"none" => Escape::None,
                _ => {
                    let shown = String::from_utf8_lossy(how).into_owned();
                    return Err(d.bad(1, format!("unknown log format escaping \"{shown}\"")));
                }
            };
        }
        let mut ops = Vec::new();
        for i in first..d.args.len() {
            let vars = registry(cf);
            compile(d.arg(i), &mut |name| vars.number(name), &mut ops).map_err(|e| d.bad(i, e))?;
        }
        Ok(Format { name: d.arg(0).to_vec(), ops, escape })
    }

    /// Appends the line, without its end.
    pub fn write(&self, r: &mut Request, out: &mut Vec<u8>) {
        for op in &self.ops {
            match op {
                Op::Text(text) => out.extend_from_slice(text),
                Op::Var(id) => self.write_var(r, *id, out),
                Op::Pipe => out.push(if r.pipelined { b'p' } else { b'.' }),
                Op::TimeLocal => push_time_local(out),
                Op::TimeIso8601 => push_time_iso8601(out),
                Op::Msec => push_msec(out),
                Op::RequestTime => push_seconds(out, r.elapsed_ms()),
                Op::Status => push_status(out, shown_status(r)),
                Op::BytesSent => fmt_u64(out, r.bytes_sent()),
                Op::BodyBytesSent => fmt_u64(out, r.body_bytes_sent()),
                Op::RequestLength => fmt_u64(out, r.received),
            }
        }
    }

    /// Most values need no escaping and stay where the variable wrote them.
    fn write_var(&self, r: &mut Request, id: VarId, out: &mut Vec<u8>) {
        let start = out.len();
        if !r.var(id, out) {
            out.truncate(start);
            if self.escape == Escape::Default {
                out.push(b'-');
            }
            return;
        }
        let (needs, write): (fn(u8) -> bool, Append) = match self.escape {
            Escape::None => return,
            Escape::Default => (needs_log_escape, escape_log),
            Escape::Json => (needs_json_escape, escape_json),
        };
        if !out[start..].iter().any(|b| needs(*b)) {
            return;
        }
        with_scratch(|raw| {
            raw.extend_from_slice(&out[start..]);
            out.truncate(start);
            write(out, raw);
        });
    }
}

fn needs_log_escape(b: u8) -> bool {
    !(0x20..0x7f).contains(&b) || b == b'"' || b == b'\\'
}

fn needs_json_escape(b: u8) -> bool {
    b < 0x20 || b == b'"' || b == b'\\'
}

fn push_status(out: &mut Vec<u8>, status: u16) {
    let digit = |n: u16| b'0' + (n % 10) as u8;
    out.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(text: &str) -> Result<Vec<Op>, String> {
        let mut ops = Vec::new();
        compile(text.as_bytes(), &mut |name| VarId(name.len() as u32), &mut ops)?;
        Ok(ops)
    }

    #[test]
    fn formats() {
        let text = |t: &str| Op::Text(t.as_bytes().into());
        assert_eq!(
            ops("[$time_local] \"$abc\" ${status}x$msec"),
            Ok(vec![
                text("["),
                Op::TimeLocal,
                text("] \""),
                Op::Var(VarId(3)),
                text("\" "),
                Op::Status,
                text("x"),
                Op::Msec,
            ])
        );
        assert_eq!(ops("$"), Err("invalid parameter \"$\"".into()));
        assert_eq!(ops("a$-b"), Err("invalid parameter \"$-b\"".into()));
        let unclosed = "the closing bracket in \"ab\" variable is missing";
        assert_eq!(ops("${ab"), Err(unclosed.into()));
    }

    #[test]
    fn the_escape_tests_agree_with_the_escapes() {
        for b in 0..=255u8 {
            let (mut log, mut json) = (Vec::new(), Vec::new());
            escape_log(&mut log, &[b]);
            escape_json(&mut json, &[b]);
            assert_eq!(needs_log_escape(b), log != [b], "{b}");
            assert_eq!(needs_json_escape(b), json != [b], "{b}");
        }
    }
}
