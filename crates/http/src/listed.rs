//! A request from a list of fields, with nginx's rules and words about what is refused: for protocols that
//! send lists.
//!
//! The list's text becomes the request's buffer, and the head's spans point into it as they do
//! for HTTP/1; the request line, the joined cookie and the `Host` made of `:authority` are
//! appended. So every accessor works, and nothing behind this knows the difference.

use crate::head;
use crate::request::Request;
use crate::server;
use weir_core::logger::LogLevel;
use weir_core::Connection;
use weir_core::Session;
use weir_wire::http1::field::Field;
use weir_wire::http1::framing;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::{ParseError, Version};
use weir_wire::http2::hpack::Fields;
use weir_wire::pseudo::{check_connection_fields, Bad, Kind, Pseudo};
use weir_wire::Range32;

/// Fills a request that has begun, but for its body; an error is the status that refuses it.
pub(crate) fn read(
    r: &mut Request,
    conn: &Connection,
    fields: &mut Fields,
    version: Version,
) -> Result<Pseudo, u16> {
    std::mem::swap(&mut r.buf, &mut fields.text);
    r.head.version = version;
    let mut pseudo = Pseudo::default();
    let mut cookies = Cookies::default();
    for field in &fields.list {
        one(r, conn, field.name, field.value, &mut pseudo, &mut cookies)?;
    }
    pseudo.complete().or_else(|bad| refuse(r, bad))?;
    request_line(r);
    cookies.join(r);
    Ok(pseudo)
}

/// What is found out about the whole of it, and the body; `ended`: none comes.
pub(crate) fn check(r: &mut Request, pseudo: &Pseudo, ended: bool) -> Result<(), u16> {
    check_connection_fields(&r.head, &r.buf).or_else(|bad| refuse(r, bad))?;
    if r.host.is_empty() {
        return refuse(r, Bad::NoHost);
    }
    let host = r.header(HeaderId::Host);
    pseudo.agrees_with(host, &r.buf).or_else(|bad| refuse(r, bad))?;
    if let Some(authority) = pseudo.authority.filter(|_| host.is_none()) {
        let authority = authority.of(&r.buf).to_vec();
        r.add_header_in(b"host", &authority);
    }
    length(r, ended)
}

fn refuse<T>(r: &Request, bad: Bad) -> Result<T, u16> {
    let mut text = Vec::new();
    bad.write(&r.buf, &mut text);
    r.log_bytes(LogLevel::Info, &text);
    Err(400)
}

fn refuse_text<T>(r: &Request, text: &str) -> Result<T, u16> {
    r.log(LogLevel::Info, text);
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
    let underscores = r.server().core.limits.underscores_in_headers;
    let kind = pseudo.take(&r.buf, name, value, underscores).or_else(|bad| refuse(r, bad))?;
    match kind {
        Kind::Method(method) => {
            r.head.method = method;
            r.head.method_span = value;
            r.method = method;
        }
        Kind::Scheme => r.head.scheme = Some(value),
        Kind::Path => path(r, value)?,
        Kind::Authority => authority(r, conn, value)?,
        Kind::Regular { is_odd } => {
            return regular(r, conn, Field { name, value, invalid: is_odd }, cookies);
        }
    }
    Ok(())
}

fn regular(
    r: &mut Request,
    conn: &Connection,
    field: Field,
    cookies: &mut Cookies,
) -> Result<(), u16> {
    let limits = r.server().core.limits;
    let name = field.name.of(&r.buf);
    if field.invalid && limits.ignore_invalid_headers {
        r.log_bytes(LogLevel::Info, &[b"client sent invalid header: \"", name, b"\""].concat());
        return Ok(());
    }
    if name == b"cookie" {
        cookies.0.push(field.value);
        return Ok(());
    }
    let is_host = name == b"host";
    let Request { buf, head, .. } = r;
    if let Err(e) = head.add_field(buf, field, &limits) {
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

fn path(r: &mut Request, value: Range32) -> Result<(), u16> {
    let Request { buf, head, .. } = r;
    if !head.take_target(buf, value) {
        return bad_path(r, value);
    }
    if head::is_complex(r) {
        let merge = *r.server().core.merge_slashes;
        if head::normalize(r, merge).is_err() {
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
    refuse(r, Bad::Path(value))
}

fn authority(r: &mut Request, conn: &Connection, value: Range32) -> Result<(), u16> {
    let Some(host) = framing::host_in(value, &r.buf) else {
        return refuse(r, Bad::Authority);
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

/// `GET /path HTTP/2.0`, as it is logged.
fn request_line(r: &mut Request) {
    let start = r.buf.len();
    let (method, target) = (r.head.method_span, r.head.target);
    let major = b'0' + (r.head.version.0 / 1000) as u8;
    r.buf.reserve(method.len() + target.len() + 10);
    r.buf.extend_from_within(method.start as usize..method.end as usize);
    r.buf.push(b' ');
    r.buf.extend_from_within(target.start as usize..target.end as usize);
    r.buf.extend_from_slice(b" HTTP/");
    r.buf.extend_from_slice(&[major, b'.', b'0']);
    let end = r.buf.len();
    r.head.request_line = range(start, end);
    r.head.protocol = range(end - 8, end);
    r.head.head_len = end;
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
        Err(_) => return refuse_text(r, "client sent invalid \"Content-Length\" header"),
    };
    match (ended, announced) {
        (true, Some(n)) if n > 0 => refuse_text(r, "client prematurely closed stream"),
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
