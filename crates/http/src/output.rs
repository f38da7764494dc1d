//! Which fields the header of a response has and in what order, whatever the protocol. What only one
//! protocol has is in `h1::output` and `h2::output`.

use crate::conf::ServerTokens;
use crate::date;
use crate::headers_out::HeadersOut;
use crate::request::Request;
use std::rc::Rc;
use weir_wire::http2::hpack::Known;

pub use weir_core::{SERVER_NAME, SERVER_VERSION};

/// A name that the server itself sends: as HTTP/1 writes it, and its number for HTTP/2.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    pub text: &'static [u8],
    pub known: Known,
}

const CONTENT_TYPE: Name = Name { text: b"Content-Type: ", known: Known::CONTENT_TYPE };
const CONTENT_LENGTH: Name = Name { text: b"Content-Length: ", known: Known::CONTENT_LENGTH };
const LAST_MODIFIED: Name = Name { text: b"Last-Modified: ", known: Known::LAST_MODIFIED };
const LOCATION: Name = Name { text: b"Location: ", known: Known::LOCATION };
const VARY: Name = Name { text: b"Vary: ", known: Known::VARY };

/// Where a header's fields go: the part that a protocol brings of its own.
pub(crate) trait HeadSink {
    fn server(&mut self, tokens: ServerTokens);
    fn date(&mut self);
    fn number(&mut self, name: Name, n: u64);
    /// A value in parts.
    fn known(&mut self, name: Name, value: &[&[u8]]);
    fn field(&mut self, name: &[u8], value: &[u8]);
    /// As many as there are.
    fn fields(&mut self, out: &HeadersOut) {
        out.iter().for_each(|(name, value)| self.field(name, value));
    }
    /// Fields that are about the connection.
    fn connection(&mut self, _: &Request) {}
}

/// The fields of a response's header in nginx's order.
#[inline]
pub(crate) fn write_fields(r: &Request, head: &mut impl HeadSink) {
    write_start(r, head);
    write_rest(r, head);
}

/// The first two of them.
#[inline]
pub(crate) fn write_start(r: &Request, head: &mut impl HeadSink) {
    if !r.out.has_server {
        head.server(*r.loc().core.server_tokens);
    }
    if !r.out.has_date {
        head.date();
    }
}

/// The others.
#[inline]
pub(crate) fn write_rest(r: &Request, head: &mut impl HeadSink) {
    let out = &r.out;
    let core = &r.loc().core;
    match out.content_type_parts() {
        Some([kind, b"", b""]) => head.known(CONTENT_TYPE, &[kind]),
        Some(parts) => head.known(CONTENT_TYPE, &parts),
        None => {}
    }
    if let Some(n) = out.content_length {
        head.number(CONTENT_LENGTH, n);
    }
    if let Some(secs) = out.last_modified.filter(|_| !out.has_last_modified) {
        head.known(LAST_MODIFIED, &[&date::of(secs)]);
    }
    let location = out.leading_location();
    if let Some(location) = location {
        head.known(LOCATION, &[location]);
    }
    head.connection(r);
    if r.flags.gzip_vary && *core.gzip_vary {
        head.known(VARY, &[b"Accept-Encoding"]);
    }
    match location {
        None => head.fields(out),
        Some(_) => out.others().for_each(|(name, value)| head.field(name, value)),
    }
}

/// Puts scheme and host before a `Location` that is only a path, where `absolute_redirect` is on.
#[inline]
pub(crate) fn complete_location(r: &mut Request) {
    if r.flags.own_location {
        complete_own_location(r);
    }
}

#[inline(never)]
fn complete_own_location(r: &mut Request) {
    let Some(path) = r.out.get(b"Location") else { return };
    if path.first() != Some(&b'/') || !*r.loc().core.absolute_redirect {
        return;
    }
    let path = path.to_vec();
    let core = Rc::clone(r.loc());
    let mut full = Vec::with_capacity(path.len() + 64);
    let is_tls = r.conn().is_tls();
    full.extend_from_slice(if is_tls { b"https://" } else { b"http://" });
    let local = r.conn().local_addr();
    if *core.core.server_name_in_redirect {
        full.extend_from_slice(&r.server().core.reached.primary_name);
    } else if !r.host.is_empty() {
        full.extend_from_slice(&r.host);
    } else if let Some(a) = local {
        full.extend_from_slice(a.ip().to_string().as_bytes());
    }
    if let Some(port) = local.map(|a| a.port()) {
        let usual = if is_tls { 443 } else { 80 };
        if *core.core.port_in_redirect && port != usual {
            full.extend_from_slice(format!(":{port}").as_bytes());
        }
    }
    full.extend_from_slice(&path);
    r.out.replace(b"Location", &full);
    r.out.lead_with_location();
}
