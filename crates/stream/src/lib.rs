//! The `stream` block: TCP and UDP sessions, their phases, variables and what is done with their bytes.
//! See ARCHITECTURE.md for the way of a session.

#![warn(missing_docs, unreachable_pub)]

mod build;
mod conf;
mod core_rows;
mod generation;
mod health;
mod module;
mod pass;
mod preread;
mod proxy;
mod ret;
mod serve;
mod session;
mod set;
mod ssl;
mod status_zone;
mod upstream;
mod vars;

pub use build::{finish, set_stream, Build};
pub use conf::StreamSrv;
pub use core_rows::{COMMON, MODULE as CORE};
pub use generation::{Stream, StreamConf};
pub use health::MODULE as HEALTH;
pub use module::{
    binds_any_source, reports, serves, start, Active, Content, Flow, Handler, Look, Phase,
    PhaseHandler, Prereader, Seen, StreamModule,
};
pub use pass::MODULE as PASS;
pub use preread::MODULE as PREREAD;
pub use proxy::{speaks_tls, Lent, MODULE as PROXY};
pub use ret::MODULE as RETURN;
pub use serve::{serve, FORBIDDEN, UNAVAILABLE};
pub use session::Session;
pub use set::MODULE as SET;
pub use status_zone::MODULE as STATUS_ZONE;
pub use upstream::MODULE as UPSTREAM;
