//! Figures of caches (what had to go, waits), of workers' time, of protocols, and averages.

use weir_tests::figures::{number, part};
use weir_tests::tls::{self, Tls};
use weir_tests::{expect_soon, Next, Origin, Peer, Setup};

#[test]
fn caches_tell_what_had_to_go_and_who_waited() {
    let origin = slow();
    let server = Setup::new(
        "worker_processes 1; events {} http {
            proxy_cache_path %%DIR%%/cache keys_zone=c:32k; proxy_cache_path %%DIR%%/aged keys_zone=aged:1m inactive=1s;
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_cache c; proxy_cache_valid 1h; proxy_cache_lock on; proxy_pass http://%%ORIGIN%%; }
                location /aged { proxy_cache aged; proxy_cache_valid 1h; proxy_pass http://%%ORIGIN%%; }
                location /status { stub_status json; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let status = || server.get("/status").text();
    let mut both = [server.connect(), server.connect()];
    both.iter_mut().for_each(|client| client.send_get("/together"));
    both.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    let text = status();
    let cache = part(part(&text, "caches"), "c");
    let waits = part(cache, "lock_waits");
    assert_eq!(number(waits, "count"), 1, "{waits}");
    assert!(part(waits, "max").parse::<f64>().unwrap() > 1.0, "{waits}");
    let entries = number(cache, "entries_max");
    assert!((50..1000).contains(&entries), "{cache}");
    let pages = part(part(part(&text, "slabs"), "c"), "pages");
    assert_eq!(number(pages, "used"), 1, "{pages}");
    server.get("/aged");
    expect_soon("what nobody asks for goes", || {
        let text = status();
        number(part(part(part(&text, "caches"), "aged"), "evictions"), "inactive") == 1
    });
}

#[test]
fn keys_for_which_there_is_no_room() {
    let origin = Origin::echo();
    let server = Setup::new(
        "worker_processes 1; events {} http { proxy_cache_path %%DIR%%/cache keys_zone=c:32k;
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_cache c; proxy_cache_valid 1h; proxy_pass http://%%ORIGIN%%; }
                location /status { stub_status json; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let status = || server.get("/status").text();
    let most = number(part(part(&status(), "caches"), "c"), "entries_max");
    let mut client = server.connect();
    (0..most + 5).for_each(|n| assert_eq!(client.get(&format!("/{n}")).status, 200));
    let text = status();
    let evictions = part(part(part(&text, "caches"), "c"), "evictions");
    assert!(number(evictions, "keys") >= 5, "{evictions}");
    assert_eq!(number(evictions, "inactive"), 0, "{evictions}");
}

#[test]
fn protocols_of_http_and_tls_and_what_workers_do() {
    let pair = tls::self_signed("localhost");
    let server = Setup::new(
        "worker_processes 1; events {} http { ssl_certificate a.crt; ssl_certificate_key a.key;
            server { listen 127.0.0.1:%%PORT_0%%; server_name plain; location /status { stub_status json; } }
            server { listen 127.0.0.1:%%PORT_1%% ssl; server_name secret; location / { return 200 $ssl_handshake_time; } } }",
    )
    .file("a.crt", pair.cert)
    .file("a.key", pair.key)
    .start();
    let old = Peer::Tcp(server.port(0)).raw(b"GET /none HTTP/1.0\r\n\r\n");
    assert!(old.starts_with(b"HTTP/1.1 404"));
    let mut secure = Tls::default().connect(server.port(1), "localhost").unwrap().into_client();
    let took = secure.get("/").text();
    assert!(took.len() >= 5 && took.contains('.'), "{took}");
    let text = server.get("/status").text();
    let zones = part(&text, "server_zones");
    let versions = part(part(zones, "plain"), "protocols");
    assert_eq!(number(versions, "HTTP/1.0"), 1, "{versions}");
    assert_eq!(number(part(part(zones, "secret"), "protocols"), "HTTP/1.1"), 1);
    let ssl = part(part(zones, "secret"), "ssl");
    assert_eq!(number(part(ssl, "protocols"), "TLSv1.3"), 1, "{ssl}");
    let ciphers = part(ssl, "ciphers");
    assert!(ciphers.starts_with("{\"TLS_") && ciphers.ends_with("\":1}"), "{ciphers}");
    assert_eq!(number(part(ssl, "handshake_time"), "count"), 1, "{ssl}");
    let worker = part(&text, "workers");
    let (busy, queued) = (number(worker, "busy_time"), number(worker, "queued_time"));
    assert!(busy < 600_000 && queued < 600_000, "{worker}");
}

/// A server that takes 300 ms for each answer.
fn slow() -> Origin {
    Origin::start(|_, conn| {
        std::thread::sleep(std::time::Duration::from_millis(300));
        conn.reply("200 OK", "", "late");
        Next::Keep
    })
}

/// What was long ago does not count for ever: NGINX Plus's averages are moving ones.
#[test]
fn averages_of_upstreams_forget() {
    let origin = slow();
    let quick = Origin::echo();
    let conf = |to: &str| {
        format!(
            "worker_processes 1; events {{}} http {{ upstream u {{ zone u 64k; server {to}; }}
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ proxy_pass http://u; }}
                location /status {{ stub_status json; }} }} }}"
        )
    };
    let times = |server: &weir_tests::Server| {
        let text = server.get("/status").text();
        let peers = part(part(&text, "upstreams"), "u").to_string();
        (number(&peers, "header_time"), number(&peers, "response_time"))
    };
    let server = Setup::new(&conf(&origin.address())).start();
    assert_eq!(server.get("/").status, 200);
    let (header, response) = times(&server);
    assert!(header >= 290 && response >= header, "{header} {response}");
    let server = Setup::new(&conf(&quick.address())).start();
    (0..3).for_each(|_| drop(server.get("/")));
    let (header, _) = times(&server);
    assert!(header < 200, "{header}");
}
