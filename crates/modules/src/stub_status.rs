//! `stub_status` and `$connections_*` (nginx's `ngx_http_stub_status_module`).

use std::sync::atomic::AtomicU64;

use weir_core::counters::Counters;
use weir_http::buf::Buf;
use weir_http::conf::CoreLoc;
use weir_http::module::{Flow, HttpModule, VarArg, Variable};
use weir_http::{body, special, Request};
use weir_module::{Arity, Cf, ConfResult, Context, Directive, Row};
use weir_wire::http1::request::Method;

const ROWS: &[Row] = &[Row::new(
    "stub_status",
    Context::SERVER.or(Context::LOCATION),
    // Old versions asked for an argument.
    Arity::NONE_ONE,
    "",
    "Answers with the numbers of connections and requests.",
    set_status,
)];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    variables: &[
        Variable::new("connections_active", active),
        Variable::new("connections_reading", reading),
        Variable::new("connections_writing", writing),
        Variable::new("connections_waiting", waiting),
    ],
    ..HttpModule::EMPTY
};

fn set_status(cf: &mut Cf, _: &Directive) -> ConfResult {
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

fn sum(r: &Request, pick: fn(&Counters) -> &AtomicU64) -> u64 {
    r.conn().worker.all.sum(pick)
}

fn handler(r: &mut Request) -> Flow {
    if !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    let text = format!(
        "Active connections: {} \nserver accepts handled requests\n {} {} {} \n\
         Reading: {} Writing: {} Waiting: {} \n",
        sum(r, |c| &c.active),
        sum(r, |c| &c.accepted),
        sum(r, |c| &c.handled),
        sum(r, |c| &c.requests),
        sum(r, |c| &c.reading),
        sum(r, |c| &c.writing),
        sum(r, |c| &c.waiting),
    );
    r.out.status = 200;
    r.out.set_content_type(b"text/plain");
    r.out.content_length = Some(text.len() as u64);
    special::finish(r, Buf::mem(text.into_bytes()).and_last())
}

fn push(r: &Request, out: &mut Vec<u8>, pick: fn(&Counters) -> &AtomicU64) -> bool {
    weir_base::bytes::fmt_u64(out, sum(r, pick));
    true
}

fn active(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push(r, out, |c| &c.active)
}

fn reading(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push(r, out, |c| &c.reading)
}

fn writing(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push(r, out, |c| &c.writing)
}

fn waiting(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push(r, out, |c| &c.waiting)
}
