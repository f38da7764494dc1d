//! `metrics`: the tree of all that is counted, as Prometheus reads it (text format 0.0.4, or OpenMetrics 1.0 for who asks
//! for it). No page of a module: what modules report is walked, and a table says which names become labels.
//!
//! Names are stable: `weir_`, where the figure stands in the tree, the figure, its unit (`_bytes`, `_seconds`), and `_total`
//! where it only grows. Figures that have begun anew in the API go on here.

mod families;
mod help;
mod otlp;
mod walk;

pub use otlp::encode;

use crate::tree::gather;
use families::Families;
use std::convert::Infallible;
use std::sync::Arc;
use weir_base::bytes::find_ignore_case;
use weir_core::LocalFuture;
use weir_http::body;
use weir_http::conf::CoreLoc;
use weir_http::long_text;
use weir_http::module::{Flow, HttpModule};
use weir_http::{special, Request};
use weir_module::{Arity, Context, Row};
use weir_wire::http1::request::Method;

const PLAIN: &[u8] = b"text/plain; version=0.0.4; charset=utf-8";
const OPEN: &[u8] = b"application/openmetrics-text; version=1.0.0; charset=utf-8";

const ROWS: &[Row] = &[Row::new(
    "metrics",
    Context::LOCATION,
    Arity::NONE,
    "",
    "Answers with what is counted, as Prometheus and OpenMetrics read it.",
    |cf, _| {
        cf.get::<CoreLoc>().handler = Some(handler);
        Ok(())
    },
)
.note(
    "It is our own. weir_http_requests_total{server=\"…\"} and the like: names are made of those of the API, latencies are \
     histograms in seconds, exact at their bounds (0.0005 to 10, 15 series with the last). A status has a series \
     (weir_http_responses_total{code=\"507\"}) from its first answer on, its class \
     (weir_http_responses_by_class_total{class=\"5xx\"}) from the start: alarms on rate() look at that. As OpenMetrics, \
     which Prometheus asks for by itself, buckets have exemplars, the trace ids of requests that otel_trace samples. Each \
     server, location with a status_zone and server of an upstream has some 30 to 40 series, about 100 bytes each: with \
     thousands of them let it be compressed (gzip on; gzip_types *; in the location). Whoever is to read them needs \
     \"allow\" in the location.",
)];

/// The directive.
pub const MODULE: HttpModule = HttpModule { rows: ROWS, ..HttpModule::EMPTY };

fn handler(r: &mut Request) -> Flow {
    if !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    Flow::Wait(show)
}

fn show(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let is_open = r.headers().any(|(name, value)| {
            name.eq_ignore_ascii_case(b"Accept")
                && find_ignore_case(value, b"application/openmetrics-text").is_some()
        });
        let (gen, all) = (Arc::clone(&r.gen().core), Arc::clone(&r.conn().worker.all));
        let making = long_text::made(r, move || {
            let tree = gather(&gen, &all, "");
            let mut families = Families::default();
            walk::walk(&tree, &mut families);
            Ok::<_, Infallible>(families.text(is_open))
        });
        match making.await {
            Err(status) => Flow::Status(status),
            Ok(Ok(text)) => {
                r.out.status = 200;
                r.out.set(b"Cache-Control", b"no-store");
                r.out.set_content_type(if is_open { OPEN } else { PLAIN });
                let body = long_text::whole(r, text);
                special::finish(r, body)
            }
        }
    })
}
