//! Limits of the serving process. nginx's limit of open files is of each worker; here the workers
//! share one, which is raised to as much for all of them, where that is allowed.

use crate::globals::Global;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::os_text;
use weir_runtime::process::{self, Limit};

/// The limits that the program was started with: of open files, of core files.
static STARTED_WITH: OnceLock<(Limit, Limit)> = OnceLock::new();

/// Some configuration has limited core files: before that there is nothing to take back, which would
/// need a right (`CAP_SYS_RESOURCE`) that root may be without.
static CORE_WAS_TOLD: AtomicBool = AtomicBool::new(false);

/// Takes note of what a serving process, which sets its own, has been told.
pub fn note(global: &Global) {
    let is_told = global.worker_rlimit_core.as_option().is_some();
    CORE_WAS_TOLD.fetch_or(is_told, Ordering::Relaxed);
}

/// Sets the limits of a process (0: this one), and tells what could not be had.
pub fn apply(pid: i32, global: &Global, log: &ErrorLog) {
    let own = STARTED_WITH.get_or_init(|| (process::nofile(), process::core()));
    let alert = |what: &str, e: std::io::Error| {
        let text = format!("setrlimit({what}) failed ({})", os_text(&e));
        log.log(LogLevel::Alert, None, text.as_bytes());
    };
    let core = match global.worker_rlimit_core.as_option() {
        Some(n) => Limit { soft: *n, hard: *n },
        None => own.1,
    };
    note(global);
    if CORE_WAS_TOLD.load(Ordering::Relaxed) {
        process::set_core(pid, core).unwrap_or_else(|e| alert("RLIMIT_CORE", e));
    }
    let workers = global.workers() as u64;
    let told = global.worker_rlimit_nofile.as_option().copied();
    let all = told.unwrap_or(own.0.soft).saturating_mul(workers);
    let hard = if told.is_some() { all } else { own.0.hard.max(all) };
    let mut have = all;
    if let Err(e) = process::set_nofile(pid, Limit { soft: all, hard }) {
        // What may be had without root's rights.
        let less = Limit { soft: all.min(own.0.hard), ..own.0 };
        let now = process::set_nofile(pid, less).map(|()| less.soft);
        have = now.unwrap_or(own.0.soft);
        if told.is_some_and(|n| n > have) {
            alert("RLIMIT_NOFILE", e);
        }
    }
    warn(global.connections() as u64, have, workers, log);
}

fn warn(connections: u64, files: u64, workers: u64, log: &ErrorLog) {
    let each = files / workers;
    if connections <= each {
        return;
    }
    let mut text = format!("{connections} worker_connections exceed open file resource limit: ");
    text.push_str(&match workers {
        1 => files.to_string(),
        _ => format!("{each} (the {workers} workers share {files})"),
    });
    log.log(LogLevel::Warn, None, text.as_bytes());
}
