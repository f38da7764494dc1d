//! Datagrams in stream: sessions by the client's address, what they are answered, how they live on.

use std::net::UdpSocket;
use std::time::Duration;
use weir_tests::{expect_soon, free_port, run_cli, Dns, Origin, Server, Setup, Signal};

/// A client with a socket of its own.
struct Client(UdpSocket);

impl Client {
    fn from_to(from: &str, to: (&str, u16)) -> Client {
        let socket = UdpSocket::bind(from).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Client(socket)
    }

    fn of(server: &Server, port: usize) -> Client {
        Client::from_to("127.0.0.1:0", ("127.0.0.1", server.port(port)))
    }

    fn send(&self, data: impl AsRef<[u8]>) {
        self.0.send(data.as_ref()).unwrap();
    }

    fn read(&self) -> Vec<u8> {
        let mut buf = vec![0; 70_000];
        let n = self.0.recv(&mut buf).expect("an answer");
        buf.truncate(n);
        buf
    }

    fn ask(&self, data: impl AsRef<[u8]>) -> String {
        self.send(data);
        String::from_utf8_lossy(&self.read()).into_owned()
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }
}

#[test]
fn each_datagram_is_answered_with_a_text() {
    let server = Server::start(
        "events {} error_log %%DIR%%/error.log info; stream {
            server {
                listen 127.0.0.1:%%PORT_0%% udp;
                return \"$protocol $remote_port $bytes_received $server_port\";
            }
            server { listen 127.0.0.1:%%PORT_0%%; return $protocol; }
            server { listen 127.0.0.1:%%PORT_1%% udp; pass 127.0.0.1:%%PORT_0%%; }
        }",
    );
    let client = Client::of(&server, 0);
    let answer = |n: usize| format!("UDP {} {n} {}", client.port(), server.port(0));
    for _ in 0..40 {
        client.send("a");
    }
    for _ in 0..40 {
        assert_eq!(String::from_utf8_lossy(&client.read()), answer(1));
    }
    assert_eq!(client.ask(""), answer(0));
    // No larger datagram leaves by IPv4.
    assert_eq!(client.ask(vec![b'x'; 65_507]), answer(65_507));
    assert_eq!(server.raw(b""), b"TCP");
    server.expect_error(&format!("udp client 127.0.0.1:{} connected to", client.port()));
    Client::of(&server, 1).send("a");
    server.expect_error("cannot pass udp connection while passing connection to port, udp client:");
}

#[test]
fn answers_come_from_the_address_that_was_asked() {
    let server = Server::start(
        "events {} stream {
            server { listen %%PORT_0%% udp; return \"any $server_addr\"; }
            server { listen 127.0.0.3:%%PORT_0%% udp; return \"one $server_addr\"; }
        }",
    );
    let port = server.port(0);
    // A connected socket takes answers from that address only.
    let ask = |ip| Client::from_to("127.0.0.1:0", (ip, port)).ask("x");
    assert_eq!(ask("127.0.0.2"), "any 127.0.0.2");
    assert_eq!(ask("127.0.0.3"), "one 127.0.0.3");
    assert_eq!(ask("127.0.0.4"), "any 127.0.0.4");
}

#[test]
fn what_only_connections_have_is_refused() {
    for option in
        ["ssl", "backlog=5", "deferred", "fastopen=3", "so_keepalive=on", "proxy_protocol"]
    {
        let conf = "events {} stream { server { listen 127.0.0.1:1 udp OPTION; return x; } }";
        let said = run_cli(&["-t"], &conf.replace("OPTION", option));
        let name = option.split('=').next().unwrap_or_default();
        let text =
            format!("\"listen\" directive \"{name}\" parameter is incompatible with \"udp\"");
        assert!(said.code == 1 && said.stderr.contains(&text), "{}", said.stderr);
    }
}

/// Asks until a change is seen, so that nothing depends on when the workers hear of it.
fn reload(server: &mut Server, conf: &str, client: &Client, wanted: &str) {
    server.reload(conf, || client.ask("x") == wanted);
}

#[test]
fn sockets_are_kept_added_and_let_go_of() {
    let conf = |workers: u32, more: &str| {
        format!(
            "worker_processes {workers}; events {{}} error_log %%DIR%%/error.log info; stream {{
                server {{ listen 127.0.0.1:%%PORT_0%% udp reuseport; return \"{workers}{more}\"; }}
                server {{ listen 127.0.0.1:%%PORT_1%% udp; return \"{workers}\"; }} }}"
        )
    };
    let mut server = Server::start(&conf(3, "a"));
    for (workers, more) in [(1, "b"), (4, "c"), (2, "d")] {
        let wanted = format!("{workers}{more}");
        let client = Client::of(&server, 0);
        reload(&mut server, &conf(workers, more), &client, &wanted);
        // Whichever worker they come to, all are answered, and by the new configuration.
        for _ in 0..32 {
            let client = Client::of(&server, 0);
            expect_soon("a new answer", || client.ask("x") == wanted);
        }
        assert_eq!(Client::of(&server, 1).ask("x"), workers.to_string());
    }
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
}

/// A server that answers each datagram with the port that it came from and its text, so often as its
/// first character says.
struct Echo(u16);

impl Echo {
    fn start() -> Echo {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut buf = vec![0; 70_000];
            while let Ok((n, from)) = socket.recv_from(&mut buf) {
                let times = char::from(*buf[..n].first().unwrap_or(&b'1')).to_digit(10);
                let mut answer = format!("{} ", from.port()).into_bytes();
                answer.extend_from_slice(&buf[..n]);
                answer.truncate(65_507);
                for _ in 0..times.unwrap_or(1) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Echo(port)
    }
}

fn proxied(echo: &Echo, more: &str) -> Server {
    let conf = "events {} error_log %%DIR%%/error.log info; stream {
        server { listen 127.0.0.1:%%PORT_0%% udp; proxy_pass 127.0.0.1:%%ECHO%%; %%MORE%% } }";
    Setup::new(conf).set("ECHO", echo.0).set("MORE", more).start()
}

/// The server's side of a session, by its port.
fn side(answer: &str) -> &str {
    answer.split(' ').next().unwrap_or_default()
}

#[test]
fn each_client_has_a_session() {
    let echo = Echo::start();
    let server = proxied(&echo, "");
    let (one, two) = (Client::of(&server, 0), Client::of(&server, 0));
    let (first, second) = (one.ask("1a"), two.ask("1b"));
    assert_ne!(side(&first), side(&second));
    for text in ["1", "1x", "1yy"] {
        assert_eq!(one.ask(text), format!("{} {text}", side(&first)));
        assert_eq!(two.ask(text), format!("{} {text}", side(&second)));
    }
    assert_eq!(one.ask(""), format!("{} ", side(&first)));
    one.send("3");
    (0..3).for_each(|_| assert_eq!(one.read(), format!("{} 3", side(&first)).into_bytes()));
    server.expect_error("udp client 127.0.0.1:");
    server.expect_error("udp proxy 127.0.0.1:");
}

/// nginx cuts off what does not fit in `proxy_buffer_size`, except of the first.
#[test]
fn large_datagrams_pass_whole() {
    let echo = Echo::start();
    let server = proxied(&echo, "");
    let client = Client::of(&server, 0);
    let large = vec![b'x'; 65_000];
    for _ in 0..2 {
        let answer = client.ask(&large);
        assert_eq!(answer.len(), side(&answer).len() + 1 + large.len());
    }
}

#[test]
fn so_many_requests_and_responses_are_a_session() {
    let echo = Echo::start();
    let server = proxied(&echo, "proxy_requests 2; proxy_responses 2;");
    let client = Client::of(&server, 0);
    (0..6).for_each(|_| client.send("2"));
    let answers: Vec<Vec<u8>> = (0..12).map(|_| client.read()).collect();
    let mut sides: Vec<String> =
        answers.iter().map(|a| side(&String::from_utf8_lossy(a)).to_string()).collect();
    sides.sort();
    sides.dedup_by(|a, b| a == b);
    assert_eq!(sides.len(), 3, "{sides:?}");
    server.expect_error("udp done, packets from/to client:2/4, bytes from/to client:2/");
}

#[test]
fn quiet_sessions_end() {
    let echo = Echo::start();
    let server = proxied(&echo, "proxy_timeout 300ms;");
    let client = Client::of(&server, 0);
    let before = client.ask("1").to_string();
    server.expect_error("udp timed out, packets from/to client:1/1, bytes from/to client:1/");
    assert_ne!(side(&client.ask("1")), side(&before));
    // One that owes answers has failed.
    let server = proxied(&echo, "proxy_timeout 300ms; proxy_responses 2;");
    assert!(Client::of(&server, 0).ask("1").ends_with(" 1"));
    server.expect_error(
        "upstream timed out (110: Connection timed out) while proxying connection, udp client: \
         127.0.0.1, server: 127.0.0.1:",
    );
}

#[test]
fn refusals_do_not_end_a_session() {
    let port = free_port();
    let conf = "events {} error_log %%DIR%%/error.log info; stream { server {
        listen 127.0.0.1:%%PORT_0%% udp; proxy_pass 127.0.0.1:%%TO%%; } }";
    let server = Setup::new(conf).set("TO", port).start();
    let client = Client::of(&server, 0);
    for n in 1..4 {
        client.send("1");
        let refused = || server.error_log().matches("recv() failed (111").count() == n;
        expect_soon("one more refusal", refused);
    }
    let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    client.send("question");
    let mut buf = [0; 100];
    let (_, from) = socket.recv_from(&mut buf).unwrap();
    socket.send_to(b"answer", from).unwrap();
    assert_eq!(client.read(), b"answer");
    assert_eq!(server.error_log().matches("udp client 127").count(), 1);
}

#[test]
fn a_server_that_is_not_there_is_left_out_next_time() {
    let echo = Echo::start();
    let conf = "events {} error_log %%DIR%%/error.log info; stream {
        upstream u { server 127.0.0.1:%%PORT_9%%; server 127.0.0.1:%%ECHO%% backup; }
        server { listen 127.0.0.1:%%PORT_0%% udp; proxy_pass u; proxy_responses 1; } }";
    let server = Setup::new(conf).set("ECHO", echo.0).start();
    let client = Client::of(&server, 0);
    client.send("1");
    server.expect_error(
        "recv() failed (111: Connection refused) while proxying and reading from upstream, \
         udp client: 127.0.0.1",
    );
    server.expect_error("udp done, packets from/to client:1/1, bytes from/to client:1/0");
    assert!(client.ask("1").ends_with(" 1"));
}

#[test]
fn servers_are_told_of_the_client_in_front_of_the_first_datagram() {
    let echo = Echo::start();
    let server = proxied(&echo, "proxy_protocol on;");
    let client = Client::of(&server, 0);
    let line = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", client.port(), server.port(0));
    let first = client.ask("1");
    assert_eq!(first, format!("{} {line}1", side(&first)));
    assert_eq!(client.ask("1"), format!("{} 1", side(&first)));
}

#[test]
fn sessions_stay_with_their_server_over_reloads() {
    let echo = Echo::start();
    let conf = |workers: u32, reuseport: &str| {
        format!(
            "worker_processes {workers}; events {{}} error_log %%DIR%%/error.log info; stream {{
            server {{ listen 127.0.0.1:%%PORT_0%% udp {reuseport}; proxy_pass 127.0.0.1:{}; }}
            server {{ listen 127.0.0.1:%%PORT_1%% udp; return {workers}{reuseport}; }} }}",
            echo.0
        )
    };
    let mut server = Server::start(&conf(3, "reuseport"));
    let clients: Vec<Client> = (0..24).map(|_| Client::of(&server, 0)).collect();
    let sides: Vec<String> = clients.iter().map(|c| side(&c.ask("1")).to_string()).collect();
    let steps = [(1, "reuseport"), (4, "reuseport"), (2, "reuseport"), (2, ""), (3, ""), (1, "")];
    for (workers, reuseport) in steps {
        let other = Client::of(&server, 1);
        let wanted = format!("{workers}{reuseport}");
        server.reload(&conf(workers, reuseport), || other.ask("x") == wanted);
        for (client, before) in clients.iter().zip(&sides) {
            for _ in 0..3 {
                assert_eq!(&client.ask("1"), &format!("{before} 1"), "{workers} {reuseport}");
            }
        }
    }
}

#[test]
fn names_are_asked_for_through_it() {
    let dns = Dns::start();
    dns.set_ip("a.example", 60, [192, 0, 2, 7].into());
    let origin = Origin::replying("HTTP/1.0 200 OK\r\n\r\nhello");
    dns.set_ip("origin.example", 60, [127, 0, 0, 1].into());
    let conf = "events {} error_log %%DIR%%/error.log info;
        stream { server {
            listen 127.0.0.1:%%PORT_1%% udp; proxy_pass %%DNS%%; proxy_responses 1;
            proxy_timeout 5s; } }
        http { resolver 127.0.0.1:%%PORT_1%% ipv6=off; server { listen 127.0.0.1:%%PORT_0%%;
            location / { set $to origin.example; proxy_pass http://$to:%%ORIGIN%%; } } }";
    let server = Setup::new(conf).set("DNS", dns.address()).set("ORIGIN", origin.port()).start();
    assert_eq!(server.get("/").text(), "hello");
    server.expect_error("udp done, packets from/to client:1/1");
}

#[test]
fn log_lines_go_through_it() {
    let log = UdpSocket::bind("127.0.0.1:0").unwrap();
    log.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let conf = "events {}
        stream { server {
            listen 127.0.0.1:%%PORT_1%% udp; proxy_pass 127.0.0.1:%%LOG%%; proxy_responses 0; } }
        http { server { listen 127.0.0.1:%%PORT_0%%;
            access_log syslog:server=127.0.0.1:%%PORT_1%%; return 200 ok; } }";
    let server = Setup::new(conf).set("LOG", log.local_addr().unwrap().port()).start();
    for i in 0..5 {
        server.get(&format!("/line-{i}"));
        let mut buf = [0; 2000];
        let n = log.recv(&mut buf).expect("a line");
        let line = String::from_utf8_lossy(&buf[..n]).into_owned();
        assert!(line.contains(&format!("GET /line-{i} ")), "{line}");
    }
}

/// nginx drops what comes meanwhile.
#[test]
fn rates_hold_datagrams_back() {
    let echo = Echo::start();
    let server = proxied(&echo, "proxy_upload_rate 1000;");
    let client = Client::of(&server, 0);
    let begun = std::time::Instant::now();
    let text = "1".repeat(1500);
    assert!(client.ask(&text).ends_with(&text));
    // Nothing more until the seconds are over that were used up.
    client.send("1");
    assert!(client.read().ends_with(b" 1"));
    assert!(begun.elapsed() >= Duration::from_millis(450), "{:?}", begun.elapsed());
}

#[test]
fn forged_addresses_take_no_more_sessions_than_there_are_connections() {
    let echo = Echo::start();
    let conf = "worker_processes 1; events { worker_connections 24; }
        error_log %%DIR%%/error.log info;
        stream { server { listen 127.0.0.1:%%PORT_0%% udp; proxy_pass 127.0.0.1:%%ECHO%%; } }";
    let server = Setup::new(conf).set("ECHO", echo.0).start();
    let known = Client::of(&server, 0);
    let before = known.ask("1");
    let others: Vec<Client> = (0..100).map(|_| Client::of(&server, 0)).collect();
    for client in &others {
        client.send("1");
        // Those that have sessions are served on.
        assert_eq!(known.ask("1"), before);
    }
    server.expect_error("24 worker_connections are not enough");
    let begun = server.error_log().matches("udp client ").count();
    assert!((2..=24).contains(&begun), "{begun} sessions");
}

#[test]
fn sessions_end_with_the_process() {
    let echo = Echo::start();
    let mut server = proxied(&echo, "");
    let client = Client::of(&server, 0);
    assert!(client.ask("1").ends_with(" 1"));
    server.signal(Signal::Quit);
    // nginx waits for the session's timeout, or the next datagram.
    assert_eq!(server.wait_exit(), Some(0));
    server.expect_error("disconnected on shutdown");
}

#[test]
fn answers_that_are_owed_are_waited_for_when_the_process_ends() {
    let slow = UdpSocket::bind("127.0.0.1:0").unwrap();
    let conf = "events {} error_log %%DIR%%/error.log info; stream { server {
        listen 127.0.0.1:%%PORT_0%% udp; proxy_pass 127.0.0.1:%%SLOW%%; proxy_responses 1; } }";
    let mut server = Setup::new(conf).set("SLOW", slow.local_addr().unwrap().port()).start();
    let client = Client::of(&server, 0);
    client.send("question");
    let mut buf = [0; 100];
    let (_, from) = slow.recv_from(&mut buf).unwrap();
    server.signal(Signal::Quit);
    server.expect_error("gracefully shutting down");
    slow.send_to(b"answer", from).unwrap();
    assert_eq!(client.read(), b"answer");
    assert_eq!(server.wait_exit(), Some(0));
}

/// The numbers of the sockets on a port.
fn inodes(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    let local = format!(":{port:04X}");
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    let rows = table.lines().map(words).filter(|w| w.len() > 9 && w[1].ends_with(&local));
    let mut found: Vec<String> = rows.map(|w| w[9].clone()).collect();
    found.sort();
    found
}

#[test]
fn sockets_go_to_a_new_program() {
    let mut server = Server::start(
        "daemon on; pid %%DIR%%/the.pid; worker_processes 2; events {} stream {
            server { listen 127.0.0.1:%%PORT_0%% udp reuseport; return ok; } }",
    );
    let (old, sockets) = (server.pid(), inodes(server.port(0)));
    assert_eq!(sockets.len(), 2);
    server.signal(Signal::Usr2);
    let pid = || server.read("the.pid").trim().parse::<u32>().ok();
    expect_soon("the new one writes its pid", || {
        pid().is_some_and(|pid| pid != old) && server.dir().join("the.pid.oldbin").exists()
    });
    let new = pid().unwrap_or(0);
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    for _ in 0..8 {
        assert_eq!(Client::of(&server, 0).ask("x"), "ok");
    }
    assert_eq!(inodes(server.port(0)), sockets);
    weir_tests::signal(new, Signal::Term);
    expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
}
