//! What the logs say of a request: its lines of the error log, and the phase that logs it.

use crate::flow::{Flow, Phase};
use crate::request::Request;
use std::rc::Rc;

/// `, client: …, server: …, request: "…", host: "…"`.
pub(crate) fn write_context(r: &Request, line: &mut Vec<u8>) {
    use weir_wire::http1::names::HeaderId;
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
    /// A server has been chosen to pass the request on to.
    pub(crate) fn has_upstream(&self) -> bool {
        !self.upstream.is_empty() && !self.exchange.scheme.is_empty()
    }

    fn write_upstream(&self, line: &mut Vec<u8>) {
        let Some(up) = self.upstream.last().filter(|_| self.has_upstream()) else { return };
        line.extend_from_slice(b", upstream: \"");
        line.extend_from_slice(self.exchange.scheme.as_bytes());
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
    r.values.unknown.end();
    let loc = Rc::clone(r.loc());
    for handler in &loc.plan.phases[Phase::Log as usize] {
        if let Flow::Wait(f) = handler(r) {
            f(r).await;
        }
    }
}
