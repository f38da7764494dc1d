//! The protocols that requests are passed on by, a file (or a folder) for each.

pub(crate) mod fastcgi;
pub(crate) mod grpc;
pub(crate) mod memc;
pub(crate) mod memcached;
pub(crate) mod proxy;
pub(crate) mod proxy_connect;
pub(crate) mod redis;
pub(crate) mod redis2;
pub(crate) mod scgi;
pub(crate) mod tunnel;
pub(crate) mod uwsgi;
