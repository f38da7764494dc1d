//! nginx's `ngx_http_scgi_module`: requests are passed to SCGI servers.
//!
//! Differences from nginx: `CONTENT_LENGTH` is 0 for a body that is not passed, and a NUL in a value
//! becomes a space.

use crate::ask::{Ask, BodyLength};
use crate::conf::{self, BackendConf, BackendLoc, Words};
use crate::family::{Family, Ways, HIDDEN_CGI};
use crate::params::{set_param, Params};
use crate::rows::Rows;
use crate::rows::{self, NEXT_CGI, PASS};
use crate::target::Schemes;
use std::rc::Rc;
use weir_http::module::HttpModule;
use weir_http::Request;
use weir_module::{joined_rows, slot, Arity, ConfResult, ConfType, Context, Level, Row};
use weir_wire::http1::request::Method;
use weir_wire::http1::response::Start;
use weir_wire::scgi::RequestWriter;

#[derive(Default)]
pub(crate) struct ScgiLoc {
    backend: BackendLoc,
    params: Params,
}

impl BackendConf for ScgiLoc {
    const FAMILY: &'static Family = &FAMILY;
    const PREFIX: &'static str = "scgi_";
    const NEXT: &'static Words = NEXT_CGI;

    fn backend(&self) -> &BackendLoc {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut BackendLoc {
        &mut self.backend
    }
}

impl ConfType for ScgiLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &ScgiLoc) -> ConfResult {
        self.backend.merge(&parent.backend, &FAMILY)?;
        self.backend.own_body = !*self.backend.pass_request_body;
        self.backend.merge_pass(&parent.backend);
        self.params.merge(&parent.params, &mut self.backend.cache);
        Ok(())
    }
}

pub(crate) static FAMILY: Family = Family {
    name: "scgi",
    ssl: "",
    schemes: Schemes { plain: "scgi://", tls: None, required: false, ports: (0, 0), uri: false },
    hidden: HIDDEN_CGI,
    buffers: true,
    write,
    start: Start::Either,
    key: None,
    ways: Ways { one_answer: true, ..Ways::PLAIN },
};

const ROWS: &[Row] = &[
    Row::new(
        "scgi_pass",
        PASS,
        Arity::ONE,
        "",
        "Passes requests to an SCGI server.",
        rows::set_pass::<ScgiLoc>,
    )
    .note("a host that is not found is a warning, and a 502 until it is found"),
    Row::new(
        "scgi_param",
        Context::HSL,
        Arity::TWO_THREE,
        "",
        "A parameter of requests; if_not_empty leaves it out when it is empty.",
        |cf, d| set_param(cf, d, |cf| &mut cf.get::<ScgiLoc>().params),
    )
    .note("a NUL in a value becomes a space"),
];

/// `scgi_pass` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(
        ROWS,
        Rows::<ScgiLoc>::PEER,
        Rows::<ScgiLoc>::TENGINE,
        Rows::<ScgiLoc>::SOCKET,
        Rows::<ScgiLoc>::HEADER,
        Rows::<ScgiLoc>::BUFFER,
        Rows::<ScgiLoc>::CACHE,
    ),
    ..conf::module::<ScgiLoc>()
};

fn write(r: &mut Request, ask: &Ask) -> Result<bool, u16> {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<ScgiLoc>();
    let mut out = std::mem::take(&mut r.exchange.request);
    out.clear();
    let length = match ask.length {
        BodyLength::Known(n) => n,
        BodyLength::None | BodyLength::Chunked => 0,
    };
    let mut writer = RequestWriter::new(&mut out, length);
    let fields = *conf.backend.pass_request_headers;
    conf.params.plan(ask.cached).write(r, fields, |name, value| writer.param(name, value));
    writer.finish();
    r.exchange.request = out;
    Ok(r.method == Method::Head)
}
