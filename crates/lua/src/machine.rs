//! What Lua asks, as operations see it.

use crate::conf::LuaLoc;
use crate::crossing::{Answer, Args, Host};
use crate::run::{Run, WaitFor};
use crate::site::{Site, Who};
use crate::vm::Vm;
use crate::watch::Verdict;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::Session as _;
use weir_http::Request;
use weir_stream::Session;

/// What is in an answer.
pub(crate) mod code {
    pub(crate) const NIL: i32 = 0;
    pub(crate) const TRUE: i32 = 1;
    pub(crate) const TEXT: i32 = 2;
    pub(crate) const NUMBER: i32 = 3;
    pub(crate) const FALSE: i32 = 4;
    /// Several values, each behind a byte that says what it is ([`List`](super::List)).
    pub(crate) const LIST: i32 = 5;
    /// The same, names and values by turns, as one table.
    pub(crate) const TABLE: i32 = 6;
    /// The same, of which not all is there.
    pub(crate) const CUT_TABLE: i32 = 7;
    /// Places in a text as pairs of numbers, for whom reads them by the FFI; and where it is a finalizer that does so.
    pub(crate) const PLACES: i32 = 9;
    pub(crate) const PLACES_LATE: i32 = 10;
    /// What an operation that was called by the FFI has answered a finalizer, which does not read it where code does.
    pub(crate) const TEXT_LATE: i32 = 11;
    pub(crate) const NUMBER_LATE: i32 = 12;
    /// A dictionary has let go of others for it.
    pub(crate) const FORCED: i32 = 13;
    /// It is to be asked for otherwise.
    pub(crate) const OTHERWISE: i32 = 99;
    /// `nil` and the text of an error.
    pub(crate) const FAILED: i32 = -1;
    /// An error that is raised.
    pub(crate) const RAISED: i32 = -2;
    pub(crate) const NO_REQUEST: i32 = -3;
    /// Not in this phase.
    pub(crate) const FORBIDDEN: i32 = -4;
    /// The same, of what is the request's own.
    pub(crate) const FORBIDDEN_NOW: i32 = -5;
    /// The coroutine is to wait for the number that the answer has.
    pub(crate) const WAITS: i32 = 100;
    /// The coroutine's run is to end.
    pub(crate) const LEAVES: i32 = 101;
}

/// What an entry lends to Lua.
pub(crate) struct State<'a> {
    /// `None` in timers and while a worker begins or ends, and in `stream`.
    pub r: Option<&'a mut Request>,
    /// In `stream`, likewise.
    pub s: Option<&'a mut Session>,
    pub run: &'a mut Run,
    pub vm: &'a Vm,
}

/// One operation.
pub(crate) type Op = fn(&mut State<'_>, &Args<'_>, &mut Answer) -> i32;

/// One operation of a request's.
pub(crate) type RequestOp = fn(&mut Request, &Args<'_>, &mut Answer) -> i32;

/// One operation of a session's.
pub(crate) type SessionOp = fn(&mut Session, &Args<'_>, &mut Answer) -> i32;

/// An operation's name on the Lua side, the contexts it may be called in, and what it does.
pub(crate) struct OpRow {
    pub name: &'static str,
    /// Of [`crate::run::context`].
    pub contexts: u32,
    pub does: Does,
}

pub(crate) enum Does {
    Any(Op),
    /// It needs a request.
    Request(RequestOp),
    /// It needs a session.
    Session(SessionOp),
    /// One of the two.
    Either(RequestOp, SessionOp),
}

impl OpRow {
    pub(crate) const fn any(name: &'static str, contexts: u32, op: Op) -> OpRow {
        OpRow { name, contexts, does: Does::Any(op) }
    }

    pub(crate) const fn request(name: &'static str, contexts: u32, op: RequestOp) -> OpRow {
        OpRow { name, contexts, does: Does::Request(op) }
    }

    pub(crate) const fn session(name: &'static str, contexts: u32, op: SessionOp) -> OpRow {
        OpRow { name, contexts, does: Does::Session(op) }
    }

    pub(crate) const fn either(
        name: &'static str,
        contexts: u32,
        of_request: RequestOp,
        of_session: SessionOp,
    ) -> OpRow {
        OpRow { name, contexts, does: Does::Either(of_request, of_session) }
    }
}

impl Host for State<'_> {
    fn call(&mut self, op: i32, args: &Args<'_>, answer: &mut Answer) -> i32 {
        let Some(row) = crate::api::ops().get(op as usize) else { return code::NIL };
        let context = self.run.context;
        if context & row.contexts == 0 {
            if matches!(row.does, Does::Request(_) | Does::Either(..)) {
                return code::FORBIDDEN_NOW;
            }
            answer.text.extend_from_slice(crate::run::context::shown(context).as_bytes());
            return code::FORBIDDEN;
        }
        match row.does {
            Does::Any(op) => op(self, args, answer),
            Does::Request(op) => match self.r.as_deref_mut() {
                Some(r) => op(r, args, answer),
                None => code::NO_REQUEST,
            },
            Does::Session(op) => match self.s.as_deref_mut() {
                Some(s) => op(s, args, answer),
                None => code::NO_REQUEST,
            },
            Does::Either(of_request, of_session) => {
                match (self.r.as_deref_mut(), self.s.as_deref_mut()) {
                    (Some(r), _) => of_request(r, args, answer),
                    (None, Some(s)) => of_session(s, args, answer),
                    (None, None) => code::NO_REQUEST,
                }
            }
        }
    }

    fn overdue(&mut self, ms: u64, place: &str) -> Verdict {
        crate::watch::overdue(self, ms, place)
    }

    fn sampled(&mut self, turns: u64, stack: &str) {
        crate::profile::sampled(self, turns, stack);
    }
}

impl<'a> State<'a> {
    /// What is lent for an entry.
    pub(crate) fn of(who: Who<'a>, run: &'a mut Run, vm: &'a Vm) -> State<'a> {
        let (r, s) = match who {
            Who::Nobody => (None, None),
            Who::Request(r) => (Some(r), None),
            Who::Session(s) => (None, Some(s)),
        };
        State { r, s, run, vm }
    }
}

impl State<'_> {
    /// Whose settings are in force: a timer has those of the code that has begun it, a worker that begins the block's.
    pub(crate) fn site(&self) -> Option<Site> {
        let outer = || Some(Site::Outer(Arc::clone(self.vm.main()?.outer.as_ref()?)));
        match (&self.r, &self.s) {
            (Some(r), _) => Some(Site::Location(Rc::clone(r.loc()))),
            (None, Some(s)) => Some(Site::Server(Arc::clone(s.base()))),
            (None, None) => self.run.site.clone().or_else(outer),
        }
    }

    /// A setting that is in force here.
    pub(crate) fn setting<T>(&self, of: impl FnOnce(&LuaLoc) -> T) -> Option<T> {
        self.site().map(|site| of(site.conf()))
    }

    /// The coroutine is to wait.
    pub(crate) fn wait(&mut self, what: WaitFor, answer: &mut Answer) -> i32 {
        answer.x = self.run.wait(self.vm, what) as f64;
        code::WAITS
    }
}

impl Answer {
    /// A text.
    pub(crate) fn text(&mut self, text: &[u8]) -> i32 {
        self.text.extend_from_slice(text);
        code::TEXT
    }

    /// A number.
    pub(crate) fn number(&mut self, number: f64) -> i32 {
        self.x = number;
        code::NUMBER
    }

    /// `nil` and why.
    pub(crate) fn fail(&mut self, why: impl AsRef<[u8]>) -> i32 {
        self.text.clear();
        self.text.extend_from_slice(why.as_ref());
        code::FAILED
    }

    /// An error.
    pub(crate) fn raise(&mut self, why: impl AsRef<[u8]>) -> i32 {
        self.fail(why);
        code::RAISED
    }

    /// Several values follow.
    pub(crate) fn list(&mut self) -> List<'_> {
        List(&mut self.text)
    }
}

/// Several values, written one after the other.
pub(crate) struct List<'a>(pub(crate) &'a mut Vec<u8>);

impl List<'_> {
    pub(crate) fn nil(&mut self) -> &mut Self {
        self.0.push(0);
        self
    }

    pub(crate) fn boolean(&mut self, value: bool) -> &mut Self {
        self.0.push(if value { 1 } else { 4 });
        self
    }

    pub(crate) fn text(&mut self, text: &[u8]) -> &mut Self {
        self.0.push(2);
        self.0.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.0.extend_from_slice(text);
        self
    }

    /// What follows is one table, of names and values by turns.
    pub(crate) fn table(&mut self) -> &mut Self {
        self.0.push(5);
        self
    }

    pub(crate) fn number(&mut self, number: f64) -> &mut Self {
        self.0.push(3);
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }
}

/// The items of a text that Lua has packed: each behind its length and a colon.
pub(crate) fn items(mut text: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let Some(at) = memchr::memchr(b':', text) {
        let length = std::str::from_utf8(&text[..at]).ok().and_then(|l| l.parse::<usize>().ok());
        let Some(item) = length.and_then(|l| text.get(at + 1..at + 1 + l)) else { break };
        all.push(item);
        text = &text[at + 1 + item.len()..];
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_items() {
        assert_eq!(items(b"1:a0:3:b:c"), [&b"a"[..], b"", b"b:c"]);
        assert_eq!(items(b"5:abc"), [] as [&[u8]; 0]);
        assert_eq!(items(b""), [] as [&[u8]; 0]);
    }
}
