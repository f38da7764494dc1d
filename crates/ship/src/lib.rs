//! Access events, errors and figures go to other machines (`ship`).
//!
//! A worker writes an event into its own segment of a queue on disk; a thread for each receiver reads, sends and
//! removes. What goes wrong with a receiver never reaches a request.

mod common;
mod conf;
#[cfg(test)]
mod fake;
mod grpc;
mod http;
mod kafka;
mod kinds;
pub mod line;
mod loki;
mod otlp;
pub mod receiver;
mod syslog;

pub use conf::MODULE;
