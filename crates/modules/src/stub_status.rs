//! `stub_status` and `$connections_*` (nginx's `ngx_http_stub_status_module`). What is shown is what modules report
//! (`report` in their rows); `stub_status json` shows all of it.
//!
//! Difference from nginx: `$connections_accepted` and `$connections_handled` are there as well.

use std::convert::Infallible;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use weir_core::counters::{AllCounters, Counters};
use weir_core::figures::{Figures, Served};
use weir_core::generation::Generation;
use weir_core::LocalFuture;
use weir_http::buf::Buf;
use weir_http::conf::CoreLoc;
use weir_http::module::{self, Flow, HttpModule, VarArg, Variable};
use weir_http::{body, long_text, special, Request};
use weir_module::{Arity, Cf, ConfResult, Context, Directive, Row};
use weir_wire::http1::request::Method;

const ROWS: &[Row] = &[Row::new(
    "stub_status",
    Context::SERVER.or(Context::LOCATION),
    // Old versions asked for an argument.
    Arity::NONE_ONE,
    "",
    "Answers with the numbers of connections and requests; \"json\": with all that modules report.",
    set_status,
)
.note(
    "stub_status json is our own: all that modules report (connections, requests, servers, locations, limits, upstreams, \
     caches), in the names of NGINX Plus's API where that has the figure. Any other argument means nothing, as in \
     nginx.",
)];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    variables: &[
        Variable::new("connections_accepted", accepted),
        Variable::new("connections_handled", handled),
        Variable::new("connections_active", active),
        Variable::new("connections_reading", reading),
        Variable::new("connections_writing", writing),
        Variable::new("connections_waiting", waiting),
    ],
    ..HttpModule::EMPTY
};

fn set_status(cf: &mut Cf, d: &Directive) -> ConfResult {
    let all = d.args.first().is_some_and(|a| &*a.text == b"json");
    cf.get::<CoreLoc>().handler = Some(if all { all_handler } else { handler });
    Ok(())
}

fn sum(r: &Request, pick: fn(&Counters) -> &AtomicU64) -> u64 {
    r.conn().worker.all.sum(pick)
}

/// What modules report whose place begins so; all of it for an empty one.
fn figures(gen: &Generation, all: &AllCounters, place: &str) -> Figures {
    let mut figures = Figures::default();
    let blocks = [("http", module::reports(gen)), ("stream", weir_stream::reports(gen))];
    for (name, (reports, main)) in blocks {
        let Some(main) = main else { continue };
        for report in reports.iter().filter(|report| report.path.starts_with(place)) {
            let served = Served { gen, all };
            figures.add(name, report, &served, main);
        }
    }
    figures
}

fn handler(r: &mut Request) -> Flow {
    if let Err(flow) = begin(r) {
        return flow;
    }
    let mut all = figures(&r.gen().core, &r.conn().worker.all, "/connections");
    let f = all.group("connections");
    let text = format!(
        "Active connections: {} \nserver accepts handled requests\n {} {} {} \n\
         Reading: {} Writing: {} Waiting: {} \n",
        f.number("active") + f.number("idle"),
        f.number("accepted"),
        f.number("handled"),
        f.number("requests"),
        f.number("reading"),
        f.number("writing"),
        f.number("idle"),
    );
    let body = long_text::whole(r, text.into());
    answer(r, b"text/plain", body)
}

fn all_handler(r: &mut Request) -> Flow {
    match begin(r) {
        Err(flow) => flow,
        Ok(()) => Flow::Wait(show_all),
    }
}

fn show_all(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let (gen, all) = (Arc::clone(&r.gen().core), Arc::clone(&r.conn().worker.all));
        let making = long_text::made(r, move || {
            let mut text = Vec::new();
            figures(&gen, &all, "").write_json(&mut text);
            text.push(b'\n');
            Ok::<_, Infallible>(text)
        });
        match making.await {
            Err(status) => Flow::Status(status),
            Ok(Ok(text)) => {
                let body = long_text::whole(r, text);
                answer(r, b"application/json", body)
            }
        }
    })
}

fn begin(r: &mut Request) -> Result<(), Flow> {
    match r.method {
        Method::Get | Method::Head => body::discard(r),
        _ => Err(Flow::Status(405)),
    }
}

fn answer(r: &mut Request, kind: &[u8], body: Buf) -> Flow {
    r.out.status = 200;
    r.out.set_content_type(kind);
    special::finish(r, body)
}

fn push(r: &Request, out: &mut Vec<u8>, pick: fn(&Counters) -> &AtomicU64) -> bool {
    weir_base::bytes::fmt_u64(out, sum(r, pick));
    true
}

fn accepted(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push(r, out, |c| &c.accepted)
}

fn handled(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    push(r, out, |c| &c.handled)
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
