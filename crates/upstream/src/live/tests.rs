//! Answers that change under requests in flight.

use super::*;
use crate::peers::{release, round_robin, Choice};

fn target(last: u8, port: u16, priority: u16, weight: u16) -> Target {
    let name = if port == 0 { String::new() } else { "h.test".into() };
    Target { ip: [127, 0, 0, last].into(), port, priority, weight, name }
}

fn live(name: &str, service: Option<&str>, port: u16) -> Arc<Live> {
    of_host(name, "h.test", service, port)
}

fn of_host(name: &str, host: &str, service: Option<&str>, port: u16) -> Arc<Live> {
    let template =
        Peer { max_conns: 1, ..Peer::new(PeerAddr::Ip(([0, 0, 0, 0], port).into()), b"h.test:80") };
    let host = Host {
        name: host.into(),
        service: service.map(str::to_owned),
        port,
        template,
        backup: false,
        resolve: true,
        resolver: OnceLock::new(),
    };
    let (zone, method) = (b"z".to_vec(), Method::RoundRobin);
    let plan = Plan { name: name.into(), zone, method, keepalive: None };
    Live::new(plan, Vec::new(), vec![host])
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
fn the_next_configuration_takes_over() {
    let old = live("reload", None, 80);
    old.apply(0, &[target(1, 0, 0, 1)], 77);
    let new = live("reload", None, 8080);
    assert_eq!(shown(&new), "127.0.0.1:8080*1 | ");
    assert_eq!(new.lock().until_ms, [77]);
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
