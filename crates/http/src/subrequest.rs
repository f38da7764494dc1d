//! Subrequests: requests that a request makes of its own server, whose answers become parts of its
//! own (SSI, `add_before_body`), are looked at (`auth_request`) or thrown away (`mirror`).
//!
//! A part is a [`Request`] of its own that runs the same phases from server-rewrite on, without the
//! access phase. It has the client's header fields and the values of the variables as they were
//! when it was made. Its answer goes through the filters that are there for parts
//! ([`Reach::Part`](crate::module::Reach)) and ends in its *desk*: a queue of buffers and, among
//! them, the desks of its own parts. The main request takes from these desks what is next in order
//! and hands it to the filters that see the whole (`pump`). Several parts run at once, each as a
//! task of its own; they end with the main request.
//!
//! Invariants: only the task of the request at the top takes from the desks, so that order needs no
//! lock; a part that is far ahead of its turn waits for room (`Request::drain`), and so does a
//! request whose filter keeps input back until a part has ended ([`keep_back`]); desks know their
//! parts, parts do not keep their parents' desks alive in a circle (`Drop for Parts`). As in nginx,
//! the client gets nothing before `postpone_output` bytes are there: a page whose first part fails
//! at once is not half sent.
//!
//! Differences from nginx: variables set in a part stay there; an answer that breaks off closes the
//! client's connection also when the part had not begun to send.

use crate::buf::{Buf, Chain, Data};
use crate::client_watch::ClientWatch;
use crate::conn::ConnError;
use crate::detached;
use crate::h1;
use crate::logger::LogLevel;
use crate::module::{FilterError, FilterResult, Next};
use crate::phases;
use crate::request::Request;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::task::AbortHandle;
use weir_runtime::clock;

/// Parts within parts.
const NESTED_MAX: u8 = 50;
/// Of one request at a time.
const RUNNING_MAX: usize = 1000;
/// What the client has not taken yet beyond which nothing is handed on.
const AHEAD_MAX_BYTES: u64 = 256 * 1024;

/// What becomes of a part's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// It appears in its parent's body, at the place where the part was started.
    Place,
    /// It is kept, up to `subrequest_output_buffer_size`, for whoever asked.
    Keep,
    /// Nobody reads it.
    Drop,
}

/// Called with the parent once a part has ended.
pub type Ended = Box<dyn FnOnce(&mut Request, Box<Request>) -> FilterResult>;

/// Answers in a part's stead; the part has no error page and has put out nothing.
pub type Instead = Box<dyn FnOnce(&mut Request) -> FilterResult>;

enum Item {
    Data(Buf),
    Part(Rc<Desk>),
}

/// Where the output of one request waits for its turn.
#[derive(Default)]
struct Desk {
    items: RefCell<VecDeque<Item>>,
    /// Bytes in `items`, without those of parts.
    bytes: Cell<u64>,
    /// Bytes that a filter of this request keeps until a part has ended.
    kept_back: Cell<u64>,
    /// What has been handed on is to be sent now.
    flush: Cell<bool>,
    /// Nothing more will come.
    over: Cell<bool>,
    broken: Cell<bool>,
    /// Parts of this request that have ended and that it has not looked at.
    ended: RefCell<Vec<(u64, Box<Request>)>>,
    /// The task that runs this request, while it waits for room or for its parts.
    waker: RefCell<Option<Waker>>,
    changed: Cell<bool>,
}

impl Desk {
    fn wake(&self) {
        self.changed.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    fn wait(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(w) => w.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    fn put(&self, buf: Buf) {
        self.bytes.set(self.bytes.get() + buf.len());
        self.items.borrow_mut().push_back(Item::Data(buf));
    }

    fn is_empty(&self) -> bool {
        self.items.borrow().is_empty()
    }

    /// The next buffer in the order of the whole, if it is there.
    fn take(&self) -> Result<Option<Buf>, FilterError> {
        loop {
            let mut items = self.items.borrow_mut();
            let part = match items.front() {
                None => return Ok(None),
                Some(Item::Part(part)) => Rc::clone(part),
                Some(Item::Data(_)) => {
                    let Some(Item::Data(buf)) = items.pop_front() else { return Ok(None) };
                    self.bytes.set(self.bytes.get() - buf.len());
                    drop(items);
                    self.wake();
                    return Ok(Some(buf));
                }
            };
            drop(items);
            if let Some(buf) = part.take()? {
                return Ok(Some(buf));
            }
            if part.broken.get() {
                return Err(FilterError::Broken);
            }
            if !part.over.get() || !part.is_empty() {
                return Ok(None);
            }
            self.items.borrow_mut().pop_front();
        }
    }

    /// Bytes here and in all parts.
    fn held(&self) -> u64 {
        let items = self.items.borrow();
        let parts = items.iter().filter_map(|i| match i {
            Item::Part(part) => Some(part.held()),
            Item::Data(_) => None,
        });
        self.bytes.get() + parts.sum::<u64>()
    }
}

/// Where the answer of the request at the top, or of this part, goes in the end.
enum Sink {
    /// To the client.
    Client,
    /// To the desk, from which the request at the top takes it.
    Desk,
    Memory(Vec<u8>),
    Nowhere,
}

struct Running {
    id: u64,
    task: AbortHandle,
    ended: Option<Ended>,
}

/// A request's share in the making of an answer from parts.
pub(crate) struct Parts {
    desk: Rc<Desk>,
    /// The desk of the request that puts the whole together.
    top: Rc<Desk>,
    sink: Sink,
    is_part: bool,
    nested: u8,
    running: Vec<Running>,
    last_id: u64,
    instead: Option<Instead>,
    /// It goes on where its parent is: with the content.
    again: bool,
}

impl Parts {
    fn of_main() -> Parts {
        Parts::new(Sink::Client, Rc::default(), None, 0)
    }

    fn new(sink: Sink, desk: Rc<Desk>, top: Option<Rc<Desk>>, nested: u8) -> Parts {
        let is_part = !matches!(sink, Sink::Client);
        let top = top.unwrap_or_else(|| Rc::clone(&desk));
        let running = Vec::new();
        Parts { desk, top, sink, is_part, nested, running, last_id: 0, instead: None, again: false }
    }

    /// Whether this request puts together what its parts have written.
    fn is_top(&self) -> bool {
        Rc::ptr_eq(&self.desk, &self.top)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.running.iter().for_each(|p| p.task.abort());
        if self.is_top() {
            // Ended parts know this desk; nobody will look at them.
            let ended = std::mem::take(&mut *self.desk.ended.borrow_mut());
            drop(ended);
            let items = std::mem::take(&mut *self.desk.items.borrow_mut());
            drop(items);
        }
    }
}

impl Request {
    /// Whether this is a subrequest.
    #[inline]
    pub fn is_part(&self) -> bool {
        self.parts.as_ref().is_some_and(|p| p.is_part)
    }

    /// Whether its answer is put together from parts.
    #[inline]
    pub fn has_parts(&self) -> bool {
        self.parts.is_some()
    }

    /// What a part has answered, if it was to be kept.
    pub fn kept_body(&mut self) -> Vec<u8> {
        match self.parts.as_deref_mut().map(|p| &mut p.sink) {
            Some(Sink::Memory(bytes)) => std::mem::take(bytes),
            _ => Vec::new(),
        }
    }

    /// Whether a part's answer has broken off.
    pub fn is_broken_part(&self) -> bool {
        self.parts.as_ref().is_some_and(|p| p.desk.broken.get())
    }

    /// How many of its parts have not ended.
    pub fn running_parts(&self) -> usize {
        self.parts.as_ref().map_or(0, |p| p.running.len())
    }
}

/// What a part is to answer instead of an error, or of nothing at all.
pub fn instead_of_nothing(part: &mut Request, instead: Instead) {
    if let Some(parts) = part.parts.as_deref_mut() {
        parts.instead = Some(instead);
    }
}

/// How much input a filter keeps until a part has ended; it counts as output that waits.
pub fn keep_back(r: &Request, bytes: u64) {
    if let Some(parts) = &r.parts {
        parts.desk.kept_back.set(bytes);
    }
}

/// Lets whoever knows better answer for a part that has nothing to say; `None` when nobody does.
pub(crate) fn answer_instead(r: &mut Request) -> Option<FilterResult> {
    let parts = r.parts.as_deref_mut()?;
    match r.sent == 0 && parts.last_id == 0 {
        true => parts.instead.take().map(|instead| instead(r)),
        false => None,
    }
}

/// Whether a part goes on with the content, as its parent does.
pub(crate) fn is_again(r: &Request) -> bool {
    r.parts.as_ref().is_some_and(|p| p.again)
}

/// Makes a part that asks for the same content once more, in the same location: for a further
/// range of it.
pub fn again(r: &mut Request) -> Option<Box<Request>> {
    let (uri, args) = (r.uri.clone(), r.args.clone());
    let mut part = new(r, &uri, &args, Output::Place)?;
    part.set_location(r.loc().id);
    part.method = r.method;
    part.valid_unparsed_uri = r.valid_unparsed_uri;
    part.valid_location = r.valid_location;
    part.captures.subject.clone_from(&r.captures.subject);
    part.captures.captures.clone_from(&r.captures.captures);
    if let Some(parts) = part.parts.as_deref_mut() {
        parts.again = true;
    }
    Some(part)
}

/// Makes a subrequest: GET with the parent's header fields, and its body if that has been read.
/// `None` when it would be one too many; that is logged.
pub fn new(r: &mut Request, uri: &[u8], args: &[u8], output: Output) -> Option<Box<Request>> {
    let nested = r.parts.as_ref().map_or(0, |p| p.nested) + 1;
    let running = r.parts.as_ref().map_or(0, |p| p.running.len());
    if nested > NESTED_MAX || running >= RUNNING_MAX {
        let shown = String::from_utf8_lossy(uri);
        r.log(LogLevel::Error, &format!("subrequests cycle while processing \"{shown}\""));
        return None;
    }
    let mut part = Box::<Request>::default();
    let conn = Rc::clone(r.conn());
    r.copy_to_part(&mut part, conn);
    part.uri.extend_from_slice(uri);
    part.args.extend_from_slice(args);
    let (sink, top) = match output {
        Output::Place => {
            let parent = r.parts.get_or_insert_with(|| Box::new(Parts::of_main()));
            (Sink::Desk, Some(Rc::clone(&parent.top)))
        }
        Output::Keep => (Sink::Memory(Vec::new()), None),
        Output::Drop => (Sink::Nowhere, None),
    };
    part.parts = Some(Box::new(Parts::new(sink, Rc::default(), top, nested)));
    Some(part)
}

/// Runs a part to its end in the caller's task; `false` when its answer has broken off.
pub async fn run(part: &mut Request) -> bool {
    let ok = Box::pin(phases::run_part(part)).await;
    if *part.loc().core.log_subrequest {
        h1::log_request(part).await;
    }
    ok
}

/// Starts a part as a task. Its answer stands in the parent's body where the parent's output is
/// now, if that is where it goes.
pub fn start(r: &mut Request, part: Box<Request>, ended: Option<Ended>) {
    let parent = r.parts.get_or_insert_with(|| Box::new(Parts::of_main()));
    let Some(own) = part.parts.as_ref() else { return };
    let desk = Rc::clone(&own.desk);
    if matches!(own.sink, Sink::Desk) {
        parent.desk.items.borrow_mut().push_back(Item::Part(Rc::clone(&desk)));
    }
    parent.last_id += 1;
    let id = parent.last_id;
    let (above, top) = (Rc::clone(&parent.desk), Rc::clone(&parent.top));
    let task = tokio::task::spawn_local(async move {
        let mut part = part;
        let ok = run(&mut part).await;
        desk.broken.set(!ok);
        desk.over.set(true);
        above.ended.borrow_mut().push((id, part));
        above.wake();
        top.wake();
    });
    parent.running.push(Running { id, task: task.abort_handle(), ended });
}

/// Sends a copy of the request somewhere and forgets the answer. It outlives the request.
pub fn send_copy(r: &Request, uri: &[u8], args: &[u8]) {
    let conn = match r.nowhere() {
        Ok(conn) => conn,
        Err(e) => return r.log(LogLevel::Crit, &format!("a copy of the request failed ({e})")),
    };
    let mut copy = Box::<Request>::default();
    r.copy_to_part(&mut copy, conn);
    copy.uri.extend_from_slice(uri);
    copy.args.extend_from_slice(args);
    copy.method = r.method;
    copy.header_only = true;
    copy.parts = Some(Box::new(Parts::new(Sink::Nowhere, Rc::default(), None, 1)));
    detached::spawn(&Rc::clone(&r.conn().worker), async move {
        run(&mut copy).await;
    });
}

/// The header of a part is not sent.
pub(crate) fn header(r: &mut Request) {
    r.header_only |= r.method == weir_wire::http1::request::Method::Head;
    r.header_sent = true;
}

/// Body that has passed the filters for one request's own output: it waits for its turn, if it is
/// not its turn already.
pub(crate) fn catch(r: &mut Request, chain: Chain) -> FilterResult {
    let drop_data = r.is_part() && r.header_only;
    let Some(parts) = r.parts.as_deref_mut() else { return Ok(()) };
    if parts.is_part {
        if drop_data || matches!(parts.sink, Sink::Nowhere) {
            return Ok(());
        }
    } else if parts.desk.is_empty() {
        return Next(r.loc().postpone_at).body_now(r, chain);
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
        if let Sink::Memory(bytes) = &mut parts.sink {
            let Some(buf) = desk.take()? else { return Ok(()) };
            let mut bytes = std::mem::take(bytes);
            let kept = keep(&mut bytes, *r.loc().core.subrequest_output_buffer_size, &buf);
            if let Some(parts) = r.parts.as_deref_mut() {
                parts.sink = Sink::Memory(bytes);
            }
            if kept.is_err() {
                r.log(LogLevel::Error, "too big subrequest response");
                return Err(FilterError::Broken);
            }
            continue;
        }
        if matches!(parts.sink, Sink::Nowhere) {
            while desk.take()?.is_some() {}
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
        Next(r.loc().postpone_at).body_now(r, chain)?;
    }
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
            file.read_exact_at(&mut bytes[at..], *offset)?;
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
            if let Some(call) = call {
                call(r, part)?;
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
}

fn waits(r: &Request, until: Until) -> bool {
    let Some(parts) = r.parts.as_deref() else { return false };
    match until {
        Until::Room(leave) => {
            let desk = &parts.desk;
            let held = if parts.is_top() { desk.held() } else { desk.bytes.get() };
            held + desk.kept_back.get() > leave
        }
        Until::End if parts.is_top() => !parts.running.is_empty() || !parts.desk.is_empty(),
        Until::End => !parts.running.is_empty(),
    }
}

fn broken(_: FilterError) -> ConnError {
    ConnError::Io(io::ErrorKind::BrokenPipe.into())
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
        desk.changed.set(false);
        if is_top {
            pump(r).map_err(broken)?;
        }
        // The end of a part may lead to another: not before there is room.
        if desk.held() <= AHEAD_MAX_BYTES {
            reap(r).map_err(broken)?;
            if is_top {
                pump(r).map_err(broken)?;
            }
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
        poll_fn(|cx| {
            desk.wait(cx);
            if desk.changed.get() {
                return Poll::Ready(Ok(()));
            }
            if !to_client {
                return Poll::Pending;
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

/// Waits for all parts of a request whose own answer is complete; `false` when that is in vain.
pub(crate) async fn finish(r: &mut Request) -> bool {
    let done = attend(r, Until::End).await.is_ok();
    if !done && !r.is_part() {
        r.keepalive = false;
        // Half an answer that nobody has seen yet is better not begun.
        if r.stream().is_none() {
            r.conn().drop_output();
        }
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
