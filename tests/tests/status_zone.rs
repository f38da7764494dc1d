//! What is counted of servers and locations, and how long requests took.

use weir_tests::figures::{number, part};
use weir_tests::{Server, Setup};

const CONF: &str = "worker_processes 2; events {} http {
    server { listen 127.0.0.1:%%PORT_0%%; server_name a.test;
        location / { return 200 ok; }
        location /lost { return 404; }
        location /shut { return 444; }
        location /counted/ { status_zone loc;
            if ($arg_x) { return 301 /; }
            location /counted/inner/ { return 200 inner; }
            return 200 counted; }
        location /status { stub_status json; } }
    server { listen 127.0.0.1:%%PORT_0%%; server_name b.test; status_zone both; return 201 b; }
    server { listen 127.0.0.1:%%PORT_0%%; server_name c.test; status_zone both; return 202 c; }
    server { listen 127.0.0.1:%%PORT_0%%; server_name d.test; status_zone off; return 203 d; } }";

#[test]
fn servers_and_locations_are_counted() {
    let server = Setup::new(CONF).start();
    for (host, uri, expected) in [
        ("a.test", "/", 200),
        ("a.test", "/lost", 404),
        ("a.test", "/counted/", 200),
        ("a.test", "/counted/?x=1", 301),
        ("a.test", "/counted/inner/", 200),
        ("b.test", "/", 201),
        ("c.test", "/", 202),
        ("d.test", "/", 203),
    ] {
        assert_eq!(server.get_host(host, uri).status, expected, "{host}{uri}");
    }
    assert!(server.raw(b"GET /shut HTTP/1.1\r\nHost: a.test\r\n\r\n").is_empty());
    assert_eq!(server.status_of(b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n"), 400);
    let text = server.get_host("a.test", "/status").text();
    let (servers, locations) = (part(&text, "server_zones"), part(&text, "location_zones"));
    let a = part(servers, "a.test");
    // The one that asks is being answered.
    assert_eq!((number(a, "requests"), number(a, "processing"), number(a, "discarded")), (8, 1, 1));
    let codes = part(a, "codes");
    assert_eq!((number(codes, "200"), number(codes, "301"), number(codes, "404")), (3, 1, 1));
    assert_eq!((number(a, "2xx"), number(a, "4xx"), number(a, "total")), (3, 2, 6));
    assert!(number(a, "received") > 200 && number(a, "sent") > 500, "{a}");
    assert_eq!(number(part(a, "latency"), "count"), 6);
    let both = part(servers, "both");
    assert_eq!((number(both, "201"), number(both, "202")), (1, 1), "{both}");
    assert!(!servers.contains("d.test"), "{servers}");
    assert_eq!(number(part(locations, "loc"), "requests"), 2, "{locations}");
}

#[test]
fn a_server_without_a_name_is_counted_by_its_address_and_a_reload_goes_on() {
    let conf = "worker_processes 2; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { return 200 %%WORD%%; }
            location /status { stub_status json; } } }";
    let mut server = Setup::new(&conf.replace("%%WORD%%", "old")).start();
    let name = format!("127.0.0.1:{}", server.port(0));
    let count = |server: &Server| {
        let text = server.get("/status").text();
        number(part(part(&text, "server_zones"), &name), "requests")
    };
    server.get("/");
    assert_eq!(count(&server), 2);
    let (port, mut asked) = (server.port(0), 0);
    let is_new = || {
        asked += 1;
        weir_tests::Peer::Tcp(port).get("/").text() == "new"
    };
    server.reload(&conf.replace("%%WORD%%", "new"), is_new);
    assert_eq!(count(&server), 3 + asked);
}

#[test]
fn latency_is_counted_in_microseconds() {
    let server = Setup::new(
        "worker_processes 1; events {} http { server { listen 127.0.0.1:%%PORT_0%%; server_name a.test;
            location / { return 200 ok; }
            location /slow { echo_sleep 0.05; echo slept; }
            location /status { stub_status json; } } }",
    )
    .start();
    server.get("/");
    server.get("/slow");
    let text = server.get("/status").text();
    let latency = part(part(&text, "a.test"), "latency");
    assert_eq!(number(latency, "count"), 2);
    let ms = |name: &str| part(latency, name).parse::<f64>().unwrap();
    assert!(ms("max") >= 50.0 && ms("max") < 5_000.0, "{latency}");
    assert!(ms("p50") < 50.0, "{latency}");
}

#[test]
fn what_it_says_is_checked() {
    let refused = |conf: &str, why: &str| {
        let out =
            weir_tests::run_cli(&["-t"], &format!("events {{}} http {{ server {{ {conf} }} }}"));
        assert!(out.stderr.contains(why), "{}", out.stderr);
    };
    refused("status_zone a; status_zone b;", "is duplicate");
    refused("status_zone \"\";", "a zone needs a name");
    refused("status_zone;", "invalid number of arguments");
}
