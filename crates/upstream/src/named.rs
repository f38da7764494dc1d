//! Servers that code names in the place of an upstream's own (`balancer_by_lua`): groups of one.

use crate::balancer::Kept;
use crate::group::{ad_hoc, KeepAlive, Shape, WorkerGroup, WorkerGroups};
use crate::peers::Peer;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use weir_core::Worker;

/// How many a worker keeps connections to.
const NAMED_MAX: usize = 512;

/// Servers that code has named, each a group of its own, as long as connections to them wait or are in use.
#[derive(Default)]
pub(crate) struct Named {
    all: HashMap<NamedKey, Rc<WorkerGroup>>,
    /// At how many of them those are looked for that nobody uses any more.
    sweep_at: usize,
}

/// The upstream, the server's address, the name its connections are for, and how they are kept.
type NamedKey = (Box<[u8]>, Box<[u8]>, Box<[u8]>, Kept);

impl Named {
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Rc<WorkerGroup>> {
        self.all.values()
    }

    /// Looks for those that nobody uses any more. Where there are very many (code may take names from clients), the
    /// connections of those that are not in use are closed; whether there is room for one more.
    fn make_room(&mut self) -> bool {
        if self.all.len() >= self.sweep_at {
            let is_used = |group: &Rc<WorkerGroup>| {
                let waits = group.with_idle(|pool| !pool.is_empty()).unwrap_or(false);
                Rc::strong_count(group) > 1 || waits
            };
            self.all.retain(|_, group| is_used(group));
            self.sweep_at = 2 * self.all.len() + 16;
        }
        if self.all.len() >= NAMED_MAX {
            self.all.retain(|_, group| {
                let is_in_use = Rc::strong_count(group) > 1;
                if !is_in_use {
                    group.retire();
                }
                is_in_use
            });
        }
        self.all.len() < NAMED_MAX
    }
}

impl WorkerGroup {
    /// A server that code has named in the place of this upstream's own, and the name its connections are for.
    pub fn named(
        &self,
        server: Peer,
        host: &[u8],
        kept: Option<Kept>,
        idle_max: usize,
        worker: &Worker,
    ) -> Rc<WorkerGroup> {
        let by_keepalive = || {
            let keep = self.shape.keepalive.as_ref().filter(|keep| !keep.local)?;
            Some((Kept { timeout_ms: keep.timeout_ms, requests: keep.requests }, keep.max_idle))
        };
        let kept = kept.map(|kept| (kept, idle_max)).or_else(by_keepalive);
        let Some((kept, max_idle)) = kept.filter(|_| !self.retired.get()) else {
            return ad_hoc(&self.shape.name, vec![server]);
        };
        let all = worker.local::<WorkerGroups>();
        let key = (self.shape.name.clone(), server.name.clone(), host.into(), kept);
        if let Some(found) = all.named.borrow().all.get(&key) {
            return Rc::clone(found);
        }
        // Far beyond any process, and far from where sums of times overflow.
        let unlimited = |n: u64| if n == 0 { 1 << 48 } else { n };
        let keepalive = Some(KeepAlive {
            max_idle,
            requests: unlimited(kept.requests),
            time_ms: unlimited(0),
            timeout_ms: unlimited(kept.timeout_ms),
            local: false,
        });
        let mut shape = Shape::of_one(&self.shape.name, vec![server]);
        shape.keepalive = keepalive;
        let fresh = WorkerGroup::new(Arc::new(shape), Weak::new(), &self.spares, worker.id);
        let mut named = all.named.borrow_mut();
        if named.make_room() {
            named.all.insert(key, Rc::clone(&fresh));
        }
        fresh
    }
}
