//! `if`, `elif`, `else`, `endif`. They do not nest, as in nginx.

use weir_http::module::Next;
use weir_http::Request;

use super::commands::{Fault, Params};
use super::{strings, Branch, State};

pub fn begin(
    r: &mut Request,
    state: &mut State,
    params: &Params<'_>,
    next: Next,
) -> Result<(), Fault> {
    if state.branch != Branch::None {
        return Err(Fault::said(r, b"the \"if\" command inside the \"if\" command"));
    }
    choose(r, state, params, next)
}

/// `if` or `elif`: the first that is true.
pub fn choose(
    r: &mut Request,
    state: &mut State,
    params: &Params<'_>,
    _: Next,
) -> Result<(), Fault> {
    if state.chosen {
        state.shown = false;
        return Ok(());
    }
    state.shown = is_true(r, state, params.must(0))?;
    state.chosen = state.shown;
    state.branch = Branch::If;
    Ok(())
}

pub fn otherwise(_: &mut Request, state: &mut State, _: &Params<'_>, _: Next) -> Result<(), Fault> {
    state.shown = !state.chosen;
    state.branch = Branch::Else;
    Ok(())
}

pub fn end(_: &mut Request, state: &mut State, _: &Params<'_>, _: Next) -> Result<(), Fault> {
    state.shown = true;
    state.chosen = false;
    state.branch = Branch::None;
    Ok(())
}

/// `text`, `text = text`, `text != /expression/` and so on; letters on the left count as small.
fn is_true(r: &mut Request, state: &State, expr: &[u8]) -> Result<bool, Fault> {
    let is_left = |b: &u8| b.is_ascii_alphanumeric() || b"${}_\"'".contains(b);
    let len = expr.iter().take_while(|b| is_left(b)).count();
    let (left, rest) = expr.split_at(len);
    let left = strings::evaluate(r, &state.page, &left.to_ascii_lowercase())?;
    let rest = without_spaces(rest);
    if rest.is_empty() {
        return Ok(!left.is_empty());
    }
    let (negative, right) = match rest {
        [b'=', right @ ..] => (false, right),
        [b'!', b'=', right @ ..] => (true, right),
        _ => return Err(invalid(r, expr)),
    };
    let equal = match without_spaces(right) {
        [b'/', pattern @ .., b'/'] => {
            let pattern = strings::evaluate(r, &state.page, pattern)?;
            strings::matches(r, &state.page, &pattern, &left)?
        }
        [b'/', _, ..] => return Err(invalid(r, expr)),
        // A backslash makes a text of what would be an expression.
        [b'\\', b'/', ..] => {
            strings::evaluate(r, &state.page, &without_spaces(right)[1..])? == left
        }
        right => strings::evaluate(r, &state.page, right)? == left,
    };
    Ok(equal != negative)
}

fn without_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

fn invalid(r: &Request, expr: &[u8]) -> Fault {
    Fault::said(r, &[b"invalid expression in \"", expr, b"\""].concat())
}
