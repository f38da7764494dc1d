//! What the error log and variables tell of a session's servers: failures, who has reset, times.

use crate::stream_core::hello;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use weir_tests::tls;
use weir_tests::{expect_soon, run_cli, Origin, Server, Setup};

/// The lines about a session, without the date and the numbers of process and connection.
fn line(server: &Server, text: &str) -> String {
    server.expect_error(text);
    let log = server.error_log();
    let line = log.lines().find(|line| line.contains(text)).unwrap_or_default();
    let level = line.find('[').unwrap_or_default();
    let words = line.find(text).unwrap_or_default();
    format!("{} {}", line[level..].split(' ').next().unwrap_or_default(), &line[words..])
}

#[test]
fn servers_that_are_left_out_are_told_of() {
    let server = Setup::new(
        "events {} stream { error_log %%DIR%%/error.log warn;
            log_format t '$upstream_connect_time|$upstream_first_byte_time|$upstream_session_time';
            access_log %%DIR%%/t.log t;
            upstream u { server 127.0.0.1:%%PORT_8%%; server 127.0.0.1:%%PORT_9%%; }
            server { listen 127.0.0.1:%%PORT_0%%; proxy_pass u; }
            server { listen 127.0.0.1:%%PORT_1%% udp; proxy_pass v; proxy_responses 1;
                proxy_timeout 200ms; access_log off; }
            upstream v { server 127.0.0.1:%%PORT_8%%; server 127.0.0.1:%%PORT_9%%; }
        }",
    )
    .start();
    assert_eq!(server.on(0).raw(b"a"), b"");
    let (at, first) = (server.port(0), server.port(8));
    let disabled = "upstream server temporarily disabled while connecting to upstream";
    let wanted = format!(
        "[warn] {disabled}, client: 127.0.0.1, server: 127.0.0.1:{at}, \
         upstream: \"127.0.0.1:{first}\", bytes from/to client:0/0, bytes from/to upstream:0/0"
    );
    assert_eq!(line(&server, disabled), wanted);
    expect_soon("both", || server.error_log().matches(disabled).count() == 2);
    // Nobody is left.
    assert_eq!(server.on(0).raw(b"a"), b"");
    // Each time is digits.
    let shape = |line: &String| line.replace(|c: char| c.is_ascii_digit() || c == '.', "");
    let lines = server.log_lines("t.log", 2);
    assert_eq!(lines.iter().map(shape).collect::<Vec<_>>(), ["-, -|-, -|, ", "-|-|"], "{lines:?}");
    assert!(lines[1].ends_with("|0.000"), "{lines:?}");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"x", ("127.0.0.1", server.port(1))).unwrap();
    let disabled = "upstream server temporarily disabled while proxying";
    server.expect_error(disabled);
    assert!(line(&server, disabled).contains(", udp client: 127.0.0.1, server: 127.0.0.1:"));
}

#[test]
fn it_is_told_who_has_reset() {
    let origin = Origin::start_raw(|conn, _| {
        let first = conn.read_until(b"\n");
        conn.write("123");
        match first.as_deref() {
            Some(b"end\n") => conn.will_reset(),
            _ => {
                conn.wait_closed();
            }
        }
    });
    let server = Setup::new(
        "events {} stream { error_log %%DIR%%/error.log info;
            server { listen 127.0.0.1:%%PORT_0%%; proxy_pass 127.0.0.1:%%ORIGIN%%; } }",
    )
    .set("ORIGIN", origin.port())
    .start();
    let mut client = server.on(0).connect();
    client.send(b"end\n");
    client.read_to_end();
    let reset = "recv() failed (104: Connection reset by peer) while proxying and reading from";
    let (at, to) = (server.port(0), origin.port());
    let behind = format!("client: 127.0.0.1, server: 127.0.0.1:{at}, upstream: \"127.0.0.1:{to}\"");
    assert_eq!(
        line(&server, &format!("{reset} upstream")),
        format!(
            "[error] {reset} upstream, {behind}, bytes from/to client:4/3, \
             bytes from/to upstream:3/4"
        )
    );
    server.expect_error("upstream disconnected, bytes from/to client:4/3");
    let mut client = TcpStream::connect(("127.0.0.1", at)).unwrap();
    client.write_all(b"more\n").unwrap();
    client.read_exact(&mut [0; 3]).unwrap();
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert!(line(&server, &format!("{reset} client")).starts_with("[info]"));
    server.expect_error("client disconnected, bytes from/to client:5/3");
}

/// A server that says nothing has said so at once.
#[test]
fn an_end_without_a_byte_has_a_time() {
    let origin = Origin::start_raw(|conn, _| {
        if conn.read_until(b"reset").is_some() {
            conn.will_reset();
        }
    });
    let server = Setup::new(
        "events {} stream {
            log_format t '$upstream_first_byte_time'; access_log %%DIR%%/t.log t;
            server { listen 127.0.0.1:%%PORT_0%%; proxy_pass 127.0.0.1:%%ORIGIN%%; }
            server { listen 127.0.0.1:%%PORT_1%% udp; proxy_pass 127.0.0.1:%%PORT_9%%;
                proxy_responses 1; proxy_timeout 300ms; }
        }",
    )
    .set("ORIGIN", origin.port())
    .start();
    let mut client = server.on(0).connect();
    client.send(b"reset");
    client.read_to_end();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"x", ("127.0.0.1", server.port(1))).unwrap();
    for line in server.log_lines("t.log", 2) {
        assert!(line.parse::<f64>().is_ok(), "{line}");
    }
}

/// Before there is a server a line says of nothing that it is being done.
#[test]
fn what_cannot_be_found_is_told_as_it_is() {
    let server = Setup::new(
        "events {} stream { error_log %%DIR%%/error.log info;
            map '' $nothing { default ''; }
            map '' $name { default one.test:1; }
            server { listen 127.0.0.1:%%PORT_0%%; ssl_preread on; proxy_pass $nothing; }
            server { listen 127.0.0.1:%%PORT_1%%; proxy_pass $name; }
            server { listen 127.0.0.1:%%PORT_2%%; proxy_pass 127.0.0.1:%%PORT_1%%;
                proxy_download_rate $name; } }",
    )
    .start();
    server.on(0).raw(b"no hello at all");
    assert!(line(&server, "no host in upstream")
        .starts_with("[error] no host in upstream \"\", client"));
    server.on(1).raw(b"");
    let text = "no resolver defined to resolve one.test";
    assert!(line(&server, text).starts_with(&format!("[error] {text}, client: 127.0.0.1")));
    server.on(2).raw(b"");
    assert!(line(&server, "invalid size").starts_with("[error] invalid size \"one.test:1\""));
}

#[test]
fn sizes_that_are_none_are_refused() {
    let conf = |line: &str| {
        format!("events {{}} stream {{ server {{ listen 127.0.0.1:1; proxy_pass 127.0.0.1:2; {line} }} }}")
    };
    for value in ["foo", "-5", "10x", "1mb"] {
        for name in ["proxy_download_rate", "proxy_upload_rate"] {
            let out = run_cli(&["-t"], &conf(&format!("{name} {value};")));
            let wanted = format!("\"{name}\" directive invalid value");
            assert!(out.code != 0 && out.stderr.contains(&wanted), "{value}: {}", out.stderr);
        }
    }
    for good in ["proxy_download_rate 1m; proxy_upload_rate 0;", "proxy_download_rate $protocol;"] {
        assert_eq!(run_cli(&["-t"], &conf(good)).code, 0, "{good}");
    }
    for name in ["proxy_upstream_buffer", "proxy_downstream_buffer"] {
        let out = run_cli(&["-t"], &conf(&format!("{name} 8k;")));
        let wanted = format!(
            "the \"{name}\" directive is deprecated, use the \"proxy_buffer_size\" directive instead"
        );
        assert!(out.code == 0 && out.stderr.contains(&wanted), "{}", out.stderr);
        let twice = run_cli(&["-t"], &conf(&format!("{name} 8k; proxy_buffer_size 8k;")));
        assert!(twice.stderr.contains("directive is duplicate"), "{}", twice.stderr);
    }
}

/// Nobody else is asked then: it is nothing that the server has done.
#[test]
fn there_is_no_socket_to_be_had() {
    let origin = Origin::start_raw(|conn, _| {
        conn.wait_closed();
    });
    let server = Setup::new(
        "worker_processes 1; worker_rlimit_nofile 60; events { worker_connections 200; }
        stream { error_log %%DIR%%/error.log info;
            log_format s $status; access_log %%DIR%%/s.log s;
            upstream u { server 127.0.0.1:%%ORIGIN%%; server 127.0.0.1:%%ORIGIN%%; }
            server { listen 127.0.0.1:%%PORT_0%%; proxy_pass u; }
            server { listen 127.0.0.1:%%PORT_1%%; ssl_preread on; return a; access_log off; }
        }",
    )
    .set("ORIGIN", origin.port())
    .start();
    let text = "socket() failed (24: Too many open files) while connecting to upstream";
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(server.on(1).connect());
        let mut client = server.on(0).connect();
        client.is_silent(Duration::from_millis(20));
        if server.error_log().contains(text) {
            break;
        }
    }
    drop(held);
    assert!(line(&server, text).starts_with("[alert]"));
    expect_soon("its line", || server.read("s.log").lines().any(|line| line == "500"));
    assert!(!server.error_log().contains("temporarily disabled"));
}

#[test]
fn handshakes_that_fail_are_told_of_in_openssls_words() {
    let own = tls::self_signed("localhost");
    let server = Setup::new(
        "events {} stream { error_log %%DIR%%/error.log info;
            server { listen 127.0.0.1:%%PORT_0%% ssl; return a;
                ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key; } }",
    )
    .file("a.crt", own.cert)
    .file("a.key", own.key)
    .start();
    let failed = |sent: &[u8], words: &str| {
        let mut client = server.on(0).connect();
        client.send(sent);
        client.shutdown_write();
        client.read_to_end();
        let told = line(&server, words);
        let wanted = format!("[info] {words} while SSL handshaking, client: 127.0.0.1, server:");
        assert!(told.starts_with(&wanted), "{told}");
    };
    let ssl = |words: &str| format!("SSL_do_handshake() failed (SSL: error:{words})");
    failed(b"GET / HTTP/1.0\r\n\r\n", &ssl("0A00009C:SSL routines::http request"));
    failed(b"SSH-2.0-OpenSSH\r\n", &ssl("0A00010B:SSL routines::wrong version number"));
    failed(&hello("a")[..30], "peer closed connection in SSL handshake");
}
