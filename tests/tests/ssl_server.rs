//! TLS for clients: certificates by name, sessions, plain HTTP on the wrong port, big answers.

use weir_tests::tls::{self, Tls};
use weir_tests::{Server, Setup, Signal};

fn https(more: &str) -> Setup {
    let pair = tls::self_signed("localhost");
    Setup::new(
        "error_log %%DIR%%/error.log; events {} http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key; %%MORE%%
            server { listen 127.0.0.1:%%PORT_0%% ssl; root %%DIR%%/html;
                error_page 497 =301 https://$host/moved;
                location /vars { return 200 $scheme:$https:$ssl_protocol:$ssl_server_name; }
                location /again { return 200 $ssl_session_reused; } } }",
    )
    .set("MORE", more)
    .file("a.crt", pair.cert)
    .file("a.key", pair.key)
}

#[test]
fn requests_and_variables() {
    let server = https("").start();
    let client = Tls::default();
    assert_eq!(
        client.get(server.port(0), "localhost", "/vars").text(),
        "https:on:TLSv1.3:localhost"
    );
    let plain = server.get("/vars");
    assert_eq!(plain.status, 301);
    assert_eq!(plain.header("Location"), Some("https://localhost/moved"));
}

#[test]
fn files_come_whole_and_records_are_bounded() {
    let big: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    for more in ["", "sendfile on;", "ssl_buffer_size 1k;"] {
        let server = https(more).file("html/big", &big).file("html/small", "few").start();
        let client = Tls::default();
        assert_eq!(client.get(server.port(0), "localhost", "/small").text(), "few");
        assert!(client.get(server.port(0), "localhost", "/big").body == big, "{more}");
    }
}

#[test]
fn sessions_are_resumed_from_cache_and_from_tickets() {
    for more in [
        "ssl_session_cache shared:a:1m; ssl_session_tickets off;",
        "ssl_session_cache none;",
        "ssl_session_cache shared:b:1m; ssl_protocols TLSv1.2;",
    ] {
        let server = https(more).start();
        let client = Tls::default();
        let text = || client.get(server.port(0), "localhost", "/again").text();
        assert_eq!((text(), text()), (".".to_string(), "r".to_string()), "{more}");
    }
    let server = https("ssl_session_tickets off;").start();
    let client = Tls::default();
    let text = || client.get(server.port(0), "localhost", "/again").text();
    assert_eq!((text(), text()), (".".to_string(), ".".to_string()));
}

fn three_names() -> (Server, tls::Pair, tls::Pair) {
    let (first, second) = (tls::self_signed("a.test"), tls::self_signed("b.test"));
    let server = Setup::new(
        "events {} http {
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name a.test;
                ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
                location / { return 200 a:$ssl_alpn_protocol; } }
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name *.b.test ~^c(?<n>\\d).test$;
                ssl_certificate %%DIR%%/b.crt; ssl_certificate_key %%DIR%%/b.key;
                location / { return 200 b$n; } }
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name no.test;
                ssl_reject_handshake on; } }",
    )
    .file("a.crt", &first.cert)
    .file("a.key", &first.key)
    .file("b.crt", &second.cert)
    .file("b.key", &second.key)
    .start();
    (server, first, second)
}

#[test]
fn the_name_in_the_hello_chooses_the_server() {
    let (server, first, second) = three_names();
    let client = Tls::default().offering(&["http/1.1"]);
    for (name, pair, text) in
        [("a.test", &first, "a:http/1.1"), ("x.b.test", &second, "b"), ("c7.test", &second, "b7")]
    {
        let conn = client.connect(server.port(0), name).unwrap();
        assert!(conn.shows(pair), "{name}");
        assert_eq!(conn.protocol().as_deref(), Some("http/1.1"));
        assert_eq!(conn.get(name, "/").text(), text);
    }
    assert_eq!(client.get_host(server.port(0), "a.test", "x.b.test", "/").text(), "b");
    let refused = client.connect(server.port(0), "no.test").map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("UnrecognisedName"), "{refused}");
}

#[test]
fn keys_are_read_anew_at_reload_and_a_bad_one_changes_nothing() {
    let mut server = https("").start();
    let client = Tls::default();
    let fresh = tls::self_signed("fresh");
    // Put in the place of the old one: nginx knows a file by its number and its second.
    let replace = |name: &str, text: &str| {
        let fresh = server.dir().join("fresh");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(fresh, server.dir().join(name)).unwrap();
    };
    replace("a.crt", &fresh.cert);
    server.signal(Signal::Hup);
    server.expect_error("key values mismatch");
    assert!(!client.connect(server.port(0), "localhost").unwrap().shows(&fresh));
    replace("a.key", &fresh.key);
    server.signal(Signal::Hup);
    weir_tests::expect_soon("the fresh certificate", || {
        Tls::default().connect(server.port(0), "localhost").is_ok_and(|c| c.shows(&fresh))
    });
    assert!(server.is_running());
}
