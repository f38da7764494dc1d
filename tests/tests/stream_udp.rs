//! Datagrams in stream: sessions by the client's address, what they are answered, how they live on.

use std::net::UdpSocket;
use std::time::Duration;
use weir_tests::{expect_soon, run_cli, Server, Signal};

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
        reload(&mut server, &conf(workers, more), &&client, &wanted);
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
