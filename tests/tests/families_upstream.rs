//! How servers are reached and when the next one is asked, the same in every family of backends.

use socket2::{Domain, Socket, Type};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Mutex};
use std::time::{Duration, Instant};
use weir_tests::family::{Family, FAMILIES};
use weir_tests::{expect_soon, Origin, Server, PATIENCE};

fn start(family: Family, origin: &Origin, upstream: &str, location: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ upstream u {{ {upstream} }} server {{ listen 127.0.0.1:%%PORT_0%%;
            add_header X-Asked $upstream_status always;
            location / {{ %%F%%_pass SCHEMEu; %%PARAMS%% {location} }} }} }}"
    );
    let scheme = if family == Family::Proxy { "http://" } else { "" };
    family.setup(&conf.replace("SCHEME", scheme), origin).start()
}

/// An origin that reads requests and never answers.
fn silent(family: Family) -> Origin {
    family.origin(|_, answer| {
        answer.wait_closed();
    })
}

#[test]
fn silence_ends_with_the_read_timeout() {
    for family in FAMILIES {
        let origin = silent(family);
        let server = start(
            family,
            &origin,
            "server %%ORIGIN%%;",
            "%%F%%_read_timeout 300ms; %%F%%_connect_timeout 30s; %%F%%_send_timeout 30s;",
        );
        assert_eq!(server.get("/").status, 504, "{family:?}");
        server.expect_error("upstream timed out");
    }
}

#[test]
fn a_server_that_does_not_read_ends_with_the_send_timeout() {
    for family in FAMILIES {
        let origin = Origin::start_raw(|conn, _| {
            // Nothing is read: the buffers between fill up.
            std::thread::park_timeout(PATIENCE);
            let _ = conn;
        });
        let server = start(
            family,
            &origin,
            "server %%ORIGIN%%;",
            "%%F%%_send_timeout 300ms; client_max_body_size 0; %%F%%_socket_sndbuf 8k; %%F%%_socket_rcvbuf 8k;",
        );
        assert_eq!(server.post("/", &"z".repeat(20_000_000)).status, 504, "{family:?}");
        server.expect_error("upstream timed out");
    }
}

#[test]
fn a_server_that_is_not_there_ends_with_the_connect_timeout() {
    let full = FullQueue::new();
    for family in FAMILIES {
        let conf = "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { %%F%%_pass %%TO%%; %%PARAMS%% %%F%%_connect_timeout 300ms; } } }";
        let server = family.setup_at(conf, &full.address()).start();
        let begun = Instant::now();
        assert_eq!(server.get("/").status, 504, "{family:?}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{family:?}");
        server.expect_error("upstream timed out");
    }
}

/// A listening socket that nobody accepts from, with its queue full.
struct FullQueue {
    listener: Socket,
    _waiting: Vec<TcpStream>,
}

impl FullQueue {
    fn new() -> FullQueue {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
        let waiting = std::iter::from_fn(|| connect().ok()).collect();
        FullQueue { listener, _waiting: waiting }
    }

    fn address(&self) -> String {
        self.listener.local_addr().unwrap().as_socket().unwrap().to_string()
    }
}

#[test]
fn the_next_server_is_asked_when_one_fails() {
    for family in FAMILIES {
        let asked = AtomicUsize::new(0);
        let origin = family.origin(move |_, answer| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => answer.reply("503 No", "", "no"),
            _ => answer.reply("200 OK", "", "yes"),
        });
        let server = start(
            family,
            &origin,
            "server %%ORIGIN%%; server %%ORIGIN%%;",
            "%%F%%_next_upstream error http_503; %%F%%_socket_keepalive on; %%F%%_send_lowat 0; %%F%%_bind 127.0.0.1;"
                .replace("%%F%%_send_lowat 0;", lowat(family))
                .as_str(),
        );
        let r = server.get("/");
        assert_eq!(
            (r.text().as_str(), r.header("X-Asked")),
            ("yes", Some("503, 200")),
            "{family:?}"
        );
    }
}

/// Two families alone have the directive.
fn lowat(family: Family) -> &'static str {
    match family {
        Family::Proxy => "proxy_send_lowat 0;",
        Family::Fastcgi => "fastcgi_send_lowat 0;",
        _ => "",
    }
}

#[test]
fn tries_are_bounded_in_number() {
    for family in FAMILIES {
        let origin = family.origin(|_, answer| answer.reply("503 No", "", "no"));
        let servers = "server %%ORIGIN%%; server %%ORIGIN%%; server %%ORIGIN%%;";
        let how = "%%F%%_next_upstream http_503; %%F%%_next_upstream_tries 2;";
        let server = start(family, &origin, servers, how);
        assert_eq!(server.get("/").header("X-Asked"), Some("503, 503"), "{family:?}");
    }
}

#[test]
fn tries_are_bounded_in_time() {
    for family in FAMILIES {
        let origin = silent(family);
        let servers = "server %%ORIGIN%%; server %%ORIGIN%%; server %%ORIGIN%%;";
        let how = "%%F%%_read_timeout 300ms; %%F%%_next_upstream timeout; %%F%%_next_upstream_timeout 100ms;";
        let server = start(family, &origin, servers, how);
        assert_eq!(server.get("/").header("X-Asked"), Some("504"), "{family:?}");
    }
}

/// Whether the origin sees its connection end when the client goes.
fn ends_with_its_client(family: Family, location: &str) -> bool {
    let (say, heard) = mpsc::channel();
    let say = Mutex::new(say);
    let origin = family.origin(move |_, answer| {
        let _ = say.lock().unwrap().send(false);
        let _ = say.lock().unwrap().send(answer.wait_closed());
    });
    let server = start(family, &origin, "server %%ORIGIN%%;", location);
    let mut client = server.connect();
    client.send_get("/");
    assert_eq!(heard.recv_timeout(PATIENCE), Ok(false), "{family:?}");
    drop(client);
    let ended = heard.recv_timeout(Duration::from_millis(500)) == Ok(true);
    expect_soon("the server goes on", || server.connect().local_port() > 0);
    ended
}

#[test]
fn a_client_that_goes_ends_the_request_unless_it_is_ignored() {
    for family in FAMILIES {
        assert!(ends_with_its_client(family, ""), "{family:?}");
        assert!(!ends_with_its_client(family, "%%F%%_ignore_client_abort on;"), "{family:?}");
    }
}

#[test]
fn a_body_waits_or_streams() {
    for family in FAMILIES {
        let origin = Origin::start_raw(|conn, _| {
            if conn.read_until(b"first").is_some() {
                conn.write("seen");
            }
            conn.wait_closed();
        });
        let server = start(
            family,
            &origin,
            "server %%ORIGIN%%;",
            "%%F%%_request_buffering off; %%F%%_read_timeout 2s;",
        );
        let mut client = server.connect();
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst");
        expect_soon("the origin has the beginning", || origin.connections() == 1);
        let buffered = start(family, &origin, "server %%ORIGIN%%;", "");
        let mut client = buffered.connect();
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst");
        assert!(client.is_silent(Duration::from_millis(100)));
        assert_eq!(origin.connections(), 1, "{family:?}");
    }
}
