//! `autoindex`: listings of directories in every format.

use weir_tests::{Server, Setup};

fn start() -> Server {
    let setup = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; autoindex on;
            location /exact/ { alias %%DIR%%/html/; autoindex_exact_size on; autoindex_localtime on; }
            location /short/ { alias %%DIR%%/html/; autoindex_exact_size off; }
            location /json/ { alias %%DIR%%/html/; autoindex_format json; }
            location /xml/ { alias %%DIR%%/html/; autoindex_format xml; }
            location /jsonp/ { alias %%DIR%%/html/; autoindex_format jsonp; }
            location /off/ { alias %%DIR%%/html/; autoindex off; } } }",
    )
    .file("html/small", "abc")
    .file("html/large.bin", vec![b'x'; 20_000])
    .file("html/a <b>&\".txt", "x")
    .file("html/.hidden", "x")
    .file("html/dir/in", "x");
    setup.start()
}

#[test]
fn a_page_with_directories_first() {
    let server = start();
    let r = server.get("/");
    assert_eq!((r.status, r.header("Content-Type")), (200, Some("text/html")));
    let text = r.text();
    assert!(text.contains("<title>Index of /</title>"), "{text}");
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} in {text}"));
    assert!(at("<a href=\"../\">../</a>") < at("<a href=\"dir/\">dir/</a>"));
    assert!(at("<a href=\"dir/\">dir/</a>") < at("<a href=\"large.bin\">large.bin</a>"));
    assert!(at("<a href=\"a%20%3Cb%3E%26%22.txt\">a &lt;b&gt;&amp;&quot;.txt</a>") > 0);
    assert!(!text.contains("hidden"), "{text}");
    assert_eq!(server.get("/off/").status, 403);
    assert_eq!(server.get("/dir").status, 301);
}

#[test]
fn sizes_exact_and_short() {
    let server = start();
    let sizes = |path: &str| {
        let text = server.get(path).text();
        let line = text.lines().find(|l| l.contains("large.bin")).unwrap_or_default().to_string();
        line.split_whitespace().last().map(str::to_string)
    };
    assert_eq!(sizes("/exact/").as_deref(), Some("20000"));
    assert_eq!(sizes("/short/").as_deref(), Some("20K"));
}

#[test]
fn formats_for_programs() {
    let server = start();
    let json = server.get("/json/");
    assert_eq!(json.header("Content-Type"), Some("application/json"));
    let text = json.text();
    assert!(text.contains("{ \"name\":\"large.bin\", \"type\":\"file\", \"mtime\":\""), "{text}");
    assert!(text.contains("\"size\":20000 }"), "{text}");
    assert!(text.contains("{ \"name\":\"dir\", \"type\":\"directory\", \"mtime\":\""), "{text}");
    let xml = server.get("/xml/");
    assert_eq!(xml.header("Content-Type"), Some("text/xml; charset=utf-8"));
    assert!(xml.text().contains(">large.bin</file>"), "{}", xml.text());
    let called = server.get("/jsonp/?callback=f.g");
    assert_eq!(called.header("Content-Type"), Some("application/javascript"));
    assert!(called.text().starts_with("/* callback */\r\nf.g(["), "{}", called.text());
    assert_eq!(server.get("/jsonp/?callback=f(").status, 400);
}
