//! Filters that wait: order is kept, others are served, no more is read than there is room for, a client that goes
//! is not waited for; over HTTP/1 and HTTP/2, of a request alone and of one that is put together.
#![allow(clippy::unwrap_used)]

mod gate;
mod http2;
mod server;

use gate::Gate;
use http2::Http2;
use server::Server;
use std::sync::atomic::Ordering;

#[test]
fn a_header_that_waits_and_its_body() {
    let server = Server::start(
        "header",
        "location / { gate_header on; } location /quick { return 200 quick; }",
    );
    let gate = Gate::of(b"header");
    server.write("small", b"small");
    let mut client = server.connect();
    client.ask("GET", "/small");
    client.ask("GET", "/quick");
    gate.expect(|g| &g.begun, 1);
    assert_eq!(server.get("/quick").text(), "quick", "others are served");
    assert!(client.is_silent());
    gate.let_headers(1);
    let answer = client.answer("GET");
    assert!(answer.head.contains("X-Waited: yes"), "{}", answer.head);
    assert_eq!(answer.text(), "small");
    assert_eq!(client.answer("GET").text(), "quick", "the connection goes on");
    client.ask("HEAD", "/small");
    gate.let_headers(1);
    assert!(client.answer("HEAD").head.contains("X-Waited: yes"));
    client.ask("GET", "/quick");
    assert_eq!(client.answer("GET").text(), "quick");
}

/// What the filter makes of it, once.
fn swapped(text: &[u8]) -> Vec<u8> {
    text.iter().map(u8::to_ascii_uppercase).collect()
}

fn long_text(len: usize) -> Vec<u8> {
    (0..len).map(|n| b"abcdefghijklmnopqrstuvwxyz0123456789"[n * 7 / 3 % 36]).collect()
}

#[test]
fn a_long_body_waits_piece_by_piece() {
    let server = Server::start(
        "body",
        "output_buffers 2 16k; location / { gate_body on; } location /quick { return 200 quick; }",
    );
    let gate = Gate::of(b"body");
    let text = long_text(1 << 20);
    server.write("long", &text);
    let mut client = server.connect();
    client.ask("GET", "/long");
    gate.let_bodies(2);
    gate.expect(|g| &g.begun, 3);
    for _ in 0..5 {
        assert_eq!(server.get("/quick").text(), "quick");
    }
    let seen = gate.seen_bytes.load(Ordering::Relaxed);
    assert!(seen <= 5 * 16 * 1024, "{seen} bytes were read for a filter that waits");
    gate.let_bodies(1000);
    assert!(client.answer("GET").body == swapped(&text));
}

#[test]
fn header_and_body_wait_behind_a_filter_that_keeps_input() {
    let server = Server::start(
        "both",
        "output_buffers 2 16k; gate_header on; gate_body on;
         sub_filter_types *; sub_filter_once off; sub_filter a aaaaaaaaaaaaaaaaaaaaaaaa;
         location / { } location /parts/ { rewrite ^ /long break; gate_parts on; }",
    );
    let gate = Gate::of(b"both");
    let text = long_text(1 << 19);
    server.write("long", &text);
    let replace = |text: &[u8], find: char| {
        let text = std::str::from_utf8(text).unwrap();
        text.replace(find, &"a".repeat(24)).into_bytes()
    };
    for path in ["/long", "/parts/"] {
        let mut client = server.connect();
        client.ask("GET", path);
        gate.let_headers(1);
        gate.let_bodies(2000);
        let answer = client.answer("GET");
        assert!(answer.head.contains("X-Waited: yes"));
        let expected = match path {
            "/long" => swapped(&replace(&text, 'a')),
            // It stands before the one that replaces, which heeds no case.
            _ => replace(&swapped(&text), 'A'),
        };
        assert!(answer.body == expected, "{path}: {} bytes", answer.body.len());
    }
}

#[test]
fn a_client_that_goes_is_not_waited_for() {
    let server = Server::start(
        "goes",
        "http2 on; location / { gate_header on; } location /body { gate_body on; rewrite ^ /long break; }",
    );
    let gate = Gate::of(b"goes");
    server.write("long", &long_text(1 << 19));
    for (times, path) in ["/long", "/body"].into_iter().enumerate() {
        let mut client = server.connect();
        client.ask("GET", path);
        gate.expect(|g| &g.begun, 2 * times + 1);
        drop(client);
        gate.expect(|g| &g.dropped, 2 * times + 1);
        let mut client = Http2::connect(&server);
        let id = client.ask(path);
        gate.expect(|g| &g.begun, 2 * times + 2);
        client.reset(id);
        gate.expect(|g| &g.dropped, 2 * times + 2);
    }
    assert_eq!(gate.ended.load(Ordering::Relaxed), 0);
}

#[test]
fn streams_do_not_wait_for_each_other() {
    let server = Server::start(
        "streams",
        "http2 on; location / { gate_header on; gate_body on; } location /quick { return 200 quick; }",
    );
    let gate = Gate::of(b"streams");
    let text = long_text(1 << 19);
    server.write("long", &text);
    let mut client = Http2::connect(&server);
    let slow = client.ask("/long");
    gate.expect(|g| &g.begun, 1);
    let quick = client.ask("/quick");
    assert_eq!(client.first(), (quick, b"quick".to_vec()));
    gate.let_headers(1);
    gate.expect(|g| &g.begun, 2);
    let quick = client.ask("/quick");
    assert_eq!(client.first(), (quick, b"quick".to_vec()));
    gate.let_bodies(1000);
    assert!(client.first() == (slow, swapped(&text)));
}

#[test]
fn another_answer_instead() {
    let server = Server::start(
        "refuse",
        "http2 on; gate_header on; gate_refuse 503; location / { }
         location /page { gate_refuse 403; error_page 403 =200 /sorry; rewrite ^ /long break; }
         location /sorry { gate_header off; return 200 sorry; }",
    );
    let gate = Gate::of(b"refuse");
    server.write("long", &long_text(1 << 19));
    server.write("short", b"short");
    gate.let_headers(100);
    for path in ["/long", "/short"] {
        let mut client = server.connect();
        client.ask("GET", path);
        let answer = client.answer("GET");
        assert_eq!(answer.status(), "503", "{path}");
        assert!(answer.text().contains("503 Service Temporarily Unavailable"), "{path}");
    }
    assert_eq!(server.get("/page").text(), "sorry");
    let mut client = Http2::connect(&server);
    client.ask("/page");
    assert_eq!(client.first().1, b"sorry");
}

const PAGE: &[u8] =
    b"<1><!--# include virtual=\"/part/a\" --><2><!--# include virtual=\"/part/b\" --><3>";

#[test]
fn a_page_of_parts_that_wait() {
    let server = Server::start(
        "parts",
        "http2 on; location /page { ssi on; gate_parts on; default_type text/html; }
         location /part/ { gate_header on; gate_body on; gate_parts on; }",
    );
    let gate = Gate::of(b"parts");
    let (a, b) = (long_text(1 << 18), long_text(1 << 17));
    server.write("page", PAGE);
    std::fs::create_dir_all(server.dir().join("part")).unwrap();
    server.write("part/a", &a);
    server.write("part/b", &b);
    let expected = [b"<1>", &swapped(&a)[..], b"<2>", &swapped(&b), b"<3>"].concat();
    let mut client = server.connect();
    client.ask("GET", "/page");
    gate.expect(|g| &g.begun, 2);
    gate.let_headers(2);
    gate.let_bodies(1000);
    assert!(client.answer("GET").body == expected);

    gate.let_headers(2);
    let mut client = Http2::connect(&server);
    client.ask("/page");
    assert!(client.first().1 == expected);
}

#[test]
fn a_whole_that_waits_is_put_together_in_order() {
    let server = Server::start(
        "whole",
        "http2 on; location /page { ssi on; gate_header on; gate_body on; default_type text/html; }
         location /part/ { gate_header on; gate_body on; }",
    );
    let gate = Gate::of(b"whole");
    let (a, b) = (long_text(4 << 20), long_text(1 << 17));
    server.write("page", PAGE);
    std::fs::create_dir_all(server.dir().join("part")).unwrap();
    server.write("part/a", &a);
    server.write("part/b", &b);
    let expected = swapped(&[b"<1>", &a[..], b"<2>", &b, b"<3>"].concat());
    let mut client = server.connect();
    client.ask("GET", "/page");
    gate.expect(|g| &g.begun, 1);
    assert!(client.is_silent());
    gate.let_headers(1);
    gate.let_bodies(2);
    gate.expect(|g| &g.begun, 4);
    server.get("/part/none");
    let seen = gate.seen_bytes.load(Ordering::Relaxed);
    assert!(seen < 2 << 20, "{seen} bytes of parts came to a filter that waits");
    gate.let_bodies(1000);
    assert!(client.answer("GET").body == expected);

    gate.let_headers(1);
    let mut client = Http2::connect(&server);
    client.ask("/page");
    assert!(client.first().1 == expected);
    drop(client);

    let client = server.connect();
    let begun = gate.begun.load(Ordering::Relaxed);
    { client }.ask("GET", "/page");
    gate.expect(|g| &g.begun, begun + 1);
    gate.expect(|g| &g.dropped, 1);
}
