//! Good and bad request heads, one line each.

use weir_wire::http1::framing::{framing, host, BodyFraming};
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::{
    preface, Connection, Limits, Method, ParseError, Parser, Preface, Progress, RequestHead,
    Version,
};

fn parse_with(limits: &Limits, buf: &[u8]) -> (Result<Progress, ParseError>, RequestHead) {
    let mut head = RequestHead::default();
    let result = Parser::new().parse(buf, limits, &mut head);
    (result, head)
}

fn parse(buf: &[u8]) -> (Result<Progress, ParseError>, RequestHead) {
    parse_with(&Limits::default(), buf)
}

/// The status nginx would answer; 0 for a request it would serve, 1 for one not yet whole.
fn verdict(buf: &[u8]) -> u16 {
    let (result, head) = parse(buf);
    let checked = result.and_then(|progress| {
        if progress == Progress::NeedMore {
            return Ok(1);
        }
        if head.version >= Version::HTTP_10 {
            host(&head, buf)?;
        }
        framing(&head, buf, false).map(|_| 0)
    });
    checked.unwrap_or_else(|error| error.status())
}

#[test]
fn request_lines() {
    for (line, status) in [
        ("GET / HTTP/1.0", 0),
        ("GET  /   HTTP/1.0  ", 0),
        ("\r\n\n\rGET / HTTP/1.0", 0),
        ("G_E-T / HTTP/1.0", 0),
        ("GET /\u{e9} HTTP/1.0", 0),
        ("GET http://a/b HTTP/1.0", 0),
        ("GET http://a HTTP/1.0", 0),
        ("GET http://a:80?x HTTP/1.0", 0),
        ("GET http://[::1]:80/ HTTP/1.0", 0),
        ("GET x+y-z.1://a/ HTTP/1.0", 0),
        ("GET / HTTP/1.999", 400),
        ("get / HTTP/1.0", 400),
        ("G(T / HTTP/1.0", 400),
        ("GET\t/ HTTP/1.0", 400),
        ("GET * HTTP/1.0", 400),
        ("OPTIONS * HTTP/1.0", 400),
        ("GET a HTTP/1.0", 400),
        ("GET /\x7f HTTP/1.0", 400),
        ("GET /\t HTTP/1.0", 400),
        ("GET /a\rb HTTP/1.0", 400),
        ("GET / FTP/1.0", 400),
        ("GET / HTTP/1", 400),
        ("GET / HTTP/1.x", 400),
        ("GET / HTTP/1.0 x", 400),
        ("GET / HTTP/01.0", 400),
        ("GET / HTTP/1.1000", 400),
        ("GET / HTTP/.1", 400),
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/10.0", 505),
        ("PRI * HTTP/2.0", 400),
        ("GET http:/a HTTP/1.0", 400),
        ("GET http:///x HTTP/1.0", 400),
        ("GET http://a_b/ HTTP/1.0", 400),
        ("GET http://a..b/ HTTP/1.0", 400),
        ("GET http://a:99999/ HTTP/1.0", 400),
        ("GET http://a:b/ HTTP/1.0", 400),
        ("GET http://[::1/ HTTP/1.0", 400),
        ("CONNECT a:443 HTTP/1.0", 405),
        ("CONNECT a HTTP/1.0", 400),
        ("CONNECT /a HTTP/1.0", 400),
        ("TRACE / HTTP/1.0", 405),
    ] {
        // HTTP/1.999 needs a host, which is what refuses it.
        let buf = format!("{line}\r\n\r\n");
        assert_eq!(verdict(buf.as_bytes()), status, "{line:?}");
    }
    assert_eq!(verdict(b"GET / HTTP/1.999\r\nHost: a\r\n\r\n"), 0);
    assert_eq!(verdict(b"\x16\x03\x01"), 400);
    assert_eq!(verdict(b"GET / HTTP/1.0\n\n"), 0);
    assert_eq!(verdict(b"GET /\n"), 0);
    assert_eq!(verdict(b"GET / \r\n"), 0);
    assert_eq!(verdict(b"HEAD /\r\n"), 400);
    assert_eq!(verdict(b"\r\n\r\n"), 1);
}

#[test]
fn header_lines() {
    for (lines, status) in [
        ("Host: a\r\n", 0),
        ("Host:a\n", 0),
        ("Host: a \r\r\n", 0),
        ("Host: a\r\nNoColon\r\n", 0),
        ("Host: a\r\nBad/Name: x\r\n", 0),
        ("Host: a\r\nB\u{e9}: x\r\n", 0),
        ("Host: a\r\nX: \u{e9}\tb\x01\r\n", 0),
        ("", 400),
        ("Host : a\r\n", 400),
        ("Host\t: a\r\n", 400),
        ("Host: a\r\n b\r\n", 400),
        ("Host: a\r\n: x\r\n", 400),
        ("Host: a\r\nX: \0\r\n", 400),
        ("Host: a\r\nX\0: b\r\n", 400),
        ("Host: a\r\nX: b\rc\r\n", 400),
        ("Host: a\r\nX\x7f: b\r\n", 400),
        ("Host: a\r\nHost: a\r\n", 400),
        ("Host: \r\n", 400),
        ("Host: a b\r\n", 400),
        ("Host: a/b\r\n", 400),
        ("Host: a:b\r\n", 400),
        ("Host: .\r\n", 400),
        ("Host: a@b\r\n", 400),
        ("Host: a.\r\n", 0),
        ("Host: A_b%20~:\r\n", 0),
        ("Host: [::1]:8080\r\n", 0),
        ("Host: [::1]x\r\n", 400),
        ("Host: [::1\r\n", 400),
        ("Host: a\r\nContent-Length: 1\r\n", 0),
        ("Host: a\r\nContent-Length: +1\r\n", 400),
        ("Host: a\r\nContent-Length:\r\n", 400),
        ("Host: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n", 400),
        ("Host: a\r\nContent-Length: 9223372036854775808\r\n", 400),
        ("Host: a\r\nTransfer-Encoding: Chunked\r\n", 0),
        ("Host: a\r\nTransfer-Encoding: gzip\r\n", 501),
        ("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", 501),
        ("Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n", 400),
        ("Host: a\r\nRange: x\r\nRange: x\r\n", 0),
        ("Host: a\r\nIf-Range: x\r\nIf-Range: x\r\n", 400),
    ] {
        let buf = format!("GET / HTTP/1.1\r\n{lines}\r\n");
        assert_eq!(verdict(buf.as_bytes()), status, "{lines:?}");
    }
    assert_eq!(verdict(b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

#[test]
fn spans_are_what_variables_show() {
    let buf = b"\r\nGET  /a/%2e+b?c=d#e HTTP/1.1 \r\nHost: EXAMPLE.com.:81\r\n\
                Connection: keep-alive, x\r\nX_y: z\r\nuser-agent:  me \r\n\r\nbody";
    let (result, head) = parse(buf);
    assert_eq!(result, Ok(Progress::Complete));
    assert_eq!((head.method, head.version), (Method::Get, Version::HTTP_11));
    assert_eq!(head.request_line.of(buf), b"GET  /a/%2e+b?c=d#e HTTP/1.1 ");
    assert_eq!(head.target.of(buf), b"/a/%2e+b?c=d#e");
    assert_eq!(head.path.of(buf), b"/a/%2e+b");
    assert_eq!(head.args.map(|a| a.of(buf)), Some(&b"c=d"[..]));
    assert!(head.complex_uri && head.quoted_uri && head.plus_in_uri);
    assert_eq!(head.protocol.of(buf), b"HTTP/1.1 ");
    assert_eq!(head.connection, Connection::KeepAlive);
    assert_eq!(head.value(HeaderId::UserAgent, buf), Some(&b"me"[..]));
    assert_eq!(head.ignored.iter().map(|s| s.of(buf)).collect::<Vec<_>>(), [b"X_y: z"]);
    let named = host(&head, buf).ok().flatten().expect("a host");
    assert_eq!((named.name.of(buf), named.port), (&b"EXAMPLE.com"[..], 81));
    assert!(named.has_upper_case);
    assert_eq!(framing(&head, buf, false), Ok(BodyFraming::None));
    assert_eq!(&buf[head.head_len..], b"body");
    assert_eq!(head.len(), head.head_len - 2);
}

#[test]
fn absolute_targets() {
    for (target, uri, path, args, authority) in [
        ("http://a:1/b?c", "/b?c", "/b", Some("c"), "a:1"),
        ("http://a?c", "?c", "/", Some("c"), "a"),
        ("http://[::1]", "/", "/", None, "[::1]"),
        ("http://a:/", "/", "/", None, "a:"),
    ] {
        let buf = format!("GET {target} HTTP/1.1\r\nHost: other\r\n\r\n");
        let buf = buf.as_bytes();
        let (result, head) = parse(buf);
        assert_eq!(result, Ok(Progress::Complete), "{target}");
        assert_eq!(head.target.of(buf), uri.as_bytes(), "{target}");
        assert_eq!(head.path.of(buf), path.as_bytes(), "{target}");
        assert_eq!(head.args.map(|a| a.of(buf)), args.map(str::as_bytes), "{target}");
        assert_eq!(head.authority.map(|a| a.of(buf)), Some(authority.as_bytes()), "{target}");
        assert_eq!(head.scheme.map(|s| s.of(buf)), Some(&b"http"[..]));
        let named = host(&head, buf).ok().flatten().expect("a host");
        assert!(authority.as_bytes().starts_with(named.name.of(buf)));
    }
    let buf = b"CONNECT  a.b:443 HTTP/1.1\r\nHost: a.b\r\nContent-Length: 0\r\n\r\n";
    let (_, head) = parse(buf);
    assert_eq!((head.path.of(buf), head.target.of(buf)), (&b"/"[..], &b"/"[..]));
    assert_eq!(framing(&head, buf, true), Ok(BodyFraming::Length(0)));
    assert_eq!(framing(&head, buf, false), Err(ParseError::ConnectRefused));
}

#[test]
fn limits_are_counted_in_buffers() {
    let limits = Limits {
        first_buffer_bytes: 64,
        large_buffer_bytes: 128,
        large_buffers: 2,
        max_headers: 3,
        ..Limits::default()
    };
    let line = |n: usize| format!("GET /{} HTTP/1.0\r\n\r\n", "a".repeat(n - 16)).into_bytes();
    assert_eq!(parse_with(&limits, &line(128)).0, Ok(Progress::Complete));
    assert_eq!(parse_with(&limits, &line(129)).0, Err(ParseError::UriTooLong));
    let header = |n: usize| {
        let value = "a".repeat(n - 5);
        format!("GET / HTTP/1.0\r\nA: {value}\r\n\r\n").into_bytes()
    };
    assert_eq!(parse_with(&limits, &header(128)).0, Ok(Progress::Complete));
    let (result, head) = parse_with(&limits, &header(129));
    let error = result.expect_err("too long");
    assert_eq!(error, ParseError::HeaderTooLarge { start: 16, end: 144 });
    let mut out = Vec::new();
    error.write_log(&head, &header(129), &mut out);
    assert!(out.starts_with(b"client sent too long header line: \"A: aaaa"));
    // A bad byte past the limit is never looked at.
    let mut late = line(200);
    late[150] = 0;
    assert_eq!(parse_with(&limits, &late).0, Err(ParseError::UriTooLong));
    let lines = |n: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "A: b\r\n".repeat(n)).into_bytes();
    assert_eq!(parse_with(&limits, &lines(3)).0, Ok(Progress::Complete));
    assert_eq!(parse_with(&limits, &lines(4)).0, Err(ParseError::TooManyHeaders));
    let three = format!("GET / HTTP/1.0\r\n{}", format!("A: {}\r\n", "b".repeat(100)).repeat(3));
    let result = parse_with(&limits, three.as_bytes()).0;
    assert!(matches!(result, Err(ParseError::HeaderTooLarge { .. })));
    let blank = "\r\n".repeat(1000) + "GET / HTTP/1.0\r\n\r\n";
    assert_eq!(parse_with(&limits, blank.as_bytes()).0, Ok(Progress::Complete));
}

#[test]
fn invalid_names_are_dropped_or_kept() {
    let buf = b"GET / HTTP/1.0\r\na_b: 1\r\nc/d: 2\r\n\r\n";
    for (ignore, underscores, kept) in [(true, false, 0), (true, true, 1), (false, false, 2)] {
        let limits = Limits {
            ignore_invalid_headers: ignore,
            underscores_in_headers: underscores,
            ..Limits::default()
        };
        assert_eq!(parse_with(&limits, buf).1.headers.len(), kept);
    }
}

#[test]
fn log_lines_say_what_nginx_says() {
    for (buf, want) in [
        (&b"\x16"[..], "client sent invalid method"),
        (b"GET / HTTP/1.0\r\nA b\r\n", "client sent invalid header line: \"A\\x20...\""),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n",
            "client sent duplicate host header: \"host: b\", previous value: \"Host: a\"",
        ),
        (
            b"GET / HTTP/1.1\r\nIf-Match: a\r\nIf-Match: b\r\n",
            "client sent duplicate header line: \"If-Match: b\", previous value: \"If-Match: a\"",
        ),
    ] {
        let (result, head) = parse(buf);
        let mut out = Vec::new();
        result.expect_err("refused").write_log(&head, buf, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), want);
    }
}

#[test]
fn http2_is_told_apart() {
    assert_eq!(preface(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0"), Preface::Http2);
    assert_eq!(preface(b"PRI * HT"), Preface::NeedMore);
    assert_eq!(preface(b"PRO"), Preface::Http1);
}
