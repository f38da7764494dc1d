//! The `stream` block: TCP and UDP sessions, their phases, variables and what is done with their bytes.
//! See ARCHITECTURE.md for the way of a session.

pub mod build;
pub mod conf;
pub mod core_rows;
pub mod generation;
pub mod module;
pub mod pass;
pub mod preread;
pub mod proxy;
pub mod ret;
pub mod serve;
mod session;
pub mod set;
mod ssl;
pub mod upstream;
mod vars;

pub use module::{Flow, Phase, PhaseHandler, StreamModule};
pub use session::Session;
