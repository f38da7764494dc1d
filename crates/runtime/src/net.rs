//! Connected sockets: one type for TCP and Unix streams, with the few calls the request path
//! makes, each without an extra system call.

#[cfg(unix)]
pub use unix::Stream;

#[cfg(unix)]
pub(crate) use unix::set_option;

#[cfg(unix)]
pub use connect::SocketOptions;

#[cfg(unix)]
mod connect;
#[cfg(unix)]
mod unix;
