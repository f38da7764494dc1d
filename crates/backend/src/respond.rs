//! A backend's header becomes the response's: what is passed, rewritten, acted on or dropped.

use crate::bits::ignore;
use crate::conf::BackendLoc;
use std::rc::Rc;
use weir_base::units;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::lent::Lent;
use weir_http::{redirect, Flow, Request};
use weir_wire::http1::names::ResponseHeaderId as Id;
use weir_wire::http1::request::Method;
use weir_wire::http1::response::ResponseField;
use weir_wire::http1::uri;

/// Whether the server's error is answered by an `error_page` of ours.
pub(crate) fn intercepts(r: &mut Request, conf: &BackendLoc) -> bool {
    let status = r.exchange.head.status;
    if status == 404 && conf.intercept_404 {
        return true;
    }
    let loc = Rc::clone(r.loc());
    if !*conf.intercept_errors || loc.core.error_page_for(status).is_none() {
        return false;
    }
    if status == 401 {
        let bytes = r.exchange.head_bytes();
        for f in r.exchange.head.headers.iter().filter(|f| f.id == Id::WwwAuthenticate) {
            r.out.add(f.name.of(bytes), f.value.of(bytes));
        }
    }
    true
}

fn value(r: &Request, id: Id) -> Option<Vec<u8>> {
    r.exchange.head.value(id, r.exchange.head_bytes()).map(<[u8]>::to_vec)
}

/// `X-Accel-Redirect`: another location answers instead, with some of the server's fields.
#[inline]
pub(crate) fn accel_redirect(r: &mut Request, conf: &BackendLoc) -> Option<Flow> {
    match r.exchange.head.has(Id::XAccelRedirect) && *conf.ignore_headers & ignore::REDIRECT == 0 {
        true => redirect_there(r, conf),
        false => None,
    }
}

#[cold]
fn redirect_there(r: &mut Request, conf: &BackendLoc) -> Option<Flow> {
    let target = value(r, Id::XAccelRedirect)?;
    act_on_accel(r, conf);
    for i in 0..r.exchange.head.headers.len() {
        let f = r.exchange.head.headers[i];
        let kept = matches!(
            f.id,
            Id::ContentType
                | Id::SetCookie
                | Id::ContentDisposition
                | Id::CacheControl
                | Id::Expires
                | Id::AcceptRanges
        );
        if kept && !f.repeated {
            copy(r, conf, &f);
        }
    }
    if target.first() == Some(&b'@') {
        return Some(redirect::named_location(r, &target));
    }
    let mut path = Vec::new();
    let Ok(args) = uri::unsafe_uri(&target, &mut path) else {
        let mut text = b"unsafe URI \"".to_vec();
        text.extend_from_slice(&target);
        text.extend_from_slice(b"\" was detected while reading response header from upstream");
        r.log_bytes(LogLevel::Error, &text);
        return Some(Flow::Status(404));
    };
    if r.method != Method::Head {
        r.method = Method::Get;
    }
    let args = args.unwrap_or_default().to_vec();
    Some(redirect::internal_redirect(r, &path, &args))
}

/// The fields that change how the answer is passed on; whether it is buffered.
#[inline]
fn act_on_accel(r: &mut Request, conf: &BackendLoc) -> bool {
    const ANY: u64 =
        Id::XAccelLimitRate.bit() | Id::XAccelBuffering.bit() | Id::XAccelCharset.bit();
    match r.exchange.head.seen & ANY {
        0 => *conf.buffering,
        _ => do_as_said(r, conf),
    }
}

#[cold]
fn do_as_said(r: &mut Request, conf: &BackendLoc) -> bool {
    let mut buffering = *conf.buffering;
    let ignored = *conf.ignore_headers;
    if ignored & ignore::LIMIT_RATE == 0 {
        if let Some(n) = value(r, Id::XAccelLimitRate).and_then(|v| units::parse_int(&v)) {
            r.limit_rate = Some(n);
        }
    }
    if ignored & ignore::BUFFERING == 0 {
        match value(r, Id::XAccelBuffering) {
            Some(v) if v.eq_ignore_ascii_case(b"no") => buffering = false,
            Some(v) if v.eq_ignore_ascii_case(b"yes") => buffering = true,
            _ => {}
        }
    }
    buffering
}

/// Fields that [`copy`] would only add.
const AS_THEY_ARE: u64 = !(Id::ContentType.bit()
    | Id::LastModified.bit()
    | Id::AcceptRanges.bit()
    | Id::Location.bit()
    | Id::Refresh.bit()
    | Id::SetCookie.bit());

/// Fields about the body's way here, which are never repeated ones.
const OF_CONNECTION: u64 = Id::ContentLength.bit()
    | Id::Connection.bit()
    | Id::KeepAlive.bit()
    | Id::TransferEncoding.bit();

/// Makes the response's header from the server's; answers whether the body is buffered.
pub(crate) fn head(r: &mut Request, conf: &BackendLoc) -> bool {
    let buffering = act_on_accel(r, conf);
    // The server has looked at the conditions; what is not our own copy is not compared.
    r.flags.ignore_conditions = !conf.compares_conditions;
    r.out.status = r.exchange.head.status;
    let line = r.exchange.head.status_line;
    if !line.is_empty() {
        r.out.set_status_line(line.of(r.exchange.head_bytes()));
    }
    r.out.content_length = match r.exchange.head.chunked {
        true => None,
        false => r.exchange.head.content_length,
    };
    let lacks = conf.family.ways.passes_want;
    r.out.has_date = conf.hide.passes_date && (lacks || r.exchange.head.has(Id::Date));
    r.out.has_server = conf.hide.passes_server && (lacks || r.exchange.head.has(Id::Server));
    for i in 0..r.exchange.head.headers.len() {
        let f = r.exchange.head.headers[i];
        if f.id.bit() & OF_CONNECTION != 0 {
            continue;
        }
        let bytes = r.exchange.head_bytes();
        match f.id.bit() & AS_THEY_ARE != 0 {
            _ if f.repeated => warn_repeated(r, &f),
            _ if conf.hide.hides(&f, bytes) => {}
            true => r.out.add(f.name.of(bytes), f.value.of(bytes)),
            false => copy(r, conf, &f),
        }
    }
    if *conf.ignore_headers & ignore::CHARSET == 0 {
        if let Some(charset) = value(r, Id::XAccelCharset) {
            r.out.set_override_charset(&charset);
            (r.gen().shared.main.get::<Lent>().name_charset)(r, &charset);
        }
    }
    if *conf.force_ranges {
        r.flags.allow_ranges = true;
        r.flags.single_range = true;
    }
    if !buffering {
        r.limit_rate = Some(0);
    }
    buffering
}

#[cold]
fn warn_repeated(r: &Request, f: &ResponseField) {
    let bytes = r.exchange.head_bytes();
    let mut text = b"upstream sent duplicate header line: \"".to_vec();
    let mut show = |f: &ResponseField| {
        text.extend_from_slice(f.name.of(bytes));
        text.extend_from_slice(b": ");
        text.extend_from_slice(f.value.of(bytes));
    };
    show(f);
    if let Some(first) = r.exchange.head.get(f.id) {
        text.extend_from_slice(b"\", previous value: \"");
        let (n, v) = (first.name.of(bytes), first.value.of(bytes));
        text.extend_from_slice(&[n, b": ", v].concat());
    }
    text.extend_from_slice(b"\", ignored while reading response header from upstream");
    r.log_bytes(LogLevel::Warn, &text);
}

/// Copies one field the way its kind asks for.
#[inline(never)]
fn copy(r: &mut Request, conf: &BackendLoc, f: &ResponseField) {
    let bytes = r.exchange.head_bytes();
    let (name, value) = (f.name.of(bytes), f.value.of(bytes));
    match f.id {
        Id::ContentType => {
            let (kind, charset) = split_charset(value);
            r.out.set_said_content_type(value, kind, charset);
        }
        Id::LastModified => {
            r.out.has_last_modified = true;
            r.out.add(name, value);
        }
        Id::AcceptRanges if *conf.force_ranges => {}
        Id::Location | Id::Refresh | Id::SetCookie => match conf.family.ways.rewrite {
            Some(rewrite) => rewrite(r, f),
            None if f.id == Id::Location => {
                let full = !value.starts_with(b"/");
                r.out.add(name, value);
                // As if it were this server's own; a path stays as the server has said it.
                r.flags.own_location = full;
            }
            None => r.out.add(name, value),
        },
        _ => r.out.add(name, value),
    }
}

/// `text/html; charset=utf-8` taken apart; other parameters stay with the type.
fn split_charset(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut at = 0;
    // It is short: what looks for a byte in longer text would cost more.
    while let Some(semicolon) = value[at..].iter().position(|b| *b == b';').map(|i| at + i) {
        let rest = &value[semicolon + 1..];
        let spaces = rest.iter().take_while(|b| **b == b' ').count();
        let parameter = &rest[spaces..];
        let is_charset = parameter.get(..8).is_some_and(|p| p.eq_ignore_ascii_case(b"charset="));
        if is_charset {
            let charset = &parameter[8..];
            let charset = charset.strip_prefix(b"\"").unwrap_or(charset);
            let charset = charset.strip_suffix(b"\"").unwrap_or(charset);
            return (&value[..semicolon], Some(charset));
        }
        at = semicolon + 1;
    }
    (value, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charsets() {
        for (value, kind, charset) in [
            ("text/html", "text/html", None),
            ("text/html; charset=utf-8", "text/html", Some("utf-8")),
            ("text/html;  Charset=\"x\"", "text/html", Some("x")),
            ("a/b; q=1; charset=k", "a/b; q=1", Some("k")),
            ("a/b; q=1; ", "a/b; q=1; ", None),
        ] {
            let got = split_charset(value.as_bytes());
            assert_eq!(got, (kind.as_bytes(), charset.map(str::as_bytes)), "{value}");
        }
    }
}
