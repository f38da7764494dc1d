//! echo: pauses, and what is sent before they are over.

use std::time::{Duration, Instant};
use weir_tests::{expect_soon, Server, Setup};

const CONF: &str = r#"events {} http { default_type text/plain; access_log %%DIR%%/access.log; server { listen 127.0.0.1:%%PORT_0%%;
    location /sleep { echo_sleep $arg_s; echo "$echo_timer_elapsed"; }
    location /blocking { echo_blocking_sleep 0.3; echo done; }
    location /reset { echo_sleep 0.05; echo_reset_timer; echo $echo_timer_elapsed; }
    location /flush { echo early; echo_flush; echo_sleep 60; echo late; }
    location /parts { echo_location_async /slow; echo_location_async /slow; echo after; }
    location /slow { echo_sleep 0.5; echo slow; }
    location /quick { echo quick; }
    location /part-flush { echo_location /flushed; }
    location /flushed { echo early; echo_flush; echo_sleep 60; }
    location /endless { echo_duplicate 1_000_000_000_000 0123456789; }
} }"#;

fn start() -> Server {
    Setup::new(CONF).start()
}

fn is_nginx(server: &Server) -> bool {
    server.get("/quick").header("Server").is_some_and(|name| name.starts_with("nginx"))
}

fn secs(text: &str) -> f64 {
    text.trim().parse().unwrap()
}

#[test]
fn a_pause_is_as_long_as_it_says() {
    let server = start();
    assert!(secs(&server.get("/sleep?s=0.25").text()) >= 0.25);
    assert!(secs(&server.get("/sleep?s=0").text()) < 30.0);
    assert_eq!(server.get("/sleep?s=soon").status, 400);
    let begun = Instant::now();
    assert!(secs(&server.get("/reset").text()) <= begun.elapsed().as_secs_f64() - 0.05);
}

#[test]
fn what_is_flushed_comes_before_the_pause_is_over() {
    let server = start();
    for path in ["/flush", "/part-flush"] {
        let mut client = server.connect();
        client.send_get(path);
        assert!(client.read_until(b"early\n").ends_with(b"early\n"), "{path}");
    }
}

#[test]
fn parts_pause_side_by_side() {
    let server = start();
    let begun = Instant::now();
    assert_eq!(server.get("/parts").text(), "slow\nslow\nafter\n");
    assert!(begun.elapsed() >= Duration::from_millis(500));
}

/// The line in the log is written when the request is over.
#[test]
fn a_pause_ends_when_the_client_goes() {
    let server = start();
    for path in ["/flush", "/part-flush"] {
        let mut client = server.connect();
        client.send_get(path);
        client.read_until(b"early\n");
    }
    if is_nginx(&server) {
        return weir_tests::skip("nginx waits for its end");
    }
    let over = |server: &Server| {
        server.read("access.log").lines().filter(|line| !line.contains("/quick")).count()
    };
    expect_soon("both are over", || over(&server) == 2);
}

#[test]
fn others_are_answered_meanwhile() {
    let server = start();
    let mut slow = server.connect();
    if is_nginx(&server) {
        return weir_tests::skip("nginx makes the whole in memory");
    }
    slow.send_get("/endless");
    slow.read_until(b"0123456789012345678901234567890123456789");
    let mut pausing = server.connect();
    pausing.send_get("/blocking");
    assert_eq!(server.get("/quick").text(), "quick\n");
    assert_eq!(pausing.response().text(), "done\n");
}
