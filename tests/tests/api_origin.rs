//! `api` for browsers: whose pages may change something, also behind a proxy, and that a refusal says what to write.

use std::process::Command;
use weir_tests::{Response, Server, Setup};

const CONF: &str = "events {} http {
    server { listen 127.0.0.1:%%PORT_0%%; server_name a.test;
        location /api { api write=on; allow 127.0.0.1; deny all; } }
    server { listen 127.0.0.1:%%PORT_1%%; location / { proxy_pass http://127.0.0.1:%%PORT_0%%; } }
    server { listen 127.0.0.1:%%PORT_2%%;
        location / { proxy_pass http://127.0.0.1:%%PORT_0%%; proxy_set_header Host $host; } } }";

/// As a page of `origin` has a browser send it to a server of that name.
fn delete(server: &Server, port: usize, host: &str, origin: &str) -> Response {
    let text = format!(
        "DELETE /api/9/connections HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\
         Sec-Fetch-Site: same-origin\r\nConnection: close\r\n\r\n"
    );
    server.on(port).exchange("DELETE", text.as_bytes())
}

#[test]
fn a_proxy_that_sends_its_own_host_is_told_what_to_write() {
    let server = Setup::new(CONF).start();
    for origin in ["http://a.test", "https://a.test"] {
        let refused = delete(&server, 1, "a.test", origin);
        let text = refused.text();
        assert_eq!(refused.status, 403, "{text}");
        assert!(text.contains("\"CrossSiteRequest\""), "{text}");
        assert!(text.contains("proxy_set_header Host $host;"), "{text}");
        assert!(text.contains("server_name"), "{text}");
        // With what it says, also where the proxy has the TLS.
        assert_eq!(delete(&server, 2, "a.test", origin).status, 204, "{origin}");
    }
    let unnamed = delete(&server, 2, "b.test", "http://b.test");
    assert_eq!(unnamed.status, 403);
    assert!(unnamed.text().contains("write this name into server_name"), "{}", unnamed.text());
}

#[test]
fn a_page_of_another_name_or_scheme_is_refused() {
    let server = Setup::new(CONF).start();
    for origin in
        ["https://b.test", "ftp://a.test", "https://a.test:1", "https://a.test.b.test", "a.test"]
    {
        assert_eq!(delete(&server, 0, "a.test", origin).status, 403, "{origin}");
    }
}

#[test]
fn help_says_it() {
    for name in ["api", "dashboard"] {
        let said = Command::new(weir_tests::binary()).args(["help", name]).output().unwrap();
        let text =
            String::from_utf8_lossy(&said.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        for wanted in ["Origin", "server_name", "proxy_set_header Host $host;"] {
            assert!(text.contains(wanted), "{name}: {wanted}: {text}");
        }
    }
}
