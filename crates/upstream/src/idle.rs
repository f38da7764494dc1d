//! A worker's idle connections to the servers of one upstream.
//!
//! nginx closes the oldest as soon as there is one more than `keepalive` says. With more clients than
//! that a burst of answers so closes what the next burst of requests opens again: one connect for every
//! two to four requests. Here what is above the number stays a moment longer. These connections, the
//! *spare* ones, are bounded in number for all the upstreams of a worker together, and there are none
//! where a server or the system would feel them: `max_conns`, servers that give a process to each
//! connection, descriptors that run out, the end of a configuration.

use crate::counted::Uses;
use crate::group::KeepAlive;
use crate::link::Link;
use crate::peers::PeerId;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::Worker;

/// Connections above the number are looked over so often while there are any,
const TICK_MS: u64 = 50;
/// and are closed when they have waited at so many looks: after 0.5 s at most. What counts is looks and
/// not time, because a worker that was kept from running has not had the requests that are there either.
/// Clients and servers are kept from running as well: pauses of 0.2 s to 0.4 s are common on a busy machine,
/// and what is closed in one is opened behind it.
const TICKS: u64 = 10;
pub(crate) const NOTE: &str = "What is above the number is closed within 0.5 s and not at once, so that a \
    burst of requests finds the connections of the one before. Of that a worker keeps no more than it has \
    worker_connections, and than a quarter of its descriptors; nothing of servers with max_conns, and of \
    FastCGI servers. Without local, connections live on over a reload that keeps the servers.";

/// Connections closed before others have their turn: a close is a call of some microseconds.
const CLOSED_AT_ONCE_MAX: usize = 32;
/// The part of a worker's descriptors that spare connections may have.
const DESCRIPTORS_PART: u64 = 4;

/// A connection that waits for its next request.
pub(crate) struct Idle {
    pub link: Box<Link>,
    pub peer: PeerId,
    pub tag: usize,
    since_ms: u64,
    /// The looks there had been by then.
    ticks: u64,
}

/// Counts the spare connections of all of a worker's upstreams.
#[derive(Default)]
pub(crate) struct Spares {
    held: Cell<usize>,
    max: Cell<usize>,
}

impl Spares {
    /// As many as there may be clients, and so requests, at once, while descriptors are plenty.
    pub(crate) fn set_max(&self, worker: &Worker) {
        let clients = worker.connections_max.get();
        self.max.set(descriptors(worker.all.workers()).min(clients));
    }

    fn add(&self, more: usize, less: usize) {
        self.held.set((self.held.get() + more).saturating_sub(less));
    }
}

fn descriptors(workers: usize) -> usize {
    let each = weir_runtime::process::nofile().soft / workers.max(1) as u64;
    usize::try_from(each / DESCRIPTORS_PART).unwrap_or(usize::MAX)
}

pub(crate) struct Pool {
    keep: KeepAlive,
    /// The most recently used at the end.
    idle: VecDeque<Idle>,
    /// So many at the front have been above the number: nginx would have none of them any more.
    doubtful: usize,
    /// Looks at what is above the number, the last of which may not be through.
    ticks: u64,
    unfinished: bool,
    spares: Rc<Spares>,
    /// Where it is counted how many there are.
    uses: Arc<Uses>,
    counted: usize,
}

impl Pool {
    pub(crate) fn new(keep: KeepAlive, spares: Rc<Spares>, uses: Arc<Uses>) -> Pool {
        Pool {
            keep,
            idle: VecDeque::new(),
            doubtful: 0,
            ticks: 0,
            unfinished: false,
            spares,
            uses,
            counted: 0,
        }
    }

    /// Counts them, as others of the same upstream are.
    #[inline]
    fn count(&mut self) {
        let before = std::mem::replace(&mut self.counted, self.idle.len());
        self.uses.idle.add(self.idle.len().wrapping_sub(before) as u64);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.idle.is_empty()
    }

    fn above(&self) -> usize {
        self.idle.len().saturating_sub(self.keep.max_idle)
    }

    /// One that waits for that server with that TLS (0 for none), the most recently used first.
    #[inline]
    pub(crate) fn take(
        &mut self,
        peer: PeerId,
        tag: usize,
        mark: u64,
        now_ms: u64,
    ) -> Option<Box<Link>> {
        // Mostly it is the last.
        let last = self.idle.back()?;
        let good = self.fits(last, peer, tag, mark)
            && self.doubtful < self.idle.len()
            && now_ms.saturating_sub(last.since_ms) < self.keep.timeout_ms
            && last.link.is_quiet();
        if !good {
            return self.look_for(peer, tag, mark, now_ms);
        }
        let found = self.idle.pop_back()?;
        self.is_out(self.idle.len());
        Some(found.link)
    }

    #[inline(always)]
    fn fits(&self, idle: &Idle, peer: PeerId, tag: usize, mark: u64) -> bool {
        idle.peer == peer && idle.link.mark == mark && (!self.keep.local || idle.tag == tag)
    }

    /// The server that a connection with that mark leads to.
    pub(crate) fn server_of(&self, mark: u64) -> Option<PeerId> {
        self.idle.iter().rev().find(|idle| idle.link.mark == mark).map(|idle| idle.peer)
    }

    /// As [`Pool::take`], among all of them.
    #[inline(never)]
    fn look_for(&mut self, peer: PeerId, tag: usize, mark: u64, now_ms: u64) -> Option<Box<Link>> {
        loop {
            let at = self.idle.iter().rposition(|i| self.fits(i, peer, tag, mark))?;
            let is_doubtful = at < self.doubtful;
            let found = self.idle.remove(at)?;
            self.is_out(at);
            if now_ms.saturating_sub(found.since_ms) >= self.keep.timeout_ms {
                continue;
            }
            // A server that has hung up unnoticed would make for a second try, where nginx has a fresh
            // connection.
            let is_quiet = match is_doubtful {
                true => found.link.is_surely_quiet(),
                false => found.link.is_quiet(),
            };
            if is_quiet {
                return Some(found.link);
            }
        }
    }

    /// Counts without the one that was there.
    #[inline]
    fn is_out(&mut self, at: usize) {
        if at < self.doubtful {
            self.doubtful -= 1;
        }
        if self.idle.len() >= self.keep.max_idle {
            self.spares.add(0, 1);
        }
        self.count();
    }

    /// Keeps it; `sparing`: one more than the number may stay for a moment. Whether there is now one
    /// that is not to stay.
    #[inline]
    pub(crate) fn put(
        &mut self,
        link: Box<Link>,
        peer: PeerId,
        tag: usize,
        sparing: bool,
        now_ms: u64,
    ) -> bool {
        self.idle.push_back(Idle { link, peer, tag, since_ms: now_ms, ticks: self.ticks });
        self.count();
        self.idle.len() > self.keep.max_idle && self.is_above(sparing)
    }

    #[cold]
    fn is_above(&mut self, sparing: bool) -> bool {
        self.spares.add(1, 0);
        if !sparing || self.spares.held.get() > self.spares.max.get() {
            self.close_oldest();
        }
        self.doubtful = self.doubtful.max(self.above());
        self.above() > 0
    }

    fn close_oldest(&mut self) {
        if self.idle.pop_front().is_some() {
            self.is_out(0);
        }
    }

    /// Closes what has been above the number for long enough; how long (ms) until the next look, if
    /// there is still anything.
    pub(crate) fn trim(&mut self) -> Option<u64> {
        self.ticks += u64::from(!self.unfinished);
        for _ in 0..CLOSED_AT_ONCE_MAX {
            let oldest = self.idle.front().filter(|_| self.above() > 0);
            let is_late = oldest.is_some_and(|i| i.ticks + TICKS <= self.ticks);
            if !is_late {
                self.unfinished = false;
                return oldest.map(|_| TICK_MS);
            }
            self.close_oldest();
        }
        self.unfinished = true;
        Some(0)
    }

    /// Closes all that is above the number; whether that was anything.
    pub(crate) fn close_spare(&mut self) -> bool {
        let above = self.above();
        (0..above).for_each(|_| self.close_oldest());
        above > 0
    }

    /// Closes all.
    pub(crate) fn clear(&mut self) {
        let before = self.above();
        self.idle.clear();
        self.recount(before);
    }

    /// Closes what has waited too long or was closed by its server; how long (ms) until the first of
    /// the others has.
    pub(crate) fn sweep(&mut self, now_ms: u64) -> Option<u64> {
        let (before, timeout_ms) = (self.above(), self.keep.timeout_ms);
        let left_ms = |i: &Idle| i.since_ms.saturating_add(timeout_ms).saturating_sub(now_ms);
        self.idle.retain(|i| left_ms(i) > 0 && i.link.is_quiet());
        self.recount(before);
        self.idle.iter().map(left_ms).min()
    }

    /// Takes over what waits in another for servers that `place` knows here; whether that is now
    /// more than the number.
    pub(crate) fn take_over(
        &mut self,
        old: &mut Pool,
        place: impl Fn(PeerId) -> Option<PeerId>,
    ) -> bool {
        let (before, theirs) = (self.above(), old.above());
        for idle in old.idle.drain(..) {
            if let Some(peer) = place(idle.peer) {
                self.idle.push_back(Idle { peer, ticks: self.ticks, ..idle });
            }
        }
        old.recount(theirs);
        self.recount(before);
        self.doubtful = self.idle.len();
        self.above() > 0
    }

    /// Counts anew what is above the number, of which there were so many before.
    fn recount(&mut self, before: usize) {
        self.doubtful = self.doubtful.min(self.idle.len());
        self.spares.add(self.above(), before);
        self.count();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: KeepAlive = KeepAlive {
        max_idle: 3,
        requests: 1000,
        time_ms: 60_000,
        timeout_ms: 10_000,
        local: false,
    };
    const PEER: PeerId = PeerId { backup: false, index: 0 };

    fn spares(max: usize) -> Rc<Spares> {
        Rc::new(Spares { held: Cell::new(0), max: Cell::new(max) })
    }

    /// A pool with so many connections, that came one each millisecond.
    fn pool(n: u64, spares: &Rc<Spares>) -> Pool {
        let mut pool = Pool::new(KEEP, Rc::clone(spares), Arc::default());
        for at_ms in 0..n {
            pool.put(Link::nowhere(), PEER, 0, true, at_ms);
        }
        pool
    }

    #[test]
    fn what_is_above_the_number_is_closed_a_moment_later_the_oldest_first() {
        let spares = spares(100);
        let mut pool = pool(10, &spares);
        assert_eq!((pool.idle.len(), spares.held.get()), (10, 7));
        assert_eq!([pool.trim(), pool.trim()], [Some(TICK_MS); 2]);
        (0..4).for_each(|_| assert!(pool.put(Link::nowhere(), PEER, 0, true, 20)));
        (3..TICKS).for_each(|_| assert_eq!(pool.trim(), Some(TICK_MS)));
        assert_eq!((pool.idle.len(), spares.held.get()), (14, 11));
        assert_eq!(pool.trim(), Some(TICK_MS));
        assert_eq!((pool.idle.len(), spares.held.get()), (4, 1));
        assert_eq!([pool.trim(), pool.trim()], [Some(TICK_MS), None]);
        let left: Vec<u64> = pool.idle.iter().map(|i| i.since_ms).collect();
        assert_eq!((left, spares.held.get(), pool.doubtful), (vec![20; 3], 0, 0));
    }

    #[test]
    fn closing_many_leaves_others_a_turn() {
        let spares = spares(100);
        let mut pool = pool(3 + 2 * CLOSED_AT_ONCE_MAX as u64, &spares);
        (1..TICKS).for_each(|_| assert_eq!(pool.trim(), Some(TICK_MS)));
        assert_eq!([pool.trim(), pool.trim(), pool.trim()], [Some(0), Some(0), None]);
        assert_eq!((pool.idle.len(), pool.ticks), (3, TICKS));
    }

    #[test]
    fn the_bound_is_one_for_all_upstreams() {
        let spares = spares(4);
        let (mut a, mut b) = (pool(6, &spares), pool(10, &spares));
        assert_eq!((a.idle.len(), b.idle.len(), spares.held.get()), (6, 4, 4));
        // What is closed are the oldest.
        assert_eq!(b.idle.front().map(|i| i.since_ms), Some(6));
        assert!(a.close_spare() && !a.close_spare());
        assert_eq!((a.idle.len(), spares.held.get()), (3, 1));
        b.clear();
        assert_eq!(spares.held.get(), 0);
        drop(pool(6, &spares));
        assert_eq!(spares.held.get(), 0);
    }

    #[test]
    fn nothing_above_the_number_where_that_would_be_felt() {
        let spares = spares(100);
        let mut pool = pool(3, &spares);
        assert!(!pool.put(Link::nowhere(), PEER, 0, false, 3));
        assert_eq!((pool.idle.len(), spares.held.get()), (3, 0));
    }

    #[test]
    fn one_that_has_been_above_the_number_is_looked_at_again() {
        let spares = spares(100);
        let mut pool = pool(5, &spares);
        assert_eq!(pool.doubtful, 2);
        // What leads nowhere is not quiet: all that are tried are closed.
        assert!(pool.take(PEER, 0, 1, 5).is_none() && pool.idle.len() == 5);
        assert!(pool.take(PEER, 0, 0, 5).is_none());
        assert_eq!((pool.idle.len(), pool.doubtful, spares.held.get()), (0, 0, 0));
    }

    #[test]
    fn what_is_taken_over_counts_where_it_goes() {
        let spares = spares(100);
        let (mut old, mut new) = (pool(5, &spares), pool(2, &spares));
        assert!(new.take_over(&mut old, Some));
        assert_eq!((old.idle.len(), new.idle.len(), spares.held.get()), (0, 7, 4));
        let mut other = Pool::new(KEEP, Rc::clone(&spares), Arc::default());
        assert!(!other.take_over(&mut new, |_| None));
        assert_eq!(spares.held.get(), 0);
    }
}
