//! What a request has of the making of an answer from parts: its desk, where its output waits for its turn,
//! and the parts that run.

use super::page::{Live, Page, Way};
use crate::buf::{Buf, Data};
use crate::flow::{FilterError, FilterResult};
use crate::request::Request;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use weir_runtime::event_loop::Task;

/// What the client has not taken yet beyond which nothing is handed on.
pub(super) const AHEAD_MAX_BYTES: u64 = 256 * 1024;

/// Called with the parent once a part has ended.
pub type Ended = Box<dyn FnOnce(&mut Request, Box<Request>) -> FilterResult>;

/// Answers in a part's stead; the part has no error page and has put out nothing.
pub type Instead = Box<dyn FnOnce(&mut Request) -> FilterResult>;

pub(super) enum Item {
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
pub(super) struct Desk {
    pub(super) page: Rc<Page>,
    /// The desk that this one is a place of.
    pub(super) above: Weak<Desk>,
    pub(super) items: RefCell<VecDeque<Item>>,
    /// Bytes in `items`, without those of parts, and with them.
    pub(super) bytes: Cell<u64>,
    pub(super) bytes_below: Cell<u64>,
    /// Its request is to be woken once less than `AHEAD_MAX_BYTES` wait here and in its parts.
    pub(super) is_full: Cell<bool>,
    /// Bytes that a filter of this request keeps until a part has ended.
    pub(super) kept_back: Cell<u64>,
    /// What has been handed on is to be sent now.
    pub(super) flush: Cell<bool>,
    /// Nothing more will come.
    pub(super) over: Cell<bool>,
    pub(super) broken: Cell<bool>,
    /// Parts of this request that have ended and that it has not looked at.
    pub(super) ended: RefCell<Vec<(u64, Box<Request>)>>,
    /// The task that runs this request, while it waits for room or for its parts.
    pub(super) waker: RefCell<Option<Waker>>,
    pub(super) changed: Cell<bool>,
}

impl Desk {
    pub(super) fn wake(&self) {
        self.changed.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    pub(super) fn wait(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(w) => w.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    pub(super) fn of(page: &Rc<Page>, above: Weak<Desk>) -> Rc<Desk> {
        let mut desk = Rc::new(Desk::default());
        if let Some(desk) = Rc::get_mut(&mut desk) {
            desk.page = Rc::clone(page);
            desk.above = above;
        }
        desk
    }

    pub(super) fn put(&self, buf: Buf) {
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

    pub(super) fn is_empty(&self) -> bool {
        self.items.borrow().is_empty()
    }

    pub(super) fn taken(&self, buf: &Buf) {
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
    pub(super) fn clear(&self) {
        if self.is_empty() {
            return;
        }
        for item in std::mem::take(&mut *self.items.borrow_mut()) {
            if let Item::Data(buf) = item {
                self.taken(&buf);
            }
        }
    }

    /// The next buffer in the order of the whole, if it is there.
    pub(super) fn take(&self) -> Result<Option<Buf>, FilterError> {
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
    pub(super) fn held(&self) -> u64 {
        self.bytes_below.get()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Where the answer of the request at the top, or of this part, goes in the end.
pub(super) enum Sink {
    /// To the client.
    Client,
    /// To the desk, from which the request at the top takes it.
    Desk,
    Memory(Vec<u8>),
    Nowhere,
}

pub(super) struct Running {
    pub(super) id: u64,
    pub(super) task: Task,
    pub(super) ended: Option<Ended>,
}

/// A request's share in the making of an answer from parts.
pub(crate) struct Parts {
    pub(super) desk: Rc<Desk>,
    /// The desk of the request that puts the whole together.
    pub(super) top: Rc<Desk>,
    pub(super) sink: Sink,
    pub(super) is_part: bool,
    pub(super) way: Rc<Way>,
    pub(super) running: Vec<Running>,
    pub(super) last_id: u64,
    pub(super) instead: Option<Instead>,
    /// The most that is kept of its answer, where its location does not decide.
    pub(super) keep_max_bytes: Option<u64>,
    /// It goes on where its parent is: with the content.
    pub(super) again: bool,
    /// An error is told as it is, without a page.
    pub(super) is_bare: bool,
    /// Code looks at its answer, before filters change it.
    pub(super) is_captured: bool,
    /// Of a part: that it is one.
    _live: Option<Live>,
}

impl Parts {
    pub(super) fn of_main(path: &[u8]) -> Parts {
        Parts::new(Sink::Client, Rc::default(), None, Way::of_main(path))
    }

    pub(super) fn of_copy() -> Parts {
        Parts::new(Sink::Nowhere, Rc::default(), None, Way::of_copy())
    }

    pub(super) fn new(sink: Sink, desk: Rc<Desk>, top: Option<Rc<Desk>>, way: Way) -> Parts {
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
            keep_max_bytes: None,
            again: false,
            is_bare: false,
            is_captured: false,
            _live,
        }
    }

    /// Of what it answers nothing is put together, as far as it has come: it goes to its client as it is.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_part && self.last_id == 0 && self.desk.is_empty()
    }

    /// Whether this request puts together what its parts have written.
    pub(super) fn is_top(&self) -> bool {
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
