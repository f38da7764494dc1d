//! Directives to operations; errors in nginx's words.

use super::{Cond, FileTest, Op, Return, Rewrite, RewriteLoc, RewriteMain, Text};
use crate::util::SharedBytes;
use weir_base::units;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::build::{here, unnamed_location};
use weir_http::module::VarArg;
use weir_http::vars::named_regex;
use weir_http::vars::{registry, template_of};
use weir_http::Request;
use weir_module::{ArgsExt, Cf, ConfResult, Context, Diagnostic, Directive};
use weir_script::template::VarId;

pub(super) fn push(cf: &mut Cf, op: Op) {
    if let Some(open) = &mut cf.get::<RewriteMain>().open {
        open.push(op);
        return;
    }
    cf.get::<RewriteLoc>().ops.push(op);
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn is_absolute(text: &[u8]) -> bool {
    [&b"http://"[..], b"https://", b"$scheme"].iter().any(|p| text.starts_with(p))
}

pub fn set_log(cf: &mut Cf, d: &Directive) -> ConfResult {
    let on = d.flag()?;
    cf.get::<RewriteLoc>().log.once(d, on)
}

pub fn set_warn(cf: &mut Cf, d: &Directive) -> ConfResult {
    let on = d.flag()?;
    cf.get::<RewriteLoc>().warn.once(d, on)
}

pub fn set_break(cf: &mut Cf, _: &Directive) -> ConfResult {
    push(cf, Op::Break);
    Ok(())
}

pub fn set_rewrite(cf: &mut Cf, d: &Directive) -> ConfResult {
    let full = d.arg(1);
    if full.is_empty() {
        return Err(d.bad(1, "empty replacement"));
    }
    let pattern = d.arg(0).to_vec();
    let regex = named_regex(cf, d, 0, &pattern, false)?;
    let (text, add_args) = match full.strip_suffix(b"?") {
        Some(rest) => (rest.to_vec(), false),
        None => (full.to_vec(), true),
    };
    let mut redirect = is_absolute(&text).then_some(302);
    let mut last = redirect.is_some();
    let mut break_cycle = false;
    if d.args.len() == 3 {
        last = true;
        match d.arg(2) {
            b"last" => {}
            b"break" => break_cycle = true,
            b"redirect" => redirect = Some(302),
            b"permanent" => redirect = Some(301),
            flag => return Err(d.bad(2, format!("invalid parameter \"{}\"", shown(flag)))),
        }
    }
    let mark = text.iter().position(|b| *b == b'?');
    let (path, args) = match mark {
        Some(at) if redirect.is_none() => (&text[..at], Some(&text[at + 1..])),
        _ => (&text[..], None),
    };
    let path = template_of(cf, d, 1, path)?;
    let args = args.map(|a| template_of(cf, d, 1, a)).transpose()?;
    let has_args = mark.is_some();
    let rewrite = Rewrite { regex, path, args, has_args, add_args, redirect, break_cycle, last };
    push(cf, Op::Rewrite(Box::new(rewrite)));
    Ok(())
}

pub fn set_return(cf: &mut Cf, d: &Directive) -> ConfResult {
    let first = d.arg(0);
    let invalid = || d.bad(0, format!("invalid return code \"{}\"", shown(first)));
    let (status, text_at) = match units::parse_int(first) {
        Some(n) if n > 999 => return Err(invalid()),
        Some(n) => (n as u16, (d.args.len() == 2).then_some(1)),
        None if d.args.len() == 1 && is_absolute(first) => (302, Some(0)),
        None => return Err(invalid()),
    };
    let text = match text_at {
        Some(at) if !d.arg(at).is_empty() => {
            let template = template_of(cf, d, at, d.arg(at))?;
            match template.as_constant() {
                Some(constant) => Text::Constant(SharedBytes::new(constant)),
                None => Text::Computed(template),
            }
        }
        _ => Text::None,
    };
    push(cf, Op::Return(Box::new(Return { status, text })));
    Ok(())
}

/// The value of a variable that was never set: empty, and a warning.
fn unset(r: &mut Request, arg: &VarArg, _: &mut Vec<u8>) -> bool {
    if *r.loc().conf::<RewriteLoc>().warn && r.log_enabled(LogLevel::Warn) {
        r.log(LogLevel::Warn, &format!("using uninitialized \"{}\" variable", shown(&arg.name)));
    }
    true
}

/// The variable that a word names for programs to set.
pub(super) fn settable(cf: &mut Cf, d: &Directive, at: usize, word: &[u8]) -> ConfResult<VarId> {
    let Some(name) = word.strip_prefix(b"$") else {
        return Err(d.bad(at, format!("invalid variable name \"{}\"", shown(word))));
    };
    registry(cf).settable(name, unset).map_err(|e| d.bad(at, e))
}

pub fn set_set(cf: &mut Cf, d: &Directive) -> ConfResult {
    let var = settable(cf, d, 0, d.arg(0))?;
    let value = template_of(cf, d, 1, d.arg(1))?;
    push(cf, Op::Set(var, value));
    Ok(())
}

pub fn set_if(cf: &mut Cf, d: &Directive) -> ConfResult {
    let cond = condition(cf, d)?;
    let in_server = cf.context == Context::SERVER;
    let mut ops = std::mem::take(&mut cf.get::<RewriteLoc>().ops);
    let at = ops.len();
    ops.push(Op::If { cond, location: None, next: 0 });
    cf.get::<RewriteMain>().open = Some(ops);
    let context = if in_server { Context::SIF } else { Context::LIF };
    let entered = unnamed_location(cf, d, context);
    let mut ops = cf.get::<RewriteMain>().open.take().unwrap_or_default();
    let end = ops.len();
    let id = entered?;
    if let Some(Op::If { location, next, .. }) = ops.get_mut(at) {
        *location = (!in_server).then_some(id);
        *next = end;
    }
    cf.get::<RewriteLoc>().ops = ops;
    mark_inside_if(cf);
    Ok(())
}

/// The block that was just read keeps this module's place in the phase it is entered from.
fn mark_inside_if(cf: &mut Cf) {
    if let Some(child) = here(cf).children.last_mut() {
        child.slots.get_mut::<RewriteLoc>().inside_if = true;
    }
}

/// The words between the parentheses, each with its argument's number.
fn words(d: &Directive) -> ConfResult<Vec<(usize, &[u8])>> {
    let mut words: Vec<(usize, &[u8])> =
        d.args.iter().enumerate().map(|(i, w)| (i, w.as_bytes())).collect();
    let invalid = |i: usize| d.bad(i, format!("invalid condition \"{}\"", shown(d.arg(i))));
    let first = words.first_mut().ok_or_else(|| invalid(0))?;
    first.1 = first.1.strip_prefix(b"(").ok_or_else(|| invalid(0))?;
    if first.1.is_empty() && words.len() > 1 {
        words.remove(0);
    }
    let at = words.len() - 1;
    let (i, last) = words[at];
    match last.strip_suffix(b")") {
        None => return Err(invalid_condition(d, i, last)),
        Some(b"") if at > 0 => drop(words.pop()),
        // Nothing but the parenthesis: no condition, which is said of it by whoever reads it.
        Some(b"") => {}
        Some(rest) => words[at].1 = rest,
    }
    Ok(words)
}

fn condition(cf: &mut Cf, d: &Directive) -> ConfResult<Cond> {
    let words = words(d)?;
    let (i, first) = words[0];
    let invalid = || invalid_condition(d, i, first);
    if let Some(name) = first.strip_prefix(b"$").filter(|n| !n.is_empty()) {
        let var = registry(cf).number(name);
        return match words[..] {
            [_] => Ok(Cond::True(var)),
            [_, (op_at, op), (value_at, value)] => {
                comparison(cf, d, var, (op_at, op), (value_at, value))
            }
            _ => Err(invalid()),
        };
    }
    let (negated, test) = match first {
        [b'-', test] => (false, *test),
        [b'!', b'-', test] => (true, *test),
        _ => return Err(invalid()),
    };
    let [_, (path_at, path)] = words[..] else { return Err(invalid()) };
    let test = match test {
        b'f' => FileTest::Plain,
        b'd' => FileTest::Directory,
        b'e' => FileTest::Exists,
        b'x' => FileTest::Executable,
        _ => return Err(invalid()),
    };
    let path = template_of(cf, d, path_at, path)?;
    Ok(Cond::File { path, test, negated })
}

fn invalid_condition(d: &Directive, i: usize, word: &[u8]) -> Diagnostic {
    d.bad(i, format!("invalid condition \"{}\"", shown(word)))
}

fn comparison(
    cf: &mut Cf,
    d: &Directive,
    var: VarId,
    (op_at, op): (usize, &[u8]),
    (value_at, value): (usize, &[u8]),
) -> ConfResult<Cond> {
    let (negated, caseless) = match op {
        b"=" | b"!=" => {
            let value = template_of(cf, d, value_at, value)?;
            return Ok(Cond::Equal { var, value, negated: op == b"!=" });
        }
        b"<" | b">" | b"<=" | b">=" => {
            let value = template_of(cf, d, value_at, value)?;
            let holds: fn(&u64, &u64) -> bool = match op {
                b"<" => u64::lt,
                b">" => u64::gt,
                b"<=" => u64::le,
                _ => u64::ge,
            };
            return Ok(Cond::Order { var, value, holds });
        }
        b"~" => (false, false),
        b"~*" => (false, true),
        b"!~" => (true, false),
        b"!~*" => (true, true),
        _ => return Err(d.bad(op_at, format!("unexpected \"{}\" in condition", shown(op)))),
    };
    let regex = named_regex(cf, d, value_at, value, caseless)?;
    Ok(Cond::Match { var, regex, negated })
}
