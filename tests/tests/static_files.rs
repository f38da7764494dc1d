//! Files: where they are looked for, what they are called, what directories do.

use weir_tests::{Server, Setup};

const CONF: &str = "events {} http { types { text/html html; text/css css; image/x-y y; }
    default_type application/octet-stream;
    server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
        error_log %%DIR%%/error.log;
        location /alias/ { alias %%DIR%%/other/; }
        location ~ ^/re/(.*)$ { alias %%DIR%%/other/$1; }
        location /own { types {} default_type text/own; }
        location /index/ { index none.html $arg_i.html /absolute; }
        location /absolute { return 200 'absolute $uri'; }
        location /sendfile/ { sendfile on; root %%DIR%%; }
        location /charset/ { charset utf-8; alias %%DIR%%/html/; }
} }";

fn start() -> Server {
    Setup::new(CONF)
        .file("html/a.html", "page")
        .file("html/b.css", "style")
        .file("html/c.Y", "upper")
        .file("html/noext", "plain")
        .file("html/own.html", "own")
        .file("html/dir/index.html", "index")
        .file("html/empty/x", "")
        .file("html/index/two.html", "two")
        .file("html/with space", "space")
        .file("other/o.html", "other")
        .file("sendfile/big", vec![b'x'; 300_000])
        .start()
}

#[test]
fn types_follow_extensions() {
    let server = start();
    for (path, kind, body) in [
        ("/a.html", "text/html", "page"),
        ("/b.css", "text/css", "style"),
        ("/c.Y", "image/x-y", "upper"),
        ("/noext", "application/octet-stream", "plain"),
        ("/own.html", "text/own", "own"),
        ("/with%20space", "application/octet-stream", "space"),
        ("/charset/a.html", "text/html; charset=utf-8", "page"),
        ("/charset/noext", "application/octet-stream", "plain"),
    ] {
        let response = server.get(path);
        assert_eq!((response.status, response.header("Content-Type")), (200, Some(kind)), "{path}");
        assert_eq!(response.text(), body, "{path}");
        assert_eq!(response.content_length(), Some(body.len()), "{path}");
        assert!(response.header("Last-Modified").is_some_and(|v| v.ends_with(" GMT")));
        assert!(response.header("ETag").is_some_and(|v| v.starts_with('"')));
        assert_eq!(response.header("Accept-Ranges"), Some("bytes"));
    }
}

#[test]
fn aliases_replace_the_prefix() {
    let server = start();
    assert_eq!(server.get("/alias/o.html").text(), "other");
    assert_eq!(server.get("/re/o.html").text(), "other");
    assert_eq!(server.get("/alias/a.html").status, 404);
}

#[test]
fn directories_redirect_index_or_are_forbidden() {
    let server = start();
    let response = server.get("/dir?q");
    assert_eq!(response.status, 301);
    let to = format!("http://localhost:{}/dir/?q", server.port(0));
    assert_eq!(response.header("Location"), Some(to.as_str()));
    assert_eq!(server.get("/dir/").text(), "index");
    assert_eq!(server.get("/empty/").status, 403);
    server.expect_error("directory index of \"");
    assert_eq!(server.get("/index/?i=two").text(), "two");
    assert_eq!(server.get("/index/?i=three").text(), "absolute /absolute");
    assert_eq!(server.get("/a.html/").status, 404);
    assert_eq!(server.get("/nodir/").status, 404);
}

#[test]
fn missing_files_are_logged_and_methods_checked() {
    let server = start();
    assert_eq!(server.get("/none").status, 404);
    server.expect_error("open() \"");
    server.expect_error("/html/none\" failed (2: No such file or directory)");
    assert_eq!(server.post("/a.html", "x").status, 405);
    assert_eq!(server.request("DELETE", "/a.html", "").status, 405);
    let head = server.head("/a.html");
    assert_eq!((head.status, head.content_length(), head.body.len()), (200, Some(4), 0));
}

#[test]
fn large_files_come_whole() {
    let server = start();
    for path in ["/sendfile/big", "/sendfile/big"] {
        let response = server.get(path);
        assert_eq!(response.body.len(), 300_000);
        assert!(response.body.iter().all(|&b| b == b'x'));
    }
}

#[test]
fn links_are_followed() {
    let setup =
        Setup::new("events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; } }")
            .file("html/a", "target");
    std::os::unix::fs::symlink("a", setup.dir().join("html/link")).unwrap();
    assert_eq!(setup.start().get("/link").text(), "target");
}
