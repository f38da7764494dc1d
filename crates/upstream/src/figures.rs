//! What status pages show of upstreams: NGINX Plus's figures under its names, and how long things took.
//!
//! Differences from NGINX Plus: upstreams without a `zone` are there too, and addresses that requests are
//! passed to without an `upstream` block, with their ports; averages are moving ones; `state` of an upstream says whether
//! the next request has a server.

use crate::asks::Asks;
use crate::conf::UpstreamMain;
use crate::counted::{Average, Counts, Tries};
use crate::dynamic;
use crate::group::{Group, Shape};
use crate::health::{Board, Found};
use crate::peers::{Peer, PeerId, PeerState, OFF_BY_CONF};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use weir_core::counts::{Counted, Handshakes, Statuses, Times};
use weir_core::figures::{Figure, Figures, Report, Served};
use weir_core::zones::Chunks;
use weir_module::{Context, Slots};
use weir_runtime::clock;

/// The upstreams of a protocol's block.
pub const fn report<S: Asks>() -> Report {
    Report { path: "upstreams", put: put::<S> }
}

/// What the zones of a protocol's upstreams have.
pub const fn zones_report() -> Report {
    Report { path: "/slabs", put: put_zones }
}

/// Several upstreams may have the same zone.
fn put_zones(_: &Served, main: &Slots, figures: &mut Figures) {
    let main = main.get::<UpstreamMain>();
    let mut zones: BTreeMap<&[u8], (u64, Chunks)> = BTreeMap::new();
    for (u, group) in main.declared.iter().zip(&main.groups) {
        let Some(zone) = &u.zone else { continue };
        let (_, chunks) = zones.entry(zone).or_insert((u.zone_bytes, Chunks::default()));
        chunks.add(size_of::<Shape>() + u.name.len(), 1);
        let names = group.as_live().map(|live| live.hosts_bytes()).unwrap_or_default();
        names.into_iter().for_each(|bytes| chunks.add(bytes, 1));
        group.with_shape(|shape| {
            for peer in [false, true].iter().flat_map(|b| &shape.peers.list(*b).peers) {
                chunks.add(size_of::<Peer>() + peer.name.len() + peer.server.len(), 1);
                chunks.add(size_of::<PeerState>(), 1);
                chunks.add(size_of::<Counted<Tries>>(), 1);
            }
        });
    }
    for (name, (size, chunks)) in zones {
        chunks.put(size, figures.entry(name));
    }
}

fn put<S: Asks>(_: &Served, main: &Slots, figures: &mut Figures) {
    let main = main.get::<UpstreamMain>();
    for (n, (u, group)) in main.declared.iter().zip(&main.groups).enumerate() {
        let boards = main.boards.iter().filter(|(at, _)| *at == n);
        let boards: Vec<_> = boards.filter_map(|(_, board)| Weak::upgrade(board)).collect();
        let figures = figures.entry(&u.shown_name());
        put_group::<S>(group, &boards, u.zone.as_deref(), figures);
    }
    if S::BLOCK == Context::HTTP {
        for (name, group) in dynamic::put_ones() {
            // Those that take the place of one of the configuration stand behind it.
            put_group::<S>(&group, &[], None, figures.entry(&name));
        }
    }
}

fn put_group<S: Asks>(
    group: &Group,
    boards: &[Arc<Board>],
    zone: Option<&[u8]>,
    figures: &mut Figures,
) {
    let services = group.as_live().map(|live| live.services()).unwrap_or_default();
    let state = group.with_shape(|shape| {
        let counts = shape.counts.as_ref()?;
        let (mut peers, mut standing) = (Vec::new(), Standing::default());
        for backup in [false, true] {
            let states = shape.with_zone(|state| Some(state.list(backup).clone()));
            for (index, peer) in shape.peers.list(backup).peers.iter().enumerate() {
                let at = PeerId { backup, index };
                let Some(tries) = counts.server(at) else { continue };
                let state = states.as_ref().and_then(|states| states.get(index));
                let server = Server { peer, tries, state, found: found(boards, peer) };
                standing.add(&server);
                let mut figures = Figures::default();
                let id = shape.tie.as_ref().map_or(peers.len() as u64, |tie| tie.id(at));
                figures.put("id", id);
                server.put::<S>(backup, &mut figures);
                if let Some(service) = services.get(&id) {
                    figures.put("service", service.as_str());
                }
                peers.push(Figure::Group(figures));
            }
        }
        figures.put("peers", Figure::List(peers));
        put_uses::<S>(shape, counts, figures);
        let queue = shape.queue.as_ref();
        let is_full = queue.is_some_and(|q| {
            counts.uses.now(|u| u.queued.get(), |u| u.left.get()) >= q.rule.max as u64
        });
        Some(standing.name(is_full))
    });
    figures.put("zombies", group.zombies());
    if let Some(zone) = zone {
        figures.put("zone", zone);
    }
    if let Some(state) = state {
        figures.put("state", state);
    }
}

fn put_uses<S: Asks>(shape: &Shape, counts: &Counts, figures: &mut Figures) {
    let uses = &counts.uses;
    if S::REUSES {
        figures.put("keepalive", uses.sum(|u| u.idle.get()));
    }
    if let Some(queue) = &shape.queue {
        let group = figures.group("queue");
        group.put("size", uses.now(|u| u.queued.get(), |u| u.left.get()));
        group.put("max_size", queue.rule.max as u64);
        group.put("overflows", uses.sum(|u| u.overflows.get()));
        group.put("wait", uses.times(|u| &u.waited));
    }
}

/// What can be said of the servers of an upstream together.
#[derive(Default)]
struct Standing {
    servers: usize,
    up: usize,
    /// Of those that are up, servers that have all the connections that they may have.
    full: usize,
}

impl Standing {
    fn add(&mut self, server: &Server<'_>) {
        self.servers += 1;
        if server.state_name() == "up" {
            self.up += 1;
            let most = u64::from(server.peer.max_conns);
            self.full += usize::from(most > 0 && server.active() >= most);
        }
    }

    /// Whether the next request has a server.
    fn name(&self, is_queue_full: bool) -> &'static str {
        match () {
            () if self.servers == 0 => "no servers",
            () if self.up == 0 => "unavail",
            () if is_queue_full => "queue full",
            () if self.up == self.full => "at max_conns",
            () => "up",
        }
    }
}

/// What checks say of a server, if there are any.
fn found(boards: &[Arc<Board>], peer: &Peer) -> Option<Found> {
    let mut found =
        Found { checks: 0, fails: 0, unhealthy: 0, last_passed: true, is_awaited: false };
    boards.iter().for_each(|board| board.standing(&peer.name).add_to(&mut found));
    (!boards.is_empty()).then_some(found)
}

struct Server<'a> {
    peer: &'a Peer,
    tries: &'a Counted<Tries>,
    /// Where the workers share it.
    state: Option<&'a PeerState>,
    found: Option<Found>,
}

impl Server<'_> {
    fn put<S: Asks>(&self, backup: bool, figures: &mut Figures) {
        let (peer, tries) = (self.peer, self.tries);
        let sum = |pick: fn(&Tries) -> u64| tries.sum(pick);
        figures.put("server", &*peer.name);
        figures.put("name", &*peer.server);
        figures.put("backup", backup);
        figures.put("weight", peer.weight.unsigned_abs());
        figures.put("state", self.state_name());
        figures.put("active", self.active());
        if peer.max_conns > 0 {
            figures.put("max_conns", u64::from(peer.max_conns));
        }
        figures.put(if S::HEADS { "requests" } else { "connections" }, sum(|t| t.begun.get()));
        if S::HEADS {
            Statuses::put(&tries.parts(), |t| &t.statuses, figures.group("responses"));
        }
        figures.put("sent", sum(|t| t.sent.get()));
        figures.put("received", sum(|t| t.received.get()));
        figures.put("fails", sum(|t| t.fails.get()));
        figures.put("unavail", sum(|t| t.unavail.get()));
        figures.put("max_fails", u64::from(peer.max_fails));
        figures.put("fail_timeout", peer.fail_timeout_secs);
        self.put_health(figures);
        let selected_us = tries.parts().iter().map(|(_, t)| t.selected_us.get()).max();
        if let Some(us) = selected_us.filter(|us| *us > 0) {
            figures.put("selected", Figure::date_of(us / 1000));
        }
        Handshakes::put_if_any(tries, |t| &t.handshakes, figures, "ssl");
        self.put_times::<S>(figures);
    }

    fn put_times<S: Asks>(&self, figures: &mut Figures) {
        let connect = self.tries.times(|t| &t.connect);
        let both = self.tries.times(|t| &t.both);
        let mut header = self.tries.times(|t| &t.header);
        let mut response = self.tries.times(|t| &t.response);
        [&mut header, &mut response].into_iter().for_each(|times| times.merge(&both));
        let shown = match S::HEADS {
            true => [("header_time", &header), ("response_time", &response)].to_vec(),
            false => [
                ("connect_time", &connect),
                ("first_byte_time", &header),
                ("response_time", &response),
            ]
            .to_vec(),
        };
        for (name, times) in shown.into_iter().filter(|(_, times)| times.count() > 0) {
            let average_us = self.average_us(name, times);
            figures.put(name, (average_us + 500) / 1000);
        }
        let group = figures.group("latency");
        group.put("connect", connect);
        group.put(if S::HEADS { "header" } else { "first_byte" }, header);
        group.put("response", response);
    }

    /// How long it has taken lately, as the workers have seen it by the number of their tries; over all the time where only
    /// that is known.
    fn average_us(&self, name: &str, times: &Times) -> u64 {
        let pick: fn(&Tries) -> &Average = match name {
            "header_time" | "first_byte_time" => |t| &t.header_average,
            "response_time" => |t| &t.response_average,
            _ => return times.sum_us() / times.count().max(1),
        };
        let parts = self.tries.parts();
        let seen = parts.iter().map(|(_, t)| (pick(t).us(), t.ended.get()));
        let (sum, weight) =
            seen.filter(|(us, _)| *us > 0).fold((0u128, 0u128), |(sum, weight), (us, n)| {
                let n = u128::from(n.max(1));
                (sum + u128::from(us) * n, weight + n)
            });
        match weight {
            0 => times.sum_us() / times.count().max(1),
            _ => u64::try_from(sum / weight).unwrap_or(u64::MAX),
        }
    }

    fn put_health(&self, figures: &mut Figures) {
        if let Some(found) = &self.found {
            let group = figures.group("health_checks");
            group.put_all(&[
                ("checks", found.checks),
                ("fails", found.fails),
                ("unhealthy", found.unhealthy),
            ]);
            if found.checks > 0 {
                group.put("last_passed", found.last_passed);
            }
        }
        let (since_ms, before_ms) = self.down();
        let now_ms = clock::mono_ms();
        let down_ms = if since_ms > 0 { now_ms.saturating_sub(since_ms) } else { 0 };
        figures.put("downtime", before_ms + down_ms);
        if since_ms > 0 {
            figures.put("downstart", Figure::date_of(since_ms));
        }
    }

    /// Since when it is away, and for how long it was before. Where each worker knows for itself, the first
    /// that has counted it out says so.
    fn down(&self) -> (u64, u64) {
        match self.state {
            Some(s) => (s.down_since_ms, s.downtime_ms),
            None => {
                let parts = self.tries.parts();
                let since = parts.iter().map(|(_, t)| t.down_since_ms.get());
                let before = parts.iter().map(|(_, t)| t.downtime_ms.get());
                (since.filter(|ms| *ms > 0).min().unwrap_or(0), before.max().unwrap_or(0))
            }
        }
    }

    fn active(&self) -> u64 {
        self.tries.now(|t| t.begun.get(), |t| t.ended.get())
    }

    fn state_name(&self) -> &'static str {
        let is_off = self.state.is_some_and(|s| s.off & !OFF_BY_CONF != 0);
        let is_out = match self.state {
            Some(s) => s.is_out(self.peer),
            None => self.down().0 > 0,
        };
        match () {
            () if self.peer.draining => "draining",
            () if self.peer.down => "down",
            () if is_off && self.found.as_ref().is_some_and(|f| f.is_awaited) => "checking",
            () if is_off => "unhealthy",
            () if is_out => "unavail",
            () => "up",
        }
    }
}
