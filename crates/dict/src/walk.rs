//! What goes through all entries, from the least recently used to the newest, and lets others in meanwhile.

use std::collections::HashSet;

use crate::dict::Dict;
use crate::state::State;
use crate::table::{Entry, NONE};
use crate::value::ValueRef;

/// The lock is given back after so many entries; an element of a list counts like one, and so do 256 bytes
/// that are copied. A single long entry may exceed it.
pub const SLICE_COST: usize = 1000;
const BYTES_PER_COST: usize = 256;

pub fn cost_of_bytes(bytes: usize) -> usize {
    bytes / BYTES_PER_COST
}

/// What copying an entry costs beside the entry itself.
pub fn cost(entry: &Entry) -> usize {
    match (entry.value(), entry.list()) {
        (Some(ValueRef::Text(text)), _) => cost_of_bytes(text.len()),
        (_, Some(list)) => list.len(),
        _ => 0,
    }
}

pub enum Step {
    /// It cost so much more than one.
    On(usize),
    Enough,
}

impl Dict {
    /// Shows entries to `visit`, which puts into a part what it finds; `take` has each slice's part without
    /// the lock. Those used meanwhile are visited again, or late; the walk ends however fast they are used.
    pub(crate) fn walk<P: Default>(
        &self,
        mut visit: impl FnMut(&mut State, u32, &mut P) -> Step,
        mut take: impl FnMut(P),
    ) {
        let (mut mark, mut visits) = (None, None);
        loop {
            let mut part = P::default();
            self.with(|state| {
                let left = visits.get_or_insert(2 * state.table.len() + SLICE_COST);
                let mut at =
                    mark.take().map_or(state.table.oldest(), |id| state.table.take_mark(id));
                let mut cost = 0;
                while at != NONE && *left > 0 {
                    if cost >= SLICE_COST {
                        mark = Some(state.table.mark(at));
                        return;
                    }
                    let newer = state.table.newer(at);
                    match visit(state, at, &mut part) {
                        Step::On(more) => cost += 1 + more,
                        Step::Enough => return,
                    }
                    *left -= 1;
                    at = newer;
                }
            });
            take(part);
            if mark.is_none() {
                return;
            }
            self.let_others();
        }
    }

    /// Removes so many expired entries at most, 0 for all; answers how many it were.
    pub fn flush_expired(&self, max: usize, now_ms: u64) -> usize {
        let mut removed = 0;
        let visit = |state: &mut State, n: u32, _: &mut ()| {
            if !state.is_expired(n, now_ms) {
                return Step::On(0);
            }
            let more = cost(&state.table[n]);
            state.remove(n);
            removed += 1;
            if removed == max {
                return Step::Enough;
            }
            Step::On(more)
        };
        self.walk(visit, |()| {});
        removed
    }

    /// Keys that have not expired, so many at most and 0 for all, the least recently used first. Nothing becomes
    /// newer by it. With all of a large dictionary, one set or used meanwhile may stand late, or be missing if
    /// it is new.
    pub fn get_keys(&self, max: usize, now_ms: u64) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let (mut found, mut uses) = (0, None);
        let mut is_changed = false;
        let visit = |state: &mut State, n: u32, part: &mut Vec<Vec<u8>>| {
            is_changed |= *uses.get_or_insert(state.table.uses()) != state.table.uses();
            if state.is_expired(n, now_ms) {
                return Step::On(0);
            }
            let key = state.table[n].key();
            part.push(key.to_vec());
            found += 1;
            if found == max {
                return Step::Enough;
            }
            Step::On(cost_of_bytes(key.len()))
        };
        self.walk(visit, |part| keys.extend(part));
        if is_changed {
            let mut seen = HashSet::with_capacity(keys.len());
            keys.retain(|key| seen.insert(key.clone()));
        }
        keys
    }

    /// Removes so many of the least recently used, expired or not; answers how many it were. Whoever has the
    /// last handle can empty a large dictionary by it, bit by bit, before it is dropped.
    pub fn drop_oldest(&self, most: usize) -> usize {
        let mut removed = 0;
        let visit = |state: &mut State, n: u32, _: &mut ()| {
            if removed == most {
                return Step::Enough;
            }
            let more = cost(&state.table[n]);
            state.remove(n);
            removed += 1;
            Step::On(more)
        };
        self.walk(visit, |()| {});
        removed
    }
}
