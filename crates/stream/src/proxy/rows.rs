//! Directives of `proxy_pass` and its family.

use super::{content, Pass, ProxySrv};
use crate::build::Build;
use crate::conf::StreamSrv;
use crate::module::StreamModule;
use crate::Session;
use std::sync::Arc;
use weir_base::addr::EndpointOptions;
use weir_core::bind;
use weir_core::proxy_header::Sent;
use weir_core::registry::{size_template, template};
use weir_module::first::{flag, msec, num, size};
use weir_module::{
    joined_rows, set, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, SlotVtable,
};
use weir_runtime::listen::parse_endpoint;
use weir_upstream::{Outgoing, Secures, SslRows, UpstreamMain};

const SS: Context = Context::SS;

static ROWS: &[Row] = &[
    Row::new(
        "proxy_pass",
        Context::STREAM_SERVER,
        Arity::ONE,
        "",
        "Where the bytes of sessions go.",
        set_pass,
    ),
    Row::new("proxy_bind", SS, Arity::ONE_TWO, "", "The local address of connections.", |cf, d| {
        let v = bind::parse::<Session>(cf, d)?;
        cf.get::<ProxySrv>().bind.once(d, v)
    }),
    Row::new(
        "proxy_socket_keepalive",
        SS,
        Arity::FLAG,
        "off",
        "The system watches over quiet connections.",
        set!(Cf::get::<ProxySrv>, socket_keepalive, flag),
    ),
    Row::new(
        "proxy_socket_rcvbuf",
        SS,
        Arity::ONE,
        "0",
        "The system's buffer for receiving.",
        set!(Cf::get::<ProxySrv>, socket_rcvbuf, size),
    ),
    Row::new(
        "proxy_socket_sndbuf",
        SS,
        Arity::ONE,
        "0",
        "The system's buffer for sending.",
        set!(Cf::get::<ProxySrv>, socket_sndbuf, size),
    ),
    Row::new(
        "proxy_connect_timeout",
        SS,
        Arity::ONE,
        "60s",
        "Longest time to connect.",
        set!(Cf::get::<ProxySrv>, connect_timeout, msec),
    ),
    Row::new(
        "proxy_timeout",
        SS,
        Arity::ONE,
        "10m",
        "How long a session may be quiet.",
        set!(Cf::get::<ProxySrv>, timeout, msec),
    ),
    Row::new(
        "proxy_buffer_size",
        SS,
        Arity::ONE,
        "16k",
        "Bytes that are read at once.",
        set!(Cf::get::<ProxySrv>, buffer_size, size),
    )
    .note("Datagrams pass whole, whatever their size; nginx cuts off what does not fit."),
    Row::new(
        "proxy_downstream_buffer",
        SS,
        Arity::ONE,
        "",
        "The old name of proxy_buffer_size.",
        set_old_buffer,
    ),
    Row::new(
        "proxy_upstream_buffer",
        SS,
        Arity::ONE,
        "",
        "The old name of proxy_buffer_size.",
        set_old_buffer,
    ),
    Row::new(
        "proxy_upload_rate",
        SS,
        Arity::ONE,
        "0",
        "Bytes a second that are read from the client.",
        |cf, d| {
            let t = Arc::new(size_template::<Session>(cf, d, 0)?);
            cf.get::<ProxySrv>().upload_rate.once(d, Some(t))
        },
    ),
    Row::new(
        "proxy_download_rate",
        SS,
        Arity::ONE,
        "0",
        "Bytes a second that are read from the server.",
        |cf, d| {
            let t = Arc::new(size_template::<Session>(cf, d, 0)?);
            cf.get::<ProxySrv>().download_rate.once(d, Some(t))
        },
    ),
    Row::new(
        "proxy_requests",
        SS,
        Arity::ONE,
        "0",
        "Datagrams of a client after which another session begins.",
        set!(Cf::get::<ProxySrv>, requests, num),
    ),
    Row::new(
        "proxy_responses",
        SS,
        Arity::ONE,
        "",
        "Datagrams that a server answers one with.",
        set!(Cf::get::<ProxySrv>, responses, num),
    ),
    Row::new(
        "proxy_next_upstream",
        SS,
        Arity::FLAG,
        "on",
        "Whether another server is tried.",
        set!(Cf::get::<ProxySrv>, next_upstream, flag),
    ),
    Row::new(
        "proxy_next_upstream_tries",
        SS,
        Arity::ONE,
        "0",
        "How many are tried at most.",
        set!(Cf::get::<ProxySrv>, next_upstream_tries, num),
    ),
    Row::new(
        "proxy_next_upstream_timeout",
        SS,
        Arity::ONE,
        "0",
        "How long they are tried.",
        set!(Cf::get::<ProxySrv>, next_upstream_timeout, msec),
    ),
    Row::new(
        "proxy_protocol",
        SS,
        Arity::ONE,
        "off",
        "Tells servers of the client by the PROXY protocol.",
        |cf, d| {
            let v = Sent::parse(d)?;
            cf.get::<ProxySrv>().proxy_protocol.once(d, v)
        },
    ),
    Row::new(
        "proxy_ssl",
        SS,
        Arity::FLAG,
        "off",
        "TLS to servers.",
        set!(Cf::get::<ProxySrv>, ssl, flag),
    ),
    Row::new(
        "proxy_ssl_alpn",
        SS,
        Arity::ONE_MORE,
        "",
        "The protocols that servers are offered by ALPN.",
        set_alpn,
    ),
    Row::new(
        "proxy_half_close",
        SS,
        Arity::FLAG,
        "off",
        "Each direction is closed on its own.",
        set!(Cf::get::<ProxySrv>, half_close, flag),
    ),
];

/// The directives of TLS to servers.
struct Tls;

impl Secures for Tls {
    type Session = Session;
    const PREFIX: &'static str = "proxy_";
    const LEVELS: Context = SS;
    const TLS_NAME: &'static str = "the host of proxy_pass";

    fn outgoing(cf: &mut Cf) -> &mut Outgoing {
        &mut cf.get::<ProxySrv>().tls
    }
}

/// `proxy_…`: the bytes go to another server.
pub const MODULE: StreamModule = StreamModule {
    rows: joined_rows!(ROWS, SslRows::<Tls>::ROWS),
    slots: &[SlotVtable::of::<ProxySrv>(), SlotVtable::of::<super::Lent>()],
    build: Some(build),
    binds_any_source: Some(|stream| {
        let transparent = |b: &bind::Bind| b.transparent;
        let confs = stream.servers.iter().map(|s| s.conf::<ProxySrv>());
        confs.into_iter().any(|c| c.bind.as_ref().is_some_and(transparent))
    }),
    ..StreamModule::EMPTY
};

fn set_pass(cf: &mut Cf, d: &Directive) -> ConfResult {
    if cf.get::<ProxySrv>().pass.is_some() {
        return Err(d.error("is duplicate"));
    }
    let text = d.arg(0);
    let pass = match text.contains(&b'$') {
        true => Pass::Vars(Arc::new(template::<Session>(cf, d, 0)?)),
        false => {
            let shown = String::from_utf8_lossy(text).into_owned();
            let url = parse_endpoint(text, EndpointOptions::default())
                .map_err(|e| d.bad(0, format!("{e} in upstream \"{shown}\"")))?;
            Pass::Fixed(cf.get::<UpstreamMain>().add(d, &url, 0)?)
        }
    };
    cf.get::<ProxySrv>().pass = Some(pass);
    cf.get::<StreamSrv>().content = Some(content);
    Ok(())
}

/// The files of TLS are read, and what connections begin with is made.
fn build(b: &mut Build) -> ConfResult {
    for slots in b.servers.iter() {
        let conf = slots.get::<ProxySrv>();
        if *conf.ssl && conf.pass.is_some() {
            conf.tls.build(b.cf, "proxy_ssl", false)?;
        }
    }
    Ok(())
}

fn set_old_buffer(cf: &mut Cf, d: &Directive) -> ConfResult {
    let size = d.size(0)?;
    cf.get::<ProxySrv>().buffer_size.once(d, size)?;
    let name = d.name();
    let text = format!(
        "the \"{name}\" directive is deprecated, use the \"proxy_buffer_size\" directive instead"
    );
    cf.warn(d, text);
    Ok(())
}

fn set_alpn(cf: &mut Cf, d: &Directive) -> ConfResult {
    let protocols: ConfResult<Vec<_>> =
        (0..d.args.len()).map(|i| template::<Session>(cf, d, i)).collect();
    cf.get::<ProxySrv>().alpn.once(d, Arc::new(protocols?))
}
