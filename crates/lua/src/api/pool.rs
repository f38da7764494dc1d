//! Pools of connections that sockets of Lua's keep (`setkeepalive`), and their bounds (`pool_size`, `backlog`).
//!
//! A pool is there as long as a connection of it is, idle or in use. Where a bound for the ones in use was said
//! (`backlog`), who finds none free waits for its turn. Idle ones are looked over by one task while there are any.

use super::line::Line;
use super::socket::{sock, Connecting};
use crate::crossing::{Answer, Args};
use crate::machine::{code, State};
use crate::run::{Reply, Told, WaitFor};
use crate::vm::Vm;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use weir_core::logger::LogLevel;
use weir_runtime::{clock, event_loop, timer};

/// How often idle connections are looked at, whether they were closed.
const LOOK_MS: u64 = 200;

struct Idle {
    line: Line,
    reused: u32,
    /// Closed then; 0 for never.
    until_ms: u64,
    place: Place,
}

struct Pool {
    name: Vec<u8>,
    vm: Weak<Vm>,
    size: Cell<usize>,
    /// How many may wait where `size` connections are there; nothing where nobody waits.
    backlog: Cell<Option<usize>>,
    /// In use and idle.
    connections: Cell<usize>,
    idle: RefCell<Vec<Idle>>,
    waiting: RefCell<VecDeque<Rc<Told>>>,
}

/// A connection counts for its pool as long as this lives.
pub(super) struct Place(Rc<Pool>);

impl Place {
    fn new(pool: &Rc<Pool>) -> Place {
        pool.connections.set(pool.connections.get() + 1);
        Place(Rc::clone(pool))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let pool = &self.0;
        pool.connections.set(pool.connections.get() - 1);
        pool.next_turn();
        if pool.connections.get() > 0 || !pool.waiting.borrow().is_empty() {
            return;
        }
        let Some(vm) = pool.vm.upgrade() else { return };
        // Whoever has made another one of that name in the meantime keeps it.
        let mut all = vm.pools.0.borrow_mut();
        if all.get(&pool.name).is_some_and(|known| Rc::ptr_eq(known, pool)) {
            all.remove(&pool.name);
            drop(all);
            let name = String::from_utf8_lossy(&pool.name);
            debug(&vm, || format!("lua tcp socket keepalive: free connection pool for \"{name}\""));
        }
    }
}

impl Pool {
    fn next_turn(&self) {
        if let Some(told) = self.waiting.borrow_mut().pop_front() {
            told.tell(Reply::ok());
        }
    }

    /// The one that was used last and is still there.
    fn take(&self) -> Option<Idle> {
        loop {
            let kept = self.idle.borrow_mut().pop()?;
            if is_quiet(&kept.line) {
                return Some(kept);
            }
        }
    }

    fn has_room(&self) -> bool {
        self.backlog.get().is_none() || self.connections.get() < self.size.get()
    }
}

/// As far as the event loop has seen: nothing more has come, nor the end.
fn is_quiet(line: &Line) -> bool {
    matches!(line.peek(), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
}

/// Those of a state, by their names.
#[derive(Default)]
pub(crate) struct Pools(RefCell<foldhash::HashMap<Vec<u8>, Rc<Pool>>>, Cell<bool>);

impl Pools {
    fn find(&self, name: &[u8]) -> Option<Rc<Pool>> {
        self.0.borrow().get(name).map(Rc::clone)
    }

    /// The one of that name, made if there is none.
    fn of(&self, vm: &Rc<Vm>, name: &[u8], size: usize, backlog: Option<usize>) -> Rc<Pool> {
        if let Some(found) = self.find(name) {
            return found;
        }
        let shown = String::from_utf8_lossy(name);
        debug(vm, || {
            format!("lua tcp socket keepalive create connection pool for key \"{shown}\"")
        });
        debug(vm, || format!("lua tcp socket connection pool size: {size}"));
        debug(vm, || format!("lua tcp socket connection pool backlog: {}", shown_backlog(backlog)));
        let fresh = Rc::new(Pool {
            name: name.to_vec(),
            vm: Rc::downgrade(vm),
            size: Cell::new(size.max(1)),
            backlog: Cell::new(backlog),
            connections: Cell::new(0),
            idle: RefCell::default(),
            waiting: RefCell::default(),
        });
        self.0.borrow_mut().insert(name.to_vec(), Rc::clone(&fresh));
        fresh
    }

    /// Closes what was closed or has waited for its time; how long until the next look, if anything is left.
    fn look(&self, vm: &Vm) -> Option<u64> {
        let (now, mut next) = (clock::mono_ms(), None);
        let all: Vec<Rc<Pool>> = self.0.borrow().values().map(Rc::clone).collect();
        for pool in all {
            let old = std::mem::take(&mut *pool.idle.borrow_mut());
            let late = |kept: &Idle| kept.until_ms > 0 && kept.until_ms <= now;
            let (gone, left): (Vec<_>, Vec<_>) =
                old.into_iter().partition(|kept| late(kept) || !is_quiet(&kept.line));
            for kept in &left {
                let in_ms = if kept.until_ms == 0 { LOOK_MS } else { kept.until_ms - now };
                next = Some(next.unwrap_or(LOOK_MS).min(in_ms));
            }
            *pool.idle.borrow_mut() = left;
            for kept in gone {
                let text = match late(&kept) {
                    true => "lua tcp socket keepalive max idle timeout",
                    false => "lua tcp socket keepalive close handler check stale events",
                };
                debug(vm, || text.to_owned());
                debug(vm, || {
                    format!("lua tcp socket keepalive close handler: fd:{}", kept.line.fd())
                });
            }
        }
        next
    }

    fn start_looking(&self, vm: &Rc<Vm>) {
        if self.1.replace(true) {
            return;
        }
        let vm = Rc::downgrade(vm);
        event_loop::spawn(async move {
            let mut wait = 0;
            loop {
                if wait > 0 {
                    timer::sleep_ms(wait).await;
                }
                let Some(vm) = vm.upgrade() else { return };
                match vm.pools.look(&vm) {
                    Some(ms) => wait = ms.max(1),
                    None => return vm.pools.1.set(false),
                }
            }
        });
    }
}

impl Drop for Pools {
    /// Idle connections hold their pools, which hold them.
    fn drop(&mut self) {
        for pool in self.0.take().into_values() {
            let idle = std::mem::take(&mut *pool.idle.borrow_mut());
            drop(idle);
        }
    }
}

fn shown_backlog(backlog: Option<usize>) -> String {
    backlog.map_or("-1".to_owned(), |n| n.to_string())
}

fn debug(vm: &Vm, text: impl FnOnce() -> String) {
    if vm.gen.error_log.enabled(LogLevel::Debug) {
        vm.log(LogLevel::Debug, &text());
    }
}

/// Takes a connection out of the pool `a`: how often it was used, or nothing where one is to be made. `x`: how many
/// connections there may be, `y`: how many may wait for one; below 0 where that is not bounded.
pub(super) fn pooled(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return code::NIL };
    let backlog = (args.y >= 0.0).then_some(args.y as usize);
    let vm = Rc::clone(&state.run.vm);
    let pool = match (backlog, vm.pools.find(args.a)) {
        (_, Some(pool)) => pool,
        (Some(_), None) => vm.pools.of(&vm, args.a, args.x as usize, backlog),
        (None, None) => return code::NIL,
    };
    let goes_first = pool.waiting.borrow().is_empty();
    if let Some(kept) = pool.take().filter(|_| goes_first) {
        let reused = sock.borrow_mut().put_kept(kept.line, kept.reused + 1, Some(kept.place));
        debug(&vm, || "lua tcp socket get keepalive peer: using connection".to_owned());
        return answer.number(f64::from(reused));
    }
    if goes_first && pool.has_room() {
        if pool.backlog.get().is_some() {
            sock.borrow_mut().hold(Place::new(&pool));
        }
        return code::NIL;
    }
    if pool.waiting.borrow().len() >= pool.backlog.get().unwrap_or_default() {
        return answer.fail("too many waiting connect operations");
    }
    let timeout = sock.borrow().timeouts().0;
    let connecting = Connecting::new(sock);
    let turn = Turn { pool, told: Rc::default() };
    turn.pool.waiting.borrow_mut().push_back(Rc::clone(&turn.told));
    state.wait(
        WaitFor::Future(Box::pin(async move {
            let (turn, connecting) = (turn, connecting);
            if timer::within_ms(timeout, poll_fn(|cx| turn.told.poll(cx))).await.is_none() {
                return Reply::fail("timeout");
            }
            let mut sock = connecting.over();
            match turn.pool.take() {
                Some(kept) => {
                    let place = Some(kept.place);
                    let reused = sock.put_kept(kept.line, kept.reused + 1, place);
                    Reply { code: code::NUMBER, x: f64::from(reused), text: Vec::new() }
                }
                None => {
                    sock.hold(Place::new(&turn.pool));
                    Reply { code: code::NIL, ..Reply::default() }
                }
            }
        })),
        answer,
    )
}

/// Somebody's place among those that wait.
struct Turn {
    pool: Rc<Pool>,
    told: Rc<Told>,
}

impl Drop for Turn {
    /// Who has gone without its turn leaves the row; a turn that nobody has taken is the next one's.
    fn drop(&mut self) {
        let mut waiting = self.pool.waiting.borrow_mut();
        match waiting.iter().position(|told| Rc::ptr_eq(told, &self.told)) {
            Some(at) => drop(waiting.remove(at)),
            None => {
                drop(waiting);
                if self.pool.has_room() || !self.pool.idle.borrow().is_empty() {
                    self.pool.next_turn();
                }
            }
        }
    }
}

/// Puts the connection into the pool `a`, for `x` milliseconds; of `y` at most.
pub(super) fn keep(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    let mut sock = sock.borrow_mut();
    let (line, reused, place) = match sock.give() {
        Ok(given) => given,
        Err(why) => return answer.fail(why),
    };
    // What has come meanwhile, or the end, may not have been seen.
    if !matches!(line.peek_now(), Err(e) if e.kind() == io::ErrorKind::WouldBlock) {
        sock.put_back(line, reused, place);
        return answer.fail("connection in dubious state");
    }
    drop(sock);
    let vm = Rc::clone(&state.run.vm);
    let pool = vm.pools.of(&vm, args.a, args.y as usize, None);
    match args.x > 0.0 {
        true => debug(&vm, || format!("lua tcp socket keepalive timeout: {} ms", args.x)),
        false => debug(&vm, || "lua tcp socket keepalive timeout: unlimited".to_owned()),
    }
    let place = match place {
        Some(place) if Rc::ptr_eq(&place.0, &pool) => place,
        other => {
            drop(other);
            Place::new(&pool)
        }
    };
    let until_ms = if args.x > 0.0 { clock::mono_ms() + args.x as u64 } else { 0 };
    let oldest = {
        let mut idle = pool.idle.borrow_mut();
        idle.push(Idle { line, reused, until_ms, place });
        (idle.len() > pool.size.get()).then(|| idle.remove(0))
    };
    drop(oldest);
    pool.next_turn();
    vm.pools.start_looking(&vm);
    code::TRUE
}
