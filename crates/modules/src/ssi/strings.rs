//! Values with variables, and the expressions that are compared with them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use weir_http::logger::LogLevel;
use weir_http::Request;
use weir_script::regex::{Captures, Regex, RegexOptions};

use super::commands::Fault;
use super::page::PageRef;

/// A value made of variables' values; a page could double one with every command.
const VALUE_MAX_BYTES: usize = 1 << 20;

/// Appends a variable's value: the page's own, a capture, or the server's. `false` when there is
/// none.
pub fn variable(r: &mut Request, page: &PageRef, name: &[u8], out: &mut Vec<u8>) -> bool {
    let name = name.to_ascii_lowercase();
    if let Some(value) = page.borrow().variable(&name) {
        out.extend_from_slice(value);
        return true;
    }
    r.var_named(&name, out)
}

/// A value with its variables; `\` takes the meaning from `$`, quotes and itself, and stays in
/// front of anything else.
pub fn evaluate(r: &mut Request, page: &PageRef, text: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if out.len() > VALUE_MAX_BYTES {
            return Err(Fault::said(r, b"a value in the page is too long"));
        }
        match byte {
            b'$' => rest = reference(r, page, text, behind, &mut out)?,
            b'\\' => {
                let Some((&quoted, behind)) = rest.split_first() else { break };
                rest = behind;
                if !matches!(quoted, b'\\' | b'\'' | b'"' | b'$') {
                    out.push(b'\\');
                }
                out.push(quoted);
            }
            _ => out.push(byte),
        }
    }
    Ok(out)
}

/// A variable behind a `$`; answers what is behind its name.
fn reference<'t>(
    r: &mut Request,
    page: &PageRef,
    whole: &[u8],
    text: &'t [u8],
    out: &mut Vec<u8>,
) -> Result<&'t [u8], Fault> {
    let bracketed = text.first() == Some(&b'{');
    let from = usize::from(bracketed);
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let len = text[from..].iter().take_while(|b| is_name(b)).count();
    let (name, behind) = text[from..].split_at(len);
    if bracketed && text.len() > 1 && behind.first() != Some(&b'}') {
        let text = [b"the closing bracket in \"", name, b"\" variable is missing"].concat();
        return Err(Fault::said(r, &text));
    }
    if name.is_empty() {
        return Err(Fault::said(r, &[b"invalid variable name in \"", whole, b"\""].concat()));
    }
    variable(r, page, name, out);
    Ok(&behind[from..])
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
