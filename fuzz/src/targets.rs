//! The targets, each with its seeds, the pieces its mutations put in, and what must hold.

mod analytics;
mod backend;
mod base;
mod body;
mod cache;
mod conf;
mod der;
mod dns;
mod handover;
mod heads;
mod hello;
mod http;
mod http2;
mod images;
mod mail;
mod mmdb;
mod openresty;
mod proxy;
mod receivers;
mod reply;
mod requests;
mod ssi;
mod status;
mod stores;
mod template;
mod tengine;
mod tls;
mod trace;
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
    status::API,
    status::FIGURES,
    handover::TARGET,
    handover::CARRIED,
    heads::REQUEST,
    heads::RESPONSE,
    http::RANGES,
    http::COOKIES,
    body::TARGET,
    body::FIELDS,
    uri::TARGET,
    http2::TARGET,
    requests::TARGET,
    proxy::TARGET,
    proxy::WRITTEN,
    hello::TARGET,
    mail::POP3,
    mail::IMAP,
    mail::SMTP,
    mail::ANSWER,
    mail::SERVER,
    backend::FASTCGI,
    backend::MEMCACHED,
    stores::MEMC,
    stores::REDIS,
    reply::TARGET,
    cache::TARGET,
    dns::TARGET,
    mmdb::TARGET,
    images::TARGET,
    ssi::TARGET,
    openresty::TARGET,
    tengine::TARGET,
    ssi::CONDITIONS,
    template::TARGET,
    trace::TARGET,
    tls::CIPHERS,
    tls::PEM,
    tls::CERTIFICATES,
    tls::OCSP,
    der::TARGET,
    base::UNITS,
    base::DATES,
    base::ADDRESSES,
    base::ESCAPES,
    analytics::LINES,
    analytics::FORMATS,
    receivers::QUEUE,
    receivers::KAFKA,
    receivers::KEPT,
    receivers::ANSWERS,
];
