//! The balancing methods: which of the usable servers is asked.

use crate::peers::{self, take, usable, weigh, with_backup, Choice, PeerId, Peers, State};

/// How an upstream chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Method {
    #[default]
    RoundRobin,
    LeastConn,
}

/// What a request brings to the choice.
#[derive(Clone, Debug, Default)]
pub struct Key {}

/// Chooses by the method; `None` when no server is left.
pub fn pick(
    method: &Method,
    peers: &Peers,
    state: &mut State,
    choice: &mut Choice,
    _key: &mut Key,
    now: u64,
) -> Option<PeerId> {
    match method {
        _ if peers.single() => peers::round_robin(peers, state, choice, now),
        Method::RoundRobin => peers::round_robin(peers, state, choice, now),
        Method::LeastConn => least_conn(peers, state, choice, now),
    }
}

/// The server with the fewest connections for its weight; among equals, round robin.
fn least_conn(
    peers: &Peers,
    state: &mut State,
    choice: &mut Choice,
    now: u64,
) -> Option<PeerId> {
    with_backup(peers, choice, |backup, choice| {
        let index = fewest(peers, state, choice, backup, now)?;
        take(peers, state, choice, PeerId { backup, index }, now);
        Some(index)
    })
}

fn fewest(
    peers: &Peers,
    state: &mut State,
    choice: &Choice,
    backup: bool,
    now: u64,
) -> Option<usize> {
    let list = peers.list(backup);
    let states = state.list(backup);
    let free = |i: usize, states: &[peers::PeerState]| {
        !choice.tried.has(i) && usable(&list.peers[i], &states[i], now)
    };
    let load = |i: usize, by: usize, states: &[peers::PeerState]| {
        i64::from(states[i].conns) * list.peers[by].weight
    };
    let mut best: Option<usize> = None;
    let mut equals = false;
    for i in (0..list.peers.len()).filter(|i| free(*i, states)) {
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
        total += weigh(&list.peers[i], &mut states[i]);
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
