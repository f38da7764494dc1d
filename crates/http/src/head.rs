//! From a parsed head of HTTP/1 to a request: server, URI, body, keep-alive. Of a head that is refused
//! or does not come to its end, what nginx has taken of the same bytes by then, because its logs, and
//! the pages of errors, show that.

use crate::conf::CoreSrv;
use crate::request::Request;
use crate::server;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::Connection;
use weir_core::Session;
use weir_runtime::paths;
use weir_wire::http1::framing;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::{Connection as Wish, Method, ParseError, Parser, Version};
use weir_wire::http1::uri;
use weir_wire::Range32;

const IN_HEADERS: &str = "while reading client request headers";

/// nginx's words for what is done with a request line.
pub(crate) fn in_line(r: &Request) -> &'static str {
    match r.flags.pipelined {
        true => "while reading client pipelined request line",
        false => "while reading client request line",
    }
}

/// Whether the path is to be brought into its normal form.
pub(crate) fn is_complex(r: &Request) -> bool {
    let path = || r.head.path.of(&r.buf);
    r.head.complex_uri
        || paths::BACKSLASH_SEPARATES && memchr::memchr(b'\\', path()).is_some()
        || paths::CUTS_ENDS && uri::has_odd_ends(path())
}

/// Brings the path into its normal form.
///
/// # Errors
///
/// It has none; the URI is empty.
pub(crate) fn normalize(r: &mut Request, merge: bool) -> Result<(), uri::BadUri> {
    let path = r.head.path.of(&r.buf).to_vec();
    let (back, cut) = (paths::BACKSLASH_SEPARATES, paths::CUTS_ENDS);
    let rules = uri::Rules { merge, back, cut };
    if rules.back && uri::has_backslash(&path) {
        // To a server behind it may be no slash: that gets what locations have seen.
        r.flags.valid_unparsed_uri = false;
    }
    let done = uri::normalize(&path, rules, &mut r.uri);
    if done.is_err() {
        r.uri.clear();
    }
    done
}

/// Path and arguments of a request line that has been read; `false`: the path is none, and nothing
/// that follows counts.
pub(crate) fn take_uri(r: &mut Request, core: &CoreSrv) -> bool {
    if is_complex(r) {
        if normalize(r, *core.merge_slashes).is_err() {
            forget_fields(r);
            return false;
        }
    } else {
        let Request { buf, head, uri, .. } = r;
        uri.extend_from_slice(head.path.of(buf));
    }
    if let Some(args) = r.head.args {
        let Request { buf, args: out, .. } = r;
        out.extend_from_slice(args.of(buf));
    }
    true
}

/// The line alone counts, without what it leads to.
fn forget_fields(r: &mut Request) {
    r.received = end_of_line(r, r.head.request_line.end as usize);
    r.head.target = Range32::default();
    r.head.headers.clear();
    r.head.seen = 0;
    r.head.host = None;
}

/// The bytes of a request up to the end of the line that goes on at `from`.
fn end_of_line(r: &Request, from: usize) -> u64 {
    let rest = r.buf.get(from..).unwrap_or_default();
    let len = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
    (from + len).saturating_sub(r.head.request_line.start as usize) as u64
}

/// What follows from a complete head whose URI has been taken.
///
/// # Errors
///
/// It is refused for its host or its body; the log says so.
pub(crate) fn take(conn: &Rc<Connection>, r: &mut Request) -> Result<(), ParseError> {
    r.received = r.head.len() as u64;
    if r.buf.len() > r.head.head_len {
        let Request { buf, head, body, .. } = r;
        body.pending.extend_from_slice(&buf[head.head_len..]);
        r.buf.truncate(r.head.head_len);
    }
    take_host(conn, r);
    let taken = take_framing(conn, r);
    if let Err(e) = &taken {
        log_refused(r, e, IN_HEADERS);
    }
    taken
}

fn take_framing(conn: &Connection, r: &mut Request) -> Result<(), ParseError> {
    framing::host(&r.head, &r.buf)?;
    r.flags.valid_unparsed_uri &= !r.head.empty_path_in_uri;
    if r.head.method == Method::Connect {
        return take_connect(r);
    }
    let body = framing::framing(&r.head, &r.buf, false)?;
    r.body.begin(body);
    r.flags.keepalive = wants_keepalive(conn, r);
    let expects = r.head.version >= Version::HTTP_11
        && r.header(HeaderId::Expect).is_some_and(|v| v.eq_ignore_ascii_case(b"100-continue"));
    r.body.expect_continue = expects;
    Ok(())
}

/// What follows CONNECT is for whom it asks for, or for nobody.
#[cold]
fn take_connect(r: &mut Request) -> Result<(), ParseError> {
    let body = framing::framing(&r.head, &r.buf, r.server().core.allows_connect)?;
    r.body.begin(body);
    r.flags.keepalive = false;
    Ok(())
}

/// Chooses the server; lines that were left out before it was known are told in the default one's log.
fn take_host(conn: &Connection, r: &mut Request) {
    if let Some(h) = r.head.host {
        if !r.head.ignored.is_empty() {
            // nginx tells of a line when it reads it: with the default server, and without the host.
            let seen = std::mem::take(&mut r.head.seen);
            log_ignored(r, |line| line.start < h.name.start);
            r.head.seen = seen;
        }
        let Request { buf, host, .. } = r;
        host.extend_from_slice(h.name.of(buf));
        if h.has_upper_case {
            host.make_ascii_lowercase();
        }
    }
    server::select(conn, r);
    if !r.head.ignored.is_empty() {
        let known_at = r.head.host.map_or(0, |h| h.name.start);
        log_ignored(r, |line| line.start >= known_at);
    }
}

#[cold]
fn log_ignored(r: &Request, is_now: impl Fn(&Range32) -> bool) {
    for line in r.head.ignored.iter().filter(|l| is_now(l)) {
        let shown = r.bytes(*line);
        let text =
            [b"client sent invalid header line: \"", shown, b"\" ", IN_HEADERS.as_bytes()].concat();
        r.log_bytes(LogLevel::Info, &text);
    }
}

fn wants_keepalive(conn: &Connection, r: &Request) -> bool {
    if conn.ends_with_request() {
        return false;
    }
    match r.head.connection {
        Wish::Close => false,
        Wish::KeepAlive => true,
        Wish::Unsaid => r.head.version > Version::HTTP_10,
    }
}

/// What there is of a head that is refused or ends early; answers what was done when that happened.
#[cold]
pub(crate) fn take_part(
    conn: &Connection,
    r: &mut Request,
    parser: &Parser,
    core: &CoreSrv,
    error: Option<&ParseError>,
) -> &'static str {
    let bad_authority = matches!(error, Some(ParseError::InvalidHostInRequestLine));
    if bad_authority {
        r.received = end_of_line(r, r.head.request_line.end as usize);
        r.head.host = None;
        // A bad path is the same error to the client.
        let _same = take_uri(r, core);
        return in_line(r);
    }
    if !parser.has_line() {
        r.head.request_line = parser.line_as_read(&r.buf);
        r.head.method_span = Range32::default();
        r.head.target = Range32::default();
        r.head.host = None;
        return in_line(r);
    }
    r.received = match (error, r.head.headers.last()) {
        (Some(ParseError::DuplicateHeader(_) | ParseError::InvalidHost), Some(last)) => {
            end_of_line(r, last.value.end as usize)
        }
        (Some(ParseError::TooManyHeaders), _) => end_of_line(r, parser.whole_lines()),
        _ => (parser.whole_lines() as u64).saturating_sub(u64::from(r.head.request_line.start)),
    };
    take_host(conn, r);
    IN_HEADERS
}

/// Tells why a head is refused.
#[cold]
pub(crate) fn log_refused(r: &mut Request, e: &ParseError, doing: &str) {
    let mut text = Vec::new();
    e.write_log(&r.head, &r.buf, &mut text);
    text.push(b' ');
    text.extend_from_slice(doing.as_bytes());
    if let ParseError::DuplicateHeader(at) = *e {
        // nginx keeps the first alone of these, and so do variables and the line's own context.
        let is_host = r.head.headers.get(at as usize).is_some_and(|h| h.id == HeaderId::Host);
        r.head.headers.truncate(if is_host { at as usize } else { r.head.headers.len() });
    }
    r.log_bytes(LogLevel::Info, &text);
}
