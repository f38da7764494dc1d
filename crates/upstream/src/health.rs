//! Active checks: the servers of an upstream are asked again and again whether they are well, and are
//! left alone while they are not. What is said to them is their protocol's ([`Asker`]).
//!
//! Invariants: what selection looks at is one word of a server's state ([`PeerState::off`]), of which each
//! check has a bit; each server is asked by one task of one worker ([`begin`]), which ends with the worker's
//! generation; what was found out is the process's and is there for the next generation.
//!
//! [`PeerState::off`]: crate::peers::PeerState

mod kept;
mod probing;
mod read;

pub use kept::{know, read_all};
pub use probing::{begin, stop, Asker, Asking, Ill};
pub use read::read_rule;

use crate::conf::{lossy, UpstreamMain, UpstreamRef};
use crate::group::{Group, Shape};
use crate::peers::{Peer, PeerState, OFF_BY_CONF};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use weir_core::counts::Count;
use weir_core::logger::{ErrorLog, LogLevel};
use weir_module::Context;
use weir_runtime::clock;

/// How often servers are asked, and what follows from their answers.
#[derive(Clone, Debug)]
pub struct Rule {
    /// From one question's end to the next.
    pub interval_ms: u64,
    /// So much is waited besides, at most.
    pub jitter_ms: u64,
    /// So many failures in a row make a server unhealthy.
    pub fails: u32,
    /// So many successes in a row make it healthy.
    pub passes: u32,
    /// A server that nothing is known of is not asked by sessions yet.
    pub starts_down: bool,
    /// Nothing is known of any server when a configuration begins.
    pub forgets: bool,
}

/// What one check has found out of one server; the workers and the next generations share it.
#[derive(Debug, Default)]
pub struct Standing {
    up: AtomicBool,
    passes: AtomicU32,
    fails: AtomicU32,
    /// When it was asked last, by the monotonic clock; 0 for never.
    asked_ms: AtomicU64,
    /// All in all: answers, those that were no success, and how often it was found to be unwell.
    checks: Count,
    failed: Count,
    unhealthy: Count,
    last_passed: AtomicBool,
}

/// What all checks of a server have found out.
pub(crate) struct Found {
    pub checks: u64,
    pub fails: u64,
    pub unhealthy: u64,
    pub last_passed: bool,
    /// One is to pass before the server is asked, and has not been made.
    pub is_awaited: bool,
}

impl Standing {
    /// Whether it is taken for healthy.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Successes in a row.
    pub fn passes(&self) -> u32 {
        self.passes.load(Ordering::Relaxed)
    }

    /// Failures in a row.
    pub fn fails(&self) -> u32 {
        self.fails.load(Ordering::Relaxed)
    }

    /// How long it is until the next question, if it has been asked before: a new configuration goes on with the
    /// rhythm of the one before, and never asks all servers at once.
    fn due_in_ms(&self, rule: &Rule, now_ms: u64) -> u64 {
        match self.asked_ms.load(Ordering::Relaxed) {
            0 => 0,
            asked => asked.saturating_add(rule.interval_ms).saturating_sub(now_ms),
        }
    }

    /// Adds what all checks of a server have found out.
    pub(crate) fn add_to(&self, found: &mut Found) {
        found.checks += self.checks.get();
        found.fails += self.failed.get();
        found.unhealthy += self.unhealthy.get();
        found.last_passed &= self.last_passed.load(Ordering::Relaxed);
        found.is_awaited |= !self.is_up() && self.checks.get() == 0;
    }

    /// Counts an answer; whether that has made the server healthy or unhealthy.
    fn count(&self, rule: &Rule, passed: bool) -> bool {
        let (more, none) = match passed {
            true => (&self.passes, &self.fails),
            false => (&self.fails, &self.passes),
        };
        // Whoever asks is the only one who counts.
        let count = more.load(Ordering::Relaxed).saturating_add(1);
        more.store(count, Ordering::Relaxed);
        none.store(0, Ordering::Relaxed);
        self.checks.add(1);
        self.failed.add((!passed).into());
        self.last_passed.store(passed, Ordering::Relaxed);
        let enough = count >= if passed { rule.passes } else { rule.fails };
        let changed = enough && self.up.swap(passed, Ordering::Relaxed) != passed;
        self.unhealthy.add((changed && !passed).into());
        changed
    }
}

/// The block of an upstream, its name, the number of a check and the address of a server.
type Name = (u32, Vec<u8>, u32, Vec<u8>);

/// All that is known in the process, for the next configuration.
#[derive(Default)]
struct Known {
    all: BTreeMap<Name, Weak<Standing>>,
    sweep_at: usize,
    /// By the process before this one.
    told: BTreeMap<Name, Standing>,
}

static KNOWN: Mutex<Known> =
    Mutex::new(Known { all: BTreeMap::new(), sweep_at: 0, told: BTreeMap::new() });

impl Known {
    /// What is known of a server, or what is to be found out from now on.
    fn of(&mut self, name: Name, rule: &Rule) -> Arc<Standing> {
        if self.all.len() >= self.sweep_at {
            self.all.retain(|_, known| known.strong_count() > 0);
            self.sweep_at = 2 * self.all.len() + 64;
        }
        let told = self.told(&name).map(Arc::new);
        let known = self.all.get(&name).and_then(Weak::upgrade).or(told);
        let known = known.filter(|_| !rule.forgets);
        let standing = known.unwrap_or_else(|| {
            let up = AtomicBool::new(!rule.starts_down);
            Arc::new(Standing { up, ..Standing::default() })
        });
        self.all.insert(name, Arc::downgrade(&standing));
        standing
    }
}

/// One check of the servers of one upstream, in one generation.
pub struct Board {
    group: Arc<Group>,
    block: u32,
    upstream: Vec<u8>,
    number: u32,
    /// What it is called in the log, which may be nothing; without it the log has Tengine's words.
    pub title: Option<String>,
    /// How it goes on.
    pub rule: Rule,
    standings: Mutex<BTreeMap<Box<[u8]>, Arc<Standing>>>,
}

/// A server under a check, as a status page shows it.
pub struct Shown {
    /// Its address.
    pub name: Box<[u8]>,
    /// What was found out of it.
    pub standing: Arc<Standing>,
}

impl Board {
    /// A further check for an upstream; nothing if it has as many as it may have, or is none that was built.
    pub fn new(
        main: &mut UpstreamMain,
        at: UpstreamRef,
        block: Context,
        title: Option<String>,
        rule: Rule,
    ) -> Option<Arc<Board>> {
        let group = main.shared(at)?;
        let number = main.add_check(at)?;
        let upstream = main.about(at).0.to_vec();
        let standings = Mutex::default();
        let board = Board { group, block: block.0, upstream, number, title, rule, standings };
        let board = Arc::new(board);
        main.boards.push((at.number(), Arc::downgrade(&board)));
        Some(board)
    }

    fn bit(&self) -> u32 {
        1 << self.number
    }

    /// The name of the upstream.
    pub fn upstream(&self) -> &[u8] {
        &self.upstream
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<[u8]>, Arc<Standing>>> {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn standing(&self, peer: &[u8]) -> Arc<Standing> {
        let mut mine = self.lock();
        if let Some(known) = mine.get(peer) {
            return Arc::clone(known);
        }
        let name = (self.block, self.upstream.clone(), self.number, peer.to_vec());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = known.of(name, &self.rule);
        mine.insert(peer.into(), Arc::clone(&standing));
        standing
    }

    /// The process is about to serve by this: servers are marked by what is known of them. The first check of
    /// an upstream forgets the marks of the checks before.
    pub fn open(&self) {
        if self.rule.starts_down {
            self.group.off_at_first(self.bit());
        }
        let keeps = if self.number == 0 { OFF_BY_CONF } else { u32::MAX };
        self.group.with_shape(|shape| {
            shape.each_state(|peer, s| {
                s.off &= keeps;
                if !self.standing(&peer.name).is_up() {
                    s.off |= self.bit();
                }
                s.note_down(peer, clock::mono_ms());
            });
        });
    }

    /// All its servers, in their order, the backups last.
    pub fn shown(&self) -> Vec<Shown> {
        let peers = self.group.with_shape(|shape| shape.all_peers());
        let shown = |p: Peer| Shown { standing: self.standing(&p.name), name: p.name };
        peers.into_iter().map(shown).collect()
    }

    /// A server has answered, or has not: what follows is logged, and seen by all workers.
    fn note(&self, peer: &[u8], standing: &Standing, answer: Result<&str, &Ill>, log: &ErrorLog) {
        let changed = standing.count(&self.rule, answer.is_ok());
        standing.asked_ms.store(clock::mono_ms().max(1), Ordering::Relaxed);
        let up = standing.is_up();
        let bit = self.bit();
        let freed = self.group.with_shape(|shape| {
            let mut freed = false;
            // Each time: a mark of another check, of a configuration before, may have come late.
            shape.each_state(|p, s| {
                if *p.name == *peer {
                    let was_off = s.off != 0;
                    freed |= up && s.off & bit != 0;
                    s.off = if up { s.off & !bit } else { s.off | bit };
                    if was_off && s.off == 0 && !shape.peers.single() {
                        s.come_back(p, clock::mono_secs());
                    }
                    s.note_down(p, clock::mono_ms());
                }
            });
            freed.then(|| shape.queue.clone()).flatten()
        });
        if let Some(queue) = freed {
            queue.wake();
        }
        if changed {
            self.tell(peer, up, answer, log);
        }
    }

    fn tell(&self, peer: &[u8], up: bool, answer: Result<&str, &Ill>, log: &ErrorLog) {
        let (peer, upstream) = (lossy(peer), lossy(&self.upstream));
        let doing = match answer {
            Ok(doing) => doing,
            Err(ill) => &*ill.doing,
        };
        let (level, line) = match (&self.title, up) {
            (Some(title), _) => {
                let (level, what) = match up {
                    true => (LogLevel::Notice, "healthy"),
                    false => (LogLevel::Warn, "unhealthy"),
                };
                let of =
                    format!("health check \"{title}\" of peer {peer} in upstream \"{upstream}\"");
                (level, format!("peer is {what} while {doing}, {of}"))
            }
            (None, true) => {
                (LogLevel::Error, format!("enable check peer: {peer}, upstream: \"{upstream}\""))
            }
            (None, false) => {
                let of = format!("disable check peer: {peer} while {doing}");
                (LogLevel::Error, format!("{of}, upstream: \"{upstream}\""))
            }
        };
        log.log(level, None, line.as_bytes());
    }
}

impl Shape {
    /// Every server with what is remembered of it, if the workers share that.
    fn each_state(&self, mut f: impl FnMut(&Peer, &mut PeerState)) {
        self.with_zone(|state| {
            for backup in [false, true] {
                let peers = &self.peers.list(backup).peers;
                for (peer, s) in peers.iter().zip(state.list(backup)) {
                    f(peer, s);
                }
            }
        });
    }

    fn all_peers(&self) -> Vec<Peer> {
        [false, true].into_iter().flat_map(|b| self.peers.list(b).peers.iter().cloned()).collect()
    }
}

impl Group {
    /// Servers that come later are off for that, until a check has passed.
    fn off_at_first(&self, bit: u32) {
        if let Some(live) = self.as_live() {
            live.off_at_first.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(fails: u32, passes: u32, starts_down: bool, forgets: bool) -> Rule {
        Rule { interval_ms: 1, jitter_ms: 0, fails, passes, starts_down, forgets }
    }

    #[test]
    fn so_many_in_a_row_change_what_a_server_is() {
        let rule = rule(3, 2, false, false);
        let s = Standing { up: AtomicBool::new(true), ..Standing::default() };
        let changes = |answers: &[bool]| -> Vec<bool> {
            answers.iter().map(|passed| s.count(&rule, *passed)).collect()
        };
        assert_eq!(changes(&[false, false, true, false, false]), [false; 5]);
        assert_eq!(changes(&[false, false]), [true, false]);
        assert_eq!(changes(&[true, false, true, true, true]), [false, false, false, true, false]);
        assert!(s.is_up() && s.passes() == 3 && s.fails() == 0);
    }

    #[test]
    fn the_next_question_comes_when_it_would_have() {
        let rule = Rule { interval_ms: 1000, ..rule(1, 1, false, false) };
        let s = Standing::default();
        assert_eq!(s.due_in_ms(&rule, 5000), 0, "never asked");
        s.asked_ms.store(4600, Ordering::Relaxed);
        assert_eq!(s.due_in_ms(&rule, 5000), 600);
        assert_eq!(s.due_in_ms(&rule, 9000), 0, "late");
        let longer = Rule { interval_ms: u64::MAX, ..rule };
        assert_eq!(s.due_in_ms(&longer, 5000), u64::MAX - 5000);
    }

    #[test]
    fn what_is_known_stays_as_long_as_somebody_has_it() {
        let name = |peer: &str| (7, b"kept".to_vec(), 0, peer.as_bytes().to_vec());
        let mut known = Known::default();
        let first = known.of(name("a"), &rule(1, 1, false, false));
        assert!(first.is_up());
        first.count(&rule(1, 1, false, false), false);
        assert!(!known.of(name("a"), &rule(1, 1, false, false)).is_up());
        assert!(!known.of(name("b"), &rule(1, 1, true, false)).is_up());
        first.count(&rule(1, 1, false, false), true);
        assert!(!known.of(name("a"), &rule(1, 1, true, true)).is_up());
        drop(first);
        assert!(known.of(name("a"), &rule(1, 1, false, false)).is_up());
    }
}
