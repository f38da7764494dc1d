//! Upstreams whose servers are names: `resolve`, `service=`, and names that are not known at first.

use std::net::Ipv4Addr;
use std::time::Instant;
use weir_tests::{
    expect_soon, run_cli, Dns, Next, Origin, Record, Server, Setup, Signal, PATIENCE,
};

fn origin() -> Origin {
    Origin::start(|_, conn| {
        conn.reply("200 OK", "", "here");
        Next::Keep
    })
}

/// Once `a.test` has an answer, requests go to what the name server says.
fn setup(dns: &Dns, origin: &Origin, upstream: &str) -> Setup {
    let conf = "events {} http { resolver %%DNS%% ipv6=off; resolver_timeout 1s;
        upstream u { %%UPSTREAM%% }
        server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log info;
            add_header X-Addr $upstream_addr always; proxy_connect_timeout 200ms;
            location / { proxy_pass http://u; } } }";
    let conf = conf.replace("%%UPSTREAM%%", upstream);
    Setup::new(&conf).set("DNS", dns.address()).set("ORIGIN", origin.port())
}

fn tried(server: &Server) -> String {
    server.get("/").header("X-Addr").unwrap_or_default().to_owned()
}

#[test]
fn upstream_resolve_follows_the_name() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set_ip("a.test", 1, Ipv4Addr::LOCALHOST);
    let server = setup(&dns, &origin, "zone z 1m; server a.test:%%ORIGIN%% resolve;").start();
    let here = |ip: &str| format!("{ip}:{}", origin.port());
    expect_soon("the first answer", || tried(&server) == here("127.0.0.1"));
    (0..5).for_each(|_| assert_eq!(server.get("/").text(), "here"));
    // The connection is kept while the address stays.
    dns.expect("a.test A", 2);
    assert_eq!(server.get("/").text(), "here");
    assert_eq!(origin.connections(), 1);
    dns.set_ip("a.test", 1, Ipv4Addr::new(127, 0, 0, 2));
    expect_soon("the new address", || tried(&server) == here("127.0.0.2"));
    // What is said not to exist has no servers; what could not be asked keeps them.
    dns.set("a.test", &[Record::Code(2)]);
    server.expect_error("a.test could not be resolved (2: Server failure)");
    assert_eq!(tried(&server), here("127.0.0.2"));
    dns.set("a.test", &[]);
    expect_soon("nobody left", || tried(&server) == "u");
    assert_eq!(server.get("/").status, 502);
    server.expect_error("no live upstreams while connecting to upstream");
}

#[test]
fn upstream_resolve_leaves_requests_in_flight_alone() {
    let dns = Dns::start();
    let (release, held) = std::sync::mpsc::channel();
    let held = std::sync::Mutex::new(held);
    let slow = Origin::start(move |request, conn| {
        if request.target() == "/slow" {
            let _ = held.lock().unwrap().recv_timeout(PATIENCE * 2);
        }
        conn.reply("200 OK", "", "here");
        Next::Keep
    });
    dns.set_ip("a.test", 1, Ipv4Addr::LOCALHOST);
    let upstream = "zone z 1m; server a.test:%%ORIGIN%% resolve max_conns=1 max_fails=0;";
    let server = setup(&dns, &slow, upstream).start();
    expect_soon("the first answer", || server.get("/").status == 200);
    let mut client = server.connect();
    client.send(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    slow.expect_requests(2);
    // Its server is full, before and after the list of servers has changed.
    assert_eq!(server.get("/").status, 502);
    dns.set("a.test", &[Record::A(1, [127, 0, 0, 1]), Record::A(1, [127, 0, 0, 9])]);
    let nine = format!("127.0.0.9:{}, u", slow.port());
    expect_soon("the second address", || tried(&server) == nine);
    assert_eq!(tried(&server), nine);
    // The one in flight ends, and its server, which has stayed, is free again.
    release.send(()).unwrap();
    assert_eq!(client.response().text(), "here");
    expect_soon("it is free", || server.get("/").text() == "here");
}

#[test]
fn upstream_resolve_keeps_idle_connections_of_who_stays() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set_ip("a.test", 1, Ipv4Addr::LOCALHOST);
    let upstream = "zone z 1m; server a.test:%%ORIGIN%% resolve max_fails=0;";
    let server = setup(&dns, &origin, upstream).start();
    expect_soon("the first answer", || server.get("/").text() == "here");
    assert_eq!(origin.connections(), 1);
    dns.set("a.test", &[Record::A(1, [127, 0, 0, 1]), Record::A(1, [127, 0, 0, 9])]);
    expect_soon("the second address", || tried(&server).contains("127.0.0.9"));
    (0..4).for_each(|_| assert_eq!(server.get("/").text(), "here"));
    assert_eq!(origin.connections(), 1);
}

#[test]
fn upstream_service_brings_ports_weights_and_backups() {
    let (dns, one, two) = (Dns::start(), origin(), origin());
    let srv = |priority, port| Record::Srv(1, priority, 3, port, "a.test");
    dns.set("_http._tcp.s.test", &[srv(1, one.port()), srv(2, two.port())]);
    dns.set_ip("a.test", 60, Ipv4Addr::LOCALHOST);
    let upstream = "zone z 1m; server s.test service=http resolve;";
    let server = setup(&dns, &one, upstream).start();
    let at = |origin: &Origin| format!("127.0.0.1:{}", origin.port());
    expect_soon("the first answer", || tried(&server) == at(&one));
    assert_eq!(dns.queries()[..2], ["_http._tcp.s.test SRV", "a.test A"]);
    assert_eq!(two.connections(), 0);
    dns.set("_http._tcp.s.test", &[srv(1, two.port())]);
    expect_soon("the other port", || tried(&server) == at(&two));
}

#[test]
fn upstream_resolver_of_its_own() {
    let (dns, own, origin) = (Dns::start(), Dns::start(), origin());
    own.set_ip("a.test", 60, Ipv4Addr::LOCALHOST);
    let upstream = "zone z 1m; server a.test:%%ORIGIN%% resolve; resolver %%OWN%% ipv6=off;
        resolver_timeout 2s;";
    let server = setup(&dns, &origin, upstream).set("OWN", own.address()).start();
    expect_soon("the answer", || server.get("/").text() == "here");
    assert!(dns.queries().is_empty());
}

#[test]
fn upstream_resolve_is_taken_over_by_a_reload() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set_ip("a.test", 1, Ipv4Addr::LOCALHOST);
    let server = setup(&dns, &origin, "zone z 1m; server a.test:%%ORIGIN%% resolve;").start();
    expect_soon("the answer", || server.get("/").text() == "here");
    dns.set("a.test", &[Record::Silence]);
    let conf = server.read("nginx.conf");
    server.write("nginx.conf", conf.replace("location /", "add_header X-New yes; location /"));
    server.signal(Signal::Hup);
    expect_soon("the new configuration", || server.get("/").header("X-New").is_some());
    (0..3).for_each(|_| assert_eq!(server.get("/").text(), "here"));
}

#[test]
fn upstream_resolve_keeps_sticky_clients_and_drains() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set("a.test", &[Record::A(1, [127, 0, 0, 1]), Record::A(1, [127, 0, 0, 2])]);
    let upstream = "zone z 1m; least_time header inflight; sticky cookie srv;
        server a.test:%%ORIGIN%% resolve max_fails=0;";
    let server = setup(&dns, &origin, upstream).start();
    expect_soon("the first answer", || server.get("/").text() == "here");
    let first = server.get("/").header("Set-Cookie").unwrap().to_owned();
    let own = format!("Cookie: {first}\r\n");
    let here = format!("127.0.0.1:{}", origin.port());
    let back = |server: &Server| {
        let response = server.get_with("/", &own);
        assert_eq!(response.header("Set-Cookie"), Some(&*first));
        assert_eq!(response.header("X-Addr"), Some(&*here));
    };
    (0..3).for_each(|_| back(&server));
    dns.set("a.test", &[Record::A(1, [127, 0, 0, 3]), Record::A(1, [127, 0, 0, 1])]);
    expect_soon("the third address", || tried(&server).contains("127.0.0.3"));
    (0..3).for_each(|_| back(&server));
    // Those who know it still come to it when it drains; the next who does not finds nobody.
    let conf = server.read("nginx.conf");
    server.write("nginx.conf", conf.replace("max_fails=0", "max_fails=0 drain"));
    server.signal(Signal::Hup);
    expect_soon("it drains", || tried(&server) == "u");
    (0..3).for_each(|_| back(&server));
}

#[test]
fn upstream_resolve_needs_a_zone_and_a_resolver() {
    for (upstream, why) in [
        ("server a.test resolve;", "requires upstream \"u\""),
        ("zone z 1m; server a.test resolve;", "no resolver defined to resolve names at run time"),
        ("server a.test service=http;", "requires \"resolve\" parameter"),
        ("server a.test:80 service=http resolve;", "may not have port"),
        ("server 127.0.0.1 service=http resolve;", "requires domain name"),
        ("server a.test service= resolve;", "service is empty"),
    ] {
        let out = run_cli(&["-t"], &format!("events {{}} http {{ upstream u {{ {upstream} }} }}"));
        assert!(out.code == 1 && out.stderr.contains(why), "{upstream}: {}", out.stderr);
    }
}

/// nginx does not start.
#[test]
fn upstream_name_unknown_at_start_is_a_warning() {
    let conf = "events {} http { upstream u { server missing.invalid; server 127.0.0.1:1; }
        server { location /a { proxy_pass http://u; }
            location /b { proxy_pass http://nowhere.invalid:81/; } } }";
    let out = run_cli(&["-t"], conf);
    assert_eq!(out.code, 0, "{}", out.stderr);
    for name in ["missing.invalid", "nowhere.invalid"] {
        let text = format!("[warn] host not found in upstream \"{name}\" in DIR/nginx.conf:");
        assert!(out.stderr.contains(&text), "{}", out.stderr);
    }
}

#[test]
fn upstream_name_unknown_at_start_serves_once_it_is_known() {
    let (dns, origin) = (Dns::start(), origin());
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log info;
            resolver %%DNS%% valid=1s ipv6=off; resolver_timeout 1s;
            location / { proxy_pass http://late.invalid:%%ORIGIN%%; }
            location /other { return 200 fine; } } }",
    )
    .set("DNS", dns.address())
    .set("ORIGIN", origin.port())
    .start();
    assert_eq!(server.get("/").status, 502);
    assert_eq!(server.get("/other").text(), "fine");
    dns.set_ip("late.invalid", 1, Ipv4Addr::LOCALHOST);
    expect_soon("it is found", || server.get("/").text() == "here");
    // What was found stays, when the name is lost again.
    let asked = dns.count("late.invalid A");
    dns.set("late.invalid", &[]);
    dns.expect("late.invalid A", asked + 2);
    assert_eq!(server.get("/").text(), "here");
}

/// As in nginx, the next question comes a second later at the earliest.
#[test]
fn upstream_resolve_without_time_to_live_is_no_busy_loop() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set_ip("a.test", 0, Ipv4Addr::LOCALHOST);
    let begin = Instant::now();
    let server = setup(&dns, &origin, "zone z 1m; server a.test:%%ORIGIN%% resolve;").start();
    expect_soon("the answer", || server.get("/").text() == "here");
    dns.expect("a.test A", 3);
    let asked = dns.count("a.test A") as u64;
    let most = begin.elapsed().as_secs() + 1;
    assert!((3..=most).contains(&asked), "{asked} questions where {most} are due at most");
    (0..5).for_each(|_| assert_eq!(server.get("/").text(), "here"));
}

/// Tengine's directive: the names of an upstream are asked for again, with what there is while nobody finds them.
#[test]
fn dynamic_resolve_keeps_or_drops_what_is_not_found() {
    if !run_cli(&["-v"], "").stderr.contains("(weir/") {
        return weir_tests::skip("nginx has no dynamic_resolve");
    }
    for (fallback, after) in [("fallback=stale fail_timeout=1s", "here"), ("fallback=next", "u")] {
        let (dns, origin) = (Dns::start(), origin());
        dns.set_ip("a.test", 1, Ipv4Addr::LOCALHOST);
        let upstream = format!("dynamic_resolve {fallback}; server a.test:%%ORIGIN%%;");
        let server = setup(&dns, &origin, &upstream).start();
        let here = |ip: &str| format!("{ip}:{}", origin.port());
        expect_soon("the first answer", || tried(&server) == here("127.0.0.1"));
        dns.set_ip("a.test", 1, Ipv4Addr::new(127, 0, 0, 2));
        expect_soon("the new address", || tried(&server) == here("127.0.0.2"));
        dns.set("a.test", &[]);
        server.expect_error("a.test could not be resolved (3: Host not found)");
        let wanted = if after == "u" { "u".to_string() } else { here("127.0.0.2") };
        expect_soon("what is left", || tried(&server) == wanted);
        // A name that was found at first, by the system.
        dns.set_ip("localhost", 60, Ipv4Addr::new(127, 0, 0, 3));
        let upstream = upstream.replace("a.test", "localhost");
        let server = setup(&dns, &origin, &upstream).start();
        expect_soon("the name server's word", || tried(&server) == here("127.0.0.3"));
    }
    for (text, told) in [
        ("dynamic_resolve fallback=shutdown;", "invalid parameter \"fallback=shutdown\""),
        ("dynamic_resolve fail_timeout=x;", "invalid parameter \"fail_timeout=x\""),
        ("dynamic_resolve;", "no resolver defined to resolve names"),
    ] {
        let conf = format!("events {{}} http {{ upstream u {{ {text} server localhost:1; }} }}");
        let output = run_cli(&["-t"], &conf);
        assert!(output.code == 1 && output.stderr.contains(told), "{told}: {}", output.stderr);
    }
}
