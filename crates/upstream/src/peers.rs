//! The servers of an upstream and the choice between them: nginx's smooth weighted round robin,
//! failure counting, backups and limits. Pure: the caller brings the time in seconds.

use crate::least_time::Times;
use md5::{Digest, Md5};
use std::net::SocketAddr;
use std::path::PathBuf;
use weir_runtime::paths;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerAddr {
    /// TCP or UDP.
    Ip(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl std::fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PeerAddr::Ip(a) => write!(f, "{a}"),
            PeerAddr::Unix(p) => write!(f, "unix:{}", p.display()),
        }
    }
}

impl PeerAddr {
    /// As `$upstream_addr` shows it; a path with its own bytes, which [`Display`](std::fmt::Display) may not
    /// have.
    pub fn text(&self) -> Vec<u8> {
        match self {
            PeerAddr::Ip(a) => a.to_string().into_bytes(),
            PeerAddr::Unix(p) => [b"unix:", paths::bytes(p)].concat(),
        }
    }
}

/// One address of a `server`, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it listens.
    pub addr: PeerAddr,
    /// The address as `$upstream_addr` shows it.
    pub name: Box<[u8]>,
    /// The `server` argument as written; hashing balancers work on it.
    pub server: Box<[u8]>,
    /// How many turns it has for one of a server of weight 1.
    pub weight: i64,
    /// After so many failures it is left alone; 0 for never.
    pub max_fails: u32,
    /// For so long, which is also the time in which they are counted.
    pub fail_timeout_secs: u64,
    /// 0 for no limit.
    pub max_conns: u32,
    /// For so long after it was away it has less than its turns; 0 for not at all.
    pub slow_start_secs: u64,
    /// It is not to be asked.
    pub down: bool,
    /// `drain`: besides `down`, what a `sticky` client asks for it still gets.
    pub draining: bool,
    /// What a `sticky` client is given to know it by: its `route`, or a digest of the address.
    pub sid: Box<[u8]>,
}

impl Peer {
    /// As a `server` has it that says nothing more.
    pub fn new(addr: PeerAddr, server: &[u8]) -> Peer {
        let name = addr.text().into();
        Peer {
            addr,
            name,
            server: server.into(),
            weight: 1,
            max_fails: 1,
            fail_timeout_secs: 10,
            max_conns: 0,
            slow_start_secs: 0,
            down: false,
            draining: false,
            sid: Box::default(),
        }
    }
}

/// A `route` is at most as long as a digest.
pub(crate) const SID_MAX_BYTES: usize = 32;

/// What an upstream's servers are known by: the configured route, or the address in a form that
/// tells nobody the address.
pub fn sid(route: &[u8], addr: &[u8]) -> Box<[u8]> {
    if !route.is_empty() {
        return route.into();
    }
    let digest = Md5::digest(addr);
    let hex = |n: u8| char::from_digit(u32::from(n), 16).map_or(b'0', |c| c as u8);
    digest.iter().flat_map(|b| [hex(b >> 4), hex(b & 15)]).collect()
}

/// In [`PeerState::off`]: the configuration says `down`. The other bits are those of checks.
pub(crate) const OFF_BY_CONF: u32 = 1 << 31;

/// What is remembered of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerState {
    /// Why it is not to be asked, whatever it answers: a bit for each reason, 0 for none.
    pub off: u32,
    pub current_weight: i64,
    pub effective_weight: i64,
    pub fails: u32,
    /// Seconds of the last failure, and of the last time it was given another chance.
    pub accessed: u64,
    pub checked: u64,
    pub conns: u32,
    /// Since when it is on its way back, in seconds; 0 if it is not.
    pub back_since: u64,
    pub times: Times,
    /// Since when it is counted out or found to be unwell, in milliseconds; 0 if it is not.
    pub down_since_ms: u64,
    /// For how long it was before, all in all.
    pub downtime_ms: u64,
}

impl PeerState {
    /// Whether it has failed as often as it may.
    pub(crate) fn is_out(&self, peer: &Peer) -> bool {
        peer.max_fails != 0 && self.fails >= peer.max_fails
    }

    /// Notes since when it is away, if that has changed: then it says for how long it was.
    #[inline]
    pub(crate) fn note_down(&mut self, peer: &Peer, now_ms: u64) -> Option<u64> {
        let is_down = self.is_out(peer) || self.off & !OFF_BY_CONF != 0;
        match is_down == (self.down_since_ms != 0) {
            true => None,
            false => Some(self.turn(is_down, now_ms)),
        }
    }

    #[cold]
    fn turn(&mut self, is_down: bool, now_ms: u64) -> u64 {
        let since_ms =
            std::mem::replace(&mut self.down_since_ms, if is_down { now_ms.max(1) } else { 0 });
        let after_ms = if is_down { 0 } else { now_ms.saturating_sub(since_ms) };
        self.downtime_ms += after_ms;
        after_ms
    }

    /// It was away and is there again.
    pub(crate) fn come_back(&mut self, peer: &Peer, now: u64) {
        if peer.slow_start_secs > 0 {
            self.back_since = now.max(1);
            self.current_weight = 0;
        }
    }
}

/// Turns are counted in so many parts, of which a server that comes back has few at first.
pub(crate) const PARTS: i64 = 64;

/// So much of a weight counts now, in parts.
#[inline]
pub(crate) fn in_parts(peer: &Peer, s: &mut PeerState, weight: i64, now: u64) -> i64 {
    match s.back_since {
        0 => weight * PARTS,
        since => rising(peer, s, weight * PARTS, now.saturating_sub(since)),
    }
}

#[cold]
fn rising(peer: &Peer, s: &mut PeerState, full: i64, secs: u64) -> i64 {
    if secs >= peer.slow_start_secs {
        s.back_since = 0;
        return full;
    }
    let (secs, whole) = (secs as i64, peer.slow_start_secs as i64);
    full.saturating_mul(secs) / whole
}

/// The servers of one kind: primary or backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerList {
    pub peers: Vec<Peer>,
    pub total_weight: i64,
    /// How many are not `down`.
    pub tries: u32,
}

impl PeerList {
    pub(crate) fn new(peers: Vec<Peer>) -> PeerList {
        let total_weight = peers.iter().map(|p| p.weight).sum();
        let tries = peers.iter().filter(|p| !p.down).count() as u32;
        PeerList { peers, total_weight, tries }
    }

    fn fresh_state(&self) -> Vec<PeerState> {
        let fresh = |p: &Peer| PeerState {
            off: if p.down { OFF_BY_CONF } else { 0 },
            effective_weight: p.weight,
            ..PeerState::default()
        };
        self.peers.iter().map(fresh).collect()
    }
}

/// All servers of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peers {
    pub primary: PeerList,
    pub backup: PeerList,
}

impl Peers {
    pub(crate) fn new(primary: Vec<Peer>, backup: Vec<Peer>) -> Peers {
        Peers { primary: PeerList::new(primary), backup: PeerList::new(backup) }
    }

    /// The only server there is: it is never counted out.
    pub(crate) fn single(&self) -> bool {
        self.primary.peers.len() == 1 && self.backup.peers.is_empty()
    }

    pub(crate) fn list(&self, backup: bool) -> &PeerList {
        match backup {
            false => &self.primary,
            true => &self.backup,
        }
    }

    pub(crate) fn peer(&self, at: PeerId) -> &Peer {
        &self.list(at.backup).peers[at.index]
    }

    pub(crate) fn fresh_state(&self) -> State {
        use std::hash::{BuildHasher, RandomState};
        let (primary, backup) = (self.primary.fresh_state(), self.backup.fresh_state());
        let seed = RandomState::new().hash_one(0u8) | 1;
        State { primary, backup, seed, ..State::default() }
    }

    pub(crate) fn tries(&self) -> u32 {
        self.primary.tries + self.backup.tries
    }
}

/// Which server of an upstream, in its present shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerId {
    /// It is one of the backups.
    pub(crate) backup: bool,
    pub(crate) index: usize,
}

/// What the balancing remembers from request to request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    primary: Vec<PeerState>,
    backup: Vec<PeerState>,
    /// Of the random methods; never 0.
    seed: u64,
    /// Turns have been given from where chance has begun them.
    begun: bool,
    /// Of primary servers and backups: who had the last turn, and how large a weight has one now (0 before all).
    pub rounds: [(usize, i64); 2],
}

impl State {
    pub(crate) fn list(&mut self, backup: bool) -> &mut Vec<PeerState> {
        match backup {
            false => &mut self.primary,
            true => &mut self.backup,
        }
    }

    /// What is remembered of the peers that stay: `from` tells where each peer of `fresh` was. The others are
    /// off for what `off` says besides.
    pub(crate) fn carried(
        &self,
        mut fresh: State,
        from: &[Vec<Option<PeerId>>; 2],
        off: u32,
    ) -> State {
        fresh.seed = self.seed;
        for (list, from) in [&mut fresh.primary, &mut fresh.backup].into_iter().zip(from) {
            for (state, at) in list.iter_mut().zip(from) {
                let Some(at) = at else {
                    state.off |= off;
                    continue;
                };
                let old = if at.backup { &self.backup } else { &self.primary };
                state.clone_from(&old[at.index]);
            }
        }
        fresh
    }

    /// A number good enough to spread load by (xorshift).
    pub(crate) fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed >> 11
    }

    pub(crate) fn peer(&mut self, at: PeerId) -> &mut PeerState {
        &mut self.list(at.backup)[at.index]
    }
}

/// Peers that one request has already tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tried {
    first: u64,
    more: Vec<u64>,
}

impl Tried {
    pub(crate) fn has(&self, i: usize) -> bool {
        let word = match i / 64 {
            0 => self.first,
            n => self.more.get(n - 1).copied().unwrap_or(0),
        };
        word & (1 << (i % 64)) != 0
    }

    pub(crate) fn set(&mut self, i: usize) {
        let bit = 1 << (i % 64);
        match i / 64 {
            0 => self.first |= bit,
            n => {
                if self.more.len() < n {
                    self.more.resize(n, 0);
                }
                self.more[n - 1] |= bit;
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Tried::default();
    }
}

/// One request's way through the servers.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub(crate) tried: Tried,
    /// How many more servers may be asked.
    pub tries: u32,
    pub(crate) on_backup: bool,
    /// Milliseconds on the monotonic clock, for `least_time`.
    pub(crate) now_ms: u64,
    /// What it has waited in the `queue` until now.
    pub(crate) waited_ms: u64,
    /// The [`Peer::sid`] that `sticky` asks for; empty for none.
    pub hint: Vec<u8>,
}

impl Choice {
    pub(crate) fn new(peers: &Peers) -> Choice {
        Choice { tries: peers.tries(), ..Choice::default() }
    }
}

/// Whether a peer may be asked now, by everything but the request's own history.
pub(crate) fn usable(peer: &Peer, state: &PeerState, now: u64) -> bool {
    state.off == 0 && able(peer, state, now)
}

/// As [`usable`], whether it is off or not.
fn able(peer: &Peer, state: &PeerState, now: u64) -> bool {
    let failed = peer.max_fails != 0
        && state.fails >= peer.max_fails
        && now.saturating_sub(state.checked) <= peer.fail_timeout_secs;
    let full = peer.max_conns != 0 && state.conns >= peer.max_conns;
    !failed && !full
}

/// The server that `sticky` asks for, if it may be asked.
pub(crate) fn hinted(
    list: &PeerList,
    state: &[PeerState],
    choice: &Choice,
    now: u64,
) -> Option<usize> {
    if choice.hint.is_empty() {
        return None;
    }
    let i = list.peers.iter().position(|p| *p.sid == *choice.hint)?;
    let peer = &list.peers[i];
    let welcome = match state[i].off {
        0 => true,
        off => peer.draining && off == OFF_BY_CONF,
    };
    (welcome && !choice.tried.has(i) && able(peer, &state[i], now)).then_some(i)
}

/// Turns that are left out at most, for a random beginning.
const SKIPPED_MAX: u64 = 1000;

/// Takes the next server; `None` when nobody is left.
pub(crate) fn round_robin(
    peers: &Peers,
    state: &mut State,
    choice: &mut Choice,
    now: u64,
) -> Option<PeerId> {
    if peers.single() {
        let asked_for = hinted(&peers.primary, &state.primary, choice, now).is_some();
        let (peer, s) = (&peers.primary.peers[0], &mut state.primary[0]);
        if (s.off != 0 && !asked_for) || (peer.max_conns != 0 && s.conns >= peer.max_conns) {
            return None;
        }
        s.conns += 1;
        return Some(PeerId { backup: false, index: 0 });
    }
    with_backup(peers, choice, |backup, choice| {
        let best = smooth(peers.list(backup), state.list(backup), choice, now)?;
        take(peers, state, choice, PeerId { backup, index: best }, now);
        Some(best)
    })
}

/// The first turn of round robin is anybody's.
pub(crate) fn begin_anywhere(peers: &Peers, state: &mut State, now: u64) {
    if std::mem::replace(&mut state.begun, true) {
        return;
    }
    let turns = state.random() % (peers.primary.total_weight.max(1) as u64).min(SKIPPED_MAX);
    for _ in 0..turns {
        // Whose they would be does not matter.
        let _ = smooth(&peers.primary, &mut state.primary, &Choice::default(), now);
    }
}

/// Runs a choice over the primary servers, then over the backups.
pub(crate) fn with_backup(
    peers: &Peers,
    choice: &mut Choice,
    mut pick: impl FnMut(bool, &mut Choice) -> Option<usize>,
) -> Option<PeerId> {
    if !choice.on_backup {
        if let Some(index) = pick(false, choice) {
            return Some(PeerId { backup: false, index });
        }
        if peers.backup.peers.is_empty() {
            return None;
        }
        choice.on_backup = true;
        choice.tried.clear();
    }
    pick(true, choice).map(|index| PeerId { backup: true, index })
}

fn smooth(list: &PeerList, state: &mut [PeerState], choice: &Choice, now: u64) -> Option<usize> {
    let asked_for = hinted(list, state, choice, now);
    if let Some(i) = asked_for {
        // However often its clients come, the others wait for one round only.
        if state[i].current_weight <= (list.peers[i].weight - list.total_weight) * PARTS {
            return Some(i);
        }
    }
    let mut best: Option<usize> = None;
    let mut total = 0;
    for (i, peer) in list.peers.iter().enumerate() {
        if choice.tried.has(i) || !usable(peer, &state[i], now) {
            continue;
        }
        total += weigh(peer, &mut state[i], now);
        if best.is_none_or(|b| state[i].current_weight > state[b].current_weight) {
            best = Some(i);
        }
    }
    let best = asked_for.or(best)?;
    state[best].current_weight -= total;
    Some(best)
}

/// Adds the effective weight to the current one and lets a once failed server recover a step.
pub(crate) fn weigh(peer: &Peer, s: &mut PeerState, now: u64) -> i64 {
    let added = in_parts(peer, s, s.effective_weight, now);
    s.current_weight += added;
    if s.effective_weight < peer.weight {
        s.effective_weight += 1;
    }
    added
}

/// Notes that a server was chosen.
pub(crate) fn take(peers: &Peers, state: &mut State, choice: &mut Choice, at: PeerId, now: u64) {
    choice.tried.set(at.index);
    let s = state.peer(at);
    if now.saturating_sub(s.checked) > peers.peer(at).fail_timeout_secs {
        s.checked = now;
    }
    s.conns += 1;
}

/// A server does what it is asked for: if it was given another chance, that went well.
pub(crate) fn recover(peer: &Peer, s: &mut PeerState, now: u64) {
    if s.accessed < s.checked {
        if peer.max_fails != 0 && s.fails >= peer.max_fails {
            s.come_back(peer, now);
        }
        s.fails = 0;
    }
}

/// Gives a server back. Answers whether it was just counted out.
pub(crate) fn release(
    peers: &Peers,
    state: &mut State,
    choice: &mut Choice,
    at: PeerId,
    failed: bool,
    now: u64,
) -> bool {
    let s = state.peer(at);
    s.conns = s.conns.saturating_sub(1);
    if peers.single() {
        s.fails = 0;
        choice.tries = 0;
        return false;
    }
    let peer = peers.peer(at);
    let mut disabled = false;
    if failed {
        s.fails += 1;
        s.accessed = now;
        s.checked = now;
        if peer.max_fails != 0 {
            s.effective_weight -= peer.weight / i64::from(peer.max_fails);
            disabled = s.fails >= peer.max_fails;
        }
        s.effective_weight = s.effective_weight.max(0);
    } else {
        recover(peer, s, now);
    }
    choice.tries = choice.tries.saturating_sub(1);
    disabled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u16, weight: i64) -> Peer {
        let addr = PeerAddr::Ip(([127, 0, 0, 1], n).into());
        Peer { weight, ..Peer::new(addr, n.to_string().as_bytes()) }
    }

    fn run(peers: &Peers, state: &mut State, n: usize, now: u64) -> String {
        let mut out = String::new();
        for _ in 0..n {
            let mut choice = Choice::new(peers);
            match round_robin(peers, state, &mut choice, now) {
                Some(at) => {
                    out.push(char::from(b'a' + at.index as u8));
                    if at.backup {
                        out.push('!');
                    }
                    release(peers, state, &mut choice, at, false, now);
                }
                None => out.push('-'),
            }
        }
        out
    }

    #[test]
    fn servers_are_known_by_route_or_digest() {
        assert_eq!(*sid(b"a", b"127.0.0.1:80"), *b"a");
        assert_eq!(*sid(b"", b"abc"), *b"900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(sid(b"", b"127.0.0.1:80").len(), SID_MAX_BYTES);
    }

    #[test]
    fn weights_are_spread_smoothly() {
        let peers = Peers::new(vec![peer(1, 5), peer(2, 1), peer(3, 1)], vec![]);
        let mut state = peers.fresh_state();
        assert_eq!(run(&peers, &mut state, 14, 100), "aabacaaaabacaa");
        let peers = Peers::new(vec![peer(1, 1), peer(2, 1), peer(3, 1)], vec![]);
        let mut state = peers.fresh_state();
        assert_eq!(run(&peers, &mut state, 7, 100), "abcabca");
    }

    #[test]
    fn a_failed_server_rests_and_comes_back_slowly() {
        let peers = Peers::new(vec![peer(1, 2), peer(2, 2)], vec![]);
        let mut state = peers.fresh_state();
        let mut choice = Choice::new(&peers);
        assert_eq!(choice.tries, 2);
        let at = round_robin(&peers, &mut state, &mut choice, 100).unwrap();
        assert!(release(&peers, &mut state, &mut choice, at, true, 100));
        assert_eq!(choice.tries, 1);
        let next = round_robin(&peers, &mut state, &mut choice, 100).unwrap();
        assert_eq!(next.index, 1);
        release(&peers, &mut state, &mut choice, next, false, 100);
        assert_eq!(choice.tries, 0);
        assert_eq!(run(&peers, &mut state, 4, 110), "bbbb");
        // One probe after fail_timeout, then weight returns step by step.
        assert!(run(&peers, &mut state, 6, 111).contains('a'));
        assert_eq!(state.primary[0].fails, 0);
        assert_eq!(state.primary[0].effective_weight, 2);
    }

    #[test]
    fn backups_serve_when_no_primary_can() {
        let mut first = peer(1, 1);
        first.down = true;
        let peers = Peers::new(vec![first], vec![peer(2, 1), peer(3, 1)]);
        let mut state = peers.fresh_state();
        assert_eq!(run(&peers, &mut state, 3, 100), "a!b!a!");
        let mut down = peer(1, 1);
        down.down = true;
        let peers = Peers::new(vec![down], vec![]);
        assert_eq!(run(&peers, &mut peers.fresh_state(), 1, 100), "-");
    }

    #[test]
    fn max_conns_is_a_limit_and_the_single_server_is_never_counted_out() {
        let mut limited = peer(1, 1);
        limited.max_conns = 1;
        let peers = Peers::new(vec![limited], vec![]);
        let mut state = peers.fresh_state();
        let mut choice = Choice::new(&peers);
        let at = round_robin(&peers, &mut state, &mut choice, 1).unwrap();
        assert!(round_robin(&peers, &mut state, &mut Choice::new(&peers), 1).is_none());
        release(&peers, &mut state, &mut choice, at, true, 1);
        assert!(round_robin(&peers, &mut state, &mut Choice::new(&peers), 1).is_some());
    }

    #[test]
    fn sticky_gets_its_server_though_it_drains_and_the_others_keep_their_turns() {
        let with_sid = |n: u16, draining: bool| Peer {
            sid: n.to_string().into_bytes().into(),
            down: draining,
            draining,
            ..peer(n, 1)
        };
        let peers =
            Peers::new(vec![with_sid(1, false), with_sid(2, true), with_sid(3, false)], vec![]);
        let mut state = peers.fresh_state();
        let mut ask = |hint: &[u8], tried: Option<usize>| {
            let mut choice = Choice { hint: hint.to_vec(), ..Choice::new(&peers) };
            tried.into_iter().for_each(|i| choice.tried.set(i));
            let at = round_robin(&peers, &mut state, &mut choice, 100).unwrap();
            release(&peers, &mut state, &mut choice, at, false, 100);
            at.index
        };
        assert_eq!([ask(b"2", None), ask(b"2", None), ask(b"2", None)], [1, 1, 1]);
        assert_ne!(ask(b"2", Some(1)), 1);
        for _ in 0..10 {
            assert_eq!(ask(b"1", None), 0);
        }
        let turns: Vec<usize> = (0..6).map(|_| ask(b"", None)).collect();
        assert!(!turns.contains(&1));
        assert!(turns.iter().filter(|i| **i == 0).count() >= 2, "{turns:?}");
        let single = Peers::new(vec![with_sid(2, true)], vec![]);
        let mut state = single.fresh_state();
        let mut choice = Choice::new(&single);
        assert!(round_robin(&single, &mut state, &mut choice, 1).is_none());
        choice.hint = b"2".to_vec();
        assert!(round_robin(&single, &mut state, &mut choice, 1).is_some());
    }

    #[test]
    fn many_peers_are_remembered_as_tried() {
        let mut tried = Tried::default();
        for i in [0, 63, 64, 200] {
            assert!(!tried.has(i));
            tried.set(i);
            assert!(tried.has(i) && !tried.has(i + 1));
        }
    }
}
