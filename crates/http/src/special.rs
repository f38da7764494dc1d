//! Answers the server makes itself: redirects, error pages, `error_page`.

use crate::buf::{Buf, Chain};
use crate::client::answer;
use crate::conf::{CoreLoc, ErrorPage, ServerTokens};
use crate::flow::{FilterError, Flow};
use crate::lent::Lent;
use crate::names;
use crate::redirect::{internal_redirect, named_location};
use crate::request::Request;
use std::rc::Rc;
use weir_core::Session;
use weir_core::{SERVER_NAME, SERVER_VERSION};
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Method;

/// Browsers that replace short error pages by their own get longer ones.
const MSIE_PADDING: &str = "<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n";

/// Ends the request with a status: `error_page` if one is set for it, a built-in page otherwise.
pub fn respond(r: &mut Request, status: u16) -> Flow {
    if r.flags.header_sent {
        // The answer has begun; all that is left is to break it off visibly.
        return Flow::Close;
    }
    // The filters see another answer now.
    r.held.clear();
    r.out.clear_status_line();
    prepare_connection(r, status);
    r.out.clear_content_type();
    let loc = Rc::clone(r.loc());
    if !r.flags.error_page && r.redirects_left > 0 {
        if let Some(page) = loc.core.error_page_for(status) {
            if !*loc.core.recursive_error_pages {
                r.flags.error_page = true;
            }
            return send_error_page(r, status, page);
        }
    }
    throw_body_away(r);
    builtin(r, status)
}

/// Nobody asks a client that is refused to send its body.
fn throw_body_away(r: &mut Request) {
    r.flags.discard_body = true;
    r.body.expect_continue = false;
}

/// Which statuses end the connection.
fn prepare_connection(r: &mut Request, status: u16) {
    r.err_status = status;
    if matches!(status, 400 | 413 | 414 | 497 | 495 | 496 | 494 | 500 | 501) {
        r.flags.keepalive = false;
    }
    if matches!(status, 400 | 494..=497) {
        r.flags.lingering = false;
    }
}

fn send_error_page(r: &mut Request, status: u16, page: &ErrorPage) -> Flow {
    r.err_status = match page.overwrite {
        Some(code) => code,
        None => status,
    };
    match page.overwrite {
        Some(0) => r.err_status = 0,
        Some(200) => {}
        // Who is refused is not asked for a body, as nginx has it.
        _ => r.body.expect_continue = false,
    }
    let target = r.eval(&page.target);
    if target.first() == Some(&b'/') {
        if r.method != Method::Head {
            r.method = Method::Get;
        }
        let (uri, args) = match &page.args {
            Some(args) => (target, r.eval(args)),
            None => split_args(&target),
        };
        r.flags.valid_unparsed_uri = false;
        return internal_redirect(r, &uri, &args);
    }
    if target.first() == Some(&b'@') {
        return named_location(r, &target);
    }
    let status = match r.err_status {
        code @ (301 | 302 | 303 | 307 | 308) => code,
        _ => 302,
    };
    r.err_status = status;
    set_location(r, &target);
    throw_body_away(r);
    builtin(r, status)
}

fn split_args(uri: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match uri.iter().position(|b| *b == b'?') {
        Some(at) => (uri[..at].to_vec(), uri[at + 1..].to_vec()),
        None => (uri.to_vec(), Vec::new()),
    }
}

/// nginx's statuses that are shown as another one, and their page's title.
fn shown(status: u16) -> (u16, &'static str) {
    match status {
        494 => (400, "Request Header Or Cookie Too Large"),
        495 => (400, "The SSL certificate error"),
        496 => (400, "No required SSL certificate was sent"),
        497 => (400, "The plain HTTP request was sent to HTTPS port"),
        s => (s, ""),
    }
}

fn builtin(r: &mut Request, status: u16) -> Flow {
    let (code, reason) = shown(status);
    if r.err_status == status {
        r.err_status = code;
    }
    r.out.status = code;
    let loc = Rc::clone(r.loc());
    let body = page(r, &loc.core, status, reason);
    match body {
        Some(text) => {
            r.out.set_content_type(b"text/html");
            r.out.content_length = Some(text.len() as u64);
            r.out.clear_etag();
            r.out.remove(b"Accept-Ranges");
            r.out.clear_last_modified();
            r.flags.allow_ranges = false;
            finish(r, Buf::mem(text).and_last())
        }
        None => {
            r.out.content_length = (code != 304 && code != 204).then_some(0);
            finish(r, Buf::last())
        }
    }
}

/// Sends the header and one buffer that ends the response.
pub fn finish(r: &mut Request, buf: Buf) -> Flow {
    match r.send_header() {
        Err(FilterError::Status(s)) if !r.flags.header_sent => return Flow::Status(s),
        Err(_) => return Flow::Close,
        Ok(()) => {}
    }
    if r.flags.header_only {
        return Flow::Ok;
    }
    let queued = match r.body_is_plain() {
        true => answer::send_buf(r, buf),
        false => r.output(Chain::one(buf)),
    };
    match queued {
        Ok(()) => Flow::Ok,
        Err(_) => Flow::Close,
    }
}

fn page(r: &Request, core: &CoreLoc, status: u16, reason: &str) -> Option<Vec<u8>> {
    let (code, _) = shown(status);
    if code < 300 || code == 304 {
        return None;
    }
    let line = headline(code)?;
    let mut t = String::with_capacity(640);
    let title = if reason.is_empty() { line.to_string() } else { format!("{code} {reason}") };
    t.push_str("<html>\r\n<head><title>");
    t.push_str(&title);
    t.push_str("</title></head>\r\n<body>\r\n<center><h1>");
    t.push_str(line);
    t.push_str("</h1></center>\r\n");
    if !reason.is_empty() {
        t.push_str("<center>");
        t.push_str(reason);
        t.push_str("</center>\r\n");
    }
    let name = match *core.server_tokens {
        ServerTokens::Off => SERVER_NAME,
        _ => SERVER_VERSION,
    };
    let mut t = t.into_bytes();
    (r.gen().shared.main.get::<Lent>().error_page)(r, code, name, &mut t);
    t.extend_from_slice(b"</body>\r\n</html>\r\n");
    let padded = *core.msie_padding && code >= 400 && wants_padding(r);
    if padded {
        (0..6).for_each(|_| t.extend_from_slice(MSIE_PADDING.as_bytes()));
    }
    Some(t)
}

/// What a page says of its status: twice something else than the status line, as in nginx.
fn headline(code: u16) -> Option<&'static str> {
    match code {
        302 => Some("302 Found"),
        401 => Some("401 Authorization Required"),
        _ => names::status_line(code),
    }
}

fn wants_padding(r: &Request) -> bool {
    r.header(HeaderId::UserAgent).is_some_and(|ua| {
        weir_base::bytes::find_ignore_case(ua, b"msie ").is_some()
            || weir_base::bytes::find_ignore_case(ua, b"chrome/").is_some()
    })
}

/// A redirect to a location of this site, made absolute when the configuration says so.
pub fn redirect(r: &mut Request, status: u16, location: &[u8]) -> Flow {
    set_location(r, location);
    Flow::Status(status)
}

/// A `Location` of this server's own making: a bare path is completed when the header is sent.
pub fn set_location(r: &mut Request, location: &[u8]) {
    r.out.set(b"Location", location);
    r.flags.own_location = true;
}

/// Sets Content-Type from the URI's extension, the `types` in force, or `default_type`.
pub fn set_content_type(r: &mut Request) {
    if r.out.content_type().is_some() {
        return;
    }
    let loc = Rc::clone(r.loc());
    let kind = r.exten().and_then(|e| loc.core.type_of(e));
    match kind {
        Some(kind) => r.out.set_content_type(kind),
        None => r.out.set_content_type(&loc.core.default_type),
    }
}
