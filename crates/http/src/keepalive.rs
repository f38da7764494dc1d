//! Whether a connection of HTTP/1 is kept behind a request, as far as its location decides on that.

use crate::request::Request;
use weir_runtime::clock;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Method;

/// `keepalive_timeout`, `keepalive_requests`, `keepalive_time` and `keepalive_disable`.
pub(crate) fn is_allowed(r: &Request) -> bool {
    let core = &r.loc().core;
    if disabled_for_browser(r)
        || *core.keepalive_timeout == 0
        || u64::from(r.number) >= *core.keepalive_requests
    {
        return false;
    }
    if *core.keepalive_time == u64::MAX || r.number == 1 {
        return true;
    }
    let age = clock::mono_ms().saturating_sub(r.conn().start_ms);
    age <= *core.keepalive_time
}

/// `keepalive_disable`: old MSIE after a POST, and old Safari.
fn disabled_for_browser(r: &Request) -> bool {
    let disable = *r.loc().core.keepalive_disable;
    if disable & 2 == 0 && (disable & 1 == 0 || r.method != Method::Post) {
        return false;
    }
    let Some(agent) = r.header(HeaderId::UserAgent) else { return false };
    let has = |needle: &[u8]| memchr::memmem::find(agent, needle).is_some();
    let msie6 = disable & 1 != 0
        && r.method == Method::Post
        && (has(b"MSIE 6.") || has(b"MSIE 5.") || has(b"MSIE 4."))
        && !has(b"Opera");
    let safari = disable & 2 != 0 && has(b"Mac OS X") && has(b"Safari/") && !has(b"Chrome/");
    msie6 || safari
}
