//! What is counted of servers and locations, and how long requests took.

use std::sync::mpsc::channel;
use std::sync::Mutex;
use weir_tests::figures::{number, part};
use weir_tests::{expect_soon, Next, Origin, Server, Setup, Signal};

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
    // As in the log, though nothing was sent.
    assert_eq!(number(codes, "444"), 1, "{codes}");
    assert_eq!((number(a, "2xx"), number(a, "4xx"), number(a, "total")), (3, 3, 7));
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

/// What logs show is counted, whether something was sent or not.
#[test]
fn requests_without_an_answer_have_the_status_of_the_log() {
    let origin = Origin::start_raw(|conn, _| {
        conn.wait_closed();
    });
    let server = Setup::new(
        "worker_processes 1; events {} http { log_format s '$status $bytes_sent'; client_body_timeout 100ms;
            server { listen 127.0.0.1:%%PORT_0%%; server_name a.test; access_log %%DIR%%/access.log s;
                status_zone z;
                location /gone { status_zone gone; proxy_pass http://%%ORIGIN%%; }
                location /late { status_zone late; proxy_pass http://%%ORIGIN%%; }
                location /shut { status_zone shut; return 444; } }
            server { listen 127.0.0.1:%%PORT_1%%; status_zone off;
                location /status { stub_status json; }
                location /vts { vhost_traffic_status_display; }
                location /metrics { metrics; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let mut client = server.connect();
    client.send_get("/gone");
    expect_soon("the request is passed on", || origin.connections() == 1);
    drop(client);
    let mut expected = vec!["499 0"];
    assert_eq!(server.log_lines("access.log", 1), expected);
    let late = b"POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx";
    assert!(server.raw(late).is_empty());
    assert!(server.raw(b"GET /shut HTTP/1.1\r\nHost: a\r\n\r\n").is_empty());
    expected.extend(["408 0", "444 0"]);
    assert_eq!(server.log_lines("access.log", 3), expected);
    let text = server.on(1).get("/status").text();
    let z = part(part(&text, "server_zones"), "z");
    assert_eq!((number(z, "processing"), number(z, "discarded"), number(z, "4xx")), (0, 3, 3));
    for (zone, code) in [("gone", "499"), ("late", "408"), ("shut", "444")] {
        assert_eq!(number(part(z, "codes"), code), 1, "{z}");
        let zone = part(part(&text, "location_zones"), zone);
        assert_eq!((number(part(zone, "codes"), code), number(zone, "4xx")), (1, 1), "{zone}");
    }
    let vts = server.on(1).get("/vts").text();
    assert_eq!(number(part(part(part(&vts, "serverZones"), "z"), "responses"), "4xx"), 3, "{vts}");
    let metrics = server.on(1).get("/metrics").text();
    let sample = "weir_http_responses_total{server=\"z\",code=\"499\"} 1";
    assert!(metrics.lines().any(|line| line == sample), "{metrics}");
}

/// nginx takes 499 only as long as it has sent nothing, and sends nothing afterwards.
#[test]
fn a_client_that_leaves_as_the_answer_comes_has_one_status() {
    let (asks, asked) = channel();
    let (goes, go) = channel();
    let both = Mutex::new((asks, go));
    let origin = Origin::start(move |_, conn| {
        let (asks, go) = &*both.lock().unwrap();
        asks.send(()).unwrap();
        go.recv().unwrap();
        conn.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
        asks.send(()).unwrap();
        conn.wait_closed();
        Next::Close
    });
    let server = Setup::new(
        "worker_processes 1; master_process off; events {} http { log_format s '$status $bytes_sent';
            server { listen 127.0.0.1:%%PORT_0%%; access_log %%DIR%%/access.log s;
                location / { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let mut client = server.connect();
    client.send_get("/");
    asked.recv().unwrap();
    // Both are there when it looks next.
    server.signal(Signal::Stop);
    goes.send(()).unwrap();
    asked.recv().unwrap();
    drop(client);
    server.signal(Signal::Cont);
    let line = server.log_lines("access.log", 1).remove(0);
    let (status, bytes) = line.split_once(' ').unwrap();
    assert!(["499", "200"].contains(&status), "{line}");
    assert_eq!(status == "499", bytes == "0", "{line}");
}
