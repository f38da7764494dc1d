//! Seeded drivers: fed whole or in pieces, every parser says the same; mutated input never
//! panics. A failure prints its seed.

use weir_wire::http1::chunked::{Decoder, Event};
use weir_wire::http1::field::{FieldEvent, FieldRules, Fields};
use weir_wire::http1::framing::{framing, host};
use weir_wire::http1::request::{Limits, Parser, Progress, RequestHead};
use weir_wire::http1::response::{ResponseHead, ResponseParser, ResponseProgress};
use weir_wire::http1::uri;
use weir_wire::proxy_protocol;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Growing lengths that end with `len`.
    fn cuts(&mut self, len: usize) -> Vec<usize> {
        let step = [1, 3, 17, 200][self.below(4)];
        let mut cuts = Vec::new();
        let mut at = 0;
        while at < len {
            cuts.push(at);
            at += 1 + self.below(step);
        }
        cuts.push(len);
        cuts
    }

    fn mutate(&mut self, buf: &mut Vec<u8>) {
        const ODD: &[u8] = b"\r\n\0 \t:/.%#?+_-[]x0\x7f\xff";
        for _ in 0..self.below(4) {
            if buf.is_empty() {
                return;
            }
            let at = self.below(buf.len());
            match self.below(4) {
                0 => buf[at] = self.next() as u8,
                1 => buf[at] = ODD[self.below(ODD.len())],
                2 => {
                    buf.remove(at);
                }
                _ => buf.insert(at, ODD[self.below(ODD.len())]),
            }
        }
    }
}

const ROUNDS: u64 = 20_000;

fn for_each_seed(name: &str, mut round: impl FnMut(&mut Rng)) {
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    let rounds = if first.is_some() { 1 } else { ROUNDS };
    for seed in (1..=rounds).map(|i| first.unwrap_or(i)) {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            round(&mut Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
        }));
        assert!(result.is_ok(), "{name}: SEED={seed} fails");
    }
}

const METHODS: &[&str] = &["GET", "HEAD", "POST", "CONNECT", "PROPPATCH", "TRACE", "X_Y-Z", "get"];
const TARGETS: &[&str] = &[
    "/",
    "/a/b.html",
    "/a?b=c&d",
    "/%2e%2e/x",
    "//a/./b/../c#f",
    "http://h:80/p?q",
    "http://h",
    "h:443",
    "http://[::1]:1?x",
    "*",
    "/a+b%20c",
    "/%",
    "/..",
    "/é",
];
const VERSIONS: &[&str] = &[" HTTP/1.1", " HTTP/1.0", " HTTP/1.1  ", " HTTP/2.0", "", " HTTP/1.15"];
const FIELDS: &[&str] = &[
    "Host: example.com",
    "Host: A.b.:81",
    "Connection: close",
    "connection: Keep-Alive",
    "Content-Length: 10",
    "Transfer-Encoding: chunked",
    "User-Agent: Mozilla/5.0 (X11)",
    "X_Bad: 1",
    "X/Bad: 1",
    "NoColon",
    "Accept:  a, b  ",
    "Cookie: a=b; c=d",
    "Range: bytes=0-1",
    "If-None-Match: \"x\"",
    "Empty:",
    "Server: x",
    "Date: now",
    "Date: then",
    "HTTP/1.1 200 OK",
];

fn lines(rng: &mut Rng, first: String) -> Vec<u8> {
    let mut buf = first.into_bytes();
    let eol = rng.pick(&["\r\n", "\r\n", "\n"]);
    buf.extend_from_slice(eol.as_bytes());
    for _ in 0..rng.below(8) {
        buf.extend_from_slice(rng.pick(FIELDS).as_bytes());
        buf.extend_from_slice(eol.as_bytes());
    }
    buf.extend_from_slice(eol.as_bytes());
    buf
}

#[test]
fn request_heads() {
    for_each_seed("request_heads", |rng| {
        let blank = rng.pick(&["", "", "\r\n"]);
        let first =
            format!("{blank}{} {}{}", rng.pick(METHODS), rng.pick(TARGETS), rng.pick(VERSIONS));
        let mut buf = lines(rng, first);
        rng.mutate(&mut buf);
        let limits = Limits {
            first_buffer_bytes: 1 + rng.below(100),
            large_buffer_bytes: 20 + rng.below(100),
            large_buffers: rng.below(6) as u32,
            max_headers: 1 + rng.below(8),
            ignore_invalid_headers: rng.below(2) == 0,
            underscores_in_headers: rng.below(2) == 0,
        };
        let mut whole = RequestHead::default();
        let expected = Parser::new().parse(&buf, &limits, &mut whole);

        let mut head = RequestHead::default();
        let mut parser = Parser::new();
        let mut result = Ok(Progress::NeedMore);
        for cut in rng.cuts(buf.len()) {
            result = parser.parse(&buf[..cut], &limits, &mut head);
            if result != Ok(Progress::NeedMore) {
                break;
            }
        }
        assert_eq!(result, expected);
        assert_eq!(head, whole);
        match result {
            Ok(Progress::Complete) => {
                assert!(head.head_len <= buf.len());
                let _ = host(&head, &buf);
                let _ = framing(&head, &buf, true);
                let mut out = Vec::new();
                let _ = uri::normalize(head.path.of(&buf), rng.below(2) == 0, &mut out);
                let _ = uri::exten(&out);
            }
            Ok(Progress::NeedMore) => {}
            Err(error) => error.write_log(&head, &buf, &mut Vec::new()),
        }
    });
}

#[test]
fn response_heads() {
    for_each_seed("response_heads", |rng| {
        let status =
            rng.pick(&["200 OK", "404", "103 Early", "  304 Not Modified", "2x0", "403.1"]);
        let first = format!("{} {status}", rng.pick(&["HTTP/1.1", "HTTP/1.0", "HTTP/2.15", "X"]));
        let mut buf = lines(rng, first);
        rng.mutate(&mut buf);
        let max = if rng.below(4) == 0 { rng.below(150) } else { 4096 };
        let mut whole = ResponseHead::default();
        let expected = ResponseParser::new().parse(&buf, max, &mut whole);

        let mut head = ResponseHead::default();
        let mut parser = ResponseParser::new();
        let mut result = Ok(ResponseProgress::NeedMore);
        for cut in rng.cuts(buf.len()) {
            result = parser.parse(&buf[..cut], max, &mut head);
            if result != Ok(ResponseProgress::NeedMore) {
                break;
            }
        }
        assert_eq!(result, expected);
        if result != Ok(ResponseProgress::NeedMore) {
            assert_eq!(head, whole);
        }
        if let Err(error) = result {
            error.write_log(&head, &buf, &mut Vec::new());
        }
    });
}

/// The body and what was not consumed, or the error, of input that comes in pieces.
fn decode(buf: &[u8], cuts: &[usize], keep: bool) -> Option<(Vec<u8>, Option<usize>)> {
    let mut decoder = if keep { Decoder::keeping_trailers() } else { Decoder::new() };
    let mut body = Vec::new();
    let mut at = 0;
    for &cut in cuts {
        loop {
            let input = &buf[at..cut];
            let (used, event) = decoder.decode(input).ok()?;
            assert!(used <= input.len());
            at += used;
            match event {
                Event::Data(range) => body.extend_from_slice(&input[range]),
                Event::NeedMore => {
                    assert_eq!(at, cut);
                    assert!(decoder.min_remaining() > 0);
                    break;
                }
                Event::End => return Some((body, Some(at))),
            }
        }
    }
    Some((body, None))
}

#[test]
fn chunked_bodies() {
    for_each_seed("chunked_bodies", |rng| {
        let mut buf = Vec::new();
        for _ in 0..rng.below(4) {
            let data = vec![b'd'; 1 + rng.below(40)];
            let extension = rng.pick(&["", ";a=b", " ", "\t;x"]);
            buf.extend_from_slice(format!("{:x}{extension}\r\n", data.len()).as_bytes());
            buf.extend_from_slice(&data);
            buf.extend_from_slice(b"\r\n");
        }
        buf.extend_from_slice(
            rng.pick(&["0\r\n\r\n", "00;x\r\nA: b\r\n\r\nGET", "0\r\nT"]).as_bytes(),
        );
        rng.mutate(&mut buf);
        let keep = rng.below(2) == 0;
        let whole = decode(&buf, &[buf.len()], keep);
        let cuts = rng.cuts(buf.len());
        assert_eq!(decode(&buf, &cuts, keep), whole);
    });
}

#[test]
fn trailers() {
    for_each_seed("trailers", |rng| {
        let mut buf = lines(rng, "A: b".into());
        rng.mutate(&mut buf);
        let rules = FieldRules { underscores: true, upstream: rng.below(2) == 0 };
        let read = |cuts: &[usize]| {
            let mut fields = Fields::default();
            let mut events = Vec::new();
            for &cut in cuts {
                loop {
                    match fields.next(&buf[..cut], rules) {
                        Ok(FieldEvent::NeedMore) => break,
                        Ok(FieldEvent::End) => return (events, Some(Ok(fields.position()))),
                        Ok(event) => events.push(event),
                        Err(error) => return (events, Some(Err(error))),
                    }
                }
            }
            (events, None)
        };
        let cuts = rng.cuts(buf.len());
        assert_eq!(read(&cuts), read(&[buf.len()]));
    });
}

#[test]
fn proxy_headers() {
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x13".to_vec();
    v2.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 0, 80, 1, 187, 0x20, 0, 4, 1, 0, 0, 0]);
    for_each_seed("proxy_headers", |rng| {
        let mut buf = match rng.below(3) {
            0 => b"PROXY TCP4 192.0.2.1 198.51.100.2 123 5678\r\nGET".to_vec(),
            1 => b"PROXY UNKNOWN x y\r\n".to_vec(),
            _ => v2.clone(),
        };
        rng.mutate(&mut buf);
        let whole = proxy_protocol::parse(&buf);
        let mut pieces = Ok(proxy_protocol::Parsed::NeedMore);
        for cut in rng.cuts(buf.len()) {
            pieces = proxy_protocol::parse(&buf[..cut]);
            if pieces != Ok(proxy_protocol::Parsed::NeedMore) {
                break;
            }
        }
        assert_eq!(pieces, whole);
        if let Ok(proxy_protocol::Parsed::Header { client: Some(client), .. }) = pieces {
            for name in ["ssl_verify", "ssl_cn", "alpn", "0x20"] {
                let _ = proxy_protocol::tlv(&client.tlvs, name);
            }
        }
    });
}

#[test]
fn paths() {
    for_each_seed("paths", |rng| {
        let mut path = b"/".to_vec();
        for _ in 0..rng.below(8) {
            let part = ["a", "..", ".", "/", "%2e", "%2f", "b.c", "%3f", "%", "+"];
            path.extend_from_slice(rng.pick(&part.each_ref().map(|p| *p)).as_bytes());
            if rng.below(2) == 0 {
                path.push(b'/');
            }
        }
        rng.mutate(&mut path);
        let mut out = Vec::new();
        if uri::normalize(&path, true, &mut out).is_ok() && path.first() == Some(&b'/') {
            assert_eq!(out.first(), Some(&b'/'));
            assert!(!out.contains(&0) || path.contains(&0));
            let segments: Vec<_> = out.split(|&b| b == b'/').collect();
            assert!(!segments.iter().any(|s| *s == b".." || *s == b"."));
        }
        let _ = uri::unsafe_uri(&path, &mut out);
    });
}
