//! `empty_gif`, `random_index`, `gunzip`, `charset` and `sub_filter`.

use flate2::write::GzEncoder;
use std::io::Write;
use weir_tests::Setup;

fn gzipped(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_gif_of_one_pixel() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / { empty_gif; } } }",
    )
    .start();
    let r = server.get("/x");
    assert_eq!((r.status, r.header("Content-Type")), (200, Some("image/gif")));
    assert!(r.body.starts_with(b"GIF89a\x01\0\x01\0") && r.body.len() == 43, "{:?}", r.body);
    assert_eq!(r.header("Last-Modified"), Some("Mon, 28 Sep 1970 06:00:00 GMT"));
    assert_eq!(server.post("/x", "y").status, 405);
}

#[test]
fn any_file_of_a_directory() {
    let mut setup = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location / { random_index on; } location /off/ { random_index off; } } }",
    )
    .file("html/a", "a")
    .file("html/b", "b")
    .file("html/.c", "hidden")
    .file("html/off/d", "d");
    // Of so many a thread reads the most.
    for n in 0..700 {
        setup = setup.file(format!("html/many/{n}"), "one of many");
    }
    let server = setup.start();
    assert_eq!(server.get("/many/").text(), "one of many");
    let mut seen: Vec<String> = (0..64).map(|_| server.get("/").text()).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["a", "b"]);
    assert_eq!(server.get("/off/").status, 403);
}

#[test]
fn gunzip_serves_clients_that_know_no_gzip() {
    let text = "unpacked ".repeat(10_000);
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; gzip_static always;
            location / { gunzip on; gunzip_buffers 4 4k; } location /off/ { alias %%DIR%%/html/; gunzip off; } } }",
    )
    .file("html/a.txt.gz", gzipped(&text))
    .start();
    let plain = server.get("/a.txt");
    assert_eq!((plain.header("Content-Encoding"), plain.text() == text), (None, true));
    let packed = server.get_with("/a.txt", "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.header("Content-Encoding"), Some("gzip"));
    assert_eq!(packed.body, gzipped(&text));
    assert_eq!(server.get("/off/a.txt").header("Content-Encoding"), Some("gzip"));
}

#[test]
fn charsets_are_named_and_recoded() {
    let server = Setup::new(
        "events {} http { charset_map one two { 61 62; } charset_map koi8-r utf-8 { C0 D18E; }
          server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; types { text/plain txt; image/png png; }
            charset utf-8; charset_types text/plain;
            location /recode/ { alias %%DIR%%/html/; source_charset koi8-r; }
            location /types/ { alias %%DIR%%/html/; charset_types image/png; }
            location /over/ { alias %%DIR%%/html/; proxy_pass http://127.0.0.1:%%PORT_1%%; charset two; override_charset on; } }
          server { listen 127.0.0.1:%%PORT_1%%;
            location / { default_type text/plain; charset one; return 200 aaa; } } }",
    )
    .file("html/a.txt", b"\xC0!")
    .file("html/a.png", "x")
    .start();
    let kind = |path: &str| server.get(path).header("Content-Type").unwrap_or_default().to_string();
    assert_eq!(kind("/a.txt"), "text/plain; charset=utf-8");
    assert_eq!(kind("/a.png"), "image/png");
    assert_eq!(kind("/types/a.png"), "image/png; charset=utf-8");
    assert_eq!(server.get("/recode/a.txt").text(), "\u{44e}!");
    let over = server.get("/over/");
    assert_eq!(
        (over.header("Content-Type"), &*over.text()),
        (Some("text/plain; charset=two"), "bbb")
    );
}

#[test]
fn texts_are_replaced() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; types { text/html html; text/css css; }
            sub_filter 'one' '<1>'; sub_filter '$arg_x' 'X';
            location / { }
            location /all/ { alias %%DIR%%/html/; sub_filter_once off; sub_filter_types text/css; sub_filter_last_modified on; } } }",
    )
    .file("html/a.html", "one two one")
    .file("html/a.css", "one one")
    .start();
    let first = server.get("/a.html?x=two");
    assert_eq!((first.text().as_str(), first.header("Last-Modified")), ("<1> X one", None));
    assert_eq!(server.get("/a.css?x=-").text(), "one one");
    let all = server.get("/all/a.css?x=-");
    assert_eq!((all.text().as_str(), all.header("Last-Modified").is_some()), ("<1> <1>", true));
}
