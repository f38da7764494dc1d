//! What is counted of upstreams and their servers.

use std::sync::{Arc, Condvar, Mutex};
use weir_tests::figures::{number, part};
use weir_tests::tls;
use weir_tests::{expect_soon, mail, Next, Origin, Server, Setup};

fn upstream(server: &Server, name: &str) -> String {
    let text = server.get("/status").text();
    part(part(&text, "upstreams"), name).to_string()
}

/// The objects of a list.
fn each(list: &str) -> Vec<String> {
    let (mut depth, mut from, mut all) = (0, 0, Vec::new());
    for (n, c) in list.char_indices() {
        match c {
            '{' => {
                if depth == 0 {
                    from = n;
                }
                depth += 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    all.push(list[from..=n].to_string());
                }
            }
            _ => {}
        }
    }
    all
}

fn peers(server: &Server, name: &str) -> Vec<String> {
    each(part(&upstream(server, name), "peers"))
}

const TWO: &str = "worker_processes 2; events {} http {
    upstream u { server %%A%% weight=3 max_conns=9; server 127.0.0.1:1 down; server 127.0.0.1:2 backup; }
    server { listen 127.0.0.1:%%PORT_0%%;
        location / { proxy_pass http://u; }
        location /word { return 200 old; }
        location /direct { proxy_pass http://%%A%%; }
        location /status { stub_status json; } } }";

#[test]
fn servers_of_an_upstream_without_a_zone() {
    let origin = Origin::echo();
    let server = Setup::new(TWO).set("A", origin.address()).start();
    for _ in 0..5 {
        assert_eq!(server.get("/").status, 200);
    }
    let all = peers(&server, "u");
    assert_eq!(all.len(), 3, "{all:?}");
    let a = &all[0];
    assert_eq!(part(a, "server"), format!("\"{}\"", origin.address()));
    assert_eq!((number(a, "id"), number(a, "weight"), number(a, "max_conns")), (0, 3, 9));
    assert_eq!((number(a, "requests"), number(a, "active"), number(a, "fails")), (5, 0, 0));
    assert_eq!((part(a, "state"), part(a, "backup")), ("\"up\"", "false"));
    let responses = part(a, "responses");
    assert_eq!((number(responses, "2xx"), number(responses, "200")), (5, 5), "{responses}");
    assert_eq!(number(responses, "total"), 5);
    assert!(number(a, "sent") > 100 && number(a, "received") > 100, "{a}");
    assert!(part(a, "selected").ends_with("Z\""), "{a}");
    let latency = part(a, "latency");
    assert_eq!(number(part(latency, "header"), "count"), 5);
    assert_eq!(number(part(latency, "response"), "count"), 5);
    let made = number(part(latency, "connect"), "count");
    assert!((1..=5).contains(&made), "{latency}");
    assert_eq!((part(&all[1], "state"), part(&all[2], "backup")), ("\"down\"", "true"));
    assert!(!all[1].contains("selected"), "{}", all[1]);
    let all = upstream(&server, "u");
    assert_eq!((number(&all, "keepalive"), number(&all, "zombies")), (made, 0), "{all}");
}

#[test]
fn an_address_without_a_block_is_counted_too_and_a_reload_goes_on() {
    let origin = Origin::echo();
    let mut server = Setup::new(TWO).set("A", origin.address()).start();
    server.get("/direct");
    server.get("/");
    let requests = |server: &Server, name: &str| number(&peers(server, name)[0], "requests");
    assert_eq!((requests(&server, &origin.address()), requests(&server, "u")), (1, 1));
    let conf = TWO.replace("%%A%%", &origin.address());
    let port = server.port(0);
    let is_new = || weir_tests::Peer::Tcp(port).get("/word").text() == "new";
    server.reload(&conf.replace("200 old", "200 new"), is_new);
    server.get("/direct");
    assert_eq!((requests(&server, &origin.address()), requests(&server, "u")), (2, 1));
}

#[test]
fn a_server_that_fails_is_counted_out_and_comes_back() {
    for zone in ["", "zone z 64k;"] {
        let (_bad, port) = mail::refusing();
        let origin = Origin::echo();
        let server = Setup::new(
            "worker_processes 1; events {} http { upstream u { %%ZONE%%
                server %%BAD%% max_fails=1 fail_timeout=100s; server %%A%%; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://u; }
                location /status { stub_status json; } } }",
        )
        .set("ZONE", zone)
        .set("BAD", format!("127.0.0.1:{port}"))
        .set("A", origin.address())
        .start();
        for _ in 0..4 {
            assert_eq!(server.get("/").status, 200);
        }
        let all = peers(&server, "u");
        let bad = &all[0];
        assert_eq!((number(bad, "fails"), number(bad, "unavail")), (1, 1), "{zone} {bad}");
        assert_eq!((number(bad, "requests"), part(bad, "state")), (1, "\"unavail\""), "{bad}");
        assert_eq!(number(part(bad, "responses"), "total"), 0, "{bad}");
        assert!(part(bad, "downstart").ends_with("Z\""), "{bad}");
        assert_eq!((number(&all[1], "requests"), number(&all[1], "fails")), (4, 0));
        assert_eq!((number(&all[1], "downtime"), part(&all[1], "state")), (0, "\"up\""));
    }
}

#[test]
fn checks_and_a_queue() {
    let (_bad, port) = mail::refusing();
    let origin = Origin::echo();
    let server = Setup::new(
        "worker_processes 1; events {} http { upstream u { zone z 64k; server %%BAD%%; server %%A%% max_conns=1;
                queue 7 timeout=1s; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://u; health_check interval=10ms fails=1; }
                location /status { stub_status json; } } }",
    )
    .set("BAD", format!("127.0.0.1:{port}"))
    .set("A", origin.address())
    .start();
    expect_soon("the check has failed", || {
        part(&peers(&server, "u")[0], "state") == "\"unhealthy\""
    });
    expect_soon("the other's has not", || peers(&server, "u")[1].contains("\"last_passed\":true"));
    let bad = &peers(&server, "u")[0];
    let health = part(bad, "health_checks");
    assert!(number(health, "checks") >= 1, "{health}");
    assert_eq!((number(health, "unhealthy"), part(health, "last_passed")), (1, "false"));
    assert_eq!(number(health, "checks"), number(health, "fails"));
    assert!(bad.contains("downstart"), "{bad}");
    assert_eq!(server.get("/").status, 200);
    let all = upstream(&server, "u");
    let queue = part(&all, "queue");
    assert_eq!((number(queue, "size"), number(queue, "max_size")), (0, 7), "{queue}");
    assert_eq!((number(queue, "overflows"), part(&all, "zone")), (0, "\"z\""));
}

#[test]
fn who_waits_in_the_queue() {
    let gate = Arc::<(Mutex<bool>, Condvar)>::default();
    let open = Arc::clone(&gate);
    let origin = Origin::start(move |_, conn| {
        let mut is_open = open.0.lock().unwrap();
        while !*is_open {
            is_open = open.1.wait(is_open).unwrap();
        }
        drop(is_open);
        conn.reply("200 OK", "", "");
        Next::Keep
    });
    let server = Setup::new(
        "worker_processes 1; events {} http { upstream u { server %%A%% max_conns=1; queue 1 timeout=1h; }
            server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://u; }
                location /status { stub_status json; } } }",
    )
    .set("A", origin.address())
    .start();
    let queue = |name: &str| number(part(&upstream(&server, "u"), "queue"), name);
    let mut first = server.connect();
    first.send_get("/");
    expect_soon("it is being asked", || number(&peers(&server, "u")[0], "active") == 1);
    let mut second = server.connect();
    second.send_get("/");
    expect_soon("the second waits", || queue("size") == 1);
    assert_eq!(server.get("/").status, 502);
    assert_eq!(queue("overflows"), 1);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    assert_eq!((first.response().status, second.response().status), (200, 200));
    assert_eq!((queue("size"), queue("count")), (0, 1));
}

#[test]
fn tls_with_servers() {
    let own = tls::self_signed("a.test");
    let server = Setup::new(
        "worker_processes 1; events {} http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            upstream u { server 127.0.0.1:%%PORT_1%%; }
            upstream judged { server 127.0.0.1:%%PORT_1%%; }
            server { listen 127.0.0.1:%%PORT_1%% ssl; return 200 ok; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass https://u; proxy_set_header Connection close; proxy_http_version 1.0; }
                location /judged { proxy_pass https://judged; proxy_ssl_verify on; proxy_ssl_name b.test;
                    proxy_ssl_trusted_certificate %%DIR%%/a.crt; }
                location /status { stub_status json; } } }",
    )
    .file("a.crt", own.cert)
    .file("a.key", own.key)
    .start();
    for _ in 0..3 {
        assert_eq!(server.get("/").status, 200);
    }
    assert_eq!(server.get("/judged").status, 502);
    let of = |name: &str| part(&peers(&server, name)[0], "ssl").to_string();
    let ssl = of("u");
    assert_eq!((number(&ssl, "handshakes"), number(&ssl, "handshakes_failed")), (3, 0), "{ssl}");
    assert_eq!(number(&ssl, "session_reuses"), 2, "{ssl}");
    assert_eq!(number(part(&ssl, "handshake_time"), "count"), 3, "{ssl}");
    let judged = of("judged");
    let failures = part(&judged, "verify_failures");
    assert_eq!((number(failures, "hostname_mismatch"), number(failures, "other")), (1, 0));
}
