//! `ngx.process`: the process that code runs in.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::{self, ANY};
use std::sync::atomic::{AtomicI32, Ordering};
use weir_runtime::process;
use weir_runtime::signals::{self, Signal};

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("process_type", ANY, |_, _, answer| {
        answer.text(if MASTER.load(Ordering::Relaxed) > 0 { b"worker" } else { b"single" })
    }),
    OpRow::any("process_master", ANY, |_, _, answer| {
        let master = Some(MASTER.load(Ordering::Relaxed)).filter(|pid| *pid > 0);
        answer.number(f64::from(master.unwrap_or_else(|| process::pid() as i32)))
    }),
    OpRow::any("process_expire", ANY & !context::INIT, |state, _, _| {
        state.vm.end();
        code::TRUE
    }),
    OpRow::any("process_quit", ANY & !context::INIT, quit),
];

/// The master's process; 0 where there is none.
static MASTER: AtomicI32 = AtomicI32::new(0);

/// This process serves under a master of that number.
pub fn has_master(pid: u32) {
    MASTER.store(i32::try_from(pid).unwrap_or(0), Ordering::Relaxed);
}

/// Workers are threads: it is the serving process that ends, as by SIGQUIT. A master starts another one.
fn quit(_: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    match signals::send(process::pid() as i32, Signal::Quit) {
        Ok(()) => code::TRUE,
        Err(e) => answer.fail(weir_core::os_text(&e)),
    }
}
