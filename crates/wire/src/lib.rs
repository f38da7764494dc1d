//! Sans-IO codecs: HTTP/1 heads and chunked bodies, HTTP/2, what programs behind a server speak, mail,
//! a TLS client's hello, and the PROXY protocol.
//!
//! Nothing here reads a socket or a clock. Callers hand in a buffer that begins where the
//! message begins, and hand in the same buffer, longer, when more is needed; every parser
//! remembers how far it came, so no byte is judged twice. Spans are offsets into that buffer.
//!
//! The rules are those of nginx 1.31, down to which malformed message gets which status.

pub mod client_hello;
pub mod fastcgi;
pub mod hello;
pub mod http1;
pub mod http2;
pub mod mail;
mod marks;
pub mod memc;
pub mod memcached;
pub mod proxy_protocol;
pub mod pseudo;
pub mod redis;
pub mod resp;
mod scan;
pub mod scgi;
mod target;
pub mod traceparent;
pub mod uwsgi;

pub use scan::Range32;
