//! Request and response heads: the same answer whole and in pieces, spans inside the head.

use super::Target;
use crate::random::Random;
use weir_wire::http1::framing::{framing, host};
use weir_wire::http1::request::{Limits, Parser, Progress, RequestHead};
use weir_wire::http1::response::{ResponseHead, ResponseParser, ResponseProgress};
use weir_wire::http1::uri;
use weir_wire::Range32;

const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b"\0",
    b"\x7f",
    b"\xff",
    b"/",
    b"..",
    b"%2e",
    b"%",
    b"?",
    b"#",
    b"//",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"http://h:1",
    b"*",
    b"Host: a\r\n",
    b"Content-Length: 1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"X_Y: z\r\n",
    b"0",
    b"99999999999999999999",
    b"\r\n\r\n",
    b"[::1]",
    b"A: \r\n b\r\n",
    b"100",
];

pub const REQUEST: Target = Target {
    name: "request head",
    seeds: &[
        b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"\r\nPOST /a/./b/../c%20d?e=f HTTP/1.1\r\nHost: A.b.:81\r\nContent-Length: 10\r\n\r\n0123456789",
        b"GET http://[::1]:80/p?q#r HTTP/1.0\nConnection: Keep-Alive\nX_Bad: 1\n\n",
        b"PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
        b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost:h\r\nCookie: a=b; c=d\r\nCookie: e\r\n\r\n",
        b"GET /old\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    pieces: PIECES,
    check: request,
};

const SLASHES: uri::Rules = uri::Rules { merge: true, back: false, cut: false };

fn request(buf: &[u8], random: &mut Random) {
    let limits = Limits {
        first_buffer_bytes: 1 + random.below(300),
        large_buffer_bytes: 20 + random.below(300),
        large_buffers: random.below(6) as u32,
        max_headers: 1 + random.below(12),
        ignore_invalid_headers: random.coin(),
        underscores_in_headers: random.coin(),
    };
    let mut whole = RequestHead::default();
    let expected = Parser::new().parse(buf, &limits, &mut whole);
    let mut head = RequestHead::default();
    let mut parser = Parser::new();
    let mut result = Ok(Progress::NeedMore);
    for cut in random.cuts(buf.len()) {
        result = parser.parse(&buf[..cut], &limits, &mut head);
        if result != Ok(Progress::NeedMore) {
            break;
        }
    }
    assert_eq!(result, expected);
    assert_eq!(head, whole);
    match result {
        Ok(Progress::Complete) => complete(&head, buf, random),
        Ok(Progress::NeedMore) => {}
        Err(error) => {
            assert!((400..600).contains(&error.status()), "{error:?}");
            error.write_log(&head, buf, &mut Vec::new());
        }
    }
}

fn complete(head: &RequestHead, buf: &[u8], random: &mut Random) {
    assert!(head.head_len <= buf.len());
    let mut spans = vec![head.method_span, head.request_line, head.protocol];
    spans.extend([head.scheme, head.authority, head.args].into_iter().flatten());
    spans.extend([head.target, head.path]);
    spans.extend(&head.ignored);
    spans.extend(head.headers.iter().flat_map(|h| [h.name, h.value]));
    spans.into_iter().for_each(|span| inside(span, buf.len()));
    let _ = host(head, buf);
    let _ = framing(head, buf, random.coin());
    let mut path = Vec::new();
    let plain = uri::normalize(head.path.of(buf), SLASHES, &mut path).is_ok();
    if !head.complex_uri {
        // The quick way, which takes the path as it is, is only for paths that are normal.
        assert!(plain && path == head.path.of(buf), "{head:?}");
    }
}

/// A span that is empty may stand anywhere.
fn inside(span: Range32, len: usize) {
    assert!(span.is_empty() || span.end as usize <= len, "{span:?} of {len}");
}

pub const RESPONSE: Target = Target {
    name: "response head",
    seeds: &[
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nDate: now\r\n\r\nabc",
        b"HTTP/1.0 404\nServer: x\nServer: y\n\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1  304 Not Modified\r\nETag: \"x\"\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"<html>no head at all</html>",
    ],
    pieces: PIECES,
    check: response,
};

fn response(buf: &[u8], random: &mut Random) {
    let max = if random.below(4) == 0 { random.below(150) } else { 8192 };
    let mut whole = ResponseHead::default();
    let expected = ResponseParser::new().parse(buf, max, &mut whole);
    let mut head = ResponseHead::default();
    let mut parser = ResponseParser::new();
    let mut result = Ok(ResponseProgress::NeedMore);
    for cut in random.cuts(buf.len()) {
        result = parser.parse(&buf[..cut], max, &mut head);
        if result != Ok(ResponseProgress::NeedMore) {
            break;
        }
    }
    assert_eq!(result, expected);
    if result != Ok(ResponseProgress::NeedMore) {
        assert_eq!(head, whole);
    }
    match result {
        Ok(_) => {
            let spans = head.headers.iter().flat_map(|h| [h.name, h.value]);
            spans.chain([head.status_line]).for_each(|span| inside(span, buf.len()));
        }
        Err(error) => error.write_log(&head, buf, &mut Vec::new()),
    }
}
