//! `least_time`: the server is asked that is likely to be done first, by how long it took of late
//! and how many requests it has. Pure: the caller brings the time.
//!
//! As in nginx only answers count, an average forgets by a twentieth with each, times that differ
//! by less than 20 ms are alike, and a slow server is given another chance as time goes by.

use crate::balance::least;
use crate::peers::{take, usable, with_backup, Choice, Peer, PeerId, PeerState, Peers, State};

/// Slower than this is all the same: the number of connections decides.
const SLOWEST_MS: u64 = 5000;
const CLUSTER_MS: u64 = 20;

/// Until when a server's time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// There is a connection.
    Connected,
    /// The answer's head has come, or its first byte where there are no heads.
    Header,
    /// The whole answer has come.
    LastByte,
}

/// `least_time header|last_byte [inflight]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeastTime {
    pub until: Until,
    /// An answer counts only when its head has come.
    pub heads: bool,
    /// What requests in progress have waited counts too.
    pub inflight: bool,
}

/// How long a server took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    connect_ms: u64,
    header_ms: u64,
    response_ms: u64,
    /// Of the requests in progress: their average wait, the sum at the last change, when that
    /// was, and their number.
    inflight_ms: u64,
    inflight_sum_ms: u64,
    changed_ms: u64,
    inflight: u64,
}

fn average(old: &mut u64, new: u64) {
    *old = match *old {
        0 => new,
        old => (old * 95 + new * 5 + 50) / 100,
    };
}

/// What one request knows of its times: since when it counts as in progress, and what it measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub inflight: bool,
    pub connect_ms: Option<u64>,
    pub header_ms: Option<u64>,
    pub response_ms: u64,
    /// What was accounted for when it came.
    noted: Option<Until>,
}

impl LeastTime {
    /// Chooses; `now` in seconds as for the other methods. `choice.now_ms` runs finer.
    pub(crate) fn pick(
        self,
        peers: &Peers,
        state: &mut State,
        choice: &mut Choice,
        now: u64,
    ) -> Option<PeerId> {
        with_backup(peers, choice, |backup, choice| {
            if self.inflight {
                review(peers, state, choice, backup, now);
            }
            let eta = |peer: &Peer, s: &PeerState| self.eta(peer, s, now);
            let index = least(peers, state, choice, backup, now, eta)?;
            take(peers, state, choice, PeerId { backup, index }, now);
            Some(index)
        })
    }

    pub(crate) fn eta(self, peer: &Peer, s: &PeerState, now: u64) -> i64 {
        let mut ms = match self.until {
            Until::Connected => s.times.connect_ms,
            Until::Header => s.times.header_ms,
            Until::LastByte => s.times.response_ms,
        };
        let since = now.saturating_sub(s.checked);
        if since > peer.fail_timeout_secs {
            let halvings = since / (peer.fail_timeout_secs + 1);
            ms = ms.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0);
        }
        if s.times.inflight > 0 {
            ms = ms.max(s.times.inflight_ms);
        }
        let ms = match ms > SLOWEST_MS {
            true => SLOWEST_MS,
            false => ms + CLUSTER_MS - ms % CLUSTER_MS,
        };
        ms as i64 * (1 + i64::from(s.conns))
    }

    /// A request is on its way to the server.
    pub(crate) fn begin(self, s: &mut PeerState, m: &mut Measured, now_ms: u64) {
        if !self.inflight {
            return;
        }
        let t = &mut s.times;
        t.inflight_sum_ms += now_ms.saturating_sub(t.changed_ms) * t.inflight;
        t.changed_ms = now_ms;
        t.inflight += 1;
        m.inflight = true;
    }

    /// There is a connection.
    pub(crate) fn connected(self, s: &mut PeerState, m: &mut Measured, now_ms: u64) {
        if let Some(took) = m.connect_ms {
            self.note(s, m, Until::Connected, took, now_ms);
        }
    }

    /// The head of its answer has come.
    pub(crate) fn header(self, s: &mut PeerState, m: &mut Measured, now_ms: u64) {
        if let Some(took) = m.header_ms {
            self.note(s, m, Until::Header, took, now_ms);
        }
    }

    /// Accounts for what requests in progress go by.
    fn note(self, s: &mut PeerState, m: &mut Measured, what: Until, took: u64, now_ms: u64) {
        if !self.inflight || self.until != what {
            return;
        }
        average(s.times.of(what), took);
        m.noted = Some(what);
        finish(&mut s.times, m, took, now_ms);
    }

    /// The request is over.
    pub(crate) fn end(self, s: &mut PeerState, m: &mut Measured, failed: bool, now_ms: u64) {
        finish(&mut s.times, m, m.response_ms, now_ms);
        if failed || (self.heads && m.header_ms.is_none()) {
            return;
        }
        average(&mut s.times.response_ms, m.response_ms);
        for (what, took) in [(Until::Connected, m.connect_ms), (Until::Header, m.header_ms)] {
            if let Some(took) = took.filter(|_| m.noted != Some(what)) {
                average(s.times.of(what), took);
            }
        }
    }
}

impl Times {
    fn of(&mut self, what: Until) -> &mut u64 {
        match what {
            Until::Connected => &mut self.connect_ms,
            Until::Header => &mut self.header_ms,
            Until::LastByte => &mut self.response_ms,
        }
    }
}

/// Looks at how long the requests in progress have waited.
fn review(peers: &Peers, state: &mut State, choice: &Choice, backup: bool, now: u64) {
    let states = state.list(backup);
    for (i, peer) in peers.list(backup).peers.iter().enumerate() {
        if choice.tried.has(i) || !usable(peer, &states[i], now) {
            continue;
        }
        let t = &mut states[i].times;
        if let Some(each) = t.inflight_sum_ms.checked_div(t.inflight) {
            average(&mut t.inflight_ms, each + choice.now_ms.saturating_sub(t.changed_ms));
        }
    }
}

fn finish(t: &mut Times, m: &mut Measured, took_ms: u64, now_ms: u64) {
    if !std::mem::take(&mut m.inflight) {
        return;
    }
    if t.inflight <= 1 {
        t.inflight_sum_ms = 0;
    } else {
        t.inflight_sum_ms += now_ms.saturating_sub(t.changed_ms) * t.inflight;
        t.inflight_sum_ms = t.inflight_sum_ms.saturating_sub(took_ms);
        t.changed_ms = now_ms;
    }
    t.inflight = t.inflight.saturating_sub(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{release, PeerAddr};

    fn two() -> Peers {
        let peer = |n: u16| Peer::new(PeerAddr::Ip(([127, 0, 0, 1], n).into()), b"x");
        Peers::new(vec![peer(1), peer(2)], vec![])
    }

    const BY_END: LeastTime = LeastTime { until: Until::LastByte, heads: true, inflight: false };

    /// Chooses at a second, with answers that take so many milliseconds for each server.
    fn ask(how: LeastTime, peers: &Peers, state: &mut State, took: [u64; 2], now: u64) -> usize {
        let mut choice = Choice::new(peers);
        let at = how.pick(peers, state, &mut choice, now).unwrap();
        let response_ms = took[at.index];
        let mut m = Measured { header_ms: Some(1), response_ms, ..Measured::default() };
        how.end(state.peer(at), &mut m, false, now * 1000);
        release(peers, state, &mut choice, at, false, now);
        at.index
    }

    #[test]
    fn the_quick_one_is_asked_and_the_slow_one_gets_its_chance() {
        let peers = two();
        let mut state = peers.fresh_state();
        let got: Vec<_> = (0..10).map(|_| ask(BY_END, &peers, &mut state, [400, 2], 100)).collect();
        assert_eq!(got.iter().filter(|i| **i == 0).count(), 1, "{got:?}");
        // After fail_timeout its time counts half, then a quarter, until it is as good.
        assert_eq!(ask(BY_END, &peers, &mut state, [2, 2], 111), 1);
        let later: Vec<_> = (0..4).map(|_| ask(BY_END, &peers, &mut state, [2, 2], 160)).collect();
        assert!(later.contains(&0), "{later:?}");
    }

    #[test]
    fn like_times_take_turns() {
        let peers = two();
        let mut state = peers.fresh_state();
        let got: Vec<_> = (0..8).map(|_| ask(BY_END, &peers, &mut state, [3, 9], 100)).collect();
        assert_eq!(got.iter().filter(|i| **i == 0).count(), 4, "{got:?}");
    }

    #[test]
    fn what_is_in_progress_counts_for_inflight() {
        let how = LeastTime { until: Until::Header, heads: true, inflight: true };
        let peers = two();
        let mut state = peers.fresh_state();
        let (slow, mut waits) = (PeerId { backup: false, index: 0 }, Measured::default());
        how.begin(state.peer(slow), &mut waits, 1000);
        let mut choice = Choice { now_ms: 4000, ..Choice::new(&peers) };
        assert_eq!(how.pick(&peers, &mut state, &mut choice, 4).unwrap().index, 1);
        assert_eq!(state.peer(slow).times.inflight_ms, 3000);
        waits.header_ms = Some(3000);
        how.header(state.peer(slow), &mut waits, 4000);
        how.end(state.peer(slow), &mut waits, false, 5000);
        assert_eq!((state.peer(slow).times.inflight, state.peer(slow).times.header_ms), (0, 3000));
    }
}
