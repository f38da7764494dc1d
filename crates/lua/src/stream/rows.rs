//! The directives of `stream`, by the words and setters of those of `http` wherever they are the same.

use super::{FIRST, LAST, LOGS};
use crate::balancer;
use crate::code;
use crate::conf::{LuaLoc, LuaMain};
use crate::rows::{
    build_main, build_outer, build_site, by_lua, noted, put, put_main, row, INIT_NOTE, RESOLVER_MS,
    SETTINGS,
};
use crate::ssl::{self, handshake_by_lua, LuaSrv};
use crate::watch;
use std::sync::Arc;
use weir_core::block::Place;
use weir_core::generation::Generation;
use weir_core::registry::target;
use weir_module::{
    first, set, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, RowBody, SlotVtable,
};
use weir_stream::{Build, Session, StreamConf, StreamModule, StreamSrv};
use weir_upstream::{Outgoing, Secures, SslRows};

const SS: Context = Context::SS;
const STREAM: Context = Context::STREAM;

const INIT: [Row; 3] = noted(
    by_lua!("init", STREAM, "Runs when a worker's Lua state begins.", |cf, d| {
        put_main::<Session>(cf, d, |main| &mut main.init)
    }),
    INIT_NOTE,
);
const INIT_WORKER: [Row; 3] = by_lua!(
    "init_worker",
    STREAM,
    "Runs when a worker begins to serve by the configuration.",
    |cf, d| put_main::<Session>(cf, d, |main| &mut main.init_worker)
);
const EXIT_WORKER: [Row; 3] =
    by_lua!("exit_worker", STREAM, "Runs behind a worker's last request: when it ends, and at a reload on the thread that serves, which it must not hold.", |cf, d| {
        put_main::<Session>(cf, d, |main| &mut main.exit_worker)
    });
const PREREAD: [Row; 3] = by_lua!(
    "preread",
    SS,
    "Runs before the content of a session, behind others that look at its first bytes.",
    |cf, d| put::<Session>(cf, d, |loc| &mut loc.preread)
);
const CONTENT: [Row; 3] =
    by_lua!("content", Context::STREAM_SERVER, "Talks to the client.", put_content);
const LOG: [Row; 3] = by_lua!("log", SS, "Runs when the session is over.", |cf, d| {
    put::<Session>(cf, d, |loc| &mut loc.log)
});
const BALANCER: [Row; 3] = by_lua!(
    "balancer",
    Context::STREAM_UPSTREAM,
    "Chooses the server before each try.",
    balancer::set::<Session>
);

const HELLO: [Row; 2] = handshake_by_lua!(
    Session,
    "ssl_client_hello",
    SS,
    "Runs when a client's hello is there, at the address's default server.",
    hello
);
const CERTIFICATE: [Row; 2] = handshake_by_lua!(
    Session,
    "ssl_certificate",
    SS,
    "Runs when a handshake needs a certificate, and may choose it.",
    certificate
);

fn put_content(cf: &mut Cf, d: &Directive) -> ConfResult {
    let code = code::of::<Session>(cf, d)?;
    let number = cf.get::<LuaMain>().add(code);
    if cf.get::<LuaLoc>().content.replace(number).is_some() {
        return Err(d.error("is duplicate"));
    }
    cf.get::<StreamSrv>().set_content(super::content);
    Ok(())
}

/// `lua_add_variable $name`
fn add_variable(cf: &mut Cf, d: &Directive) -> ConfResult {
    target::<Session>(cf, d, 0).map(|_| ())
}

/// The row of that name among those of `http`, for these contexts.
const fn same(name: &str, contexts: Context) -> Row {
    let mut at = 0;
    while at < SETTINGS.len() {
        if is_same(SETTINGS[at].name.as_bytes(), name.as_bytes()) {
            return Row { contexts, ..SETTINGS[at] };
        }
        at += 1;
    }
    panic!("http has no such directive")
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

static OWN: &[Row] = &[
    Row::new(
        "lua_shared_dict",
        STREAM,
        Arity::TWO,
        "",
        "A dictionary that all workers share: NAME SIZE; it outlives a reload, and is not the one of that name in http.",
        |cf, d| crate::rows::set_dict(cf, d, crate::rows::DICT_OF_STREAM),
    ),
    same("lua_package_path", STREAM),
    same("lua_package_cpath", STREAM),
    same("lua_code_cache", SS),
    same("lua_sa_restart", STREAM),
    same("lua_check_client_abort", SS),
    same("lua_max_pending_timers", STREAM),
    same("lua_max_running_timers", STREAM),
    same("lua_regex_cache_max_entries", STREAM),
    same("lua_regex_match_limit", STREAM),
    same("lua_socket_connect_timeout", SS),
    same("lua_socket_send_timeout", SS),
    same("lua_socket_read_timeout", SS),
    same("lua_socket_keepalive_timeout", SS),
    same("lua_socket_pool_size", SS),
    same("lua_socket_buffer_size", SS),
    same("lua_socket_log_errors", SS),
    same("lua_log_blocking_calls", SS),
    same("lua_max_run_time", SS),
    same("lua_capture_error_log", STREAM),
    same("lua_malloc_trim", STREAM),
    same("lua_load_resty_core", STREAM),
    same("lua_socket_send_lowat", SS),
    same("lua_vm_memory", STREAM),
    Row::new(
        "preread_by_lua_no_postpone",
        STREAM,
        Arity::FLAG,
        "off",
        "Runs preread_by_lua before the modules that look at the first bytes.",
        set!(Cf::get::<LuaLoc>, preread_first, first::flag),
    ),
    Row::new(
        "lua_add_variable",
        STREAM,
        Arity::ONE,
        "",
        "Makes a variable that code may give a value, and that has none before.",
        add_variable,
    ),
    Row { contexts: SS, ..ssl::KEY_LOG },
    HELLO[0],
    HELLO[1],
    CERTIFICATE[0],
    CERTIFICATE[1],
];

/// TLS of sockets.
struct Tls;

impl Secures for Tls {
    type Session = Session;
    const PREFIX: &'static str = "lua_";
    const LEVELS: Context = SS;
    const TLS_NAME: &'static str = "the name that sslhandshake is given";
    fn outgoing(cf: &mut Cf) -> &mut Outgoing {
        &mut cf.get::<LuaLoc>().ssl
    }
}

const BY_LUA: [[Row; 3]; 7] = [INIT, INIT_WORKER, EXIT_WORKER, PREREAD, CONTENT, LOG, BALANCER];
const OF_TLS: [usize; 8] = crate::rows::OF_TLS;
const ALL: usize = BY_LUA.len() * 3 + OWN.len() + OF_TLS.len();

static TABLE: [Row; ALL] = {
    let mut rows = [OWN[0]; ALL];
    let mut at = 0;
    while at < BY_LUA.len() * 3 {
        rows[at] = BY_LUA[at / 3][at % 3];
        at += 1;
    }
    while at < ALL - OF_TLS.len() {
        rows[at] = OWN[at - BY_LUA.len() * 3];
        at += 1;
    }
    while at < ALL {
        rows[at] = SslRows::<Tls>::ROWS[OF_TLS[at + OF_TLS.len() - ALL]];
        at += 1;
    }
    rows
};

fn build(b: &mut Build<'_>) -> ConfResult {
    b.main.get_mut::<LuaMain>().prefix = weir_runtime::paths::bytes(&b.cf.prefix).to_vec();
    if build_main(b.main)? {
        let place = b.outer.get::<Place>();
        let timeout_ms = place.resolver_timeout.as_option().copied().unwrap_or(RESOLVER_MS);
        let resolver = place.resolver.as_option().cloned().flatten().map(|r| (r, timeout_ms));
        let outer = build_outer(b.outer, &place.error_log, resolver, b.cf)?;
        b.main.get_mut::<LuaMain>().outer = Some(outer);
        for loc in weir_module::distinct::<LuaLoc>(b.servers) {
            build_site(loc, b.cf)?;
        }
    }
    for slots in b.servers.iter_mut() {
        ssl::build_server(slots);
    }
    Ok(())
}

fn start(gen: &Arc<Generation>, stream: &StreamConf) {
    if stream.main.get::<LuaMain>().is_used {
        let outer = stream.main.get::<LuaMain>().outer.iter().map(|outer| &outer.conf);
        watch::begin(gen, stream.bases().map(|base| base.conf::<LuaLoc>()).chain(outer));
    }
}

/// OpenResty's Lua for `stream`: its log runs before lines of logs are written.
pub const MODULE: StreamModule = StreamModule {
    rows: &TABLE,
    slots: &[SlotVtable::of::<LuaMain>(), SlotVtable::of::<LuaLoc>(), SlotVtable::of::<LuaSrv>()],
    phases: LOGS,
    prereader: Some(FIRST),
    start: Some(start),
    serves: Some(super::serves),
    ..StreamModule::EMPTY
};

/// Code that runs behind others that look at the first bytes; it is built when TLS is there.
pub const POSTPONED: StreamModule =
    StreamModule { prereader: Some(LAST), build: Some(build), ..StreamModule::EMPTY };
