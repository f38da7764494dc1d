//! TLS in `stream`: the same directives and variables as in `http`, and two of its own.

use crate::stream_core::{hello, hello_with};
use weir_tests::tls::{self, Authority, Tls};
use weir_tests::{run_cli, Server, Setup};

/// What the server of a port says to a client behind its handshake; nothing if it is refused.
fn said(client: &Tls, server: &Server, n: usize, name: &str) -> String {
    match client.connect(server.port(n), name) {
        Ok(mut conn) => String::from_utf8_lossy(&conn.read_to_end()).into_owned(),
        Err(_) => String::new(),
    }
}

fn setup(conf: &str) -> (Setup, Authority) {
    let authority = Authority::new("root");
    let own = tls::self_signed("localhost");
    let conf = format!(
        "events {{}} stream {{ error_log %%DIR%%/error.log info;
            ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key; {conf} }}"
    );
    let setup = Setup::new(&conf)
        .file("a.crt", own.cert)
        .file("a.key", own.key)
        .file("root.crt", &authority.cert);
    (setup, authority)
}

#[test]
fn clients_are_verified() {
    let (setup, authority) = setup(
        "ssl_client_certificate %%DIR%%/root.crt;
         server { listen 127.0.0.1:%%PORT_0%% ssl; ssl_verify_client on;
            return $ssl_client_verify:$ssl_client_s_dn:$ssl_protocol:$ssl_server_name; }
         server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_verify_client optional;
            return $ssl_client_verify; }",
    );
    let server = setup.start();
    let good = Tls::showing(Some(&authority.issue("client")));
    assert_eq!(said(&good, &server, 0, "localhost"), "SUCCESS:CN=client:TLSv1.3:localhost");
    assert_eq!(said(&good, &server, 1, "localhost"), "SUCCESS");
    let none = Tls::default();
    assert_eq!(said(&none, &server, 0, "localhost"), "");
    assert_eq!(said(&none, &server, 1, "localhost"), "NONE");
    let strange = Tls::showing(Some(&tls::self_signed("stranger")));
    assert_eq!(said(&strange, &server, 0, "localhost"), "");
    assert_eq!(said(&strange, &server, 1, "localhost"), "");
    server.expect_error("client sent no required SSL certificate");
    server.expect_error("client SSL certificate verify error");
}

#[test]
fn names_choose_certificates_and_protocols() {
    let (setup, authority) = setup(
        "map $ssl_server_name $file { default a; other.test b; }
         server { listen 127.0.0.1:%%PORT_0%% ssl; ssl_alpn first second;
            return $ssl_alpn_protocol; }
         server { listen 127.0.0.1:%%PORT_1%% ssl; return $file;
            ssl_certificate %%DIR%%/$file.crt; ssl_certificate_key %%DIR%%/$file.key; }
         server { listen 127.0.0.1:%%PORT_2%% ssl; ssl_reject_handshake on; return no; }
         server { listen 127.0.0.1:%%PORT_2%% ssl; server_name yes.test; return yes; }",
    );
    let other = authority.issue("other.test");
    let server = setup.file("b.crt", &other.cert).file("b.key", &other.key).start();
    let offering = |list: &[&str]| Tls::default().offering(list);
    assert_eq!(said(&offering(&["second", "first"]), &server, 0, "localhost"), "first");
    assert_eq!(said(&offering(&["third"]), &server, 0, "localhost"), "");
    assert_eq!(said(&offering(&[]), &server, 0, "localhost"), "");
    assert_eq!(said(&offering(&["any"]), &server, 1, "localhost"), "a");
    let conn = Tls::default().connect(server.port(1), "other.test").expect("a handshake");
    assert!(conn.shows(&other));
    assert_eq!(said(&Tls::default(), &server, 2, "localhost"), "");
    assert_eq!(said(&Tls::default(), &server, 2, "yes.test"), "yes");
}

#[test]
fn sessions_are_resumed() {
    let (setup, _) = setup(
        "ssl_session_cache shared:one:1m;
         server { listen 127.0.0.1:%%PORT_0%% ssl; return $ssl_session_reused; }",
    );
    let server = setup.start();
    let client = Tls::default();
    assert_eq!(said(&client, &server, 0, "localhost"), ".");
    assert_eq!(said(&client, &server, 0, "localhost"), "r");
}

#[test]
fn a_handshake_has_its_time() {
    let (setup, _) = setup(
        "ssl_handshake_timeout 300ms;
         server { listen 127.0.0.1:%%PORT_0%% ssl; return a; }",
    );
    let server = setup.start();
    assert!(server.on(0).connect().is_closed());
}

#[test]
fn what_is_wrong_is_told() {
    let server = "server { listen 127.0.0.1:1 ssl; return a; }";
    for (conf, error) in [
        (
            format!("stream {{ {server} }}"),
            "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive",
        ),
        ("stream { ssl_alpn a; ssl_alpn b; }".into(), "\"ssl_alpn\" directive is duplicate"),
        (
            "stream { ssl_early_data on; }".into(),
            "\"ssl_early_data\" directive is not allowed here",
        ),
        ("http { ssl_alpn a; }".into(), "\"ssl_alpn\" directive is not allowed here"),
        (
            "http { ssl_session_cache shared:s:1m; } stream { ssl_session_cache shared:s:1m; }"
                .into(),
            "the shared memory zone \"s\" is already declared for a different use",
        ),
    ] {
        let out = run_cli(&["-t"], &format!("events {{}} {conf}"));
        assert!(out.stderr.contains(error), "{conf}: {}", out.stderr);
    }
}

#[test]
fn expressions_choose_servers_and_capture() {
    let (setup, _) = setup(
        "server { listen 127.0.0.1:%%PORT_0%% ssl; return default; }
         server { listen 127.0.0.1:%%PORT_0%% ssl; server_name ~^(?<first>.+)\\.test$;
            return $first; }",
    );
    let server = setup.start();
    assert_eq!(said(&Tls::default(), &server, 0, "Some.test"), "some");
    assert_eq!(said(&Tls::default(), &server, 0, "other.name"), "default");
}

/// The name in the hello has chosen a server here, whose number means nothing there.
#[test]
fn a_connection_with_tls_is_handed_to_another_protocol() {
    let (setup, _) = setup(
        "server { listen 127.0.0.1:%%PORT_0%% ssl; pass 127.0.0.1:%%PORT_1%%; }
         server { listen 127.0.0.1:%%PORT_0%% ssl; server_name one; pass 127.0.0.1:%%PORT_1%%; }
         server { listen 127.0.0.1:%%PORT_0%% ssl; server_name two; pass 127.0.0.1:%%PORT_1%%; }
         } http { server { listen 127.0.0.1:%%PORT_1%%; return 200 \"$scheme $host\"; }",
    );
    let server = setup.start();
    for name in ["two", "none"] {
        let mut conn = Tls::default().connect(server.port(0), name).unwrap();
        conn.send(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n");
        let answer = String::from_utf8_lossy(&conn.read_to_end()).into_owned();
        assert!(answer.ends_with("https a"), "{name}: {answer}");
    }
}

#[test]
fn servers_are_asked_by_tls() {
    let (setup, _) = setup(
        "proxy_ssl on; proxy_ssl_session_reuse off;
         server { listen 127.0.0.1:%%PORT_0%%; proxy_pass 127.0.0.1:%%PORT_1%%; set $own second;
            proxy_ssl_alpn $nothing $own; proxy_ssl_server_name on; proxy_ssl_name a.test; }
         server { listen 127.0.0.1:%%PORT_2%%; proxy_pass 127.0.0.1:%%PORT_1%%; }
         server { listen 127.0.0.1:%%PORT_3%%; proxy_pass 127.0.0.1:%%PORT_1%%;
            proxy_ssl_verify on; proxy_ssl_trusted_certificate %%DIR%%/root.crt; }
         map $protocol $nothing { default ''; }
         server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_alpn first second;
            return \"$ssl_alpn_protocol $ssl_server_name\"; }",
    );
    let server = setup.start();
    let text = |n: usize| String::from_utf8_lossy(&server.on(n).raw(b"")).into_owned();
    assert_eq!(text(0), "second a.test");
    assert_eq!(text(2), " ");
    assert_eq!(text(3), "");
    server.expect_error("upstream SSL certificate verify error");
}

/// A name is looked for as a request's host is: a dot at its end or a port leads past no server.
#[test]
fn names_in_hellos_are_hosts() {
    let server = Setup::new(
        "events {} stream {
            server { listen 127.0.0.1:%%PORT_0%%; ssl_preread on; return \"other [$1]\"; }
            server { listen 127.0.0.1:%%PORT_0%%; ssl_preread on; server_name in.test *.in.test;
                return inner; }
            server { listen 127.0.0.1:%%PORT_0%%; ssl_preread on; server_name ~^(?<name>a+)$;
                return \"[$1] [$name]\"; }
        }",
    )
    .start();
    for (name, wanted) in [
        ("in.test", "inner"),
        ("IN.test.", "inner"),
        ("x.in.test.", "inner"),
        ("in.test:443", "inner"),
        ("in.test.:443", "inner"),
        ("in..test", "other []"),
        ("in.test:", "inner"),
        ("in.test:x", "other []"),
        ("in.test/", "other []"),
        ("aaa", "[aaa] [aaa]"),
        ("AA.", "[aa] [aa]"),
        ("b", "other []"),
    ] {
        let said = server.on(0).raw(&hello(name));
        assert_eq!(String::from_utf8_lossy(&said), wanted, "{name}");
    }
}

/// Where the handshake is done here a port in the name is none, and refused by the library.
#[test]
fn a_dot_leads_past_no_server_with_tls() {
    let (setup, _) = setup(
        "server { listen 127.0.0.1:%%PORT_0%% ssl; return other; }
         server { listen 127.0.0.1:%%PORT_0%% ssl; server_name in.test; ssl_reject_handshake on; }
         } http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            server { listen 127.0.0.1:%%PORT_1%% ssl; return 200 other; }
            server { listen 127.0.0.1:%%PORT_1%% ssl; server_name in.test; ssl_reject_handshake on; }",
    );
    let server = setup.start();
    const UNRECOGNIZED_NAME: u8 = 112;
    // Groups and signatures.
    let more = [0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 4, 0, 2, 4, 3];
    for port in [0, 1] {
        for (name, is_inner) in [("in.test", true), ("in.test.", true), ("out.test.", false)] {
            let said = server.on(port).raw(&hello_with(name, &more));
            assert_eq!(said.last() == Some(&UNRECOGNIZED_NAME), is_inner, "{name}: {said:?}");
        }
    }
}

/// The name was asked of another socket: where the connection goes the request's host chooses alone.
#[test]
fn a_name_chooses_no_server_behind_pass() {
    let (setup, _) = setup(
        "server { listen 127.0.0.1:%%PORT_0%% ssl; server_name in.test; pass 127.0.0.1:%%PORT_1%%; }
         server { listen 127.0.0.1:%%PORT_2%% ssl; server_name in.test; pass 127.0.0.1:%%PORT_3%%; }
         server { listen 127.0.0.1:%%PORT_3%%; server_name other; return other; }
         server { listen 127.0.0.1:%%PORT_3%%; server_name in.test; return inner; }
         } http {
            server { listen 127.0.0.1:%%PORT_1%%; server_name other; return 200 \"other $host\"; }
            server { listen 127.0.0.1:%%PORT_1%%; server_name in.test; return 200 \"inner $host\"; }",
    );
    let server = setup.start();
    let said = |port: usize, request: &str| {
        let mut conn = Tls::default().connect(server.port(port), "in.test").unwrap();
        conn.send(request.as_bytes());
        String::from_utf8_lossy(&conn.read_to_end()).into_owned()
    };
    let nameless = said(0, "GET / HTTP/1.0\r\n\r\n");
    assert!(nameless.ends_with("other other"), "{nameless}");
    let named = said(0, "GET / HTTP/1.0\r\nHost: in.test\r\n\r\n");
    assert!(named.ends_with("inner in.test"), "{named}");
    assert_eq!(said(2, ""), "other");
}

/// A handshake that the server in front has done is not done again.
#[test]
fn tls_goes_through_pass() {
    let (setup, _) = setup(
        "server { listen 127.0.0.1:%%PORT_0%% ssl; pass 127.0.0.1:%%PORT_1%%; }
         server { listen 127.0.0.1:%%PORT_1%% ssl; return \"in by $ssl_protocol\"; }
         server { listen 127.0.0.1:%%PORT_2%% ssl; pass 127.0.0.1:%%PORT_3%%; }
         server { listen 127.0.0.1:%%PORT_4%% ssl; pass 127.0.0.1:%%PORT_5%%; }
         server { listen 127.0.0.1:%%PORT_5%% ssl; ssl_verify_client on;
            ssl_client_certificate %%DIR%%/root.crt; return secret; }
         } http {
            ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            server { listen 127.0.0.1:%%PORT_3%% ssl; return 200 \"web by $ssl_protocol\"; }",
    );
    let server = setup.start();
    let mut conn = Tls::default().connect(server.port(0), "in.test").unwrap();
    assert_eq!(String::from_utf8_lossy(&conn.read_to_end()), "in by TLSv1.3");
    let mut conn = Tls::default().connect(server.port(2), "in.test").unwrap();
    conn.send(b"GET / HTTP/1.0\r\n\r\n");
    assert!(conn.read_to_end().ends_with(b"web by TLSv1.3"));
    // The server behind judges the client all the same.
    let mut conn = Tls::default().connect(server.port(4), "in.test").unwrap();
    assert_eq!(conn.read_to_end(), b"");
    // What looks like a hello within is no other handshake.
    let mut conn = Tls::default().connect(server.port(2), "in.test").unwrap();
    conn.send(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03\r\n\r\n");
    let said = String::from_utf8_lossy(&conn.read_to_end()).into_owned();
    assert!(said.contains("400 Bad Request"), "{said}");
}
