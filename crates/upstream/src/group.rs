//! An upstream as it is used: its servers, what is remembered of them, its idle connections.
//!
//! The configuration's part ([`Group`]) is shared by all workers. What is remembered is each
//! worker's own, as in nginx, unless the upstream has a `zone`: then it is one, and lives on over
//! reloads as long as its servers stay the same.

use crate::balance::{self, Method};
use crate::least_time::{LeastTime, Measured};
use crate::link::Link;
use crate::peers::{self, Choice, Peer, PeerId, Peers, State};
use crate::sticky::Sticky;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::rc::{Rc, Weak as RcWeak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use weir_base::bytes::Identity;
use weir_http::worker::Worker;
use weir_runtime::{clock, timer};

/// How often idle connections are looked over for closed and old ones.
const SWEEP_MS: u64 = 1000;

/// `keepalive` and its companions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    pub max_idle: usize,
    pub requests: u64,
    pub time_ms: u64,
    pub timeout_ms: u64,
    /// A connection is used again only by the location that opened it.
    pub local: bool,
}

/// One upstream of a generation.
pub struct Group {
    id: u64,
    pub name: Vec<u8>,
    /// Written out in `proxy_pass` instead of being an `upstream` block.
    pub implicit: bool,
    /// 0 when it was named without one.
    pub port: u16,
    shape: Arc<Shape>,
    /// Lives as long as the generation does; workers look whether it still does.
    alive: Arc<()>,
}

/// What the workers need of a group; requests in flight keep it over a reload.
pub struct Shape {
    pub name: Box<[u8]>,
    pub peers: Peers,
    pub method: Method,
    pub keepalive: Option<KeepAlive>,
    pub sticky: Option<Arc<Sticky>>,
    zone: Option<Arc<Mutex<State>>>,
}

impl Shape {
    /// How servers' times are measured, where the balancing goes by them.
    fn timed(&self) -> Option<LeastTime> {
        match self.method {
            Method::LeastTime(how) => Some(how),
            _ => None,
        }
    }
}

static NEXT_GROUP: AtomicU64 = AtomicU64::new(1);

/// What a zone remembers of an upstream.
struct Zone {
    zone: Vec<u8>,
    upstream: Vec<u8>,
    peers: Peers,
    state: Weak<Mutex<State>>,
}

/// The zones of the process.
static ZONES: Mutex<Vec<Zone>> = Mutex::new(Vec::new());

fn zone_state(zone: &[u8], name: &[u8], peers: &Peers) -> Arc<Mutex<State>> {
    let mut zones = ZONES.lock().unwrap_or_else(|e| e.into_inner());
    zones.retain(|z| z.state.strong_count() > 0);
    let kept = zones.iter().find(|z| z.zone == zone && z.upstream == name && z.peers == *peers);
    if let Some(state) = kept.and_then(|z| z.state.upgrade()) {
        return state;
    }
    let fresh = Arc::new(Mutex::new(peers.fresh_state()));
    zones.push(Zone {
        zone: zone.to_vec(),
        upstream: name.to_vec(),
        peers: peers.clone(),
        state: Arc::downgrade(&fresh),
    });
    fresh
}

impl Group {
    pub fn new(
        name: &[u8],
        port: u16,
        implicit: bool,
        peers: Peers,
        method: Method,
        keepalive: Option<KeepAlive>,
        zone: Option<&[u8]>,
    ) -> Group {
        let zone = zone.map(|z| zone_state(z, name, &peers));
        let shape =
            Arc::new(Shape { name: name.into(), peers, method, keepalive, sticky: None, zone });
        let id = NEXT_GROUP.fetch_add(1, Ordering::Relaxed);
        Group { id, name: name.to_vec(), implicit, port, shape, alive: Arc::new(()) }
    }

    pub fn with_sticky(mut self, sticky: Arc<Sticky>) -> Group {
        // Nobody has a new group's shape yet.
        if let Some(shape) = Arc::get_mut(&mut self.shape) {
            shape.sticky = Some(sticky);
        }
        self
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The worker's part of this group, made at first use.
    pub fn on(&self, worker: &Worker) -> Rc<WorkerGroup> {
        let all = worker.local::<WorkerGroups>();
        if let Some(found) = all.groups.borrow().get(&self.id) {
            return Rc::clone(found);
        }
        all.add(self)
    }
}

/// A group for one request's own address, that is in no configuration.
pub fn ad_hoc(name: &[u8], peers: Vec<Peer>) -> Rc<WorkerGroup> {
    let peers = Peers::new(peers, Vec::new());
    let method = Method::RoundRobin;
    let shape =
        Shape { name: name.into(), peers, method, keepalive: None, sticky: None, zone: None };
    WorkerGroup::new(Arc::new(shape), Weak::new())
}

#[derive(Default)]
struct WorkerGroups {
    groups: RefCell<HashMap<u64, Rc<WorkerGroup>, BuildHasherDefault<Identity>>>,
}

impl WorkerGroups {
    #[cold]
    fn add(&self, group: &Group) -> Rc<WorkerGroup> {
        let fresh = WorkerGroup::new(Arc::clone(&group.shape), Arc::downgrade(&group.alive));
        let mut groups = self.groups.borrow_mut();
        // After a reload the connections go over to the upstream of the same name.
        for old in groups.values().filter(|old| old.shape.name == fresh.shape.name) {
            fresh.adopt(old);
        }
        groups.retain(|_, g| g.in_use());
        groups.insert(group.id, Rc::clone(&fresh));
        fresh
    }
}

/// A connection that waits for its next request.
struct Idle {
    link: Box<Link>,
    peer: PeerId,
    tag: usize,
    until_ms: u64,
}

/// One worker's part of a group.
pub struct WorkerGroup {
    pub shape: Arc<Shape>,
    generation: Weak<()>,
    state: RefCell<State>,
    names: [Vec<Rc<[u8]>>; 2],
    /// Shown for `$upstream_addr` when no server could be asked.
    pub shown_name: Rc<[u8]>,
    /// The most recently used at the end.
    idle: RefCell<VecDeque<Idle>>,
    sweeping: Cell<bool>,
    me: RcWeak<WorkerGroup>,
}

impl WorkerGroup {
    fn new(shape: Arc<Shape>, generation: Weak<()>) -> Rc<WorkerGroup> {
        let names = |l: &[Peer]| l.iter().map(|p| Rc::from(&*p.name)).collect::<Vec<_>>();
        Rc::new_cyclic(|me| WorkerGroup {
            state: RefCell::new(shape.peers.fresh_state()),
            names: [names(&shape.peers.primary.peers), names(&shape.peers.backup.peers)],
            shown_name: Rc::from(&*shape.name),
            idle: RefCell::new(VecDeque::new()),
            sweeping: Cell::new(false),
            me: me.clone(),
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
        let mut mine = self.idle.borrow_mut();
        for mut idle in old.idle.borrow_mut().drain(..) {
            let name = &old.names[usize::from(idle.peer.backup)][idle.peer.index];
            let found = [false, true].into_iter().find_map(|backup| {
                let at = self.names[usize::from(backup)].iter().position(|n| n == name)?;
                Some(PeerId { backup, index: at })
            });
            if let Some(peer) = found {
                idle.peer = peer;
                mine.push_back(idle);
            }
        }
        drop(mine);
        self.start_sweeping();
    }

    pub fn peers(&self) -> &Peers {
        &self.shape.peers
    }

    pub fn name_of(&self, at: PeerId) -> Rc<[u8]> {
        Rc::clone(&self.names[usize::from(at.backup)][at.index])
    }

    fn with_state<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        match &self.shape.zone {
            Some(zone) => f(&mut zone.lock().unwrap_or_else(|e| e.into_inner())),
            None => f(&mut self.state.borrow_mut()),
        }
    }

    /// Chooses a server and counts the connection to it.
    pub fn pick(self: &Rc<Self>, choice: &mut Choice, key: &mut balance::Key) -> Option<Lease> {
        let now = clock::wall_secs() as u64;
        let peers = &self.shape.peers;
        if let Some(sticky) = &self.shape.sticky {
            sticky.ask(&key.client, choice);
        }
        let timed = self.shape.timed();
        if timed.is_some() {
            choice.now_ms = clock::mono_ms();
        }
        let mut measured = Measured::default();
        let at = self.with_state(|s| {
            let at = balance::pick(&self.shape.method, peers, s, choice, key, now)?;
            if let Some(timed) = timed {
                timed.begin(s.peer(at), &mut measured, choice.now_ms);
            }
            Some(at)
        })?;
        Some(Lease { group: Rc::clone(self), peer: at, open: true, measured })
    }

    /// An idle connection to that server with that TLS (0 for none), the most recently used first.
    pub fn take_idle(&self, peer: PeerId, tag: usize, mark: u64) -> Option<Box<Link>> {
        let local = self.shape.keepalive?.local;
        let now = clock::mono_ms();
        loop {
            let mut idle = self.idle.borrow_mut();
            let fits = |i: &Idle| i.peer == peer && i.link.mark == mark && (!local || i.tag == tag);
            let at = idle.iter().rposition(fits)?;
            let found = idle.remove(at)?;
            if found.until_ms > now && found.link.is_quiet() {
                return Some(found.link);
            }
        }
    }

    /// Keeps a connection for the next request, if it may be kept.
    pub fn put_idle(&self, mut link: Box<Link>, peer: PeerId, tag: usize, closing: bool) {
        let Some(k) = self.shape.keepalive else { return };
        let now = clock::mono_ms();
        let old = link.requests >= k.requests || now.saturating_sub(link.start_ms) > k.time_ms;
        if closing || old || !link.is_quiet() {
            return;
        }
        link.sent = 0;
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= k.max_idle {
            idle.pop_front();
        }
        idle.push_back(Idle { link, peer, tag, until_ms: now + k.timeout_ms });
        if !self.sweeping.get() {
            drop(idle);
            self.start_sweeping();
        }
    }

    fn start_sweeping(&self) {
        if self.sweeping.replace(true) {
            return;
        }
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            loop {
                let wait = match me.upgrade() {
                    Some(group) => group.sweep(),
                    None => return,
                };
                match wait {
                    Some(ms) => timer::sleep_ms(ms).await,
                    None => return,
                }
            }
        });
    }

    /// Closes what has waited too long or was closed by its peer; how long until the next look.
    fn sweep(&self) -> Option<u64> {
        let now = clock::mono_ms();
        let mut idle = self.idle.borrow_mut();
        idle.retain(|i| i.until_ms > now && i.link.is_quiet());
        match idle.iter().map(|i| i.until_ms - now).min() {
            Some(next) => Some(next.clamp(1, SWEEP_MS)),
            None => {
                self.sweeping.set(false);
                None
            }
        }
    }
}

/// A connection to a server that counts for its limits; given back at the latest when dropped.
pub struct Lease {
    pub group: Rc<WorkerGroup>,
    pub peer: PeerId,
    open: bool,
    measured: Measured,
}

impl Lease {
    pub fn config(&self) -> &Peer {
        self.group.shape.peers.peer(self.peer)
    }

    /// The answer's head took so long, and is passed on.
    pub fn header_came(&mut self, took_ms: Option<u64>) {
        self.measured.header_ms = took_ms;
        let (group, m) = (&self.group, &mut self.measured);
        if let Some(timed) = group.shape.timed() {
            group.with_state(|s| timed.header(s.peer(self.peer), m, clock::mono_ms()));
        }
    }

    /// How long the head took, and all of it.
    pub fn took(&mut self, header_ms: Option<u64>, response_ms: Option<u64>) {
        self.measured.header_ms = header_ms;
        self.measured.response_ms = response_ms.unwrap_or_default();
    }

    /// Gives the server back; `failed` counts against it. Answers whether it is now disabled.
    pub fn release(mut self, choice: &mut Choice, failed: bool) -> bool {
        self.open = false;
        self.give_back(choice, failed)
    }

    fn give_back(&mut self, choice: &mut Choice, failed: bool) -> bool {
        let now = clock::wall_secs() as u64;
        let (group, at, m) = (&self.group, self.peer, &mut self.measured);
        group.with_state(|s| {
            if let Some(timed) = group.shape.timed() {
                timed.end(s.peer(at), m, failed, clock::mono_ms());
            }
            peers::release(&group.shape.peers, s, choice, at, failed, now)
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.open {
            self.give_back(&mut Choice::default(), false);
        }
    }
}
