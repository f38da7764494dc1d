//! `proxy_pass` in stream: bytes both ways, servers tried in turn, sessions over reloads.

use std::time::Instant;
use weir_tests::{expect_soon, Client, Origin, Server, Setup, Signal};

/// Answers each line with itself in brackets.
fn echo() -> Origin {
    Origin::start_raw(|conn, id| {
        while let Some(line) = conn.read_until(b"\n") {
            let line = String::from_utf8_lossy(&line).trim_end().to_string();
            conn.write(format!("{id}[{line}]\n"));
        }
    })
}

fn ask(client: &mut Client, line: &str) -> String {
    client.send(format!("{line}\n").as_bytes());
    String::from_utf8_lossy(&client.read_until(b"\n")).trim_end().to_string()
}

fn server(origin: &Origin, more: &str) -> Server {
    let conf = "events {} error_log %%DIR%%/error.log info; stream {
        upstream u { server %%ORIGIN%%; }
        server { listen 127.0.0.1:%%PORT_0%%; proxy_pass u; %%MORE%% } }";
    Setup::new(conf).set("ORIGIN", origin.address()).set("MORE", more).start()
}

#[test]
fn bytes_go_both_ways() {
    let origin = echo();
    let server = server(&origin, "");
    let (mut one, mut two) = (server.on(0).connect(), server.on(0).connect());
    for i in 0..3 {
        let line = format!("line {i}");
        assert!(ask(&mut one, &line).ends_with(&format!("[{line}]")));
        assert!(ask(&mut two, &line).ends_with(&format!("[{line}]")));
    }
    drop(one);
    server.expect_error(
        "client disconnected, bytes from/to client:21/30, bytes from/to upstream:30/21",
    );
    server.expect_error("connected to 127.0.0.1:");
}

#[test]
fn much_goes_both_ways() {
    const BYTES: usize = 24 << 20;
    let origin = Origin::start_raw(|conn, _| {
        let data: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
        let got = conn.read_exactly(BYTES).unwrap_or_default();
        conn.write(if got == data { &data[..] } else { b"wrong" });
    });
    let server = server(&origin, "");
    let data: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
    let mut client = server.on(0).connect();
    client.send(&data);
    let answer = client.read_to_end();
    assert!(answer == data, "{} bytes", answer.len());
}

#[test]
fn a_half_that_is_closed_leaves_the_other_open() {
    let origin = Origin::start_raw(|conn, _| {
        let mut all = Vec::new();
        while let Some(byte) = conn.read_exactly(1) {
            all.extend(byte);
        }
        conn.write(format!("{} bytes", all.len()));
    });
    let server = server(&origin, "proxy_half_close on;");
    let mut client = server.on(0).connect();
    client.send(b"hello");
    client.shutdown_write();
    assert_eq!(client.read_to_end(), b"5 bytes");
}

#[test]
fn another_server_is_tried() {
    let origin = echo();
    let conf = "events {} error_log %%DIR%%/error.log info; stream {
        upstream u { server 127.0.0.1:%%PORT_8%%; server %%ORIGIN%% backup; }
        server { listen 127.0.0.1:%%PORT_0%%; proxy_pass u; }
        server { listen 127.0.0.1:%%PORT_1%%; proxy_pass u; proxy_next_upstream off; }
        server { listen 127.0.0.1:%%PORT_2%%; proxy_pass 127.0.0.1:%%PORT_8%%; } }";
    let server = Setup::new(conf).set("ORIGIN", origin.address()).start();
    assert_eq!(server.on(2).raw(b"a"), b"");
    assert_eq!(server.on(1).raw(b"a"), b"");
    assert_eq!(ask(&mut server.on(0).connect(), "x"), "0[x]");
    server.expect_error(
        "connect() failed (111: Connection refused) while connecting to upstream, \
         client: 127.0.0.1, server: 127.0.0.1:",
    );
}

#[test]
fn servers_are_told_of_the_client() {
    let origin = Origin::start_raw(|conn, _| {
        let line = conn.read_until(b"\n").unwrap_or_default();
        conn.write(line);
    });
    let server = server(&origin, "proxy_protocol on;");
    let mut client = server.on(0).connect();
    client.send(b"x\n");
    let told = String::from_utf8_lossy(&client.read_to_end()).into_owned();
    let wanted =
        format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", client.local_port(), server.port(0));
    assert_eq!(told, wanted);
}

#[test]
fn the_header_names_the_client_that_a_trusted_proxy_names() {
    let origin = echo();
    let conf = "events {} stream { server { listen 127.0.0.1:%%PORT_0%% proxy_protocol;
        set_real_ip_from 127.0.0.0/8; proxy_protocol on; proxy_pass %%ORIGIN%%; } }";
    let server = Setup::new(conf).set("ORIGIN", origin.address()).start();
    let mut client = server.on(0).connect();
    client.send(b"PROXY TCP4 192.0.2.1 192.0.2.2 1234 5678\r\n");
    let port = server.port(0);
    let seen = ask(&mut client, "x");
    assert!(seen.ends_with(&format!("[PROXY TCP4 192.0.2.1 127.0.0.1 1234 {port}]")), "{seen}");
}

#[test]
fn a_quiet_session_ends() {
    let origin = echo();
    let server = server(&origin, "proxy_timeout 300ms;");
    let mut client = server.on(0).connect();
    assert_eq!(ask(&mut client, "x"), "0[x]");
    let quiet_since = Instant::now();
    assert!(client.is_closed());
    assert!(quiet_since.elapsed().as_millis() >= 250);
    server.expect_error("connection timed out");
}

#[test]
fn a_session_that_outlives_the_time_for_it_is_ended() {
    let origin = echo();
    let conf = "worker_shutdown_timeout 300ms; events {} error_log %%DIR%%/error.log info;
        stream { server { listen 127.0.0.1:%%PORT_0%%; proxy_pass %%ORIGIN%%; } }";
    let mut server = Setup::new(conf).set("ORIGIN", origin.address()).start();
    let mut client = server.on(0).connect();
    assert_eq!(ask(&mut client, "x"), "0[x]");
    server.signal(Signal::Quit);
    assert!(client.is_closed());
    assert_eq!(server.wait_exit(), Some(0));
    server.expect_error("shutdown timeout");
}

#[test]
fn rates_hold_back() {
    let origin = Origin::start_raw(|conn, _| {
        conn.write(vec![b'x'; 3000]);
    });
    let server = server(&origin, "proxy_download_rate 1500;");
    let begun = Instant::now();
    assert_eq!(server.on(0).raw(b"").len(), 3000);
    assert!(begun.elapsed().as_millis() > 700, "{:?}", begun.elapsed());
}

#[test]
fn sessions_outlive_reloads() {
    let origin = echo();
    let conf = |workers: usize, answer: &str| {
        format!(
            "worker_processes {workers}; events {{}} error_log %%DIR%%/error.log info;
            http {{ server {{ listen 127.0.0.1:%%PORT_1%%; return 200 {answer}; }} }}
            stream {{ server {{ listen 127.0.0.1:%%PORT_0%%; proxy_pass {}; }} }}",
            origin.address()
        )
    };
    let mut server = Server::start(&conf(2, "r0"));
    let mut clients: Vec<Client> = (0..8).map(|_| server.on(0).connect()).collect();
    let names: Vec<String> = clients.iter_mut().map(|c| ask(c, "a")).collect();
    for i in 1..=20 {
        let (workers, answer) = (1 + i % 3, format!("r{i}"));
        let peer = server.on(1);
        server.reload(&conf(workers, &answer), || peer.get("/").text() == answer);
        for (client, name) in clients.iter_mut().zip(&names) {
            assert_eq!(&ask(client, "a"), name);
        }
    }
    assert_eq!(origin.connections(), 8);
    drop(clients);
    expect_soon("all sessions end", || {
        server.error_log().matches("client disconnected").count() == 8
    });
}
