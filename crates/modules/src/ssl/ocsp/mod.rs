//! OCSP responders: whom to ask, how, and what is kept of what they said (RFC 6960).
//!
//! Clients' certificates are asked about between handshake and first request ([`check`]); the
//! server's own in the background, for stapling.
//!
//! Differences from nginx: `Host` has the port where it is not 80; an answer ends where its
//! `Content-Length` says, and may have 64k where nginx stops at 16k; a refused request is logged
//! with its status.

pub mod cache;
pub mod check;
pub mod fetch;
pub mod responder;

pub use cache::Cache;
pub use fetch::ask;
pub use responder::Responder;

/// `ssl_ocsp`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Off,
    /// Every certificate of the chain but the root.
    On,
    /// The client's own alone.
    Leaf,
}
