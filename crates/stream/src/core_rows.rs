//! Directives of the stream block's core.

use crate::conf::{StreamBlock, StreamMain, StreamSrv};
use crate::module::StreamModule;
use crate::{vars, Session};
use weir_core::block::{self, Place};
use weir_core::listen::{self, Listen};
use weir_module::first::{flag, msec, size};
use weir_module::{
    joined_rows, set, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, SlotVtable,
};
use weir_runtime::listen::ListenAddr;

const SIZES: &str = "The table sizes itself: the number is checked and not needed.";

const SS: Context = Context::SS;

static ROWS: &[Row] = &[
    Row::block(
        "server",
        Context::STREAM,
        Arity::NONE,
        "A virtual server for TCP and UDP sessions.",
        |cf, d| block::read_server(cf, d, Context::STREAM_SERVER),
    ),
    Row::new(
        "listen",
        Context::STREAM_SERVER,
        Arity::ONE_MORE,
        "",
        "An address the server accepts connections on, or (`udp`) receives datagrams from.",
        set_listen,
    )
    .note(
        "An address without a port is refused, and `udp` with a path. A client's datagrams stay with the worker, and so the server, \
         where they began, also when a shared socket is read by another worker or the number of \
         workers changes; what arrives while a session cannot take it waits, up to 256 datagrams or \
         256 KB.",
    ),
    Row::new(
        "server_name",
        Context::STREAM_SERVER,
        Arity::ONE_MORE,
        "\"\"",
        "Names of the server, as TLS clients ask for them.",
        |cf, d| listen::set_server_name::<Session>(cf, d, |cf| &mut cf.get::<Place>().reached),
    ),
    Row::new(
        "proxy_protocol_timeout",
        SS,
        Arity::ONE,
        "30s",
        "Longest time for the PROXY protocol's header.",
        set!(Cf::get::<StreamSrv>, proxy_protocol_timeout, msec),
    ),
    Row::new(
        "tcp_nodelay",
        SS,
        Arity::FLAG,
        "on",
        "Small packets leave at once.",
        set!(Cf::get::<StreamSrv>, tcp_nodelay, flag),
    ),
    Row::new(
        "preread_buffer_size",
        SS,
        Arity::ONE,
        "16k",
        "Size of the buffer for the first bytes of a session.",
        set!(Cf::get::<StreamSrv>, preread_buffer_size, size),
    ),
    Row::new(
        "preread_timeout",
        SS,
        Arity::ONE,
        "30s",
        "Longest time for the first bytes of a session.",
        set!(Cf::get::<StreamSrv>, preread_timeout, msec),
    ),
    Row::new(
        "variables_hash_max_size",
        Context::STREAM,
        Arity::ONE,
        "1024",
        "The table's size.",
        set_size,
    ).once()
    .note(SIZES),
    Row::new(
        "variables_hash_bucket_size",
        Context::STREAM,
        Arity::ONE,
        "64",
        "A bucket's size.",
        set_size,
    ).once()
    .note(SIZES),
    Row::new(
        "server_names_hash_max_size",
        Context::STREAM,
        Arity::ONE,
        "512",
        "The table's size.",
        set_size,
    ).once()
    .note(SIZES),
    Row::new(
        "server_names_hash_bucket_size",
        Context::STREAM,
        Arity::ONE,
        "32|64|128",
        "A bucket's size.",
        set_size,
    ).once()
    .note(SIZES),
];

/// What every protocol's block has of it.
pub const COMMON: StreamModule = StreamModule {
    rows: joined_rows!(block::Rows::<Session>::ALL, &[block::Rows::<Session>::RESOLVER]),
    ..StreamModule::EMPTY
};

/// What every session of `stream` has besides: timeouts, buffers, variables.
pub const MODULE: StreamModule = StreamModule {
    rows: ROWS,
    slots: &[
        SlotVtable::of::<StreamBlock>(),
        SlotVtable::of::<StreamMain>(),
        SlotVtable::of::<StreamSrv>(),
    ],
    variables: vars::VARIABLES,
    ..StreamModule::EMPTY
};

fn set_size(_: &mut Cf, d: &Directive) -> ConfResult {
    d.num(0).map(|_| ())
}

/// `listen ADDRESS[:PORT] [option …]`
fn set_listen(cf: &mut Cf, d: &Directive) -> ConfResult {
    listen::needs_port(d)?;
    let listens = listen::parse(d, udp)?;
    if listens.iter().any(|l| l.addr.is_udp()) {
        check_udp(d)?;
    }
    for listen in listens {
        cf.get::<Place>().reached.add(d, listen)?;
    }
    Ok(())
}

/// `udp`: datagrams instead of connections.
fn udp(d: &Directive, i: usize, listen: &mut Listen) -> ConfResult<bool> {
    if d.arg(i) != b"udp" {
        return Ok(false);
    }
    let Some(addr) = listen.addr.ip() else {
        let mut e = d.bad(i, "the \"udp\" parameter requires an address and port");
        e.hint = Some("datagrams are not received from sockets of the file system".into());
        return Err(e);
    };
    listen.addr = ListenAddr::Udp(addr);
    Ok(true)
}

/// Refuses what only connections have.
fn check_udp(d: &Directive) -> ConfResult {
    const NAMES: [&str; 6] =
        ["fastopen", "backlog", "deferred", "ssl", "so_keepalive", "proxy_protocol"];
    let has = |name: &str| {
        (1..d.args.len()).any(|i| {
            let rest = d.arg(i).strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"="))
        })
    };
    match NAMES.into_iter().find(|name| has(name)) {
        Some(name) => Err(d.error(&format!("\"{name}\" parameter is incompatible with \"udp\""))),
        None => Ok(()),
    }
}
