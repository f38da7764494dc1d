//! A client that reads nothing, behind everything that makes more of an answer than it was: what
//! the server holds for it stays within a bound.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;
use weir_tests::h2::H2;
use weir_tests::{expect_soon, skip, Client, Next, Origin, Server, Setup};

/// What a server may grow by for four clients that read nothing.
const GROWTH_MAX_BYTES: u64 = 16 << 20;
const CLIENTS: usize = 4;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut z = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    z.write_all(text).unwrap();
    z.finish().unwrap()
}

/// Clients that ask and read no more than the beginning of the answer; the server has come to rest.
#[track_caller]
fn slow_clients(server: &Server, path: &str) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = server.connect();
        client.set_patience(Duration::from_secs(60));
        client.send(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
        client.read_until(b"\r\n\r\n");
        clients.push(client);
    }
    let mut last = 0;
    let mut same = 0;
    expect_soon("the server comes to rest", || {
        let now = server.memory_peak();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same > 25
    });
    clients
}

/// Whether the growth by clients that read nothing is bounded, and what one gets that reads.
#[track_caller]
fn check(server: &Server, path: &str) -> Vec<u8> {
    server.get("/warm");
    let Some(before) = server.memory() else {
        skip("the system has no /proc");
        return Vec::new();
    };
    let mut clients = slow_clients(server, path);
    let growth = server.memory_growth(before);
    assert!(growth < GROWTH_MAX_BYTES, "{path}: grew by {growth} bytes");
    clients.swap_remove(0).read_to_end()
}

const CONF: &str = "worker_processes 1; events {} http { default_type text/html; server {
    listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; proxy_buffering %%BUFFERING%%;
    location /warm { return 204; }
    location /gunzip/ { gunzip on; proxy_pass http://%%ORIGIN%%; }
    location /both/ { gunzip on; sub_filter_once off; sub_filter x xyz; proxy_pass http://%%ORIGIN%%; }
    location /all/ { gunzip on; gzip on; ssi on; proxy_pass http://%%ORIGIN%%; }
    location /sub/ { sub_filter_once off; sub_filter x %%LONG%%; }
    location /ssi/ { ssi on; }
    location /parts/ { gunzip on; proxy_pass http://%%ORIGIN%%; }
    location /gzip/ { gzip on; gzip_http_version 1.0; sub_filter_once off; sub_filter x %%LONG%%; }
} }";

/// What an answer is once it is decompressed, for most.
const LETTERS: usize = 24 << 20;
const FEWER: usize = 6 << 20;

fn start(buffering: &str) -> (Origin, Server) {
    let bomb = gzip(&vec![b'x'; LETTERS]);
    let small = gzip(&vec![b'x'; FEWER]);
    let page = gzip(b"[<!--#include virtual='/warm' -->]");
    let origin = Origin::start(move |request, conn| {
        let body = match request.target() {
            target if target.ends_with("page") => &page,
            "/both/a" => &small,
            _ => &bomb,
        };
        conn.write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        ));
        conn.write(body);
        Next::Keep
    });
    let mut parts = String::new();
    for n in 0..4 {
        let _ = write!(parts, "<!--#include virtual='/parts/{n}' -->");
    }
    let server = Setup::new(CONF)
        .set("ORIGIN", origin.address())
        .set("BUFFERING", buffering)
        .set("LONG", "long".repeat(500))
        .file("html/sub/page", "x".repeat(40_000))
        .file("html/gzip/page", "x".repeat(40_000))
        .file("html/ssi/page", parts)
        .start();
    (origin, server)
}

#[test]
fn gunzip_behind_a_server() {
    for buffering in ["on", "off"] {
        let (_origin, server) = start(buffering);
        assert_eq!(xs(&check(&server, "/gunzip/a")), LETTERS, "{buffering}");
    }
}

/// How many `x` a body has.
fn xs(body: &[u8]) -> usize {
    body.iter().filter(|b| **b == b'x').count()
}

#[test]
fn sub_filter() {
    let (_origin, server) = start("on");
    let answer = check(&server, "/sub/page");
    assert_eq!((answer.len(), answer.ends_with(b"long")), (40_000 * 2000, true));
}

#[test]
fn gunzip_before_sub_filter() {
    let (_origin, server) = start("on");
    let answer = check(&server, "/both/a");
    assert_eq!((answer.len(), answer.ends_with(b"xyzxyz")), (FEWER * 3, true));
}

#[test]
fn gunzip_in_parts_of_a_page() {
    let (_origin, server) = start("on");
    assert_eq!(xs(&check(&server, "/ssi/page")), 4 * LETTERS);
}

#[test]
fn gzip_behind_sub_filter() {
    let (_origin, server) = start("on");
    let Some(before) = server.memory() else { return skip("the system has no /proc") };
    let answer = server.get_with("/gzip/page", "Accept-Encoding: gzip\r\n");
    assert_eq!(answer.header("Content-Encoding"), Some("gzip"));
    let growth = server.memory_growth(before);
    assert!(growth < GROWTH_MAX_BYTES, "grew by {growth} bytes");
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&answer.body[..]), &mut text)
        .unwrap();
    assert_eq!(text.len(), 40_000 * 2000);
}

#[test]
fn commands_found_in_what_was_decompressed() {
    let (_origin, server) = start("on");
    for path in ["/all/page", "/all/a-page"] {
        assert_eq!(server.get(path).text(), "[]");
    }
}

const ECHOES: usize = 300;
const ARGUMENTS: usize = 2000;

/// Pages that write one long value again and again: small ones, alone, as a part, as what a part's
/// end leads to, and behind parts.
fn echoes() -> Server {
    let letters = "z".repeat(200);
    let mut page = format!("<!--#set var='v' value='{letters}' -->");
    for (name, of) in [('w', 'v'), ('x', 'w'), ('y', 'x')] {
        let value = format!("${of}").repeat(9);
        let _ = write!(page, "<!--#set var='{name}' value='{value}' -->");
    }
    page.push_str(&"<!--#echo var='y' -->".repeat(ECHOES));
    let server =
        "listen 127.0.0.1:%%PORT_0%%; location /warm { return 204; } location / { ssi on; }";
    Setup::new(&format!(
        "worker_processes 1; events {{}} http {{ default_type text/html; root %%DIR%%/html;
            large_client_header_buffers 4 16k; http2 on;
            server {{ {server} location = /up {{ ssi on; proxy_pass http://127.0.0.1:%%PORT_0%%/page; }} }} }}"
    ))
    .file("html/page", &page)
    .file("html/within", "[<!--#include virtual='/page' -->]")
    .file("html/behind", format!("<!--#include virtual='/warm' wait='yes' -->{page}"))
    .file("html/between", format!("<!--#include virtual='/warm' -->{page}<!--#include virtual='/warm' -->"))
    .file("html/argument", "<!--#echo var='arg_x' -->".repeat(ARGUMENTS))
    .start()
}

/// How many letters such a page has.
const ECHOED: usize = ECHOES * 200 * 9 * 9 * 9;

#[test]
fn echo_of_a_long_value() {
    let server = echoes();
    for path in ["/page", "/within", "/behind", "/between", "/up"] {
        let answer = check(&server, path);
        let letters = answer.iter().filter(|b| **b == b'z').count();
        assert_eq!(letters, ECHOED, "{path}");
    }
    let long = format!("/argument?x={}", "x".repeat(8000));
    assert_eq!(xs(&check(&server, &long)), ARGUMENTS * 8000);
}

#[test]
fn echo_of_a_long_value_over_http2() {
    for path in ["/page", "/within", "/behind"] {
        let server = echoes();
        assert_eq!(H2::connect(&server).fetch("/warm").status, 204);
        let Some(before) = server.memory() else { return skip("the system has no /proc") };
        let mut h2 = H2::connect(&server);
        h2.raw.set_patience(Duration::from_secs(60));
        h2.opens_windows = false;
        for _ in 0..CLIENTS {
            h2.get(path);
        }
        // The last is answered once the server has made of the others what it makes.
        let stream = h2.get("/warm");
        assert_eq!(h2.answer(stream).status, 204);
        let growth = server.memory_growth(before);
        assert!(growth < GROWTH_MAX_BYTES, "{path}: grew by {growth} bytes");
        let mut reader = H2::connect(&server);
        reader.raw.set_patience(Duration::from_secs(60));
        let body = reader.fetch(path).body;
        assert_eq!(body.iter().filter(|b| **b == b'z').count(), ECHOED, "{path}");
    }
}
