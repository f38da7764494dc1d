//! The HTTP engine: connections, phases, filters, variables, generations.
//! See ARCHITECTURE.md for the way of a request.

#![warn(missing_docs, unreachable_pub)]

pub mod body;
pub mod buf;
pub mod build;
mod client;
pub(crate) mod client_cert;
pub mod client_watch;
pub mod conf;
pub mod core_rows;
pub mod core_vars;
mod counted;
pub mod credentials;
mod date;
pub mod detached;
pub mod door;
pub mod early;
mod filters;
mod flow;
pub mod generation;
mod h1;
pub mod h2;
pub mod h3;
mod head;
pub(crate) mod headers_out;
mod held;
mod keepalive;
pub mod lent;
mod linger;
mod listed;
pub mod location;
pub mod marks;
pub(crate) mod matching;
pub mod module;
pub mod names;
mod one_line;
pub mod output;
mod packing;
mod phases;
mod plan;
pub mod pool;
mod process_figures;
mod reading;
pub mod redirect;
pub mod request;
mod request_log;
mod sending;
mod server;
pub mod special;
pub mod status_zone;
pub mod subrequest;
pub mod symlinks;
mod timing;
pub mod trace;
pub mod tunnel;
pub mod vars;
mod waiting;
mod walk;
pub mod watched;

pub use buf::{Buf, Chain, Data};
pub use client_watch::ClientWatch;
pub use door::Serving;
pub use flow::{Flow, Next, Phase};
pub use module::HttpModule;
pub use request::Request;
