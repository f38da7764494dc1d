//! Requests of a connection, each in the connection's task until it waits.

use super::link::Link;
use super::stream::Stream;
use super::task::{Job, Starter, Task};
use crate::flow::Flow;
use crate::linger::linger;
use crate::phases;
use crate::request::Request;
use crate::request_log::log_request;
use crate::special;
use std::cell::RefCell;
use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use weir_core::counters::Counters;
use weir_core::logger::LogLevel;
use weir_core::Connection;
use weir_core::Session;

/// Futures whose memory is kept for the next request.
const KEPT_MAX: usize = 64;

/// Serves a connection to its end; `read` has been read from it already, preface included.
pub async fn serve(conn: Rc<Connection>, read: Vec<u8>) {
    let link = Rc::new(Link::new(Rc::clone(&conn)));
    // The worker's, so that a connection at rest has none of it.
    let starter = Pooled { answer, kept: conn.worker.local() };
    let mut task = Task::new(link, starter, read);
    let lingers = poll_fn(|cx| task.poll(cx)).await;
    drop(task);
    if lingers {
        linger(&conn, crate::server::default_location(&conn)).await;
    }
}

async fn answer(job: Job) {
    let Job { stream, request: mut r, refused } = job;
    let worker = Rc::clone(&r.conn().worker);
    Counters::add(&worker.counters.writing, 1);
    crate::status_zone::begins(&mut r);
    let finished = match refused {
        None => unless_cut(&stream, phases::run(&mut r)).await,
        Some(status) => refuse(&mut r, status).await,
    };
    let is_cut = stream.link.conn.is_cut.get();
    if !finished && !is_cut {
        break_off(&r).await;
    }
    let sent = !finished || (!is_cut && !r.flags.unsent && r.drain(0).await.is_ok());
    r.flags.complete |= finished && sent;
    if r.err_status == 408 {
        stream.timed_out.set(true);
    }
    if !sent && !is_cut && r.err_status == 0 {
        r.log(LogLevel::Info, why_unsent(&stream));
    }
    if !is_cut && r.loc().core.post_action.is_some() {
        phases::post_action(&mut r).await;
    }
    log_request(&mut r).await;
    stream.link.close(&stream);
    Counters::add(&worker.counters.writing, -1);
    crate::pool::give(r);
}

/// What is still to leave of an answer that breaks off goes as far as the client's windows are open.
async fn break_off(r: &Request) {
    r.drop_postponed();
    if r.queued() > 0 {
        r.to_client().hold_back(false);
        poll_fn(|cx| Poll::Ready(r.poll_flush(cx).is_ready())).await;
    }
}

/// The way through the phases, which breaks off when the connection is cut.
async fn unless_cut(stream: &Stream, way: impl Future<Output = bool>) -> bool {
    let mut way = pin!(way);
    poll_fn(|cx| {
        if stream.link.conn.is_cut.get() {
            return Poll::Ready(false);
        }
        let done = way.as_mut().poll(cx);
        // Whatever it waits for, the stream's end wakes the task.
        if done.is_pending() && stream.poll_gone(cx) && stream.link.conn.is_cut.get() {
            return Poll::Ready(false);
        }
        done
    })
    .await
}

fn why_unsent(stream: &Stream) -> &'static str {
    match stream.timed_out.get() || stream.link_timed_out() {
        true => "client timed out (110: Connection timed out) while sending response to client",
        false => "client closed stream while sending to client",
    }
}

async fn refuse(r: &mut Box<Request>, status: u16) -> bool {
    r.body.done = true;
    r.to_client().skip_body();
    match special::respond(r, status) {
        flow @ (Flow::Redirect | Flow::Named) => phases::run_redirected(r, flow).await,
        Flow::Status(status) => matches!(special::respond(r, status), Flow::Ok),
        Flow::Ok => true,
        _ => false,
    }
}

/// Passes wake-ups on to the task that runs the request now: first the connection's, then one of
/// its own. What the request waits for sees one waker from beginning to end.
#[derive(Default)]
struct Relay(Mutex<Option<Waker>>);

impl Relay {
    fn to(&self, waker: &Waker) {
        match &mut *self.0.lock().unwrap_or_else(|e| e.into_inner()) {
            Some(w) => w.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waker = self.0.lock().unwrap_or_else(|e| e.into_inner());
        waker.iter().for_each(Waker::wake_by_ref);
    }
}

/// Memory for a request's future, and its waker.
struct Place<F> {
    future: Pin<Box<Option<F>>>,
    relay: Arc<Relay>,
    waker: Waker,
}

impl<F: Future<Output = ()>> Place<F> {
    fn new() -> Place<F> {
        let relay = Arc::new(Relay::default());
        let waker = Waker::from(Arc::clone(&relay));
        Place { future: Box::pin(None), relay, waker }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.relay.to(cx.waker());
        match self.future.as_mut().as_pin_mut() {
            Some(f) => f.poll(&mut Context::from_waker(&self.waker)),
            None => Poll::Ready(()),
        }
    }
}

type Kept<F> = Rc<RefCell<Vec<Place<F>>>>;

/// Makes futures of jobs, in memory that is used again.
struct Pooled<M, F> {
    answer: M,
    kept: Kept<F>,
}

impl<M: Fn(Job) -> F, F: Future<Output = ()> + 'static> Starter for Pooled<M, F> {
    fn start(&self, cx: &mut Context<'_>, job: Job) {
        let kept = self.kept.borrow_mut().pop();
        let mut place = kept.unwrap_or_else(Place::new);
        place.future.set(Some((self.answer)(job)));
        if place.poll(cx).is_ready() {
            return give_back(&self.kept, place);
        }
        let kept = Rc::clone(&self.kept);
        weir_runtime::event_loop::spawn(async move {
            poll_fn(|cx| place.poll(cx)).await;
            give_back(&kept, place);
        });
    }
}

fn give_back<F>(kept: &Kept<F>, mut place: Place<F>) {
    place.future.set(None);
    let mut kept = kept.borrow_mut();
    if kept.len() < KEPT_MAX {
        kept.push(place);
    }
}
