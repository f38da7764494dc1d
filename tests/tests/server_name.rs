//! Which server answers for a host.

use weir_tests::Server;

#[test]
fn names_are_matched_in_their_order_of_precedence() {
    let server = Server::start(
        r#"events {} http {
            server { listen 127.0.0.1:%%PORT_0%%; server_name first.test; return 200 first; }
            server { listen 127.0.0.1:%%PORT_0%% default_server; server_name _; return 200 default; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name exact.example.com; return 200 exact; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name *.example.com; return 200 prefix-star; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name *.deep.example.com; return 200 deep-star; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name www.example.*; return 200 suffix-star; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name .both.test; return 200 both; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name ~^re(?<n>\d+)\.test$; return 200 "regex $n"; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name ~^re1; return 200 later; }
        }"#,
    );
    for (host, who) in [
        ("first.test", "first"),
        ("FIRST.Test", "first"),
        ("first.test.", "first"),
        ("first.test:99", "first"),
        ("unknown.test", "default"),
        ("exact.example.com", "exact"),
        ("a.example.com", "prefix-star"),
        ("a.b.example.com", "prefix-star"),
        ("a.deep.example.com", "deep-star"),
        ("deep.example.com", "prefix-star"),
        ("example.com", "default"),
        ("www.example.com", "prefix-star"),
        ("www.example.org", "suffix-star"),
        ("www.example.co.uk", "suffix-star"),
        ("both.test", "both"),
        ("x.both.test", "both"),
        ("re12.test", "regex 12"),
        ("re1.other", "later"),
        ("127.0.0.1", "default"),
    ] {
        assert_eq!(server.get_host(host, "/").text(), who, "{host}");
    }
    let absolute =
        b"GET http://first.test/ HTTP/1.1\r\nHost: both.test\r\nConnection: close\r\n\r\n";
    assert_eq!(server.exchange("GET", absolute).text(), "first");
    assert_eq!(server.exchange("GET", b"GET / HTTP/1.0\r\n\r\n").text(), "default");
}

#[test]
fn without_a_default_the_first_server_answers() {
    let server = Server::start(
        "events {} http {
            server { listen 127.0.0.1:%%PORT_0%%; server_name a; return 200 $server_name; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name b c; return 200 $server_name; }
            server { listen 127.0.0.1:%%PORT_1%%; server_name d ''; return 200 $server_name; } }",
    );
    assert_eq!(server.get_host("x", "/").text(), "a");
    assert_eq!(server.get_host("c", "/").text(), "b");
    assert_eq!(server.on(1).get_host("a", "/").text(), "d");
}

#[test]
fn redirects_name_the_server_or_the_host() {
    let server = Server::start(
        "events {} http {
            server { listen 127.0.0.1:%%PORT_0%%; server_name a; return 301 /x; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name b; server_name_in_redirect on;
                port_in_redirect off; location / { return 301 /x; } }
            server { listen 127.0.0.1:%%PORT_0%%; server_name c; absolute_redirect off;
                location / { return 301 /x; } } }",
    );
    let to = |host: &str| server.get_host(host, "/").header("Location").map(str::to_string);
    let port = server.port(0);
    assert_eq!(to("z"), Some(format!("http://z:{port}/x")));
    assert_eq!(to("b"), Some("http://b/x".into()));
    assert_eq!(to("c"), Some("/x".into()));
}
