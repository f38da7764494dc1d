//! Running parts.

use super::desk::{Ended, Item, Parts, Running, Sink};
use super::parent;
use crate::body::RequestBody;
use crate::client::Client;
use crate::detached::Ticket;
use crate::phases;
use crate::request::Request;
use crate::request_log::log_request;
use crate::trace;
use std::any::Any;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session};
use weir_wire::http1::request::Method;

/// How a part has begun.
pub enum Begun {
    /// It has ended; `false` when its answer has broken off.
    Ended(Box<Request>, bool),
    /// It waits, and goes on to its end with this.
    Waits(LocalFuture<'static, (Box<Request>, bool)>),
}

/// Runs a part as far as it goes without waiting.
pub fn begin(mut part: Box<Request>) -> Begun {
    match phases::begin_part(&mut part) {
        Ok(ok) if !has_more_to_tell(&part) => Begun::Ended(part, ok),
        Ok(ok) => Begun::Waits(Box::pin(async move {
            ended(&mut part).await;
            (part, ok)
        })),
        Err(left) => Begun::Waits(Box::pin(async move {
            let ok = phases::end_part(&mut part, left).await;
            ended(&mut part).await;
            (part, ok)
        })),
    }
}

/// Runs a part to its end in the caller's task; `false` when its answer has broken off.
pub async fn run(part: &mut Request) -> bool {
    let ok = match phases::begin_part(part) {
        Ok(ok) => ok,
        Err(left) => Box::pin(phases::end_part(part, left)).await,
    };
    ended(part).await;
    ok
}

fn has_more_to_tell(part: &Request) -> bool {
    part.flags.traced || *part.loc().core.log_subrequest
}

async fn ended(part: &mut Request) {
    if part.flags.traced {
        trace::part_ends(part);
    }
    if *part.loc().core.log_subrequest {
        log_request(part).await;
    }
}

/// Starts a part as a task. Its answer stands in the parent's body where the parent's output is
/// now, if that is where it goes.
pub fn start(r: &mut Request, part: Box<Request>, ended: Option<Ended>) {
    let parent = parent(r);
    let Some(own) = part.parts.as_ref() else { return };
    let desk = Rc::clone(&own.desk);
    if matches!(own.sink, Sink::Desk) {
        parent.desk.items.borrow_mut().push_back(Item::Part(Rc::clone(&desk)));
    }
    parent.last_id += 1;
    let id = parent.last_id;
    let (above, top) = (Rc::clone(&parent.desk), Rc::clone(&parent.top));
    let task = weir_runtime::event_loop::spawn(async move {
        let mut part = part;
        let ok = run(&mut part).await;
        desk.broken.set(!ok);
        desk.over.set(true);
        above.ended.borrow_mut().push((id, part));
        above.wake();
        top.wake();
    });
    parent.running.push(Running { id, task, ended });
}

/// What is sent behind a request.
pub struct Sent<'a> {
    /// Its path and arguments.
    pub path: &'a [u8],
    /// Without the question mark.
    pub args: &'a [u8],
    /// Its method.
    pub method: Method,
    /// Its body, if that is not the request's as far as it was read, and what is dropped when it has ended,
    /// such as what counts the body's memory.
    pub body: Option<(Vec<u8>, Box<dyn Any>)>,
}

/// Sends a copy of the request somewhere and forgets the answer. It outlives the request; none is
/// sent while too many are under way.
pub fn send_copy(r: &Request, uri: &[u8], args: &[u8]) {
    send(r, Sent { path: uri, args, method: r.method, body: None });
}

/// Sends something else behind a request, as [`send_copy`] does; whether it was.
pub fn send(r: &Request, sent: Sent<'_>) -> bool {
    let Some(ticket) = Ticket::take(r) else { return false };
    let mut copy = Box::<Request>::default();
    r.copy_to_part(&mut copy, Client::of_h1(r.nowhere()));
    copy.uri.extend_from_slice(sent.path);
    copy.args.extend_from_slice(sent.args);
    copy.method = sent.method;
    copy.flags.header_only = true;
    copy.parts = Some(Box::new(Parts::of_copy()));
    let mut held = None;
    if let Some((body, with)) = sent.body {
        held = Some(with);
        let length = body.len().to_string();
        copy.remove_fields_in(|name| name.eq_ignore_ascii_case(b"Transfer-Encoding"));
        copy.set_field_in(b"Content-Length", length.as_bytes(), false);
        copy.body = RequestBody::made(body, None);
    }
    ticket.spawn(async move {
        run(&mut copy).await;
        if copy.failed_by_match() {
            let shown = String::from_utf8_lossy(&copy.uri);
            let text = format!("mirror subrequest \"{shown}\" ends with 500: a match was given up");
            copy.log(LogLevel::Error, &text);
        }
        drop(copy);
        drop(held);
    });
    true
}
