//! Conditional requests against a file whose time and size are known.

use weir_tests::{Server, Setup};

const TIME: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
const ETAG: &str = "\"3b9aca00-4\"";

fn start() -> Server {
    let setup = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location /before/ { if_modified_since before; alias %%DIR%%/html/; }
            location /off/ { if_modified_since off; etag off; alias %%DIR%%/html/; } } }",
    )
    .file("html/f", "data");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let file = std::fs::File::options().write(true).open(setup.dir().join("html/f")).unwrap();
    file.set_modified(time).unwrap();
    setup.start()
}

#[test]
fn validators_come_from_time_and_size() {
    let server = start();
    let response = server.get("/f");
    assert_eq!(response.header("Last-Modified"), Some(TIME));
    assert_eq!(response.header("ETag"), Some(ETAG));
    assert_eq!(server.get("/off/f").header("ETag"), None);
}

#[test]
fn conditions_and_their_statuses() {
    let server = start();
    let earlier = "Sat, 08 Sep 2001 01:46:40 GMT";
    let later = "Mon, 10 Sep 2001 01:46:40 GMT";
    for (condition, status) in [
        (format!("If-Modified-Since: {TIME}"), 304),
        (format!("If-Modified-Since: {later}"), 200),
        (format!("If-Modified-Since: {earlier}"), 200),
        ("If-Modified-Since: nonsense".into(), 200),
        ("If-Modified-Since: Sunday, 09-Sep-01 01:46:40 GMT".into(), 304),
        ("If-Modified-Since: Sun Sep  9 01:46:40 2001".into(), 304),
        (format!("If-None-Match: {ETAG}"), 304),
        (format!("If-None-Match: W/{ETAG}"), 304),
        (format!("If-None-Match: \"a\", {ETAG} , \"b\""), 304),
        ("If-None-Match: *".into(), 304),
        ("If-None-Match: \"a\"".into(), 200),
        (format!("If-None-Match: \"a\"\r\nIf-Modified-Since: {TIME}"), 200),
        (format!("If-None-Match: {ETAG}\r\nIf-Modified-Since: {earlier}"), 200),
        (format!("If-Unmodified-Since: {TIME}"), 200),
        (format!("If-Unmodified-Since: {later}"), 200),
        (format!("If-Unmodified-Since: {earlier}"), 412),
        (format!("If-Match: {ETAG}"), 200),
        ("If-Match: *".into(), 200),
        ("If-Match: \"a\"".into(), 412),
        (format!("If-Match: W/{ETAG}"), 412),
    ] {
        let response = server.get_with("/f", &format!("{condition}\r\n"));
        assert_eq!(response.status, status, "{condition}");
        if status == 304 {
            assert_eq!(response.header("ETag"), Some(ETAG), "{condition}");
            assert_eq!(response.header("Content-Length"), None, "{condition}");
        }
    }
}

#[test]
fn the_comparison_of_dates_can_be_changed() {
    let server = start();
    let later = "If-Modified-Since: Mon, 10 Sep 2001 01:46:40 GMT\r\n";
    assert_eq!(server.get_with("/before/f", later).status, 304);
    let same = format!("If-Modified-Since: {TIME}\r\n");
    assert_eq!(server.get_with("/off/f", &same).status, 200);
}

/// A page of another answer follows, with nothing of the file's head.
#[test]
fn a_page_for_412_is_not_the_files() {
    let conf =
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; gzip_static on;
        location /page/ { alias %%DIR%%/; error_page 412 /other.txt; } } }";
    let setup = weir_tests::Setup::new(conf).file("a.txt", "plain").file("a.txt.gz", "zipped");
    let server = setup.file("other.txt", "other").start();
    for path in ["/a.txt", "/page/a.txt"] {
        let answer = server.get_with(path, "Accept-Encoding: gzip\r\nIf-Match: \"x\"\r\n");
        assert_eq!((answer.status, answer.header("Content-Encoding")), (412, None), "{path}");
        let etags = answer.headers.iter().filter(|(n, _)| n == "ETag").count();
        assert_eq!(etags, usize::from(path.starts_with("/page")), "{path}");
    }
}
