//! Lines of the error log about a request.

use crate::request::Request;
use weir_core::logger::LogLevel;

impl Request {
    pub fn log_enabled(&self, level: LogLevel) -> bool {
        self.loc().error_log.enabled(level)
    }

    /// Logs with the request's context behind the text, as nginx does.
    pub fn log(&self, level: LogLevel, text: &str) {
        if self.log_enabled(level) {
            self.log_bytes(level, text.as_bytes());
        }
    }

    pub fn log_bytes(&self, level: LogLevel, text: &[u8]) {
        if !self.log_enabled(level) {
            return;
        }
        let mut line = text.to_vec();
        self.write_log_context(&mut line);
        self.loc().error_log.log(level, Some(self.conn().serial), &line);
    }

    /// `, client: …, server: …, request: "…", host: "…"`.
    fn write_log_context(&self, line: &mut Vec<u8>) {
        use weir_wire::http1::names::HeaderId;
        line.extend_from_slice(b", client: ");
        line.extend_from_slice(self.client_text());
        line.extend_from_slice(b", server: ");
        line.extend_from_slice(&self.server().core.primary_name);
        if !self.request_line().is_empty() {
            line.extend_from_slice(b", request: \"");
            line.extend_from_slice(self.request_line());
            line.push(b'"');
        }
        if self.is_part() {
            line.extend_from_slice(b", subrequest: \"");
            line.extend_from_slice(&self.uri);
            line.push(b'"');
        }
        self.write_upstream(line);
        if let Some(host) = self.header(HeaderId::Host) {
            line.extend_from_slice(b", host: \"");
            line.extend_from_slice(host);
            line.push(b'"');
        }
        if let Some(referer) = self.header(HeaderId::Referer) {
            line.extend_from_slice(b", referrer: \"");
            line.extend_from_slice(referer);
            line.push(b'"');
        }
    }

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
