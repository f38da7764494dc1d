//! What of a request lasts while its connection is a tunnel, and what a tunnel gives back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use weir_tests::tls::{self_signed, Tls};
use weir_tests::{expect_soon, Client, Conn, Origin, Server, Setup, Signal, PATIENCE};

const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n\
    Connection: Upgrade\r\nX-Answer: yes\r\n\r\n";
const PASS: &str = "proxy_pass http://%%O%%; proxy_http_version 1.1;
    proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;";

/// An origin that switches and then does that.
fn switching(then: impl Fn(&mut Conn) + Send + Sync + 'static) -> Origin {
    Origin::start_raw(move |conn, _| {
        if conn.read_until(b"\r\n\r\n").is_some() {
            conn.write(SWITCHED);
            then(conn);
        }
    })
}

/// Says every line again.
fn echo() -> Origin {
    switching(|conn| {
        while let Some(line) = conn.read_until(b"\n") {
            conn.write(line);
        }
    })
}

fn setup(origin: &Origin, conf: &str) -> Setup {
    Setup::new(&conf.replace("%%PASS%%", PASS)).set("O", origin.address())
}

fn upgrade(mut client: Client, head: &str) -> Client {
    let fields = "Host: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n";
    client.send(head.replace("\r\n\r\n", &format!("\r\n{fields}\r\n")).as_bytes());
    let head = client.read_until(b"\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    client
}

fn say(client: &mut Client, line: &str) {
    client.send(line.as_bytes());
    assert_eq!(client.read_until(b"\n"), line.as_bytes());
}

const LOGS: &str = "log_format all '$remote_addr $request $status|$bytes_sent $body_bytes_sent '
    '$request_length|$upstream_addr $upstream_status $upstream_response_length|$upstream_bytes_received '
    '$upstream_bytes_sent|$http_x $args $host $request_completion $sent_http_x_answer '
    '$upstream_http_x_answer $sent_http_upgrade|$name $made $connection_requests '
    '$request_body|$upstream_connect_time $upstream_header_time $upstream_response_time '
    '$request_time';";

/// The parts of a line, and its times.
fn line(server: &Server, path: &str) -> (Vec<String>, Vec<f64>) {
    let line = server.log_lines(path, 1).remove(0);
    let mut parts: Vec<String> = line.split('|').map(String::from).collect();
    let times = parts.pop().unwrap();
    (parts, times.split(' ').map(|t| t.parse().unwrap()).collect())
}

#[test]
fn what_is_logged_at_the_end_is_known_then() {
    const QUIET: Duration = Duration::from_millis(300);
    let origin = echo();
    let conf = "events {} http { %%LOGS%% map $args $mapped { default n; k=v mapped; }
        limit_conn_zone $server_name zone=one:64k;
        server { listen 127.0.0.1:%%PORT_0%%; server_name a; access_log %%DIR%%/access.log all;
            limit_conn one 1; set_real_ip_from 127.0.0.1; real_ip_header X-Real;
            location ~ ^/(w+)/(?<name>.*)$ { set $made $mapped-$1; %%PASS%% } } }";
    let server = setup(&origin, &conf.replace("%%LOGS%%", LOGS)).start();
    let mut client = upgrade(
        server.connect(),
        "GET /www/talk?k=v HTTP/1.1\r\nX: some words\r\nX-Real: 192.0.2.7\r\n\r\n",
    );
    say(&mut client, "hello\n");
    // One at a time, and this one is there.
    assert_eq!(server.get("/www/other").status, 503);
    server.write("access.log", "");
    std::thread::sleep(QUIET);
    say(&mut client, "and good bye\n");
    drop(client);
    let (parts, times) = line(&server, "access.log");
    let head_bytes: u64 = parts[1].split(' ').next().unwrap().parse::<u64>().unwrap() - 19;
    let expected = [
        "192.0.2.7 GET /www/talk?k=v HTTP/1.1 101".to_string(),
        format!("{} 19 109", head_bytes + 19),
        format!("{} 101 0", origin.address()),
        parts[3].clone(),
        "some words k=v a OK yes yes echo".to_string(),
        "talk mapped-www 1 -".to_string(),
    ];
    assert_eq!(parts, expected);
    let upstream: Vec<u64> = parts[3].split(' ').map(|n| n.parse().unwrap()).collect();
    assert_eq!(upstream[0], SWITCHED.len() as u64 + 19);
    assert!(upstream[1] > 19 + 60, "{upstream:?}");
    // Connecting and the head took no time to speak of, all together what the client took.
    let quiet = QUIET.as_secs_f64();
    assert!(times[1] < quiet && times[2] >= quiet && times[3] >= quiet, "{times:?}");
    expect_soon("the limit is free again", || {
        let mut client = server.connect();
        client.send(
            b"GET /www/x HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n",
        );
        client.read_until(b"\r\n").starts_with(b"HTTP/1.1 101")
    });
}

#[test]
fn one_that_began_with_a_body_has_it_in_its_log() {
    let origin = switching(|conn| {
        conn.wait_closed();
    });
    let conf = "events {} http { %%LOGS%% server { listen 127.0.0.1:%%PORT_0%%;
        access_log %%DIR%%/access.log all; set $made $http_x;
        location ~ ^/(?<name>w+)$ { %%PASS%% } } }";
    let server = setup(&origin, &conf.replace("%%LOGS%%", LOGS)).start();
    let mut client = server.connect();
    client.send(
        b"POST /w HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\
        Content-Length: 4\r\n\r\nbody",
    );
    client.read_until(b"\r\n\r\n");
    drop(client);
    let (parts, _) = line(&server, "access.log");
    assert_eq!(parts[5], "w  1 body");
}

#[test]
fn it_outlives_a_reload_and_ends_by_its_own_configuration() {
    let origin = echo();
    let conf =
        "events {} http { log_format f '%%NAME%% $uri'; server { listen 127.0.0.1:%%PORT_0%%;
        access_log %%DIR%%/%%NAME%%.log f;
        location / { return 200 %%NAME%%; } location /t { %%PASS%% } } }";
    let old = conf.replace("%%NAME%%", "old");
    let mut server = setup(&origin, &old).start();
    let mut client = upgrade(server.connect(), "GET /t HTTP/1.1\r\n\r\n");
    say(&mut client, "before\n");
    let new = conf.replace("%%NAME%%", "new").replace("%%PASS%%", PASS);
    let new = new.replace("%%O%%", &origin.address());
    let at = server.on(0);
    server.reload(&new, || at.get("/").text() == "new");
    say(&mut client, "after\n");
    drop(client);
    expect_soon("it is logged", || server.read("old.log").contains("old /t"));
}

#[test]
fn what_was_said_before_an_end_arrives() {
    const BYTES: usize = 1 << 20;
    let origin = switching(|conn| {
        // All of what comes, then the end of the connection.
        let all = conn.read_exactly(BYTES).map_or(0, |all| all.len());
        assert!(conn.wait_closed());
        assert_eq!(all, BYTES);
    });
    let server = setup(
        &origin,
        "events {} http { log_format f '$upstream_bytes_sent'; server {
            listen 127.0.0.1:%%PORT_0%%; access_log %%DIR%%/access.log f;
            location / { proxy_buffer_size 4k; %%PASS%% } } }",
    )
    .start();
    let mut client = upgrade(server.connect(), "GET / HTTP/1.1\r\n\r\n");
    client.send(&vec![b'x'; BYTES]);
    client.shutdown_write();
    // A client that says no more ends it, as in nginx.
    assert!(client.is_closed());
    let sent: usize = server.log_lines("access.log", 1)[0].parse().unwrap();
    assert!((BYTES + 50..BYTES + 500).contains(&sent), "{sent}");

    let origin = switching(|conn| {
        conn.read_until(b"go\n");
        conn.write(vec![b'y'; BYTES]);
    });
    let server = setup(
        &origin,
        "events {} http { server { listen 127.0.0.1:%%PORT_0%% sndbuf=8k;
            location / { proxy_buffer_size 4k; %%PASS%% } } }",
    )
    .start();
    let mut client = upgrade(server.connect(), "GET / HTTP/1.1\r\n\r\n");
    client.send(b"go\n");
    assert_eq!(client.read_to_end().len(), BYTES);
}

#[test]
fn it_works_over_tls_on_both_sides() {
    const BYTES: usize = 300_000;
    let pair = self_signed("localhost");
    let origin = echo();
    // The second server is the first one's, and has TLS as well.
    let conf = "events {} http { ssl_certificate %%DIR%%/cert; ssl_certificate_key %%DIR%%/key;
        proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection upgrade; proxy_buffer_size 8k;
        server { listen 127.0.0.1:%%PORT_0%% ssl;
            location / { proxy_pass https://127.0.0.1:%%PORT_1%%; } }
        server { listen 127.0.0.1:%%PORT_1%% ssl; location / { proxy_pass http://%%O%%; } } }";
    let server = setup(&origin, conf).file("cert", &pair.cert).file("key", &pair.key).start();
    let tls = Tls::showing(None).offering(&["http/1.1"]);
    let client = tls.connect(server.port(0), "localhost").unwrap().into_client();
    let mut client = upgrade(client, "GET / HTTP/1.1\r\n\r\n");
    say(&mut client, "quiet\n");
    let much = format!("{}\n", "m".repeat(BYTES));
    client.send(much.as_bytes());
    assert_eq!(client.read_until(b"\n").len(), much.len());
    say(&mut client, "quiet again\n");
}

#[test]
fn buffers_of_a_slow_reader_go_back() {
    if weir_tests::binary().ends_with("nginx") {
        return weir_tests::skip("it keeps them");
    }
    const TUNNELS: usize = 100;
    /// So much is read at once, of which the client takes next to nothing.
    const BUFFER_BYTES: u64 = 64 * 1024;
    const BYTES: usize = 1 << 20;
    let origin = switching(|conn| {
        while conn.read_until(b"go\n").is_some() {
            conn.write(vec![b'z'; BYTES]);
            conn.write("\n");
        }
    });
    let server = setup(
        &origin,
        "worker_processes 1; events {} http { server { listen 127.0.0.1:%%PORT_0%% sndbuf=8k;
            location / { proxy_buffer_size 64k; proxy_buffers 4 64k; proxy_busy_buffers_size 64k;
                %%PASS%% } } }",
    )
    .start();
    let open = || {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(8192).unwrap();
        socket
            .connect(&std::net::SocketAddr::from(([127, 0, 0, 1], server.port(0))).into())
            .unwrap();
        let mut client = TcpStream::from(socket);
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
            .unwrap();
        read_until(&mut client, b"\r\n\r\n");
        client
    };
    let mut clients: Vec<TcpStream> = (0..TUNNELS).map(|_| open()).collect();
    let Some(before) = server.memory() else { return weir_tests::skip("the system does not tell") };
    clients.iter_mut().for_each(|c| c.write_all(b"go\n").unwrap());
    let grown = || server.memory().unwrap_or(u64::MAX).saturating_sub(before);
    let most = TUNNELS as u64 * BUFFER_BYTES;
    expect_soon("what the clients do not take is kept", || grown() > most / 2);
    clients.iter_mut().for_each(|c| read_until(c, b"\n"));
    expect_soon("nothing of it is kept", || grown() < most / 8);
}

fn read_until(client: &mut TcpStream, end: &[u8]) {
    let mut buf = vec![0; 65536];
    let mut last = Vec::new();
    while !last.ends_with(end) {
        let n = client.read(&mut buf).unwrap();
        assert!(n > 0);
        last.drain(..last.len().saturating_sub(end.len()));
        last.extend_from_slice(&buf[..n]);
    }
}

#[test]
fn the_end_of_the_server_waits_for_it_no_longer_than_it_may() {
    let origin = echo();
    let mut server = setup(
        &origin,
        "worker_shutdown_timeout 300ms; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            access_log %%DIR%%/access.log; location / { %%PASS%% } } }",
    )
    .start();
    let mut client = upgrade(server.connect(), "GET / HTTP/1.1\r\n\r\n");
    say(&mut client, "before\n");
    server.signal(Signal::Quit);
    say(&mut client, "meanwhile\n");
    assert!(client.is_closed());
    server.wait_exit();
    assert!(server.read("access.log").contains("\" 101 "));
}
