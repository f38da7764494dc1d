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
//! at once is not half sent. What the parts of a page take together, in number and in memory, is
//! counted for the page as a whole ([`page`]), however they are nested.
//!
//! Differences from nginx: variables set in a part stay there; an answer that breaks off closes the
//! client's connection also when the part had not begun to send.

mod page;

use crate::buf::{Buf, Chain, Data};
use crate::client_watch::ClientWatch;
use crate::detached::Ticket;
use crate::h1;
use crate::module::{FilterError, FilterResult, Next};
use crate::phases;
use crate::request::Request;
use page::{Live, Page, Way};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use tokio::task::AbortHandle;
use weir_core::logger::LogLevel;
use weir_core::ConnError;
use weir_core::Session;
use weir_runtime::clock;

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

/// What a buffer takes of memory while it waits.
fn memory(buf: &Buf) -> u64 {
    let data = if let Data::Mem(data) = &buf.data { data.len() } else { 0 };
    (data + size_of::<Item>()) as u64
}

/// Where the output of one request waits for its turn.
#[derive(Default)]
struct Desk {
    page: Rc<Page>,
    /// The desk that this one is a place of.
    above: Weak<Desk>,
    items: RefCell<VecDeque<Item>>,
    /// Bytes in `items`, without those of parts, and with them.
    bytes: Cell<u64>,
    bytes_below: Cell<u64>,
    /// Its request is to be woken once less than `AHEAD_MAX_BYTES` wait here and in its parts.
    is_full: Cell<bool>,
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

    fn of(page: &Rc<Page>, above: Weak<Desk>) -> Rc<Desk> {
        let mut desk = Rc::new(Desk::default());
        if let Some(desk) = Rc::get_mut(&mut desk) {
            desk.page = Rc::clone(page);
            desk.above = above;
        }
        desk
    }

    fn put(&self, buf: Buf) {
        let len = buf.len();
        self.bytes.set(self.bytes.get() + len);
        self.bytes_below.set(self.bytes_below.get() + len);
        let mut above = self.above.upgrade();
        while let Some(desk) = above {
            desk.bytes_below.set(desk.bytes_below.get() + len);
            above = desk.above.upgrade();
        }
        self.page.bytes.set(self.page.bytes.get() + memory(&buf));
        self.items.borrow_mut().push_back(Item::Data(buf));
    }

    fn is_empty(&self) -> bool {
        self.items.borrow().is_empty()
    }

    fn taken(&self, buf: &Buf) {
        let len = buf.len();
        self.bytes.set(self.bytes.get() - len);
        self.page.bytes.set(self.page.bytes.get() - memory(buf));
        self.less_below(len);
        let mut above = self.above.upgrade();
        while let Some(desk) = above {
            desk.less_below(len);
            above = desk.above.upgrade();
        }
    }

    fn less_below(&self, len: u64) {
        let below = self.bytes_below.get() - len;
        self.bytes_below.set(below);
        if self.is_full.get() && below <= AHEAD_MAX_BYTES {
            self.is_full.set(false);
            self.wake();
        }
    }

    /// Lets go of what nobody will take.
    fn clear(&self) {
        for item in std::mem::take(&mut *self.items.borrow_mut()) {
            if let Item::Data(buf) = item {
                self.taken(&buf);
            }
        }
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
                    drop(items);
                    self.taken(&buf);
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
        self.bytes_below.get()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.clear();
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
    way: Rc<Way>,
    running: Vec<Running>,
    last_id: u64,
    instead: Option<Instead>,
    /// It goes on where its parent is: with the content.
    again: bool,
    /// Of a part: that it is one.
    _live: Option<Live>,
}

impl Parts {
    fn of_main(path: &[u8]) -> Parts {
        Parts::new(Sink::Client, Rc::default(), None, Way::of_main(path))
    }

    fn of_copy() -> Parts {
        Parts::new(Sink::Nowhere, Rc::default(), None, Way::of_copy())
    }

    fn new(sink: Sink, desk: Rc<Desk>, top: Option<Rc<Desk>>, way: Way) -> Parts {
        let is_part = !matches!(sink, Sink::Client);
        let top = top.unwrap_or_else(|| Rc::clone(&desk));
        let _live = is_part.then(|| Live::new(&desk.page));
        Parts {
            desk,
            top,
            sink,
            is_part,
            way: Rc::new(way),
            running: Vec::new(),
            last_id: 0,
            instead: None,
            again: false,
            _live,
        }
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
            self.desk.clear();
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

/// What waits for its turn besides what the client is sent: bytes of parts, and input kept back.
pub(crate) fn held(r: &Request) -> u64 {
    r.parts.as_ref().map_or(0, |p| {
        let kept_back = p.desk.kept_back.get();
        kept_back + if p.is_part { 0 } else { p.desk.held() }
    })
}

/// What this request has put out itself and what waits behind its parts, besides what is queued.
pub(crate) fn own_waiting(r: &Request) -> u64 {
    r.parts.as_ref().map_or(0, |p| if p.is_part { 0 } else { p.desk.bytes.get() })
}

/// Whether a part's output is to be taken before it makes more: its page has much that waits.
pub(crate) fn must_be_empty(r: &Request) -> bool {
    r.parts.as_ref().is_some_and(|p| p.is_part && p.desk.page.is_ahead())
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
    let mut part = make(r, &uri, &args, Output::Place, Page::has_room)?;
    part.set_location(r.loc().id);
    part.method = r.method;
    part.valid_unparsed_uri = r.valid_unparsed_uri;
    part.valid_location = r.valid_location;
    part.values.captures.copy_from(&r.values.captures);
    if let Some(parts) = part.parts.as_deref_mut() {
        parts.again = true;
    }
    Some(part)
}

fn parent(r: &mut Request) -> &mut Parts {
    let Request { parts, uri, .. } = r;
    parts.get_or_insert_with(|| Box::new(Parts::of_main(uri)))
}

/// Whether so many parts of the page run already that a document should wait for its own.
pub fn is_crowded(r: &Request) -> bool {
    r.parts.as_ref().is_some_and(|p| p.desk.page.is_crowded())
}

/// Makes a subrequest: GET with the parent's header fields, and its body if that has been read.
/// `None` when it would be one too many; that is logged.
pub fn new(r: &mut Request, uri: &[u8], args: &[u8], output: Output) -> Option<Box<Request>> {
    make(r, uri, args, output, Page::admit)
}

fn make(
    r: &mut Request,
    uri: &[u8],
    args: &[u8],
    output: Output,
    admit: fn(&Page, &Way) -> Result<(), page::Full>,
) -> Option<Box<Request>> {
    let (page, way) = match (&r.parts, output) {
        // Nothing of it stays: no page begins with it.
        (None, Output::Drop) => (Rc::default(), Rc::new(Way::of_main(&r.uri))),
        _ => {
            let parent = parent(r);
            (Rc::clone(&parent.desk.page), Rc::clone(&parent.way))
        }
    };
    let way = Way::to(&way, uri);
    if let Err(why) = admit(&page, &way) {
        if page.is_news(why) {
            let shown = String::from_utf8_lossy(uri);
            r.log(LogLevel::Error, &format!("{} while processing \"{shown}\"", why.text()));
        }
        return None;
    }
    let mut part = Box::<Request>::default();
    let conn = Rc::clone(r.conn());
    r.copy_to_part(&mut part, conn);
    part.uri.extend_from_slice(uri);
    part.args.extend_from_slice(args);
    let (sink, top, above) = match output {
        Output::Place => {
            let parent = parent(r);
            (Sink::Desk, Some(Rc::clone(&parent.top)), Rc::downgrade(&parent.desk))
        }
        Output::Keep => (Sink::Memory(Vec::new()), None, Weak::new()),
        Output::Drop => (Sink::Nowhere, None, Weak::new()),
    };
    part.parts = Some(Box::new(Parts::new(sink, Desk::of(&page, above), top, way)));
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
    let parent = parent(r);
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

/// Sends a copy of the request somewhere and forgets the answer. It outlives the request; none is
/// sent while too many are under way.
pub fn send_copy(r: &Request, uri: &[u8], args: &[u8]) {
    let Some(ticket) = Ticket::take(r) else { return };
    let mut copy = Box::<Request>::default();
    r.copy_to_part(&mut copy, r.nowhere());
    copy.uri.extend_from_slice(uri);
    copy.args.extend_from_slice(args);
    copy.method = r.method;
    copy.header_only = true;
    copy.parts = Some(Box::new(Parts::of_copy()));
    ticket.spawn(async move {
        run(&mut copy).await;
        if copy.failed_by_match() {
            let shown = String::from_utf8_lossy(&copy.uri);
            let text = format!("mirror subrequest \"{shown}\" ends with 500: a match was given up");
            copy.log(LogLevel::Error, &text);
        }
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
        Next(r.loc().plan.postpone_at).body_now(r, chain)?;
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
        Until::Dropped => true,
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
        let full = desk.held() > AHEAD_MAX_BYTES;
        desk.is_full.set(full);
        if !full {
            reap(r).map_err(broken)?;
            if is_top {
                pump(r).map_err(broken)?;
            }
        }
        // The end of a part has led to more than there was room for.
        if !matches!(until, Until::Room(_)) && r.can_resume() {
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
        poll_fn(|cx| {
            desk.wait(cx);
            if desk.changed.get() {
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

/// Lets parts go on until it is dropped: the request's own answer is waited for meanwhile.
pub(crate) async fn go_on(r: &mut Request) -> Result<(), ConnError> {
    attend(r, Until::Dropped).await
}

/// Waits until filters have let go of a request's answer, which may lead to parts, and for all its
/// parts; `false` when that is in vain.
pub(crate) async fn finish(r: &mut Request) -> bool {
    if r.holds() && Box::pin(r.drain(AHEAD_MAX_BYTES)).await.is_err() {
        r.held.clear();
        r.unsent = true;
        return !r.is_part();
    }
    let done = attend(r, Until::End).await.is_ok();
    if !done {
        r.held.clear();
    }
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
