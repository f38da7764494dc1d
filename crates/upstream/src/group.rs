//! An upstream as it is used: its servers, what is remembered of them, its idle connections.
//!
//! The configuration's part ([`Group`]) is shared by all workers. What is remembered is each
//! worker's own, as in nginx, unless the upstream has a `zone`: then it is one, and lives on over
//! reloads as long as its servers stay the same.

use crate::asks::Asks;
use crate::balance::{self, Key, Method, Ring};
use crate::conf::UpstreamMain;
use crate::counted::{Counts, Parts, Tries};
use crate::idle::{Pool, Spares};
use crate::least_time::{LeastTime, Measured};
use crate::link::{Link, SecureError};
use crate::live::{Live, Tie};
use crate::named::Named;
use crate::peers::{self, Choice, Peer, PeerId, PeerList, PeerState, Peers, State};
use crate::queue::Queue;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::rc::{Rc, Weak as RcWeak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use weir_base::bytes::Identity;
use weir_core::counts::Handshakes;
use weir_core::timing::UpstreamState;
use weir_core::{Connection, Worker};
use weir_module::Context;
use weir_runtime::{clock, timer};

/// How often idle connections are looked over for closed and old ones.
const SWEEP_MS: u64 = 1000;

/// `keepalive` and its companions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepAlive {
    pub max_idle: usize,
    pub requests: u64,
    pub time_ms: u64,
    pub timeout_ms: u64,
    /// A connection is used again only by the location that opened it.
    pub local: bool,
}

/// What an upstream's `sticky` has made: only its protocol's module knows what it is.
pub type Sticky = Arc<dyn Any + Send + Sync>;

/// One upstream of a generation.
pub struct Group {
    id: u64,
    shape: Arc<Shape>,
    /// Its servers change: the shape above is only the first.
    live: Option<Arc<Live>>,
    /// Lives as long as the generation does; workers look whether it still does.
    alive: Arc<()>,
}

/// What the workers need of a group; requests in flight keep it over a reload.
pub(crate) struct Shape {
    pub name: Box<[u8]>,
    pub peers: Peers,
    pub method: Method,
    pub keepalive: Option<KeepAlive>,
    pub sticky: Option<Sticky>,
    /// Each client's connection has its own to a server.
    pub binds: bool,
    /// Of all workers, where they share the state.
    pub(crate) queue: Option<Arc<Queue>>,
    zone: Option<Arc<Mutex<State>>>,
    /// To the upstream whose newest shape this may be.
    pub(crate) tie: Option<Tie>,
    /// Nothing is counted of a request's own address.
    pub(crate) counts: Option<Arc<Counts>>,
}

/// What every shape of an upstream has.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The protocol's block that it stands in.
    pub block: Context,
    pub name: Vec<u8>,
    /// As it is counted, and called on status pages.
    pub shown_name: Vec<u8>,
    pub zone: Option<Vec<u8>>,
    pub method: Method,
    pub keepalive: Option<KeepAlive>,
    pub sticky: Option<Sticky>,
    pub binds: bool,
    pub queue: Option<Arc<Queue>>,
}

impl Plan {
    /// Where the state of its servers is kept, if it has a zone.
    pub(crate) fn zone_name(&self) -> Option<ZoneName> {
        self.zone.as_deref().map(|zone| self.in_zone(zone))
    }

    pub(crate) fn in_zone(&self, zone: &[u8]) -> ZoneName {
        (self.block.0, zone.to_vec(), self.name.clone())
    }

    pub(crate) fn shape(
        &self,
        peers: Peers,
        zone: Option<Arc<Mutex<State>>>,
        tie: Option<Tie>,
    ) -> Shape {
        let method = match &self.method {
            // The ring is made of the servers.
            Method::Consistent(key, _) => {
                Method::Consistent(Arc::clone(key), Arc::new(Ring::new(&peers)))
            }
            other => other.clone(),
        };
        let (name, sticky) = (self.name.as_slice().into(), self.sticky.clone());
        let (keepalive, queue) = (self.keepalive, self.queue.clone());
        let binds = self.binds;
        let counts = Some(Arc::new(Counts::new(self.block.0, &self.shown_name, &peers)));
        Shape { name, peers, method, keepalive, sticky, binds, queue, zone, tie, counts }
    }
}

impl Shape {
    /// In no configuration, with connections that nobody keeps.
    pub(crate) fn of_one(name: &[u8], peers: Vec<Peer>) -> Shape {
        let peers = Peers::new(peers, Vec::new());
        let method = Method::RoundRobin;
        let (name, keepalive, sticky, queue) = (name.into(), None, None, None);
        let (binds, zone, tie, counts) = (false, None, None, None);
        Shape { name, peers, method, keepalive, sticky, binds, queue, zone, tie, counts }
    }

    /// A newer shape has taken the state over; to be asked under the state's lock.
    fn has_moved(&self) -> bool {
        self.tie.as_ref().is_some_and(Tie::has_moved)
    }

    /// Looks at the state the workers share; nothing of it without a zone.
    pub(crate) fn with_zone<T: Default>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        match &self.zone {
            Some(zone) => f(&mut zone.lock().unwrap_or_else(|e| e.into_inner())),
            None => T::default(),
        }
    }

    /// One server that may always be asked: there is nothing to choose, and nothing that a failure changes.
    fn is_plain(&self) -> bool {
        let alone = self.peers.single() && self.zone.is_none() && self.tie.is_none();
        let always = |p: &Peer| !p.down && p.max_conns == 0;
        alone && self.timed().is_none() && self.peers.primary.peers.iter().all(always)
    }

    /// How servers' times are measured, where the balancing goes by them.
    pub(crate) fn timed(&self) -> Option<LeastTime> {
        match self.method {
            Method::LeastTime(how) => Some(how),
            Method::RandomTwo(how) => how,
            _ => None,
        }
    }
}

static NEXT_GROUP: AtomicU64 = AtomicU64::new(1);

/// What a zone remembers of an upstream with those servers.
struct Zone {
    peers: Peers,
    state: Weak<Mutex<State>>,
}

/// The block that an upstream stands in, its zone and its own name.
pub(crate) type ZoneName = (u32, Vec<u8>, Vec<u8>);

/// The zones of the process.
#[derive(Default)]
struct Zones {
    all: BTreeMap<ZoneName, Vec<Zone>>,
    /// At how many of them those are looked for that nobody uses any more.
    sweep_at: usize,
}

static ZONES: Mutex<Zones> = Mutex::new(Zones { all: BTreeMap::new(), sweep_at: 0 });

impl Zones {
    fn of(&mut self, name: ZoneName) -> &mut Vec<Zone> {
        if self.all.len() >= self.sweep_at {
            self.all.retain(|_, same| same.iter().any(|z| z.state.strong_count() > 0));
            self.sweep_at = 2 * self.all.len() + 16;
        }
        let same = self.all.entry(name).or_default();
        same.retain(|z| z.state.strong_count() > 0);
        same
    }
}

/// The state of those servers in that zone, kept from before or fresh.
pub(crate) fn zone_state(name: ZoneName, peers: &Peers) -> Arc<Mutex<State>> {
    let mut zones = ZONES.lock().unwrap_or_else(|e| e.into_inner());
    let kept = zones.of(name.clone()).iter().find(|z| z.peers == *peers);
    if let Some(state) = kept.and_then(|z| z.state.upgrade()) {
        return state;
    }
    drop(zones);
    put_zone_state(name, peers, peers.fresh_state())
}

/// Keeps a state in a zone.
pub(crate) fn put_zone_state(name: ZoneName, peers: &Peers, state: State) -> Arc<Mutex<State>> {
    let mut zones = ZONES.lock().unwrap_or_else(|e| e.into_inner());
    let fresh = Arc::new(Mutex::new(state));
    zones.of(name).push(Zone { peers: peers.clone(), state: Arc::downgrade(&fresh) });
    fresh
}

impl Group {
    pub(crate) fn new(plan: &Plan, peers: Peers) -> Group {
        let zone = plan.zone_name().map(|name| zone_state(name, &peers));
        Group::of(Arc::new(plan.shape(peers, zone, None)), None)
    }

    /// An upstream whose servers change.
    pub(crate) fn live(live: Arc<Live>) -> Group {
        Group::of(live.shape(), Some(live))
    }

    fn of(shape: Arc<Shape>, live: Option<Arc<Live>>) -> Group {
        let id = NEXT_GROUP.fetch_add(1, Ordering::Relaxed);
        Group { id, shape, live, alive: Arc::new(()) }
    }

    pub(crate) fn as_live(&self) -> Option<&Arc<Live>> {
        self.live.as_ref()
    }

    /// Works on its present shape, and what all workers know of the servers.
    pub(crate) fn with_shape<T>(&self, f: impl FnOnce(&Shape) -> T) -> T {
        match &self.live {
            Some(live) => live.with_shape(f),
            None => f(&self.shape),
        }
    }

    /// Servers that are no longer there, and are still asked.
    pub(crate) fn zombies(&self) -> u64 {
        self.live.as_ref().map_or(0, |live| live.zombies())
    }

    /// Whether this shape of it is the newest.
    fn is_newest(&self, shape: &Shape) -> bool {
        match (&self.live, &shape.tie) {
            (Some(live), Some(tie)) => live.version() == tie.version,
            _ => true,
        }
    }

    /// The worker's part of this group, made at first use.
    #[inline]
    pub fn on(&self, worker: &Worker) -> Rc<WorkerGroup> {
        let known = SEEN.with_borrow(|seen| match &seen[self.id as usize % SEEN_MAX] {
            Some(seen) if seen.id == self.id && seen.worker == worker.id => seen.group.upgrade(),
            _ => None,
        });
        match known {
            Some(group) if self.is_newest(&group.shape) => group,
            _ => self.find(worker),
        }
    }

    #[cold]
    fn find(&self, worker: &Worker) -> Rc<WorkerGroup> {
        let all = worker.local::<WorkerGroups>();
        let known = all.groups.borrow().get(&self.id).map(Rc::clone);
        let found = known.filter(|group| self.is_newest(&group.shape));
        let group = found.unwrap_or_else(|| all.add(self, worker));
        let seen = Seen { worker: worker.id, id: self.id, group: Rc::downgrade(&group) };
        SEEN.with_borrow_mut(|all| all[self.id as usize % SEEN_MAX] = Some(seen));
        group
    }
}

/// A group for one request's own address, that is in no configuration.
pub fn ad_hoc(name: &[u8], peers: Vec<Peer>) -> Rc<WorkerGroup> {
    WorkerGroup::new(Arc::new(Shape::of_one(name, peers)), Weak::new(), &Rc::default(), 0)
}

/// Closes all idle connections of a worker that is to end, which asks no server any more whether it is well.
pub fn close_idle(worker: &Worker) {
    crate::health::stop(worker);
    worker.local::<WorkerGroups>().each(Pool::clear);
}

/// Descriptors have run out: closes what a worker keeps above the numbers of its upstreams. Whether
/// there was anything.
pub fn close_spare(worker: &Worker) -> bool {
    let mut any = false;
    worker.local::<WorkerGroups>().each(|pool| any |= pool.close_spare());
    any
}

/// A worker has a new configuration, with those upstreams: idle connections of the old go over to it
/// or are closed.
pub fn renew<'a>(fresh: impl Iterator<Item = &'a UpstreamMain>, worker: &Worker) {
    let fresh: Vec<&Group> = fresh.flat_map(|main| main.groups.iter().map(|g| &**g)).collect();
    worker.local::<WorkerGroups>().renew(&fresh, worker);
}

/// Groups that were asked for lately on this thread, each at the place that its number says: that is nearer
/// than the worker's table.
const SEEN_MAX: usize = 16;

struct Seen {
    worker: usize,
    id: u64,
    group: RcWeak<WorkerGroup>,
}

thread_local! {
    static SEEN: RefCell<[Option<Seen>; SEEN_MAX]> = const { RefCell::new([const { None }; SEEN_MAX]) };
}

#[derive(Default)]
pub(crate) struct WorkerGroups {
    groups: RefCell<HashMap<u64, Rc<WorkerGroup>, BuildHasherDefault<Identity>>>,
    pub(crate) named: RefCell<Named>,
    spares: Rc<Spares>,
    /// Groups with a lower number are of configurations that have had their time.
    oldest: Cell<u64>,
}

impl WorkerGroups {
    #[cold]
    fn add(&self, group: &Group, worker: &Worker) -> Rc<WorkerGroup> {
        let shape = match &group.live {
            Some(live) => live.shape(),
            None => Arc::clone(&group.shape),
        };
        self.spares.set_max(worker);
        let fresh = WorkerGroup::new(shape, Arc::downgrade(&group.alive), &self.spares, worker.id);
        let mut groups = self.groups.borrow_mut();
        if let Some(old) = groups.get(&group.id) {
            fresh.take_over(old);
        }
        if group.id >= self.oldest.get() {
            // After a reload the connections go over to the upstream of the same name.
            for old in groups.values().filter(|old| old.shape.name == fresh.shape.name) {
                fresh.adopt(old);
            }
        } else {
            fresh.retire();
        }
        groups.retain(|_, g| g.in_use());
        groups.insert(group.id, Rc::clone(&fresh));
        fresh
    }

    fn each(&self, mut f: impl FnMut(&mut Pool)) {
        let (groups, named) = (self.groups.borrow(), self.named.borrow());
        for group in groups.values().chain(named.groups()) {
            group.with_idle(&mut f);
        }
    }

    fn renew(&self, fresh: &[&Group], worker: &Worker) {
        let oldest = fresh.iter().map(|g| g.id).min();
        let oldest = oldest.unwrap_or_else(|| NEXT_GROUP.load(Ordering::Relaxed));
        self.oldest.set(oldest);
        let all = self.groups.borrow();
        let old = all.iter().filter(|(id, _)| **id < oldest);
        let old: Vec<_> = old.map(|(_, group)| Rc::clone(group)).collect();
        drop(all);
        let waiting = old.iter().filter(|g| g.with_idle(|pool| !pool.is_empty()).unwrap_or(false));
        let names: HashSet<&[u8]> = waiting.map(|g| &*g.shape.name).collect();
        for group in fresh.iter().filter(|g| names.contains(&*g.shape.name)) {
            group.on(worker);
        }
        old.iter().for_each(|group| group.retire());
        self.named.take().groups().for_each(|group| group.retire());
    }
}

/// One worker's part of a group.
pub struct WorkerGroup {
    pub(crate) shape: Arc<Shape>,
    generation: Weak<()>,
    state: RefCell<State>,
    names: [Vec<Rc<[u8]>>; 2],
    /// Shown for `$upstream_addr` when no server could be asked.
    pub shown_name: Rc<[u8]>,
    /// Sessions that wait for a server.
    pub(crate) queue: Option<Arc<Queue>>,
    /// `None`: no connection is kept.
    idle: Option<RefCell<Pool>>,
    /// One server, always there to be asked, and all that is remembered of it is how many do.
    plain: bool,
    /// Tasks that look after the idle connections are there.
    sweeping: Cell<bool>,
    trimming: Cell<bool>,
    pub(crate) parts: Parts,
    pub(crate) spares: Rc<Spares>,
    me: RcWeak<WorkerGroup>,
    /// The group in its newer shape; connections that get idle go there.
    successor: RefCell<RcWeak<WorkerGroup>>,
    /// The worker has a newer configuration: connections that get idle are closed.
    pub(crate) retired: Cell<bool>,
}

impl WorkerGroup {
    pub(crate) fn new(
        shape: Arc<Shape>,
        generation: Weak<()>,
        spares: &Rc<Spares>,
        worker: usize,
    ) -> Rc<WorkerGroup> {
        let parts = shape.counts.as_ref().map(|counts| Parts::new(counts, worker));
        let parts = parts.unwrap_or_default();
        let uses = Arc::clone(parts.uses());
        let pool = |keep| RefCell::new(Pool::new(keep, Rc::clone(spares), uses));
        let names = |l: &[Peer]| l.iter().map(|p| Rc::from(&*p.name)).collect::<Vec<_>>();
        Rc::new_cyclic(|me| WorkerGroup {
            state: RefCell::new(shape.peers.fresh_state()),
            names: [names(&shape.peers.primary.peers), names(&shape.peers.backup.peers)],
            shown_name: Rc::from(&*shape.name),
            queue: match (&shape.queue, &shape.zone) {
                // Where each worker counts for itself, each has a queue.
                (Some(queue), None) => Some(Queue::new(queue.rule)),
                (queue, _) => queue.clone(),
            },
            idle: shape.keepalive.map(pool),
            plain: shape.is_plain(),
            sweeping: Cell::new(false),
            trimming: Cell::new(false),
            parts,
            spares: Rc::clone(spares),
            me: me.clone(),
            successor: RefCell::default(),
            retired: Cell::new(false),
            generation,
            shape,
        })
    }

    /// Whether a generation still has this group.
    fn in_use(&self) -> bool {
        self.generation.strong_count() > 0
    }

    fn adopt(&self, old: &WorkerGroup) {
        if self.shape.keepalive != old.shape.keepalive || self.shape.keepalive.is_none() {
            return;
        }
        if self.shape.keepalive.is_some_and(|k| k.local) {
            return;
        }
        self.take_over(old);
    }

    /// The place of a server by its address.
    fn place_of(&self, name: &[u8]) -> Option<PeerId> {
        [false, true].into_iter().find_map(|backup| {
            let index = self.names[usize::from(backup)].iter().position(|n| **n == *name)?;
            Some(PeerId { backup, index })
        })
    }

    /// Takes the idle connections to servers that are here as well, and those that get idle there.
    fn take_over(&self, old: &WorkerGroup) {
        old.successor.borrow_mut().clone_from(&self.me);
        let place = |at: PeerId| self.place_of(&old.names[usize::from(at.backup)][at.index]);
        let above = self.with_idle(|mine| old.with_idle(|theirs| mine.take_over(theirs, place)));
        self.start_sweeping();
        if above.flatten().unwrap_or(false) {
            self.start_trimming();
        }
    }

    /// Its configuration has had its time.
    pub(crate) fn retire(&self) {
        self.retired.set(true);
        self.with_idle(Pool::clear);
    }

    pub(crate) fn with_idle<T>(&self, f: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        self.idle.as_ref().map(|idle| f(&mut idle.borrow_mut()))
    }

    /// Whether the configuration has a server.
    pub fn has_servers(&self) -> bool {
        let Peers { primary, backup } = &self.shape.peers;
        !primary.peers.is_empty() || !backup.peers.is_empty()
    }

    /// A session's way through the servers begins.
    pub fn choice(&self) -> Choice {
        Choice::new(&self.shape.peers)
    }

    /// What goes into the choice of a server for a session.
    pub fn key<S: Asks>(&self, s: &mut S) -> Key {
        Key::new(&self.shape.method, s)
    }

    /// Whether what goes into the choice is another for each session.
    #[inline]
    pub fn has_key(&self) -> bool {
        matches!(self.shape.method, Method::Hash(_) | Method::Consistent(..) | Method::IpHash)
    }

    /// What its `sticky` has made, if it is one of that kind.
    #[inline]
    pub fn sticky<T: Any>(&self) -> Option<&T> {
        match self.shape.sticky {
            None => None,
            Some(_) => self.sticky_of(),
        }
    }

    #[cold]
    fn sticky_of<T: Any>(&self) -> Option<&T> {
        self.shape.sticky.as_ref()?.downcast_ref()
    }

    /// A server as `$upstream_addr` shows it.
    pub fn name_of(&self, at: PeerId) -> Rc<[u8]> {
        Rc::clone(&self.names[usize::from(at.backup)][at.index])
    }

    fn with_state<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        match &self.shape.zone {
            Some(zone) => f(&mut zone.lock().unwrap_or_else(|e| e.into_inner())),
            None => f(&mut self.state.borrow_mut()),
        }
    }

    /// Chooses a server and counts the connection to it. Nothing, if none is left, or none has room yet
    /// ([`WorkerGroup::lets_wait`]).
    #[inline]
    pub fn pick(self: &Rc<Self>, choice: &mut Choice, key: &mut Key) -> Option<Lease> {
        if !self.plain {
            return self.pick_of_many(choice, key);
        }
        let peer = PeerId { backup: false, index: 0 };
        Some(self.lease(peer, None))
    }

    /// Whether each client's connection has its own to a server (`ntlm`).
    #[inline]
    pub fn binds(&self) -> bool {
        self.shape.binds
    }

    /// Closes what waits with that mark when the client's connection ends: nobody else will use it.
    #[cold]
    pub fn bind(&self, client: &Connection, mark: u64) {
        let me = self.me.clone();
        client.at_end((me.as_ptr() as usize, mark), move || {
            // A reload hands on what waits.
            let mut group = me.upgrade();
            while let Some(at) = group {
                at.with_idle(|pool| pool.close_marked(mark));
                group = at.successor.borrow().upgrade();
            }
        });
    }

    /// The server to which a connection with that mark waits, as far as it may be asked.
    #[cold]
    pub fn pick_bound(self: &Rc<Self>, choice: &mut Choice, mark: u64) -> Option<Lease> {
        let peer = self.with_idle(|pool| pool.server_of(mark)).flatten()?;
        let now = clock::mono_secs();
        let shape = &self.shape;
        let (may, moved) = self.with_state(|s| {
            let may = peers::usable(shape.peers.peer(peer), s.peer(peer), now);
            if may {
                peers::take(&shape.peers, s, choice, peer, now);
            }
            (may, shape.has_moved())
        });
        if may && moved {
            self.forward(peer, |_, s, at| s.peer(at).conns += 1);
        }
        may.then(|| self.lease(peer, None))
    }

    #[inline(never)]
    fn pick_of_many(self: &Rc<Self>, choice: &mut Choice, key: &mut Key) -> Option<Lease> {
        // Who waits already comes first.
        if self.queue.as_ref().is_some_and(|queue| !queue.is_empty()) {
            return None;
        }
        self.pick_now(choice, key)
    }

    /// Whether who was given no server may wait for one ([`WorkerGroup::wait`]).
    #[cold]
    pub fn lets_wait(&self) -> bool {
        let is_up = |list: &PeerList| list.peers.iter().any(|peer| !peer.down);
        let peers = &self.shape.peers;
        self.queue.is_some() && (is_up(&peers.primary) || is_up(&peers.backup))
    }

    pub(crate) fn pick_now(self: &Rc<Self>, choice: &mut Choice, key: &mut Key) -> Option<Lease> {
        let now = clock::mono_secs();
        let peers = &self.shape.peers;
        let timed = self.shape.timed();
        if timed.is_some() {
            choice.now_ms = clock::mono_ms();
        }
        let begin = |s: &mut State, at: PeerId, now_ms: u64| {
            let timed = timed?;
            let mut measured = Box::<Measured>::default();
            timed.begin(s.peer(at), &mut measured, now_ms);
            Some(measured)
        };
        let (found, moved) = self.with_state(|s| {
            let at = balance::pick(&self.shape.method, peers, s, choice, key, now);
            (at.map(|at| (at, begin(s, at, choice.now_ms))), self.shape.has_moved())
        });
        let (at, measured) = found?;
        if moved {
            self.forward(at, |_, s, at| {
                s.peer(at).conns += 1;
                begin(s, at, choice.now_ms);
            });
        }
        Some(self.lease(at, measured))
    }

    #[inline(always)]
    fn lease(self: &Rc<Self>, peer: PeerId, measured: Option<Box<Measured>>) -> Lease {
        if let Some(tries) = self.parts.server(peer) {
            tries.begun.add(1);
        }
        Lease { group: Rc::clone(self), peer, open: true, measured }
    }

    /// Does the same in the newest shape.
    #[cold]
    fn forward(&self, at: PeerId, f: impl FnOnce(&Peers, &mut State, PeerId)) {
        if let Some(tie) = &self.shape.tie {
            tie.forward(at, f);
        }
    }

    /// An idle connection to that server with that TLS (0 for none), the most recently used first.
    #[inline]
    pub fn take_idle(&self, peer: PeerId, tag: usize, mark: u64) -> Option<Box<Link>> {
        self.idle.as_ref()?.borrow_mut().take(peer, tag, mark, clock::mono_ms())
    }

    /// Keeps a connection for the next request, if it may be kept. Whether it is still good is looked at when
    /// it is taken, and once a second.
    pub fn put_idle(&self, mut link: Box<Link>, peer: PeerId, tag: usize, worker: &Worker) {
        if self.successor.borrow().strong_count() > 0 {
            return self.put_in_newer(link, peer, tag, worker);
        }
        let (Some(k), Some(idle)) = (&self.shape.keepalive, &self.idle) else { return };
        let now = clock::mono_ms();
        let old = link.requests >= k.requests || now.saturating_sub(link.start_ms) > k.time_ms;
        if worker.closing.get() || self.retired.get() || old {
            return;
        }
        link.sent = 0;
        link.waits_ms = (None, None);
        let unlimited = self.plain || self.shape.peers.peer(peer).max_conns == 0;
        let sparing = unlimited && !link.holds_process;
        if idle.borrow_mut().put(link, peer, tag, sparing, now) && !self.trimming.get() {
            self.spares.set_max(worker);
            self.start_trimming();
        }
        if !self.sweeping.get() {
            self.start_sweeping();
        }
    }

    #[cold]
    fn put_in_newer(&self, link: Box<Link>, peer: PeerId, tag: usize, worker: &Worker) {
        let newer = self.successor.borrow().upgrade();
        let place = newer.as_ref().and_then(|newer| newer.place_of(&self.name_of(peer)));
        if let (Some(newer), Some(peer)) = (newer, place) {
            newer.put_idle(link, peer, tag, worker);
        }
    }

    fn start_sweeping(&self) {
        if !self.sweeping.replace(true) {
            self.look_again_and_again(WorkerGroup::sweep);
        }
    }

    fn start_trimming(&self) {
        if !self.trimming.replace(true) {
            self.look_again_and_again(WorkerGroup::trim);
        }
    }

    /// Runs `look` until there is nothing left for it, as long as it answers (ms) between.
    fn look_again_and_again(&self, look: fn(&WorkerGroup) -> Option<u64>) {
        let me = self.me.clone();
        weir_runtime::event_loop::spawn(async move {
            while let Some(ms) = me.upgrade().and_then(|group| look(&group)) {
                match ms {
                    0 => weir_runtime::event_loop::yield_now().await,
                    ms => timer::sleep_ms(ms).await,
                }
            }
        });
    }

    /// Closes what has waited too long or was closed by its peer; how long until the next look.
    fn sweep(&self) -> Option<u64> {
        let next = self.with_idle(|idle| idle.sweep(clock::mono_ms())).flatten();
        self.sweeping.set(next.is_some());
        next.map(|ms| ms.clamp(1, SWEEP_MS))
    }

    /// Closes what has been above the number for long enough; how long until the next look.
    fn trim(&self) -> Option<u64> {
        let next = self.with_idle(Pool::trim).flatten();
        self.trimming.set(next.is_some());
        next
    }
}

/// A connection to a server that counts for its limits; given back at the latest when dropped.
pub struct Lease {
    group: Rc<WorkerGroup>,
    /// The server.
    pub peer: PeerId,
    open: bool,
    /// Where servers are chosen by it.
    measured: Option<Box<Measured>>,
}

impl Lease {
    /// The group that it is of.
    #[inline]
    pub fn group(&self) -> &Rc<WorkerGroup> {
        &self.group
    }

    /// What the configuration says of the server.
    pub fn config(&self) -> &Peer {
        self.group.shape.peers.peer(self.peer)
    }

    /// A connection was made in so many microseconds, with TLS where there is any: that is counted.
    pub fn made(&self, took_us: u64) {
        if let Some(tries) = self.tries() {
            tries.connect.add(took_us);
        }
    }

    /// There is a connection, after so many microseconds. `proven`: by that the server has shown that
    /// it is well again, where the protocol has no answers that would.
    pub fn connected(&mut self, took_us: u64, proven: bool) {
        self.made(took_us);
        if let Some(m) = &mut self.measured {
            m.connect_ms = Some(took_us / 1000);
        }
        let now_ms = clock::mono_ms();
        let connected = |timed: LeastTime, s: &mut PeerState, m: &mut Measured| {
            timed.connected(s, m, now_ms);
        };
        if proven || self.measured.is_some() {
            let peer = self.config().clone();
            self.note(connected, |s| {
                if proven {
                    peers::recover(&peer, s, now_ms / 1000);
                }
            });
            self.tell_down(self.group.with_state(|s| self.note_down(s, now_ms)));
        }
    }

    /// The answer's head took so many microseconds, and is passed on.
    #[inline]
    pub fn header_came(&mut self, took_us: Option<u64>) {
        if self.measured.is_some() {
            self.note_header(took_us);
        }
    }

    #[inline(never)]
    fn note_header(&mut self, took_us: Option<u64>) {
        let Some(m) = &mut self.measured else { return };
        m.header_ms = took_us.map(|us| us / 1000);
        let now_ms = clock::mono_ms();
        self.note(|timed, s, m| timed.header(s, m, now_ms), |_| {});
    }

    /// Notes a time, where that is done, and what else is to be noted of the server; in its newest shape too.
    fn note(
        &mut self,
        time: impl Fn(LeastTime, &mut PeerState, &mut Measured),
        besides: impl Fn(&mut PeerState),
    ) {
        let (group, peer) = (&self.group, self.peer);
        let timed = group.shape.timed();
        let mut again = self.measured.clone();
        let all = |s: &mut PeerState, m: &mut Option<Box<Measured>>| {
            if let (Some(timed), Some(m)) = (timed, m) {
                time(timed, s, m);
            }
            besides(s);
        };
        let moved = group.with_state(|s| {
            all(s.peer(peer), &mut self.measured);
            group.shape.has_moved()
        });
        if moved {
            group.forward(peer, |_, s, at| all(s.peer(at), &mut again));
        }
    }

    fn tries(&self) -> Option<&Tries> {
        self.group.parts.server(self.peer)
    }

    /// It was chosen at that time, in microseconds of the monotonic clock.
    #[inline]
    pub fn chosen(&self, now_us: u64) {
        if let Some(tries) = self.tries() {
            tries.selected_us.set(now_us);
        }
    }

    /// What became of the try is counted.
    #[inline]
    pub fn count(&self, state: &UpstreamState) {
        if let Some(tries) = self.tries() {
            tries.count(state);
        }
    }

    /// What became of the beginning of TLS on a connection is counted; nothing, if nobody waited for it.
    pub fn secured(&self, link: &Link, done: Option<&Result<(), SecureError>>, begun_us: u64) {
        let Some(tries) = self.tries() else { return };
        let handshakes: &Handshakes = tries.handshakes.get_or_init(Box::default);
        let succeeded = || {
            let took_us = clock::mono_us().saturating_sub(begun_us);
            if let Some(tls) = link.stream.tls() {
                tls.with(|tls| handshakes.succeeded(tls, took_us));
            }
        };
        match done {
            Some(Ok(())) => succeeded(),
            Some(Err(SecureError::Unverified(why, _))) => {
                succeeded();
                handshakes.unverified(*why);
            }
            Some(Err(SecureError::Timeout)) => handshakes.timed_out(),
            Some(Err(SecureError::Tls(e))) => handshakes.failed(Some(e)),
            Some(Err(SecureError::Refused(_) | SecureError::Certificate(_))) | None => {
                handshakes.failed(None);
            }
        }
    }

    /// How long the head took, and all of it: the try is counted.
    #[inline]
    pub fn took(&mut self, state: &UpstreamState) {
        self.count(state);
        if let Some(m) = &mut self.measured {
            m.header_ms = state.header_us.map(|us| us / 1000);
            m.response_ms = state.response_us.unwrap_or_default() / 1000;
        }
    }

    /// Gives the server back; `failed` counts against it. Answers whether it is now disabled.
    #[inline(always)]
    pub fn release(mut self, choice: &mut Choice, failed: bool) -> bool {
        self.open = false;
        self.give_back(choice, failed)
    }

    /// The same, when no other server will be asked.
    pub fn end(self, failed: bool) -> bool {
        self.release(&mut Choice::default(), failed)
    }

    #[inline(always)]
    fn give_back(&self, choice: &mut Choice, failed: bool) -> bool {
        if let Some(tries) = self.tries() {
            tries.ended.add(1);
            if failed {
                tries.fails.add(1);
            }
        }
        if !self.group.plain {
            return self.give_one_back(choice, failed);
        }
        choice.tries = 0;
        false
    }

    /// Since when it is counted out now and for how long it was before, if that has changed.
    fn note_down(&self, s: &mut State, now_ms: u64) -> Option<(u64, u64)> {
        let s = s.peer(self.peer);
        let after_ms = s.note_down(self.config(), now_ms)?;
        Some((s.down_since_ms, after_ms))
    }

    /// What workers share says it itself.
    #[inline]
    fn tell_down(&self, turned: Option<(u64, u64)>) {
        let Some((since_ms, after_ms)) = turned.filter(|_| self.group.shape.zone.is_none()) else {
            return;
        };
        if let Some(tries) = self.tries() {
            tries.turned(since_ms, after_ms);
        }
    }

    #[inline(never)]
    fn give_one_back(&self, choice: &mut Choice, failed: bool) -> bool {
        let now_ms = clock::mono_ms();
        let now = now_ms / 1000;
        let (group, shape, measured) = (&self.group, &self.group.shape, &self.measured);
        let end = |peers: &Peers, s: &mut State, choice: &mut Choice, at: PeerId| {
            if let (Some(timed), Some(measured)) = (shape.timed(), measured) {
                timed.end(s.peer(at), &mut measured.clone(), failed, clock::mono_ms());
            }
            peers::release(peers, s, choice, at, failed, now)
        };
        let (disabled, turned, moved) = group.with_state(|s| {
            let disabled = end(&shape.peers, s, choice, self.peer);
            (disabled, self.note_down(s, now_ms), shape.has_moved())
        });
        if let Some(tries) = self.tries() {
            tries.unavail.add(disabled.into());
        }
        self.tell_down(turned);
        if moved {
            group.forward(self.peer, |peers, s, at| {
                end(peers, s, &mut Choice::default(), at);
                s.peer(at).note_down(peers.peer(at), now_ms);
            });
        }
        if let Some(queue) = &group.queue {
            queue.wake();
        }
        disabled
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.open {
            self.give_back(&mut Choice::default(), false);
        }
    }
}
