//! `autoindex`: listings of directories in every format.

use weir_tests::{Server, Setup, Signal};

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

/// More names than a worker looks at by itself.
const MANY: usize = 20_000;

/// Reading so many takes tens of milliseconds, which nobody else has to wait for: what came at the same
/// time is answered before. (The log says in what order the server was through with them; nginx lets them wait.)
#[test]
fn others_do_not_wait_for_a_large_directory() {
    let setup = Setup::new(
        "worker_processes 1; master_process off; events {} http { log_format uri $uri; access_log %%DIR%%/uri.log uri;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location /many/ { autoindex on; } location /json/many/ { alias %%DIR%%/html/many/; autoindex on; autoindex_format json; }
            location = /small { return 204; } } }",
    )
    .file("html/many/a-directory/in", "x");
    for n in 0..MANY {
        std::fs::File::create(setup.dir().join(format!("html/many/file-{n:05}"))).unwrap();
    }
    let server = setup.start();
    let (mut large, mut small) = (server.connect(), server.connect());
    assert_eq!((large.get("/small").status, small.get("/small").status), (204, 204));
    server.signal(Signal::Stop);
    large.send(b"HEAD /many/ HTTP/1.1\r\nHost: a\r\n\r\n");
    small.send_get("/small");
    server.signal(Signal::Cont);
    assert_eq!((small.response().status, large.response_to("HEAD").status), (204, 200));
    assert_eq!(server.log_lines("uri.log", 4)[2..], ["/small", "/many/"]);

    let text = server.get("/many/").text();
    let names: Vec<&str> =
        text.split("<a href=\"").skip(2).filter_map(|line| line.split('"').next()).collect();
    let files = (0..MANY).map(|n| format!("file-{n:05}"));
    assert!(names.into_iter().eq(std::iter::once("a-directory/".into()).chain(files)));
    assert_eq!(server.get("/json/many/").text().matches("\"type\":\"file\"").count(), MANY);
}

/// Listings of large directories are made one after the other, and for clients that are there.
#[test]
fn many_listings_of_a_large_directory_take_the_memory_of_few() {
    let conf = "worker_processes 1; events {} http { access_log off; server { listen 127.0.0.1:%%PORT_0%%;
        location /quick { return 200 quick; }
        location /auto/ { autoindex on; alias %%DIR%%/many/; } location /fancy/ { fancyindex on; alias %%DIR%%/many/; } } }";
    let server = Setup::new(conf).file("many/one", "").start();
    let dir = server.dir().join("many");
    for n in 0..10_000 {
        std::fs::write(dir.join(format!("{n:0>120}")), "").unwrap();
    }
    assert!(server.get("/auto/").text().len() > 1_000_000);
    let before = server.memory_peak();
    for path in ["/auto/", "/fancy/"] {
        for _ in 0..60 {
            server.connect().send_get(path);
        }
        assert_eq!(server.get("/quick").text(), "quick");
        assert!(server.get(path).text().len() > 1_000_000);
    }
    let grown = server.memory_growth(before) / (1024 * 1024);
    assert!(grown < 100, "{grown} MB");
}
