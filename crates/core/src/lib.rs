//! What all protocols share: logs, zones, names, listening, queues. It knows no protocol.

#![warn(missing_docs, unreachable_pub)]

pub mod bind;
pub mod block;
pub mod captured;
pub mod carried;
mod client_addr;
pub mod common;
mod connection;
pub mod counters;
pub mod counts;
pub mod datagrams;
mod deadlines;
pub mod error_log;
pub mod eval;
pub mod figures;
pub mod forms;
pub mod generation;
mod handed_on;
pub mod listen;
mod log_pipe;
pub mod logger;
pub mod paths;
mod peek;
pub mod programs;
pub mod proxy_header;
mod queue;
pub mod random;
pub mod registry;
pub mod relay;
pub mod resolver;
pub mod rollback;
pub mod session;
pub mod shared_file;
pub mod socket_errors;
pub mod state_places;
pub mod syslog;
pub mod temp;
pub mod thread_pools;
pub mod timing;
pub mod tls;
pub mod unknown;
pub mod values;
pub mod variables;
pub mod whole;
pub mod worker;
pub mod zones;

use std::future::Future;
use std::pin::Pin;

pub use client_addr::ClientAddr;
pub use connection::{ConnError, Connection};
pub use deadlines::Deadlines;
pub use queue::OutQueue;
pub use session::Session;
pub use worker::Worker;

/// Sent in `Server`, `$nginx_version` and built-in pages.
pub const SERVER_VERSION: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));
/// The same without a version: `server_tokens off`.
pub const SERVER_NAME: &str = "weir";

/// A future of one worker; it never leaves its thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// `2: No such file or directory`, as nginx shows system errors.
pub fn os_text(e: &std::io::Error) -> String {
    weir_base::system::error(e)
}
