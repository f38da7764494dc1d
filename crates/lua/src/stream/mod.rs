//! Lua in sessions of `stream`: before the content, as the content, and when the session is over.
//!
//! Difference from OpenResty: bytes that code has read before the content and not used are the content's, and what it
//! puts out never gets further ahead of the client than a bound.

pub(crate) mod rows;

use crate::conf::LuaLoc;
use crate::run::{context, Outcome, Run, Step};
use crate::site::{Block, Who};
use crate::vm::Vm;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::{ConnError, LocalFuture, Session as _};
use weir_module::{Slots, Val};
use weir_stream::{Flow, Look, Phase, PhaseHandler, Prereader, Session};

/// Statuses of sessions.
const OK: u16 = 200;
const ERROR: u16 = 500;
/// What a client has sent that nobody wanted is looked at so far.
const UNREAD_MAX_BYTES: usize = 64 * 1024;
/// `NGX_DECLINED`, as code says it.
const DECLINED: i32 = -5;

/// The code before the content, in front of others that look at the first bytes, and behind them.
const FIRST: Prereader = Prereader { look: Look::ByItself(preread), active: is_active::<true> };
const LAST: Prereader = Prereader { look: Look::ByItself(preread), active: is_active::<false> };

const LOGS: &[PhaseHandler] = &[
    PhaseHandler {
        phase: Phase::Log,
        handler: log,
        active: |slots| slots.get::<LuaLoc>().log.is_some(),
    },
    crate::trim::OF_STREAM,
];

fn is_active<const FIRST: bool>(slots: &Slots) -> bool {
    let conf = slots.get::<LuaLoc>();
    conf.preread.is_some() && *conf.preread_first == FIRST
}

fn code_of(s: &Session, place: fn(&LuaLoc) -> &Val<Option<u32>>) -> Option<u32> {
    place(s.base().conf()).as_option().copied().flatten()
}

/// What code has put out has an end, behind which nothing follows.
pub(crate) struct Ended;

/// Bytes of the connection that the session has not counted or has counted besides, from the client and to it.
struct Uncounted(u64, u64);

/// Brings the session's figures up to what has passed, until it is over.
pub(crate) fn count(s: &mut Session) {
    if s.status != 0 {
        return;
    }
    let Some(Uncounted(received, sent)) = s.ctx_ref() else { return };
    let conn = s.conn();
    let queued = conn.out.borrow().queued();
    let received = conn.bytes_in.get().wrapping_add(*received);
    let sent = conn.bytes_out.get().wrapping_add(queued).wrapping_add(*sent);
    (s.received, s.sent) = (received, sent);
}

fn begin(s: &mut Session, context: u32, code: u32) -> (Run, Step) {
    if !s.conn().is_udp() && s.ctx_ref::<Uncounted>().is_none() {
        let conn = s.conn();
        let sent = conn.bytes_out.get() + conn.out.borrow().queued();
        let before =
            Uncounted(s.received.wrapping_sub(conn.bytes_in.get()), s.sent.wrapping_sub(sent));
        s.set_ctx(before);
    }
    let vm = Vm::of_session(s);
    let mut run = Run::new(&vm, context);
    let step = run.begin(Who::Session(s), code);
    (run, step)
}

/// Runs code to its end; what has become of it.
async fn run(s: &mut Session, context: u32, code: u32) -> Run {
    let (mut run, step) = begin(s, context, code);
    if step == Step::Waits {
        run.drive(Who::Session(s)).await;
    }
    count(s);
    run
}

fn status_of(code: i32) -> u16 {
    u16::try_from(code).ok().filter(|code| (1..=999).contains(code)).unwrap_or(ERROR)
}

fn preread(s: &mut Session) -> LocalFuture<'_, Result<(), u16>> {
    Box::pin(async move {
        let Some(code) = code_of(s, |conf| &conf.preread) else { return Ok(()) };
        let mut run = run(s, context::PREREAD, code).await;
        // What it has read and not used is for those who follow.
        let rest = run.socks.values().find_map(|sock| sock.borrow_mut().rest_of_session());
        if let Some(mut rest) = rest {
            // Datagrams leave theirs where it is.
            rest.append(&mut s.buf);
            s.buf = rest;
        }
        let outcome = std::mem::take(&mut run.outcome);
        drop(run);
        let decided = match outcome {
            Outcome::Failed => Err(ERROR),
            Outcome::Exit(0 | DECLINED) => Ok(()),
            Outcome::Exit(code) => Err(status_of(code)),
            _ => Ok(()),
        };
        if let Err(status) = decided {
            tell(s, status);
            drain(s).await;
        }
        decided
    })
}

fn content(s: &mut Session) -> LocalFuture<'_, u16> {
    Box::pin(async move {
        let Some(code) = s.base().conf::<LuaLoc>().content else { return ERROR };
        let run = run(s, context::CONTENT, code).await;
        let status = match run.outcome {
            Outcome::Failed => ERROR,
            Outcome::Exit(0 | DECLINED) => OK,
            Outcome::Exit(code) => status_of(code),
            _ => OK,
        };
        drop(run);
        tell(s, status);
        if status != ERROR {
            drain(s).await;
        }
        status
    })
}

/// What code has decided, for who looks for it in the log.
fn tell(s: &Session, status: u16) {
    if s.log_enabled(LogLevel::Debug) {
        s.log(LogLevel::Debug, &format!("finalize stream request: {status}"));
        s.log(LogLevel::Debug, &format!("finalize stream session: {status}"));
    }
}

/// Sends what is still to be sent.
async fn drain(s: &mut Session) {
    let conn = Rc::clone(s.conn());
    if conn.is_udp() {
        return;
    }
    if conn.out.borrow().queued() > 0 {
        let timeout = *s.base().conf::<LuaLoc>().send_timeout;
        if let Err(ConnError::Timeout) = conn.drain(0, timeout).await {
            s.log(LogLevel::Info, "client timed out (110: Connection timed out)");
        }
    }
    // What is left in the socket would turn its end into a reset, which overtakes what was sent.
    let _ = conn.stream.try_read(&mut Vec::new(), UNREAD_MAX_BYTES);
    count(s);
}

fn log(s: &mut Session) -> Flow {
    if let Some(code) = code_of(s, |conf| &conf.log) {
        let vm = Vm::of_session(s);
        Run::new(&vm, context::LOG).begin(Who::Session(s), code);
    }
    Flow::Declined
}

/// A worker serves by its newest generation.
fn serves(worker: &Rc<weir_core::Worker>, _: usize) {
    crate::phases::begin_worker(worker, Block::Stream);
}
