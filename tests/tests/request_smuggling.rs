//! Requests that two servers could read in two ways: what goes to the backend is one well-formed
//! request with the body that was framed, or nothing. The backend reads strictly and by itself.

pub mod backend;
mod probes;

use backend::Backend;
use probes::{Expect, FAMILIES};
use weir_tests::{Server, Setup};

/// Two ways of passing answers times two of passing bodies.
const CONF: &str = "worker_processes 1; events {} http {
    client_header_timeout 5s; client_body_timeout 5s; keepalive_timeout 5s; client_max_body_size 1m;
    upstream b { server %%ORIGIN%%; keepalive 4; }
    proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header Host $host;
    server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://b; } }
    server { listen 127.0.0.1:%%PORT_1%%; proxy_buffering off;
        location / { proxy_pass http://b; } }
    server { listen 127.0.0.1:%%PORT_2%%; proxy_request_buffering off;
        location / { proxy_pass http://b; } }
    server { listen 127.0.0.1:%%PORT_3%%; proxy_buffering off; proxy_request_buffering off;
        location / { proxy_pass http://b; } } }";

const CGI_CONF: &str = "worker_processes 1; events {} http {
    client_header_timeout 5s; client_body_timeout 5s; keepalive_timeout 5s; client_max_body_size 1m;
    %%LENGTH%% %%KIND%%_param REQUEST_URI $request_uri;
    %%KIND%%_param REQUEST_METHOD $request_method;
    server { listen 127.0.0.1:%%PORT_0%%; location / { %%KIND%%_pass %%ORIGIN%%; } }
    server { listen 127.0.0.1:%%PORT_1%%; %%KIND%%_buffering off; %%KIND%%_request_buffering off;
        location / { %%KIND%%_pass %%ORIGIN%%; } } }";

/// Ends every connection, and shows where the server thinks that the probe has ended.
const LAST: &str = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// What is wrong with what became of a probe, if anything is.
fn complaint(
    server: &Server,
    backend: &Backend,
    port: usize,
    probe: (&str, &str),
    expect: Expect,
) -> Option<String> {
    let (tag, text) = probe;
    let answer = server.on(port).raw(text.replace("/PATH", tag).as_bytes());
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|s| s.parse::<u16>().ok()).unwrap_or(0);
    let answered = answer.matches("HTTP/1.1 200").count();
    let (bodies, violations) = backend.take(tag);
    if let Some(violation) = violations.first() {
        return Some(format!("the backend was sent {violation}"));
    }
    let is_right = match expect {
        Expect::Refused => bodies.is_empty() && (status >= 400 || answer.is_empty()),
        Expect::Passed(body) => bodies == [body] && answered == 2,
        Expect::PassedAlone(body) => bodies == [body] && answered <= 1,
    };
    (!is_right).then(|| format!("status {status}, {answered} answers, bodies {bodies:?}"))
}

fn check(port: usize) {
    let backend = Backend::start();
    let server = Setup::new(CONF).set("ORIGIN", backend.address()).start();
    check_all(&backend, &server, port);
}

fn check_all(backend: &Backend, server: &Server, port: usize) {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (family, before, after, probes) in FAMILIES {
        for (middle, expect) in *probes {
            count += 1;
            let tag = format!("/p{port}-{count}-");
            let text = format!("{before}{middle}{after}{LAST}");
            if let Some(why) = complaint(server, backend, port, (&tag, &text), *expect) {
                wrong.push(format!("{family} {middle:?} {expect:?}: {why}"));
            }
        }
    }
    assert!(count >= 200, "{count} probes");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn buffered_both_ways() {
    check(0);
}

#[test]
fn answers_unbuffered() {
    check(1);
}

#[test]
fn bodies_unbuffered() {
    check(2);
}

#[test]
fn unbuffered_both_ways() {
    check(3);
}

/// The same probes over the protocols of CGI programs: a length that is the body's, every
/// parameter once.
fn check_cgi(protocol: &str) {
    let backend = Backend::cgi(protocol);
    // SCGI's requests begin with the length; the others are told it here.
    let length = match protocol {
        "scgi" => String::new(),
        other => format!("{other}_param CONTENT_LENGTH $content_length;"),
    };
    let conf = CGI_CONF.replace("%%KIND%%", protocol).replace("%%LENGTH%%", &length);
    let server = Setup::new(&conf).set("ORIGIN", backend.address()).start();
    check_all(&backend, &server, 0);
    check_all(&backend, &server, 1);
}

#[test]
fn fastcgi() {
    check_cgi("fastcgi");
}

#[test]
fn scgi() {
    check_cgi("scgi");
}

#[test]
fn uwsgi() {
    check_cgi("uwsgi");
}

/// The strict reader itself: what it must not let pass.
#[test]
fn the_backend_is_strict() {
    let wrong = |head: &str| assert!(backend::read_head(head.as_bytes()).is_err(), "{head:?}");
    for line in [
        "GET /  HTTP/1.1",
        "GET / HTTP/1.2",
        "get / HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /\t HTTP/1.1",
    ] {
        wrong(&format!("{line}\r\nHost: a\r\n\r\n"));
    }
    for lines in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a\nX: y\r\n",
        "Host: a\rX: y\r\n",
        "Host: a\r\n X: y\r\n",
        "Host: a\r\nX : y\r\n",
        "Host: a\r\nX_Y: y\r\n",
        "Host: a\r\nX: \0\r\n",
        "Host: a\r\nNoColon\r\n",
        "Host: a\r\nContent-Length: +1\r\n",
        "Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
        "Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n",
        "Host: a\r\nUpgrade: h2c\r\n",
        "Host: a\r\nTE: trailers\r\n",
    ] {
        wrong(&format!("GET / HTTP/1.1\r\n{lines}\r\n"));
    }
    assert!(backend::read_head(b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n").is_ok());
}
