//! The protocols that requests are passed on by, a file (or a folder) for each.

pub mod fastcgi;
pub mod grpc;
pub mod memcached;
pub mod proxy;
pub mod scgi;
pub mod uwsgi;
