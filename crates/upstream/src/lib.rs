//! Backends: who they are, which is asked, the connections to them, and the way a request is
//! sent to one and its answer read.

pub mod balance;
pub mod conf;
pub mod decoder;
pub mod group;
pub mod h2;
mod least_time;
pub mod link;
pub mod live;
mod names;
pub mod peers;
pub mod reply;
mod sessions;
pub mod sticky;
pub mod tls;
mod vars;

pub use conf::{UpstreamMain, UpstreamRef, MODULE};
