//! slice: answers fetched range by range.

use weir_tests::h2::H2;
use weir_tests::{Next, Origin, Server, Setup};

const BODY: &str = "0123456789abcdefghij";

/// Answers ranges of `BODY`; what lies behind `?` says what is wrong with them.
fn origin() -> Origin {
    Origin::start(|request, conn| {
        let range = request.header("Range").unwrap_or("").replace("bytes=", "");
        let Some((start, end)) = range.split_once('-') else {
            conn.reply("200 OK", "", BODY);
            return Next::Keep;
        };
        let start: usize = start.parse().unwrap();
        let end = (end.parse::<usize>().unwrap() + 1).min(BODY.len());
        let tag = match request.target() {
            "/changed" => format!("\"{start}\""),
            _ => "\"same\"".into(),
        };
        let whole = BODY.len();
        let said = if request.target() == "/odd" { 1 } else { start };
        let headers = format!("Content-Range: bytes {said}-{}/{whole}\r\nETag: {tag}\r\n", end - 1);
        if request.target() == "/whole" {
            conn.reply("200 OK", "", BODY);
        } else if request.target() == "/fails" && start > 0 {
            conn.reply("500 Oh", "", "");
        } else {
            conn.reply("206 Partial", &headers, &BODY[start..end]);
        }
        Next::Keep
    })
}

fn start(origin: &Origin) -> Server {
    Setup::new(
        "events {} http { proxy_cache_path %%DIR%%/cache keys_zone=one:1m;
            server { listen 127.0.0.1:%%PORT_0%%;
            location / { slice 6; proxy_pass http://%%ORIGIN%%; proxy_set_header Range $slice_range; }
            location /kept { slice 6; proxy_pass http://%%ORIGIN%%; proxy_set_header Range $slice_range;
                proxy_cache one; proxy_cache_key $uri$slice_range; proxy_cache_valid 206 1h; } } }",
    )
    .set("ORIGIN", origin.address())
    .start()
}

#[test]
fn the_whole_and_ranges_of_it() {
    let origin = origin();
    let server = start(&origin);
    let whole = server.on(0).get("/a");
    assert_eq!((whole.status, whole.text().as_str()), (200, BODY));
    assert_eq!((whole.content_length(), whole.header("Content-Range")), (Some(BODY.len()), None));
    let ranges: Vec<_> =
        origin.requests().iter().map(|r| r.header("Range").unwrap().to_string()).collect();
    assert_eq!(ranges, ["bytes=0-5", "bytes=6-11", "bytes=12-17", "bytes=18-23"]);
    for (range, expected, asked) in [
        ("3-4", "34", 1),
        ("7-8", "78", 1),
        ("4-13", "456789abcd", 3),
        ("13-", "defghij", 2),
        ("-3", "hij", 3),
        ("19-19", "j", 1),
    ] {
        let before = origin.requests().len();
        let answer = server.on(0).get_with("/a", &format!("Range: bytes={range}\r\n"));
        assert_eq!((answer.status, answer.text().as_str()), (206, expected), "{range}");
        assert_eq!(origin.requests().len() - before, asked, "{range}");
        let said = answer.header("Content-Range").unwrap();
        assert!(said.ends_with("/20"), "{said}");
    }
    assert_eq!(H2::connect(&start_h2(&origin)).fetch("/a").text(), BODY);
}

fn start_h2(origin: &Origin) -> Server {
    Setup::new(
        "events {} http { http2 on; server { listen 127.0.0.1:%%PORT_0%%;
            location / { slice 6; proxy_pass http://%%ORIGIN%%; proxy_set_header Range $slice_range; } } }",
    )
    .set("ORIGIN", origin.address())
    .start()
}

#[test]
fn slices_are_kept_apart() {
    let origin = origin();
    let server = start(&origin);
    assert_eq!(server.on(0).get_with("/kept", "Range: bytes=6-7\r\n").text(), "67");
    assert_eq!(server.on(0).get("/kept").text(), BODY);
    assert_eq!(origin.requests().len(), 4, "the second slice was there");
    assert_eq!(server.on(0).get_with("/kept", "Range: bytes=1-18\r\n").text(), &BODY[1..19]);
    let condition = "Range: bytes=19-\r\nIf-Range: \"same\"\r\n";
    assert_eq!(server.on(0).get_with("/kept", condition).text(), "j");
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn slices_that_do_not_fit_end_the_answer() {
    let origin = origin();
    let server = start(&origin);
    assert_eq!(server.on(0).get("/whole").text(), BODY);
    for (path, logged) in [
        ("/changed", "etag mismatch in slice response"),
        ("/odd", "unexpected range in slice response: 1-6, expected: 0-7"),
        ("/fails", "unexpected status code 500 in slice response"),
    ] {
        let got = server.on(0).raw(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
        assert!(!got.ends_with(b"j"), "{path}");
        server.expect_error(logged);
    }
}
