//! Upstreams whose servers change while they serve: `server … resolve`, and names that were not
//! found when the configuration was read.
//!
//! What is served is an immutable [`Shape`]; a changed answer makes a new one and raises the
//! version that workers compare. A server that stays keeps its id, and by that its state: what a
//! request in flight gives back to an old shape is counted in the newest one as well. Lock order:
//! `current`, then a shape's state.
//!
//! Difference from nginx: such an upstream without `zone` shares its state between workers too.

pub mod editing;
mod kept_over;

use crate::conf::UpstreamMain;
use crate::counted::Tries;
use crate::group::{self, Plan, Shape, ZoneName};
use crate::peers::{self, Peer, PeerAddr, PeerId, Peers, State};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use weir_core::counts::Counted;
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::shared_file::{self, Kept};
use weir_module::Slots;
use weir_resolve::message::{error_text, NXDOMAIN};
use weir_resolve::{client, Found, Question, Resolver, Target};
use weir_runtime::{clock, timer};

pub(crate) use kept_over::StateFile;

/// The system's resolver is asked again so often for a name that it has not found.
const SYSTEM_RETRY_MS: u64 = 3000;
/// The least wait after a failure of the name servers, and after an answer that is not to be kept.
const RETRY_MIN_MS: u64 = 1000;

/// `dynamic_resolve`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fallback {
    /// The servers that were found last go on.
    pub stale: bool,
    /// So long nobody is asked again.
    pub fail_timeout_ms: u64,
}

/// A name that servers come from.
pub(crate) struct Host {
    pub name: String,
    pub service: Option<String>,
    pub port: u16,
    /// What is common to its servers.
    pub template: Peer,
    /// What `sticky` knows them by; each by its address without it.
    pub route: Vec<u8>,
    pub backup: bool,
    /// `resolve`: asked for as long as the configuration lives. Otherwise it was not found at
    /// first, and what has once been found stays.
    pub resolve: bool,
    /// `dynamic_resolve`: what becomes of its servers while nobody finds it.
    pub fallback: Option<Fallback>,
    /// Who is asked and how long; without it, the system.
    pub resolver: OnceLock<(Arc<Resolver>, u64)>,
}

impl Host {
    fn same_name(&self, other: &Host) -> bool {
        self.name == other.name && self.service == other.service
    }

    /// The servers an answer means, and whether each is a backup: RFC 2782's later priorities are.
    fn servers(&self, found: &[Target]) -> Vec<(Peer, bool)> {
        let first = found.iter().map(|t| t.priority).min().unwrap_or(0);
        let wanted = found.iter().filter(|t| !self.backup || t.priority == first);
        wanted.map(|t| (self.server(t), self.backup || t.priority != first)).collect()
    }

    fn server(&self, t: &Target) -> Peer {
        let (port, server, weight) = match self.service {
            None => (self.port, self.template.server.clone(), self.template.weight),
            Some(_) => (t.port, t.name.as_bytes().into(), i64::from(t.weight)),
        };
        let weight = if self.template.weight != 1 { self.template.weight } else { weight };
        self.at(SocketAddr::new(t.ip, port), server, weight)
    }

    fn at(&self, addr: SocketAddr, server: Box<[u8]>, weight: i64) -> Peer {
        let addr = PeerAddr::Ip(addr);
        let name: Box<[u8]> = addr.text().into();
        let sid = peers::sid(&self.route, &name);
        Peer { addr, name, sid, server, weight, ..self.template.clone() }
    }

    /// A server of the same host in the configuration before.
    fn inherited(&self, old: &Peer) -> Peer {
        match (&old.addr, &self.service) {
            (PeerAddr::Ip(a), None) => {
                let addr = SocketAddr::new(a.ip(), self.port);
                self.at(addr, self.template.server.clone(), self.template.weight)
            }
            (PeerAddr::Ip(a), Some(_)) => {
                let own = self.template.weight;
                let weight = if own != 1 { own } else { old.weight };
                self.at(*a, old.server.clone(), weight)
            }
            (PeerAddr::Unix(_), _) => old.clone(),
        }
    }
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
    host: Option<usize>,
}

struct Current {
    shape: Arc<Shape>,
    entries: Vec<Entry>,
    next_id: u64,
    /// The same upstream of a newer configuration, which has what is changed from now on.
    successor: Option<Arc<Live>>,
    /// When each host is to be asked for.
    until_ms: Vec<u64>,
    /// Servers that are no longer there, as long as something is still known of them.
    gone: Vec<Weak<Counted<Tries>>>,
}

pub(crate) struct Live {
    plan: Plan,
    pub hosts: Vec<Host>,
    /// Why servers that come are not asked yet: the bits of checks that are to have passed first.
    pub off_at_first: AtomicU32,
    version: AtomicU64,
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
        let mut number = || {
            next_id += 1;
            next_id - 1
        };
        let mut entries = kept.unwrap_or_else(|| {
            let entry = |(peer, backup)| Entry { id: number(), peer, backup, host: None };
            fixed.into_iter().map(entry).collect()
        });
        let mut until_ms = vec![0; hosts.len()];
        if let Some(before) = before {
            before.hand_over(&hosts, &mut entries, &mut number, &mut until_ms);
        }
        let live = Arc::new_cyclic(|me| {
            let (peers, ids) = compose(&entries);
            let tie = Tie { live: me.clone(), version: 1, moved: AtomicBool::new(false), ids };
            let zone = group::zone_state(zone_of(&plan), &peers);
            let shape = Arc::new(plan.shape(peers, Some(zone), Some(tie)));
            let (gone, successor) = (Vec::new(), None);
            let current = Current { shape, entries, next_id, successor, until_ms, gone };
            let current = Mutex::new(current);
            let off_at_first = AtomicU32::new(0);
            let version = AtomicU64::new(1);
            Live { plan, hosts, off_at_first, version, current, state }
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

    pub(crate) fn shape(&self) -> Arc<Shape> {
        Arc::clone(&self.lock().shape)
    }

    /// Servers that are no longer there, and are still asked.
    pub(crate) fn zombies(&self) -> u64 {
        let gone: Vec<_> = self.lock().gone.iter().filter_map(Weak::upgrade).collect();
        let is_asked = |c: &&Arc<Counted<Tries>>| c.now(|t| t.begun.get(), |t| t.ended.get()) > 0;
        gone.iter().filter(is_asked).count() as u64
    }

    /// Works on the newest shape, which stays that until it is done.
    pub(crate) fn with_shape<T>(&self, f: impl FnOnce(&Shape) -> T) -> T {
        f(&self.lock().shape)
    }

    fn hand_over(
        &self,
        hosts: &[Host],
        entries: &mut Vec<Entry>,
        number: &mut impl FnMut() -> u64,
        until_ms: &mut [u64],
    ) {
        let current = self.lock();
        for (i, host) in hosts.iter().enumerate() {
            let Some(old) = self.hosts.iter().position(|h| h.same_name(host)) else { continue };
            until_ms[i] = current.until_ms[old];
            for entry in current.entries.iter().filter(|e| e.host == Some(old)) {
                let id = number();
                let peer = host.inherited(&entry.peer);
                let backup = entry.backup || host.backup;
                entries.push(Entry { id, peer, backup, host: Some(i) });
            }
        }
    }

    /// A host's answer: what is in it already stays in its place, the rest comes behind.
    pub(crate) fn apply(&self, host: usize, found: &[Target], until_ms: u64) {
        let mut fresh = self.hosts[host].servers(found);
        let mut current = self.lock();
        current.until_ms[host] = until_ms;
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
        for (peer, backup) in fresh {
            let id = current.next_id;
            current.next_id += 1;
            entries.push(Entry { id, peer, backup, host: Some(host) });
        }
        self.publish(&mut current, entries);
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
    }

    /// Begins to ask for the hosts.
    fn start(self: &Arc<Self>, log: &Arc<ErrorLog>) {
        self.succeeds();
        if self.state.is_some() {
            // What the configuration was read with may be older than the file.
            let own: Arc<dyn Kept> = Arc::clone(self) as _;
            shared_file::follow(&own, log);
        }
        if self.hosts.is_empty() {
            return;
        }
        let Some(handle) = client::handle() else {
            return log.log(LogLevel::Alert, None, b"the resolver thread could not be started");
        };
        for (at, host) in self.hosts.iter().enumerate() {
            if let Some((resolver, _)) = host.resolver.get() {
                weir_core::resolver::log_to(resolver, log);
            }
            handle.spawn(watch(Arc::downgrade(self), at, Arc::clone(log)));
        }
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
    shared_file::catch_up();
}

/// Asks for a host as long as its upstream lives.
async fn watch(live: Weak<Live>, at: usize, log: Arc<ErrorLog>) {
    let Some(wait) = live.upgrade().map(|l| l.lock().until_ms[at]) else { return };
    let mut wait_ms = wait.saturating_sub(clock::mono_ms());
    loop {
        timer::sleep_ms(wait_ms).await;
        let asked = live.upgrade().map(|l| l.hosts[at].resolver.get().cloned());
        let next = match asked {
            None => return,
            Some(Some((resolver, timeout_ms))) => ask(&live, at, &resolver, timeout_ms, &log).await,
            Some(None) => ask_system(&live, at, &log).await,
        };
        match next {
            Some(ms) => wait_ms = ms,
            None => return,
        }
    }
}

/// Asks the name servers; when to ask again, or `None` for never.
async fn ask(
    live: &Weak<Live>,
    at: usize,
    resolver: &Arc<Resolver>,
    timeout_ms: u64,
    log: &ErrorLog,
) -> Option<u64> {
    let (name, service) = {
        let live = live.upgrade()?;
        let host = &live.hosts[at];
        (host.name.clone(), host.service.clone())
    };
    let question = match &service {
        None => Question::Name(&name),
        Some(service) => Question::Service { service, name: &name },
    };
    let outcome = resolver.resolve(question, timeout_ms).await;
    let live = live.upgrade()?;
    let (found, until_ms) = match outcome {
        Ok(Found { targets, until_ms }) => (targets, until_ms),
        Err(failed) => {
            let what = match &service {
                None => name,
                Some(service) => format!("service {service} of {name}"),
            };
            let (code, text) = (failed.code, error_text(failed.code));
            let line = format!("{what} could not be resolved ({code}: {text})");
            log.log(LogLevel::Error, None, line.as_bytes());
            if let Some(fallback) = live.hosts[at].fallback {
                if !fallback.stale {
                    live.apply(at, &[], failed.until_ms);
                }
                return Some(fallback.fail_timeout_ms.max(RETRY_MIN_MS));
            }
            if code != u16::from(NXDOMAIN) {
                return Some(timeout_ms.max(RETRY_MIN_MS));
            }
            (Vec::new(), failed.until_ms)
        }
    };
    // Only what is said to be resolved may lose all its servers.
    if live.hosts[at].resolve || !found.is_empty() {
        live.apply(at, &found, until_ms);
    }
    // In whole seconds and one more, as nginx has it: the cache has then run out for certain.
    Some((until_ms.saturating_sub(clock::mono_ms()) / 1000 + 1) * 1000)
}

/// Asks the system, until it has found the name.
async fn ask_system(live: &Weak<Live>, at: usize, log: &ErrorLog) -> Option<u64> {
    let name = live.upgrade()?.hosts[at].name.clone();
    let found = client::system(name.clone()).await;
    if found.targets.is_empty() {
        return Some(SYSTEM_RETRY_MS);
    }
    live.upgrade()?.apply(at, &found.targets, 0);
    let line = format!("host \"{name}\" was found, its upstream is in use");
    log.log(LogLevel::Notice, None, line.as_bytes());
    None
}

#[cfg(test)]
mod tests;
