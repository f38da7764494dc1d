//! Requests of a connection, each in the connection's task until it waits.

use super::link::Link;
use super::stream::Stream;
use super::task::{Starter, Task};
use crate::conn::Connection;
use crate::h1;
use crate::logger::LogLevel;
use crate::module::Flow;
use crate::phases;
use crate::request::Request;
use crate::special;
use crate::worker::Counters;
use std::cell::RefCell;
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Context;

/// Futures whose memory is kept for the next request.
const KEPT_MAX: usize = 64;

/// Serves a connection to its end; `read` has been read from it already, preface included.
pub async fn serve(conn: Rc<Connection>, read: Vec<u8>) {
    let link = Rc::new(Link::new(Rc::clone(&conn)));
    let starter = Pooled { answer, kept: Rc::default() };
    let mut task = Task::new(link, starter, read);
    let linger = poll_fn(|cx| task.poll(cx)).await;
    drop(task);
    if linger {
        h1::linger(&conn).await;
    }
}

/// A stream whose request is to be answered; a status refuses it.
pub struct Job {
    pub stream: Rc<Stream>,
    pub request: Box<Request>,
    pub refused: Option<u16>,
}

async fn answer(job: Job) {
    let Job { stream, request: mut r, refused } = job;
    let worker = Rc::clone(&r.conn().worker);
    Counters::add(&worker.counters.writing, 1);
    let finished = match refused {
        None => phases::run(&mut r).await,
        Some(status) => refuse(&mut r, status).await,
    };
    let sent = !finished || r.drain(0).await.is_ok();
    if !sent && r.err_status == 0 {
        r.log(LogLevel::Info, "client closed stream while sending to client");
    }
    if r.err_status == 408 {
        stream.timed_out.set(true);
    }
    h1::log_request(&mut r).await;
    stream.link.close(&stream);
    Counters::add(&worker.counters.writing, -1);
    worker.give_request(r);
}

async fn refuse(r: &mut Box<Request>, status: u16) -> bool {
    r.body.done = true;
    if let Some(stream) = r.stream() {
        stream.skip_body();
    }
    match special::respond(r, status) {
        flow @ (Flow::Redirect | Flow::Named) => phases::run_redirected(r, flow).await,
        Flow::Status(status) => matches!(special::respond(r, status), Flow::Ok),
        Flow::Ok => true,
        _ => false,
    }
}

type Kept<F> = Rc<RefCell<Vec<Pin<Box<Option<F>>>>>>;

/// Makes futures of jobs, in memory that is used again.
struct Pooled<M, F> {
    answer: M,
    kept: Kept<F>,
}

impl<M: Fn(Job) -> F, F: Future<Output = ()> + 'static> Starter for Pooled<M, F> {
    fn start(&self, cx: &mut Context<'_>, job: Job) {
        let mut place = self.kept.borrow_mut().pop().unwrap_or_else(|| Box::pin(None));
        place.as_mut().set(Some((self.answer)(job)));
        let done = place.as_mut().as_pin_mut().is_none_or(|f| f.poll(cx).is_ready());
        if done {
            return give_back(&self.kept, place);
        }
        let kept = Rc::clone(&self.kept);
        tokio::task::spawn_local(async move {
            if let Some(f) = place.as_mut().as_pin_mut() {
                f.await;
            }
            give_back(&kept, place);
        });
    }
}

fn give_back<F>(kept: &Kept<F>, mut place: Pin<Box<Option<F>>>) {
    place.as_mut().set(None);
    let mut kept = kept.borrow_mut();
    if kept.len() < KEPT_MAX {
        kept.push(place);
    }
}
