//! `lua_malloc_trim`: a worker gives back memory that is free, after so many requests or sessions.

use crate::conf::LuaLoc;
use std::cell::Cell;
use std::rc::Rc;
use weir_core::{Session as _, Worker};
use weir_http::module::{Flow, Phase, PhaseHandler};
use weir_http::Request;
use weir_module::Slots;
use weir_runtime::memory;

/// How many a worker has served since it last gave memory back.
#[derive(Default)]
struct Served(Cell<u64>);

pub(crate) const PHASE: PhaseHandler =
    PhaseHandler { phase: Phase::Log, handler: of_request, active: is_active };

/// The same for sessions of `stream`.
pub(crate) const OF_STREAM: weir_stream::PhaseHandler = weir_stream::PhaseHandler {
    phase: weir_stream::Phase::Log,
    handler: of_session,
    active: is_active,
};

fn is_active(slots: &Slots) -> bool {
    *slots.get::<LuaLoc>().malloc_trim > 0
}

fn count(worker: &Rc<Worker>, every: u64) {
    let served = worker.local::<Served>();
    let n = served.0.get() + 1;
    if n < every {
        return served.0.set(n);
    }
    served.0.set(0);
    memory::give_back();
}

fn of_request(r: &mut Request) -> Flow {
    let every = *r.loc().conf::<LuaLoc>().malloc_trim;
    count(&r.conn().worker, every);
    Flow::Declined
}

fn of_session(s: &mut weir_stream::Session) -> weir_stream::Flow {
    let every = *s.base().conf::<LuaLoc>().malloc_trim;
    count(&s.conn().worker, every);
    weir_stream::Flow::Declined
}
