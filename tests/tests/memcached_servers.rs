//! How memcached servers are reached and when the next one is asked.

use std::time::{Duration, Instant};
use weir_tests::{Origin, Server, Setup};

fn start(origin: &Origin, location: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ upstream u {{ server %%ORIGIN%% max_fails=0; server %%ORIGIN%% max_fails=0; server %%ORIGIN%% max_fails=0; }}
          server {{ listen 127.0.0.1:%%PORT_0%%; set $memcached_key $uri; add_header X-Asked $upstream_status always;
            location / {{ memcached_pass u; memcached_connect_timeout 5s; memcached_send_timeout 5s;
                memcached_bind 127.0.0.1; memcached_socket_keepalive on; {location} }} }} }}"
    );
    Setup::new(&conf).set("ORIGIN", origin.address()).start()
}

fn asked(server: &Server) -> String {
    server.get("/key").header("X-Asked").unwrap_or_default().to_string()
}

/// Answers to the second connection and those after it.
fn late() -> Origin {
    Origin::start_raw(|conn, id| {
        if conn.read_until(b"\r\n").is_some() && id > 0 {
            conn.write("VALUE /key 0 2\r\nok\r\nEND\r\n");
        }
        conn.wait_closed();
    })
}

#[test]
fn the_next_server_is_asked_after_a_timeout() {
    let origin = late();
    let server = start(&origin, "memcached_read_timeout 300ms; memcached_next_upstream timeout;");
    let r = server.get("/key");
    assert_eq!((r.text().as_str(), r.header("X-Asked")), ("ok", Some("504, 200")));
}

#[test]
fn tries_are_bounded() {
    let nothing = Origin::start_raw(|conn, _| drop(conn.read_until(b"\r\n")));
    let server = start(&nothing, "memcached_next_upstream error; memcached_next_upstream_tries 2;");
    assert_eq!(asked(&server), "502, 502");
    let silent = Origin::start_raw(|conn, _| {
        conn.wait_closed();
    });
    let how = "memcached_read_timeout 300ms; memcached_next_upstream timeout; memcached_next_upstream_timeout 100ms;";
    let begun = Instant::now();
    assert_eq!(asked(&start(&silent, how)), "504");
    assert!(begun.elapsed() < Duration::from_secs(4));
}

#[test]
fn the_first_line_must_fit_into_its_buffer() {
    let origin = Origin::start_raw(|conn, _| {
        conn.read_until(b"\r\n");
        conn.write(format!("VALUE /key {} 2\r\nok\r\nEND\r\n", "0".repeat(2000)));
        conn.wait_closed();
    });
    let small = start(&origin, "memcached_buffer_size 1k; memcached_next_upstream off;");
    assert_eq!(asked(&small), "502");
    small.expect_error("upstream sent too big header");
}
