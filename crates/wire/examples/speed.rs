//! How long a request head takes to read: `cargo run --release -p weir-wire --example speed`.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use weir_wire::http1::framing::{framing, host};
use weir_wire::http1::request::{Limits, Parser, RequestHead};

const WRK: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const CURL: &[u8] = b"GET /some/path/file.txt HTTP/1.1\r\nHost: localhost:8080\r\n\
    User-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";
const BROWSER: &[u8] = b"GET /articles/2026/a-long-title-with-words.html?utm=x HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://www.example.com/articles/\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=yes\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    If-None-Match: \"66b0c5a1-2f4e\"\r\n\
    Priority: u=0, i\r\n\r\n";

fn main() {
    for (name, request) in [("wrk", WRK), ("curl", CURL), ("browser", BROWSER)] {
        let parse_ns = best(|parser, head, limits| {
            let _ = black_box(parser.parse(black_box(request), limits, head));
        });
        let all_ns = best(|parser, head, limits| {
            let _ = black_box(parser.parse(black_box(request), limits, head));
            let _ = black_box((host(head, request), framing(head, request, false)));
        });
        println!(
            "{name:8} {:4} bytes  parse {parse_ns:6.1} ns  with host and framing {all_ns:6.1} ns",
            request.len()
        );
    }
}

fn best(mut run: impl FnMut(&mut Parser, &mut RequestHead, &Limits)) -> f64 {
    const BATCH: u32 = 100_000;
    let limits = Limits::default();
    let mut parser = Parser::new();
    let mut head = RequestHead::default();
    let mut best = f64::MAX;
    for _ in 0..30 {
        let start = Instant::now();
        for _ in 0..BATCH {
            parser.reset();
            run(&mut parser, &mut head, &limits);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    best
}
