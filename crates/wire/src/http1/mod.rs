//! HTTP/1: request and response heads, chunked bodies, and the path of a request.

pub mod chunked;
pub mod field;
pub mod framing;
pub mod names;
pub mod range;
pub mod request;
mod request_error;
mod request_line;
pub mod response;
pub mod set_cookie;
pub mod uri;
