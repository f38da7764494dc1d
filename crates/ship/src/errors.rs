//! `ship_errors`: lines of the error log become events, whoever writes them.

use crate::access::stamp;
use crate::running::Plan;
use std::cell::Cell;
use std::sync::Arc;
use weir_core::logger::{self, LogLevel};
use weir_shipping::ecs::{severity, ErrorLine};
use weir_shipping::event::Kind;

thread_local! {
    /// What is written meanwhile is about receivers themselves: an event of it would beget another.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Lines that this thread writes meanwhile are not shipped.
pub fn quietly<T>(f: impl FnOnce() -> T) -> T {
    let before = QUIET.replace(true);
    let value = f();
    QUIET.set(before);
    value
}

/// From now on lines go to these, each with the least grave level that does.
pub fn follow(to: Vec<(Arc<Plan>, LogLevel)>) {
    let Some(least) = to.iter().map(|(_, level)| *level).max() else {
        return logger::tap(None);
    };
    logger::tap(Some((
        least,
        Arc::new(move |level, connection, text| {
            if QUIET.get() {
                return;
            }
            for (plan, _) in to.iter().filter(|(_, least)| level <= *least) {
                ship(plan, level, connection, text);
            }
        }),
    )));
}

fn ship(plan: &Plan, level: LogLevel, connection: Option<u64>, text: &[u8]) {
    let Some(queue) = plan.queue() else { return };
    let (stamp, time_ms) = stamp();
    let pid = std::process::id();
    let line = ErrorLine { stamp: &stamp, level: level.name(), pid, connection, message: text };
    let mut out = Vec::with_capacity(text.len() + 512);
    line.write(&plan.error_tail, &mut out);
    queue.push_shared(&out, time_ms, Kind::Error, severity(level.name()));
}
