//! What can be listened on, and how.

use std::io::{Read, Write};
use weir_tests::{Peer, Server, Setup};

#[test]
fn addresses_select_servers() {
    let server = Server::start(
        "events {} http {
            server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 'first $server_addr'; } }
            server { listen %%PORT_0%%; location / { return 200 'wildcard $server_addr'; } }
            server { listen [::1]:%%PORT_0%% ipv6only=on; location / { return 200 'six $server_addr'; } }
            server { listen unix:%%DIR%%/sock; location / { return 200 'unix $server_addr $remote_addr'; } } }",
    );
    assert_eq!(server.get("/").text(), "first 127.0.0.1");
    let other = std::net::TcpStream::connect(("127.0.0.2", server.port(0)));
    assert!(other.is_ok());
    assert_eq!(Peer::Tcp6(server.port(0)).get("/").text(), "six ::1");
    let path = server.dir().join("sock");
    assert_eq!(server.unix("sock").get("/").text(), format!("unix unix:{} unix:", path.display()));
}

#[test]
fn a_unix_socket_is_removed_at_the_end() {
    let mut server =
        Server::start("events {} http { server { listen unix:%%DIR%%/sock; return 200 ok; } }");
    assert_eq!(server.unix("sock").get("/").text(), "ok");
    server.signal(weir_tests::Signal::Term);
    assert_eq!(server.wait_exit(), Some(0));
    assert!(!server.dir().join("sock").exists());
}

#[test]
fn options_are_accepted() {
    let server = Server::start(
        "worker_processes 2; events {} http { server {
            listen 127.0.0.1:%%PORT_0%% default_server reuseport backlog=64 rcvbuf=64k sndbuf=64k
                so_keepalive=30m::10 deferred;
            listen 127.0.0.1:%%PORT_1%% fastopen=5 bind accept_filter_off_is_unknown_here;
        } }"
        .replace(" accept_filter_off_is_unknown_here", "")
        .as_str(),
    );
    for port in [0, 1] {
        for _ in 0..10 {
            assert_eq!(server.on(port).get("/").status, 404);
        }
    }
}

#[test]
fn the_proxy_protocol_names_the_client() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%% proxy_protocol;
            error_log %%DIR%%/error.log info;
            location / { return 200 '$proxy_protocol_addr:$proxy_protocol_port $proxy_protocol_server_addr:$proxy_protocol_server_port $remote_addr'; }
            location /tlv { return 200 '$proxy_protocol_tlv_authority $proxy_protocol_tlv_0x02'; }
            location /real { set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol;
                return 200 '$remote_addr $realip_remote_addr'; }
        } }",
    );
    let get = |header: &[u8], path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        server.exchange("GET", &[header, request.as_bytes()].concat()).text()
    };
    let v1 = b"PROXY TCP4 192.0.2.1 198.51.100.2 123 5678\r\n";
    assert_eq!(get(v1, "/"), "192.0.2.1:123 198.51.100.2:5678 127.0.0.1");
    assert_eq!(get(b"PROXY UNKNOWN\r\n", "/"), ": : 127.0.0.1");
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x12".to_vec();
    v2.extend_from_slice(&[192, 0, 2, 9, 198, 51, 100, 2, 0, 80, 1, 187]);
    v2.extend_from_slice(b"\x02\x00\x03a.b");
    assert_eq!(get(&v2, "/"), "192.0.2.9:80 198.51.100.2:443 127.0.0.1");
    assert_eq!(get(&v2, "/tlv"), "a.b a.b");
    assert_eq!(get(v1, "/real"), "127.0.0.1 127.0.0.1");
    assert_eq!(server.raw(b"GET / HTTP/1.0\r\n\r\n"), b"");
    server.expect_error("broken header: \"GET / HTTP/1.0\" while reading PROXY protocol");
}

#[test]
fn real_addresses_are_taken_from_trusted_peers() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location / { set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8;
                real_ip_header X-Forwarded-For; try_files /none @show; }
            location /r { set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8;
                real_ip_header X-Forwarded-For; real_ip_recursive on; try_files /none @show; }
            location /x { set_real_ip_from 127.0.0.1; try_files /none @show; }
            location @show { return 200 '$remote_addr $realip_remote_addr'; }
        } }",
    )
    .start();
    for (path, header, text) in [
        ("/", "X-Forwarded-For: 1.1.1.1, 2.2.2.2", "2.2.2.2 127.0.0.1"),
        ("/", "X-Forwarded-For: 1.1.1.1, 10.2.2.2", "10.2.2.2 127.0.0.1"),
        ("/r", "X-Forwarded-For: 1.1.1.1, 10.2.2.2", "1.1.1.1 127.0.0.1"),
        ("/r", "X-Forwarded-For: nonsense, 10.2.2.2", "10.2.2.2 127.0.0.1"),
        ("/", "X-Forwarded-For: nonsense", "127.0.0.1 127.0.0.1"),
        ("/x", "X-Real-IP: 3.3.3.3", "3.3.3.3 127.0.0.1"),
        ("/x", "X-Forwarded-For: 3.3.3.3", "127.0.0.1 127.0.0.1"),
    ] {
        assert_eq!(server.get_with(path, &format!("{header}\r\n")).text(), text, "{path} {header}");
    }
}

/// Also where the addresses of a port share the wildcard's socket.
#[test]
fn the_proxy_protocol_is_each_addresss_own() {
    let server = Server::start(
        "events {} http {
            server { listen %%PORT_0%%; return 200 'plain $proxy_protocol_addr'; }
            server { listen 127.0.0.1:%%PORT_0%% proxy_protocol; return 200 'told $proxy_protocol_addr'; }
            server { listen %%PORT_1%% proxy_protocol; return 200 told; }
            server { listen 127.0.0.1:%%PORT_1%%; return 200 plain; } }",
    );
    let get = "GET / HTTP/1.0\r\n\r\n";
    let told = server.raw(format!("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n{get}").as_bytes());
    assert!(told.ends_with(b"told 1.2.3.4"));
    let mut other = std::net::TcpStream::connect(("127.0.0.2", server.port(0))).unwrap();
    other.write_all(get.as_bytes()).unwrap();
    let mut said = String::new();
    other.read_to_string(&mut said).unwrap();
    assert!(said.ends_with("plain "), "{said}");
    assert!(server.on(1).raw(get.as_bytes()).ends_with(b"plain"));
}
