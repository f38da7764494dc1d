//! Values with variables, and the expressions that are compared with them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use weir_core::Session;

use weir_core::logger::LogLevel;
use weir_http::Request;
use weir_script::regex::{Captures, Regex, RegexOptions};
use weir_script::ssi::condition::in_lower_case;
use weir_script::ssi::value::{self, ValueError};

use super::commands::Fault;
use super::page::PageRef;

/// A value made of variables' values; a page could double one with every command.
const VALUE_MAX_BYTES: usize = 1 << 20;

/// Appends a variable's value: the page's own, a capture, or the server's. `false` when there is
/// none.
pub fn variable(r: &mut Request, page: &PageRef, name: &[u8], out: &mut Vec<u8>) -> bool {
    let name = in_lower_case(name);
    if let Some(value) = page.borrow().variable(&name) {
        out.extend_from_slice(value);
        return true;
    }
    if page.borrow().is_unsure(&name) {
        r.fail_again();
        return false;
    }
    r.var_named(&name, out)
}

/// A value with its variables.
pub fn evaluate<'t>(
    r: &mut Request,
    page: &PageRef,
    text: &'t [u8],
) -> Result<Cow<'t, [u8]>, Fault> {
    let (value, certain) = r.certain(|r| {
        value::evaluate(text, VALUE_MAX_BYTES, &mut |name, out| {
            variable(r, page, name, out);
        })
    });
    if !certain {
        return Err(Fault::Unsure);
    }
    value.map_err(|e| match e {
        ValueError::TooLong => Fault::said(r, b"a value in the page is too long"),
        ValueError::NoBracket(name) => {
            let text = [b"the closing bracket in \"", name, b"\" variable is missing"].concat();
            Fault::said(r, &text)
        }
        ValueError::NoName => {
            Fault::said(r, &[b"invalid variable name in \"", text, b"\""].concat())
        }
    })
}

/// Expressions of pages, compiled; a worker keeps some.
#[derive(Default)]
struct Compiled(RefCell<HashMap<Vec<u8>, Rc<Regex>>>);

/// A worker's expressions; beyond that it begins again.
const COMPILED_MAX: usize = 64;

fn compiled(r: &Request, pattern: &[u8]) -> Result<Rc<Regex>, String> {
    let cache = r.conn().worker.local::<Compiled>();
    if let Some(regex) = cache.0.borrow().get(pattern) {
        return Ok(Rc::clone(regex));
    }
    let regex = Regex::new(pattern, RegexOptions::default()).map_err(|e| e.to_string())?;
    let regex = Rc::new(regex);
    let mut cache = cache.0.borrow_mut();
    if cache.len() >= COMPILED_MAX {
        cache.clear();
    }
    cache.insert(pattern.to_vec(), Rc::clone(&regex));
    Ok(regex)
}

/// Whether a value matches; then its captures are the page's.
pub fn matches(
    r: &mut Request,
    page: &PageRef,
    pattern: &[u8],
    subject: &[u8],
) -> Result<bool, Fault> {
    let regex = compiled(r, pattern).map_err(|e| Fault::said(r, e.as_bytes()))?;
    let mut captures = Captures::new();
    match regex.exec(subject, &mut captures) {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        Err(e) => {
            let shown = [String::from_utf8_lossy(subject), String::from_utf8_lossy(pattern)];
            r.log(LogLevel::Alert, &format!("{e} on \"{}\" using \"{}\"", shown[0], shown[1]));
            return Err(Fault::Command);
        }
    }
    let mut page = page.borrow_mut();
    page.capture(subject, &captures);
    for (name, group) in regex.names() {
        let value = captures.text(subject, group).to_vec();
        page.set(name.to_ascii_lowercase().as_bytes(), value);
    }
    Ok(true)
}
