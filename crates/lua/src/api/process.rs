//! `ngx.process`: the process that code runs in.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::{self, ANY};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use weir_runtime::process;
use weir_runtime::signals::{self, Signal};

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("process_type", ANY, |state, _, answer| answer.text(kind(state).as_bytes())),
    OpRow::any("process_master", ANY, |_, _, answer| {
        let master = Some(MASTER.load(Ordering::Relaxed)).filter(|pid| *pid > 0);
        answer.number(f64::from(master.unwrap_or_else(|| process::pid() as i32)))
    }),
    OpRow::any("process_expire", ANY & !context::INIT, |state, _, _| {
        state.vm.end();
        code::TRUE
    }),
    OpRow::any("process_quit", ANY & !context::INIT, quit),
    // There is to be a privileged agent, with so many connections.
    OpRow::any("process_agent", context::INIT, |state, args, _| {
        // Each state asks for the same.
        let _ = state.vm.gen.agent.set(args.x.max(0.0) as usize);
        code::TRUE
    }),
];

/// The master's process; 0 where there is none.
static MASTER: AtomicI32 = AtomicI32::new(0);
/// `master_process off`
static IS_ALONE: AtomicBool = AtomicBool::new(false);

/// This process serves under a master of that number.
pub fn has_master(pid: u32) {
    MASTER.store(i32::try_from(pid).unwrap_or(0), Ordering::Relaxed);
}

/// There is to be no process but this one.
pub(crate) fn is_alone(is: bool) {
    IS_ALONE.store(is, Ordering::Relaxed);
}

/// What OpenResty would call the process, where Weir has a thread.
fn kind(state: &State<'_>) -> &'static str {
    if IS_ALONE.load(Ordering::Relaxed) {
        return "single";
    }
    match state.vm.worker.upgrade() {
        _ if state.run.context == context::INIT => "master",
        Some(worker) if worker.is_agent() => "privileged agent",
        _ => "worker",
    }
}

/// The worker ends once it has answered, and another begins. Where it is all that there is, the process ends.
fn quit(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let worker = state.vm.worker.upgrade().filter(|_| !IS_ALONE.load(Ordering::Relaxed));
    if let Some(worker) = worker {
        worker.leave();
        return code::TRUE;
    }
    match signals::send(process::pid() as i32, Signal::Quit) {
        Ok(()) => code::TRUE,
        Err(e) => answer.fail(weir_core::os_text(&e)),
    }
}
