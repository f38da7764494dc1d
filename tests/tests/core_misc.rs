//! Smaller directives of the core.

use std::time::{Duration, Instant};
use weir_tests::{Origin, Server, Setup};

#[test]
fn the_server_header_can_be_shortened() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /on { return 404; }
            location /off { server_tokens off; return 404; } } }",
    );
    let on = server.get("/on");
    let name = on.header("Server").expect("a name");
    assert!(name.contains('/'), "{name}");
    assert!(on.text().contains(name));
    let off = server.get("/off");
    let short = off.header("Server").expect("a name");
    assert!(!short.contains('/') && name.starts_with(short), "{short}");
    assert!(off.text().contains(&format!("<center>{short}</center>")));
}

#[test]
fn chunks_can_be_forbidden() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\n\r\nto the end");
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%O%%; }
            location /off { chunked_transfer_encoding off; proxy_pass http://%%O%%; } } }",
    )
    .set("O", origin.address())
    .start();
    assert!(server.get("/").is_chunked());
    let mut client = server.connect();
    client.send_get("/off");
    let response = client.response();
    assert!(!response.is_chunked());
    assert_eq!(
        (response.header("Connection"), response.text().as_str()),
        (Some("close"), "to the end")
    );
    // To HTTP/1.0 nothing is chunked either.
    let old = server.raw(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let old = String::from_utf8_lossy(&old);
    assert!(old.contains("Connection: close\r\n") && old.ends_with("\r\n\r\nto the end"), "{old}");
}

#[test]
fn the_rate_is_limited() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location /slow/ { alias %%DIR%%/html/; limit_rate 10k; }
            location /after/ { alias %%DIR%%/html/; limit_rate 1; limit_rate_after 100k; }
            location /set/ { alias %%DIR%%/html/; set $limit_rate 10k; } } }",
    )
    .file("html/f", vec![b'x'; 30_000])
    .start();
    for (path, slow) in [("/slow/f", true), ("/after/f", false), ("/set/f", true), ("/f", false)] {
        let start = Instant::now();
        assert_eq!(server.get(path).body.len(), 30_000);
        let took = start.elapsed();
        assert_eq!(took > Duration::from_millis(1000), slow, "{path}: {took:?}");
    }
}

/// With sendfile a second's worth leaves at once, and what is left of the file's page with it; through
/// buffers it leaves evenly.
#[test]
fn a_rate_is_kept_as_evenly_as_the_bytes_come() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%% http2;
            root %%DIR%%/html;
            location /at_once/ { alias %%DIR%%/html/; sendfile on; limit_rate 1m; }
            location /even/ { alias %%DIR%%/html/; limit_rate 200k; } } }",
    )
    .file("html/f", vec![b'x'; 1024 * 1024])
    .file("html/g", vec![b'x'; 400 * 1024])
    .start();
    let start = Instant::now();
    assert_eq!(server.get("/at_once/f").body.len(), 1024 * 1024);
    assert!(start.elapsed() < Duration::from_millis(950), "{:?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(server.get("/even/g").body.len(), 400 * 1024);
    assert!(start.elapsed() > Duration::from_millis(1400), "{:?}", start.elapsed());
    let start = Instant::now();
    let mut h2 = weir_tests::h2::H2::over(server.on(1).connect());
    h2.greet(&[(4, 10_000_000)]);
    h2.widen(0, 10_000_000);
    assert_eq!(h2.fetch("/even/g").body.len(), 400 * 1024);
    assert!(start.elapsed() > Duration::from_millis(1400), "{:?}", start.elapsed());
}

#[test]
fn missing_files_need_not_be_logged() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            error_log %%DIR%%/error.log; location /quiet { log_not_found off; } } }",
    );
    assert_eq!(server.get("/quiet").status, 404);
    assert_eq!(server.get("/loud").status, 404);
    server.expect_error("/html/loud\" failed");
    assert!(!server.error_log().contains("/html/quiet"));
}

#[test]
fn pages_for_errors_on_error_pages() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /a { recursive_error_pages on; error_page 403 /b; return 403; }
            location /b { recursive_error_pages on; error_page 404 /c; return 404; }
            location /c { return 200 'c $status'; }
        } }",
    );
    let response = server.get("/a");
    assert_eq!((response.status, response.text().as_str()), (404, "c 404"));
}

#[test]
fn odd_header_names_pass_when_they_are_not_ignored() {
    let origin = Origin::echo();
    let server = Setup::new(
        "events {} http { ignore_invalid_headers off; server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%O%%; } } }",
    )
    .set("O", origin.address())
    .start();
    server.get_with("/", "X_Y: 1\r\nA/B: 2\r\n");
    let request = origin.only_request();
    assert_eq!((request.header("X_Y"), request.header("A/B")), (Some("1"), Some("2")));
}

#[test]
fn several_workers_share_the_port() {
    let server = Server::start(
        "worker_processes 4; events { worker_connections 64; multi_accept on; }
        http { server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 ok; } } }",
    );
    let peer = server.on(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(peer.get("/").text(), "ok");
                }
            });
        }
    });
}

#[test]
fn connections_are_limited_per_worker() {
    let server = Server::start(
        "worker_processes 1; error_log %%DIR%%/error.log warn; events { worker_connections 8; }
        http { server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 ok; } } }",
    );
    // One after the other, so that there is always one that is idle and can give way.
    let one = |_| {
        let mut client = server.connect();
        assert_eq!(client.get("/").text(), "ok");
        client
    };
    let clients: Vec<_> = (0..20).map(one).collect();
    server.expect_error("8 worker_connections are not enough, reusing connections");
    drop(clients);
    weir_tests::expect_soon("there is room again", || {
        !server.raw(b"GET / HTTP/1.0\r\n\r\n").is_empty()
    });
}
