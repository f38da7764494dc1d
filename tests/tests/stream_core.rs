//! The stream block: what servers do with a connection besides proxying it.

use weir_tests::{run_cli, Server};

fn text(server: &Server, port: usize, sent: &[u8]) -> String {
    String::from_utf8_lossy(&server.on(port).raw(sent)).into_owned()
}

#[test]
fn texts_with_variables_are_returned() {
    let server = Server::start(
        "events {} stream {
            server {
                listen 127.0.0.1:%%PORT_0%%;
                set $own \"own $remote_addr\";
                return \"$own|$server_port|$protocol|$status|$bytes_received|$pid\\n\";
            }
            server { listen 127.0.0.1:%%PORT_1%%; return \"\"; }
        }",
    );
    let said = text(&server, 0, b"");
    let fields: Vec<&str> = said.trim_end().split('|').collect();
    let port = server.port(0).to_string();
    assert_eq!(fields[..5], ["own 127.0.0.1", port.as_str(), "TCP", "000", "0"], "{said}");
    assert_eq!(text(&server, 1, b""), "");
}

#[test]
fn the_proxy_protocol_tells_of_the_client() {
    let server = Server::start(
        "events {} error_log %%DIR%%/error.log info; stream {
            server {
                listen 127.0.0.1:%%PORT_0%% proxy_protocol;
                return \"$proxy_protocol_addr:$proxy_protocol_port $proxy_protocol_server_addr\";
            }
        }",
    );
    let line = b"PROXY TCP4 192.0.2.1 198.51.100.2 123 456\r\n";
    assert_eq!(text(&server, 0, line), "192.0.2.1:123 198.51.100.2");
    assert_eq!(text(&server, 0, b"GET / HTTP/1.0\r\n\r\n"), "");
    server.expect_error("broken header: \"GET / HTTP/1.0");
    server.expect_error("while reading PROXY protocol, client: 127.0.0.1, server: 127.0.0.1:");
}

#[test]
fn a_connection_is_handed_to_another_socket() {
    let server = Server::start(
        "events {} error_log %%DIR%%/error.log info;
        http { server { listen 127.0.0.1:%%PORT_1%%; return 200 \"port $server_port\"; } }
        stream {
            server { listen 127.0.0.1:%%PORT_0%%; pass 127.0.0.1:%%PORT_1%%; }
            server { listen 127.0.0.1:%%PORT_2%%; pass 127.0.0.1:%%PORT_2%%; }
            server { listen 127.0.0.1:%%PORT_3%%; set $to 127.0.0.1:1; pass $to; }
        }",
    );
    assert_eq!(server.get("/").text(), format!("port {}", server.port(1)));
    assert_eq!(text(&server, 2, b"x"), "");
    server.expect_error("stream pass cycle while passing connection to port");
    assert_eq!(text(&server, 3, b""), "");
    server.expect_error("port not found for \"127.0.0.1:1\"");
}

/// A hello without any extension but the name.
pub fn hello(name: &str) -> Vec<u8> {
    hello_with(name, &[])
}

/// One with more of them.
pub fn hello_with(name: &str, more: &[u8]) -> Vec<u8> {
    let name = [&[0, 0, name.len() as u8][..], name.as_bytes()].concat();
    let list = [&[0, name.len() as u8][..], &name].concat();
    let extension = [&[0, 0, 0, list.len() as u8][..], &list, more].concat();
    let extensions = [&[0, extension.len() as u8][..], &extension].concat();
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat();
    let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    [&[22, 3, 1, 0, message.len() as u8][..], &message].concat()
}

#[test]
fn the_name_in_a_hello_chooses_the_server() {
    let server = Server::start(
        "events {} stream {
            ssl_preread on;
            server { listen 127.0.0.1:%%PORT_0%%; return \"first:$ssl_preread_server_name\"; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name b.example *.c.example;
                return \"second:$ssl_preread_server_name:$ssl_preread_protocol\"; }
        }",
    );
    assert_eq!(text(&server, 0, &hello("a.example")), "first:a.example");
    assert_eq!(text(&server, 0, &hello("b.example")), "second:b.example:TLSv1.2");
    assert_eq!(text(&server, 0, &hello("x.c.example")), "second:x.c.example:TLSv1.2");
    assert_eq!(text(&server, 0, b"no hello at all"), "first:");
    // In pieces.
    let mut client = server.on(0).connect();
    let whole = hello("b.example");
    for piece in whole.chunks(7) {
        client.send(piece);
        std::thread::yield_now();
    }
    assert_eq!(client.read_to_end(), b"second:b.example:TLSv1.2");
}

#[test]
fn what_is_wrong_is_named() {
    for (block, wanted) in [
        ("server { return a; }", "no \"listen\" is defined for server"),
        ("server { listen 127.0.0.1:1; return a; return b; }", "\"return\" directive is duplicate"),
        ("server { listen 127.0.0.1:1; return $nothing; }", "unknown \"nothing\" variable"),
        ("server { listen 127.0.0.1:1; root /; }", "\"root\" directive is not allowed here"),
    ] {
        let conf = format!("events {{}} stream {{ {block} }}");
        let said = run_cli(&["-t"], &conf);
        assert!(said.code != 0 && said.stderr.contains(wanted), "{block}: {}", said.stderr);
    }
    let twice = "events {} stream {} stream {}";
    assert!(run_cli(&["-t"], twice).stderr.contains("\"stream\" directive is duplicate"));
}

#[test]
fn a_client_that_keeps_its_header_is_not_waited_for() {
    let server = Server::start(
        "events {} error_log %%DIR%%/error.log info; stream { server {
            listen 127.0.0.1:%%PORT_0%% proxy_protocol; proxy_protocol_timeout 200ms; return a; } }",
    );
    let mut client = server.on(0).connect();
    assert!(client.is_closed());
    server
        .expect_error("client timed out (110: Connection timed out) while reading PROXY protocol");
}
