//! Upstreams whose servers change while they serve: `server … resolve`, and names that were not
//! found when the configuration was read.
//!
//! What is served is an immutable [`Shape`]; a changed answer makes a new one and raises the
//! version that workers compare. A server that stays keeps its id, and by that its state: what a
//! request in flight gives back to an old shape is counted in the newest one as well. Lock order:
//! `current`, then a shape's state.
//!
//! Difference from nginx: such an upstream without `zone` shares its state between workers too.

mod asking;
pub mod editing;
mod hosts;
mod kept_over;

use crate::balance::is_ring_too_large;
use crate::conf::UpstreamMain;
use crate::counted::Tries;
use crate::group::{self, Plan, Shape, ZoneName};
use crate::peers::{Peer, PeerId, Peers, State};
use hosts::{Named, Watch};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use tokio::sync::Notify;
use weir_core::counts::Counted;
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::shared_file::{self, Kept};
use weir_module::Slots;
use weir_resolve::{Resolver, Target};

pub(crate) use hosts::Host;
pub(crate) use kept_over::StateFile;

/// Who is asked for names, and for how many milliseconds.
pub(crate) type Asked = (Arc<Resolver>, u64);

/// `dynamic_resolve`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fallback {
    /// The servers that were found last go on.
    pub stale: bool,
    /// So long nobody is asked again.
    pub fail_timeout_ms: u64,
}

/// A shape's tie to the upstream it is of.
pub(crate) struct Tie {
    live: Weak<Live>,
    pub version: u64,
    /// A newer shape has taken its state over; changes only under the state's lock.
    moved: AtomicBool,
    /// The servers' own numbers, primary and backup.
    ids: [Vec<u64>; 2],
}

impl Tie {
    /// By which a server is known while it is there.
    pub(crate) fn id(&self, at: PeerId) -> u64 {
        self.ids[usize::from(at.backup)][at.index]
    }

    pub(crate) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed)
    }

    /// Does the same in the newest shape, if it still has that server.
    pub(crate) fn forward(&self, at: PeerId, f: impl FnOnce(&Peers, &mut State, PeerId)) {
        let id = self.ids[usize::from(at.backup)][at.index];
        let Some(live) = self.live.upgrade() else { return };
        // Held to the end, or the newest shape might move in between and this be lost.
        let current = live.lock();
        let shape = &current.shape;
        let Some(tie) = &shape.tie else { return };
        let place = |backup: bool| {
            let index = tie.ids[usize::from(backup)].iter().position(|i| *i == id)?;
            Some(PeerId { backup, index })
        };
        if let Some(at) = place(false).or_else(|| place(true)) {
            shape.with_zone(|state| f(&shape.peers, state, at));
        }
    }
}

/// A server, and the host it comes from.
#[derive(Clone, PartialEq)]
struct Entry {
    id: u64,
    peer: Peer,
    backup: bool,
    /// By its number.
    host: Option<u64>,
}

struct Current {
    shape: Arc<Shape>,
    entries: Vec<Entry>,
    hosts: Vec<Named>,
    /// Those that are asked for, by their numbers.
    watches: BTreeMap<u64, Watch>,
    next_id: u64,
    /// The same upstream of a newer configuration, which has what is changed from now on.
    successor: Option<Arc<Live>>,
    /// Servers that are no longer there, as long as something is still known of them.
    gone: Vec<Weak<Counted<Tries>>>,
}

pub(crate) struct Live {
    plan: Plan,
    /// Who is asked for names; without it, the system.
    resolver: OnceLock<Asked>,
    /// Names may come while it serves: whoever is asked is the upstream's, or its block's.
    resolves: bool,
    /// `dynamic_resolve`
    fallback: Option<Fallback>,
    /// Once it serves.
    log: OnceLock<Arc<ErrorLog>>,
    /// Why servers that come are not asked yet: the bits of checks that are to have passed first.
    pub off_at_first: AtomicU32,
    version: AtomicU64,
    /// Another version has come.
    changed: Notify,
    current: Mutex<Current>,
    /// The file that its servers stand in.
    state: Option<StateFile>,
}

/// The live upstreams of the process, for the next configuration to take addresses from.
static ALL: Mutex<Vec<Weak<Live>>> = Mutex::new(Vec::new());

impl Live {
    /// `fixed`: the servers that do not change, and whether each is a backup.
    pub(crate) fn new(
        plan: Plan,
        fixed: Vec<(Peer, bool)>,
        hosts: Vec<Host>,
        mut state: Option<StateFile>,
        asked: (Option<Asked>, Option<Fallback>),
    ) -> Arc<Live> {
        let mut all = ALL.lock().unwrap_or_else(|e| e.into_inner());
        // Most upstreams have nothing that is taken over, and there may be thousands.
        let is_kept = !hosts.is_empty() || state.is_some();
        let mut before = None;
        if is_kept {
            all.retain(|l| l.strong_count() > 0);
            let same = |l: &Arc<Live>| zone_of(&l.plan) == zone_of(&plan);
            before = all.iter().rev().filter_map(Weak::upgrade).find(same);
        }
        let kept =
            before.as_ref().zip(state.as_mut()).map(|(before, state)| before.kept_for(state));
        let (kept, mut next_id) = kept.unwrap_or_default();
        let (entries, hosts) = kept.unwrap_or_else(|| {
            let mut number = || {
                next_id += 1;
                next_id - 1
            };
            let entry = |(peer, backup)| Entry { id: number(), peer, backup, host: None };
            let mut entries: Vec<Entry> = fixed.into_iter().map(entry).collect();
            let named = |host| Named { id: number(), host: Arc::new(host), until_ms: 0 };
            let mut hosts: Vec<Named> = hosts.into_iter().map(named).collect();
            if let Some(before) = before {
                before.hand_over(&mut hosts, &mut entries, &mut number);
            }
            (entries, hosts)
        });
        let live = Arc::new_cyclic(|me| {
            let (peers, ids) = compose(&entries);
            let tie = Tie { live: me.clone(), version: 1, moved: AtomicBool::new(false), ids };
            let zone = group::zone_state(zone_of(&plan), &peers);
            let shape = Arc::new(plan.shape(peers, Some(zone), Some(tie)));
            let (gone, successor) = (Vec::new(), None);
            let watches = BTreeMap::new();
            let current = Current { shape, entries, hosts, watches, next_id, successor, gone };
            let (current, version) = (Mutex::new(current), AtomicU64::new(1));
            let (asked, fallback) = asked;
            let (resolves, off_at_first) = (asked.is_some(), AtomicU32::new(0));
            let (resolver, log) =
                (asked.map_or_else(OnceLock::new, OnceLock::from), OnceLock::new());
            let changed = Notify::new();
            Live {
                plan,
                resolver,
                resolves,
                fallback,
                log,
                off_at_first,
                version,
                changed,
                current,
                state,
            }
        });
        if is_kept {
            all.push(Arc::downgrade(&live));
        }
        live
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Waits until the version is another one than that.
    pub(crate) async fn changed_since(&self, version: u64) {
        loop {
            // From here on nothing is missed.
            let changed = self.changed.notified();
            if self.version() != version {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn shape(&self) -> Arc<Shape> {
        Arc::clone(&self.lock().shape)
    }

    /// Servers that are no longer there, and are still asked.
    pub(crate) fn zombies(&self) -> u64 {
        let gone: Vec<_> = self.lock().gone.iter().filter_map(Weak::upgrade).collect();
        let is_asked = |c: &&Arc<Counted<Tries>>| c.now(|t| t.begun.get(), |t| t.ended.get()) > 0;
        gone.iter().filter(is_asked).count() as u64
    }

    /// The services by which servers were found, by the servers' numbers.
    pub(crate) fn services(&self) -> BTreeMap<u64, String> {
        let current = self.lock();
        let of = |n: &Named| Some((n.id, n.host.service.clone()?));
        let services: BTreeMap<u64, String> = current.hosts.iter().filter_map(of).collect();
        if services.is_empty() {
            return services;
        }
        let of = |e: &Entry| Some((e.id, services.get(&e.host?)?.clone()));
        current.entries.iter().filter_map(of).collect()
    }

    /// How much there is to know of the names, each.
    pub(crate) fn hosts_bytes(&self) -> Vec<usize> {
        let bytes = |n: &Named| size_of::<Named>() + size_of::<Host>() + n.host.name.len();
        self.lock().hosts.iter().map(bytes).collect()
    }

    /// Works on the newest shape, which stays that until it is done.
    pub(crate) fn with_shape<T>(&self, f: impl FnOnce(&Shape) -> T) -> T {
        f(&self.lock().shape)
    }

    fn hand_over(
        &self,
        hosts: &mut [Named],
        entries: &mut Vec<Entry>,
        number: &mut impl FnMut() -> u64,
    ) {
        let current = self.lock();
        for named in hosts {
            let is_it = |old: &&Named| old.host.same_name(&named.host);
            let Some(old) = current.hosts.iter().find(is_it) else { continue };
            named.until_ms = old.until_ms;
            for entry in current.entries.iter().filter(|e| e.host == Some(old.id)) {
                let (id, peer) = (number(), named.host.inherited(&entry.peer));
                let backup = entry.backup || named.host.backup;
                entries.push(Entry { id, peer, backup, host: Some(named.id) });
            }
        }
    }

    /// Who is asked for names that nobody else is asked for.
    pub(crate) fn offer(&self, resolver: &Arc<Resolver>, timeout_ms: u64) {
        // The first one counts.
        let _ = self.resolver.set((Arc::clone(resolver), timeout_ms));
    }

    /// What the system has said of a name when the configuration was read.
    pub(crate) fn known(&self, name: &str, found: &[Target]) {
        let current = self.lock();
        let is_it = |n: &&Named| n.host.service.is_none() && n.host.name == name;
        let ids: Vec<u64> = current.hosts.iter().filter(is_it).map(|n| n.id).collect();
        drop(current);
        ids.iter().for_each(|id| self.apply(*id, found, 0));
    }

    /// A host's answer: what is in it already stays in its place, the rest comes behind.
    pub(crate) fn apply(&self, host: u64, found: &[Target], until_ms: u64) {
        let mut current = self.lock();
        // It may have been taken away meanwhile.
        let Some(named) = current.hosts.iter_mut().find(|n| n.id == host) else { return };
        named.until_ms = until_ms;
        let (is_put, mut fresh) = (named.host.is_put, named.host.servers(found));
        let mut entries = current.entries.clone();
        let before = entries.len();
        entries.retain(|e| {
            if e.host != Some(host) {
                return true;
            }
            let known = fresh.iter().position(|(p, b)| *p == e.peer && *b == e.backup);
            known.map(|at| fresh.remove(at)).is_some()
        });
        if fresh.is_empty() && entries.len() == before {
            return;
        }
        let mut left_out = 0;
        for (peer, backup) in fresh {
            let id = current.next_id;
            entries.push(Entry { id, peer, backup, host: Some(host) });
            if is_put && self.is_too_much(&entries) {
                entries.pop();
                left_out += 1;
                continue;
            }
            current.next_id += 1;
        }
        if let Some(log) = self.log.get().filter(|_| left_out > 0) {
            let name = String::from_utf8_lossy(&self.plan.name);
            let line = format!("{left_out} servers of a name are left out of upstream \"{name}\": there would be too many");
            log.log(LogLevel::Error, None, line.as_bytes());
        }
        self.publish(&mut current, entries);
    }

    /// Whether there are more than who changes a running server may ask for.
    fn is_too_much(&self, entries: &[Entry]) -> bool {
        let peers = entries.iter().filter(|e| !e.backup).map(|e| &e.peer);
        entries.len() > editing::SERVERS_MAX || is_ring_too_large(&self.plan.method, peers)
    }

    fn publish(&self, current: &mut Current, entries: Vec<Entry>) {
        let (peers, ids) = compose(&entries);
        let old = Arc::clone(&current.shape);
        let Some(tie) = &old.tie else { return };
        let from = [false, true].map(|backup| {
            let place = |id: &u64| {
                let at = |b: bool| {
                    let index = tie.ids[usize::from(b)].iter().position(|i| i == id)?;
                    Some(PeerId { backup: b, index })
                };
                at(false).or_else(|| at(true))
            };
            ids[usize::from(backup)].iter().map(place).collect::<Vec<_>>()
        });
        let state = old.with_zone(|state| {
            tie.moved.store(true, Ordering::Relaxed);
            state.carried(peers.fresh_state(), &from, self.off_at_first.load(Ordering::Relaxed))
        });
        current.gone.retain(|counted| counted.strong_count() > 0);
        for (backup, old_ids) in [false, true].into_iter().zip(&tie.ids) {
            let left = old_ids
                .iter()
                .enumerate()
                .filter(|(_, id)| !ids.iter().flatten().any(|i| i == *id));
            let places = left.map(|(index, _)| PeerId { backup, index });
            let counted = places.filter_map(|at| old.counts.as_ref()?.server(at));
            current.gone.extend(counted.map(Arc::downgrade));
        }
        let state = group::put_zone_state(zone_of(&self.plan), &peers, state);
        let version = tie.version + 1;
        let live = tie.live.clone();
        let tie = Tie { live, version, moved: AtomicBool::new(false), ids };
        current.shape = Arc::new(self.plan.shape(peers, Some(state), Some(tie)));
        current.entries = entries;
        self.version.store(version, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Begins to ask for the hosts.
    fn start(self: &Arc<Self>, log: &Arc<ErrorLog>) {
        let _ = self.log.set(Arc::clone(log));
        self.succeeds();
        if self.state.is_some() {
            // What the configuration was read with may be older than the file.
            let own: Arc<dyn Kept> = Arc::clone(self) as _;
            shared_file::follow(&own, log);
        }
        self.watch(&mut self.lock());
    }
}

/// Without a zone the state is shared all the same.
fn zone_of(plan: &Plan) -> ZoneName {
    plan.zone_name().unwrap_or_else(|| plan.in_zone(b""))
}

fn compose(entries: &[Entry]) -> (Peers, [Vec<u64>; 2]) {
    let of = |backup: bool| {
        let list = entries.iter().filter(|e| e.backup == backup);
        list.map(|e| (e.peer.clone(), e.id)).unzip::<Peer, u64, Vec<_>, Vec<_>>()
    };
    let ((primary, first), (backup, second)) = (of(false), of(true));
    (Peers::new(primary, backup), [first, second])
}

/// The live upstreams of a block, whose main level `main` is, begin to ask for their hosts; what
/// goes wrong is told to `log`.
pub fn start(main: &Slots, log: &Arc<ErrorLog>) {
    main.get::<UpstreamMain>().live().for_each(|live| live.start(log));
}

#[cfg(test)]
mod tests;
