//! `api`: servers of upstreams that are names, which the `resolver` is asked for as long as they are there.

use std::net::Ipv4Addr;
use weir_tests::figures::number;
use weir_tests::{expect_soon, Dns, Origin, Record, Response, Server, Setup, Signal};

const CONF: &str = "worker_processes 2; error_log %%DIR%%/error.log notice; events {} http {
    resolver %%DNS%% ipv6=off; resolver_timeout 1s;
    upstream u { zone u 64k; server 127.0.0.1:1 down; }
    upstream kept { zone kept 64k; state kept.conf; }
    upstream conf { zone conf 64k; server c.test:%%ORIGIN%% resolve; }
    server { listen 127.0.0.1:%%PORT_0%%; add_header X-Addr $upstream_addr always;
        location / { proxy_pass http://u; }
        location /kept { proxy_pass http://kept; }
        location /conf { proxy_pass http://conf; }
        location /api { api write=on; allow 127.0.0.1; deny all; } } }
    stream { resolver %%DNS%% ipv6=off; upstream s { zone s 64k; server 127.0.0.1:1 down; }
        server { listen 127.0.0.1:%%PORT_1%%; proxy_pass s; } }";

const U: &str = "/api/9/http/upstreams/u/servers";
const KEPT: &str = "/api/9/http/upstreams/kept/servers";

fn named(name: &'static str) -> Origin {
    Origin::replying(format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()))
}

fn start(dns: &Dns, origin: &Origin) -> Server {
    Setup::new(CONF).set("DNS", dns.address()).set("ORIGIN", origin.port()).start()
}

fn send(server: &Server, method: &str, path: &str, body: &str) -> Response {
    server.send_json(method, path, body)
}

fn code(response: &Response) -> (u16, String) {
    let text = response.text();
    let at = text.find("\"code\":\"").unwrap_or_else(|| panic!("{text}")) + 8;
    (response.status, text[at..].split('"').next().unwrap_or_default().to_string())
}

fn put(server: &Server, path: &str, body: &str) -> u64 {
    let done = send(server, "POST", path, body);
    assert_eq!(done.status, 201, "{}", done.text());
    number(&done.text(), "id")
}

#[test]
fn a_name_is_put_followed_changed_and_taken_away() {
    let (dns, a) = (Dns::start(), named("a"));
    dns.set_ip("a.test", 1, Ipv4Addr::LOCALHOST);
    let server = start(&dns, &a);
    let id = put(&server, U, &format!("{{\"server\":\"a.test:{}\",\"max_fails\":3}}", a.port()));
    let shown = server.get(&format!("{U}/{id}")).text();
    let name = format!("\"server\":\"a.test:{}\"", a.port());
    assert!(shown.contains(&name) && shown.contains("\"max_fails\":3"), "{shown}");
    assert!(!shown.contains("\"parent\"") && !shown.contains("\"host\""), "{shown}");
    expect_soon("it is asked", || server.get("/").text() == "a");
    // What it has become says whose it is, and is not to be changed.
    let child = |ip: &str| {
        let text = server.get(U).text();
        let all = text.split("},{").map(str::to_string);
        let address = format!("\"server\":\"{ip}:{}\"", a.port());
        all.into_iter().find(|one| one.contains(&address))
    };
    let one = child("127.0.0.1").unwrap();
    assert!(one.contains(&format!("\"parent\":\"{id}\"")), "{one}");
    assert!(one.contains("\"host\":\"a.test\"") && one.contains("\"max_fails\":3"), "{one}");
    let own = format!("{U}/{}", number(&format!("{{{one}}}"), "id"));
    for (method, body) in [("DELETE", ""), ("PATCH", "{\"down\":true}")] {
        let refused = send(&server, method, &own, body);
        assert_eq!(code(&refused), (400, "UpstreamServerImmutable".to_string()), "{method}");
    }
    // Another address.
    dns.set_ip("a.test", 1, Ipv4Addr::new(127, 0, 0, 2));
    expect_soon("the new address", || child("127.0.0.2").is_some());
    assert_eq!(child("127.0.0.1"), None);
    // What is changed of the name is so for its servers.
    let path = format!("{U}/{id}");
    assert_eq!(send(&server, "PATCH", &path, "{\"weight\":7,\"down\":true}").status, 200);
    let one = child("127.0.0.2").unwrap();
    assert!(one.contains("\"weight\":7") && one.contains("\"down\":true"), "{one}");
    assert_eq!(server.get("/").status, 502);
    assert_eq!(send(&server, "PATCH", &path, "{\"down\":false}").status, 200);
    // Another name is another server.
    let moved = send(&server, "PATCH", &path, "{\"server\":\"b.test:1\"}");
    assert_eq!(code(&moved), (400, "UpstreamServerImmutable".to_string()));
    let same = server.get(&path).text();
    assert_eq!(send(&server, "PATCH", &path, &same).text(), same);
    let left = send(&server, "DELETE", &path, "");
    assert_eq!((left.status, left.text().matches("\"id\"").count()), (200, 1));
    assert_eq!(server.get("/").status, 502);
    // Nobody asks for it any more.
    let asked = dns.count("a.test A");
    put(&server, U, "{\"server\":\"b.test:1\"}");
    dns.set_ip("b.test", 1, Ipv4Addr::new(127, 0, 0, 9));
    dns.expect("b.test A", 2);
    assert!(dns.count("a.test A") <= asked + 1);
}

#[test]
fn a_service_is_put() {
    let (dns, a) = (Dns::start(), named("a"));
    dns.set("_http._tcp.s.test", &[Record::Srv(1, 1, 3, a.port(), "a.test")]);
    dns.set_ip("a.test", 60, Ipv4Addr::LOCALHOST);
    let server = start(&dns, &a);
    let id = put(&server, U, "{\"server\":\"s.test\",\"service\":\"http\"}");
    let shown = server.get(&format!("{U}/{id}")).text();
    assert!(shown.contains("\"server\":\"s.test\",\"service\":\"http\""), "{shown}");
    expect_soon("it is asked", || server.get("/").text() == "a");
    let peers = server.get("/api/9/http/upstreams/u").text();
    assert_eq!(peers.matches("\"service\":\"http\"").count(), 1, "{peers}");
    for (body, expected) in [
        ("{\"server\":\"s.test:80\",\"service\":\"http\"}", "UpstreamBadAddress"),
        ("{\"server\":\"127.0.0.1\",\"service\":\"http\"}", "UpstreamBadAddress"),
        ("{\"server\":\"s.test\",\"service\":\"\"}", "UpstreamBadService"),
        ("{\"server\":\"s.test\",\"service\":\"a;b\"}", "UpstreamBadService"),
        ("{\"server\":\"s.test\",\"resolve\":true}", "UpstreamConfFormatError"),
    ] {
        let refused = send(&server, "POST", U, body);
        assert_eq!(code(&refused), (400, expected.to_string()), "{body}");
    }
    let other = send(&server, "PATCH", &format!("{U}/{id}"), "{\"service\":\"https\"}");
    assert_eq!(code(&other), (400, "UpstreamServerImmutable".to_string()));
}

/// The ring has 160 points for each unit of weight, and each server of a name has them.
#[test]
fn a_name_does_not_fill_the_memory() {
    let (dns, a) = (Dns::start(), named("a"));
    let all: Vec<Record> = (1..40).map(|n| Record::A(1, [127, 0, 0, n])).collect();
    dns.set("many.test", &all);
    let conf = CONF.replace("zone u 64k;", "zone u 64k; hash $uri consistent;");
    let server = Setup::new(&conf).set("DNS", dns.address()).set("ORIGIN", a.port()).start();
    let huge = send(&server, "POST", U, "{\"server\":\"many.test:1\",\"weight\":1000000}");
    assert_eq!(code(&huge), (400, "UpstreamOutOfMemory".to_string()));
    let id = put(&server, U, "{\"server\":\"many.test:1\",\"weight\":1000}");
    let count = || server.get(U).text().matches("\"parent\"").count();
    expect_soon("some of them are there", || count() > 0);
    assert!((10..13).contains(&count()), "{}", count());
    server.expect_error("servers of a name are left out of upstream \"u\"");
    let more = send(&server, "PATCH", &format!("{U}/{id}"), "{\"weight\":1000000}");
    assert_eq!(code(&more), (400, "UpstreamOutOfMemory".to_string()));
}

#[test]
fn stream_has_names_too() {
    let (dns, a) = (Dns::start(), named("a"));
    dns.set_ip("a.test", 60, Ipv4Addr::LOCALHOST);
    let server = start(&dns, &a);
    let path = "/api/9/stream/upstreams/s/servers";
    let no_port = send(&server, "POST", path, "{\"server\":\"a.test\"}");
    assert_eq!(code(&no_port), (400, "UpstreamBadAddress".to_string()));
    put(&server, path, &format!("{{\"server\":\"a.test:{}\"}}", a.port()));
    expect_soon("it is asked", || {
        let answer = server.on(1).connect();
        let mut client = answer;
        client.send(b"GET / HTTP/1.0\r\n\r\n");
        client.read_to_end().ends_with(b"a")
    });
}

/// The name stands in the file, with its number, and is asked for after a reload and a restart.
#[test]
fn a_state_file_has_the_name() {
    let (dns, a) = (Dns::start(), named("a"));
    dns.set_ip("a.test", 60, Ipv4Addr::LOCALHOST);
    let mut server = start(&dns, &a);
    put(&server, KEPT, "{\"server\":\"127.0.0.1:1\",\"down\":true}");
    let id = put(&server, KEPT, &format!("{{\"server\":\"a.test:{}\",\"weight\":2}}", a.port()));
    assert_eq!(
        server.read("kept.conf"),
        format!(
            "server 127.0.0.1:1 down; # id=0\nserver a.test:{} resolve weight=2; # id={id}\n# next=2\n",
            a.port()
        )
    );
    expect_soon("it is asked", || server.get("/kept").text() == "a");
    let conf = CONF.replace("%%DNS%%", &dns.address());
    let conf = conf.replace("%%ORIGIN%%", &a.port().to_string());
    for n in 0..2 {
        let new =
            conf.replace("location / ", &format!("location /new{n} {{ return 204; }} location / "));
        let peer = server.on(0);
        server.reload(&new, || peer.get(&format!("/new{n}")).status == 204);
        // Known from before: there is no moment without it.
        assert_eq!(server.get("/kept").text(), "a");
        let own = server.get(&format!("{KEPT}/{id}")).text();
        assert!(own.contains("\"server\":\"a.test:"), "{own}");
    }
    let file = server.read("kept.conf");
    let next = Setup::new(&conf).file("kept.conf", &file);
    drop(server);
    let server = next.start();
    expect_soon("it is asked", || server.get("/kept").text() == "a");
    let own = server.get(&format!("{KEPT}/{id}")).text();
    assert!(own.contains("\"server\":\"a.test:") && own.contains("\"weight\":2"), "{own}");
    assert_eq!(send(&server, "DELETE", &format!("{KEPT}/{id}"), "").status, 200);
    assert_eq!(server.get("/kept").status, 502);
    assert!(!server.read("kept.conf").contains("a.test"));
}

/// Those of the configuration are shown, and may be changed until the next one.
#[test]
fn names_of_the_configuration_are_shown() {
    let (dns, a) = (Dns::start(), named("a"));
    dns.set_ip("c.test", 60, Ipv4Addr::LOCALHOST);
    let server = start(&dns, &a);
    expect_soon("it is asked", || server.get("/conf").text() == "a");
    let path = "/api/9/http/upstreams/conf/servers";
    let all = server.get(path).text();
    assert!(all.contains(&format!("\"id\":0,\"server\":\"c.test:{}\"", a.port())), "{all}");
    assert!(all.contains("\"parent\":\"0\",\"host\":\"c.test\""), "{all}");
    assert_eq!(send(&server, "PATCH", &format!("{path}/0"), "{\"down\":true}").status, 200);
    assert_eq!(server.get("/conf").status, 502);
    assert_eq!(send(&server, "DELETE", &format!("{path}/0"), "").text(), "[]");
}

#[test]
fn without_a_resolver_a_name_is_refused() {
    let a = named("a");
    let conf = CONF.replace("resolver %%DNS%% ipv6=off; resolver_timeout 1s;", "");
    let conf =
        conf.replace("resolver %%DNS%% ipv6=off;", "").replace("%%ORIGIN%% resolve", "1 down");
    let conf = conf.replace("c.test", "127.0.0.1");
    // A location's is not the upstream's.
    let conf = conf.replace("proxy_pass http://u;", "resolver 127.0.0.1; proxy_pass http://u;");
    let server = Setup::new(&conf).set("ORIGIN", a.port()).start();
    for path in [U, "/api/9/stream/upstreams/s/servers"] {
        let refused = send(&server, "POST", path, "{\"server\":\"a.test:80\"}");
        assert_eq!(code(&refused), (400, "UpstreamConfNoResolver".to_string()));
        assert!(refused.text().contains("no resolver defined to resolve a.test"));
    }
}

/// While an upgrade's two processes serve, either may be asked; the next one has the name under its number.
#[test]
fn the_other_process_of_an_upgrade_has_the_name() {
    let (dns, a) = (Dns::start(), named("a"));
    dns.set_ip("a.test", 60, Ipv4Addr::LOCALHOST);
    let conf = format!("daemon on; pid %%DIR%%/the.pid; {CONF}");
    let mut server = Setup::new(&conf).set("DNS", dns.address()).set("ORIGIN", a.port()).start();
    put(&server, KEPT, "{\"server\":\"127.0.0.1:1\",\"down\":true}");
    let id = put(&server, KEPT, &format!("{{\"server\":\"a.test:{}\"}}", a.port()));
    expect_soon("it is asked", || server.get("/kept").text() == "a");
    let old = server.pid();
    weir_tests::signal(old, Signal::Usr2);
    let new = crate::upgrade_busy::next_pid(&server, old);
    let path = format!("{KEPT}/{id}");
    // Whoever answers, all of it is so in both.
    for weight in 2..12 {
        let done = send(&server, "PATCH", &path, &format!("{{\"weight\":{weight}}}"));
        assert_eq!(done.status, 200, "{}", done.text());
        for _ in 0..4 {
            let shown = server.get(&path).text();
            assert!(shown.contains(&format!("\"weight\":{weight},")), "{shown}");
        }
    }
    let other = put(&server, KEPT, "{\"server\":\"b.test:1\"}");
    assert!(other > id);
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    expect_soon("it is asked", || server.get("/kept").text() == "a");
    let shown = server.get(&path).text();
    assert!(shown.contains("\"server\":\"a.test:") && shown.contains("\"weight\":11,"), "{shown}");
    assert!(server.get(&format!("{KEPT}/{other}")).text().contains("b.test:1"));
    weir_tests::signal(new, Signal::Term);
    expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
}
