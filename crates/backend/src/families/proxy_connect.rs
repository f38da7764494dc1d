//! Tengine's `ngx_http_proxy_connect_module`: a server that is a forward proxy for clients that send CONNECT, beside
//! what it does for others.
//!
//! What decides on a request as usual (rewriting, limits, access) does so by the server's own level: no location is
//! looked for, and none can open what the server has closed. Only ports that are allowed are joined.

mod place;
mod said;

use super::tunnel;
use crate::attempt::Run;
use crate::conf::{self, conf_of, BackendConf, BackendLoc};
use crate::rows;
use crate::target::{self, Pass};
use crate::tunnel::FirstByte;
use crate::upload::Body;
use place::{ConnectLoc, FAMILY};
use said::Keeps;
use std::rc::Rc;
use std::sync::Arc;
use weir_base::units;
use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session, SERVER_NAME};
use weir_http::conf::{CoreLoc, CoreSrv};
use weir_http::module::{HttpModule, Phase, PhaseHandler};
use weir_http::vars::{template, template_of};
use weir_http::{Flow, Request};
use weir_module::first::msec;
use weir_module::{set, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row};
use weir_runtime::clock;
use weir_script::template::Template;
use weir_wire::http1::request::Method;

fn pick(cf: &mut Cf) -> &mut BackendLoc {
    cf.get::<ConnectLoc>().backend_mut()
}

const ROWS: &[Row] = &[
    Row::new(
        "proxy_connect",
        Context::SERVER,
        Arity::NONE,
        "",
        "Joins the connections of clients that send CONNECT to the servers they name; other requests are served as usual.",
        set_on,
    )
    .note(
        "Whoever may send CONNECT reaches what this machine reaches at the allowed ports: bound it by allow and deny or \
         auth_basic of the server. Locations have no part in CONNECT: what they allow, deny or answer is for other requests.",
    )
    .once(),
    Row::new(
        "proxy_connect_allow",
        Context::SERVER,
        Arity::ONE_MORE,
        "443 563",
        "The ports, and ranges of them (1000-2000), that clients may be joined to; all: any.",
        set_ports,
    ),
    Row::new(
        "proxy_connect_connect_timeout",
        Context::SERVER,
        Arity::ONE,
        "60s",
        "Longest time to connect.",
        set!(pick, connect_timeout, msec),
    ),
    Row::new(
        "proxy_connect_data_timeout",
        Context::SERVER,
        Arity::ONE,
        "60s",
        "Longest time in which neither side says anything.",
        set!(pick, read_timeout, msec),
    ),
    Row::new(
        "proxy_connect_read_timeout",
        Context::SERVER,
        Arity::ONE,
        "60s",
        "The older name of proxy_connect_data_timeout.",
        set!(pick, read_timeout, msec),
    ),
    Row::new(
        "proxy_connect_send_timeout",
        Context::SERVER,
        Arity::ONE,
        "60s",
        "Has no function, as in Tengine.",
        |cf, d| {
            d.msec(0)?;
            cf.warn(d, "the \"proxy_connect_send_timeout\" directive has no function, as in Tengine; remove it");
            Ok(())
        },
    )
    .once(),
    Row::new(
        "proxy_connect_send_lowat",
        Context::SERVER,
        Arity::ONE,
        "0",
        "Least free send buffer.",
        |_, d| d.size(0).map(drop),
    )
    .once()
    .note("Linux has no SO_SNDLOWAT; Tengine ignores it there too."),
    Row::new(
        "proxy_connect_address",
        Context::SERVER,
        Arity::ONE,
        "off",
        "The address to connect to, in place of the one that the client names; may have variables.",
        |cf, d| {
            let address = match d.arg(0) {
                b"off" => None,
                _ => Some(Arc::new(template(cf, d, 0)?)),
            };
            cf.get::<ConnectLoc>().address.once(d, address)
        },
    )
    .note("An address without a port has the one that the client names; an empty one is no other."),
    Row::new(
        "proxy_connect_bind",
        Context::SERVER,
        Arity::ONE_TWO,
        "",
        "The local address of connections.",
        rows::set_bind::<ConnectLoc>,
    ),
    Row::new(
        "proxy_connect_response",
        Context::SERVER,
        Arity::ONE,
        "",
        "The head of the answer that says so: a status line and fields; may have variables.",
        |cf, d| {
            let text = template(cf, d, 0)?;
            cf.get::<ConnectLoc>().response.once(d, Some(Arc::new(text)))
        },
    )
    .note("Without it: 200 Connection Established, with Proxy-agent. It goes through the filters, as Tengine's does not, and Connection is added; a status that is not 200 ends the request with 500."),
];

/// It stands behind whatever else decides on a request before its content.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    variables: said::VARIABLES,
    phases: &[PhaseHandler {
        phase: Phase::Precontent,
        handler: go_on,
        active: |slots| *slots.get::<ConnectLoc>().on,
    }],
    ..conf::module::<ConnectLoc>()
};

fn set_on(cf: &mut Cf, d: &Directive) -> ConfResult {
    let (host, port) = (template_of(cf, d, 0, b"$host")?, template_of(cf, d, 0, b"$request_port")?);
    let asked_for = template_of(cf, d, 0, b"$host:$request_port")?;
    let conf = cf.get::<ConnectLoc>();
    conf.on.set(true);
    conf.asked_for = Some(Arc::new((host, port)));
    conf.backend.pass = Some(Pass::Vars(Arc::new(asked_for)));
    cf.get::<CoreLoc>().handler = Some(handler);
    let server = cf.get::<CoreSrv>();
    (server.allows_connect, server.keeps_connect) = (true, true);
    Ok(())
}

fn set_ports(cf: &mut Cf, d: &Directive) -> ConfResult {
    let port = |text: &[u8]| units::parse_int(text).filter(|n| (1..=65_535).contains(n));
    let mut ports = Vec::new();
    for i in 0..d.args.len() {
        let range = match d.arg(i) {
            b"all" => Some((1, 65_535)),
            text => match text.split(|b| *b == b'-').collect::<Vec<_>>()[..] {
                [one] => port(one).map(|n| (n, n)),
                [from, to] => port(from).zip(port(to)).filter(|(from, to)| from <= to),
                _ => None,
            },
        };
        ports.push(range.ok_or_else(|| d.invalid(i))?);
    }
    cf.get::<ConnectLoc>().ports.once(d, Arc::new(ports))
}

/// Nothing else of the server's own level answers before the handler.
fn go_on(r: &mut Request) -> Flow {
    match r.method == Method::Connect && !r.is_part() {
        true => Flow::Ok,
        false => Flow::Declined,
    }
}

/// What is no CONNECT is left to those that there are anyway.
fn handler(r: &mut Request) -> Flow {
    match r.method {
        Method::Connect => Flow::Wait(wait),
        _ => Flow::Declined,
    }
}

fn wait(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        match join(r).await {
            Ok(flow) => flow,
            Err(status) => Flow::Status(status),
        }
    })
}

async fn join(r: &mut Request) -> Result<Flow, u16> {
    let loc = &Rc::clone(r.loc());
    let own = loc.conf::<ConnectLoc>();
    let to = where_to(r, own)?;
    let conf = conf_of::<ConnectLoc>(loc);
    r.keep_said(|said| said.works = true);
    r.keep_state(FirstByte(None));
    let start_ms = clock::mono_ms();
    let (target, group) = target::evaluate(r, &FAMILY.schemes, &to, false).await?;
    let took_ms = clock::mono_ms().saturating_sub(start_ms);
    r.keep_said(|said| said.resolved_ms = Some(took_ms));
    let mut run = Run::new(loc, conf, group, Body::None);
    let said = r.said().and_then(|said| said.waits(conf));
    run.waits = Some(said.unwrap_or((*conf.connect_timeout, *conf.read_timeout)));
    tunnel::join_to(r, &mut run, &target, |r| establish(r, own)).await
}

/// The address, with a port that is allowed.
fn where_to(r: &mut Request, own: &ConnectLoc) -> Result<Template, u16> {
    let asked_for = own.asked_for.clone().ok_or(500u16)?;
    let (host, port) = (r.eval(&asked_for.0), r.eval(&asked_for.1));
    let number = units::parse_int(&port).unwrap_or(0);
    if !own.ports.iter().any(|(from, to)| (*from..=*to).contains(&number)) {
        r.log(LogLevel::Error, &format!("proxy_connect: port {number} is not allowed"));
        return Err(403);
    }
    let address = match &*own.address {
        None => host,
        Some(address) => Some(r.eval(address)).filter(|a| !a.is_empty()).unwrap_or(host),
    };
    let has_port = match address.iter().rposition(|b| *b == b']') {
        Some(end) => address.get(end + 1) == Some(&b':'),
        None => address.contains(&b':'),
    };
    let end = if has_port { Vec::new() } else { [b":", &port[..]].concat() };
    Ok(Template::constant(&[address, end].concat()))
}

/// The head of the answer.
fn establish(r: &mut Request, own: &ConnectLoc) -> Result<(), u16> {
    // It says no more than it is told to.
    (r.out.has_server, r.out.has_date) = (true, true);
    let said = r.said().and_then(|said| said.response.clone());
    let text = match (said, &*own.response) {
        (Some(text), _) => text,
        (None, Some(text)) => r.eval(text),
        (None, None) => {
            r.out.set_status_line(b"200 Connection Established");
            r.out.add(b"Proxy-agent", SERVER_NAME.as_bytes());
            return Ok(());
        }
    };
    let head = said::head(&text).ok_or_else(|| {
        r.log(LogLevel::Error, "proxy_connect: the response is no head of a successful answer");
        500u16
    })?;
    r.out.set_status_line(head.line);
    head.fields.iter().for_each(|(name, value)| r.out.add(name, value));
    Ok(())
}
