//! Operations about runs themselves.

use crate::code::Code;
use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::{context, take_reply, Outcome};
use crate::site::Block;
use crate::vm::Vm;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::{Connection, Session as _};
use weir_http::Request;
use weir_runtime::listen::ListenAddr;
use weir_runtime::paths;

use context::{ANY, BODY, HANDLERS, HEADER, WAITING};

const EXITS: u32 = WAITING | HEADER | BODY | context::BALANCER | context::SSL;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("names", ANY, names),
    OpRow::any("reply", ANY, reply),
    OpRow::any("report", ANY, report),
    OpRow::any("code", ANY, code_text),
    OpRow::any("piece", ANY, piece),
    OpRow::any("cancel", ANY, cancel),
    OpRow::any("outcome", ANY, outcome),
    OpRow::any("phase", ANY, phase),
    OpRow::any("ctx", ANY, ctx),
    OpRow::any("ctx_base", ANY, ctx_base),
    OpRow::any("ctx_ref", ANY, ctx_ref),
    OpRow::any("ctx_put", ANY, ctx_put),
    OpRow::any("ctx_fresh", ANY, |state, _, answer| answer.number(state.vm.next_context() as f64)),
    OpRow::any("leave_to_others", ANY, leave_to_others),
    OpRow::any("threads", WAITING, |_, _, answer| answer.number(1.0)),
    OpRow::any("run", ANY, |state, _, answer| answer.number(state.run.id as f64)),
    // Whether a run that has made sockets goes on.
    OpRow::any("is_alive", ANY, |state, args, _| {
        match state.vm.with_socks.borrow().contains(&(args.x as u64)) {
            true => code::TRUE,
            false => code::FALSE,
        }
    }),
    OpRow::any("schedule", WAITING, |state, _, answer| {
        state.run.is_scheduled = true;
        answer.number(state.run.id as f64)
    }),
    OpRow::any("early", ANY, |state, args, _| {
        state.run.early.push(args.id);
        code::TRUE
    }),
    OpRow::any("on_abort", HANDLERS, on_abort),
    OpRow::any("exit", EXITS, exit),
    OpRow::any("exec", HANDLERS, exec),
    OpRow::any("redirect", HANDLERS, redirect),
    OpRow::any("log", ANY, log),
    OpRow::any("log_enabled", ANY, log_enabled),
    OpRow::any("paths", ANY, package_paths),
    OpRow::any("worker_count", ANY, |state, _, answer| {
        let known = state.vm.worker.upgrade().map(|worker| worker.all.workers());
        let count = known.unwrap_or_else(|| state.vm.workers.get());
        answer.number(count as f64)
    }),
    OpRow::any("config", ANY, config),
    OpRow::any("cjson", ANY, |_, _, answer| answer.text(CJSON.as_bytes())),
];

fn names(_: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    for row in super::ops() {
        answer.text.extend_from_slice(row.name.as_bytes());
        answer.text.push(b'\n');
    }
    code::TEXT
}

fn reply(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let reply = take_reply(state);
    answer.x = reply.x;
    answer.text.extend_from_slice(&reply.text);
    reply.code
}

const LEVELS: [LogLevel; 9] = [
    LogLevel::Emerg,
    LogLevel::Emerg,
    LogLevel::Alert,
    LogLevel::Crit,
    LogLevel::Error,
    LogLevel::Warn,
    LogLevel::Notice,
    LogLevel::Info,
    LogLevel::Debug,
];

fn level_of(number: i32) -> LogLevel {
    usize::try_from(number).ok().and_then(|n| LEVELS.get(n).copied()).unwrap_or(LogLevel::Error)
}

/// What is being done where servers are chosen, in handshakes with them, and in the log. Lines of the level debug say
/// no more than their text.
fn doing(context: u32, level: LogLevel) -> &'static [u8] {
    match context {
        _ if level == LogLevel::Debug => b"",
        context::BALANCER => b" while connecting to upstream",
        context::PROXY_SSL_CERT => b" while loading proxy ssl certificate by lua",
        context::PROXY_SSL_VERIFY => b" while loading proxy ssl verify by lua",
        context::LOG => b" while logging request",
        _ => b"",
    }
}

/// Where a run without a request logs, and the number of the connection it is about.
fn log_of<'s>(state: &'s State<'_>) -> (&'s ErrorLog, Option<u64>) {
    let outer = || match state.run.context {
        context::INIT => None,
        _ => Some(&*state.vm.main()?.outer.as_ref()?.error_log),
    };
    let site = state.run.site.as_ref().map(|site| site.error_log());
    let log = site.or_else(outer).unwrap_or(&state.vm.gen.error_log);
    (log, state.run.moment.as_ref().map(|at| at.conn.serial))
}

/// A line of the level debug, where these are wanted.
pub(super) fn debug(state: &State<'_>, text: impl FnOnce() -> String) {
    if is_enabled(state, LogLevel::Debug) {
        let stream = if state.vm.block == Block::Stream { "stream " } else { "" };
        write(state, LogLevel::Debug, format!("{stream}{}", text()).as_bytes());
    }
}

/// A line of the error log, by the request where there is one.
pub(super) fn write(state: &State<'_>, level: LogLevel, text: &[u8]) {
    // As in nginx lines of this level do not say what they are about.
    let alone = |log: &ErrorLog, conn: &Connection| log.log(level, Some(conn.serial), text);
    match (&state.r, &state.s) {
        (Some(r), _) if level == LogLevel::Debug => alone(r.error_log(), r.conn()),
        (None, Some(s)) if level == LogLevel::Debug => alone(s.error_log(), s.conn()),
        (Some(r), _) => match doing(state.run.context, level) {
            b"" => r.log_bytes(level, text),
            doing => r.log_bytes(level, &[text, doing].concat()),
        },
        // It says itself what is being done.
        (None, Some(s)) => s.log_bytes(level, text),
        (None, None) => {
            let mut line = text.to_vec();
            if level != LogLevel::Debug {
                line.extend_from_slice(b", context: ");
                line.extend_from_slice(context::shown(state.run.context).as_bytes());
                line.extend_from_slice(&state.run.origin);
            }
            let (log, serial) = log_of(state);
            log.log(level, serial, &line);
        }
    }
}

/// A message, and lines of this side's own making behind it.
fn report(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    let level = level_of(args.i);
    if let (Some(text), LogLevel::Error) = (state.vm.attempt.borrow_mut().as_mut(), level) {
        let what = args.a.strip_prefix(b"failed to run init_by_lua*: ").unwrap_or(args.a);
        text.extend_from_slice(&[what, b"\n", args.b, b"\n"].concat());
        return code::TRUE;
    }
    match args.b {
        b"" => write_traced(state, level, args.a),
        lines => write_lines(state, level, args.a, lines),
    }
    code::TRUE
}

/// A text of code's own, in which tracebacks stay lines.
fn write_traced(state: &State<'_>, level: LogLevel, text: &[u8]) {
    if level == LogLevel::Debug || memchr::memchr(b'\n', text).is_none() {
        return write(state, level, text);
    }
    let mut shown = Vec::with_capacity(text.len() + 16);
    weir_base::line::push_traced(text, &mut shown);
    if is_enabled(state, level) {
        write_shown(state, level, shown);
    }
}

pub(crate) fn write_lines(state: &State<'_>, level: LogLevel, first: &[u8], lines: &[u8]) {
    let mut text = Vec::with_capacity(first.len() + lines.len());
    weir_base::line::push_traced(first, &mut text);
    text.push(b'\n');
    text.extend_from_slice(lines);
    write_shown(state, level, text);
}

/// Lines in which nothing is left to be escaped.
fn write_shown(state: &State<'_>, level: LogLevel, mut text: Vec<u8>) {
    if let Some(s) = &state.s {
        return s.log_lines(level, &text);
    }
    text.extend_from_slice(doing(state.run.context, level));
    match &state.r {
        Some(r) => r.log_lines(level, &text),
        None => {
            text.extend_from_slice(b", context: ");
            text.extend_from_slice(context::shown(state.run.context).as_bytes());
            text.extend_from_slice(&state.run.origin);
            let (log, serial) = log_of(state);
            log.log_lines(level, serial, &text);
        }
    }
}

fn log(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    if state.vm.attempt.borrow().is_some() {
        // The workers' states say it.
        return code::TRUE;
    }
    write_traced(state, level_of(args.i), args.a);
    code::TRUE
}

fn log_enabled(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    if is_enabled(state, level_of(args.i)) {
        code::TRUE
    } else {
        code::FALSE
    }
}

pub(super) fn is_enabled(state: &State<'_>, level: LogLevel) -> bool {
    match (&state.r, &state.s) {
        (Some(r), _) => r.log_enabled(level),
        (None, Some(s)) => s.log_enabled(level),
        (None, None) => log_of(state).0.enabled(level),
    }
}

/// The text of the code of a number: its name, itself, and whether it is a file's and may be kept.
fn code_text(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(code) = state.vm.main().and_then(|main| main.codes.get(args.i as usize)) else {
        return answer.fail("there is no such code");
    };
    match code {
        Code::Inline { chunk, text } => {
            answer.list().text(chunk).text(text).boolean(false).boolean(true);
        }
        Code::File { path, prefix } => {
            let name = match (path.as_constant(), state.r.as_deref_mut(), &mut state.s) {
                (Some(name), ..) => name.to_vec(),
                (None, Some(r), _) => r.eval(path),
                (None, None, Some(s)) => s.eval(path),
                (None, None, None) => Vec::new(),
            };
            let full = match paths::is_whole(&name) {
                true => name,
                false => [prefix.as_slice(), b"/", &name].concat(),
            };
            match std::fs::read(paths::path(&full)) {
                Ok(text) => {
                    let chunk = [b"@", full.as_slice()].concat();
                    let keep = path.as_constant().is_some();
                    answer.list().text(&chunk).text(&text).boolean(true).boolean(keep);
                }
                Err(e) => {
                    let shown = String::from_utf8_lossy(&full);
                    let why = match state.vm.block {
                        Block::Http => {
                            state.run.outcome = Outcome::Exit(404);
                            format!(" {}", weir_upstream::error_text(&e))
                        }
                        Block::Stream => {
                            let why = weir_conf::messages::os_error(&e);
                            why.split_once(": ")
                                .map_or(String::new(), |(_, words)| format!(": {words}"))
                        }
                    };
                    return answer.fail(format!(
                        "failed to load external Lua file \"{shown}\": cannot open {shown}{why}"
                    ));
                }
            }
        }
    }
    code::LIST
}

/// The parts of the Lua side, in the order in which they are loaded.
const PIECES: [(&str, &str); 24] = [
    ("base", include_str!("../lua/base.lua")),
    ("coroutine", include_str!("../lua/coroutine.lua")),
    ("output", include_str!("../lua/output.lua")),
    ("var", include_str!("../lua/var.lua")),
    ("encode", include_str!("../lua/encode.lua")),
    ("header", include_str!("../lua/header.lua")),
    ("req", include_str!("../lua/req.lua")),
    ("re", include_str!("../lua/re.lua")),
    ("timer", include_str!("../lua/timer.lua")),
    ("dict", include_str!("../lua/dict.lua")),
    ("socket", include_str!("../lua/socket.lua")),
    ("capture", include_str!("../lua/capture.lua")),
    ("balancer", include_str!("../lua/balancer.lua")),
    ("modules", include_str!("../lua/modules.lua")),
    ("process", include_str!("../lua/process.lua")),
    ("ssl", include_str!("../lua/ssl.lua")),
    ("ssl_client", include_str!("../lua/ssl_client.lua")),
    ("proxy_ssl", include_str!("../lua/proxy_ssl.lua")),
    ("blocking", include_str!("../lua/blocking.lua")),
    ("errlog", include_str!("../lua/errlog.lua")),
    ("core", include_str!("../lua/core.lua")),
    ("openssl", include_str!("../lua/openssl.lua")),
    ("pipe", include_str!("../lua/pipe.lua")),
    ("worker_thread", include_str!("../lua/worker_thread.lua")),
];

/// Of those, what a state of `stream` has: without requests, and with what sessions have instead.
const OF_STREAM: [(&str, &str); 22] = [
    PIECES[0],
    ("stream", include_str!("../lua/stream.lua")),
    PIECES[1],
    PIECES[2],
    PIECES[3],
    PIECES[4],
    PIECES[7],
    PIECES[8],
    PIECES[9],
    PIECES[10],
    ("session", include_str!("../lua/session.lua")),
    PIECES[12],
    PIECES[13],
    PIECES[14],
    PIECES[15],
    PIECES[16],
    PIECES[17],
    PIECES[18],
    PIECES[19],
    PIECES[20],
    PIECES[21],
    PIECES[22],
];

/// The module of that name, as text.
const CJSON: &str = include_str!("../lua/cjson.lua");

fn piece(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let pieces = match state.vm.block {
        Block::Http => &PIECES[..],
        Block::Stream => &OF_STREAM[..],
    };
    if let Some((name, text)) = pieces.get(args.i as usize) {
        answer.list().text(name.as_bytes()).text(text.as_bytes());
        return code::LIST;
    }
    code::NIL
}

fn cancel(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    state.run.cancel(args.id);
    code::TRUE
}

fn outcome(state: &mut State<'_>, _: &Args<'_>, _: &mut Answer) -> i32 {
    // Code that is not there is like a page that is not, where there may be one.
    let is_missing = matches!(state.run.outcome, Outcome::Exit(404));
    if !is_missing || state.run.context & HANDLERS == 0 {
        state.run.outcome = Outcome::Failed;
    }
    code::TRUE
}

fn phase(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    answer.text(context::name(state.run.context).as_bytes())
}

/// What numbers a request until it is over or goes on elsewhere.
struct Numbered {
    id: u64,
    vm: Rc<Vm>,
}

/// The number is kept for longer than until the request goes on elsewhere.
struct Stashed(u64);

impl Drop for Numbered {
    fn drop(&mut self) {
        self.vm.forget(crate::run::entry::FREE, self.id as i64);
        if self.vm.gen.error_log.enabled(LogLevel::Debug) {
            self.vm.log(LogLevel::Debug, &format!("lua release ngx.ctx at ref {}", self.id));
        }
    }
}

/// Gives a request a number beforehand.
pub(super) fn number(r: &mut Request, id: u64, vm: &Rc<Vm>) {
    r.set_ctx(Numbered { id, vm: Rc::clone(vm) });
}

/// The number of a connection's own context, which is that of all code of its handshake; 0 if there is none in
/// this state.
fn of_handshake(conn: &Connection, vm: &Rc<Vm>) -> u64 {
    let Some(secure) = conn.secure.get() else { return 0 };
    let notes = secure.notes.borrow();
    let numbered = notes.as_ref().and_then(|n| n.downcast_ref::<Numbered>());
    numbered.filter(|n| Rc::ptr_eq(&n.vm, vm)).map_or(0, |n| n.id)
}

fn ctx(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    if let Some(at) = &state.run.moment {
        let Some(secure) = at.conn.secure.get() else { return code::NO_REQUEST };
        let id = match of_handshake(&at.conn, &state.run.vm) {
            0 => {
                let (id, vm) = (state.vm.next_context(), Rc::clone(&state.run.vm));
                secure.notes.replace(Some(Box::new(Numbered { id, vm })));
                id
            }
            id => id,
        };
        return answer.number(id as f64);
    }
    let fresh =
        |state: &State<'_>| Numbered { id: state.vm.next_context(), vm: Rc::clone(&state.run.vm) };
    let known = match (&state.r, &state.s) {
        (Some(r), _) => r.ctx_ref::<Numbered>(),
        (None, Some(s)) => s.ctx_ref::<Numbered>(),
        (None, None) if state.run.context == context::INIT => {
            return answer.raise("no request ctx found");
        }
        (None, None) => {
            if state.run.ctx == 0 {
                state.run.ctx = state.vm.next_context();
            }
            return answer.number(state.run.ctx as f64);
        }
    };
    if let Some(known) = known {
        return answer.number(known.id as f64);
    }
    if let Some(stashed) = state.r.as_ref().and_then(|r| r.ctx_ref::<Stashed>()) {
        return answer.number(stashed.0 as f64);
    }
    let numbered = fresh(state);
    let id = numbered.id;
    match (state.r.as_deref_mut(), state.s.as_deref_mut()) {
        (Some(r), _) => r.set_ctx(numbered),
        (None, Some(s)) => s.set_ctx(numbered),
        (None, None) => {}
    }
    answer.number(id as f64)
}

/// As nginx's functions say that there is no context yet, and that there can be none.
const NO_REF: f64 = -2.0;
const NO_REQUEST_CTX: f64 = -100.0;

/// The number of the context that there is, as code that calls by nginx's names is told it. A request's is there until
/// that ends, whatever becomes of it meanwhile.
fn ctx_ref(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    if let Some(r) = state.r.as_deref_mut() {
        if let Some(numbered) = r.take_ctx::<Numbered>() {
            r.set_ctx(Stashed(numbered.id));
            r.keep_state(numbered);
        }
    }
    let vm = &state.run.vm;
    let known = match (&state.run.moment, &state.r, &state.s) {
        (Some(at), ..) => Some(of_handshake(&at.conn, vm)).filter(|id| *id != 0),
        (None, Some(r), _) => r.ctx_ref::<Stashed>().map(|stashed| stashed.0),
        (None, None, Some(s)) => s.ctx_ref::<Numbered>().map(|numbered| numbered.id),
        (None, None, None) if state.run.context == context::INIT => {
            return answer.number(NO_REQUEST_CTX);
        }
        (None, None, None) => Some(state.run.ctx).filter(|id| *id != 0),
    };
    // What C's int cannot say is said to be none.
    let known = known.filter(|id| i32::try_from(*id).is_ok());
    answer.number(known.map_or(NO_REF, |id| id as f64))
}

/// What runs has the context of that number from now on; `0`, as nginx's functions say it.
fn ctx_put(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let id = u64::try_from(args.i).ok().filter(|id| *id > 0 && state.vm.is_context(*id));
    let Some(id) = id else { return answer.number(-1.0) };
    let vm = Rc::clone(&state.run.vm);
    if let Some(at) = &state.run.moment {
        let Some(secure) = at.conn.secure.get() else { return answer.number(NO_REQUEST_CTX) };
        if of_handshake(&at.conn, &vm) != id {
            secure.notes.replace(Some(Box::new(Numbered { id, vm })));
        }
        return answer.number(0.0);
    }
    match (state.r.as_deref_mut(), state.s.as_deref_mut()) {
        (Some(r), _) => {
            let is_it = r.ctx_ref::<Numbered>().is_some_and(|known| known.id == id)
                || r.ctx_ref::<Stashed>().is_some_and(|known| known.0 == id);
            if !is_it {
                r.take_ctx::<Stashed>();
                r.set_ctx(Numbered { id, vm });
            }
        }
        (None, Some(s)) if s.ctx_ref::<Numbered>().is_some_and(|known| known.id == id) => {}
        (None, Some(s)) => s.set_ctx(Numbered { id, vm }),
        (None, None) if state.run.context == context::INIT => {
            return answer.number(NO_REQUEST_CTX);
        }
        (None, None) if state.run.ctx == id => {}
        (None, None) => state.run.put_ctx(id),
    }
    answer.number(0.0)
}

/// The other workers are to take what comes by the first Unix socket of the configuration whose name begins so.
fn leave_to_others(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(worker) = state.vm.worker.upgrade() else { return answer.number(-1.0) };
    let gen = worker.generation();
    let found = gen.shared.listens.iter().map(|listen| &listen.addr).find(|addr| match addr {
        ListenAddr::Unix(path) => [b"unix:", paths::bytes(path)].concat().starts_with(args.a),
        ListenAddr::Ip(_) | ListenAddr::Udp(_) => false,
    });
    match found {
        Some(addr) => {
            worker.leave_to_others(addr);
            answer.number(0.0)
        }
        None => answer.number(-1.0),
    }
}

/// The number of the context that a fresh one rests on: its connection's handshake's; 0 if there is none.
fn ctx_base(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let conn = match (&state.run.moment, &state.r, &state.s) {
        (Some(at), ..) => Some(&at.conn),
        (None, Some(r), _) => Some(r.conn()),
        (None, None, Some(s)) => Some(s.conn()),
        (None, None, None) => None,
    };
    answer.number(conn.map_or(0, |conn| of_handshake(conn, &state.run.vm)) as f64)
}

fn on_abort(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    if state.r.is_none() && state.s.is_none() {
        return code::NO_REQUEST;
    }
    if !state.site().is_some_and(|site| *site.conf().check_client_abort) {
        return answer.fail("lua_check_client_abort is off");
    }
    if std::mem::replace(&mut state.run.has_abort, true) {
        return answer.fail("duplicate call");
    }
    code::TRUE
}

fn exit(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    let mut status = args.i;
    if let Some(r) = state.r.as_deref_mut() {
        let sent = i32::from(r.out.status);
        let is_done = super::output::has_begun(r);
        let is_handler = state.run.context & HANDLERS != 0;
        let ends_otherwise = status < 300 || matches!(status, 408 | 444 | 499);
        if is_handler && is_done && !ends_otherwise && args.x == 0.0 {
            if status != sent {
                let text = format!("attempt to set status {status} via ngx.exit after sending out the response status {sent}");
                r.log(LogLevel::Error, &text);
            }
            status = 200;
        }
    }
    if let Some(r) = state.r.as_deref_mut().filter(|_| matches!(status, 200..=299)) {
        if !super::output::has_begun(r) && state.run.context & HANDLERS != 0 && r.out.status == 0 {
            r.out.status = status as u16;
        }
    }
    if state.run.moment.is_some() || state.run.toward.is_some() || state.s.is_some() {
        write(state, LogLevel::Debug, format!("lua exit with code {status}").as_bytes());
    }
    state.run.outcome = Outcome::Exit(status);
    if state.run.context & WAITING != 0 {
        code::LEAVES
    } else {
        code::NIL
    }
}

fn sent_already(r: &Request) -> bool {
    super::output::has_begun(r)
}

fn exec(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    if sent_already(r) {
        return answer.raise("attempt to call ngx.exec after sending out response headers");
    }
    if args.a.first() == Some(&b'@') {
        if !args.b.is_empty() {
            let (query, name) = (String::from_utf8_lossy(args.b), String::from_utf8_lossy(args.a));
            let text = format!("query strings {query} ignored when exec'ing named location {name}");
            r.log(LogLevel::Warn, &text);
        }
        state.run.outcome = Outcome::Exec(args.a.to_vec(), Vec::new());
        return code::TRUE;
    }
    let mut path = Vec::new();
    let Ok(own) = weir_wire::http1::uri::unsafe_uri(args.a, &mut path) else {
        return answer.raise(b"unsafe uri");
    };
    let mut query = own.unwrap_or_default().to_vec();
    if args.i == 1 {
        if own.is_some() && !query.is_empty() && !args.b.is_empty() {
            query.push(b'&');
        }
        query.extend_from_slice(args.b);
    }
    state.run.outcome = Outcome::Exec(path, query);
    code::TRUE
}

fn redirect(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    if sent_already(r) {
        return answer.raise("attempt to call ngx.redirect after sending out the headers");
    }
    if let Some(bad) = args.a.iter().find(|b| **b < b' ' || **b == 0x7f) {
        let mut shown = Vec::new();
        weir_base::escape::escape_log(&mut shown, args.a);
        let shown = String::from_utf8_lossy(&shown);
        return answer.raise(format!("unsafe byte \"0x{bad:02x}\" in redirect uri \"{shown}\""));
    }
    // It is sent as it stands, also where it is a path.
    r.out.set(b"Location", args.a);
    r.flags.own_location = false;
    state.run.outcome = Outcome::Redirect(args.i as u16);
    code::TRUE
}

/// Where OpenResty's own libraries are, if they are: beside the prefix, as it lays them out, or where it is installed.
fn lualibs(prefix: &Path) -> Vec<PathBuf> {
    let roots = [prefix.parent(), Some(Path::new("/usr/local/openresty"))];
    let mut all = Vec::new();
    for root in roots.into_iter().flatten() {
        for name in ["site/lualib", "lualib"] {
            let lualib = root.join(name);
            if !all.contains(&lualib) && lualib.is_dir() {
                all.push(lualib);
            }
        }
    }
    all
}

fn package_paths(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let main = state.vm.main();
    let path = main.and_then(|m| m.package_path.as_deref()).unwrap_or(b";;");
    let cpath = main.and_then(|m| m.package_cpath.as_deref()).unwrap_or(b";;");
    let prefix = main.map_or(&b""[..], |m| &m.prefix);
    let worker = state.vm.worker.upgrade();
    let mut list = answer.list();
    list.text(path).text(cpath).text(prefix);
    match worker {
        Some(agent) if agent.is_agent() => list.boolean(false),
        worker => list.number(worker.map_or(0, |w| w.id) as f64),
    };
    for lualib in lualibs(&paths::path(prefix)) {
        list.text(paths::bytes(&lualib));
    }
    code::LIST
}

/// LuaJIT's modules that are text.
fn config(_: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    match weir_luajit::MODULES.get(args.i as usize) {
        Some((name, text)) => {
            answer.list().text(name.as_bytes()).text(text.as_bytes());
            code::LIST
        }
        None => code::NIL,
    }
}
