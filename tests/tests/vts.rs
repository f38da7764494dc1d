//! `vhost_traffic_status_display`: what is counted, in the JSON of nginx-module-vts.

use weir_tests::figures::{number, part};
use weir_tests::{run_cli, Origin, Setup};

#[test]
fn the_json_of_the_module() {
    let origin = Origin::echo();
    let server = Setup::new(
        "worker_processes 1; events {} http { vhost_traffic_status_zone shared:vts:1m; vhost_traffic_status_display_format json;
            proxy_cache_path %%DIR%%/cache keys_zone=c:1m max_size=8m;
            upstream u { server %%ORIGIN%% weight=2; server 127.0.0.1:1 backup; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name one;
                location / { proxy_cache c; proxy_cache_valid 1h; proxy_pass http://u; }
                location /none { return 404; }
                location /status { vhost_traffic_status_display; } }
            server { listen 127.0.0.1:%%PORT_1%%; server_name two; return 204; } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for path in ["/a", "/a", "/none"] {
        server.get(path);
    }
    server.on(1).get("/");
    let answer = server.get("/status/format/json");
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    let text = answer.text();
    let zones = part(&text, "serverZones");
    let one = part(zones, "one");
    assert_eq!(number(one, "requestCounter"), 3, "{one}");
    let responses = part(one, "responses");
    assert_eq!((number(responses, "2xx"), number(responses, "4xx")), (2, 1), "{one}");
    assert_eq!((number(responses, "miss"), number(responses, "hit")), (1, 1), "{one}");
    assert_eq!(number(part(zones, "two"), "requestCounter"), 1);
    let all = part(zones, "*");
    assert_eq!((number(all, "requestCounter"), number(part(all, "responses"), "2xx")), (4, 3));
    assert_eq!(number(all, "maxIntegerSize"), u64::MAX);
    let peers = part(part(&text, "upstreamZones"), "u");
    assert_eq!((number(peers, "requestCounter"), number(peers, "weight")), (1, 2), "{peers}");
    assert!(peers.contains("\"backup\":true"), "{peers}");
    // As the module has it: what clients sent is what came in. The origin says all of it again, and more.
    assert!(number(peers, "outBytes") > number(peers, "inBytes"), "{peers}");
    let cache = part(part(&text, "cacheZones"), "c");
    let responses = part(cache, "responses");
    assert_eq!((number(responses, "miss"), number(responses, "hit")), (1, 1), "{cache}");
    assert_eq!(number(cache, "maxSize"), 8 << 20);
    let connections = part(&text, "connections");
    assert!(number(connections, "accepted") >= 5 && number(connections, "active") >= 1);
    assert!(number(&text, "nowMsec") >= number(&text, "loadMsec"));
    assert_eq!(server.get("/status/format/html").status, 404);
    assert_eq!(server.post("/status", "x").status, 405);
}

#[test]
fn what_is_not_there_says_what_to_write() {
    for (said, expected) in [
        ("vhost_traffic_status_display_format html;", "dashboard;"),
        ("vhost_traffic_status_display_format prometheus;", "metrics;"),
        ("vhost_traffic_status_zone shared:x;", "vhost_traffic_status_zone;"),
        ("vhost_traffic_status_filter on;", "status_zone"),
    ] {
        let out = run_cli(&["-t"], &format!("events {{}} http {{ {said} }}"));
        assert!(out.stderr.contains(expected), "{said}: {}", out.stderr);
    }
}

#[test]
fn servers_without_a_name_are_one_and_servers_of_upstreams_have_their_limits() {
    let origin = Origin::echo();
    let server = Setup::new(
        "worker_processes 1; events {} http {
            upstream u { server %%ORIGIN%% max_fails=3 fail_timeout=7s; server 127.0.0.1:1 backup; }
            server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://u; } }
            server { listen 127.0.0.1:%%PORT_1%%; server_name _; return 204; }
            server { listen 127.0.0.1:%%PORT_2%%; server_name status; vhost_traffic_status_display; } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    server.get("/");
    server.on(1).get("/");
    let text = server.on(2).get("/").text();
    let zones = part(&text, "serverZones");
    assert!(!zones.contains("127.0.0.1"), "{zones}");
    let unnamed = part(zones, "_");
    assert_eq!((number(unnamed, "requestCounter"), number(unnamed, "2xx")), (2, 2), "{zones}");
    let peers = part(part(&text, "upstreamZones"), "u");
    assert_eq!((number(peers, "maxFails"), number(peers, "failTimeout")), (3, 7), "{peers}");
}

/// The mean of all would hide it.
#[test]
fn a_server_that_becomes_slow_is_seen() {
    let server = Setup::new(
        "worker_processes 1; events {} http {
            server { listen 127.0.0.1:%%PORT_0%%; server_name slow;
                location / { return 204; }
                location /slow { echo_sleep 0.2; echo slow; }
                location /status { vhost_traffic_status_display; } } }",
    )
    .start();
    let mut client = server.connect();
    for _ in 0..1000 {
        assert_eq!(client.get("/").status, 204);
    }
    let slow = || server.get("/slow");
    std::thread::scope(|s| {
        for _ in 0..64 {
            s.spawn(slow);
        }
    });
    let text = server.get("/status").text();
    let one = part(part(&text, "serverZones"), "slow");
    let average_ms = number(one, "requestMsec");
    assert!((150..5000).contains(&average_ms), "{one}");
}

#[test]
fn times_are_counted_up_to_bounds() {
    let server = Setup::new(
        "worker_processes 1; events {} http { vhost_traffic_status_histogram_buckets 0.1 5 10;
            server { listen 127.0.0.1:%%PORT_0%%; server_name slow;
                location / { return 204; }
                location /slow { echo_sleep 0.2; echo slow; }
                location /status { vhost_traffic_status_display; }
                location /own { vhost_traffic_status_histogram_buckets 0.1; vhost_traffic_status_display; } } }",
    )
    .start();
    for path in ["/", "/slow", "/slow"] {
        server.get(path);
    }
    let buckets = |path: &str, zone: &str| {
        let text = server.get(path).text();
        let zone = part(part(&text, "serverZones"), zone);
        part(zone, "requestBuckets").to_string()
    };
    let one = buckets("/status", "slow");
    assert!(one.contains("\"msecs\":[100,5000,10000],\"counters\":[1,3,3]"), "{one}");
    let all = buckets("/own", "*");
    assert!(all.contains("\"msecs\":[100],\"counters\":[2]"), "{all}");
    for (said, expected) in [
        ("5 1", "more than the one before"),
        ("x", "write seconds"),
        ("0", "write seconds"),
        ("1 18446744073709.552", "a request never takes that long"),
        (&"1 ".repeat(33), "more than 32"),
    ] {
        let said = format!("events {{}} http {{ vhost_traffic_status_histogram_buckets {said}; }}");
        let out = run_cli(&["-t"], &said);
        assert!(out.stderr.contains(expected), "{said}: {}", out.stderr);
    }
}
