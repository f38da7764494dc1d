//! Directives to commands.

use super::{run, Ask, AskBody, Command, EchoLoc, Line, Lines, Program};
use std::sync::Arc;
use weir_base::units::parse_int;
use weir_http::conf::CoreLoc;
use weir_http::vars::template;
use weir_module::{ArgsExt, Cf, ConfResult, Diagnostic, Directive};
use weir_runtime::paths;

/// Where the arguments begin behind the options, and whether `-n` is one of them.
fn options(d: &Directive, takes_n: bool) -> ConfResult<(usize, bool)> {
    let mut bare = false;
    for at in 0..d.args.len() {
        match d.arg(at) {
            word if word.contains(&b'$') || word.len() < 2 || word[0] != b'-' => {
                return Ok((at, bare))
            }
            [b'-', b'-', ..] => return Ok((at + 1, bare)),
            b"-n" if takes_n => bare = true,
            word => {
                let shown = String::from_utf8_lossy(word);
                let mut e = d.bad(at, format!("unknown option \"{shown}\" of \"{}\"", d.name()));
                e.hint = Some("write -- before a word that begins with a dash".to_owned());
                return Err(e);
            }
        }
    }
    Ok((d.args.len(), bare))
}

/// As `options`, where so many arguments are to follow.
fn arguments(d: &Directive, least: usize, most: usize) -> ConfResult<usize> {
    let (from, _) = options(d, false)?;
    match (least..=most).contains(&(d.args.len() - from)) {
        true => Ok(from),
        false => Err(d.fail(format!("invalid number of arguments in \"{}\" directive", d.name()))),
    }
}

fn program<'a>(cf: &'a mut Cf, d: &Directive) -> ConfResult<&'a mut Program> {
    cf.get::<CoreLoc>().handler = Some(run::handler);
    let program = cf.get::<EchoLoc>().program.get_or_insert_default();
    // It is shared by nobody before the level is merged.
    Arc::get_mut(program).ok_or_else(|| d.fail("the program is read already"))
}

fn push(cf: &mut Cf, d: &Directive, command: Command) -> ConfResult {
    program(cf, d)?.commands.push(command);
    Ok(())
}

fn line(cf: &mut Cf, d: &Directive) -> ConfResult<Line> {
    let (from, bare) = options(d, true)?;
    let words = (from..d.args.len()).map(|at| template(cf, d, at)).collect::<ConfResult<_>>()?;
    Ok(Line { words, ends: !bare })
}

pub(super) fn set_echo(cf: &mut Cf, d: &Directive) -> ConfResult {
    let line = line(cf, d)?;
    push(cf, d, Command::Echo(line))
}

fn add(cf: &mut Cf, d: &Directive, lines: fn(&mut EchoLoc) -> &mut Lines) -> ConfResult {
    let line = line(cf, d)?;
    if let Some(lines) = Arc::get_mut(lines(cf.get::<EchoLoc>()).get_or_insert_default()) {
        lines.push(line);
    }
    Ok(())
}

pub(super) fn set_before(cf: &mut Cf, d: &Directive) -> ConfResult {
    add(cf, d, |conf| &mut conf.before)
}

pub(super) fn set_after(cf: &mut Cf, d: &Directive) -> ConfResult {
    add(cf, d, |conf| &mut conf.after)
}

pub(super) fn set_duplicate(cf: &mut Cf, d: &Directive) -> ConfResult {
    let from = arguments(d, 2, 2)?;
    let (count, text) = (template(cf, d, from)?, template(cf, d, from + 1)?);
    push(cf, d, Command::Duplicate(count, text))
}

pub(super) fn set_flush(cf: &mut Cf, d: &Directive) -> ConfResult {
    push(cf, d, Command::Flush)
}

pub(super) fn set_sleep(cf: &mut Cf, d: &Directive) -> ConfResult {
    let from = arguments(d, 1, 1)?;
    let secs = template(cf, d, from)?;
    if secs.as_constant().is_some_and(|secs| run::sleep_ms(secs).is_none()) {
        return Err(d.invalid(from));
    }
    push(cf, d, Command::Sleep(secs))
}

pub(super) fn set_reset_timer(cf: &mut Cf, d: &Directive) -> ConfResult {
    push(cf, d, Command::ResetTimer)
}

pub(super) fn set_read_body(cf: &mut Cf, d: &Directive) -> ConfResult {
    push(cf, d, Command::ReadBody)
}

pub(super) fn set_body(cf: &mut Cf, d: &Directive) -> ConfResult {
    push(cf, d, Command::Body)
}

fn waits(d: &Directive) -> bool {
    !d.name().ends_with("_async")
}

pub(super) fn set_location(cf: &mut Cf, d: &Directive) -> ConfResult {
    let from = arguments(d, 1, 2)?;
    let uri = template(cf, d, from)?;
    let args = (from + 1 < d.args.len()).then(|| template(cf, d, from + 1)).transpose()?;
    let ask = Ask { name: d.name(), method: None, uri, args, body: None, waits: waits(d) };
    push(cf, d, Command::Ask(Box::new(ask)))
}

pub(super) fn set_subrequest(cf: &mut Cf, d: &Directive) -> ConfResult {
    let from = arguments(d, 2, usize::MAX)?;
    let (method, uri) = (Some(template(cf, d, from)?), template(cf, d, from + 1)?);
    let (mut args, mut body) = (None, None);
    let mut at = from + 2;
    while at < d.args.len() {
        let option = d.arg(at);
        if !matches!(option, b"-q" | b"-b" | b"-f") || at + 1 == d.args.len() {
            return Err(unknown(d, at));
        }
        let value = template(cf, d, at + 1)?;
        match option {
            b"-q" => args = Some(value),
            b"-b" => body = Some(AskBody::Text(value)),
            // A text goes before a file, whatever the order.
            _ if matches!(body, Some(AskBody::Text(_))) => {}
            _ => body = Some(AskBody::File(value, paths::bytes(&cf.prefix).to_vec())),
        }
        at += 2;
    }
    let ask = Ask { name: d.name(), method, uri, args, body, waits: waits(d) };
    push(cf, d, Command::Ask(Box::new(ask)))
}

fn unknown(d: &Directive, at: usize) -> Diagnostic {
    let shown = String::from_utf8_lossy(d.arg(at));
    let mut e = d.bad(at, format!("unknown option \"{shown}\", or one without a value"));
    e.hint = Some("it must be -q ARGUMENTS, -b BODY or -f FILE".to_owned());
    e
}

pub(super) fn set_foreach(cf: &mut Cf, d: &Directive) -> ConfResult {
    let from = arguments(d, 2, 2)?;
    let (separator, text) = (template(cf, d, from)?, template(cf, d, from + 1)?);
    if separator.as_constant() == Some(b"") {
        return Err(d.bad(from, "the separator is empty"));
    }
    let program = program(cf, d)?;
    if std::mem::replace(&mut program.is_open, true) {
        return Err(d.error("is not possible in a loop; write \"echo_end\" before it"));
    }
    program.commands.push(Command::Foreach(separator, text));
    Ok(())
}

pub(super) fn set_end(cf: &mut Cf, d: &Directive) -> ConfResult {
    let program = program(cf, d)?;
    if !std::mem::replace(&mut program.is_open, false) {
        return Err(d.error("has no \"echo_foreach_split\" before it"));
    }
    program.commands.push(Command::End);
    Ok(())
}

pub(super) fn set_exec(cf: &mut Cf, d: &Directive) -> ConfResult {
    let from = arguments(d, 1, 2)?;
    let uri = template(cf, d, from)?;
    let args = (from + 1 < d.args.len()).then(|| template(cf, d, from + 1)).transpose()?;
    push(cf, d, Command::Exec(uri, args))
}

pub(super) fn set_status(cf: &mut Cf, d: &Directive) -> ConfResult {
    let status = parse_int(d.arg(0)).filter(|n| (200..=999).contains(n));
    let status = status.ok_or_else(|| d.invalid(0))?;
    cf.get::<EchoLoc>().status.once(d, status as u16)
}
