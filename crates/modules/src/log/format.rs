//! A log format as operations. Hot: run once per session and log.

use weir_base::escape::{escape_json, escape_log};
use weir_core::common::{push_msec, push_time_iso8601, push_time_local};
use weir_core::eval::with_scratch;
use weir_core::Session;
use weir_module::{ArgsExt, Cf, ConfResult, Context, Directive};
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
pub enum Op {
    Text(Box<[u8]>),
    TimeLocal,
    TimeIso8601,
    Msec,
    Own(Own),
    Var(VarId),
}

/// What requests write without asking a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Own {
    Pipe,
    RequestTime,
    Status,
    BytesSent,
    BodyBytesSent,
    RequestLength,
}

/// Sessions that have access logs.
pub trait Logged: Session {
    /// Where `access_log` stands.
    const LOG_LEVELS: Context;
    /// The defaults of `log_format` and `access_log`, as shown.
    const DEFAULTS: (&'static str, &'static str);
    /// The format of logs that name none.
    const DEFAULT_FORMAT: Option<&'static [u8]>;

    /// The operation that stands in the place of a variable.
    fn own_op(name: &[u8]) -> Option<Own>;
    fn write_own(&mut self, own: Own, out: &mut Vec<u8>);

    /// Whether a log may be written whose name is made of what the client sends.
    fn may_write_named(&mut self) -> bool;
}

/// Variables that all sessions have an operation for.
fn common_op(name: &[u8]) -> Option<Op> {
    Some(match name {
        b"time_local" => Op::TimeLocal,
        b"time_iso8601" => Op::TimeIso8601,
        b"msec" => Op::Msec,
        _ => return None,
    })
}

/// Appends a value escaped.
type Append = fn(&mut Vec<u8>, &[u8]);
/// The operation for a variable.
type Resolve<'a> = &'a mut dyn FnMut(&[u8]) -> Op;

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
        ops.push(common_op(name).unwrap_or_else(|| resolve(name)));
        rest = &named[len + usize::from(bracketed.is_some())..];
    }
    Ok(())
}

fn op<S: Logged>(cf: &mut Cf, name: &[u8]) -> Op {
    S::own_op(name).map_or_else(|| Op::Var(S::registry(cf).number(name)), Op::Own)
}

impl Format {
    pub fn combined<S: Logged>(cf: &mut Cf) -> Format {
        let mut ops = Vec::new();
        let compiled = compile(COMBINED, &mut |name| op::<S>(cf, name), &mut ops);
        debug_assert_eq!(compiled, Ok(()));
        Format { name: b"combined".to_vec(), ops, escape: Escape::Default }
    }

    /// `log_format name [escape=…] strings…`
    pub fn read<S: Logged>(cf: &mut Cf, d: &Directive) -> ConfResult<Format> {
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
            let compiled = compile(d.arg(i), &mut |name| op::<S>(cf, name), &mut ops);
            compiled.map_err(|e| d.bad(i, e))?;
        }
        Ok(Format { name: d.arg(0).to_vec(), ops, escape })
    }

    /// Appends the line, without its end.
    pub fn write<S: Logged>(&self, s: &mut S, out: &mut Vec<u8>) {
        for op in &self.ops {
            match op {
                Op::Text(text) => out.extend_from_slice(text),
                Op::Var(id) => self.write_var(s, *id, out),
                Op::TimeLocal => push_time_local(out),
                Op::TimeIso8601 => push_time_iso8601(out),
                Op::Msec => push_msec(out),
                Op::Own(own) => s.write_own(*own, out),
            }
        }
    }

    /// Most values need no escaping and stay where the variable wrote them.
    fn write_var<S: Logged>(&self, s: &mut S, id: VarId, out: &mut Vec<u8>) {
        let start = out.len();
        if !s.var(id, out) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(text: &str) -> Result<Vec<Op>, String> {
        let mut ops = Vec::new();
        compile(text.as_bytes(), &mut |name| Op::Var(VarId(name.len() as u32)), &mut ops)?;
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
                Op::Var(VarId(6)),
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
