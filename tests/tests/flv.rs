//! `flv`: a video from a byte on.

use std::io::Read;
use weir_tests::Setup;

const CONF: &str = "events {} http { access_log off; types { video/x-flv flv; }
    server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
        location / { flv; } location /gz/ { flv; alias %%DIR%%/; gzip on; gzip_types *; gzip_min_length 1; } } }";

#[test]
fn videos_begin_where_they_are_asked_for() {
    const HEADER: &[u8] = b"FLV\x01\x05\0\0\0\x09\0\0\0\0";
    let video: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    let server = Setup::new(CONF).file("a.flv", &video).file("d/x", "").start();
    let whole = server.get("/a.flv");
    assert_eq!((whole.status, whole.header("Content-Type")), (200, Some("video/x-flv")));
    assert!(whole.body == video && whole.header("ETag").is_some());
    for (args, start) in [("start=99999", 99_999), ("x=1&start=10", 10), ("start=65537", 65_537)] {
        let part = server.get(&format!("/a.flv?{args}"));
        assert_eq!(part.body, [HEADER, &video[start..]].concat(), "{args}");
        let length = (HEADER.len() + video.len() - start).to_string();
        assert_eq!(part.header("Content-Length"), Some(&*length));
        assert_eq!(server.head(&format!("/a.flv?{args}")).header("Content-Length"), Some(&*length));
    }
    for args in ["start=100000", "start=-1", "start=x", "start=", "begin=1"] {
        assert!(server.get(&format!("/a.flv?{args}")).body == video, "{args}");
    }
    let range = server.get_with("/a.flv?start=1000", "Range: bytes=10-29\r\n");
    let sent = [HEADER, &video[1000..]].concat();
    assert_eq!((range.status, &range.body[..]), (206, &sent[10..30]));
    let zipped = server.get_with("/gz/a.flv?start=50000", "Accept-Encoding: gzip\r\n");
    assert_eq!(zipped.header("Content-Encoding"), Some("gzip"));
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&zipped.body[..]).read_to_end(&mut plain).unwrap();
    assert!(plain == [HEADER, &video[50_000..]].concat());
    assert_eq!(server.post("/a.flv", "x").status, 405);
    assert_eq!(server.get("/none.flv").status, 404);
    assert_eq!(server.get("/d").status, 301);
}
