//! The order of a response's fields.

use weir_tests::{h2, Origin, Setup};

const CONF: &str = "events {} http { add_header X-Added yes always;
    server { listen 127.0.0.1:%%PORT_0%%; http2 on; root %%DIR%%;
        location /return { return 301 /x; }
        location /rewrite { rewrite ^ /x permanent; }
        location /full/own { return 302 http://other/x; }
        location /relative { absolute_redirect off; return 302 /x; }
        location /twice { add_header Location /y always; return 302 /x; }
        location /proxied { proxy_pass http://%%ORIGIN%%/inside/; proxy_redirect /inside/ /x/; }
        location /untouched { proxy_pass http://%%ORIGIN%%/inside; proxy_redirect off; }
        location /full/untouched { proxy_pass http://%%ORIGIN%%/full; proxy_redirect off; }
        location /full/declined { proxy_pass http://%%ORIGIN%%/full; proxy_redirect /no/ /x/; } } }";

fn origin() -> Origin {
    Origin::start(|request, conn| {
        let full = request.target().starts_with("/full");
        let to = if full { "http://other/a" } else { "/inside/a" };
        let fields =
            format!("Content-Type: text/html\r\nX-First: 1\r\nLocation: {to}\r\nX-Last: 2\r\n");
        conn.reply("302 Found", &fields, "moved");
        weir_tests::Next::Keep
    })
}

/// What comes first is the same for all: server, date, content-type, content-length.
const ORDERS: [(&str, &str, &str); 10] = [
    ("/return", "location connection x-added", "location x-added"),
    ("/rewrite", "location connection x-added", "location x-added"),
    ("/dir", "location connection x-added", "location x-added"),
    ("/full/own", "connection location x-added", "location x-added"),
    ("/relative", "connection location x-added", "location x-added"),
    ("/twice", "location connection location", "location location"),
    ("/proxied", "location connection x-first x-last x-added", "location x-first x-last x-added"),
    ("/untouched", "connection x-first location x-last x-added", "x-first location x-last x-added"),
    (
        "/full/untouched",
        "connection x-first location x-last x-added",
        "location x-first x-last x-added",
    ),
    (
        "/full/declined",
        "connection x-first location x-last x-added",
        "x-first location x-last x-added",
    ),
];

#[test]
fn a_redirect_to_a_path_comes_with_the_fixed_fields() {
    let origin = origin();
    let server = Setup::new(CONF).set("ORIGIN", origin.address()).start();
    std::fs::create_dir(server.dir().join("dir")).unwrap();
    let ours = ["server", "date", "content-type", "content-length"];
    for (path, wanted, wanted_h2) in ORDERS {
        let response = server.get(path);
        let names = response.headers.iter().map(|(name, _)| name.to_lowercase());
        let names: Vec<String> = names.filter(|name| name != "transfer-encoding").collect();
        assert_eq!(names[..4], ours, "{path}");
        assert_eq!(names[4..].join(" "), wanted, "{path}");

        let answer = h2::H2::connect(&server).fetch(path);
        let names: Vec<&str> = answer.fields.iter().map(|(name, _)| name.as_str()).collect();
        let names: Vec<&str> = names.into_iter().filter(|n| *n != ":status").collect();
        assert_eq!(names[..4], ours, "{path}");
        assert_eq!(names[4..].join(" "), wanted_h2, "{path}");
    }
    let full = format!("http://127.0.0.1:{}/x", server.port(0));
    let shown = server.get_host("127.0.0.1", "/return");
    assert_eq!(shown.header("Location"), Some(full.as_str()));
}

/// The file's own fields come before what its form adds.
#[test]
fn a_compressed_file_has_its_etag_first() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            gzip_static always; add_header X-Added yes; } }",
    )
    .file("html/f.gz", "not looked into")
    .start();
    let response = server.get("/f");
    let names: Vec<&str> = response.headers.iter().map(|(name, _)| name.as_str()).collect();
    let at = |name: &str| names.iter().position(|n| n.eq_ignore_ascii_case(name)).unwrap();
    assert!(at("ETag") < at("Content-Encoding"), "{names:?}");
    assert!(at("Content-Encoding") < at("X-Added"), "{names:?}");
}
