//! `health_check` and `match`: servers are asked whether they are well, and left alone while they are not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use weir_tests::h2;
use weir_tests::{expect_soon, run_cli, skip, Next, Origin, Server, Setup};
use weir_wire::http2::frame;

/// A server that can be well or not; for `/health` its answer, for anything else its name.
struct Patient {
    origin: Origin,
    well: Arc<AtomicBool>,
}

impl Patient {
    fn new(name: &'static str, well: bool) -> Patient {
        let well = Arc::new(AtomicBool::new(well));
        let state = Arc::clone(&well);
        let origin = Origin::start(move |request, conn| {
            let status = match state.load(Ordering::SeqCst) || !request.target().starts_with("/h") {
                true => "200 OK",
                false => "500 Internal Server Error",
            };
            conn.reply(status, "X-Health: fine\r\nConnection: close\r\n", name);
            Next::Close
        });
        Patient { origin, well }
    }

    fn set(&self, well: bool) {
        self.well.store(well, Ordering::SeqCst);
    }

    fn sessions(&self) -> usize {
        self.origin.requests().iter().filter(|r| !r.target().starts_with("/h")).count()
    }
}

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/") || {
        skip("nginx has no health_check");
        false
    }
}

fn conf(check: &str, more: &str) -> String {
    format!(
        "worker_processes 2; error_log %%DIR%%/error.log info; events {{}} http {{ {more}
            upstream u {{ zone u 64k; server %%A%%; server %%B%%; }}
            server {{ listen 127.0.0.1:%%PORT_0%%;
                location / {{ proxy_pass http://u; {check} }} }} }}"
    )
}

fn setup(a: &Patient, b: &Patient, check: &str, more: &str) -> Setup {
    Setup::new(&conf(check, more)).set("A", a.origin.address()).set("B", b.origin.address())
}

/// Who answers six requests.
fn who(server: &Server) -> String {
    let mut all: Vec<String> = (0..6).map(|_| server.get("/").text()).collect();
    all.sort();
    all.dedup();
    all.concat()
}

#[test]
fn a_server_that_is_not_well_is_left_alone_until_it_is() {
    if !is_weir() {
        return;
    }
    let (a, b) = (Patient::new("a", true), Patient::new("b", true));
    let server =
        setup(&a, &b, "health_check interval=30ms jitter=5ms fails=2 passes=2 uri=/health;", "")
            .start();
    a.origin.expect_requests(1);
    assert_eq!(who(&server), "ab");
    a.set(false);
    let address = a.origin.address();
    let line = format!(
        "peer is unhealthy while checking status code, health check \"\" of peer {address} in upstream \"u\""
    );
    server.expect_error(&line);
    let before = a.sessions();
    assert_eq!(who(&server), "b");
    assert_eq!(a.sessions(), before);
    a.set(true);
    server.expect_error("peer is healthy while checking");
    assert_eq!(who(&server), "ab");
    assert!(a.origin.requests().iter().any(|r| r.target() == "/health"));
}

#[test]
fn a_server_that_refuses_is_found_without_a_client() {
    if !is_weir() {
        return;
    }
    let a = Patient::new("a", true);
    let conf = conf("health_check interval=20ms;", "").replace("%%B%%", "127.0.0.1:%%PORT_1%%");
    let server = Setup::new(&conf).set("A", a.origin.address()).start();
    server.expect_error("peer is unhealthy while connecting to upstream, health check \"\"");
    server.expect_error("connect() failed (111: Connection refused) while connecting to upstream, health check \"\" of peer");
    assert_eq!(who(&server), "a");
    assert!(!server.error_log().contains("client:"));
}

#[test]
fn mandatory_servers_start_unhealthy() {
    if !is_weir() {
        return;
    }
    let (a, b) = (Patient::new("a", false), Patient::new("b", false));
    let server = setup(&a, &b, "health_check interval=20ms uri=/health mandatory;", "").start();
    a.origin.expect_requests(1);
    assert_eq!(server.get("/").status, 502);
    a.set(true);
    server.expect_error("peer is healthy");
    assert_eq!(who(&server), "a");
}

#[test]
fn what_is_known_stays_over_a_reload_unless_it_is_to_be_found_out_anew() {
    if !is_weir() {
        return;
    }
    for (kind, first, after) in [
        ("mandatory persistent", true, 200),
        ("mandatory", true, 502),
        ("", true, 200),
        ("", false, 502),
    ] {
        let well = Arc::new(AtomicBool::new(first));
        let state = Arc::clone(&well);
        let origin = Origin::start(move |request, conn| {
            if request.target() == "/hang" {
                conn.wait_closed();
            } else if request.target() == "/health" && !state.load(Ordering::SeqCst) {
                conn.reply("503 No", "", "");
            } else {
                conn.reply("200 OK", "", "a");
            }
            Next::Close
        });
        let conf = |uri: &str, new: &str| {
            format!(
                "worker_processes 2; error_log %%DIR%%/error.log info; events {{}} http {{
                    upstream u {{ zone u 64k; server {}; server {} backup; }}
                    server {{ listen 127.0.0.1:%%PORT_0%%; {new}
                        location / {{ proxy_pass http://u; health_check interval=20ms uri={uri} {kind}; }} }} }}",
                origin.address(),
                origin.address()
            )
        };
        let mut server = Setup::new(&conf("/health", "")).start();
        let port = server.on(0);
        expect_soon("the checks are through", || {
            origin.requests().len() > 2 && (port.get("/").status == 200) == first
        });
        let next = conf("/hang", "location = /new { return 204; }");
        server.reload(&next, || port.get("/new").status == 204);
        assert_eq!(port.get("/").status, after, "{kind:?} {first}");
    }
}

#[test]
fn checks_go_the_way_of_their_location() {
    if !is_weir() {
        return;
    }
    let (a, b) = (Patient::new("a", true), Patient::new("b", true));
    let check =
        "proxy_set_header Host asked; proxy_set_header X-Server $server_name:$uri:$remote_addr;
        proxy_http_version 1.1; health_check interval=20ms uri=/health?full=1 keepalive_time=1h;";
    let _server = setup(&a, &b, check, "").start();
    a.origin.expect_requests(2);
    let request = a.origin.last_request();
    assert_eq!(request.line(), "GET /health?full=1 HTTP/1.1");
    assert_eq!(request.header("Host"), Some("asked"));
    assert_eq!(request.header("X-Server"), Some(":/health:unix:"));
}

#[test]
fn a_connection_is_kept_for_keepalive_time() {
    if !is_weir() {
        return;
    }
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "", "body");
        Next::Keep
    });
    for (time, kept) in [("keepalive_time=1h", true), ("", false)] {
        let conf = format!(
            "events {{}} http {{ upstream u {{ zone u 64k; server {}; }} server {{ listen 127.0.0.1:%%PORT_0%%;
                location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection \"\";
                    health_check interval=10ms {time}; }} }} }}",
            origin.address()
        );
        let (connections, requests) = (origin.connections(), origin.requests().len());
        let _server = Setup::new(&conf).start();
        origin.expect_requests(requests + 4);
        let fresh = origin.connections() - connections;
        assert_eq!(fresh == 1, kept, "{fresh} connections");
    }
}

#[test]
fn another_port_may_be_asked() {
    if !is_weir() {
        return;
    }
    let (a, b) = (Patient::new("a", true), Patient::new("b", false));
    let port = b.origin.port();
    let server =
        setup(&a, &b, &format!("health_check interval=20ms port={port} uri=/health;"), "").start();
    server.expect_error(&format!("of peer {} in upstream", a.origin.address()));
    expect_soon("nobody is left", || server.get("/").status == 502);
    assert!(a.origin.requests().iter().all(|r| r.target() == "/"));
}

#[test]
fn answers_are_judged_by_a_match() {
    if !is_weir() {
        return;
    }
    let origin = Origin::start(|_, conn| {
        conn.reply(
            "202 Accepted",
            "Content-Type: text/html\r\nX-One: 1\r\nX-Hard: abababababab\r\n",
            "all is well here",
        );
        Next::Close
    });
    for (rules, well) in [
        ("status 202; header Content-Type = text/html; body ~ \"is well\";", true),
        ("status 200 202-204;", true),
        ("status ! 200 300-599;", true),
        ("status 200;", false),
        ("status ! 200-299;", false),
        ("header X-One; header ! X-Two;", true),
        ("header ! X-One;", false),
        ("header X-One != 2; header Content-Type ~ html; header Content-Type !~ plain;", true),
        ("header Content-Type !~ html;", false),
        ("header X-Hard !~ \"(*LIMIT_MATCH=20)^([ab]|[ab][ab])*[!?]$\";", false),
        ("body !~ \"is well\";", false),
        ("body !~ ill;", true),
        ("require $upstream_http_x_one;", true),
        ("require $upstream_http_x_two;", false),
        ("require $yes $no;", false),
    ] {
        let conf = format!(
            "error_log %%DIR%%/error.log info; events {{}} http {{ match fine {{ {rules} }}
                map $upstream_status $yes {{ 202 1; }} map $upstream_status $no {{ 202 0; }}
                upstream u {{ zone u 64k; server {0}; server {0} backup; }}
                server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ proxy_pass http://u;
                    health_check interval=10ms match=fine; }} }} }}",
            origin.address()
        );
        let before = origin.requests().len();
        let server = Setup::new(&conf).start();
        match well {
            false => server.expect_error("health check \"fine\" of peer"),
            true => origin.expect_requests(before + 4),
        }
        assert_eq!(server.get("/").status, if well { 202 } else { 502 }, "{rules}");
    }
}

#[test]
fn a_silent_server_costs_one_connection_and_its_time() {
    if !is_weir() {
        return;
    }
    let most = Arc::new(AtomicUsize::new(0));
    let now = Arc::new(AtomicUsize::new(0));
    let (peak, count) = (Arc::clone(&most), Arc::clone(&now));
    let origin = Origin::start_raw(move |conn, id| {
        let open = count.fetch_add(1, Ordering::SeqCst) + 1;
        peak.fetch_max(open, Ordering::SeqCst);
        if id % 2 == 0 {
            // One that always has a little more to say is no better.
            while conn.try_write(b"HTTP/1.1 200 OK\r\nX: y\r\n") {
                if conn.is_closed_within(std::time::Duration::from_millis(20)) {
                    break;
                }
            }
        }
        conn.wait_closed();
        count.fetch_sub(1, Ordering::SeqCst);
    });
    let conf = format!(
        "error_log %%DIR%%/error.log info; events {{}} http {{
            upstream u {{ zone u 64k; server {0} max_fails=0; }}
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ proxy_pass http://u; proxy_read_timeout 100ms;
                health_check interval=10ms; }} }} }}",
        origin.address()
    );
    let server = Setup::new(&conf).start();
    server.expect_error("peer is unhealthy while reading response header from upstream");
    server.expect_error(
        "upstream timed out (110: Connection timed out) while reading response header",
    );
    expect_soon("it is asked again", || origin.connections() > 4);
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert_eq!(server.get("/").status, 502);
}

/// A server that never answers; how many connections to it are open.
fn silent() -> (Origin, Arc<AtomicUsize>) {
    let open = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&open);
    let origin = Origin::start_raw(move |conn, _| {
        count.fetch_add(1, Ordering::SeqCst);
        conn.wait_closed();
        count.fetch_sub(1, Ordering::SeqCst);
    });
    (origin, open)
}

#[test]
fn nobody_asks_for_a_configuration_that_has_gone() {
    if !is_weir() {
        return;
    }
    let (origin, open) = silent();
    let conf = |check: &str, status: u16| {
        format!(
            "worker_processes 2; error_log %%DIR%%/error.log info; events {{}} http {{
                upstream u {{ zone u 64k; server {0}; server {0} backup; }}
                server {{ listen 127.0.0.1:%%PORT_0%%; location /new {{ return {status}; }} location / {{ proxy_pass http://u; {check} }} }} }}",
            origin.address()
        )
    };
    let mut server = Setup::new(&conf("health_check;", 201)).start();
    let port = server.on(0);
    expect_soon("it is asked", || open.load(Ordering::SeqCst) > 0);
    server.reload(&conf("", 202), || port.get("/new").status == 202);
    expect_soon("the question has ended", || open.load(Ordering::SeqCst) == 0);
    server.reload(&conf("health_check;", 203), || port.get("/new").status == 203);
    expect_soon("it is asked again", || open.load(Ordering::SeqCst) > 0);
    server.signal(weir_tests::Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    expect_soon("nobody is left", || open.load(Ordering::SeqCst) == 0);
}

#[test]
fn two_thousand_servers_are_asked_one_after_another() {
    if !is_weir() {
        return;
    }
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "", "");
        Next::Close
    });
    let port = origin.port();
    let (mut upstreams, mut locations) = (String::new(), String::new());
    for u in 0..200 {
        let servers: String = (1..=10).map(|n| format!("server 127.1.{u}.{n}:{port};")).collect();
        upstreams += &format!("upstream u{u} {{ zone u{u} 64k; {servers} }}\n");
        locations += &format!(
            "location /{u} {{ proxy_pass http://u{u}; health_check interval=1h port={port}; }}\n"
        );
    }
    let conf = format!(
        "error_log %%DIR%%/error.log info; events {{}} http {{ {upstreams}
            server {{ listen 127.0.0.1:%%PORT_0%%; {locations} location /own {{ return 204; }} }} }}"
    );
    let server = Setup::new(&conf).start();
    assert_eq!(server.get("/own").status, 204);
    let early = server.error_log().lines().count();
    // Nobody listens on the other addresses: each is told once.
    let told = || server.error_log().matches("peer is unhealthy").count();
    assert!(early < 2000, "{early}");
    expect_soon("all have been asked", || told() == 2000);
}

#[test]
fn a_server_that_comes_by_its_name_is_checked_first() {
    if !is_weir() {
        return;
    }
    let dns = weir_tests::Dns::start();
    dns.set_ip("a.test", 1, std::net::Ipv4Addr::new(127, 0, 0, 2));
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "", "here");
        Next::Close
    });
    let conf = format!(
        "error_log %%DIR%%/error.log info; events {{}} http {{ resolver {} ipv6=off;
            upstream u {{ zone u 64k; server a.test:{} resolve; }}
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ proxy_pass http://u;
                health_check interval=20ms mandatory; }} }} }}",
        dns.address(),
        origin.port()
    );
    let server = Setup::new(&conf).start();
    server.expect_error("health check \"\" of peer 127.0.0.2:");
    assert_eq!(server.get("/").status, 502);
    dns.set_ip("a.test", 1, std::net::Ipv4Addr::LOCALHOST);
    server.expect_error(
        "peer is healthy while checking status code, health check \"\" of peer 127.0.0.1:",
    );
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn grpc_servers_are_asked_by_their_own_protocol() {
    if !is_weir() {
        return;
    }
    for (parameters, serving, well) in [
        ("", 1u8, true),
        ("grpc_service=some.Service", 1, true),
        ("", 2, false),
        ("grpc_status=12", 1, false),
        ("grpc_status=0", 2, true),
    ] {
        let service = parameters.contains("service").then_some("some.Service");
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let origin = Origin::start_raw(move |conn, _| {
            conn.read_until(h2::PREFACE);
            let mut out = Vec::new();
            frame::settings(&[], &mut out);
            conn.write(out);
            let mut body = Vec::new();
            loop {
                let Some(start) = conn.read_exactly(9) else { return };
                let length = usize::from(start[1]) * 256 + usize::from(start[2]);
                let Some(payload) = conn.read_exactly(length) else { return };
                if start[3] == frame::DATA {
                    body.extend_from_slice(&payload);
                    if start[4] & frame::END_STREAM != 0 {
                        break;
                    }
                }
            }
            let mut wanted = vec![0, 0, 0, 0, 0];
            if let Some(service) = service {
                wanted[4] = service.len() as u8 + 2;
                wanted.extend_from_slice(&[0x0a, service.len() as u8]);
                wanted.extend_from_slice(service.as_bytes());
            }
            assert_eq!(body, wanted);
            let part = |kind: u8, flags: u8, bytes: &[u8]| {
                [&frame::head(bytes.len(), kind, flags, 1)[..], bytes].concat()
            };
            let head = h2::block(&[(":status", "200"), ("content-type", "application/grpc")]);
            conn.write(part(frame::HEADERS, frame::END_HEADERS, &head));
            conn.write(part(frame::DATA, 0, &[0, 0, 0, 0, 2, 8, serving]));
            let trailers = h2::block(&[("grpc-status", "0")]);
            let flags = frame::END_HEADERS | frame::END_STREAM;
            conn.write(part(frame::HEADERS, flags, &trailers));
            count.fetch_add(1, Ordering::SeqCst);
            conn.wait_closed();
        });
        let conf = format!(
            "error_log %%DIR%%/error.log info; events {{}} http {{ upstream u {{ zone u 64k; server {}; }}
                server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ grpc_pass u;
                    health_check interval=10ms mandatory type=grpc {parameters}; }} }} }}",
            origin.address()
        );
        let server = Setup::new(&conf).start();
        expect_soon("it was asked", || asked.load(Ordering::SeqCst) > 2);
        let healthy = server.error_log().contains("peer is healthy while checking");
        assert_eq!(healthy, well, "{parameters} {serving} {}", server.error_log());
    }
}

#[test]
fn what_cannot_be_checked_is_refused() {
    if !is_weir() {
        return;
    }
    let conf = |upstream: &str, location: &str| {
        format!(
            "events {{}} http {{ match fine {{ status 200; }} {upstream}
            server {{ listen 127.0.0.1:80; location / {{ {location} }} }} }}"
        )
    };
    let zone = "upstream u { zone u 64k; server 127.0.0.1:1; }";
    let pass = "proxy_pass http://u; health_check";
    for (conf, told) in [
        (
            conf("upstream u { server 127.0.0.1:1; }", "proxy_pass http://u; health_check;"),
            "to be in shared memory",
        ),
        (conf("", "proxy_pass http://127.0.0.1:1; health_check;"), "to be in shared memory"),
        (conf("", "health_check;"), "\"health_check\" has no upstream here"),
        (
            conf(zone, "proxy_pass http://$host; health_check;"),
            "\"health_check\" has no upstream here",
        ),
        (conf(zone, &format!("{pass} match=none;")), "unknown match \"none\""),
        (conf(zone, &format!("{pass} persistent;")), "\"persistent\" without \"mandatory\""),
        (conf(zone, &format!("{pass} interval=0;")), "invalid parameter \"interval=0\""),
        (conf(zone, &format!("{pass} fails=0;")), "invalid parameter \"fails=0\""),
        (conf(zone, &format!("{pass} uri=health;")), "invalid parameter \"uri=health\""),
        (conf(zone, &format!("{pass} port=70000;")), "invalid parameter \"port=70000\""),
        (conf(zone, &format!("{pass} type=grpc;")), "needs \"grpc_pass\""),
        (conf(zone, &format!("{pass} grpc_status=1;")), "without \"type=grpc\""),
        (conf(zone, &format!("{pass} nosuch;")), "invalid parameter \"nosuch\""),
        (conf("match fine { body ~ x; }", ""), "duplicate match \"fine\""),
        (conf("match m { status 99; }", ""), "invalid status \"99\""),
        (conf("match m { size 1; }", ""), "unknown directive \"size\" in \"match\""),
    ] {
        let output = run_cli(&["-t"], &conf);
        assert!(output.code == 1 && output.stderr.contains(told), "{told}: {}", output.stderr);
    }
}

/// A reload is no reason to ask all servers at once.
#[test]
fn a_reload_asks_who_was_asked_when_it_would_have_been() {
    if !is_weir() {
        return;
    }
    let (old, new) = (Patient::new("old", true), Patient::new("new", true));
    let conf = |more: &str| {
        format!(
            "worker_processes 1; events {{}} http {{
                upstream u {{ zone u 64k; server {}; }}
                upstream w {{ zone w 64k; server {}; }}
                server {{ listen 127.0.0.1:%%PORT_0%%;
                    location /u {{ proxy_pass http://u; health_check interval=60s uri=/health; }} {more} }} }}",
            old.origin.address(),
            new.origin.address()
        )
    };
    let asked = || old.origin.requests().len();
    let mut server = Server::start(&conf(""));
    old.origin.expect_requests(1);
    // The one that comes behind it in the new configuration is asked as soon as it is there.
    let more = "location /w { proxy_pass http://w; health_check interval=60s uri=/health; }";
    server.reload(&conf(more), || true);
    new.origin.expect_requests(1);
    assert_eq!(asked(), 1, "what is known is not asked again");
}
