//! `tunnel_pass`: CONNECT joins the client's connection to the server it names.

use weir_tests::{free_port, Client, Origin, Server, Setup};

const CONF: &str = "events {} http { access_log %%DIR%%/access.log; tunnel_connect_timeout 5s;
    log_format t '$status $bytes_sent $upstream_addr $upstream_bytes_sent $upstream_bytes_received $request_port';
    upstream fixed { server 127.0.0.1:%%PORT_1%%; }
    server { listen 127.0.0.1:%%PORT_0%%; access_log %%DIR%%/t.log t;
        location / { if ($request_method = CONNECT) { tunnel_pass; error_page 502 504 /50x; break; }
            return 200 plain; }
        location = /50x { return 502 'no server'; } }
    server { listen 127.0.0.1:%%PORT_1%%; location / { return 200 $remote_port; } }
    server { listen 127.0.0.1:%%PORT_2%%; tunnel_pass fixed; }
    server { listen 127.0.0.1:%%PORT_3%%; auth_basic closed; auth_basic_user_file %%DIR%%/users;
        tunnel_pass; }
    server { listen 127.0.0.1:%%PORT_4%%; return 200; } }";

fn start() -> Server {
    Setup::new(CONF).file("users", "plain:{PLAIN}password\n").start()
}

fn connect(server: &Server, at: usize, target: &str, more: &str) -> (Client, String) {
    let mut client = server.on(at).connect();
    client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{more}\r\n").as_bytes());
    let head = client.read_until(b"\r\n\r\n");
    (client, String::from_utf8(head).unwrap())
}

#[test]
fn connections_become_one() {
    let server = start();
    let target = format!("127.0.0.1:{}", server.port(1));
    for (at, target) in [(0, target.as_str()), (2, "nobody.example:1")] {
        let (mut client, head) = connect(&server, at, target, "");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Connection: close\r\n"), "{head}");
        for field in ["Content-Length", "Transfer-Encoding", "Content-Type", "Upgrade"] {
            assert!(!head.contains(field), "{head}");
        }
        assert_eq!(client.get("/").text(), client.get("/").text());
    }
    assert_eq!(server.get("/").text(), "plain");
}

/// What the client has sent ahead goes on, and the log counts what went through.
#[test]
fn bytes_are_passed_and_counted() {
    let server = start();
    let origin = Origin::start_raw(|c, _| {
        let four = c.read_exactly(4).unwrap();
        c.write([&four[..], b"!"].concat());
    });
    let target = format!("127.0.0.1:{}", origin.port());
    let ahead = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\nping");
    let all = server.raw(ahead.as_bytes());
    let text = String::from_utf8(all).unwrap();
    assert!(text.ends_with("\r\n\r\nping!"), "{text}");
    let line = server.log_lines("t.log", 1).remove(0);
    assert_eq!(line, format!("200 {} {target} 4 5 {}", text.len(), origin.port()));
}

#[test]
fn who_is_refused_gets_nginxs_status() {
    let server = start();
    let port = server.port(1);
    for (target, status) in [
        (format!("127.0.0.1:{port}/"), 400),
        (format!("a:b@127.0.0.1:{port}"), 400),
        (format!("http://127.0.0.1:{port}"), 400),
        ("127.0.0.1".into(), 400),
        ("127.0.0.1:65536".into(), 400),
        (format!(":{port}"), 400),
    ] {
        let (_, head) = connect(&server, 0, &target, "");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {head}");
    }
    let (_, head) = connect(&server, 0, "127.0.0.1:1", "Content-Length: 3\r\n");
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    // Where no tunnel is configured, and where no server is.
    let (_, head) = connect(&server, 4, "127.0.0.1:1", "");
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    let closed = free_port();
    let (mut client, head) = connect(&server, 0, &format!("127.0.0.1:{closed}"), "");
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(head.contains("Connection: close\r\n"), "{head}");
    assert_eq!(client.read_to_end(), b"no server");
    server.expect_error(&format!("upstream: \"127.0.0.1:{closed}\""));
    assert_eq!(server.on(2).get("/").status, 405);
}

/// A proxy asks for its own credentials.
#[test]
fn auth_basic_asks_with_407() {
    let server = start();
    let target = format!("127.0.0.1:{}", server.port(1));
    let right = "Basic cGxhaW46cGFzc3dvcmQ=";
    let (_, head) = connect(&server, 3, &target, &format!("Authorization: {right}\r\n"));
    assert!(head.starts_with("HTTP/1.1 407 "), "{head}");
    assert!(head.contains("Proxy-Authenticate: Basic realm=\"closed\"\r\n"), "{head}");
    let (mut client, head) =
        connect(&server, 3, &target, &format!("Proxy-Authorization: {right}\r\n"));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(client.get("/").status, 200);
}

const SETTINGS: &str = "events {} http { access_log off; tunnel_send_lowat 0; tunnel_send_timeout 5s;
    upstream two { server 127.0.0.1:%%PORT_3%% max_fails=0; server 127.0.0.1:%%PORT_1%%; }
    server { listen 127.0.0.1:%%PORT_0%%; tunnel_bind 127.0.0.2; tunnel_buffer_size 16;
        tunnel_socket_keepalive on; tunnel_socket_rcvbuf 16k; tunnel_socket_sndbuf 16k; tunnel_pass; }
    server { listen 127.0.0.1:%%PORT_1%%; return 200 '$remote_addr $http_long'; }
    server { listen 127.0.0.1:%%PORT_2%%; tunnel_read_timeout 200ms; tunnel_pass; }
    server { listen 127.0.0.1:%%PORT_4%%; tunnel_next_upstream error timeout; tunnel_pass two;
        tunnel_next_upstream_tries 2; tunnel_next_upstream_timeout 5s; }
    server { listen 127.0.0.1:%%PORT_5%%; tunnel_next_upstream_tries 1; tunnel_pass two; }
    server { listen 127.0.0.1:%%PORT_6%%; tunnel_next_upstream off; tunnel_pass two; } }";

#[test]
fn connections_are_as_configured() {
    let server = Server::start(SETTINGS);
    let target = format!("127.0.0.1:{}", server.port(1));
    let (mut client, head) = connect(&server, 0, &target, "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let long = "x".repeat(900);
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nLong: {long}\r\n\r\n").as_bytes());
    assert_eq!(client.response().text(), format!("127.0.0.2 {long}"));
}

/// Nobody says anything.
#[test]
fn a_silent_tunnel_ends() {
    let server = Server::start(SETTINGS);
    let target = format!("127.0.0.1:{}", server.port(1));
    let (mut client, _) = connect(&server, 2, &target, "");
    assert_eq!(client.read_to_end(), b"");
}

#[test]
fn a_server_that_is_not_there_is_passed_over() {
    let server = Server::start(SETTINGS);
    for _ in 0..2 {
        let (mut client, head) = connect(&server, 4, "any:1", "");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(client.get("/").text(), "127.0.0.1 ");
    }
    for at in [5, 6] {
        let statuses: Vec<bool> = (0..4)
            .map(|_| connect(&server, at, "any:1", "").1.starts_with("HTTP/1.1 502 "))
            .collect();
        assert_eq!(statuses.iter().filter(|s| **s).count(), 2, "{at}: {statuses:?}");
    }
}
