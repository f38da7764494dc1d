//! How gRPC servers are reached, and what becomes of their heads.

use std::sync::atomic::{AtomicUsize, Ordering};
use weir_tests::h2::{self, H2};
use weir_tests::{tls, Conn, Origin, Server, Setup};
use weir_wire::http2::frame;

fn head(fields: &[(&str, &str)]) -> Vec<u8> {
    let (block, flags) = (h2::block(fields), frame::END_HEADERS | frame::END_STREAM);
    [&frame::head(block.len(), frame::HEADERS, flags, 1)[..], &block[..]].concat()
}

/// Greets, waits for the request's head and hands the connection to `script`.
fn origin(script: impl Fn(&mut Conn, usize) + Send + Sync + 'static) -> Origin {
    Origin::start_raw(move |conn, id| {
        conn.read_until(h2::PREFACE);
        let mut out = Vec::new();
        frame::settings(&[], &mut out);
        conn.write(out);
        loop {
            let Some(start) = conn.read_exactly(9) else { return };
            let length = usize::from(start[1]) * 256 + usize::from(start[2]);
            if conn.read_exactly(length).is_none() {
                return;
            }
            if start[3] == frame::HEADERS {
                break;
            }
        }
        script(conn, id);
        conn.wait_closed();
    })
}

fn start(origin: &Origin, servers: &str, location: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ upstream u {{ {servers} }} server {{ listen 127.0.0.1:%%PORT_0%%; http2 on;
            error_page 418 /tea; add_header X-Asked $upstream_status always;
            location / {{ grpc_pass u; {location} }} location = /tea {{ return 200 tea; }} }} }}"
    );
    Setup::new(&conf).set("ORIGIN", origin.address()).start()
}

#[test]
fn fields_are_hidden_passed_and_ignored() {
    let origin = origin(|conn, _| {
        conn.write(head(&[
            (":status", "200"),
            ("x-hidden", "1"),
            ("date", "never"),
            ("x-accel-redirect", "/tea"),
        ]));
    });
    let server = start(
        &origin,
        "server %%ORIGIN%%;",
        "grpc_hide_header X-Hidden; grpc_pass_header Date; grpc_ignore_headers X-Accel-Redirect;
         grpc_bind 127.0.0.1; grpc_socket_keepalive on; grpc_socket_rcvbuf 32k; grpc_socket_sndbuf 32k;
         grpc_connect_timeout 5s; grpc_send_timeout 5s;",
    );
    let answer = H2::connect(&server).fetch("/");
    assert_eq!((answer.header("x-hidden"), answer.header("date")), (None, Some("never")));
    assert_eq!(answer.text(), "");
}

#[test]
fn fields_of_the_request_are_set() {
    let server = Setup::new(
        "events {} http { http2 on;
            server { listen 127.0.0.1:%%PORT_0%%; location / { grpc_pass 127.0.0.1:%%PORT_1%%;
                grpc_set_header X-Set $uri; grpc_set_header X-Not \"\"; } }
            server { listen 127.0.0.1:%%PORT_1%%; location / { return 200 $http_x_set:$http_x_not; } } }",
    )
    .start();
    assert_eq!(server.get_with("/a", "X-Not: b\r\n").text(), "/a:");
}

#[test]
fn errors_are_intercepted() {
    let origin = origin(|conn, _| conn.write(head(&[(":status", "418")])));
    let server = start(&origin, "server %%ORIGIN%%;", "grpc_intercept_errors on;");
    assert_eq!(H2::connect(&server).fetch("/").text(), "tea");
}

#[test]
fn a_head_must_fit_into_its_buffer() {
    let long = "z".repeat(3000);
    let origin = origin(move |conn, _| conn.write(head(&[(":status", "200"), ("x-long", &long)])));
    let small = start(&origin, "server %%ORIGIN%%;", "grpc_buffer_size 1k;");
    assert_eq!(H2::connect(&small).fetch("/").header("x-asked"), Some("502"));
    let large = start(&origin, "server %%ORIGIN%%;", "grpc_buffer_size 8k;");
    assert_eq!(H2::connect(&large).fetch("/").header("x-asked"), Some("200"));
}

#[test]
fn silence_ends_with_the_read_timeout_and_the_next_server_is_asked() {
    let origin = origin(|conn, id| {
        if id > 0 {
            conn.write(head(&[(":status", "200")]));
        }
    });
    let servers = "server %%ORIGIN%% max_fails=0; server %%ORIGIN%% max_fails=0;";
    let server = start(&origin, servers, "grpc_read_timeout 300ms; grpc_next_upstream timeout;");
    assert_eq!(H2::connect(&server).fetch("/").header("x-asked"), Some("504, 200"));
}

#[test]
fn tries_are_bounded_in_number_and_in_time() {
    let asked = AtomicUsize::new(0);
    let failing = origin(move |conn, _| {
        asked.fetch_add(1, Ordering::SeqCst);
        conn.write(head(&[(":status", "503")]));
    });
    let servers = "server %%ORIGIN%%; server %%ORIGIN%%; server %%ORIGIN%%;";
    let how = "grpc_next_upstream http_503; grpc_next_upstream_tries 2;";
    let server = start(&failing, servers, how);
    assert_eq!(H2::connect(&server).fetch("/").header("x-asked"), Some("503, 503"));
    let silent = origin(|_, _| {});
    let how =
        "grpc_next_upstream timeout; grpc_read_timeout 300ms; grpc_next_upstream_timeout 100ms;";
    let server = start(&silent, servers, how);
    assert_eq!(H2::connect(&server).fetch("/").header("x-asked"), Some("504"));
}

#[test]
fn the_scheme_is_that_of_the_connection() {
    let origin = Origin::start_raw(|conn, _| {
        conn.read_until(h2::PREFACE);
        conn.write(frame::head(0, frame::SETTINGS, 0, 0));
        while let Some(start) = conn.read_exactly(9) {
            let length = usize::from(start[1]) * 256 + usize::from(start[2]);
            let Some(block) = conn.read_exactly(length) else { return };
            if start[3] == frame::HEADERS {
                // The second field, by its number in HPACK's table (RFC 7541, appendix A).
                let scheme = if block[1] == 0x87 { "https" } else { "http" };
                return conn.write(head(&[(":status", "200"), ("x-scheme", scheme)]));
            }
        }
    });
    let pair = tls::self_signed("localhost");
    let server = Setup::new(
        "events {} stream { server { listen 127.0.0.1:%%PORT_1%% ssl; proxy_pass %%ORIGIN%%;
            ssl_certificate %%DIR%%/cert.pem; ssl_certificate_key %%DIR%%/key.pem; } }
         http { http2 on; server { listen 127.0.0.1:%%PORT_0%%;
            location /tls { grpc_pass grpcs://127.0.0.1:%%PORT_1%%; }
            location /plain { grpc_pass grpc://%%ORIGIN%%; } } }",
    )
    .file("cert.pem", &pair.cert)
    .file("key.pem", &pair.key)
    .set("ORIGIN", origin.address())
    .start();
    let scheme = |path| H2::connect(&server).fetch(path).header("x-scheme").map(str::to_owned);
    assert_eq!(scheme("/tls").as_deref(), Some("https"));
    assert_eq!(scheme("/plain").as_deref(), Some("http"));
}
