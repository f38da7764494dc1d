//! Tengine's proxy_connect: a forward proxy for CONNECT beside what a server does for others.

use weir_tests::{free_port, run_cli, Client, Origin, Server, Setup};

const CONF: &str = r#"events {} http {
    log_format t '$status $connect_host|$connect_port|$connect_addr|$proxy_connect_connect_time|$proxy_connect_resolve_time|$proxy_connect_first_byte_time';
    server { listen 127.0.0.1:%%PORT_0%%; access_log %%DIR%%/t.log t; error_log %%DIR%%/error.log;
        proxy_connect; proxy_connect_allow %%ORIGIN_PORT%% 1-9;
        proxy_connect_connect_timeout 5s; proxy_connect_data_timeout 10s;
        allow 127.0.0.1; deny all;
        location / { root %%DIR%%; try_files /plain =404; } }
    server { listen 127.0.0.1:%%PORT_1%%; proxy_connect; proxy_connect_allow all;
        proxy_connect_address $target; proxy_connect_bind 127.0.0.1;
        proxy_connect_response "HTTP/1.1 200 Fine\r\nX-Addr: $connect_addr\r\n\r\n";
        set $target 127.0.0.1; location / { proxy_pass http://%%ORIGIN%%; } }
    server { listen 127.0.0.1:%%PORT_2%%; proxy_connect; proxy_connect_allow all;
        set $proxy_connect_data_timeout 50ms;
        set $proxy_connect_response "HTTP/1.1 200\r\nX-T: $proxy_connect_data_timeout\r\n\r\n"; }
    server { listen 127.0.0.1:%%PORT_3%%; proxy_connect; proxy_connect_allow all; proxy_connect_send_timeout 5s; proxy_connect_send_lowat 0;
        proxy_connect_response "HTTP/1.1 404 no\r\n\r\n"; }
    server { listen 127.0.0.1:%%PORT_4%%; proxy_connect; proxy_connect_allow all; proxy_connect_read_timeout 5s;
        proxy_connect_address $arg_none; deny all; }
}"#;

fn start(origin: &Origin) -> Server {
    let setup = Setup::new(CONF).set("ORIGIN", origin.address()).set("ORIGIN_PORT", origin.port());
    setup.file("html/index.html", "index").file("plain", "plain").start()
}

fn connect(server: &Server, at: usize, target: &str) -> (Client, String) {
    let mut client = server.on(at).connect();
    client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes());
    let head = client.read_until(b"\r\n\r\n");
    (client, String::from_utf8(head).unwrap())
}

#[test]
fn connections_become_one() {
    let origin = Origin::echo();
    let server = start(&origin);
    let target = format!("127.0.0.1:{}", origin.port());
    let (mut client, head) = connect(&server, 0, &target);
    assert!(head.starts_with("HTTP/1.1 200 Connection Established\r\n"), "{head}");
    assert!(head.contains("Proxy-agent: ") && !head.contains("Date: "), "{head}");
    assert!(client.get("/through").text().contains("GET /through"));
    drop(client);
    let line = server.log_lines("t.log", 1).remove(0);
    let begin = format!("200 127.0.0.1|{}|{target}|0.", origin.port());
    assert!(line.starts_with(&begin), "{line}");
    let first = line.rsplit('|').next().unwrap();
    assert!(first.parse::<f64>().is_ok_and(|secs| secs >= 0.0), "{line}");
    assert_eq!(server.get("/").text(), "plain");
}

/// A side that takes nothing says nothing either.
#[test]
fn a_target_that_does_not_read_is_not_waited_for_longer() {
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = deaf.local_addr().unwrap().port();
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log info;
        proxy_connect; proxy_connect_allow all; proxy_connect_data_timeout 300ms; } }",
    );
    let (mut client, _) = connect(&server, 0, &format!("127.0.0.1:{port}"));
    let (target, _) = deaf.accept().unwrap();
    let begun = std::time::Instant::now();
    while client.try_send(&[b'x'; 65536]) {}
    assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    drop(target);
}

#[test]
fn who_may_not_is_refused() {
    let origin = Origin::echo();
    let server = start(&origin);
    let (_, head) = connect(&server, 0, "127.0.0.1:10");
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    server.expect_error("proxy_connect: port 10 is not allowed");
    let (_, head) = connect(&server, 4, &format!("127.0.0.1:{}", origin.port()));
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let (_, head) = connect(&server, 1, &format!("127.0.0.1:{}", free_port()));
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
}

/// What the server closes no location opens, and what a location answers is for other requests.
#[test]
fn locations_have_no_part_in_it() {
    let origin = Origin::echo();
    let server = Setup::new(
        "events {} http {
            server { listen 127.0.0.1:%%PORT_0%%; proxy_connect; proxy_connect_allow all; deny all;
                location / { allow all; root %%DIR%%; } }
            server { listen 127.0.0.1:%%PORT_1%%; proxy_connect; proxy_connect_allow all;
                auth_basic x; auth_basic_user_file %%DIR%%/nobody; location / { auth_basic off; root %%DIR%%; } }
            server { listen 127.0.0.1:%%PORT_2%%; proxy_connect; proxy_connect_allow all;
                location / { return 403 no; } }
            server { listen 127.0.0.1:%%PORT_3%%; proxy_connect; proxy_connect_allow all;
                location / { deny all; } } }",
    )
    .file("nobody", "")
    .file("plain", "plain")
    .start();
    let target = format!("127.0.0.1:{}", origin.port());
    for (at, line) in [(0, "403 "), (1, "407 "), (2, "200 "), (3, "200 ")] {
        let (_, head) = connect(&server, at, &target);
        assert!(head.starts_with(&format!("HTTP/1.1 {line}")), "{at}: {head}");
    }
    assert_eq!(server.on(0).get("/plain").status, 200);
    assert_eq!(server.on(2).get("/plain").status, 403);
}

#[test]
fn address_and_answer_are_the_configurations() {
    let origin = Origin::echo();
    let server = start(&origin);
    let (mut client, head) = connect(&server, 1, &format!("nobody.example:{}", origin.port()));
    assert!(head.starts_with("HTTP/1.1 200 Fine\r\n"), "{head}");
    assert!(head.contains(&format!("X-Addr: {}\r\n", origin.address())), "{head}");
    assert!(client.get("/through").text().contains("GET /through"));
    assert!(server.on(1).get("/proxied").text().contains("GET /proxied"));
    let (_, head) = connect(&server, 3, &origin.address());
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    // A silent tunnel ends when the request has said so.
    let (mut client, head) = connect(&server, 2, &origin.address());
    assert!(head.starts_with("HTTP/1.1 200\r\n") && head.contains("X-T: 50\r\n"), "{head}");
    assert_eq!(client.read_to_end(), b"");
    assert_eq!(server.on(2).get("/").text(), "index");
}

#[test]
fn what_is_set_must_make_sense() {
    for (line, error) in [
        ("proxy_connect_allow 0;", "invalid value \"0\""),
        ("proxy_connect_allow 9-1;", "invalid value \"9-1\""),
        ("proxy_connect_allow 1-2-3;", "invalid value \"1-2-3\""),
        ("proxy_connect_data_timeout 1s; proxy_connect_read_timeout 1s;", "is duplicate"),
        ("proxy_connect; proxy_connect;", "is duplicate"),
    ] {
        let told = run_cli(&["-t"], &format!("events {{}} http {{ server {{ {line} }} }}")).stderr;
        assert!(told.contains(error), "{line}: {told}");
    }
}
