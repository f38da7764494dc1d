//! Lines of the error log that a worker keeps, for `ngx.errlog`.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::ANY;
use crate::site::Block;
use weir_core::captured::{self, NoRing, Of};

pub(super) const OPS: &[OpRow] =
    &[OpRow::any("captured_line", ANY, line), OpRow::any("captured_least", ANY, least)];

fn of(state: &State<'_>) -> Of {
    match state.vm.block {
        Block::Http => Of::Http,
        Block::Stream => Of::Stream,
    }
}

fn none(answer: &mut Answer) -> i32 {
    answer.fail("directive \"lua_capture_error_log\" is not set")
}

/// The oldest line, which is nobody's any more: its level, time and text.
fn line(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    match captured::take(of(state)) {
        Ok(Some(line)) => {
            let level = f64::from(line.level as i32);
            answer.list().number(level).number(line.time).text(&line.text);
            code::LIST
        }
        Ok(None) => code::NIL,
        Err(NoRing) => none(answer),
    }
}

fn least(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    // Whether a configuration that nobody is served by could begin: there is no worker.
    let is_attempt = state.vm.attempt.borrow().is_some();
    let has_ring = state.vm.main().is_some_and(|main| main.capture.as_option().is_some());
    if !(0..=8).contains(&args.i) && has_ring {
        return answer.fail(format!("bad log level: {}", args.i));
    }
    match captured::set_least(of(state), args.i) {
        Ok(()) => code::TRUE,
        Err(NoRing) if is_attempt && has_ring => code::TRUE,
        Err(NoRing) => none(answer),
    }
}
