//! TLS on the runtime's sockets: what a connection reads and writes, plain or encrypted.
//!
//! [`Channel`] is a socket with or without a TLS [`session`] on it; everything above it reads and
//! writes plain bytes and does not ask which it is. The protocol is rustls'.

pub mod ciphers;
pub mod crl;
pub mod der;
pub mod judge;
pub mod load;
pub mod ocsp;
pub mod offer;
pub mod pem;
pub mod server;
pub mod sessions;
pub mod staple;
pub mod x509;

mod channel;
mod engine;
mod incoming;
mod session;
mod session_id;
mod write;

pub use channel::Channel;
pub use incoming::{begin, refuse, Incoming};
pub use rustls;
pub use session::{Session, TlsError, RECORD_MAX_BYTES};
