//! Parts of files.

use weir_tests::{Server, Setup};

fn start() -> Server {
    Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location /one/ { max_ranges 1; alias %%DIR%%/html/; }
            location /none/ { max_ranges 0; alias %%DIR%%/html/; } } }",
    )
    .file("html/d", "0123456789")
    .file("html/empty", "")
    .start()
}

#[test]
fn single_ranges() {
    let server = start();
    for (range, body, content_range) in [
        ("0-3", "0123", "bytes 0-3/10"),
        ("4-", "456789", "bytes 4-9/10"),
        ("-3", "789", "bytes 7-9/10"),
        ("-99", "0123456789", "bytes 0-9/10"),
        ("5-99", "56789", "bytes 5-9/10"),
        (" 0 - 0 ", "0", "bytes 0-0/10"),
        ("9-9", "9", "bytes 9-9/10"),
        ("0-0,99-", "0", "bytes 0-0/10"),
        // One that ends before it begins is passed over.
        ("5-3,0-0", "0", "bytes 0-0/10"),
        ("0-9223372036854775807", "0123456789", "bytes 0-9/10"),
    ] {
        let response = server.get_with("/d", &format!("Range: bytes={range}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (206, body), "{range}");
        assert_eq!(response.header("Content-Range"), Some(content_range), "{range}");
        assert_eq!(response.content_length(), Some(body.len()), "{range}");
    }
}

#[test]
fn ranges_that_cannot_be_given() {
    let server = start();
    for range in [
        "10-",
        "20-30",
        "99-,88-",
        "-0",
        "5-4x",
        "a-b",
        "5-3",
        "0-1,",
        // Spaces stand around numbers, and not behind the dash that begins a range.
        "- 3",
        "0\t-1",
        // More than a file can be long.
        "0-9223372036854775808",
    ] {
        let response = server.get_with("/d", &format!("Range: bytes={range}\r\n"));
        assert_eq!(response.status, 416, "{range:?}");
        assert_eq!(response.header("Content-Range"), Some("bytes */10"), "{range:?}");
    }
    assert_eq!(server.get_with("/d", "Range: lines=0-1\r\n").status, 200);
    assert_eq!(server.get_with("/empty", "Range: bytes=0-\r\n").status, 200);
}

#[test]
fn several_ranges_come_in_parts() {
    let server = start();
    let response = server.get_with("/d", "Range: bytes=0-1, -2\r\n");
    assert_eq!(response.status, 206);
    let kind = response.header("Content-Type").unwrap_or_default();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
    let part = |range: &str, data: &str| {
        format!("\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {range}/10\r\n\r\n{data}")
    };
    let body = part("0-1", "01") + &part("8-9", "89") + &format!("\r\n--{boundary}--\r\n");
    assert_eq!(response.text(), body);
    assert_eq!(response.content_length(), Some(body.len()));
    // Together longer than the whole: the whole is sent.
    assert_eq!(server.get_with("/d", "Range: bytes=0-8,1-9\r\n").status, 200);
}

#[test]
fn their_number_can_be_limited() {
    let server = start();
    assert_eq!(server.get_with("/one/d", "Range: bytes=0-1\r\n").status, 206);
    assert_eq!(server.get_with("/one/d", "Range: bytes=0-1,3-4\r\n").status, 200);
    let none = server.get_with("/none/d", "Range: bytes=0-1\r\n");
    assert_eq!((none.status, none.header("Accept-Ranges")), (200, None));
}

#[test]
fn if_range_must_match() {
    let server = start();
    let whole = server.get("/d");
    let etag = whole.header("ETag").expect("an etag");
    let date = whole.header("Last-Modified").expect("a date");
    for (validator, status) in [
        (etag, 206),
        ("\"other\"", 200),
        (date, 206),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 200),
        ("W/\"x\"", 200),
    ] {
        let headers = format!("Range: bytes=0-1\r\nIf-Range: {validator}\r\n");
        assert_eq!(server.get_with("/d", &headers).status, status, "{validator}");
    }
}

#[test]
fn an_empty_file_takes_ranges() {
    let server = start();
    for range in ["", "Range: bytes=0-\r\n", "Range: bytes=-1\r\n"] {
        let response = server.get_with("/empty", range);
        let accepted = response.header("Accept-Ranges");
        assert_eq!((response.status, accepted), (200, Some("bytes")), "{range}");
    }
    let behind = server.get_with("/empty", "Range: bytes=1-\r\n");
    assert_eq!((behind.status, behind.header("Content-Range")), (416, Some("bytes */0")));
}

/// What stands around each part would be many times the file.
#[test]
fn many_small_parts_are_the_whole_file() {
    let server = start();
    let parts = |n: usize| format!("Range: bytes=0-0{}\r\n", ",1-1".repeat(n - 1));
    let digits = |n: usize| server.get_with("/d", &parts(n)).status;
    assert_eq!(digits(10), 206);
    let long = "x".repeat(100);
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location /many/ { max_ranges 100; alias %%DIR%%/html/; } } }",
    )
    .file("html/x", &long)
    .start();
    assert_eq!(server.get_with("/x", &parts(16)).status, 206);
    assert_eq!(server.get_with("/x", &parts(17)).status, 200);
    assert_eq!(server.get_with("/many/x", &parts(17)).status, 206);
}

/// What a server says of ranges in an answer that is whole is not passed on with parts of it.
#[test]
fn a_servers_content_range_gives_way() {
    let server = Setup::new(
        "events {} http { proxy_cache_path %%DIR%%/cache keys_zone=z:1m;
            server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://127.0.0.1:%%PORT_0%%/stub; proxy_cache z;
                proxy_cache_valid 1m; }
            location /stub { add_header Content-Range stub; add_header Accept-Ranges bytes;
                return 200 0123456789; } } }",
    )
    .start();
    assert_eq!(server.get("/").header("Content-Range"), Some("stub"));
    for (range, status, wanted) in [
        ("0-4", 206, Some("bytes 0-4/10")),
        ("99-", 416, Some("bytes */10")),
        ("0-2,4-", 206, None),
    ] {
        let response = server.get_with("/", &format!("Range: bytes={range}\r\n"));
        assert_eq!(response.status, status, "{range}");
        let all = response.all("Content-Range");
        assert_eq!(all, wanted.into_iter().collect::<Vec<_>>(), "{range}");
    }
}
