//! What handlers and filters are: functions of a request, and what they may answer.

use crate::buf::Chain;
use crate::request::Request;
use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};
use weir_core::LocalFuture;
use weir_module::Slots;

/// nginx's phases, in order. Find-config, post-rewrite and post-access are the engine's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// `realip`.
    PostRead,
    /// The server's own rewrite rules, before there is a location.
    ServerRewrite,
    /// The location's.
    Rewrite,
    /// How many there may be.
    Preaccess,
    /// Who may; `satisfy` is for these.
    Access,
    /// `try_files`, `mirror`.
    Precontent,
    /// The answer is made.
    Content,
    /// It is over.
    Log,
}

impl Phase {
    pub(crate) const COUNT: usize = 8;
    pub(crate) const BEFORE_CONTENT: [Phase; Phase::Content as usize] = [
        Phase::PostRead,
        Phase::ServerRewrite,
        Phase::Rewrite,
        Phase::Preaccess,
        Phase::Access,
        Phase::Precontent,
    ];
}

/// The part of a handler that waits.
pub type WaitFn = for<'a> fn(&'a mut Request) -> LocalFuture<'a, Flow>;

/// What a handler decided.
pub enum Flow {
    /// Nothing to say: the next handler of the phase.
    Declined,
    /// Decided: go on with the next phase; from a content handler, the response is complete.
    Ok,
    /// Answer with this status: nginx's finalisation, `error_page` included.
    Status(u16),
    /// Go on in this function, which may wait.
    Wait(WaitFn),
    /// The URI changed: find the server's rewrite rules and the location again.
    Redirect,
    /// A named location was entered: go on at its rewrite phase.
    Named,
    /// Close the connection without an answer (444, client gone, half-sent response).
    Close,
}

/// What a module does in a phase; it does not wait ([`Flow::Wait`]).
pub type Handler = fn(&mut Request) -> Flow;

/// Whether the merged configuration of a location gives a handler or filter anything to do.
pub type Active = fn(&Slots) -> bool;

/// A handler, and the phase it is for.
pub struct PhaseHandler {
    /// Handlers of a phase are asked in the order of the modules.
    pub phase: Phase,
    /// It is called anew after a redirect.
    pub handler: Handler,
    /// Whether a location keeps it.
    pub active: Active,
}

/// What can go wrong while output is filtered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterError {
    /// Answer with this status instead; only before the header is sent.
    Status(u16),
    /// The response cannot be completed: close the connection.
    Broken,
}

/// Whether the response goes on.
pub type FilterResult = Result<(), FilterError>;

/// The filters behind the one that is running.
#[derive(Clone, Copy)]
pub struct Next(pub(crate) usize);

/// Changes the header, and calls the filters behind it, at once or later ([`Request::wait_in_header`]).
pub type HeaderFilter = fn(&mut Request, Next) -> FilterResult;
/// The same for a part of the body ([`Request::wait_in_body`]).
pub type BodyFilter = fn(&mut Request, Chain, Next) -> FilterResult;

/// Which answers a filter sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Each, a subrequest's too, before they are put together; what code captures of one as well.
    Every,
    /// As `Every`, but nothing that is captured.
    Part,
    /// The main request's own, before those of its subrequests are put into it.
    Main,
    /// The whole, put together. These filters come last in the list.
    Whole,
}

/// A module's place in the filter chains. Filters run in the order of the module list.
pub struct Filter {
    /// `None`: it is passed over.
    pub header: Option<HeaderFilter>,
    /// As `header`.
    pub body: Option<BodyFilter>,
    /// Whether a location keeps it.
    pub active: Active,
    /// Which answers it sees.
    pub reach: Reach,
}

/// Goes on with the input that a filter has kept; `Next` is the one it was given with it.
pub type Resume = fn(&mut Request, Next) -> FilterResult;

/// A filter that keeps input.
pub(crate) struct Held {
    /// Those behind its body filter.
    pub next: Next,
    pub why: Why,
}

/// What it keeps its input for.
pub(crate) enum Why {
    /// Less than so many bytes are to wait for the client.
    Room { bytes: u64, resume: Resume },
    /// Something is to come; what has come to its body meanwhile.
    Wait { waiting: Rc<Waiting>, kept: Chain },
}

/// What a filter does once it has what it waited for.
pub(crate) type GoOn = Box<dyn FnOnce(&mut Request) -> FilterResult>;

/// What a filter waits for. Whoever waits for it may be given up and begin again, so it is not theirs.
pub(crate) struct Waiting(RefCell<Wait>);

enum Wait {
    Before(LocalFuture<'static, GoOn>),
    Over(Option<GoOn>),
}

impl Waiting {
    pub(crate) fn new(future: LocalFuture<'static, GoOn>) -> Waiting {
        Waiting(RefCell::new(Wait::Before(future)))
    }

    /// Whether it has come; otherwise the task is woken when it has.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut wait = self.0.borrow_mut();
        if let Wait::Before(future) = &mut *wait {
            match future.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(go_on) => *wait = Wait::Over(Some(go_on)),
            }
        }
        Poll::Ready(())
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.0.borrow(), Wait::Over(_))
    }

    pub(crate) fn take(&self) -> Option<GoOn> {
        match &mut *self.0.borrow_mut() {
            Wait::Before(_) => None,
            Wait::Over(go_on) => go_on.take(),
        }
    }
}

pub use weir_core::variables::VarArg;
/// Of requests.
pub type Getter = weir_core::variables::Getter<Request>;
/// Of requests.
pub type VarSetter = weir_core::variables::Setter<Request>;
/// Of requests.
pub type Variable = weir_core::variables::Variable<Request>;
