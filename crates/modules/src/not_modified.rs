//! Conditional requests: nginx's `ngx_http_not_modified_filter_module` (RFC 9110 section 13).

use std::rc::Rc;
use weir_base::date::parse_http_time;
use weir_http::conf::IfModifiedSince;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::Request;
use weir_wire::http1::names::HeaderId;

pub const MODULE: HttpModule = HttpModule {
    filter: Some(Filter { header: Some(header), body: None, active: |_| true, reach: Reach::Main }),
    ..HttpModule::EMPTY
};

/// A page of another answer follows: nothing of this one is in its head.
#[cold]
fn failed(r: &mut Request) -> FilterResult {
    r.out.clear();
    Err(FilterError::Status(412))
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    const CONDITIONS: u64 = HeaderId::IfModifiedSince.bit()
        | HeaderId::IfUnmodifiedSince.bit()
        | HeaderId::IfMatch.bit()
        | HeaderId::IfNoneMatch.bit();
    if r.head.seen & CONDITIONS == 0 || r.out.status != 200 || r.flags.ignore_conditions {
        return next.header(r);
    }
    if r.head.has(HeaderId::IfUnmodifiedSince) && !unmodified_since(r) {
        return failed(r);
    }
    if r.head.has(HeaderId::IfMatch) && !match_etags(r, HeaderId::IfMatch, false) {
        return failed(r);
    }
    let since = r.head.has(HeaderId::IfModifiedSince);
    let none_match = r.head.has(HeaderId::IfNoneMatch);
    if since || none_match {
        if since && modified_since(r) {
            return next.header(r);
        }
        if none_match && !match_etags(r, HeaderId::IfNoneMatch, true) {
            return next.header(r);
        }
        r.out.status = 304;
        r.out.clear_status_line();
        r.out.clear_content_type();
        r.out.clear_content_length();
        r.out.remove(b"Accept-Ranges");
        r.out.remove(b"Content-Encoding");
        r.flags.allow_ranges = false;
        r.whole = None;
    }
    next.header(r)
}

fn unmodified_since(r: &Request) -> bool {
    let Some(last) = r.out.changed() else { return false };
    let wanted = r.header(HeaderId::IfUnmodifiedSince).and_then(parse_http_time);
    wanted.is_some_and(|t| t >= last)
}

fn modified_since(r: &Request) -> bool {
    let Some(last) = r.out.changed() else { return true };
    let loc = Rc::clone(r.loc());
    let mode = *loc.core.if_modified_since;
    if mode == IfModifiedSince::Off {
        return true;
    }
    let Some(t) = r.header(HeaderId::IfModifiedSince).and_then(parse_http_time) else {
        return true;
    };
    !(t == last || (mode == IfModifiedSince::Before && t > last))
}

/// Whether one of a list of entity tags is the response's; weakly compared for If-None-Match.
fn match_etags(r: &Request, id: HeaderId, weak: bool) -> bool {
    let Some(list) = r.header(id) else { return false };
    if list == b"*" {
        return true;
    }
    let Some(etag) = r.out.get(b"ETag") else { return false };
    let own = match weak {
        true => etag.strip_prefix(b"W/").unwrap_or(etag),
        false => etag,
    };
    let mut rest = list;
    while !rest.is_empty() {
        if weak {
            rest = rest.strip_prefix(b"W/").unwrap_or(rest);
        }
        if let Some(after) = rest.strip_prefix(own) {
            let after = trim_start(after);
            if after.is_empty() || after[0] == b',' {
                return true;
            }
        }
        let Some(comma) = rest.iter().position(|b| *b == b',') else { return false };
        rest = &rest[comma..];
        while let [b',' | b' ' | b'\t', tail @ ..] = rest {
            rest = tail;
        }
    }
    false
}

fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', tail @ ..] = text {
        text = tail;
    }
    text
}
