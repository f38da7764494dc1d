//! nginx's `ngx_http_grpc_module`: requests are passed to gRPC servers over HTTP/2, both bodies as
//! they come.
//!
//! Difference from nginx: line ends in a field's value become spaces.

use crate::ask::Ask;
use crate::bits::next;
use crate::conf::{self, BackendConf, BackendLoc, Words};
use crate::families::proxy::headers::{HeaderPlan, SetHeader};
use crate::families::proxy::request::{one_line, write_own_uri};
use crate::family::{Family, Ways};
use crate::link::Link;
use crate::rows::Rows;
use crate::rows::{self, push, PASS};
use crate::target::Schemes;
use std::rc::Rc;
use std::sync::Arc;
use weir_http::module::{HttpModule, VarArg, Variable};
use weir_http::vars::template;
use weir_http::Request;
use weir_module::{
    joined_rows, slot, ArgsExt, Arity, ConfResult, ConfType, Context, Level, Row, Val,
};
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Method;
use weir_wire::http1::response::Start;

#[derive(Default)]
pub(crate) struct GrpcLoc {
    backend: BackendLoc,
    set_headers: Val<Arc<Vec<SetHeader>>>,
    compiled: bool,
    plan: Arc<HeaderPlan>,
}

impl BackendConf for GrpcLoc {
    const FAMILY: &'static Family = &FAMILY;
    const PREFIX: &'static str = "grpc_";
    const NEXT: &'static Words = NEXT;
    const TLS_NAME: &'static str = "the host of grpc_pass";

    fn backend(&self) -> &BackendLoc {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut BackendLoc {
        &mut self.backend
    }
}

impl ConfType for GrpcLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &GrpcLoc) -> ConfResult {
        let b = &mut self.backend;
        b.buffering.set(false);
        b.request_buffering.set(false);
        b.pass_trailers.set(true);
        b.merge(&parent.backend, &FAMILY)?;
        b.h2 = true;
        b.streams_unmeasured = true;
        b.merge_pass(&parent.backend);
        let inherited = !self.set_headers.is_set() && parent.compiled;
        self.set_headers.merge(&parent.set_headers, Arc::default);
        self.plan = match inherited {
            true => Arc::clone(&parent.plan),
            false => Arc::new(HeaderPlan::with_te(&self.set_headers, te)),
        };
        self.compiled = true;
        Ok(())
    }
}

pub(crate) static FAMILY: Family = Family {
    name: "grpc",
    ssl: "grpc_ssl",
    schemes: Schemes {
        plain: "grpc://",
        tls: Some("grpcs://"),
        required: false,
        ports: (0, 0),
        uri: false,
    },
    hidden: &[
        b"Date",
        b"Server",
        b"X-Accel-Expires",
        b"X-Accel-Redirect",
        b"X-Accel-Limit-Rate",
        b"X-Accel-Buffering",
        b"X-Accel-Charset",
    ],
    buffers: false,
    write,
    start: Start::Http,
    key: None,
    ways: Ways {
        interim: true,
        host_field: sets_host,
        head_came: Some(note_empty_answer),
        ..Ways::PLAIN
    },
};

const NEXT: &[(&str, u32)] = &[
    ("error", next::ERROR),
    ("timeout", next::TIMEOUT),
    ("invalid_header", next::INVALID_HEADER),
    ("non_idempotent", next::NON_IDEMPOTENT),
    ("http_500", next::HTTP_500),
    ("http_502", next::HTTP_502),
    ("http_503", next::HTTP_503),
    ("http_504", next::HTTP_504),
    ("http_403", next::HTTP_403),
    ("http_404", next::HTTP_404),
    ("http_429", next::HTTP_429),
    ("off", next::OFF),
];

const ROWS: &[Row] = &[
    Row::new(
        "grpc_pass",
        PASS,
        Arity::ONE,
        "",
        "Passes requests to a gRPC server; grpcs:// with TLS.",
        rows::set_pass::<GrpcLoc>,
    )
    .note("a host that is not found is a warning, and a 502 until it is found"),
    Row::new(
        "grpc_set_header",
        Context::HSL,
        Arity::TWO,
        "Content-Length $content_length",
        "A header field of the request.",
        |cf, d| {
            let h = SetHeader { name: d.arg(0).to_vec(), value: template(cf, d, 1)? };
            push(&mut cf.get::<GrpcLoc>().set_headers, h);
            Ok(())
        },
    )
    .note("line ends in a value become spaces"),
];

static VARIABLES: &[Variable] = &[Variable::new("grpc_internal_trailers", te)];

/// `grpc_pass` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(
        ROWS,
        Rows::<GrpcLoc>::PEER,
        Rows::<GrpcLoc>::SOCKET,
        Rows::<GrpcLoc>::HEADER,
        Rows::<GrpcLoc>::SSL,
    ),
    variables: VARIABLES,
    ..conf::module::<GrpcLoc>()
};

/// `trailers`, where the client says that it takes them.
fn te(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let takes = r.head.get(HeaderId::Te).is_some_and(|h| {
        let words = h.value.of(&r.buf).split(|b| *b == b',');
        words.into_iter().any(|w| w.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    });
    if takes {
        out.extend_from_slice(b"trailers");
    }
    takes
}

/// Writes the request's head as text, which becomes HTTP/2's fields when it is sent.
fn write(r: &mut Request, ask: &Ask) -> Result<bool, u16> {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<GrpcLoc>();
    let mut out = std::mem::take(&mut r.exchange.request);
    out.clear();
    out.extend_from_slice(r.method_name());
    out.push(b' ');
    let start = out.len();
    write_own_uri(r, &mut out);
    r.exchange.uri = (start, out.len());
    one_line(r, &mut out, "grpc");
    out.extend_from_slice(b" HTTP/1.1\r\n");
    conf.plan.write_host(r, &ask.target.parts().host, true, &mut out);
    conf.plan.write_lines(r, ask.length, &mut out);
    conf.plan.write_client(r, &mut out);
    out.extend_from_slice(b"\r\n");
    r.exchange.request = out;
    Ok(r.method == Method::Head)
}

/// An answer that is a head alone is passed on as one: its length is known.
fn note_empty_answer(r: &mut Request, link: &Link) {
    let head = &mut r.exchange.head;
    let alone = r.exchange.reply.len() == r.exchange.head_at + head.head_len;
    let ended = link.h2.as_ref().is_some_and(|h2| h2.has_ended() && h2.trailers.is_empty());
    if alone && ended && head.content_length.is_none() {
        head.content_length = Some(0);
    }
}

/// `Host` is set, and goes as it is.
fn sets_host(r: &Request) -> bool {
    r.loc().conf::<GrpcLoc>().plan.sets_host()
}
