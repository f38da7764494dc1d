//! Access events, errors and figures go to other machines (`ship`).
//!
//! A worker writes an event into its own segment of a queue on disk; a thread for each receiver reads, sends and
//! removes. What goes wrong with a receiver never reaches a request.

mod access;
mod common;
mod conf;
mod counts;
mod elastic;
mod errors;
#[cfg(test)]
mod fake;
mod file;
mod grpc;
pub mod http;
mod install;
mod kafka;
mod keeper;
mod kinds;
pub mod line;
mod loki;
mod metrics;
mod otel;
mod otlp;
mod parts;
mod places;
mod queue;
pub mod receiver;
mod running;
mod secrets;
mod sending;
mod session;
mod syslog;

pub use conf::{build, MODULE};
pub use metrics::{encode_by, gather_by};
pub use otel::MODULE as OTEL;
pub use queue::let_go_of_ended;
pub use session::{MAIL, STREAM};

use conf::Ships;
use std::path::PathBuf;
use std::sync::Arc;
use weir_core::generation::Generation;

/// A generation is about to be served by this process, by so many workers.
pub fn start(gen: &Generation, workers: usize) {
    queue::want_at_hand(workers);
    let built = &gen.global.get::<Ships>().built;
    running::follow(&built.plans, &gen.error_log);
    errors::follow(built.errors.iter().map(|(p, level)| (Arc::clone(p), *level)).collect());
    metrics::follow(built.metrics.iter().map(|(p, every)| (Arc::clone(p), *every)).collect());
}

/// The process is to end at once: what is being sent is given up.
pub fn stop() {
    running::stop();
    otel::stop();
}

/// To be asked when nobody writes any more: whether the process may end. What is left is sent first, for as long as
/// that takes and is not too long.
pub fn has_ended() -> bool {
    // Both finish at the same time.
    let has_sent_spans = otel::has_ended();
    running::has_ended() && has_sent_spans
}

/// How all receivers of this process do, as JSON.
pub fn status_json() -> Vec<u8> {
    let mut out = Vec::new();
    counts::all_figures().write_json(&mut out);
    out.push(b'\n');
    out
}

/// The same for a person.
pub fn status_text() -> String {
    let mut text = counts::all_figures()
        .iter()
        .map(|(name, figure)| counts::in_words(name, figure))
        .collect::<Vec<_>>()
        .join("\n");
    if text.is_empty() {
        text = "the configuration has no receivers\n".into();
    }
    text
}

/// Puts in place what a receiver needs; what was done.
///
/// # Errors
///
/// There is no such receiver, it needs nothing, or it cannot be reached.
pub fn install(gen: &Generation, name: &str, dashboards: Option<&str>) -> Result<String, String> {
    let plans = &gen.global.get::<Ships>().built.plans;
    let plan = plans.iter().find(|plan| *plan.name == *name);
    let plan = plan.ok_or_else(|| format!("there is no receiver \"{name}\""))?;
    let ground = receiver::Ground {
        name: Arc::clone(&plan.name),
        stop: Arc::default(),
        say: Arc::new(|_, _| ()),
    };
    let done = plan.target.install(ground, dashboards);
    done.map_err(|why| plan.secrets.clean(&why))
}

/// The folders that the workers' user writes to.
pub fn dirs(gen: &Generation) -> Vec<PathBuf> {
    gen.global.get::<Ships>().built.plans.iter().map(|plan| plan.queue.dir.clone()).collect()
}
