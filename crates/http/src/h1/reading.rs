//! The head of a request, read as it comes.

use super::{as_ended, why_ended, NoRequest, HEAD_ROOM_BYTES};
use crate::client::Client;
use crate::head;
use crate::request::Request;
use crate::request_log::log_request;
use crate::server;
use std::rc::Rc;
use weir_core::counters::Counters;
use weir_core::logger::LogLevel;
use weir_core::{ConnError, Connection, Session};
use weir_runtime::clock;
use weir_wire::http1::request::{ParseError, Parser, Progress};

/// How far a head has been read.
pub(super) struct Reading {
    parser: Parser,
    has_line: bool,
}

impl Reading {
    /// The first bytes are there.
    #[inline]
    pub(super) fn begin(conn: &Rc<Connection>, r: &mut Request) -> Reading {
        let gen = server::newest(conn);
        let server = server::default_of(conn, &gen);
        r.begin(Client::of_h1(Rc::clone(conn)), gen, server);
        Reading { parser: Parser::new(), has_line: false }
    }

    /// Reads what has come. `None`: there is more of the head.
    #[inline]
    pub(super) fn read(
        &mut self,
        conn: &Rc<Connection>,
        r: &mut Request,
    ) -> Option<Result<(), ParseError>> {
        let server = Rc::clone(r.server());
        let Request { buf, head, .. } = r;
        let parsed = self.parser.parse(buf, &server.core.limits, head);
        // As far as it was read: what refuses a HEAD has no body either.
        r.method = r.head.method;
        if self.parser.has_line() && !self.has_line {
            self.has_line = true;
            if !head::take_uri(r, &server.core) {
                let e = ParseError::InvalidRequest;
                head::log_refused(r, &e, head::in_line(r));
                return Some(Err(e));
            }
        }
        match parsed {
            Ok(Progress::Complete) => Some(head::take(conn, r)),
            Ok(Progress::NeedMore) => None,
            Err(e) => {
                let doing = head::take_part(conn, r, &self.parser, &server.core, Some(&e));
                head::log_refused(r, &e, doing);
                Some(Err(e))
            }
        }
    }

    /// Waits for the rest.
    pub(super) async fn go_on(
        mut self,
        conn: &Rc<Connection>,
        r: &mut Box<Request>,
    ) -> Result<(), NoRequest> {
        let reading = &conn.worker.counters.reading;
        Counters::add(reading, 1);
        let read = self.read_on(conn, r).await;
        Counters::add(reading, -1);
        read
    }

    async fn read_on(
        &mut self,
        conn: &Rc<Connection>,
        r: &mut Box<Request>,
    ) -> Result<(), NoRequest> {
        let mut deadline = 0;
        loop {
            if !self.parser.has_begun() {
                // Blank lines are not kept, and nobody else waits for a client that sends many.
                r.buf.clear();
                self.parser.reset();
                if deadline != 0 && clock::mono_ms() >= deadline {
                    return Err(NoRequest::Quiet);
                }
                weir_runtime::event_loop::yield_now().await;
            }
            if deadline == 0 {
                let timeout = *r.server().core.client_header_timeout;
                // The first head has its time from the connection's beginning on.
                let since = if conn.requests.get() <= 1 { conn.start_ms } else { clock::mono_ms() };
                deadline = since + timeout;
            }
            let got = as_ended(conn, conn.read(&mut r.buf, HEAD_ROOM_BYTES, deadline).await);
            if !matches!(got, Ok(n) if n > 0) {
                return Err(self.ended(conn, r, &got).await);
            }
            if let Some(read) = self.read(conn, r) {
                return read.map_err(NoRequest::Refused);
            }
        }
    }

    /// The client says no more.
    async fn ended(
        &self,
        conn: &Rc<Connection>,
        r: &mut Box<Request>,
        how: &Result<usize, ConnError>,
    ) -> NoRequest {
        let server = Rc::clone(r.server());
        let doing = head::take_part(conn, r, &self.parser, &server.core, None);
        r.log(LogLevel::Info, &format!("{} {doing}", why_ended(how)));
        if matches!(how, Err(ConnError::Timeout)) {
            return NoRequest::TimedOut;
        }
        r.err_status = 400;
        log_request(r).await;
        NoRequest::Quiet
    }
}
