//! `api`: what is told first, and that it says what is wanted.

use weir_tests::{Response, Server, Setup};

const CONF: &str = "events {} http {
    keyval_zone zone=z:64k; keyval $uri $v zone=z;
    upstream u { zone u 64k; server 127.0.0.1:1; }
    upstream fixed { server 127.0.0.1:1; }
    server { listen 127.0.0.1:%%PORT_0%%; server_name a.test;
        location /api { api write=on; allow 127.0.0.1; deny all; } } }";

fn send(server: &Server, method: &str, path: &str, kind: &str, body: &str) -> Response {
    let text = format!(
        "{method} /api{path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\
         Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    server.exchange(method, text.as_bytes())
}

fn told(response: &Response, name: &str) -> String {
    let text = response.text();
    let rest =
        text.split(&format!("\"{name}\":\"")).nth(1).unwrap_or_default().replace("\\\"", "'");
    rest.split('"').next().unwrap_or_default().to_string()
}

/// Who sends something wrong to nowhere hears that there is nothing.
#[test]
fn what_is_not_there_comes_before_how_it_is_sent() {
    let server = Setup::new(CONF).start();
    for (method, path, status, code) in [
        ("POST", "/9/nowhere", 404, "PathNotFound"),
        ("POST", "/99/http/keyvals/z", 404, "UnknownVersion"),
        ("POST", "/9/http/keyvals/none", 404, "KeyvalNotFound"),
        ("POST", "/9/http/upstreams/none/servers", 404, "UpstreamNotFound"),
        ("POST", "/9/http/upstreams/fixed/servers", 400, "UpstreamStatic"),
        ("PATCH", "/9/http/upstreams/u/servers/7", 404, "UpstreamServerNotFound"),
        ("POST", "/9/nginx", 405, "MethodNotAllowed"),
        ("POST", "/9/http/upstreams/u/servers/0", 405, "MethodNotAllowed"),
        ("PATCH", "/9/http/upstreams/u/servers", 405, "MethodNotAllowed"),
        ("POST", "/9/http/keyvals/z", 415, "JsonError"),
        ("POST", "/9/http/upstreams/u/servers", 415, "JsonError"),
        ("PATCH", "/9/http/upstreams/u/servers/0", 415, "JsonError"),
    ] {
        let answer = send(&server, method, path, "text/plain", "{}");
        let found = (answer.status, told(&answer, "code"));
        assert_eq!(found, (status, code.to_string()), "{method} {path}");
    }
}

#[test]
fn a_value_that_is_no_string_is_told_to_be_one() {
    let server = Setup::new(CONF).start();
    for (version, body, expected) in [
        (9, "{\"n\":5}", "the value of 'n' is to be a string, or an object with 'value', a string, and 'expire', milliseconds"),
        (9, "{\"n\":true}", "the value of 'n' is to be a string, or an object with"),
        (9, "{\"n\":{\"value\":5}}", "the value of 'n' is to be a string, or an object with"),
        (9, "{\"n\":{\"worth\":\"5\"}}", "the value of 'n' is to be a string, or an object with"),
        (4, "{\"n\":5}", "the value of 'n' is to be a string"),
        (9, "{\"n\":null}", "the value of 'n' is missing"),
    ] {
        let answer = send(&server, "POST", &format!("/{version}/http/keyvals/z"), "application/json", body);
        assert_eq!((answer.status, told(&answer, "code")), (400, "KeyvalFormatError".to_string()));
        let text = told(&answer, "text");
        assert!(text.starts_with(expected), "{body}: {text}");
    }
}

/// As in nginx, nobody asks a subrequest whether it may: who is denied writes nothing by one.
#[test]
fn a_subrequest_changes_nothing() {
    let server = Server::start(
        "events {} http { keyval_zone zone=z:64k; keyval $uri $v zone=z;
        server { listen 127.0.0.1:%%PORT_0%%;
            location /api { api write=on; allow 127.0.0.2; deny all; }
            location /mirror { mirror /api/9/http/keyvals/z; proxy_pass http://127.0.0.1:%%PORT_1%%; }
            location /echo { echo_subrequest DELETE /api/9/http/keyvals/z; } }
        server { listen 127.0.0.1:%%PORT_1%%; location / { return 200 ok; }
            location /own { api write=on; allow 127.0.0.1; deny all; } } }",
    );
    let send = |port: usize, method: &str, path: &str, body: &str| {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        server.on(port).exchange(method, text.as_bytes())
    };
    assert_eq!(send(1, "POST", "/own/9/http/keyvals/z", "{\"k\":\"v\"}").status, 201);
    assert_eq!(send(0, "DELETE", "/api/9/http/keyvals/z", "").status, 403);
    for path in ["/mirror", "/echo"] {
        let told = send(0, "DELETE", path, "{\"k\":\"x\"}").text();
        assert!(path == "/mirror" || told.contains("SubrequestDenied"), "{told}");
    }
    // What a mirror does is done before the next connection is.
    assert_eq!(send(1, "GET", "/own/9/http/keyvals/z", "").text(), "{\"k\":\"v\"}");
}
