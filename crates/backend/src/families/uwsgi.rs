//! nginx's `ngx_http_uwsgi_module`: requests are passed to uwsgi servers, with TLS too.

use crate::ask::Ask;
use crate::conf::{self, BackendConf, BackendLoc, Words};
use crate::family::{Family, Ways};
use crate::params::{set_param, Params};
use crate::rows::Rows;
use crate::rows::{self, NEXT_CGI, PASS};
use crate::target::Schemes;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::module::HttpModule;
use weir_http::Request;
use weir_module::first::bytes;
use weir_module::{
    joined_rows, merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context,
    Directive, Level, Row, Val,
};
use weir_wire::http1::request::Method;
use weir_wire::http1::response::Start;
use weir_wire::uwsgi::{RequestWriter, TooBig};

#[derive(Default)]
pub(crate) struct UwsgiLoc {
    backend: BackendLoc,
    params: Params,
    modifier1: Val<u8>,
    modifier2: Val<u8>,
    /// Bytes that end the packet.
    string: Val<Vec<u8>>,
}

impl BackendConf for UwsgiLoc {
    const FAMILY: &'static Family = &FAMILY;
    const PREFIX: &'static str = "uwsgi_";
    const NEXT: &'static Words = NEXT_CGI;
    const TLS_NAME: &'static str = "the host of uwsgi_pass";

    fn backend(&self) -> &BackendLoc {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut BackendLoc {
        &mut self.backend
    }
}

impl ConfType for UwsgiLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &UwsgiLoc) -> ConfResult {
        merge_values!(self, parent; modifier1 = 0, modifier2 = 0, string = Vec::new());
        self.backend.merge(&parent.backend, &FAMILY)?;
        self.backend.own_body = !*self.backend.pass_request_body;
        self.backend.merge_pass(&parent.backend);
        self.params.merge(&parent.params, &mut self.backend.cache);
        Ok(())
    }
}

pub(crate) static FAMILY: Family = Family {
    name: "uwsgi",
    ssl: "uwsgi_ssl",
    schemes: Schemes {
        plain: "uwsgi://",
        tls: Some("suwsgi://"),
        required: false,
        ports: (0, 0),
        uri: false,
    },
    // All but `Status`, as in nginx.
    hidden: &[
        b"X-Accel-Expires",
        b"X-Accel-Redirect",
        b"X-Accel-Limit-Rate",
        b"X-Accel-Buffering",
        b"X-Accel-Charset",
    ],
    buffers: true,
    write,
    start: Start::Either,
    key: None,
    ways: Ways { one_answer: true, ..Ways::PLAIN },
};

const HSL: Context = Context::HSL;

fn modifier(d: &Directive) -> ConfResult<u8> {
    u8::try_from(d.num(0)?).map_err(|_| d.error("value must be between 0 and 255"))
}

const ROWS: &[Row] = &[
    Row::new(
        "uwsgi_pass",
        PASS,
        Arity::ONE,
        "",
        "Passes requests to a uwsgi server; suwsgi:// with TLS.",
        rows::set_pass::<UwsgiLoc>,
    )
    .note("a host that is not found is a warning, and a 502 until it is found"),
    Row::new(
        "uwsgi_param",
        HSL,
        Arity::TWO_THREE,
        "",
        "A parameter of requests; if_not_empty leaves it out when it is empty.",
        |cf, d| set_param(cf, d, |cf| &mut cf.get::<UwsgiLoc>().params),
    ),
    Row::new("uwsgi_modifier1", HSL, Arity::ONE, "0", "The packet's first modifier.", |cf, d| {
        let v = modifier(d)?;
        cf.get::<UwsgiLoc>().modifier1.once(d, v)
    }),
    Row::new("uwsgi_modifier2", HSL, Arity::ONE, "0", "The packet's second modifier.", |cf, d| {
        let v = modifier(d)?;
        cf.get::<UwsgiLoc>().modifier2.once(d, v)
    }),
    Row::new(
        "uwsgi_string",
        HSL,
        Arity::ONE,
        "",
        "Bytes that end the packet.",
        set!(Cf::get::<UwsgiLoc>, string, bytes),
    ),
];

/// `uwsgi_pass` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(
        ROWS,
        Rows::<UwsgiLoc>::PEER,
        Rows::<UwsgiLoc>::TENGINE,
        Rows::<UwsgiLoc>::SOCKET,
        Rows::<UwsgiLoc>::HEADER,
        Rows::<UwsgiLoc>::BUFFER,
        Rows::<UwsgiLoc>::CACHE,
        Rows::<UwsgiLoc>::SSL,
    ),
    ..conf::module::<UwsgiLoc>()
};

fn write(r: &mut Request, ask: &Ask) -> Result<bool, u16> {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<UwsgiLoc>();
    let mut out = std::mem::take(&mut r.exchange.request);
    out.clear();
    let mut writer = RequestWriter::new(&mut out, (*conf.modifier1, *conf.modifier2));
    let fields = *conf.backend.pass_request_headers;
    conf.params.plan(ask.cached).write(r, fields, |name, value| writer.param(name, value));
    let written = writer.finish(&conf.string);
    r.exchange.request = out;
    match written {
        Ok(()) => Ok(r.method == Method::Head),
        Err(TooBig(len)) => {
            r.log(LogLevel::Alert, &format!("uwsgi request is too big: {len}"));
            Err(500)
        }
    }
}
