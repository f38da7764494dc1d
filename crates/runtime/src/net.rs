//! Connected sockets: one type for TCP and Unix streams, with the few calls the request path
//! makes, each without an extra system call.
//!
//! Windows: no Unix streams, files through a buffer; `tcp_info` tells nothing.

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

#[cfg(unix)]
pub(crate) use unix::set_option;

pub use connect::{begin_connect, is_out_of_descriptors, SocketOptions};
pub use stream::Stream;

pub use options::Choice;

#[cfg(target_os = "linux")]
pub use splice::Pipe;
#[cfg(windows)]
pub use windows::Pipe;

mod connect;
mod options;
#[cfg(target_os = "linux")]
mod splice;
mod stream;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;
