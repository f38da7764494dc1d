//! `iwrr` (Tengine's): rounds in which every server has a turn whose weight is not below the round's; each round
//! goes a step lower, from the largest weight to the smallest step, then again.

use crate::peers::{hinted, take, usable, with_backup, Choice, PeerId, PeerList, Peers, State};

/// Turns that are passed over at most; then anybody's is the next.
const STEPS_MAX: usize = 4096;

/// Takes the next server; `None` when nobody is left.
pub(crate) fn interleaved(
    peers: &Peers,
    state: &mut State,
    choice: &mut Choice,
    now: u64,
) -> Option<PeerId> {
    with_backup(peers, choice, |backup, choice| {
        let list = peers.list(backup);
        let index = hinted(list, state.list(backup), choice, now)
            .or_else(|| next(list, state, choice, backup, now))?;
        take(peers, state, choice, PeerId { backup, index }, now);
        Some(index)
    })
}

fn next(
    list: &PeerList,
    state: &mut State,
    choice: &Choice,
    backup: bool,
    now: u64,
) -> Option<usize> {
    let len = list.peers.len();
    let largest = list.peers.iter().map(|p| p.weight).max()?;
    let step = list.peers.iter().map(|p| p.weight).fold(0, divisor).max(1);
    let (mut at, mut level) = state.rounds[usize::from(backup)];
    if level == 0 || at >= len {
        (at, level) = ((state.random() % len as u64) as usize, largest);
    }
    let free = |i: usize, state: &mut State| {
        !choice.tried.has(i) && usable(&list.peers[i], &state.list(backup)[i], now)
    };
    for _ in 0..STEPS_MAX {
        at = (at + 1) % len;
        if at == 0 {
            level = if level > step { level - step } else { largest };
        }
        if list.peers[at].weight >= level && free(at, state) {
            state.rounds[usize::from(backup)] = (at, level);
            return Some(at);
        }
    }
    (0..len).find(|i| free(*i, state))
}

/// The greatest number that divides both; the other, if one is 0.
fn divisor(a: i64, b: i64) -> i64 {
    match b {
        0 => a,
        b => divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Peer, PeerAddr};

    #[test]
    fn turns_are_by_weight_in_any_two_whole_rounds() {
        let peer = |(i, weight): (usize, i64)| {
            let addr = PeerAddr::Ip(([127, 0, 0, 1], i as u16).into());
            Peer { weight, ..Peer::new(addr, b"x") }
        };
        let weights = [5, 1, 3, 2];
        let peers = Peers::new(weights.into_iter().enumerate().map(peer).collect(), vec![]);
        let mut state = peers.fresh_state();
        let mut got = [0i64; 4];
        let ask = |state: &mut State| {
            let mut choice = Choice::new(&peers);
            interleaved(&peers, state, &mut choice, 1).unwrap().index
        };
        for _ in 0..22 {
            got[ask(&mut state)] += 1;
        }
        for (turns, weight) in got.into_iter().zip(weights) {
            assert!((turns - 2 * weight).abs() <= 1, "{got:?}");
        }
        state.list(false)[0].off = 1;
        assert!((0..20).all(|_| ask(&mut state) != 0));
    }
}
