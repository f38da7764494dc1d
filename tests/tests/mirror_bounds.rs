//! How much may go on behind answers: copies of requests and renewals of cached answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use weir_tests::tls::{self, Tls};
use weir_tests::{expect_soon, Next, Origin, Setup};

/// Answers nothing under `/slow` until it is told to.
fn hanging() -> (Origin, Arc<AtomicBool>) {
    let go = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&go);
    let origin = Origin::start(move |request, conn| {
        let late = request.target().starts_with("/slow") || request.header("X-Late").is_some();
        while late && !told.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        conn.reply("200 OK", "X-Accel-Expires: @60\r\n", request.target());
        Next::Close
    });
    (origin, go)
}

#[test]
fn copies_are_counted_and_need_no_second_descriptor() {
    let (origin, go) = hanging();
    let server = Setup::new(
        "worker_processes 1; events { worker_connections 40; } http { keepalive_requests 10000;
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { mirror /slow; alias %%DIR%%/html/; }
                location /slow { internal; proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .file("html/a", "a")
    .start();
    let mut client = server.connect();
    assert_eq!(client.get("/a").text(), "a");
    let before = server.descriptors();
    for _ in 0..300 {
        assert_eq!(client.get("/a").text(), "a");
    }
    origin.expect_requests(20);
    assert_eq!(origin.connections(), 20);
    // A copy has its connection to the server and no more.
    let more = server.descriptors().saturating_sub(before);
    assert!(more <= 25, "{more} more descriptors");
    server.expect_error("half of worker_connections");
    let lines = server.error_log().lines().filter(|l| l.contains("half of worker")).count();
    assert!(lines < 30, "{lines} lines");
    // Those that run do not keep others from being served, and make room when they end.
    assert_eq!(server.get("/a").text(), "a");
    go.store(true, Ordering::SeqCst);
    expect_soon("copies are made again", || {
        client.get("/a");
        origin.requests().len() > 30
    });
}

#[test]
fn renewals_behind_answers_are_counted() {
    let (origin, go) = hanging();
    let server = Setup::new(
        "worker_processes 1; events { worker_connections 20; } http {
            proxy_cache_path %%DIR%%/cache keys_zone=one:1m;
            server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://%%ORIGIN%%;
                proxy_cache one; proxy_cache_use_stale updating; proxy_cache_key $uri;
                proxy_cache_background_update on; proxy_set_header X-Late $http_x_late;
                add_header X-Cache $upstream_cache_status; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for n in 0..40 {
        server.get(&format!("/{n}"));
    }
    let (before, mut client) = (origin.connections(), server.connect());
    for n in 0..40 {
        client.send(format!("GET /{n} HTTP/1.1\r\nHost: a\r\nX-Late: 1\r\n\r\n").as_bytes());
        let answer = client.response();
        assert_eq!((answer.header("X-Cache"), answer.text()), (Some("STALE"), format!("/{n}")));
    }
    origin.expect_requests(50);
    assert_eq!(origin.connections(), before + 10);
    // An entry whose renewal was not made is renewed later.
    go.store(true, Ordering::SeqCst);
    expect_soon("the last is asked for again", || {
        server.get("/39");
        origin.requests()[50..].iter().any(|r| r.target() == "/39")
    });
}

#[test]
fn a_copy_knows_that_its_client_spoke_tls() {
    let (origin, pair) = (Origin::echo(), tls::self_signed("localhost"));
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%% ssl;
            ssl_certificate %%DIR%%/cert; ssl_certificate_key %%DIR%%/key;
            location / { mirror /copy; empty_gif; }
            location /copy { internal; proxy_set_header X-Scheme $scheme$https;
                proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .file("cert", pair.cert)
    .file("key", pair.key)
    .start();
    assert_eq!(Tls::default().get(server.port(0), "localhost", "/").status, 200);
    origin.expect_requests(1);
    assert_eq!(origin.only_request().header("X-Scheme"), Some("httpson"));
}
