//! What directives there are.

use crate::apart;
use crate::balancer;
use crate::code;
use crate::conf::{DictConf, LuaLoc, LuaMain, Outer};
use crate::phases;
use crate::site::Block;
use crate::watch::{self, RunTime};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use weir_core::generation::Generation;
use weir_core::logger::ErrorLog;
use weir_core::zones;
use weir_core::{Session, Worker};
use weir_dict::Dict;
use weir_http::conf::CoreLoc;
use weir_http::generation::HttpConf;
use weir_http::module::{Build, HttpModule};
use weir_http::Request;
use weir_module::{
    first, set, ArgsExt, Arity, Cf, ConfResult, ConfType as _, Context, Diagnostic, Directive, Row,
    RowBody, Setter, SlotVtable, Slots, Val,
};
use weir_resolve::Resolver;
use weir_upstream::{Outgoing, Secures, SslRows};

/// `resolver_timeout`, where it is not said.
pub(crate) const RESOLVER_MS: u64 = 30_000;

const LOC: Context = Context::HSL.or(Context::LIF);
const CONTENT: Context = Context::LOCATION.or(Context::LIF);

/// The three forms of a directive: with the code as an argument, in a block, and in a file.
macro_rules! by_lua {
    ($name:literal, $contexts:expr, $doc:literal, $set:expr) => {
        [
            row(
                concat!($name, "_by_lua"),
                $contexts,
                RowBody::Plain,
                concat!($doc, " The code is an argument."),
                $set,
            ),
            row(concat!($name, "_by_lua_block"), $contexts, RowBody::Raw, $doc, $set),
            row(
                concat!($name, "_by_lua_file"),
                $contexts,
                RowBody::Plain,
                concat!($doc, " The code is in a file."),
                $set,
            ),
        ]
    };
}
pub(crate) use by_lua;

pub(crate) const fn row(
    name: &'static str,
    contexts: Context,
    body: RowBody,
    doc: &'static str,
    set: Setter,
) -> Row {
    let arity = match body {
        RowBody::Raw => Arity::NONE,
        _ => Arity::ONE,
    };
    Row { name, contexts, arity, body, default: "", doc, note: "", is_once: false, set }
}

pub(crate) fn put<S: Session>(
    cf: &mut Cf,
    d: &Directive,
    place: fn(&mut LuaLoc) -> &mut Val<Option<u32>>,
) -> ConfResult {
    let code = code::of::<S>(cf, d)?;
    let number = cf.get::<LuaMain>().add(code);
    place(cf.get::<LuaLoc>()).once(d, Some(number))
}

pub(crate) fn put_main<S: Session>(
    cf: &mut Cf,
    d: &Directive,
    place: fn(&mut LuaMain) -> &mut Option<u32>,
) -> ConfResult {
    let code = code::of::<S>(cf, d)?;
    let main = cf.get::<LuaMain>();
    let number = main.add(code);
    match place(main).replace(number) {
        None => Ok(()),
        Some(_) => Err(d.error("is duplicate")),
    }
}

fn put_content(cf: &mut Cf, d: &Directive) -> ConfResult {
    let code = code::of::<Request>(cf, d)?;
    let number = cf.get::<LuaMain>().add(code);
    match cf.get::<LuaLoc>().content.replace(number) {
        None => Ok(()),
        Some(_) => Err(d.error("is duplicate")),
    }
}

/// What is another thing than in OpenResty, where all workers are copies of the process that has run it.
pub(crate) const INIT_NOTE: &str = "Each worker has a state of its own, and it runs in each: once in the process that reads the configuration (the \
    master, as root where that is root), whose state is thrown away and whose failure refuses the configuration, and then once for each worker, \
    before init_worker_by_lua and with the rights of user. What it does outside (files that it writes, what it sends) is done as often, and \
    files that only root may read are not read by the workers. A test (-t) runs it where there is no lua_shared_dict, as in OpenResty.";

/// The same rows, with what they differ in.
pub(crate) const fn noted(rows: [Row; 3], note: &'static str) -> [Row; 3] {
    [rows[0].note(note), rows[1].note(note), rows[2].note(note)]
}

const INIT: [Row; 3] = noted(
    by_lua!("init", Context::HTTP, "Runs when a worker's Lua state begins.", |cf, d| {
        put_main::<Request>(cf, d, |main| &mut main.init)
    }),
    INIT_NOTE,
);
const INIT_WORKER: [Row; 3] = by_lua!(
    "init_worker",
    Context::HTTP,
    "Runs when a worker begins to serve by the configuration.",
    |cf, d| { put_main::<Request>(cf, d, |main| &mut main.init_worker) }
);
const EXIT_WORKER: [Row; 3] =
    by_lua!("exit_worker", Context::HTTP, "Runs behind a worker's last request: when it ends, and at a reload on the thread that serves, which it must not hold.", |cf, d| {
        put_main::<Request>(cf, d, |main| &mut main.exit_worker)
    });
const SERVER_REWRITE: [Row; 3] =
    by_lua!("server_rewrite", Context::HS, "Runs before the location is looked for.", |cf, d| {
        put::<Request>(cf, d, |loc| &mut loc.server_rewrite)
    });
const REWRITE: [Row; 3] =
    by_lua!("rewrite", LOC, "Runs in the rewrite phase, behind the rewrite module.", |cf, d| {
        put::<Request>(cf, d, |loc| &mut loc.rewrite)
    });
const ACCESS: [Row; 3] = by_lua!("access", LOC, "Runs in the access phase.", |cf, d| {
    put::<Request>(cf, d, |loc| &mut loc.access)
});
const PRECONTENT: [Row; 3] =
    by_lua!("precontent", LOC, "Runs before the content phase.", |cf, d| {
        put::<Request>(cf, d, |loc| &mut loc.precontent)
    });
const BY_CONTENT: [Row; 3] = by_lua!("content", CONTENT, "Makes the answer.", put_content);
const HEADER_FILTER: [Row; 3] =
    by_lua!("header_filter", LOC, "Runs before the answer's header leaves.", |cf, d| {
        put::<Request>(cf, d, |loc| &mut loc.header_filter)
    });
const BODY_FILTER: [Row; 3] =
    by_lua!("body_filter", LOC, "Runs for each piece of the answer's body.", |cf, d| {
        put::<Request>(cf, d, |loc| &mut loc.body_filter)
    });
const LOG: [Row; 3] = by_lua!("log", LOC, "Runs when the request is over.", |cf, d| {
    put::<Request>(cf, d, |loc| &mut loc.log)
});

const BALANCER: [Row; 3] = by_lua!(
    "balancer",
    Context::UPSTREAM,
    "Chooses the server before each try.",
    balancer::set::<Request>
);

const SET: [Row; 3] = [
    Row::new(
        "set_by_lua",
        weir_modules::rewrite::CONTEXTS,
        Arity::TWO_MORE,
        "",
        "Gives a variable what code returns: $variable CODE [ARGUMENTS].",
        phases::set_by,
    ),
    Row {
        arity: Arity::ONE,
        ..row(
            "set_by_lua_block",
            weir_modules::rewrite::CONTEXTS,
            RowBody::Raw,
            "Gives a variable what code returns.",
            phases::set_by,
        )
    },
    Row::new(
        "set_by_lua_file",
        weir_modules::rewrite::CONTEXTS,
        Arity::TWO_MORE,
        "",
        "Gives a variable what the code in a file returns: $variable FILE [ARGUMENTS].",
        phases::set_by,
    ),
];

fn loc(cf: &mut Cf) -> &mut LuaLoc {
    cf.get()
}

fn main(cf: &mut Cf) -> &mut LuaMain {
    let main = cf.get::<LuaMain>();
    main.is_used = true;
    main
}

fn set_path(cf: &mut Cf, d: &Directive) -> ConfResult {
    let text = d.arg(0).to_vec();
    let is_c = d.name.text.ends_with(b"cpath");
    let prefix = weir_runtime::paths::bytes(&cf.prefix).to_vec();
    let text = replace(&replace(&text, b"${prefix}", &prefix), b"$prefix", &prefix);
    let main = main(cf);
    let place = if is_c { &mut main.package_cpath } else { &mut main.package_path };
    match place.replace(text) {
        None => Ok(()),
        Some(_) => Err(d.error("is duplicate")),
    }
}

fn replace(text: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut from = 0;
    for at in memchr::memmem::find_iter(text, what) {
        out.extend_from_slice(&text[from..at]);
        out.extend_from_slice(with);
        from = at + what.len();
    }
    out.extend_from_slice(&text[from..]);
    out
}

fn run_time(d: &Directive) -> ConfResult<RunTime> {
    let ends = match d.args.get(1).map(|word| &word.text[..]) {
        None => false,
        Some(b"end") => true,
        Some(_) => return Err(d.bad(1, "only \"end\" may follow the time")),
    };
    Ok(RunTime { ms: d.msec(0)?, ends })
}

/// A dictionary is a zone of its own kind.
const DICT: &str = "lua_shared_dict";
/// One of `stream` is another than that of `http` with the same name.
pub(crate) const DICT_OF_STREAM: &str = "lua_shared_dict of stream";
/// The least that OpenResty takes.
const DICT_MIN_BYTES: u64 = 8 * 1024;

/// OpenResty's longest line.
const CAPTURE_MIN_BYTES: u64 = 4096;

/// Code names them by numbers of two bytes.
const DICTS_MAX: usize = 1 << 16;

pub(crate) fn set_dict(cf: &mut Cf, d: &Directive, kind: &'static str) -> ConfResult {
    let (name, size) = (d.arg(0).to_vec(), d.size(1)?);
    if size < DICT_MIN_BYTES {
        let shown = String::from_utf8_lossy(d.arg(1)).into_owned();
        return Err(d.bad(1, format!("invalid lua shared dict size \"{shown}\"")));
    }
    if main(cf).dicts.iter().any(|known| known.name == name) {
        let shown = String::from_utf8_lossy(&name).into_owned();
        return Err(d.bad(0, format!("lua_shared_dict \"{shown}\" is already defined")));
    }
    if main(cf).dicts.len() >= DICTS_MAX {
        return Err(d.bad(
            0,
            format!("there are {DICTS_MAX} dictionaries already, which is all that may be"),
        ));
    }
    let zone = if kind == DICT { name.clone() } else { [b"stream ", &name[..]].concat() };
    zones::declare(cf, d, 0, &zone, kind, size)?;
    main(cf).dicts.push(DictConf { name, kind, size, dict: OnceLock::new() });
    Ok(())
}

/// The dictionaries that are in use, by their names.
pub fn dicts() -> Vec<(Vec<u8>, Arc<Dict>)> {
    zones::named(DICT)
}

/// Makes what a block has of its own; whether it has code. Dictionaries of an earlier configuration go on under the
/// same name and size.
pub(crate) fn build_main(main: &Slots) -> ConfResult<bool> {
    let main = main.get::<LuaMain>();
    for dict in &main.dicts {
        let make = || Dict::named(dict.size, dict.name.len());
        let made = zones::attach(dict.kind, &dict.name, dict.size, |_| Ok(()), make)?;
        // There is nobody else who sets it.
        let _ = dict.dict.set(made);
    }
    if !main.is_used {
        return Ok(false);
    }
    // A worker could not begin with it.
    if let Some(code) = main.init.and_then(|n| main.codes.get(n as usize)) {
        code.check("init_by_lua").map_err(Diagnostic::emerg)?;
    }
    Ok(true)
}

/// What sockets of code that stands there need.
pub(crate) fn build_site(loc: &LuaLoc, cf: &mut Cf) -> ConfResult {
    if loc.ssl.varies() {
        let text = "\"lua_ssl_certificate\" and its key have variables, which sockets cannot have";
        return Err(Diagnostic::emerg(text.to_owned()));
    }
    loc.ssl.build(cf, "lua_ssl", false)
}

/// The block's own settings, for code that runs for nobody.
pub(crate) fn build_outer(
    slots: &Slots,
    error_log: &Arc<ErrorLog>,
    resolver: Option<(Arc<Resolver>, u64)>,
    cf: &mut Cf,
) -> ConfResult<Arc<Outer>> {
    let mut conf = LuaLoc::default();
    conf.merge(slots.find::<LuaLoc>().unwrap_or(&LuaLoc::default()))?;
    let warnings = cf.warnings.len();
    build_site(&conf, cf)?;
    // They are said for those who inherit it.
    cf.warnings.truncate(warnings);
    if let Some((resolver, _)) = &resolver {
        weir_core::resolver::look_up(resolver)?;
        weir_core::resolver::log_to(resolver, error_log);
    }
    Ok(Arc::new(Outer { conf, error_log: Arc::clone(error_log), resolver }))
}

fn build(b: &mut Build) -> ConfResult {
    if build_main(b.main)? {
        let core = b.outer.get::<CoreLoc>();
        let timeout_ms = core.resolver_timeout.as_option().copied().unwrap_or(RESOLVER_MS);
        let resolver = core.resolver.as_option().cloned().flatten().map(|r| (r, timeout_ms));
        let outer = build_outer(b.outer, &core.error_log, resolver, b.cf)?;
        b.main.get_mut::<LuaMain>().outer = Some(outer);
        for loc in weir_module::distinct::<LuaLoc>(b.locations) {
            build_site(loc, b.cf)?;
        }
    }
    Ok(())
}

pub(crate) const SETTINGS: &[Row] = &[
    Row::new("lua_shared_dict", Context::HTTP, Arity::TWO, "", "A dictionary that all workers share: NAME SIZE; it outlives a reload and an upgrade.", |cf, d| set_dict(cf, d, DICT))
        .note("It is in the memory of the process that serves: where that is killed, the one that takes its place begins with an empty one (in OpenResty the master keeps it). Over an upgrade both programs serve for a while, each with its own; what the old one has comes to the new one when it ends, and keys that are there by then stay."),
    Row::new("lua_package_path", Context::HTTP, Arity::ONE, "", "Where require looks for modules; \"$prefix\" is the server's prefix, \";;\" the usual places.", set_path),
    Row::new("lua_package_cpath", Context::HTTP, Arity::ONE, "", "Where require looks for modules in C.", set_path),
    Row::new("lua_code_cache", LOC, Arity::FLAG, "on", "Whether code is compiled once; with off each request has a Lua state of its own, for who writes code.", |cf, d| {
        let on = d.flag()?;
        if !on {
            main(cf).has_own_states = true;
            cf.warn(d, "lua_code_cache is off; this will hurt performance");
        }
        loc(cf).code_cache.once(d, on)
    }),
    Row::new("lua_sa_restart", Context::HTTP, Arity::FLAG, "on", "Signals interrupt no call of code.", |_, d| match d.flag()? {
        true => Ok(()),
        false => Err(d.bad(0, "signals are read here and interrupt no call, so that there is nothing to leave out: remove the directive")),
    }),
    Row::new("balancer_keepalive", Context::UPSTREAM, Arity::ONE, "30", "How many connections a worker keeps to a server that balancer_by_lua names.", balancer::set_keepalive)
        .note("counted for each server and not for the upstream as a whole"),
    Row::new("lua_need_request_body", LOC, Arity::FLAG, "off", "Reads the request's body before code runs.", set!(loc, need_request_body, first::flag)),
    Row::new("lua_use_default_type", LOC, Arity::FLAG, "on", "Gives answers of Lua's the type of default_type.", set!(loc, use_default_type, first::flag)),
    Row::new("lua_http10_buffering", LOC, Arity::FLAG, "on", "Keeps answers to HTTP/1.0 until their length is known.", set!(loc, http10_buffering, first::flag)),
    Row::new("lua_check_client_abort", LOC, Arity::FLAG, "off", "Watches whether the client goes while code waits.", set!(loc, check_client_abort, first::flag)),
    Row::new("lua_transform_underscores_in_response_headers", LOC, Arity::FLAG, "on", "Makes hyphens of underscores in the names of ngx.header.", set!(loc, transform_underscores, first::flag)),
    Row::new("lua_max_pending_timers", Context::HTTP, Arity::ONE, "1024", "How many timers of a worker may wait.", set!(main, max_pending_timers, first::num)),
    Row::new("lua_max_running_timers", Context::HTTP, Arity::ONE, "256", "How many timers of a worker may run at once.", set!(main, max_running_timers, first::num)),
    Row::new("lua_regex_cache_max_entries", Context::HTTP, Arity::ONE, "1024", "How many expressions compiled with the option o a worker keeps.", set!(main, regex_cache, first::num)),
    Row::new("lua_regex_match_limit", Context::HTTP, Arity::ONE, "0", "How many steps a match of ngx.re may take; 0: the usual limit.", set!(main, regex_match_limit, first::num)),
    Row::new("lua_socket_connect_timeout", LOC, Arity::ONE, "60s", "How long a socket of Lua's waits to be connected.", set!(loc, connect_timeout, first::msec)),
    Row::new("lua_socket_send_timeout", LOC, Arity::ONE, "60s", "How long it waits for room to send.", set!(loc, send_timeout, first::msec)),
    Row::new("lua_socket_read_timeout", LOC, Arity::ONE, "60s", "How long it waits for what the other side sends.", set!(loc, read_timeout, first::msec)),
    Row::new("lua_socket_keepalive_timeout", LOC, Arity::ONE, "60s", "How long a kept connection may be idle.", set!(loc, keepalive_timeout, first::msec)),
    Row::new("lua_socket_pool_size", LOC, Arity::ONE, "30", "How many connections a pool keeps for a worker.", set!(loc, pool_size, |d| match d.num(0)? {
        0 => Err(d.bad(0, "the pool must have room for a connection")),
        n => Ok(n),
    })),
    Row::new("lua_socket_buffer_size", LOC, Arity::ONE, "4k", "How much is read at a time.", set!(loc, buffer_size, |d| match d.size(0)? {
        0 => Err(d.bad(0, "the buffer must have room for a byte")),
        n => Ok(n),
    })),
    Row::new("lua_socket_max_read_size", LOC, Arity::ONE, "64m", "How much one call of a socket may read: what it waits for, receive(\"*a\"), a line or the text before a pattern, is in memory until it is whole. 0: no limit.", set!(loc, max_read, first::size))
        .note("Weir's own. What is more ends the connection, and the call with nil, \"more than lua_socket_max_read_size\" and what was read."),
    Row::new("lua_socket_log_errors", LOC, Arity::FLAG, "on", "Whether failures of sockets are logged.", set!(loc, log_errors, first::flag)),
    Row::new("lua_max_run_time", LOC, Arity::ONE_TWO, "1s", "How long code may run without waiting before a warning says where it is; with end it is ended then, and its request with 500. 0: for ever.", set!(loc, max_run_time, run_time))
        .note("Weir's own. What waits begins anew. Calls of C's functions (patterns, the FFI) are interrupted when they return."),
    Row::new("lua_log_blocking_calls", LOC, Arity::FLAG, "on", "Whether calls that block the worker (files of io, os.execute, luasocket) are warned of where they are made, once for each place.", set!(loc, log_blocking_calls, first::flag))
        .note("Weir's own. Code of init_by_lua and init_worker_by_lua may block. Up to 100 places of a configuration are named."),
    Row::new("rewrite_by_lua_no_postpone", Context::HTTP, Arity::FLAG, "off", "Runs rewrite_by_lua before the rewrite module.", set!(loc, rewrite_first, first::flag)),
    Row::new("access_by_lua_no_postpone", Context::HTTP, Arity::FLAG, "off", "Runs access_by_lua before the modules that let in or refuse.", set!(loc, access_first, first::flag)),
    Row::new("precontent_by_lua_no_postpone", Context::HTTP, Arity::FLAG, "off", "Runs precontent_by_lua before try_files and mirror.", set!(loc, precontent_first, first::flag)),
    Row::new("lua_thread_cache_max_entries", Context::HTTP, Arity::ONE, "1024", "How many coroutines that have ended a worker keeps, to run further code on.", set!(main, thread_cache, first::num)),
    Row::new("lua_malloc_trim", Context::HTTP, Arity::ONE, "0", "After how many requests (in stream: sessions) a worker gives back all memory that is free; 0: it does not.", set!(loc, malloc_trim, first::num))
        .note("Off unless it is asked for, and not 1000: the allocator gives pages back by itself, and here all of it is looked through, which holds the worker."),
    Row::new("lua_load_resty_core", Context::HTTP, Arity::FLAG, "on", "Whether resty.core is there; it always is.", |cf, d| {
        d.flag()?;
        cf.warn(d, "lua_load_resty_core is deprecated and has no effect, as in OpenResty: resty.core is always there; remove the directive");
        Ok(())
    }),
    Row::new("lua_socket_send_lowat", LOC, Arity::ONE, "0", "Least free send buffer of sockets.", |cf, d| {
        if d.size(0)? > 0 {
            cf.warn(d, "\"lua_socket_send_lowat\" has no effect: Linux has no SO_SNDLOWAT, where nginx ignores it as well; remove the directive");
        }
        Ok(())
    }).once().note("Linux has no SO_SNDLOWAT; OpenResty ignores it there too."),
    Row::new("lua_capture_error_log", Context::HTTP, Arity::ONE, "", "How much of what it writes to error logs a worker keeps for ngx.errlog.get_logs, the newest.", set!(main, capture, |d| match d.size(0)? {
        size if size < CAPTURE_MIN_BYTES => {
            let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
            Err(d.bad(0, format!("invalid capture error log size \"{shown}\", minimum size is {CAPTURE_MIN_BYTES}")))
        }
        size => Ok(size),
    }))
        .note("http and stream may each have one of their own, for their own code. Lines of threads that are no workers are not kept."),
    Row::new("lua_worker_thread_vm_pool_size", Context::HTTP, Arity::ONE, "10", "How many Lua states a worker may have for ngx.run_worker_thread, each with a thread.", set!(main, apart, apart_states)),
    Row::new("lua_vm_memory", Context::HTTP, Arity::ONE, "0", "How much memory one worker's Lua state may take; 0: no limit.", set!(main, memory, first::size))
        .note("Weir's own. What runs out of it ends with an error, and its request with 500."),
];

/// Each has a thread and its memory.
fn apart_states(d: &Directive) -> ConfResult<u64> {
    let states = d.num(0)?;
    match (1..=apart::MAX).contains(&states) {
        true => Ok(states),
        false => {
            Err(d
                .bad(0, format!("lua_worker_thread_vm_pool_size must be from 1 to {}", apart::MAX)))
        }
    }
}

/// TLS of sockets, by the words that all have who speak to servers.
struct Tls;

impl Secures for Tls {
    type Session = weir_http::Request;
    const PREFIX: &'static str = "lua_";
    const LEVELS: Context = LOC;
    const TLS_NAME: &'static str = "the name that sslhandshake is given";
    fn outgoing(cf: &mut Cf) -> &mut Outgoing {
        &mut cf.get::<LuaLoc>().ssl
    }
}

/// Those of them that there are here, by their places.
pub(crate) const OF_TLS: [usize; 8] = [1, 2, 6, 7, 8, 9, 10, 13];

const ALL: usize = 13 * 3 + SETTINGS.len() + OF_TLS.len();

const ROWS: [Row; ALL] = {
    let groups = [
        INIT,
        INIT_WORKER,
        EXIT_WORKER,
        SET,
        SERVER_REWRITE,
        REWRITE,
        ACCESS,
        PRECONTENT,
        BY_CONTENT,
        HEADER_FILTER,
        BODY_FILTER,
        LOG,
        BALANCER,
    ];
    let mut rows = [SETTINGS[0]; ALL];
    let mut at = 0;
    while at < groups.len() * 3 {
        rows[at] = groups[at / 3][at % 3];
        at += 1;
    }
    while at < ALL - OF_TLS.len() {
        rows[at] = SETTINGS[at - groups.len() * 3];
        at += 1;
    }
    while at < ALL {
        rows[at] = SslRows::<Tls>::ROWS[OF_TLS[at + OF_TLS.len() - ALL]];
        at += 1;
    }
    rows
};

static TABLE: [Row; ALL] = ROWS;

fn prepare(cf: &mut Cf) -> ConfResult {
    let prefix = weir_runtime::paths::bytes(&cf.prefix).to_vec();
    cf.get::<LuaMain>().prefix = prefix;
    Ok(())
}

fn start(gen: &Arc<Generation>, http: &HttpConf) {
    if http.main.get::<LuaMain>().is_used {
        let outer = http.main.get::<LuaMain>().outer.iter().map(|outer| &outer.conf);
        let locations = http.locations.iter().map(|loc| loc.slots.get::<LuaLoc>());
        watch::begin(gen, locations.chain(outer));
    }
}

fn serves(worker: &Rc<Worker>, _: usize) {
    phases::begin_worker(worker, Block::Http);
}

/// Code that runs before the modules of its phase.
pub const FIRST: HttpModule = HttpModule { phases: phases::FIRST, ..HttpModule::EMPTY };

/// Code of the log runs before all lines are written: variables that it sets are in them.
pub const LOGS: HttpModule = HttpModule { phases: phases::LOGS, ..HttpModule::EMPTY };

/// Code that runs behind the other modules of its phase.
pub const LAST: HttpModule = HttpModule { phases: phases::LAST, ..HttpModule::EMPTY };

/// OpenResty's Lua for HTTP.
pub const MODULE: HttpModule = HttpModule {
    rows: &TABLE,
    slots: &[
        SlotVtable::of::<LuaMain>(),
        SlotVtable { merge: LuaLoc::merge_block, ..SlotVtable::of::<LuaLoc>() },
    ],
    phases: phases::PHASES,
    prepare: Some(prepare),
    build: Some(build),
    start: Some(start),
    serves: Some(serves),
    at_worker: phases::AT_WORKER,
    ..HttpModule::EMPTY
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_tls_are_those_that_are_meant() {
        let names: Vec<_> = OF_TLS.iter().map(|at| SslRows::<Tls>::ROWS[*at].name).collect();
        let expected = [
            "lua_ssl_protocols",
            "lua_ssl_ciphers",
            "lua_ssl_verify_depth",
            "lua_ssl_trusted_certificate",
            "lua_ssl_crl",
            "lua_ssl_certificate",
            "lua_ssl_certificate_key",
            "lua_ssl_conf_command",
        ];
        assert_eq!(names, expected);
    }
}
