//! A directive's options and fields.

use super::{output, Command, Field, MoreLoc};
use std::sync::Arc;
use weir_http::vars::template_of;
use weir_module::{ArgsExt, Cf, ConfResult, Directive};
use weir_script::template::Template;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    SetOutput,
    ClearOutput,
    SetInput,
    ClearInput,
}

impl Kind {
    fn is_input(self) -> bool {
        matches!(self, Kind::SetInput | Kind::ClearInput)
    }

    fn clears(self) -> bool {
        matches!(self, Kind::ClearOutput | Kind::ClearInput)
    }

    /// The flags and options that the directive has.
    fn has(self, option: u8) -> bool {
        match option {
            b't' => true,
            b's' => !self.is_input(),
            b'a' => self == Kind::SetOutput,
            b'r' => self == Kind::SetInput,
            _ => false,
        }
    }
}

pub(super) fn read(cf: &mut Cf, d: &Directive, kind: Kind) -> ConfResult {
    let (types, statuses) = (Vec::new(), Vec::new());
    let mut command = Command { fields: Vec::new(), types, statuses, replace: false };
    let mut append = false;
    let mut at = 0;
    while at < d.args.len() {
        match d.arg(at) {
            b"" => {}
            [b'-', option] if kind.has(*option) => match option {
                b'a' => append = true,
                b'r' => command.replace = true,
                _ => {
                    at += 1;
                    read_list(d, at, *option, &mut command)?;
                }
            },
            [b'-', ..] => return Err(invalid(d, at, "invalid option name:")),
            _ => command.fields.push(field(cf, d, at, kind)?),
        }
        at += 1;
    }
    if append {
        for field in &mut command.fields {
            if output::is_builtin(&field.name) {
                let name = String::from_utf8_lossy(&field.name).into_owned();
                return Err(
                    d.fail(format!("{}: can not append builtin headers \"{name}\"", d.name()))
                );
            }
            field.append = true;
        }
    }
    let slot = cf.get::<MoreLoc>();
    let list = if kind.is_input() { &mut slot.input } else { &mut slot.output };
    list.push(Arc::new(command));
    Ok(())
}

fn invalid(d: &Directive, at: usize, what: &str) -> weir_module::Diagnostic {
    let shown = String::from_utf8_lossy(d.arg(at));
    d.bad(at, format!("{what} \"{shown}\" in \"{}\" directive", d.name()))
}

/// The value of `-t` or `-s`.
fn read_list(d: &Directive, at: usize, option: u8, command: &mut Command) -> ConfResult {
    if at >= d.args.len() {
        return Err(d.error(&format!("has the option -{} without a value", char::from(option))));
    }
    let is_between = |b: &u8| b.is_ascii_whitespace() || option == b't' && *b == b';';
    for word in d.arg(at).split(is_between).filter(|w| !w.is_empty()) {
        if option == b't' {
            command.types.push(word.to_vec());
            continue;
        }
        let status = std::str::from_utf8(word).ok().and_then(|w| w.parse().ok());
        command.statuses.push(status.ok_or_else(|| invalid(d, at, "invalid status in"))?);
    }
    Ok(())
}

/// `Name: value`, or a name alone.
fn field(cf: &mut Cf, d: &Directive, at: usize, kind: Kind) -> ConfResult<Field> {
    let text = d.arg(at).trim_ascii_start();
    let end = text.iter().position(|b| *b == b':' || b.is_ascii_whitespace());
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    if name.is_empty() {
        return Err(invalid(d, at, "no name in the field"));
    }
    let begins = rest.iter().position(|b| *b != b':' && !b.is_ascii_whitespace());
    let value = match begins {
        Some(from) if !kind.clears() => template_of(cf, d, at, &rest[from..])?,
        _ => Template::constant(b""),
    };
    // With a value a name is one name, whatever it ends in.
    let stem = name.strip_suffix(b"*").filter(|_| value.as_constant() == Some(b""));
    if stem == Some(b"") {
        return Err(invalid(d, at, "no name before the * in"));
    }
    let wildcard = stem.is_some();
    Ok(Field { name: stem.unwrap_or(name).to_vec(), wildcard, value, append: false })
}
