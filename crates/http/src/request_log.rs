//! What the logs say of a request: its lines of the error log, and the phase that logs it.

use crate::detached::Titled;
use crate::flow::{Flow, Phase, WaitFn};
use crate::request::Request;
use crate::{status_zone, trace};

/// `, client: …, server: …, request: "…", host: "…"`.
pub(crate) fn write_context(r: &Request, line: &mut Vec<u8>) {
    use weir_wire::http1::names::HeaderId;
    if let Some(title) = r.title() {
        return line.extend_from_slice(title.as_bytes());
    }
    line.extend_from_slice(b", client: ");
    line.extend_from_slice(r.client_text());
    line.extend_from_slice(b", server: ");
    line.extend_from_slice(&r.server().core.reached.primary_name);
    if !r.request_line().is_empty() {
        line.extend_from_slice(b", request: \"");
        line.extend_from_slice(r.request_line());
        line.push(b'"');
    }
    if r.is_part() {
        line.extend_from_slice(b", subrequest: \"");
        line.extend_from_slice(&r.uri);
        line.push(b'"');
    }
    r.write_upstream(line);
    if let Some(host) = r.header(HeaderId::Host) {
        line.extend_from_slice(b", host: \"");
        line.extend_from_slice(host);
        line.push(b'"');
    }
    if let Some(referer) = r.header(HeaderId::Referer) {
        line.extend_from_slice(b", referrer: \"");
        line.extend_from_slice(referer);
        line.push(b'"');
    }
}

impl Request {
    /// What stands in place of all that, for a request that is no client's.
    fn title(&self) -> Option<&str> {
        self.kept_ref::<Titled>().map(|titled| &*titled.0)
    }

    /// A server has been chosen to pass the request on to.
    pub(crate) fn has_upstream(&self) -> bool {
        let tried = self.upstream.last().is_some_and(|up| !up.peer.is_empty());
        tried && self.exchange.scheme.is_some()
    }

    fn write_upstream(&self, line: &mut Vec<u8>) {
        let Some(up) = self.upstream.last().filter(|_| self.has_upstream()) else { return };
        line.extend_from_slice(b", upstream: \"");
        line.extend_from_slice(self.exchange.scheme.unwrap_or_default().as_bytes());
        line.extend_from_slice(&up.peer);
        if up.peer.starts_with(b"unix:") {
            line.push(b':');
        }
        line.extend_from_slice(self.exchange.uri());
        line.push(b'"');
    }
}

/// The last phase.
pub(crate) async fn log_request(r: &mut Request) {
    if let Some((wait, next)) = log(r) {
        wait(r).await;
        log_rest(r, next).await;
    }
}

/// The same as far as it goes without waiting: what a handler waits for, and the number of the next.
pub(crate) fn log(r: &mut Request) -> Option<(WaitFn, usize)> {
    r.values.unknown.end();
    if r.flags.traced {
        trace::ends(r);
    }
    status_zone::ends(r);
    log_from(r, 0)
}

/// The handlers from that number on.
pub(crate) async fn log_rest(r: &mut Request, from: usize) {
    let mut from = from;
    while let Some((wait, next)) = log_from(r, from) {
        wait(r).await;
        from = next;
    }
}

#[inline]
fn log_from(r: &mut Request, from: usize) -> Option<(WaitFn, usize)> {
    let mut next = from;
    while let Some(handler) = r.loc().plan.phases[Phase::Log as usize].get(next).copied() {
        next += 1;
        if let Flow::Wait(wait) = handler(r) {
            return Some((wait, next));
        }
    }
    None
}
