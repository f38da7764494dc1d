//! Putting parts in order: what is next goes through the filters that see the whole, as far as the client
//! takes it, and parts go on meanwhile.

use super::desk::{Desk, Sink, AHEAD_MAX_BYTES};
use crate::buf::{Buf, Chain, Data};
use crate::client_watch::ClientWatch;
use crate::flow::{FilterError, FilterResult, Next};
use crate::pool;
use crate::request::Request;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use weir_core::logger::LogLevel;
use weir_core::ConnError;
use weir_core::Session;
use weir_runtime::clock;

/// The header of a part is not sent.
pub(crate) fn header(r: &mut Request) {
    r.flags.header_only |= r.method == weir_wire::http1::request::Method::Head;
    r.flags.header_sent = true;
}

/// Body that has passed the filters for one request's own output: it waits for its turn, if it is
/// not its turn already.
pub(crate) fn catch(r: &mut Request, chain: Chain) -> FilterResult {
    let drop_data = r.is_part() && r.flags.header_only;
    let Some(parts) = r.parts.as_deref_mut() else { return Ok(()) };
    if parts.is_part {
        if drop_data || matches!(parts.sink, Sink::Nowhere) {
            return Ok(());
        }
        if matches!(parts.sink, Sink::Memory(_)) && parts.desk.is_empty() {
            r.sent += chain.len();
            return keep_all(r, chain);
        }
    } else if parts.desk.is_empty() {
        if chain.iter().any(|b| b.flush) {
            parts.desk.flush.set(true);
        }
        return Next(r.loc().plan.postpone_at).body_now(r, chain);
    }
    for mut buf in chain {
        if parts.is_part {
            r.sent += buf.len();
            buf.last = false;
        }
        if !buf.is_empty() || buf.last || buf.flush {
            parts.desk.put(buf);
        }
    }
    if parts.is_top() {
        return pump(r);
    }
    parts.top.wake();
    Ok(())
}

/// Hands on what is next in order, as far as it is there and the client takes it.
fn pump(r: &mut Request) -> FilterResult {
    loop {
        let Some(parts) = r.parts.as_deref_mut() else { return Ok(()) };
        let desk = Rc::clone(&parts.desk);
        if matches!(parts.sink, Sink::Memory(_)) {
            let Some(buf) = desk.take()? else { return Ok(()) };
            keep_all(r, Chain::one(buf))?;
            continue;
        }
        if matches!(parts.sink, Sink::Nowhere) {
            while desk.take()?.is_some() {}
            return Ok(());
        }
        // Behind here a filter waits.
        if r.holds_behind(Next(r.loc().plan.postpone_at)) {
            return Ok(());
        }
        let mut room = AHEAD_MAX_BYTES.saturating_sub(r.queued());
        let mut chain = Chain::new();
        while room > 0 {
            let Some(buf) = desk.take()? else { break };
            room = room.saturating_sub(buf.len());
            desk.flush.set(desk.flush.get() || buf.flush);
            chain.push(buf);
        }
        if chain.is_empty() {
            return Ok(());
        }
        Next(r.loc().plan.postpone_at).body_now(r, chain)?;
    }
}

/// Adds to what is kept of a part's answer.
fn keep_all(r: &mut Request, chain: Chain) -> FilterResult {
    let own_most = *r.loc().core.subrequest_output_buffer_size;
    let Some(parts) = r.parts.as_deref_mut() else { return Ok(()) };
    let most = parts.keep_max_bytes.unwrap_or(own_most);
    let Sink::Memory(bytes) = &mut parts.sink else { return Ok(()) };
    if chain.into_iter().all(|buf| keep(bytes, most, &buf).is_ok()) {
        return Ok(());
    }
    parts.desk.broken.set(true);
    r.log(LogLevel::Error, "too big subrequest response");
    Err(FilterError::Broken)
}

fn keep(bytes: &mut Vec<u8>, max_bytes: u64, buf: &Buf) -> io::Result<()> {
    let at = bytes.len();
    if buf.len() > max_bytes.saturating_sub(at as u64) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    match &buf.data {
        Data::None => {}
        Data::Mem(data) => bytes.extend_from_slice(data),
        Data::File { file, offset, len } => {
            bytes.resize(at + *len as usize, 0);
            weir_runtime::files::read_exact_at(file, &mut bytes[at..], *offset)?;
        }
    }
    Ok(())
}

/// Calls back for the parts that have ended.
fn reap(r: &mut Request) -> FilterResult {
    loop {
        let Some(parts) = r.parts.as_deref_mut() else { return Ok(()) };
        let ended = std::mem::take(&mut *parts.desk.ended.borrow_mut());
        if ended.is_empty() {
            return Ok(());
        }
        for (id, part) in ended {
            let Some(parts) = r.parts.as_deref_mut() else { return Ok(()) };
            let at = parts.running.iter().position(|p| p.id == id);
            let call = at.and_then(|at| parts.running.swap_remove(at).ended);
            match call {
                Some(call) => call(r, part)?,
                None => pool::give(part),
            }
        }
    }
}

/// What is waited for.
#[derive(Clone, Copy)]
enum Until {
    /// At most so many bytes wait for their turn.
    Room(u64),
    /// All parts have ended, and what they wrote has been handed on.
    End,
    /// The filter that is nearest to the client can go on.
    Resumed,
    /// Something else that the caller waits for.
    Dropped,
}

fn waits(r: &Request, until: Until) -> bool {
    let Some(parts) = r.parts.as_deref() else { return false };
    match until {
        Until::Room(leave) => {
            let desk = &parts.desk;
            let crowded = parts.is_part && desk.page.is_ahead();
            let leave = if crowded { 0 } else { leave };
            let held = if parts.is_top() { desk.held() } else { desk.bytes.get() };
            held + desk.kept_back.get() > leave
        }
        Until::End if r.holds() => true,
        Until::End if parts.is_top() => !parts.running.is_empty() || !parts.desk.is_empty(),
        Until::End => !parts.running.is_empty(),
        Until::Resumed => !r.can_resume(),
        Until::Dropped => true,
    }
}

fn broken(_: FilterError) -> ConnError {
    ConnError::Io(io::ErrorKind::BrokenPipe.into())
}

/// Hands on what is there, and hears of the parts that have ended.
fn advance(r: &mut Request, desk: &Desk, is_top: bool) -> FilterResult {
    desk.changed.set(false);
    if is_top {
        pump(r)?;
    }
    // The end of a part may lead to another: not before there is room.
    let full = desk.held() > AHEAD_MAX_BYTES;
    desk.is_full.set(full);
    if full {
        return Ok(());
    }
    reap(r)?;
    match is_top {
        true => pump(r),
        false => Ok(()),
    }
}

/// Lets parts go on, and the client take what there is, until what is waited for has come.
async fn attend(r: &mut Request, until: Until) -> Result<(), ConnError> {
    let Some(desk) = r.parts.as_ref().map(|p| Rc::clone(&p.desk)) else { return Ok(()) };
    let is_top = r.parts.as_ref().is_some_and(|p| p.is_top());
    let to_client = !r.is_part();
    let enough = *r.loc().core.postpone_output;
    let mut watch = ClientWatch::new(r, false);
    let mut deadline = 0;
    loop {
        advance(r, &desk, is_top).map_err(broken)?;
        // The end of a part has led to more than there was room for.
        if matches!(until, Until::End | Until::Dropped) && r.can_resume() {
            r.resume_held()?;
            continue;
        }
        if !waits(r, until) {
            return Ok(());
        }
        let queued = r.queued();
        let send = to_client && queued > 0 && (queued >= enough || desk.flush.get());
        if send && r.is_limited() {
            r.drain_own(0).await?;
            desk.flush.set(false);
            continue;
        }
        let waiting = r.waits_for();
        poll_fn(|cx| {
            let has_come = waiting.as_ref().is_some_and(|w| w.poll(cx).is_ready());
            desk.wait(cx);
            if has_come || desk.changed.get() {
                return Poll::Ready(Ok(()));
            }
            if !to_client {
                return Poll::Pending;
            }
            // Over HTTP/2 the connection's task sends it too, and wakes this one.
            if r.queued() < queued {
                deadline = 0;
                return Poll::Ready(Ok(()));
            }
            if send {
                if let Poll::Ready(sent) = r.poll_flush(cx) {
                    deadline = 0;
                    desk.flush.set(desk.flush.get() && r.queued() > 0);
                    return Poll::Ready(sent.map(|_| ()).map_err(ConnError::Io));
                }
                if deadline == 0 {
                    deadline = clock::mono_ms() + *r.loc().core.send_timeout;
                }
                if r.poll_send_timeout(cx, deadline).is_ready() {
                    return Poll::Ready(Err(ConnError::Timeout));
                }
            }
            match watch.is_gone(cx) {
                true => Poll::Ready(Err(ConnError::Io(io::ErrorKind::BrokenPipe.into()))),
                false => Poll::Pending,
            }
        })
        .await?;
    }
}

/// Waits until at most `leave` bytes of this request's output wait for their turn.
pub(crate) async fn make_room(r: &mut Request, leave: u64) -> Result<(), ConnError> {
    attend(r, Until::Room(leave)).await
}

/// Lets parts go on until what a filter waits for has come.
pub(crate) async fn wait_for_filter(r: &mut Request) -> Result<(), ConnError> {
    attend(r, Until::Resumed).await
}

/// Lets parts go on until it is dropped: the request's own answer is waited for meanwhile.
pub(crate) async fn go_on(r: &mut Request) -> Result<(), ConnError> {
    attend(r, Until::Dropped).await
}

/// What [`finish`] would say of a request that has no parts of its own and of whose answer nothing is held back; nothing
/// of others.
pub(crate) fn ends_now(r: &mut Request) -> Option<bool> {
    let parts = r.parts.as_deref()?;
    if r.holds() || parts.last_id != 0 || parts.instead.is_some() {
        return None;
    }
    if !parts.is_top() {
        return Some(true);
    }
    match pump(r) {
        Err(_) => Some(false),
        Ok(()) => r.parts.as_deref().filter(|parts| parts.desk.is_empty()).map(|_| true),
    }
}

/// Waits until filters have let go of a request's answer, which may lead to parts, and for all its
/// parts; `false` when that is in vain.
pub(crate) async fn finish(r: &mut Request) -> bool {
    if r.holds() && Box::pin(r.drain(AHEAD_MAX_BYTES)).await.is_err() {
        r.held.clear();
        r.flags.unsent = true;
        return !r.is_part();
    }
    let done = attend(r, Until::End).await.is_ok();
    if !done {
        r.held.clear();
    }
    if !done && !r.is_part() {
        r.flags.keepalive = false;
        // Half an answer that nobody has seen yet is better not begun.
        r.to_client().drop_output_behind(0);
    }
    done
}

/// Bytes of a part's output that nobody has taken.
pub(crate) fn queued(r: &Request) -> u64 {
    r.parts.as_ref().map_or(0, |p| p.desk.bytes.get())
}

/// A part's output leaves when its turn has come.
pub(crate) fn poll_flush(r: &Request, cx: &Context<'_>) -> Poll<io::Result<u64>> {
    if let Some(parts) = &r.parts {
        parts.desk.wait(cx);
    }
    Poll::Pending
}
