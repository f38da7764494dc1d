//! `set_form_input`: fields of a form that a client sends (OpenResty's form-input).
//!
//! The body of such a request is read before the rewrite program that looks at it. Fields are taken from memory: of
//! a body that is larger than `client_body_buffer_size`, none.

use crate::array_var;
use weir_base::bytes::starts_with_ignore_case;
use weir_core::eval::with_scratch;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::module::HttpModule;
use weir_http::vars::{template, template_of};
use weir_http::Request;
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row};
use weir_modules::rewrite::{self, Failed, Program, Step, Wants};
use weir_script::template::{Template, VarId};
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Method;

const TYPE: &[u8] = b"application/x-www-form-urlencoded";
const NOTE: &str = "Values are as they came, undecoded. The body is read for the levels that have the directive, in a server too.";

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "set_form_input",
            Context::SERVER.or(Context::LOCATION),
            Arity::ONE_TWO,
            "",
            "Gives a variable the value of a form's field, its own name's or the given one's.",
            set_field,
        )
        .note(NOTE),
        Row::new(
            "set_form_input_multi",
            Context::SERVER.or(Context::LOCATION),
            Arity::ONE_TWO,
            "",
            "As set_form_input, all values of that name as a list (array_join).",
            set_field,
        )
        .note(NOTE),
    ],
    ..HttpModule::EMPTY
};

struct Field {
    target: VarId,
    name: Template,
    /// All of them, as a list.
    all: bool,
}

fn set_field(cf: &mut Cf, d: &Directive) -> ConfResult {
    let target = rewrite::variable(cf, d, 0, d.arg(0))?;
    let name = match d.args.len() {
        1 => template_of(cf, d, 0, &d.arg(0)[1..])?,
        _ => template(cf, d, 1)?,
    };
    rewrite::append(cf, Field { target, name, all: d.name() == "set_form_input_multi" });
    Ok(())
}

fn is_form(r: &Request) -> bool {
    let kind = r.header(HeaderId::ContentType);
    matches!(r.method, Method::Post | Method::Put)
        && kind.is_some_and(|kind| starts_with_ignore_case(kind, TYPE))
}

impl Step for Field {
    fn wants_body(&self) -> Option<Wants> {
        Some(is_form)
    }

    fn run(&self, at: &mut Program<'_>) -> Result<(), Failed> {
        with_scratch(|name| {
            at.eval(&self.name, name);
            let value = value(at.r, name, self.all)?;
            at.r.set_var(self.target, &value);
            Ok(())
        })
    }
}

fn value(r: &Request, name: &[u8], all: bool) -> Result<Vec<u8>, Failed> {
    let is_there = is_form(r) && r.body.complete;
    if is_there && r.body.file.is_some() {
        let text = "form-input: the body is in a file. aborted. consider increasing your client_body_buffer_size setting";
        r.log(LogLevel::Error, text);
    }
    let body = if is_there && r.body.file.is_none() { &r.body.memory[..] } else { b"" };
    let mut values = values(body, name);
    if !all {
        return Ok(values.next().unwrap_or_default().to_vec());
    }
    if !is_there {
        return Ok(Vec::new());
    }
    array_var::packed(values).map_err(|why| {
        r.log(LogLevel::Error, &format!("set_form_input_multi: {why}"));
        Failed
    })
}

/// What stands behind `name=`, letter case apart.
pub fn values<'b>(body: &'b [u8], name: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
    body.split(|b| *b == b'&').filter_map(move |field| {
        let (own, value) = field.split_at_checked(name.len())?;
        value.strip_prefix(b"=").filter(|_| own.eq_ignore_ascii_case(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let body = b"a=1&ab=2&A=%203&b&=4&a==5";
        let found = |name: &[u8]| values(body, name).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(found(b"a"), [&b"1"[..], b"%203", b"=5"]);
        assert_eq!(found(b"ab"), [b"2"]);
        assert_eq!(found(b"b"), Vec::<Vec<u8>>::new());
        assert_eq!(values(b"", b"a").count(), 0);
    }
}
