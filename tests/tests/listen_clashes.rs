//! Addresses that cannot be listened on: another block has them, or another program, or the server itself.

use weir_tests::{run_cli, CliOutput, Server};

fn is_weir() -> bool {
    !weir_tests::binary().ends_with("nginx")
}

fn emergencies(said: &str) -> Vec<&str> {
    said.lines().filter(|l| l.contains("[emerg]")).collect()
}

/// A start, and a test; nginx's does not find this.
fn tries() -> &'static [&'static [&'static str]] {
    if is_weir() {
        &[&["-t"], &[]]
    } else {
        &[&[]]
    }
}

fn expect_both_places(said: &str, dir: &str, port: u16) {
    let told = emergencies(said);
    if is_weir() {
        let want = format!(
            "a duplicate listen 127.0.0.1:{port}: \"http\" has it already in {dir}/nginx.conf:2, and \
             \"stream\" in {dir}/nginx.conf:3"
        );
        assert!(told[0].ends_with(&want), "{said}");
        assert_eq!(told.len(), 1, "{said}");
    } else {
        assert!(told[0].contains("Address already in use"), "{said}");
    }
}

/// The same as two servers of one block, but of two protocols: a connection can only be of one.
#[test]
fn an_address_is_of_one_protocol() {
    let http = "events {} http { server {\nlisten 127.0.0.1:%%PORT_0%%; return 200 web; } }";
    let both =
        format!("{http} stream {{ server {{\nlisten 127.0.0.1:%%PORT_0%%; return stream; }} }}");
    let mut server = Server::start(http);
    let (port, dir) = (server.port(0), server.dir().display().to_string());
    server.replace_conf(&both);
    server.signal(weir_tests::Signal::Hup);
    server.expect_error("[emerg]");
    expect_both_places(&server.error_log(), &dir, port);
    for _ in 0..10 {
        assert_eq!(server.get("/").text(), "web");
    }
    drop(server);
    for args in tries() {
        let CliOutput { code, stderr, .. } =
            run_cli(args, &both.replace("%%PORT_0%%", &port.to_string()));
        assert_eq!(code, 1, "{stderr}");
        expect_both_places(&stderr, "DIR", port);
    }
}

#[test]
fn neither_is_part_of_what_another_protocol_has_all_of() {
    let port = weir_tests::free_port();
    for (http, stream) in [("", "127.0.0.1:"), ("127.0.0.2:", ""), ("[::]:", "[::1]:")] {
        let conf = |more: &str| {
            format!(
                "events {{}} stream {{ server {{ listen {stream}{port}{more}; return x; }} }}
                http {{ server {{ listen {http}{port}{more}; }} }}"
            )
        };
        for args in tries() {
            let said = run_cli(args, &conf(""));
            assert_eq!(said.code, 1, "{}", said.stderr);
            if is_weir() {
                let told = emergencies(&said.stderr);
                assert!(told[0].contains("\"stream\" has "), "{}", said.stderr);
                assert!(told[0].ends_with("and \"http\" in DIR/nginx.conf:2"), "{}", said.stderr);
            }
        }
        // The kernel has nothing against it then.
        assert_eq!(run_cli(&["-t"], &conf(" reuseport")).code, 0);
    }
}

#[test]
fn one_port_may_be_of_two_protocols_at_two_addresses() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 200 web; } }
        stream { server { listen 127.0.0.2:%%PORT_0%%; return stream; }
            server { listen 127.0.0.1:%%PORT_0%% udp; return datagram; } }",
    );
    assert_eq!(server.get("/").text(), "web");
}

/// All of them, and not one at each try.
#[test]
fn every_port_that_is_taken_is_told() {
    let taken: Vec<_> =
        (0..3).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = taken.iter().map(|t| t.local_addr().unwrap().port()).collect();
    let listens: String = ports.iter().map(|p| format!("listen 127.0.0.1:{p}; ")).collect();
    let said = run_cli(&[], &format!("events {{}} http {{ server {{ {listens} }} }}"));
    assert_eq!(said.code, 1);
    for port in ports {
        let text =
            format!("[emerg] bind() to 127.0.0.1:{port} failed (98: Address already in use)");
        assert!(said.stderr.contains(&text), "{}", said.stderr);
    }
    assert!(said.stderr.contains("[emerg] still could not bind()"));
}

#[test]
fn what_the_server_itself_has_is_told_as_that() {
    let conf = |addr: &str| {
        format!("events {{}} http {{ server {{ listen {addr}%%PORT_0%%; return 200 ok; }} }}")
    };
    let mut server = Server::start(&conf(""));
    let port = server.port(0);
    server.replace_conf(&conf("127.0.0.1:"));
    server.signal(weir_tests::Signal::Hup);
    let text = format!("bind() to 127.0.0.1:{port} failed (98: Address already in use)");
    server.expect_error(&text);
    if is_weir() {
        server.expect_error(&format!("{text}; this server still listens on 0.0.0.0:{port}"));
        assert!(!server.error_log().contains("held by process"));
    }
    assert_eq!(server.get("/").text(), "ok");
}
