//! add_before_body and add_after_body.

use weir_tests::{Server, Setup};

fn start() -> Server {
    Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
            add_before_body /before; add_after_body /after;
            location = /before { ssi on; default_type text/html; return 200 '<!--#set var=\"x\" value=\"set\" -->before-'; }
            location = /after { return 200 '-after'; }
            location /page.html { ssi on; }
            location /plain.txt { }
            location /types.txt { addition_types text/plain; default_type text/plain; }
            location /lost.html { add_after_body /no; add_before_body ''; }
            location /held.html { sub_filter bodyX Y; }
            location = /part.html { return 200 part; } } }",
    )
    .file("a.html", "body")
    .file("held.html", "body")
    .file("plain.txt", "body")
    .file("types.txt", "body")
    .file("lost.html", "body")
    .file("page.html", "<!--#include virtual='/part.html' -->body<!--#include virtual='/part.html' -->")
    .start()
}

#[test]
fn bodies_are_added_to() {
    let server = start();
    for (path, expected) in [
        ("/a.html", "before-body-after"),
        ("/plain.txt", "body"),
        ("/types.txt", "before-body-after"),
        ("/held.html", "before-body-after"),
        ("/page.html", "before-partbodypart-after"),
    ] {
        assert_eq!(server.on(0).get(path).text(), expected, "{path}");
    }
    let lost = server.on(0).get("/lost.html").text();
    assert!(lost.starts_with("body<html>") && lost.contains("404 Not Found"), "{lost}");
    assert_eq!(server.on(0).get("/no.html").text().matches("after").count(), 0, "only of 200");
}

#[test]
fn the_header_says_nothing_of_the_length() {
    let server = start();
    let answer = server.on(0).get_with("/a.html", "Range: bytes=0-1\r\n");
    assert_eq!((answer.status, answer.is_chunked()), (200, true));
    assert!(answer.header("ETag").is_some_and(|tag| tag.starts_with("W/")));
    assert_eq!(answer.header("Accept-Ranges"), None);
    assert_eq!(server.on(0).head("/a.html").header("Content-Length"), None);
}
