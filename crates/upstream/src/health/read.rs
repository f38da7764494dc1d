//! What `health_check` says in every protocol.

use super::{Board, Rule};
use crate::conf::{lossy, UpstreamMain, UpstreamRef};
use std::sync::Arc;
use weir_base::units;
use weir_module::{ArgsExt, ConfResult, Context, Diagnostic, Directive};

/// Takes a parameter that says how a check goes on; `false` if it is about something else.
///
/// # Errors
///
/// It is one with a value that is none.
pub fn read_rule(d: &Directive, i: usize, rule: &mut Rule) -> ConfResult<bool> {
    let bad = || d.bad(i, format!("invalid parameter \"{}\"", lossy(d.arg(i))));
    let time = |v: &[u8]| units::parse_msec(v).ok_or_else(bad);
    let count = |v: &[u8]| {
        let n = units::parse_int(v).and_then(|n| u32::try_from(n).ok());
        n.filter(|n| *n > 0).ok_or_else(bad)
    };
    if let Some(v) = d.keyed(i, "interval") {
        rule.interval_ms = Some(time(v)?).filter(|ms| *ms > 0).ok_or_else(bad)?;
    } else if let Some(v) = d.keyed(i, "jitter") {
        rule.jitter_ms = time(v)?;
    } else if let Some(v) = d.keyed(i, "fails") {
        rule.fails = count(v)?;
    } else if let Some(v) = d.keyed(i, "passes") {
        rule.passes = count(v)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

impl Board {
    /// A further check for an upstream, which is to be a block with a zone.
    ///
    /// # Errors
    ///
    /// It is none, or has more checks than there may be.
    pub fn of_zone(
        main: &mut UpstreamMain,
        at: UpstreamRef,
        block: Context,
        title: String,
        rule: Rule,
    ) -> ConfResult<Arc<Board>> {
        let (name, is_block, has_zone) = main.about(at);
        let name = lossy(name);
        if !is_block || !has_zone {
            let hint = match is_block {
                true => format!("add zone NAME SIZE; to upstream {name}"),
                false => format!("define upstream {name} {{ … }} with a zone and pass to that"),
            };
            let text =
                format!("\"health_check\" requires upstream \"{name}\" to be in shared memory");
            return Err(Diagnostic::emerg(text).hint(hint));
        }
        Board::new(main, at, block, Some(title), rule).ok_or_else(|| {
            let text = format!("too many health checks of upstream \"{name}\"");
            Diagnostic::emerg(text).hint("an upstream may have 31 of them".to_string())
        })
    }
}
