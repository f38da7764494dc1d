//! `ngx.req.socket(true)`: the client's connection itself, both ways, from where the request has been read to.

use super::line::Line;
use super::socket::Sock;
use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::HANDLERS;
use std::rc::Rc;
use weir_core::Session;
use weir_http::Request;
use weir_wire::http1::request::Version;

pub(super) const OPS: &[OpRow] = &[OpRow::any("raw_begin", HANDLERS, begin)];

/// The request's code has taken the connection, which had sent so much by then.
struct Taken(u64);

/// Whether the connection is the code's own: nothing else is to be sent over it.
pub(crate) fn is_taken(r: &Request) -> bool {
    r.has_ctx::<Taken>()
}

/// The code has ended: what it has sent is of the answer.
pub(crate) fn count(r: &mut Request, is_well: bool) {
    if let Some(Taken(before)) = r.ctx_ref() {
        r.sent += r.conn().bytes_out.get().saturating_sub(*before);
        r.flags.complete |= is_well;
    }
}

/// Why what the code wants to put out does not go out.
pub(super) fn refusal(r: &Request) -> Option<&'static str> {
    is_taken(r).then_some("raw request socket acquired")
}

fn begin(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let reads_body = state.run.reads_body();
    let defaults = super::socket::settings_of(state);
    let id = state.vm.next();
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    let refused = match () {
        () if r.is_part() => Some("attempt to read the request body in a subrequest"),
        () if r.version() >= Version::HTTP_20 => Some("http v2 not supported yet"),
        () if is_taken(r) => Some("duplicate call"),
        () if super::output::is_kept(r) => Some("http 1.0 buffering"),
        () if reads_body => Some("pending request body reading in some other thread"),
        () if r.queued() > 0 => Some("pending data to write"),
        () => None,
    };
    if let Some(why) = refused {
        return answer.fail(why);
    }
    let conn = Rc::clone(r.conn());
    conn.stream.set_nodelay(true);
    let buf = r.body.take_pending();
    r.flags.keepalive = false;
    r.set_ctx(Taken(conn.bytes_out.get()));
    if r.log_enabled(weir_core::logger::LogLevel::Debug) {
        r.log(weir_core::logger::LogLevel::Debug, "lua socket tcp_nodelay");
    }
    let sock = Sock::on(Line::Client(conn), buf, defaults);
    state.run.keep_sock(id, sock);
    answer.number(id as f64)
}
