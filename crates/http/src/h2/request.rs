//! A request from a header block, with nginx's rules and words about what is refused.
//!
//! The block's text becomes the request's buffer, and the head's spans point into it as they do
//! for HTTP/1; the request line, the joined cookie and the `Host` made of `:authority` are
//! appended. So every accessor works, and nothing behind this knows the difference.

use super::conf::H2Srv;
use crate::request::Request;
use crate::server;
use weir_core::logger::LogLevel;
use weir_core::Connection;
use weir_core::Session;
use weir_wire::http1::field::Field;
use weir_wire::http1::framing;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::{Method, ParseError, Version};
use weir_wire::http1::uri;
use weir_wire::http2::hpack::Fields;
use weir_wire::Range32;

/// What the pseudo-fields said, and where.
#[derive(Default)]
struct Pseudo {
    method: Option<Range32>,
    scheme: Option<Range32>,
    path: Option<Range32>,
    authority: Option<Range32>,
    /// A regular field has come: no more of these may.
    over: bool,
}

/// Fills a request that has begun; an error is the status that refuses it.
pub fn fill(
    r: &mut Request,
    conn: &Connection,
    fields: &mut Fields,
    ended: bool,
) -> Result<(), u16> {
    std::mem::swap(&mut r.buf, &mut fields.text);
    r.head.version = Version::HTTP_20;
    let mut pseudo = Pseudo::default();
    let mut cookies = Cookies::default();
    for field in &fields.list {
        one(r, conn, field.name, field.value, &mut pseudo, &mut cookies)?;
    }
    request_line(r, &pseudo)?;
    cookies.join(r);
    let addr_speaks = conn.addr(&r.gen().core).http2;
    if !addr_speaks && !*r.server().conf::<H2Srv>().enable {
        let text = "client attempted to request the server name for which the negotiated \
                    protocol is disabled";
        return refuse(r, 421, text);
    }
    check_connection_fields(r)?;
    check_host(r, &pseudo)?;
    length(r, ended)
}

fn refuse<T>(r: &Request, status: u16, text: &str) -> Result<T, u16> {
    r.log(LogLevel::Info, text);
    Err(status)
}

fn refuse_bytes<T>(r: &Request, parts: &[&[u8]]) -> Result<T, u16> {
    r.log_bytes(LogLevel::Info, &parts.concat());
    Err(400)
}

fn one(
    r: &mut Request,
    conn: &Connection,
    name: Range32,
    value: Range32,
    pseudo: &mut Pseudo,
    cookies: &mut Cookies,
) -> Result<(), u16> {
    let limits = r.server().core.limits;
    let text = name.of(&r.buf);
    let is_pseudo = text.first() == Some(&b':');
    let letters = if is_pseudo { &text[1..] } else { text };
    let mut odd = false;
    for b in letters {
        match b {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => {}
            b'_' if limits.underscores_in_headers => {}
            0..=0x20 | 0x7f | b':' | b'A'..=b'Z' => {
                return refuse_bytes(r, &[b"client sent invalid header name: \"", text, b"\""]);
            }
            _ => odd = true,
        }
    }
    let bytes = value.of(&r.buf);
    if memchr::memchr3(0, b'\n', b'\r', bytes).is_some() {
        let parts = [b"client sent header \"", text, b"\" with invalid value: \"", bytes, b"\""];
        return refuse_bytes(r, &parts);
    }
    if is_pseudo {
        return pseudo_field(r, conn, name, value, pseudo);
    }
    if !pseudo.over {
        pseudo.over = true;
        complete(r, pseudo)?;
    }
    if odd && limits.ignore_invalid_headers {
        r.log_bytes(LogLevel::Info, &[b"client sent invalid header: \"", text, b"\""].concat());
        return Ok(());
    }
    if text == b"cookie" {
        cookies.0.push(value);
        return Ok(());
    }
    let is_host = text == b"host";
    let Request { buf, head, .. } = r;
    if let Err(e) = head.add_field(buf, Field { name, value, invalid: odd }, &limits) {
        let mut text = Vec::new();
        e.write_log(&r.head, &r.buf, &mut text);
        r.log_bytes(LogLevel::Info, &text);
        return Err(e.status());
    }
    if is_host && r.host.is_empty() {
        choose_server(r, conn);
    }
    Ok(())
}

fn pseudo_field(
    r: &mut Request,
    conn: &Connection,
    name: Range32,
    value: Range32,
    pseudo: &mut Pseudo,
) -> Result<(), u16> {
    if pseudo.over {
        return refuse(r, 400, "client sent out of order pseudo-headers");
    }
    let name = name.of(&r.buf);
    let place = match name {
        b":path" => &mut pseudo.path,
        b":method" => &mut pseudo.method,
        b":scheme" => &mut pseudo.scheme,
        b":authority" => &mut pseudo.authority,
        _ => return refuse_bytes(r, &[b"client sent unknown pseudo-header \"", name, b"\""]),
    };
    if place.replace(value).is_some() {
        return refuse_bytes(r, &[b"client sent duplicate ", name, b" header"]);
    }
    if value.is_empty() && name != b":authority" {
        return refuse_bytes(r, &[b"client sent empty ", name, b" header"]);
    }
    match name {
        b":path" => path(r, value),
        b":method" => method(r, value),
        b":scheme" => scheme(r, value),
        _ => authority(r, conn, value),
    }
}

fn path(r: &mut Request, value: Range32) -> Result<(), u16> {
    let Request { buf, head, .. } = r;
    if !head.take_target(buf, value) {
        return bad_path(r, value);
    }
    if r.head.complex_uri {
        let path = r.head.path.of(&r.buf).to_vec();
        let merge = *r.server().core.merge_slashes;
        if uri::normalize(&path, merge, &mut r.uri).is_err() {
            r.uri.clear();
            return bad_path(r, value);
        }
    } else {
        let Request { buf, head, uri, .. } = &mut *r;
        uri.extend_from_slice(head.path.of(buf));
    }
    if let Some(args) = r.head.args {
        let Request { buf, args: out, .. } = &mut *r;
        out.extend_from_slice(args.of(buf));
    }
    Ok(())
}

fn bad_path(r: &Request, value: Range32) -> Result<(), u16> {
    refuse_bytes(r, &[b"client sent invalid :path header: \"", value.of(&r.buf), b"\""])
}

fn method(r: &mut Request, value: Range32) -> Result<(), u16> {
    let text = value.of(&r.buf);
    let method = Method::from_bytes(text);
    let fine = |b: &u8| b.is_ascii_uppercase() || matches!(b, b'_' | b'-');
    if method == Method::Other && !text.iter().all(fine) {
        return refuse_bytes(r, &[b"client sent invalid method: \"", text, b"\""]);
    }
    r.head.method = method;
    r.head.method_span = value;
    r.method = method;
    Ok(())
}

fn scheme(r: &mut Request, value: Range32) -> Result<(), u16> {
    let text = value.of(&r.buf);
    let more = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    if !text[0].is_ascii_alphabetic() || !text.iter().all(more) {
        return refuse_bytes(r, &[b"client sent invalid :scheme header: \"", text, b"\""]);
    }
    r.head.scheme = Some(value);
    Ok(())
}

fn authority(r: &mut Request, conn: &Connection, value: Range32) -> Result<(), u16> {
    let Some(host) = framing::host_in(value, &r.buf) else {
        return refuse(r, 400, "client sent invalid \":authority\" header");
    };
    r.head.authority = Some(value);
    r.head.host = Some(host);
    choose_server(r, conn);
    Ok(())
}

fn choose_server(r: &mut Request, conn: &Connection) {
    let Some(h) = r.head.host else { return };
    let Request { buf, host, .. } = &mut *r;
    host.extend_from_slice(h.name.of(buf));
    if h.has_upper_case {
        host.make_ascii_lowercase();
    }
    server::select(conn, r);
}

fn complete(r: &Request, pseudo: &Pseudo) -> Result<(), u16> {
    let missing = match (pseudo.method, pseudo.scheme, pseudo.path) {
        (None, _, _) => "client sent no :method header",
        (_, None, _) => "client sent no :scheme header",
        (_, _, None) => "client sent no :path header",
        _ => return Ok(()),
    };
    refuse(r, 400, missing)
}

/// `GET /path HTTP/2.0`, as it is logged.
fn request_line(r: &mut Request, pseudo: &Pseudo) -> Result<(), u16> {
    complete(r, pseudo)?;
    let start = r.buf.len();
    let (method, target) = (r.head.method_span, r.head.target);
    r.buf.reserve(method.len() + target.len() + 10);
    r.buf.extend_from_within(method.start as usize..method.end as usize);
    r.buf.push(b' ');
    r.buf.extend_from_within(target.start as usize..target.end as usize);
    r.buf.extend_from_slice(b" HTTP/2.0");
    let end = r.buf.len();
    r.head.request_line = range(start, end);
    r.head.protocol = range(end - 8, end);
    r.head.head_len = end;
    Ok(())
}

fn range(start: usize, end: usize) -> Range32 {
    Range32 { start: start as u32, end: end as u32 }
}

#[derive(Default)]
struct Cookies(Vec<Range32>);

impl Cookies {
    /// One field of all of them (RFC 9113 section 8.2.3).
    fn join(self, r: &mut Request) {
        let Some((first, rest)) = self.0.split_first() else { return };
        let mut text = first.of(&r.buf).to_vec();
        for piece in rest {
            text.extend_from_slice(b"; ");
            text.extend_from_slice(piece.of(&r.buf));
        }
        r.add_header_in(b"cookie", &text);
    }
}

fn check_connection_fields(r: &Request) -> Result<(), u16> {
    for (id, name) in [
        (HeaderId::Connection, "Connection"),
        (HeaderId::KeepAlive, "Keep-Alive"),
        (HeaderId::ProxyConnection, "Proxy-Connection"),
        (HeaderId::TransferEncoding, "Transfer-Encoding"),
        (HeaderId::Upgrade, "Upgrade"),
    ] {
        if r.head.has(id) {
            return refuse(r, 400, &format!("client sent \"{name}\" header"));
        }
    }
    let mut te = r.head.get_all(HeaderId::Te).map(|h| h.value.of(&r.buf));
    let fine = match (te.next(), te.next()) {
        (None, _) => true,
        (Some(v), None) => v.eq_ignore_ascii_case(b"trailers"),
        _ => false,
    };
    match fine {
        true => Ok(()),
        false => refuse(r, 400, "client sent invalid \"TE\" header"),
    }
}

fn check_host(r: &mut Request, pseudo: &Pseudo) -> Result<(), u16> {
    if r.host.is_empty() {
        return refuse(r, 400, "client sent neither \":authority\" nor \"Host\" header");
    }
    let Some(authority) = pseudo.authority else { return Ok(()) };
    let authority = authority.of(&r.buf);
    match r.header(HeaderId::Host) {
        Some(host) if host == authority => Ok(()),
        Some(_) => {
            let text = "client sent \":authority\" and \"Host\" headers with different values";
            refuse(r, 400, text)
        }
        None => {
            let authority = authority.to_vec();
            r.add_header_in(b"host", &authority);
            Ok(())
        }
    }
}

fn length(r: &mut Request, ended: bool) -> Result<(), u16> {
    let announced = match framing::framing(&r.head, &r.buf, false) {
        Ok(framing::BodyFraming::Length(n)) => Some(n),
        Ok(_) => None,
        Err(e @ (ParseError::ConnectRefused | ParseError::TraceRefused)) => {
            let mut text = Vec::new();
            e.write_log(&r.head, &r.buf, &mut text);
            r.log_bytes(LogLevel::Info, &text);
            return Err(e.status());
        }
        Err(_) => return refuse(r, 400, "client sent invalid \"Content-Length\" header"),
    };
    match (ended, announced) {
        (true, Some(n)) if n > 0 => refuse(r, 400, "client prematurely closed stream"),
        (true, None) => {
            r.body.begin(framing::BodyFraming::None);
            Ok(())
        }
        (true, _) => {
            r.body.begin(framing::BodyFraming::Length(0));
            Ok(())
        }
        (false, announced) => {
            r.body.begin_stream(announced);
            Ok(())
        }
    }
}
