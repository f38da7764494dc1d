//! What stands on Windows in the place of modules that are Unix's: the same names and calls. What the system does not
//! have answers [`std::io::ErrorKind::Unsupported`], and who calls says so.

pub mod beneath;
pub mod children;
pub mod datagrams;
pub(crate) mod family;
pub mod handover;
pub(crate) mod held;
pub mod inquiry;
pub(crate) mod lent;
pub(crate) mod mappings;
pub(crate) mod moves;
mod owned;
pub mod packets;
pub(crate) mod pipes;
pub mod process;
pub mod service;
pub mod signals;
pub mod sockets;
pub(crate) mod start;
pub mod title;
pub mod trusted;

pub(crate) use family::start_reader;

/// What the system has no call for.
fn unsupported<T>() -> std::io::Result<T> {
    Err(std::io::ErrorKind::Unsupported.into())
}
