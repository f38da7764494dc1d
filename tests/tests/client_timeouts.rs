//! Clients that are slow or gone.

use std::time::Duration;
use weir_tests::Server;

#[test]
fn a_head_that_does_not_come_is_closed_silently() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; client_header_timeout 1s;
            access_log %%DIR%%/access.log; return 200 ok; } }",
    );
    let mut silent = server.connect();
    let mut partial = server.connect();
    partial.send(b"GET / HT");
    assert!(partial.is_silent(Duration::from_millis(300)));
    assert_eq!(partial.read_to_end(), b"");
    assert!(silent.is_closed());
    let lines = server.log_lines("access.log", 1);
    assert!(lines[0].contains("\"GET / HT\" 408 0"), "{lines:?}");
}

#[test]
fn a_client_that_leaves_is_logged_as_400() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            error_log %%DIR%%/error.log info; access_log %%DIR%%/access.log;
            return 200 ok; } }",
    );
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHost:");
    client.shutdown_write();
    assert!(client.is_closed());
    server
        .expect_error("client prematurely closed connection while reading client request headers");
    assert!(server.log_lines("access.log", 1)[0].contains(" 400 0 "));
}

#[test]
fn an_answer_given_early_survives_what_the_client_still_sends() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; client_max_body_size 1;
            lingering_timeout 1s; } }",
    );
    let mut client = server.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    for _ in 0..100 {
        client.send(&[b'x'; 10_000]);
    }
    assert!(client.read_to_end().starts_with(b"HTTP/1.1 413 "));
}

/// A head's time begins with its connection, not with its first byte.
#[test]
fn a_first_byte_gives_no_more_time() {
    let server = weir_tests::Server::start(
        "events {} http { client_header_timeout 3s; server { listen 127.0.0.1:%%PORT_0%%; return 204; } }",
    );
    let begun = std::time::Instant::now();
    let mut client = server.connect();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    client.send(b"GET / HT");
    assert!(client.is_closed());
    assert!(begun.elapsed() < std::time::Duration::from_millis(5200), "{:?}", begun.elapsed());
}
