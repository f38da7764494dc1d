//! The balancing methods: which of the usable servers is asked.
//!
//! The hashes are nginx's, bit for bit, so that a change from one to the other moves no client to
//! another server.

use crate::asks::Asks;
use crate::interleaved::interleaved;
use crate::least_time::LeastTime;
use crate::peers::{
    self, hinted, in_parts, take, usable, weigh, with_backup, Choice, Peer, PeerId, PeerState,
    Peers, State,
};
use std::net::IpAddr;
use std::sync::Arc;
use weir_script::template::Template;

/// After so many misses a hash gives up and round robin goes on.
const HASH_TRIES: u32 = 20;
/// Points on the ring for each unit of weight.
const POINTS_EACH: usize = 160;

/// How an upstream chooses.
#[derive(Clone, Debug, Default)]
pub(crate) enum Method {
    #[default]
    RoundRobin,
    LeastConn,
    LeastTime(LeastTime),
    IpHash,
    Hash(Arc<Template>),
    Consistent(Arc<Template>, Arc<Ring>),
    Random,
    /// The less busy of two, or the one that is likely to be done first.
    RandomTwo(Option<LeastTime>),
    /// The turns of round robin, from a server that chance has chosen on (Tengine's).
    Vnswrr,
    /// Rounds in which servers have a turn if their weight is large enough (Tengine's).
    Iwrr,
}

impl Method {
    /// The methods that know no backup servers.
    pub(crate) fn refuses_backup(&self) -> bool {
        use Method::{Iwrr, LeastConn, LeastTime, RoundRobin, Vnswrr};
        !matches!(self, RoundRobin | LeastConn | LeastTime(_) | Vnswrr | Iwrr)
    }

    /// The methods that know no turns, of which a server could have fewer for a while.
    pub(crate) fn refuses_slow_start(&self) -> bool {
        self.refuses_backup() || matches!(self, Method::Iwrr)
    }
}

/// What a request brings to the choice, and how far its hash has gone.
#[derive(Clone, Debug, Default)]
pub struct Key {
    text: Vec<u8>,
    hash: u32,
    rehash: u32,
    tries: u32,
}

impl Key {
    /// What the method asks of a session.
    pub(crate) fn new<S: Asks>(method: &Method, s: &mut S) -> Key {
        let mut key = Key::default();
        match method {
            Method::Hash(t) => key.text = s.eval(t),
            Method::Consistent(t, ring) => {
                key.text = s.eval(t);
                key.hash = ring.find(crc32(&[&key.text]));
            }
            Method::IpHash => {
                key.hash = 89;
                key.text = match s.client().ip() {
                    Some(IpAddr::V4(a)) => a.octets()[..3].to_vec(),
                    Some(IpAddr::V6(a)) => a.octets().to_vec(),
                    None => vec![0; 3],
                };
            }
            _ => {}
        }
        key
    }
}

/// Chooses by the method; `None` when no server is left.
pub(crate) fn pick(
    method: &Method,
    peers: &Peers,
    state: &mut State,
    choice: &mut Choice,
    key: &mut Key,
    now: u64,
) -> Option<PeerId> {
    let plain = peers.single()
        || choice.on_backup
        || key.tries > HASH_TRIES
        || peers.primary.peers.len() < 2;
    let found = match method {
        Method::LeastConn if !peers.single() => return least_conn(peers, state, choice, now),
        Method::LeastTime(how) if !peers.single() => {
            return how.pick(peers, state, choice, now);
        }
        Method::RoundRobin => None,
        Method::Vnswrr if !peers.single() => {
            peers::begin_anywhere(peers, state, now);
            None
        }
        Method::Iwrr if !peers.single() => return interleaved(peers, state, choice, now),
        _ if plain => None,
        _ if !choice.hint.is_empty() => {
            match hinted(&peers.primary, state.list(false), choice, now) {
                Some(i) => Some(i),
                None => by_key(method, peers, state, choice, key, now),
            }
        }
        _ => by_key(method, peers, state, choice, key, now),
    };
    match found {
        Some(index) => {
            let at = PeerId { backup: false, index };
            take(peers, state, choice, at, now);
            Some(at)
        }
        None => peers::round_robin(peers, state, choice, now),
    }
}

/// The choice of the methods that go by a key or by chance.
fn by_key(
    method: &Method,
    peers: &Peers,
    state: &mut State,
    choice: &Choice,
    key: &mut Key,
    now: u64,
) -> Option<usize> {
    match method {
        Method::IpHash => hashed(peers, state, choice, key, now, ip_step),
        Method::Hash(_) if !key.text.is_empty() => {
            hashed(peers, state, choice, key, now, text_step)
        }
        Method::Consistent(_, ring) if !key.text.is_empty() => {
            on_ring(ring, peers, state, choice, key, now)
        }
        Method::Random => random(peers, state, choice, key, now, None),
        Method::RandomTwo(how) => {
            let measure = |peer: &peers::Peer, s: &PeerState| match how {
                Some(how) => how.eta(peer, s, now),
                None => i64::from(s.conns),
            };
            random(peers, state, choice, key, now, Some(&measure))
        }
        _ => None,
    }
}

/// The server that a number below the total weight falls on.
fn by_weight(peers: &Peers, number: i64) -> usize {
    let mut left = number;
    for (i, peer) in peers.primary.peers.iter().enumerate() {
        if left < peer.weight {
            return i;
        }
        left -= peer.weight;
    }
    0
}

fn is_free(peers: &Peers, state: &mut State, choice: &Choice, i: usize, now: u64) -> bool {
    !choice.tried.has(i) && usable(&peers.primary.peers[i], &state.list(false)[i], now)
}

/// One step of `ip_hash`.
fn ip_step(key: &mut Key) -> u32 {
    for byte in &key.text {
        key.hash = (key.hash * 113 + u32::from(*byte)) % 6271;
    }
    key.hash
}

/// One step of `hash`: that of Cache::Memcached.
fn text_step(key: &mut Key) -> u32 {
    let prefix = match key.rehash {
        0 => String::new(),
        n => n.to_string(),
    };
    let crc = crc32(&[prefix.as_bytes(), &key.text]);
    key.hash = key.hash.wrapping_add(crc >> 16 & 0x7fff);
    key.rehash += 1;
    key.hash
}

fn hashed(
    peers: &Peers,
    state: &mut State,
    choice: &Choice,
    key: &mut Key,
    now: u64,
    step: fn(&mut Key) -> u32,
) -> Option<usize> {
    while key.tries <= HASH_TRIES {
        let number = i64::from(step(key)) % peers.primary.total_weight;
        let i = by_weight(peers, number);
        if is_free(peers, state, choice, i, now) {
            return Some(i);
        }
        key.tries += 1;
    }
    None
}

/// How much speaks against a server.
type Measure<'a> = Option<&'a dyn Fn(&peers::Peer, &PeerState) -> i64>;

/// `random`, and with a measure `random two`.
fn random(
    peers: &Peers,
    state: &mut State,
    choice: &Choice,
    key: &mut Key,
    now: u64,
    two: Measure<'_>,
) -> Option<usize> {
    let mut first: Option<usize> = None;
    while key.tries <= HASH_TRIES {
        let number = (state.random() % peers.primary.total_weight as u64) as i64;
        let i = by_weight(peers, number);
        if first != Some(i) && is_free(peers, state, choice, i, now) {
            let Some(other) = first else {
                if two.is_none() {
                    return Some(i);
                }
                first = Some(i);
                continue;
            };
            let measure = two?;
            let list = &peers.primary.peers;
            let (mine, its) = {
                let states = state.list(false);
                (measure(&list[i], &states[i]), measure(&list[other], &states[other]))
            };
            let busier = mine * list[other].weight > its * list[i].weight;
            return Some(if busier { other } else { i });
        }
        key.tries += 1;
    }
    None
}

/// The points of `hash … consistent`: ketama's ring, as Cache::Memcached::Fast has it.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// With the place of its server in the list.
    points: Vec<(u32, u32)>,
    servers: Vec<Box<[u8]>>,
}

/// Whether servers of such weights make more points than who changes a running server may ask for: 160 times the sum of their weights.
pub(crate) fn is_ring_too_large<'a>(
    method: &Method,
    peers: impl Iterator<Item = &'a Peer>,
) -> bool {
    const POINTS_MAX: u64 = 2_000_000;
    let weights = peers.fold(0, |sum: u64, peer| sum.saturating_add(peer.weight.unsigned_abs()));
    matches!(method, Method::Consistent(..))
        && weights.saturating_mul(POINTS_EACH as u64) > POINTS_MAX
}

impl Ring {
    pub(crate) fn new(peers: &Peers) -> Ring {
        let mut points = Vec::new();
        for (place, peer) in (0..).zip(&peers.primary.peers) {
            let (host, port) = host_and_port(&peer.server);
            let mut previous = [0u8; 4];
            for _ in 0..peer.weight as usize * POINTS_EACH {
                let hash = crc32(&[host, b"\0", port, &previous]);
                points.push((hash, place));
                previous = hash.to_le_bytes();
            }
        }
        points.sort_by_key(|p| p.0);
        points.dedup_by_key(|p| p.0);
        let servers = peers.primary.peers.iter().map(|peer| peer.server.clone()).collect();
        Ring { points, servers }
    }

    fn find(&self, hash: u32) -> u32 {
        self.points.partition_point(|p| p.0 < hash) as u32
    }

    fn server(&self, at: u32) -> &[u8] {
        &self.servers[self.points[at as usize % self.points.len()].1 as usize]
    }
}

fn host_and_port(server: &[u8]) -> (&[u8], &[u8]) {
    if let Some(path) = weir_base::bytes::strip_prefix_ignore_case(server, b"unix:") {
        return (path, b"");
    }
    let digits = server.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let at = server.len() - digits;
    match at.checked_sub(1).and_then(|i| server.get(i)) {
        Some(b':') => (&server[..at - 1], &server[at..]),
        _ => (server, b""),
    }
}

/// From the key's point on, the first server with a usable address.
fn on_ring(
    ring: &Ring,
    peers: &Peers,
    state: &mut State,
    choice: &Choice,
    key: &mut Key,
    now: u64,
) -> Option<usize> {
    while key.tries <= HASH_TRIES && !ring.points.is_empty() {
        let server = ring.server(key.hash);
        let (mut best, mut total) = (None, 0);
        for (i, peer) in peers.primary.peers.iter().enumerate() {
            if *peer.server != *server || !is_free(peers, state, choice, i, now) {
                continue;
            }
            let states = state.list(false);
            total += weigh(peer, &mut states[i], now);
            let higher = |b: usize| states[i].current_weight > states[b].current_weight;
            if best.is_none_or(higher) {
                best = Some(i);
            }
        }
        if let Some(b) = best {
            state.list(false)[b].current_weight -= total;
            return Some(b);
        }
        key.hash = key.hash.wrapping_add(1);
        key.tries += 1;
    }
    None
}

const CRC: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 != 0 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 };
            bit += 1;
        }
        table[i] = c;
        i += 1;
    }
    table
}

fn crc32(parts: &[&[u8]]) -> u32 {
    let step = |crc: u32, b: &u8| CRC[((crc ^ u32::from(*b)) & 0xff) as usize] ^ (crc >> 8);
    !parts.iter().flat_map(|p| p.iter()).fold(u32::MAX, step)
}

/// The server with the fewest connections for its weight; among equals, round robin.
fn least_conn(peers: &Peers, state: &mut State, choice: &mut Choice, now: u64) -> Option<PeerId> {
    with_backup(peers, choice, |backup, choice| {
        let conns = |_: &peers::Peer, s: &PeerState| i64::from(s.conns);
        let index = least(peers, state, choice, backup, now, conns)?;
        take(peers, state, choice, PeerId { backup, index }, now);
        Some(index)
    })
}

/// The server that `sticky` asks for, or the one with the least of something for its weight.
pub(crate) fn least(
    peers: &Peers,
    state: &mut State,
    choice: &Choice,
    backup: bool,
    now: u64,
    measure: impl Fn(&peers::Peer, &PeerState) -> i64,
) -> Option<usize> {
    let list = peers.list(backup);
    let states = state.list(backup);
    if let Some(i) = hinted(list, states, choice, now) {
        return Some(i);
    }
    let free = |i: usize, states: &[PeerState]| {
        !choice.tried.has(i) && usable(&list.peers[i], &states[i], now)
    };
    let load = |i: usize, by: usize, states: &mut [PeerState]| {
        let (peer, s) = (&list.peers[by], &mut states[by]);
        let parts = in_parts(peer, s, peer.weight, now).max(1);
        measure(&list.peers[i], &states[i]).saturating_mul(parts)
    };
    let mut best: Option<usize> = None;
    let mut equals = false;
    for i in 0..list.peers.len() {
        if !free(i, states) {
            continue;
        }
        let Some(b) = best else {
            best = Some(i);
            continue;
        };
        match load(i, b, states).cmp(&load(b, i, states)) {
            std::cmp::Ordering::Less => {
                best = Some(i);
                equals = false;
            }
            std::cmp::Ordering::Equal => equals = true,
            std::cmp::Ordering::Greater => {}
        }
    }
    let first = best?;
    if !equals {
        return Some(first);
    }
    let (mut best, mut total) = (first, 0);
    for i in first..list.peers.len() {
        if !free(i, states) || load(i, best, states) != load(best, i, states) {
            continue;
        }
        total += weigh(&list.peers[i], &mut states[i], now);
        if states[i].current_weight > states[best].current_weight {
            best = i;
        }
    }
    states[best].current_weight -= total;
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Peer, PeerAddr};

    pub(super) fn group(weights: &[i64]) -> Peers {
        let peer = |(i, w): (usize, &i64)| {
            let addr = PeerAddr::Ip(([127, 0, 0, 1], 8000 + i as u16).into());
            Peer { weight: *w, ..Peer::new(addr, format!("127.0.0.1:{}", 8000 + i).as_bytes()) }
        };
        Peers::new(weights.iter().enumerate().map(peer).collect(), Vec::new())
    }

    fn next(method: &Method, peers: &Peers, state: &mut State, key: &mut Key) -> usize {
        pick(method, peers, state, &mut Choice::new(peers), key, 1).map_or(99, |at| at.index)
    }

    #[test]
    fn checksums_and_names() {
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
        for (server, host, port) in [
            ("127.0.0.1:80", "127.0.0.1", "80"),
            ("host", "host", ""),
            ("unix:/s", "/s", ""),
            ("h1", "h1", ""),
        ] {
            let expected = (host.as_bytes(), port.as_bytes());
            assert_eq!(host_and_port(server.as_bytes()), expected);
        }
    }

    #[test]
    fn hashes_stay_with_a_server_and_leave_one_that_is_gone() {
        let peers = group(&[1, 1, 1, 1]);
        let t = Arc::new(Template::constant(b"k"));
        let ring = Arc::new(Ring::new(&peers));
        assert_eq!(ring.points.len(), 4 * POINTS_EACH);
        for method in [Method::Hash(t.clone()), Method::Consistent(t, ring.clone())] {
            let mut state = peers.fresh_state();
            for text in [&b"a"[..], b"bb", b"ccc", b"/x/y"] {
                let hash = match method {
                    Method::Consistent(..) => ring.find(crc32(&[text])),
                    _ => 0,
                };
                let key = Key { text: text.to_vec(), hash, ..Key::default() };
                let home = next(&method, &peers, &mut state, &mut key.clone());
                assert_eq!(next(&method, &peers, &mut state, &mut key.clone()), home);
                state.list(false)[home].off = 1;
                let other = next(&method, &peers, &mut state, &mut key.clone());
                state.list(false)[home].off = 0;
                assert!(other != home && other < 4);
            }
        }
    }

    #[test]
    fn ip_hash_is_that_of_nginx() {
        // (89·113+127)%6271 … over 127.0.0: the third step gives the number.
        let mut key = Key { text: vec![127, 0, 0], hash: 89, ..Key::default() };
        let by_hand = [127u32, 0, 0].iter().fold(89u32, |h, b| (h * 113 + b) % 6271);
        assert_eq!(ip_step(&mut key), by_hand);
    }

    #[test]
    fn random_reaches_everybody_and_two_prefers_the_idle() {
        let peers = group(&[1, 1]);
        let mut state = peers.fresh_state();
        let mut seen = [false; 2];
        for _ in 0..64 {
            seen[next(&Method::Random, &peers, &mut state, &mut Key::default())] = true;
        }
        assert_eq!(seen, [true, true]);
        let mut state = peers.fresh_state();
        state.list(false)[0].conns = 10;
        for _ in 0..5 {
            assert_eq!(next(&Method::RandomTwo(None), &peers, &mut state, &mut Key::default()), 1);
        }
    }

    #[test]
    fn least_conn_looks_at_connections_for_their_weight() {
        let peers = group(&[1, 2, 1]);
        let mut state = peers.fresh_state();
        let mut got = Vec::new();
        for _ in 0..8 {
            let mut choice = Choice::new(&peers);
            let key = &mut Key::default();
            let at = pick(&Method::LeastConn, &peers, &mut state, &mut choice, key, 1).unwrap();
            got.push(at.index);
        }
        let count = |n| got.iter().filter(|i| **i == n).count();
        assert_eq!((count(0), count(1), count(2)), (2, 4, 2));
    }
}
