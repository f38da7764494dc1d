//! Every black-box test, one file per module and aspect.

#![allow(clippy::unwrap_used)]

mod body_reading;
mod client_timeouts;
mod harness_self;
mod keepalive;
mod request_headers;
mod request_limits;
mod request_line;
