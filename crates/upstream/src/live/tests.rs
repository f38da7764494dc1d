//! Answers that change under requests in flight.

use super::asking::{ask_system, SYSTEM_RETRY_MS};
use super::*;
use crate::balance::Method;
use crate::group::Sticky;
use crate::least_time::{LeastTime, Until};
use crate::peers::{self, release, round_robin, Choice, PeerAddr};
use weir_module::Context;

fn target(last: u8, port: u16, priority: u16, weight: u16) -> Target {
    let name = if port == 0 { String::new() } else { "h.test".into() };
    Target { ip: [127, 0, 0, last].into(), port, priority, weight, name }
}

fn live(name: &str, service: Option<&str>, port: u16) -> Arc<Live> {
    of_host(name, "h.test", service, port)
}

fn of_host(name: &str, host: &str, service: Option<&str>, port: u16) -> Arc<Live> {
    Live::new(plan(name), Vec::new(), vec![host_of(host, service, port)], None, (None, None))
}

fn plan(name: &str) -> Plan {
    let (zone, method) = (Some(b"z".to_vec()), Method::RoundRobin);
    let block = Context::HTTP;
    Plan {
        shown_name: name.into(),
        block,
        name: name.into(),
        zone,
        method,
        keepalive: None,
        sticky: None,
        binds: false,
        queue: None,
    }
}

fn host_of(host: &str, service: Option<&str>, port: u16) -> Host {
    let template =
        Peer { max_conns: 1, ..Peer::new(PeerAddr::Ip(([0, 0, 0, 0], port).into()), b"h.test:80") };
    Host {
        name: host.into(),
        service: service.map(str::to_owned),
        port,
        template,
        route: Vec::new(),
        backup: false,
        resolve: true,
        fallback: None,
        is_put: false,
    }
}

fn shown(live: &Live) -> String {
    let shape = live.shape();
    let list = |l: &[Peer]| {
        let one = |p: &Peer| format!("{}*{}", String::from_utf8_lossy(&p.name), p.weight);
        l.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    format!("{} | {}", list(&shape.peers.primary.peers), list(&shape.peers.backup.peers))
}

#[test]
fn who_stays_keeps_place_and_state() {
    let live = live("stays", None, 80);
    assert_eq!(shown(&live), " | ");
    live.apply(0, &[target(1, 0, 0, 1), target(2, 0, 0, 1)], 0);
    let old = live.shape();
    let take = |shape: &Shape| {
        shape.with_zone(|s| round_robin(&shape.peers, s, &mut Choice::new(&shape.peers), 9))
    };
    let first = take(&old).expect("a server");
    assert_eq!(first.index, 0);
    let version = live.version();
    live.apply(0, &[target(2, 0, 0, 1), target(1, 0, 0, 1)], 0);
    assert_eq!(live.version(), version, "the same servers in another order are no change");
    live.apply(0, &[target(3, 0, 0, 1), target(1, 0, 0, 1)], 0);
    assert_eq!(shown(&live), "127.0.0.1:80*1 127.0.0.3:80*1 | ");
    let new = live.shape();
    // The first is taken, and max_conns is 1.
    assert_eq!(take(&new).map(|p| p.index), Some(1));
    assert_eq!(take(&new), None);
    let tie = old.tie.as_ref().expect("a tie");
    assert!(tie.has_moved() && !new.tie.as_ref().expect("a tie").has_moved());
    let mut choice = Choice::default();
    tie.forward(first, |peers, s, at| assert!(!release(peers, s, &mut choice, at, false, 9)));
    assert_eq!(take(&new).map(|p| p.index), Some(0));
    live.apply(0, &[], 0);
    assert_eq!(shown(&live), " | ");
}

#[test]
fn a_service_has_weights_ports_and_backups() {
    let live = live("service", Some("http"), 80);
    let two = [target(1, 81, 1, 5), target(1, 81, 1, 5), target(2, 82, 2, 6)];
    live.apply(0, &two, 0);
    assert_eq!(shown(&live), "127.0.0.1:81*5 127.0.0.1:81*5 | 127.0.0.2:82*6");
    live.apply(0, &[target(1, 81, 1, 6), target(2, 82, 2, 6)], 0);
    assert_eq!(shown(&live), "127.0.0.1:81*6 | 127.0.0.2:82*6");
}

#[test]
fn each_server_has_what_the_row_says_and_a_name_of_its_own_for_sticky() {
    let mut host = host_of("h.test", None, 80);
    (host.template.down, host.template.draining) = (true, true);
    let live = Live::new(plan("drains"), Vec::new(), vec![host], None, (None, None));
    live.apply(0, &[target(1, 0, 0, 1), target(2, 0, 0, 1)], 0);
    let shape = live.shape();
    let list = &shape.peers.primary.peers;
    assert!(list.iter().all(|p| p.down && p.draining));
    let wanted = [&b"127.0.0.1:80"[..], b"127.0.0.2:80"].map(|a| peers::sid(b"", a));
    assert_eq!([&*list[0].sid, &*list[1].sid], wanted.each_ref().map(|s| &**s));
    // The next configuration has another port and a route.
    let host = Host { route: b"r".to_vec(), ..host_of("h.test", None, 81) };
    let next = Live::new(plan("drains"), Vec::new(), vec![host], None, (None, None)).shape();
    assert_eq!(next.peers.primary.peers.len(), 2);
    assert!(next.peers.primary.peers.iter().all(|p| *p.sid == *b"r" && !p.draining));
}

#[test]
fn what_shapes_have_in_common_stays() {
    let method =
        Method::LeastTime(LeastTime { until: Until::LastByte, heads: true, inflight: false });
    let sticky = Some(Arc::new(()) as Sticky);
    let all = Plan { method, sticky, ..plan("common") };
    let live = Live::new(all, Vec::new(), vec![host_of("h.test", None, 80)], None, (None, None));
    for last in 1..3 {
        live.apply(0, &[target(last, 0, 0, 1)], 0);
        let shape = live.shape();
        assert!(shape.sticky.is_some() && shape.timed().is_some());
    }
}

#[test]
fn the_next_configuration_takes_over() {
    let old = live("reload", None, 80);
    old.apply(0, &[target(1, 0, 0, 1)], 77);
    let new = live("reload", None, 8080);
    assert_eq!(shown(&new), "127.0.0.1:8080*1 | ");
    assert_eq!(new.lock().hosts[0].until_ms, 77);
    drop((old, new));
    assert_eq!(shown(&live("reload", None, 80)), " | ");
}

/// Without a `resolver` the system is asked, and no more once it has found the name.
#[test]
fn the_system_is_asked_for_what_was_not_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let log = ErrorLog::default();
    let ask = |name: &str, host: &str| {
        let live = of_host(name, host, None, 80);
        let next = runtime.block_on(ask_system(&Arc::downgrade(&live), 0, &log));
        (next, shown(&live).contains("127.0.0.1:80*1"))
    };
    assert_eq!(ask("known", "localhost"), (None, true));
    assert_eq!(ask("unknown", "missing.invalid"), (Some(SYSTEM_RETRY_MS), false));
}
