//! The targets, each with its seeds, the pieces its mutations put in, and what must hold.

mod backend;
mod base;
mod body;
mod conf;
mod dns;
mod heads;
mod http;
mod http2;
mod proxy;
mod ssi;
mod template;
mod tls;
mod uri;

use crate::random::Random;

pub struct Target {
    pub name: &'static str,
    pub seeds: &'static [&'static [u8]],
    pub pieces: &'static [&'static [u8]],
    /// Panics when what must hold does not.
    pub check: fn(&[u8], &mut Random),
}

pub const TARGETS: &[Target] = &[
    conf::TARGET,
    heads::REQUEST,
    heads::RESPONSE,
    http::RANGES,
    http::COOKIES,
    body::TARGET,
    body::FIELDS,
    uri::TARGET,
    http2::TARGET,
    proxy::TARGET,
    backend::FASTCGI,
    backend::MEMCACHED,
    dns::TARGET,
    ssi::TARGET,
    template::TARGET,
    tls::CIPHERS,
    tls::PEM,
    tls::CERTIFICATES,
    tls::OCSP,
    base::UNITS,
    base::DATES,
    base::ADDRESSES,
    base::ESCAPES,
];
