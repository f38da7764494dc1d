//! Figures of the process, of limits, of resolvers, of TLS and of stream's servers, by `stub_status json`.

use std::io::{Read, Write};
use weir_tests::figures::{number, part};
use weir_tests::tls::{self, Tls};
use weir_tests::{expect_soon, Dns, Origin, Server, Setup};

fn numbers<const N: usize>(json: &str, names: [&str; N]) -> [u64; N] {
    names.map(|name| number(json, name))
}

fn status(server: &Server) -> String {
    server.get("/status").text()
}

#[test]
fn the_process_and_its_workers() {
    let server = Setup::new(
        "worker_processes 2; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /status { stub_status json; } } }",
    )
    .start();
    let mut idle = server.connect();
    assert_eq!(idle.get("/status").status, 200);
    // An answer may have come before its connection counts as idle.
    let shown = |text: &str| numbers(part(text, "connections"), ["dropped", "active", "idle"]);
    expect_soon("one that waits", || shown(&status(&server)) == [0, 1, 1]);
    let text = status(&server);
    let about = part(&text, "nginx");
    assert_eq!(number(about, "generation"), 1);
    // Clients of NGINX Plus look for the release in it.
    let build = part(about, "build").trim_matches('"');
    let version = build.strip_prefix("weir-").and_then(|rest| rest.strip_suffix("-r32"));
    assert_eq!(version, Some(part(about, "version").trim_matches('"')), "{build}");
    assert!(number(about, "pid") > 1 && number(about, "ppid") > 0, "{about}");
    let (loaded, now) = (part(about, "load_timestamp"), part(about, "timestamp"));
    assert!(loaded <= now && now.len() == "\"2026-01-01T00:00:00.000Z\"".len(), "{about}");
    assert_eq!(number(part(&text, "processes"), "respawned"), 0);
    // The second may still be on its way.
    let workers = || part(&status(&server), "workers").to_string().matches("\"id\":").count();
    expect_soon("both workers", || workers() == 2);
    assert_eq!(number(part(&text, "ssl"), "handshakes"), 0);
}

#[test]
fn limits() {
    let server = Setup::new(
        "worker_processes 2; events {} http { limit_req_zone $uri zone=req:64k rate=1r/m; limit_conn_zone $uri zone=conn:64k;
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { limit_req zone=req burst=1 nodelay; limit_conn conn 1; return 200; }
                location /a { limit_req zone=req burst=1 nodelay; limit_conn conn 1; empty_gif; }
                location /dry { limit_req zone=req; limit_req_dry_run on; empty_gif; }
                location /status { stub_status json; } } }",
    )
    .start();
    // One after the other, so that the one before counts no more.
    let mut one = server.connect();
    let statuses = [(); 3].map(|()| one.get("/a").status);
    assert_eq!(statuses, [200, 200, 503]);
    assert_eq!([(); 2].map(|()| server.get("/dry").status), [200, 200]);
    let text = status(&server);
    let req = part(part(&text, "limit_reqs"), "req");
    let names = ["passed", "delayed", "rejected", "delayed_dry_run", "rejected_dry_run"];
    assert_eq!(numbers(req, names), [3, 0, 1, 0, 1], "{req}");
    let conn = part(part(&text, "limit_conns"), "conn");
    assert_eq!(numbers(conn, ["passed", "rejected", "rejected_dry_run"]), [2, 0, 0], "{conn}");
    let pages = part(part(part(&text, "slabs"), "req"), "pages");
    assert_eq!(number(pages, "used"), 1, "{pages}");
}

#[test]
fn servers_of_stream() {
    let server = Setup::new(
        "worker_processes 2; events {} stream { upstream s { server 127.0.0.1:%%PORT_2%%; }
            server { listen 127.0.0.1:%%PORT_1%%; status_zone mine; proxy_pass s; }
            server { listen 127.0.0.1:%%PORT_2%%; return hello; }
            server { listen 127.0.0.1:%%PORT_3%%; status_zone shut; deny all; return no; }
            server { listen 127.0.0.1:%%PORT_4%%; status_zone off; return no; } }
         http { server { listen 127.0.0.1:%%PORT_0%%; location /status { stub_status json; } } }",
    )
    .start();
    let ask = |n: usize| {
        let mut socket = std::net::TcpStream::connect(("127.0.0.1", server.port(n))).unwrap();
        let mut said = String::new();
        // What is refused may be told of by a reset.
        let _ = socket.write_all(b"x");
        let _ = socket.read_to_string(&mut said);
        said
    };
    assert_eq!([ask(1), ask(1), ask(3), ask(4)], ["hello", "hello", "", "no"]);
    let ended = |text: &str| {
        let zones = part(part(text, "stream"), "server_zones");
        number(part(part(zones, "mine"), "sessions"), "total") == 2
            && number(part(part(zones, "shut"), "sessions"), "total") == 1
    };
    expect_soon("they have ended", || ended(&status(&server)));
    let text = status(&server);
    let stream = part(&text, "stream");
    let zones = part(stream, "server_zones");
    let mine = part(zones, "mine");
    assert_eq!(numbers(mine, ["processing", "connections", "2xx", "discarded"]), [0, 2, 2, 0]);
    assert_eq!(number(mine, "sent"), 10, "{mine}");
    assert_eq!(number(part(mine, "session_time"), "count"), 2);
    assert_eq!(numbers(part(zones, "shut"), ["2xx", "4xx"]), [0, 1]);
    let by_address = part(zones, &format!("127.0.0.1:{}", server.port(2)));
    assert_eq!(number(by_address, "connections"), 2, "{by_address}");
    assert!(!zones.contains(&format!(":{}\"", server.port(4))), "{zones}");
    let peers = part(part(part(stream, "upstreams"), "s"), "peers");
    assert_eq!(numbers(peers, ["connections", "active", "received"]), [2, 0, 10], "{peers}");
    assert_eq!(number(part(part(peers, "latency"), "first_byte"), "count"), 2, "{peers}");
    assert!(!peers.contains("responses"), "{peers}");
}

#[test]
fn handshakes_with_clients() {
    let own = tls::self_signed("a.test");
    let server = Setup::new(
        "worker_processes 2; events {} http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            server { listen 127.0.0.1:%%PORT_1%% ssl; server_name tls.test; return 200 ok; }
            server { listen 127.0.0.1:%%PORT_0%%; location /status { stub_status json; } } }",
    )
    .file("a.crt", own.cert)
    .file("a.key", own.key)
    .start();
    assert_eq!(Tls::showing(None).get(server.port(1), "tls.test", "/").status, 200);
    let text = status(&server);
    let all = part(&text, "ssl");
    let names = ["handshakes", "handshakes_failed", "session_reuses"];
    assert_eq!(numbers(all, names), [1, 0, 0], "{all}");
    let own = part(part(part(&text, "server_zones"), "tls.test"), "ssl");
    assert_eq!(numbers(own, names), [1, 0, 0], "{own}");
    assert_eq!(number(part(own, "handshake_time"), "count"), 1);
}

/// A hello of a client that has nothing newer than `version`: no signature algorithms, no extensions at all.
fn old_hello(version: [u8; 2]) -> Vec<u8> {
    let mut hello = [&version[..], &[7; 32], &[0, 0, 2, 0xc0, 0x13, 1, 0]].concat();
    hello.splice(0..0, [1, 0, 0, hello.len() as u8]);
    hello.splice(0..0, [22, 3, 1, 0, hello.len() as u8]);
    hello
}

#[test]
fn clients_with_old_protocols_only_are_told_and_counted() {
    let own = tls::self_signed("a.test");
    let server = Setup::new(
        "worker_processes 1; error_log %%DIR%%/error.log info; events {} http {
            ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            server { listen 127.0.0.1:%%PORT_1%% ssl; return 200 ok; }
            server { listen 127.0.0.1:%%PORT_0%%; location /status { stub_status json; } } }",
    )
    .file("a.crt", own.cert)
    .file("a.key", own.key)
    .start();
    for (version, alert) in [([3, 1], 70), ([3, 2], 70)] {
        let mut client = server.on(1).connect();
        client.send(&old_hello(version));
        let said = client.read_to_end();
        assert_eq!((said.first(), &said[3..]), (Some(&21), &[0, 2, 2, alert][..]), "{version:?}");
    }
    let text = status(&server);
    let names = ["handshakes_failed", "no_common_protocol", "no_common_cipher"];
    assert_eq!(numbers(part(&text, "ssl"), names), [2, 2, 0], "{text}");
    server.expect_error("unsupported protocol");
}

#[test]
fn questions_to_name_servers() {
    let dns = Dns::start();
    dns.set_ip("known.test", 60, std::net::Ipv4Addr::LOCALHOST);
    let server = Setup::new(
        "worker_processes 2; events {} http { resolver %%DNS%% ipv6=off status_zone=names;
            server { listen 127.0.0.1:%%PORT_1%%; return 200 ok; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { set $host_to_ask $arg_host; proxy_pass http://$host_to_ask:%%PORT_1%%; }
                location /status { stub_status json; } } }",
    )
    .set("DNS", dns.address())
    .start();
    let asked = ["known.test", "known.test", "none.test"];
    let statuses = asked.map(|name| server.get(&format!("/?host={name}")).status);
    assert_eq!(statuses, [200, 200, 502]);
    let text = status(&server);
    let names = part(part(&text, "resolvers"), "names");
    assert_eq!(numbers(part(names, "requests"), ["name", "srv", "addr"]), [3, 0, 0], "{names}");
    let responses = part(names, "responses");
    assert_eq!(numbers(responses, ["noerror", "nxdomain", "timedout"]), [2, 1, 0], "{names}");
}

#[test]
fn caches() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let server = Setup::new(
        "worker_processes 2; events {} http { proxy_cache_path %%DIR%%/cache keys_zone=c:1m max_size=8m;
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_cache c; proxy_cache_valid 1h; proxy_cache_bypass $arg_bypass; proxy_no_cache $arg_bypass;
                    proxy_pass http://%%A%%; }
                location /status { stub_status json; } } }",
    )
    .set("A", origin.address())
    .start();
    let asked = ["/", "/", "/", "/?bypass=1"];
    assert_eq!(asked.map(|uri| server.get(uri).text()), ["hello"; 4]);
    let text = status(&server);
    let cache = part(part(&text, "caches"), "c");
    let of = |name: &str| number(part(cache, name), "responses");
    assert_eq!([of("hit"), of("miss"), of("bypass"), of("stale")], [2, 1, 1, 0], "{cache}");
    let head_and_body = 2 * "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".len() as u64;
    assert_eq!(number(part(cache, "hit"), "bytes"), head_and_body, "{cache}");
    assert_eq!(numbers(part(cache, "miss"), ["responses_written", "bytes_written"]), [1, 5]);
    assert_eq!(number(part(cache, "bypass"), "responses_written"), 0, "{cache}");
    assert_eq!(number(cache, "max_size"), 8 << 20, "{cache}");
    let is_cold = || part(part(part(&status(&server), "caches"), "c"), "cold") == "true";
    expect_soon("the cache is read", || !is_cold());
}
