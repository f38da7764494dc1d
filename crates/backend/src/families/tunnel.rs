//! nginx's `ngx_http_tunnel_module`: a client's CONNECT (RFC 9110, section 9.3.6) joins its connection to a
//! server's.

use crate::ask::Ask;
use crate::attempt::Run;
use crate::bits::next;
use crate::conf::{self, conf_of, BackendConf, BackendLoc, Words};
use crate::family::{Family, Ways};
use crate::reach::{choose, connected, Chosen};
use crate::rows::{self, Rows};
use crate::run;
use crate::target::{self, Pass, Schemes, Target};
use crate::upload::Body;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::LocalFuture;
use weir_http::conf::{CoreLoc, CoreSrv};
use weir_http::module::HttpModule;
use weir_http::vars::template_of;
use weir_http::{Flow, Request};
use weir_module::{
    joined_rows, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
};
use weir_wire::http1::request::Method;
use weir_wire::http1::response::Start;

#[derive(Default)]
pub(crate) struct TunnelLoc {
    backend: BackendLoc,
}

impl BackendConf for TunnelLoc {
    const FAMILY: &'static Family = &FAMILY;
    const PREFIX: &'static str = "tunnel_";
    const NEXT: &'static Words = NEXT;

    fn backend(&self) -> &BackendLoc {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut BackendLoc {
        &mut self.backend
    }
}

impl ConfType for TunnelLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &TunnelLoc) -> ConfResult {
        self.backend.merge(&parent.backend, &FAMILY)?;
        self.backend.own_body = true;
        self.backend.merge_pass(&parent.backend);
        Ok(())
    }
}

pub(crate) static FAMILY: Family = Family {
    name: "tunnel",
    ssl: "",
    schemes: Schemes { plain: "", tls: None, required: false, ports: (0, 0), uri: false },
    hidden: &[],
    buffers: false,
    write,
    start: Start::Either,
    key: None,
    ways: Ways::PLAIN,
};

const NEXT: &Words = &[("error", next::ERROR), ("timeout", next::TIMEOUT), ("off", next::OFF)];

/// Where the client says itself where to.
const ASKED_FOR: &[u8] = b"$host:$request_port";

const ROWS: &[Row] = &[
    Row::new(
        "tunnel_pass",
        Context::SERVER.or(Context::LOCATION).or(Context::LIF),
        Arity::NONE_ONE,
        "$host:$request_port",
        "Joins the connections of clients that ask for it (CONNECT) to a server's; others get a 405.",
        set_pass,
    )
    .note(
        "whoever may send CONNECT reaches what this machine reaches: bound it by allow and deny, auth_basic \
         (asked for with 407) or a map of $host and $request_port",
    ),
    Row::new(
        "tunnel_send_lowat",
        Context::HSL,
        Arity::ONE,
        "0",
        "Least free send buffer.",
        |_, d| d.size(0).map(drop),
    )
    .once()
    .note("Linux has no SO_SNDLOWAT; nginx ignores it there too."),
];

/// `tunnel_pass` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(ROWS, Rows::<TunnelLoc>::PEER, Rows::<TunnelLoc>::SOCKET),
    ..conf::module::<TunnelLoc>()
};

fn set_pass(cf: &mut Cf, d: &Directive) -> ConfResult {
    match d.args.is_empty() {
        false => rows::set_pass::<TunnelLoc>(cf, d)?,
        true => {
            let asked_for = template_of(cf, d, 0, ASKED_FOR).map(Arc::new)?;
            rows::pass_by::<TunnelLoc>(cf, d, asked_for)?;
        }
    }
    cf.get::<CoreLoc>().handler = Some(handler);
    cf.get::<CoreSrv>().allows_connect = true;
    Ok(())
}

fn handler(r: &mut Request) -> Flow {
    match r.method {
        Method::Connect => Flow::Wait(wait),
        _ => Flow::Status(405),
    }
}

fn wait(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(join(r))
}

/// Nothing is asked of the server: its connection is the answer.
async fn join(r: &mut Request) -> Flow {
    let loc = &Rc::clone(r.loc());
    let conf = conf_of::<TunnelLoc>(loc);
    let found = match &conf.pass {
        None => Err(500),
        Some(Pass::Fixed(to)) => target::fixed(r, to).map(|group| (Target::Fixed(to), group)),
        Some(Pass::Vars(to)) => target::evaluate(r, &FAMILY.schemes, to, false).await,
    };
    let (target, group) = match found {
        Ok(found) => found,
        Err(status) => return Flow::Status(status),
    };
    let mut run = Run::new(loc, conf, group, Body::None);
    match join_to(r, &mut run, &target, |_| Ok(())).await {
        Ok(flow) => flow,
        Err(status) => Flow::Status(status),
    }
}

/// Connects to the target, has `head` say what the answer says besides 200, and joins both sides. An error is a
/// status to answer with.
pub(super) async fn join_to(
    r: &mut Request,
    run: &mut Run<'_>,
    target: &Target<'_>,
    head: impl FnOnce(&mut Request) -> Result<(), u16>,
) -> Result<Flow, u16> {
    run::begin(r, run, target)?;
    loop {
        let asked = match choose(r, run) {
            Chosen::Idle(asked) => asked,
            found => match connected(r, run, found).await {
                Ok(asked) => asked,
                Err(None) => continue,
                Err(Some(status)) => return Err(status),
            },
        };
        r.out.status = 200;
        if let Some(state) = r.upstream.last_mut() {
            state.header_us = Some(weir_runtime::clock::mono_us().saturating_sub(run.asked_us));
        }
        head(r)?;
        return Ok(run::switch(r, run, asked).await);
    }
}

pub(super) fn write(r: &mut Request, _: &Ask) -> Result<bool, u16> {
    r.exchange.request.clear();
    Ok(true)
}
