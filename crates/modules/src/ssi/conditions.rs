//! `if`, `elif`, `else`, `endif`. They do not nest, as in nginx.

use weir_http::module::Next;
use weir_http::Request;
use weir_script::ssi::condition::{parse, Test};

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
    state.shown = is_true(r, state, params.must(0)).inspect_err(|fault| {
        // Neither this branch nor another: what is shown could be what it was to hide.
        if matches!(fault, Fault::Unsure) {
            (state.shown, state.chosen, state.branch) = (false, true, Branch::If);
        }
    })?;
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

fn is_true(r: &mut Request, state: &State, expr: &[u8]) -> Result<bool, Fault> {
    let condition = parse(expr).ok_or_else(|| invalid(r, expr))?;
    let left = strings::evaluate(r, &state.page, &condition.left)?;
    let holds = match condition.test {
        Test::Filled => !left.is_empty(),
        Test::Text(text) => strings::evaluate(r, &state.page, text)? == left,
        Test::Pattern(pattern) => {
            let pattern = strings::evaluate(r, &state.page, pattern)?;
            strings::matches(r, &state.page, &pattern, &left)?
        }
    };
    Ok(holds != condition.negative)
}

fn invalid(r: &Request, expr: &[u8]) -> Fault {
    Fault::said(r, &[b"invalid expression in \"", expr, b"\""].concat())
}
