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
mod http;
mod install;
mod kafka;
mod keeper;
mod kinds;
pub mod line;
mod loki;
mod metrics;
mod otlp;
mod queue;
pub mod receiver;
mod running;
mod sending;
mod syslog;

pub use conf::{build, MODULE};
pub use metrics::gather_by;
pub use running::{has_ended, stop};

use conf::Ships;
use std::path::PathBuf;
use std::sync::Arc;
use weir_core::generation::Generation;

/// A generation is about to be served by this process.
pub fn start(gen: &Generation) {
    let built = &gen.global.get::<Ships>().built;
    running::follow(&built.plans, &gen.error_log);
    errors::follow(built.errors.iter().map(|(p, level)| (Arc::clone(p), *level)).collect());
    metrics::follow(built.metrics.iter().map(|(p, every)| (Arc::clone(p), *every)).collect());
}

/// The folders that the workers' user writes to.
pub fn dirs(gen: &Generation) -> Vec<PathBuf> {
    gen.global.get::<Ships>().built.plans.iter().map(|plan| plan.queue.dir.clone()).collect()
}
