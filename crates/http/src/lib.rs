//! The HTTP engine: connections, phases, filters, variables, generations.
//! See ARCHITECTURE.md for the way of a request.

pub mod body;
pub mod buf;
pub mod build;
mod client;
pub mod client_cert;
pub mod client_watch;
pub mod conf;
pub mod core_rows;
pub mod core_vars;
mod date;
pub mod detached;
pub mod door;
pub mod early;
mod filters;
pub mod generation;
mod h1;
pub mod h2;
mod head;
pub mod headers_out;
pub mod held;
mod keepalive;
pub mod lent;
mod linger;
pub mod location;
pub mod matching;
pub mod module;
pub mod names;
mod one_line;
pub mod output;
pub mod phases;
mod plan;
pub mod pool;
pub mod request;
mod request_log;
pub mod server;
pub mod special;
pub mod subrequest;
pub mod symlinks;
pub mod timing;
pub mod vars;

pub use buf::{Buf, Chain, Data};
pub use client_watch::ClientWatch;
pub use door::Serving;
pub use module::{Flow, HttpModule, Next, Phase};
pub use request::Request;
