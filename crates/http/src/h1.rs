//! HTTP/1: heads in, requests run, connections kept, lingered over or closed.

pub(crate) mod body;
pub(crate) mod output;
mod reading;
mod ready;
mod serving;

pub(crate) use serving::Serving;

use crate::conf::Lingering;
use crate::flow::{Flow, WaitFn};
use crate::linger::linger;
use crate::phases::{self, Stop, Way};
use crate::request::Request;
use crate::request_log::{log, log_request, log_rest};
use crate::special;
use crate::{pool, server, status_zone, tunnel};
use reading::Reading;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use weir_core::counters::Counters;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_core::{ConnError, Connection};
use weir_runtime::clock;
use weir_wire::http1::request::{preface, ParseError, Preface, Version};

/// Bytes asked of the socket for a head.
const HEAD_ROOM_BYTES: usize = 4096;

/// Why there is no (further) request on a connection.
enum NoRequest {
    /// Closed, timed out, or idle for too long: nothing is to be sent.
    Quiet,
    /// The head is refused, and the log knows why.
    Refused(ParseError),
    /// The head did not come in time.
    TimedOut,
}

/// What follows a request.
pub(crate) enum After {
    Keep(Vec<u8>),
    Close,
    /// These bytes begin an HTTP/2 connection.
    Http2(Vec<u8>),
    /// The connection is a tunnel, and the request is over with it.
    Tunnel(Box<Request>),
}

/// Over TLS nginx takes a connection that is reset for one that is closed.
fn as_ended(conn: &Connection, read: Result<usize, ConnError>) -> Result<usize, ConnError> {
    match read {
        Err(ConnError::Io(e)) if conn.stream.is_tls() && e.raw_os_error().is_some() => Ok(0),
        other => other,
    }
}

/// Tells of a client that ends or lets run out a connection on which it asks nothing (more).
#[cold]
fn log_idle_end(conn: &Connection, read: &Result<usize, ConnError>) {
    let log = &server::default_location(conn).error_log;
    if !log.enabled(LogLevel::Info) {
        return;
    }
    match (conn.requests.get() > 0, read) {
        (true, Ok(_)) => {
            let text = [b"client ", conn.client_text(), b" closed keepalive connection"].concat();
            log.log(LogLevel::Info, Some(conn.serial), &text);
        }
        (true, Err(ConnError::Timeout)) => {}
        (true, Err(ConnError::Io(_))) => {
            let text = format!("{} while keepalive", why_ended(read));
            conn.log(LogLevel::Info, text.as_bytes());
        }
        (false, Ok(_)) => {
            conn.log(LogLevel::Info, b"client closed connection while waiting for request");
        }
        (false, Err(_)) => {
            let text = format!("{} while waiting for request", why_ended(read));
            conn.log(LogLevel::Info, text.as_bytes());
        }
    }
}

/// Where a request stands that has to wait, and for no handler of a phase.
enum Stage {
    /// Its first bytes may be HTTP/2's.
    Start,
    Head(Box<Reading>),
    /// The head is refused.
    Refused(ParseError),
    /// It has been answered, or was broken off (`false`); and whether what is queued was offered to the
    /// socket since.
    Answered(bool, bool),
    /// It is being logged: what a handler of the last phase waits for, and the number of the next.
    Log(After, WaitFn, usize),
}

/// What has come of a request that had to wait.
pub(crate) enum Came {
    /// It is over.
    To(After),
    /// It has been read and goes through the phases.
    Phases(Box<Request>, Way, Stop),
}

/// Reads and runs a request, whose first bytes are there, as far as that goes at once.
#[inline(always)]
fn begin(conn: &Rc<Connection>, r: &mut Request) -> Result<(Way, Stop), Stage> {
    if conn.may_speak_h2.get() {
        return Err(Stage::Start);
    }
    let mut reading = Reading::begin(conn, r);
    match reading.read(conn, r) {
        Some(Ok(())) => Ok(run(conn, r)),
        Some(Err(e)) => Err(Stage::Refused(e)),
        None => Err(Stage::Head(Box::new(reading))),
    }
}

#[inline(always)]
fn run(conn: &Connection, r: &mut Request) -> (Way, Stop) {
    Counters::add(&conn.worker.counters.writing, 1);
    status_zone::begins(r);
    Way::begin(r)
}

/// Ends a request that has been answered: sends what is queued, decides what follows, and logs. What of that
/// cannot be done at once is to be waited for.
#[inline(always)]
fn end(conn: &Rc<Connection>, r: &mut Request, finished: bool) -> Result<After, Stage> {
    let after =
        end_at_once(conn, r, finished).map_err(|offered| Stage::Answered(finished, offered))?;
    if let Some((wait, next)) = log(r) {
        return Err(Stage::Log(after, wait, next));
    }
    logged(conn);
    Ok(after)
}

/// A request is over that was run.
#[inline]
fn over(conn: &Connection, r: Box<Request>) {
    Counters::add(&conn.worker.counters.writing, -1);
    pool::give(r);
}

/// Waits with a request for what its handler waits for. One whose connection is cut breaks off.
async fn wait_for_handler(mut r: Box<Request>, f: WaitFn) -> (Box<Request>, Flow) {
    let conn = Rc::clone(r.conn());
    let mut work = f(&mut r);
    // Who cuts it wakes the task.
    let flow = poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Pending if conn.is_cut.get() => Poll::Ready(Flow::Close),
        done => done,
    })
    .await;
    drop(work);
    (r, flow)
}

/// Waits where a request stands, and goes on from there.
async fn wait(conn: Rc<Connection>, mut r: Box<Request>, mut stage: Stage) -> Came {
    if let Stage::Start = stage {
        if speaks_h2(&conn, &mut r.buf).await {
            let read = std::mem::take(&mut r.buf);
            pool::give(r);
            return Came::To(After::Http2(read));
        }
        stage = match begin(&conn, &mut r) {
            Ok((way, stop)) => return Came::Phases(r, way, stop),
            Err(stage) => stage,
        };
    }
    if let Stage::Head(reading) = stage {
        stage = match reading.go_on(&conn, &mut r).await {
            Ok(()) => {
                let (way, stop) = run(&conn, &mut r);
                return Came::Phases(r, way, stop);
            }
            Err(NoRequest::Refused(e)) => Stage::Refused(e),
            Err(why) => {
                if let NoRequest::TimedOut = why {
                    r.err_status = 408;
                    reset_if_wanted(&r);
                    log_request(&mut r).await;
                }
                pool::give(r);
                return Came::To(After::Close);
            }
        };
    }
    let after = match stage {
        Stage::Refused(e) => {
            let after = refuse(&conn, &mut r, e).await;
            pool::give(r);
            return Came::To(after);
        }
        Stage::Answered(..) if r.flags.upgraded && tunnel::has_begun(&mut r) => {
            return Came::To(After::Tunnel(r));
        }
        Stage::Answered(finished, offered) => wait_for_end(&conn, &mut r, finished, offered).await,
        Stage::Log(after, wait, next) => {
            wait(&mut r).await;
            log_rest(&mut r, next).await;
            logged(&conn);
            after
        }
        Stage::Start | Stage::Head(_) => After::Close,
    };
    over(&conn, r);
    Came::To(after)
}

/// Whether a connection begins with HTTP/2's preface; reads on until that can be told.
async fn speaks_h2(conn: &Connection, buf: &mut Vec<u8>) -> bool {
    conn.may_speak_h2.set(false);
    let deadline = conn.start_ms + *server::default(conn).core.client_header_timeout;
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

/// nginx's words for a client that does not say on.
fn why_ended(read: &Result<usize, ConnError>) -> String {
    match read {
        Err(ConnError::Timeout) => "client timed out (110: Connection timed out)".to_string(),
        Err(ConnError::Io(e)) => {
            format!("recv() failed ({})", weir_conf::messages::os_error(e))
        }
        Ok(_) => "client prematurely closed connection".to_string(),
    }
}

/// A request whose tunnel is over.
async fn after_tunnel(conn: Rc<Connection>, mut r: Box<Request>) -> Came {
    // Nothing follows it on this connection.
    let _ = wait_for_end(&conn, &mut r, true, false).await;
    over(&conn, r);
    Came::To(After::Close)
}

/// Sends what is queued, decides what becomes of the connection, and logs: a request lasts as long as
/// its client is waited for.
async fn wait_for_end(
    conn: &Rc<Connection>,
    r: &mut Box<Request>,
    finished: bool,
    offered: bool,
) -> After {
    if conn.is_cut.get() {
        return cut(conn, r).await;
    }
    match finished {
        true => tell_of_end(conn, r),
        false => r.drop_postponed(),
    }
    let flushed = !r.flags.unsent && !offered && r.flush_at_once();
    let sent = !r.flags.unsent && (flushed || r.drain(0).await.is_ok()) && !conn.broken.get();
    // A tunnel has told how it ended.
    if !sent && r.err_status == 0 && !r.flags.upgraded {
        r.log(LogLevel::Info, why_unsent(conn));
    }
    r.flags.complete |= finished && sent;
    if r.loc().core.post_action.is_some() {
        Box::pin(phases::post_action(r)).await;
    }
    let after = match finished && sent && !conn.broken.get() {
        true => follow(conn, r).await,
        false => {
            if conn.timed_out.get() || r.err_status == 444 {
                reset_if_wanted(r);
            }
            After::Close
        }
    };
    log_request(r).await;
    if sent {
        logged(conn);
    }
    after
}

/// Nobody is told anything any more, and nothing is done behind it.
#[cold]
async fn cut(conn: &Connection, r: &mut Box<Request>) -> After {
    conn.broken.set(true);
    log_request(r).await;
    After::Close
}

/// The same up to the log, where nothing has to be waited for; otherwise [`wait_for_end`] begins anew, and is
/// told whether what is queued was offered to the socket.
#[inline]
fn end_at_once(conn: &Rc<Connection>, r: &mut Request, finished: bool) -> Result<After, bool> {
    let is_plain = finished && r.body.done && !r.flags.unsent && !r.flags.upgraded;
    if !is_plain || r.loc().core.post_action.is_some() {
        return Err(false);
    }
    tell_of_end(conn, r);
    if !r.flush_at_once() || conn.broken.get() {
        return Err(true);
    }
    r.flags.complete = true;
    follow_at_once(conn, r).ok_or(true)
}

/// Nothing follows what is queued on a connection that is not kept.
fn tell_of_end(conn: &Connection, r: &mut Request) {
    if !r.flags.keepalive && !r.flags.upgraded && conn.out.borrow().queued() > 0 && body_is_over(r)
    {
        conn.will_end();
    }
}

/// After the log: who sees the end may look for the line. The kernel waits 200 ms at most.
fn logged(conn: &Connection) {
    if conn.will_end_soon() {
        conn.end_sending();
    }
}

/// Nothing more of the body is to come. One that nobody wanted may be all here.
fn body_is_over(r: &mut Request) -> bool {
    if !r.body.done && r.body.drop_arrived().is_err() {
        return false;
    }
    r.body.done
}

/// What follows a request that is answered.
async fn follow(conn: &Rc<Connection>, r: &mut Box<Request>) -> After {
    if !r.body.done {
        if let Some(after) = Box::pin(end_body(conn, r)).await {
            return after;
        }
    }
    match follow_at_once(conn, r) {
        Some(after) => after,
        None => {
            Box::pin(linger(conn, Rc::clone(r.loc()))).await;
            After::Close
        }
    }
}

/// The same behind a body that is over; `None`: the connection lingers.
#[inline]
fn follow_at_once(conn: &Connection, r: &Request) -> Option<After> {
    if !r.flags.keepalive || conn.ends_unannounced() {
        return (!lingers(r)).then_some(After::Close);
    }
    let core = &r.loc().core;
    if *core.tcp_nodelay {
        conn.set_nodelay();
    }
    let (now, most) = (clock::mono_ms(), *core.keepalive_timeout);
    conn.keepalive_deadline.set(now + most);
    let least = (*core.keepalive_min_timeout).min(most);
    conn.keepalive_least.set(if least > 0 { now + least } else { 0 });
    Some(After::Keep(r.body.leftover().to_vec()))
}

/// Waits for the end of a body that nobody reads; `None` when it has come. One that is thrown away is
/// read whatever `lingering_close` says, for that is about what comes behind it.
async fn end_body(conn: &Rc<Connection>, r: &mut Box<Request>) -> Option<After> {
    if r.body.drop_arrived().is_err() {
        return Some(After::Close);
    }
    if r.body.done {
        return None;
    }
    let keeps = r.flags.keepalive && !conn.ends_unannounced();
    if !keeps && !r.flags.discard_body {
        return None;
    }
    if crate::body::drop_rest(r).await {
        return None;
    }
    if r.flags.discard_body && conn.timed_out.get() {
        reset_if_wanted(r);
    }
    Some(After::Close)
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

/// Whether to wait for what the client still sends, so that it can read the answer.
fn lingers(r: &Request) -> bool {
    match *r.loc().core.lingering_close {
        Lingering::Off => false,
        Lingering::Always => true,
        Lingering::On => !r.body.done || !r.body.leftover().is_empty() || r.flags.lingering,
    }
}

/// A head that cannot be read gets nginx's answer, and the connection is closed.
async fn refuse(conn: &Rc<Connection>, r: &mut Box<Request>, e: ParseError) -> After {
    r.flags.keepalive = false;
    r.flags.lingering = e.wants_lingering_close();
    let bare = matches!(e, ParseError::InvalidMethodInHttp09);
    if r.head.version < Version::HTTP_10 && !bare {
        r.head.version = Version::HTTP_10;
    }
    r.body.done = true;
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
    wait_for_end(conn, r, finished, false).await
}
