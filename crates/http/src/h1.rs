//! HTTP/1 connections: heads in, requests run, connections kept, lingered over or closed.

use crate::body;
use crate::conf::{CoreSrv, Lingering};
use crate::conn::{ClientAddr, ConnError, Connection};
use crate::generation::{Server, WorkerGen};
use crate::h2;
use crate::logger::LogLevel;
use crate::module::{Flow, Phase};
use crate::phases;
use crate::request::Request;
use crate::server;
use crate::special;
use crate::tls;
use crate::worker::Counters;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use weir_runtime::clock;
use weir_wire::http1::framing;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::{
    preface, Connection as Wish, Method, ParseError, Parser, Preface, Progress, Version,
};
use weir_wire::http1::uri;
use weir_wire::proxy_protocol;

/// Bytes asked of the socket for a head.
const HEAD_ROOM_BYTES: usize = 4096;
/// Read at once while lingering.
const LINGER_ROOM_BYTES: usize = 4096;

/// Why there is no (further) request on a connection.
enum NoRequest {
    /// Closed, timed out, or idle for too long: nothing is to be sent.
    Quiet,
    /// The head is refused.
    Refused(ParseError),
    /// The head did not come in time.
    TimedOut,
}

/// What follows a request.
enum After {
    Keep(Vec<u8>),
    Linger,
    Close,
    /// These bytes begin an HTTP/2 connection.
    Http2(Vec<u8>),
}

/// Serves one connection to its end.
pub async fn serve(conn: Rc<Connection>) {
    if conn.requests.get() > 0 {
        // It comes from another process, between two requests.
        return requests(&conn, Vec::new()).await;
    }
    let mut leftover = Vec::new();
    if expects_proxy_header(&conn) && !read_proxy_header(&conn, &mut leftover).await {
        return;
    }
    let Some(leftover) = tls::accept(&conn, leftover).await else { return };
    if conn.stream.protocol().as_deref() == Some(b"h2") {
        return h2::serve(conn, leftover).await;
    }
    expect_preface(&conn);
    requests(&conn, leftover).await;
}

/// One request after another.
async fn requests(conn: &Rc<Connection>, mut leftover: Vec<u8>) {
    let mut idle_until = conn.keepalive_deadline.get();
    loop {
        let after = request(conn, leftover, idle_until).await;
        match after {
            After::Keep(rest) => leftover = rest,
            After::Linger => return linger(conn).await,
            After::Close => return,
            After::Http2(read) => return h2::serve(Rc::clone(conn), read).await,
        }
        idle_until = conn.keepalive_deadline.get();
    }
}

/// Whether the address it came to is told of clients by the PROXY protocol.
fn expects_proxy_header(conn: &Connection) -> bool {
    conn.generation().shared.listens[conn.listen.get()].addrs[0].proxy_protocol
}

/// Finds out whether the first bytes may be HTTP/2's preface.
fn expect_preface(conn: &Connection) {
    let gen = conn.generation();
    let listen = gen.shared.listens[conn.listen.get()].choose(|| conn.local_addr());
    conn.may_speak_h2.set(listen.preface && !listen.ssl);
}

/// One request: wait, read, run, answer, log.
async fn request(conn: &Rc<Connection>, leftover: Vec<u8>, idle_until: u64) -> After {
    let worker = &conn.worker;
    let mut r = None;
    if leftover.is_empty() {
        // A client mostly has sent its request by the time its connection is accepted.
        let early = conn.requests.get() == 0 && worker.try_early() && {
            let r = r.get_or_insert_with(|| worker.take_request());
            let hit = conn.try_read(&mut r.buf, HEAD_ROOM_BYTES);
            worker.early_result(hit);
            hit
        };
        if !early {
            r.take().into_iter().for_each(|r| worker.give_request(r));
            if !wait_for_request(conn, idle_until, &mut r).await {
                r.take().into_iter().for_each(|r| worker.give_request(r));
                return After::Close;
            }
        }
    }
    let mut r = r.unwrap_or_else(|| worker.take_request());
    if !leftover.is_empty() {
        r.buf = leftover;
        r.pipelined = conn.requests.get() > 0;
    }
    if conn.may_speak_h2.get() && speaks_h2(conn, &mut r.buf).await {
        let read = std::mem::take(&mut r.buf);
        worker.give_request(r);
        return After::Http2(read);
    }
    Counters::add(&worker.counters.reading, 1);
    let read = read_head(conn, &mut r).await;
    Counters::add(&worker.counters.reading, -1);
    let after = match read {
        Ok(()) => {
            Counters::add(&worker.counters.writing, 1);
            let after = answer(conn, &mut r).await;
            Counters::add(&worker.counters.writing, -1);
            after
        }
        Err(NoRequest::Quiet) => After::Close,
        Err(NoRequest::TimedOut) => {
            r.log(LogLevel::Info, "client timed out (110: Connection timed out)");
            r.err_status = 408;
            reset_if_wanted(&r);
            log_request(&mut r).await;
            After::Close
        }
        Err(NoRequest::Refused(e)) => refuse(&mut r, e).await,
    };
    worker.give_request(r);
    after
}

/// Whether a connection begins with HTTP/2's preface; reads on until that can be told.
async fn speaks_h2(conn: &Connection, buf: &mut Vec<u8>) -> bool {
    conn.may_speak_h2.set(false);
    let deadline = conn.start_ms + *conn.default_server().core.client_header_timeout;
    loop {
        match preface(buf) {
            Preface::Http2 => return true,
            Preface::Http1 => return false,
            Preface::NeedMore => {}
        }
        match conn.read(buf, HEAD_ROOM_BYTES, deadline).await {
            Ok(n) if n > 0 => {}
            _ => return false,
        }
    }
}

/// Waits for the beginning of a request and reads it; `false` when there will be none.
async fn wait_for_request(
    conn: &Rc<Connection>,
    idle_until: u64,
    slot: &mut Option<Box<Request>>,
) -> bool {
    let first = conn.requests.get() == 0;
    let mut deadline = match first {
        true => {
            let server = conn.default_server();
            conn.start_ms + *server.core.client_header_timeout
        }
        false => idle_until,
    };
    let mut idle = false;
    let mut fresh = None;
    let ready = poll_fn(|cx| {
        if conn.carried_away.get() {
            return Poll::Ready(false);
        }
        if let Poll::Ready(read) = conn.poll_read_request(cx, HEAD_ROOM_BYTES, slot) {
            return Poll::Ready(read);
        }
        if !idle {
            idle = true;
            conn.give_queue();
            fresh = first.then(|| conn.worker.fresh.wait(deadline, cx.waker()));
            conn.idle.set(!first);
            conn.waiting.set(true);
            Counters::add(&conn.worker.counters.waiting, 1);
            // A first request is waited for: its connection was accepted to be answered.
            if conn.worker.has_successor.get() && !first {
                // It may go to the other process, or else be answered once more.
                conn.worker.one_ended.notify_one();
            } else if !first && (conn.worker.closing.get() || !conn.keep_up()) {
                let least = conn.keepalive_least.get();
                if least <= clock::mono_ms() {
                    return Poll::Ready(false);
                }
                deadline = deadline.min(least);
            }
        }
        if first {
            return match clock::mono_ms() < deadline {
                true => Poll::Pending,
                false => Poll::Ready(false),
            };
        }
        conn.poll_timeout(cx, deadline).map(|()| false)
    })
    .await;
    drop(fresh);
    conn.idle.set(false);
    conn.waiting.set(false);
    if idle {
        Counters::add(&conn.worker.counters.waiting, -1);
    }
    ready
}

async fn read_head(conn: &Rc<Connection>, r: &mut Box<Request>) -> Result<(), NoRequest> {
    let gen = conn.generation();
    let server = conn.default_server_of(&gen);
    let mut parser = Parser::new();
    let limits = server.core.limits;
    let mut deadline = 0;
    let mut begun = false;
    loop {
        if !r.buf.is_empty() {
            if !begun {
                begun = true;
                begin(conn, r, &gen, &server);
            }
            let Request { buf, head, .. } = &mut **r;
            let parsed = parser.parse(buf, &limits, head);
            match parsed {
                Ok(Progress::Complete) => return take_head(conn, r, &server.core),
                Ok(Progress::NeedMore) if !parser.has_begun() => {
                    // Blank lines are not kept, and nobody else waits for a client that sends many.
                    buf.clear();
                    parser.reset();
                    if deadline != 0 && clock::mono_ms() >= deadline {
                        return Err(NoRequest::Quiet);
                    }
                    tokio::task::yield_now().await;
                }
                Ok(Progress::NeedMore) => {}
                Err(e) => {
                    // As far as it was read: what refuses a HEAD has no body either.
                    r.method = r.head.method;
                    return Err(NoRequest::Refused(e));
                }
            }
        }
        if deadline == 0 {
            deadline = clock::mono_ms() + *server.core.client_header_timeout;
        }
        let got = conn.read(&mut r.buf, HEAD_ROOM_BYTES, deadline).await;
        match got {
            Ok(0) | Err(ConnError::Io(_)) => {
                if begun && parser.has_begun() {
                    let text =
                        "client prematurely closed connection while reading client request headers";
                    r.log(LogLevel::Info, text);
                    r.err_status = 400;
                    log_request(r).await;
                }
                return Err(NoRequest::Quiet);
            }
            Ok(_) => {}
            Err(ConnError::Timeout) if begun && parser.has_begun() => {
                return Err(NoRequest::TimedOut)
            }
            Err(ConnError::Timeout) => return Err(NoRequest::Quiet),
        }
    }
}

pub(crate) fn begin(
    conn: &Rc<Connection>,
    r: &mut Request,
    gen: &Rc<WorkerGen>,
    server: &Rc<Server>,
) {
    let number = conn.requests.get() + 1;
    conn.requests.set(number);
    Counters::add(&conn.worker.counters.requests, 1);
    conn.take_queue();
    r.begin(Rc::clone(conn), Rc::clone(gen), Rc::clone(server), clock::mono_ms());
    r.number = number;
}

/// What follows from a complete head: host, server, URI, body, keep-alive.
fn take_head(conn: &Rc<Connection>, r: &mut Box<Request>, core: &CoreSrv) -> Result<(), NoRequest> {
    let refuse = NoRequest::Refused;
    r.received = r.head.len() as u64;
    if !r.head.ignored.is_empty() {
        log_ignored(r);
    }
    if r.buf.len() > r.head.head_len {
        let Request { buf, head, body, .. } = &mut **r;
        body.pending.extend_from_slice(&buf[head.head_len..]);
        r.buf.truncate(r.head.head_len);
    }
    r.method = r.head.method;
    let host = framing::host(&r.head, &r.buf).map_err(refuse)?;
    if let Some(h) = host {
        let Request { buf, host, .. } = &mut **r;
        host.extend_from_slice(h.name.of(buf));
        if h.has_upper_case {
            host.make_ascii_lowercase();
        }
    }
    server::select(conn, r);
    if r.head.complex_uri {
        let path = r.head.path.of(&r.buf).to_vec();
        let mut out = std::mem::take(&mut r.uri);
        let bad = uri::normalize(&path, *core.merge_slashes, &mut out).is_err();
        r.uri = out;
        if bad {
            r.uri.clear();
            return Err(refuse(ParseError::InvalidRequest));
        }
    } else {
        let Request { buf, head, uri, .. } = &mut **r;
        uri.extend_from_slice(head.path.of(buf));
    }
    if let Some(args) = r.head.args {
        let Request { buf, args: out, .. } = &mut **r;
        out.extend_from_slice(args.of(buf));
    }
    r.valid_unparsed_uri = !r.head.empty_path_in_uri;
    let body = framing::framing(&r.head, &r.buf, false).map_err(refuse)?;
    r.body.begin(body);
    r.keepalive = wants_keepalive(conn, r);
    let expects = r.head.version >= Version::HTTP_11
        && r.header(HeaderId::Expect).is_some_and(|v| v.eq_ignore_ascii_case(b"100-continue"));
    r.body.expect_continue = expects;
    Ok(())
}

#[cold]
fn log_ignored(r: &Request) {
    for line in &r.head.ignored {
        let text = [b"client sent invalid header line: \"", r.bytes(*line), b"\""].concat();
        r.log_bytes(LogLevel::Info, &text);
    }
}

fn wants_keepalive(conn: &Connection, r: &Request) -> bool {
    if conn.ends_with_worker() {
        return false;
    }
    match r.head.connection {
        Wish::Close => false,
        Wish::KeepAlive => true,
        Wish::Unsaid => r.head.version > Version::HTTP_10,
    }
}

/// `keepalive_disable`: old MSIE after a POST, and old Safari.
pub(crate) fn disabled_for_browser(r: &Request) -> bool {
    let disable = *r.loc().core.keepalive_disable;
    if disable == 0 {
        return false;
    }
    let Some(agent) = r.header(HeaderId::UserAgent) else { return false };
    let has = |needle: &[u8]| memchr::memmem::find(agent, needle).is_some();
    let msie6 = disable & 1 != 0
        && r.method == Method::Post
        && (has(b"MSIE 6.") || has(b"MSIE 5.") || has(b"MSIE 4."))
        && !has(b"Opera");
    let safari = disable & 2 != 0 && has(b"Mac OS X") && has(b"Safari/") && !has(b"Chrome/");
    msie6 || safari
}

async fn answer(conn: &Rc<Connection>, r: &mut Box<Request>) -> After {
    let finished = phases::run(r).await;
    end(conn, r, finished).await
}

/// Sends what is queued, logs, and decides what becomes of the connection.
async fn end(conn: &Rc<Connection>, r: &mut Box<Request>, finished: bool) -> After {
    let last = finished && !r.keepalive && !r.upgraded && conn.out.borrow().queued() > 0;
    if last {
        conn.will_end();
    }
    let sent = !r.unsent && r.drain(0).await.is_ok() && !conn.broken.get();
    if !sent && r.err_status == 0 {
        r.log(LogLevel::Info, why_unsent(conn));
    }
    r.complete |= finished && sent;
    if r.loc().core.post_action.is_some() {
        Box::pin(phases::post_action(r)).await;
    }
    log_request(r).await;
    if last && sent {
        // After the log: who sees the end may look for the line. The kernel waits 200 ms at most.
        conn.end_sending();
    }
    if !finished || !sent || conn.broken.get() {
        if conn.timed_out.get() || r.err_status == 444 {
            reset_if_wanted(r);
        }
        return After::Close;
    }
    if !r.keepalive || conn.ends_with_worker() {
        return close_kind(r);
    }
    if !r.body.done {
        if r.body.awaits_continue() {
            // The client still waits for "100 Continue" and may or may not send its body now.
            return After::Linger;
        }
        if !body::drop_rest(r).await {
            return After::Close;
        }
    }
    let loc = Rc::clone(r.loc());
    if *loc.core.tcp_nodelay {
        conn.set_nodelay();
    }
    let (now, most) = (clock::mono_ms(), *loc.core.keepalive_timeout);
    conn.keepalive_deadline.set(now + most);
    let least = (*loc.core.keepalive_min_timeout).min(most);
    conn.keepalive_least.set(if least > 0 { now + least } else { 0 });
    let rest = r.body.leftover();
    match rest.is_empty() {
        true => After::Keep(Vec::new()),
        false => After::Keep(rest.to_vec()),
    }
}

/// `reset_timedout_connection`: what is still queued in the kernel is thrown away.
fn reset_if_wanted(r: &Request) {
    if *r.loc().core.reset_timedout_connection {
        r.conn().stream.reset_on_close();
    }
}

fn why_unsent(conn: &Connection) -> &'static str {
    match conn.timed_out.get() {
        true => "client timed out (110: Connection timed out) while sending response to client",
        false => "client closed connection while sending to client",
    }
}

fn close_kind(r: &mut Request) -> After {
    // A body that nobody wanted may be all here.
    if !r.body.done && r.body.drop_arrived().is_err() {
        return After::Close;
    }
    let unread = !r.body.done || !r.body.leftover().is_empty();
    match *r.loc().core.lingering_close {
        Lingering::Off => After::Close,
        Lingering::Always => After::Linger,
        Lingering::On if unread || r.lingering => After::Linger,
        Lingering::On => After::Close,
    }
}

pub(crate) async fn log_request(r: &mut Request) {
    let loc = Rc::clone(r.loc());
    for handler in &loc.phases[Phase::Log as usize] {
        if let Flow::Wait(f) = handler(r) {
            f(r).await;
        }
    }
}

/// A head that cannot be read gets nginx's answer, and the connection is closed.
async fn refuse(r: &mut Box<Request>, e: ParseError) -> After {
    let mut text = Vec::new();
    e.write_log(&r.head, &r.buf, &mut text);
    if r.head.protocol.is_empty() && r.uri.is_empty() {
        text.extend_from_slice(b" while reading client request line");
    } else {
        text.extend_from_slice(b" while reading client request headers");
    }
    r.log_bytes(LogLevel::Info, &text);
    r.keepalive = false;
    r.lingering = e.wants_lingering_close();
    let bare = matches!(e, ParseError::InvalidMethodInHttp09);
    if r.head.version < Version::HTTP_10 && !bare {
        r.head.version = Version::HTTP_10;
    }
    r.body.done = true;
    let conn = Rc::clone(r.conn());
    let mut flow = special::respond(r, e.status());
    let finished = match flow {
        Flow::Redirect | Flow::Named => phases::run_redirected(r, flow).await,
        Flow::Status(s) => {
            flow = special::respond(r, s);
            matches!(flow, Flow::Ok)
        }
        Flow::Ok => true,
        _ => false,
    };
    match end(&conn, r, finished).await {
        After::Close if r.lingering && finished => After::Linger,
        after => after,
    }
}

/// Half-closes and reads what the client still sends, so that it can read the answer.
pub(crate) async fn linger(conn: &Connection) {
    let core = &conn.default_location().core;
    conn.stream.shutdown_write();
    let end = clock::mono_ms() + *core.lingering_time;
    let mut buf = Vec::new();
    loop {
        let now = clock::mono_ms();
        if now >= end {
            return;
        }
        let deadline = (now + *core.lingering_timeout).min(end);
        buf.clear();
        match conn.read(&mut buf, LINGER_ROOM_BYTES, deadline).await {
            Ok(n) if n > 0 => continue,
            _ => return,
        }
    }
}

/// The PROXY protocol header in front of the first request.
async fn read_proxy_header(conn: &Connection, buf: &mut Vec<u8>) -> bool {
    let deadline = clock::mono_ms() + *conn.default_server().core.client_header_timeout;
    loop {
        match conn.read(buf, HEAD_ROOM_BYTES, deadline).await {
            Ok(n) if n > 0 => {}
            _ => return false,
        }
        match proxy_protocol::parse(buf) {
            Ok(proxy_protocol::Parsed::NeedMore) => continue,
            Ok(proxy_protocol::Parsed::Header { len, client }) => {
                buf.drain(..len);
                *conn.proxied.borrow_mut() = client;
                return true;
            }
            Err(_) => {
                let shown = proxy_protocol::shown(buf);
                let text =
                    [b"broken header: \"", shown, b"\" while reading PROXY protocol"].concat();
                conn.log(LogLevel::Error, &text);
                return false;
            }
        }
    }
}

impl Connection {
    /// Whether the client's address is known to be an IP one.
    pub fn is_ip(&self) -> bool {
        matches!(self.client, ClientAddr::Ip(_))
    }
}
