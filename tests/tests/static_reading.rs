//! Files that are not sent by sendfile: how much of them is read, by what the system has counted.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use weir_tests::h2::H2;
use weir_tests::{expect_soon, run_cli, skip, Client, Conn, Next, Origin, Server, Setup};

/// Long, and with nothing on the disk but a mark here and there.
const LEN: u64 = 256 << 20;
/// What may be read besides what was asked for.
const SPARE_BYTES: u64 = 256 << 10;
/// What may be read for a client that reads nothing: buffers of ours and of the system's.
const AHEAD_MAX_BYTES: u64 = 16 << 20;

const CONF: &str = "worker_processes 1; events {} http { default_type text/html; root %%DIR%%/html;
    proxy_cache_path %%DIR%%/cache keys_zone=kept:1m; proxy_cache_valid 200 206 1h;
    server { listen 127.0.0.1:%%PORT_0%%; http2 on;
        location /warm { return 204; }
        location /plain/ { alias %%DIR%%/html/; }
        location /threads/ { aio threads; alias %%DIR%%/html/; }
        location /direct/ { sendfile on; aio threads; directio 4m; alias %%DIR%%/html/; }
        location /large/ { output_buffers 2 512k; alias %%DIR%%/html/; }
        location /small/ { output_buffers 4 8k; alias %%DIR%%/html/; }
        location /direct/large/ { aio threads; directio 4m; output_buffers 2 512k; alias %%DIR%%/html/; }
        location /accel/ { internal; alias %%DIR%%/html/; }
        location /try/ { try_files /big =404; }
        location /proxy/ { proxy_pass http://%%ORIGIN%%; }
        location /kept { proxy_cache kept; proxy_pass http://%%ORIGIN%%; }
        location /slices { slice 4m; proxy_cache kept; proxy_cache_key $uri$slice_range;
            proxy_set_header Range $slice_range; proxy_pass http://%%ORIGIN%%; }
        location /error/ { recursive_error_pages on; error_page 404 =200 /plain/big; }
        location /sub/ { sub_filter wanted found; sub_filter_once off; alias %%DIR%%/html/; }
        location /ssi/ { ssi on; alias %%DIR%%/html/; }
        location /gzip/ { gzip on; sub_filter a b; alias %%DIR%%/html/; }
        location /gunzip/ { gunzip on; gzip_static always; alias %%DIR%%/html/; }
        location /page/ { ssi on; sub_filter x y; alias %%DIR%%/html/page/; } } }";

fn start() -> Server {
    let origin = Origin::start(|request, conn| {
        match request.target() {
            "/kept" => conn.reply("200 OK", "Accept-Ranges: bytes\r\n", &letters(0, KEPT)),
            "/slices" => slice(request.header("Range").unwrap_or(""), conn),
            _ => conn.reply("200 OK", "X-Accel-Redirect: /accel/big\r\n", ""),
        }
        Next::Close
    });
    let page = "<!--#include virtual='/plain/big'--><!--#include virtual='/threads/big'-->";
    let noise = noise(32 << 20);
    let server = Setup::new(CONF)
        .set("ORIGIN", origin.address())
        .file("html/page/index.html", page)
        .file("html/noise.gz", stored(&noise))
        .file("html/noise", noise)
        .start();
    // The origin answers as long as the test runs.
    std::mem::forget(origin);
    let file = File::create(server.dir().join("html/big")).unwrap();
    file.set_len(LEN).unwrap();
    file.write_all_at(b"0123456789", 0).unwrap();
    file.write_all_at(b"the end", LEN - 7).unwrap();
    server
}

/// The length of what the backend has.
const KEPT: usize = 15 << 20;

fn letters(from: usize, to: usize) -> String {
    (from..to).map(|n| char::from(b'a' + (n % 26) as u8)).collect()
}

fn slice(range: &str, conn: &mut Conn) {
    let (from, to) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
    let to = KEPT.min(to + 1);
    let headers = format!("Content-Range: bytes {from}-{}/{KEPT}\r\nETag: \"e\"\r\n", to - 1);
    conn.reply("206 Partial Content", &headers, &letters(from, to));
}

/// Letters that hardly get shorter when they are compressed.
fn noise(len: usize) -> Vec<u8> {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// gzip's format, nothing compressed.
fn stored(text: &[u8]) -> Vec<u8> {
    let mut z = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    z.write_all(text).unwrap();
    z.finish().unwrap()
}

/// How much the server reads from files meanwhile.
#[track_caller]
fn reads(server: &Server, f: impl FnOnce()) -> u64 {
    let before = server.bytes_read();
    f();
    let after = server.bytes_read();
    let (Some(before), Some(after)) = (before, after) else {
        skip("the system has no /proc/PID/io");
        return 0;
    };
    after - before
}

const RANGES: [(&str, &[&str]); 6] = [
    ("0-0", &["0"]),
    ("268435440-", &["\0\0\0\0\0\0\0\0\0the end"]),
    ("-3", &["end"]),
    ("0-0,5-5", &["0", "5"]),
    // As the client wants them, not as they stand in the file.
    ("268435449-268435451,4-5,0-0", &["the", "45", "0"]),
    ("100000000-100000001,7-8", &["\0\0", "78"]),
];

/// The bodies of the parts of an answer.
fn parts(kind: Option<&str>, text: &str) -> Vec<String> {
    let Some(boundary) = kind.and_then(|k| k.strip_prefix("multipart/byteranges; boundary="))
    else {
        return vec![text.to_string()];
    };
    let text = text.split_once(&format!("\r\n--{boundary}--\r\n")).expect("a closing line").0;
    let line = format!("\r\n--{boundary}\r\n");
    let parts = text.split(line.as_str()).skip(1);
    parts.map(|p| p.split_once("\r\n\r\n").expect("a head").1.to_string()).collect()
}

const READ: [&str; 6] =
    ["/plain/big", "/threads/big", "/direct/big", "/proxy/", "/try/", "/error/nothing"];

#[test]
fn a_range_alone_is_read() {
    let server = start();
    for path in READ {
        for (range, expected) in RANGES {
            let read = reads(&server, || {
                let response = server.get_with(path, &format!("Range: bytes={range}\r\n"));
                assert_eq!(response.status, 206, "{path} {range}");
                let got = parts(response.header("Content-Type"), &response.text());
                assert_eq!(got, expected, "{path} {range}");
            });
            assert!(read < SPARE_BYTES, "{path} {range}: {read} bytes read");
        }
    }
}

#[test]
fn a_range_alone_is_read_over_http2() {
    let server = start();
    let mut h2 = H2::connect(&server);
    for path in READ {
        for (range, expected) in RANGES {
            let read = reads(&server, || {
                let mut fields = weir_tests::h2::request("GET", path).to_vec();
                let range = format!("bytes={range}");
                fields.push(("range", &range));
                let stream = h2.open(&fields, true);
                let answer = h2.answer(stream);
                let got = parts(answer.header("content-type"), &answer.text());
                assert_eq!(got, expected, "{path} {range}");
            });
            assert!(read < SPARE_BYTES, "{path} {range}: {read} bytes read");
        }
    }
}

#[test]
fn a_range_of_a_kept_answer_alone_is_read() {
    let server = start();
    for path in ["/kept", "/slices"] {
        assert_eq!(server.get(path).body.len(), KEPT, "{path}");
        for (from, to) in [(0, 1), (9_000_000, 9_000_003), (KEPT - 2, KEPT)] {
            let read = reads(&server, || {
                let response =
                    server.get_with(path, &format!("Range: bytes={from}-{}\r\n", to - 1));
                assert_eq!((response.status, response.text()), (206, letters(from, to)), "{path}");
            });
            assert!(read < SPARE_BYTES, "{path} {from}: {read} bytes read");
        }
    }
    // The first slice only tells how long the whole is; of the two in the range little is wanted.
    for (range, expected) in
        [("-3", letters(KEPT - 3, KEPT)), ("4194303-4194304", letters(4_194_303, 4_194_305))]
    {
        let read = reads(&server, || {
            let response = server.get_with("/slices", &format!("Range: bytes={range}\r\n"));
            assert_eq!((response.status, response.text()), (206, expected), "{range}");
        });
        assert!(read < SPARE_BYTES, "{range}: {read} bytes read");
    }
}

#[test]
fn a_head_reads_nothing_of_the_body() {
    let server = start();
    for path in READ {
        for headers in ["", "Range: bytes=0-\r\n"] {
            let read = reads(&server, || {
                let response = server.request("HEAD", path, headers);
                assert_eq!(response.content_length(), Some(LEN as usize), "{path}");
            });
            assert!(read < SPARE_BYTES, "{path}: {read} bytes read");
        }
    }
}

/// In the `Range: 1-`, no offset is one that `directio` could read at.
#[test]
fn pieces_are_as_long_as_output_buffers_says() {
    let server = start();
    let text = server.get("/plain/noise").body;
    for (path, size) in [
        ("/large/noise", 512),
        ("/direct/large/noise", 512),
        ("/plain/noise", 32),
        ("/small/noise", 8),
    ] {
        for headers in ["", "Range: bytes=1-\r\n"] {
            let before = server.read_calls();
            let skipped = headers.len().min(1);
            assert!(server.get_with(path, headers).body == text[skipped..], "{path}");
            let (Some(before), Some(after)) = (before, server.read_calls()) else {
                return skip("the system has no /proc/PID/io");
            };
            // Some calls more read other things: threads are woken by some, too.
            let pieces = (32 << 10) / size;
            let calls = after - before;
            assert!(calls >= pieces && calls < pieces * 3 + 20, "{path}: {calls}, not {pieces}");
        }
    }
}

#[test]
fn output_buffers_needs_a_number_and_a_size() {
    for value in ["0 16k", "2 0", "-1 16k", "x 16k", "2 x"] {
        let conf = format!("events {{}} http {{ output_buffers {value}; }}");
        let output = run_cli(&["-t"], &conf);
        let error = output.stderr.lines().find(|l| l.contains("[emerg]")).unwrap_or_default();
        assert!(output.code != 0 && error.contains("invalid"), "{value}: {error}");
    }
}

#[test]
fn if_range_decides_on_what_is_read() {
    let server = start();
    let etag = server.head("/plain/big").header("ETag").unwrap().to_string();
    let read = reads(&server, || {
        let headers = format!("Range: bytes=1-2\r\nIf-Range: {etag}\r\n");
        assert_eq!(server.get_with("/plain/big", &headers).text(), "12");
    });
    assert!(read < SPARE_BYTES, "{read} bytes read");
    let request = "GET /plain/big HTTP/1.0\r\nRange: bytes=1-2\r\nIf-Range: \"x\"\r\n\r\n";
    slow_client(&server, "/plain/big", request);
}

/// Reads the beginning of an answer and no more, until the server has read all that it will.
#[track_caller]
fn slow_client(server: &Server, path: &str, request: &str) -> Client {
    server.get("/warm");
    let mut client = server.connect();
    client.set_patience(Duration::from_secs(60));
    let read = reads(server, || {
        client.send(request.as_bytes());
        let head = client.read_until(b"\r\n\r\n");
        assert!(head.windows(7).any(|w| w == b" 200 OK"), "{path}");
        rest(server);
    });
    assert!(read < AHEAD_MAX_BYTES, "{path}: {read} bytes read ahead");
    client
}

/// Waits until the server reads no more.
fn rest(server: &Server) {
    let (mut last, mut same) = (None, 0);
    expect_soon("the server comes to rest", || {
        let now = server.bytes_read();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same > 25
    });
}

#[test]
fn a_client_that_reads_nothing_has_little_read_for_it() {
    let server = start();
    for path in [
        "/plain/big",
        "/threads/big",
        "/direct/big",
        "/sub/big",
        "/ssi/big",
        "/page/index.html",
        "/gunzip/noise",
    ] {
        slow_client(&server, path, &format!("GET {path} HTTP/1.0\r\n\r\n"));
    }
    let path = "/gzip/noise";
    let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
    slow_client(&server, path, &request);
}

#[test]
fn a_stream_that_is_not_read_has_little_read_for_it() {
    let server = start();
    for path in ["/plain/big", "/threads/big", "/direct/big", "/sub/big"] {
        let read = reads(&server, || {
            let mut h2 = H2::connect(&server);
            h2.get(path);
            h2.expect(1);
            rest(&server);
        });
        // The window of a stream is 65,535 bytes.
        assert!(read < 4 << 20, "{path}: {read} bytes read");
    }
}

/// A filter that makes little of much never finds the client's socket full; nginx reads on then.
#[test]
fn others_have_their_turn_while_a_filter_makes_little_of_a_file() {
    let server = start();
    let mut client = server.connect();
    let read = reads(&server, || {
        client.send(b"GET /gzip/big HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
        let before = server.bytes_read();
        expect_soon("the file is being read", || server.bytes_read() > before);
        assert_eq!(server.get("/warm").status, 204);
    });
    assert!(read < LEN, "answered behind the whole file");
}
