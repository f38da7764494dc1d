//! Addresses as nginx.conf writes them: networks, and host and port in their many forms.
//!
//! Nothing here resolves a name.

mod cidr;
mod endpoint;
mod ip;

pub use cidr::Cidr;
pub use endpoint::{parse_endpoint, Endpoint, EndpointOptions, Host};
pub use ip::{parse_ipv4, parse_ipv6, unmapped};
