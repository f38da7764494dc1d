//! Connected sockets: one type for TCP and Unix streams, with the few calls the request path
//! makes, each without an extra system call.
//!
//! Windows: `WSARecv` and `WSASend`, files by `TransmitFile`; `tcp_info` tells nothing.

#[cfg(unix)]
pub use unix::Stream;

#[cfg(unix)]
pub(crate) use unix::set_option;

#[cfg(unix)]
pub use connect::{begin_connect, is_out_of_descriptors, SocketOptions};

#[cfg(unix)]
pub use options::Choice;

#[cfg(target_os = "linux")]
pub use splice::Pipe;

#[cfg(unix)]
mod connect;
#[cfg(unix)]
mod options;
#[cfg(target_os = "linux")]
mod splice;
#[cfg(unix)]
mod unix;
