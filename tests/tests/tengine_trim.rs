//! Tengine's trim: HTML without comments and most blanks.

use weir_tests::{Origin, Setup};

const CONF: &str = r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
    types { text/html html; text/css css; }
    add_trailer X-Bytes "$trim_bytes of $trim_original_bytes";
    trim on; trim_js on; trim_css on;
    location / { }
    location /plain/ { trim_js off; trim_css off; alias %%DIR%%/; }
    location /off/ { trim off; alias %%DIR%%/; }
    location /types/ { trim_types text/css; alias %%DIR%%/; }
    location /asked/ { trim $arg_t; alias %%DIR%%/; }
    location /proxy/ { proxy_pass http://%%ORIGIN%%; proxy_buffering off; }
} }"#;

const PAGE: &str = "<!DOCTYPE html>\n<textarea  >\n   trim\n        module\n</textarea  >\n\
    <!--remove all-->\n<!--[if IE]> trim module <![endif]-->\n<!--# ssi-->\n\
    <pre    style  =\n    \"color:   blue\"  >Welcome    to    nginx!</pre  >\n\
    <script type=\"text/javascript\">\n/***  comment\n ***/\n//// single\nstr.replace(/     /,\"hello\");\n</script>\n\
    <style   type=\"text/css\"  >\n/*** css\n ! ***/\nbody\n{\n  font-size:  20px ;\n}\n</style>\n";

const TRIMMED: &str = "<!DOCTYPE html>\n<textarea>\n   trim\n        module\n</textarea>\n\
    <!--[if IE]> trim module <![endif]-->\n<!--# ssi-->\n\
    <pre style=\"color:   blue\">Welcome    to    nginx!</pre>\n\
    <script type=\"text/javascript\">str.replace(/     /,\"hello\");</script>\n\
    <style type=\"text/css\">body{font-size:20px;}</style>\n";

#[test]
fn pages_are_trimmed() {
    let origin = Origin::start(|_, conn| {
        conn.write(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        for piece in PAGE.as_bytes().chunks(5) {
            conn.write(format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)));
        }
        conn.write("0\r\n\r\n");
        weir_tests::Next::Keep
    });
    let setup = Setup::new(CONF)
        .file("p.html", PAGE)
        .file("p.css", "<p  >")
        .file("big.html", "<p>a   b</p>\n\n".repeat(30_000));
    let server = setup.set("ORIGIN", origin.address()).start();
    for (path, expected) in [
        ("/p.html", TRIMMED),
        ("/proxy/p.html", TRIMMED),
        ("/off/p.html", PAGE),
        ("/p.html?http_trim=off", PAGE),
        ("/asked/p.html?t=on", TRIMMED),
        ("/asked/p.html?t=off", PAGE),
        ("/p.css", "<p  >"),
        ("/types/p.css", "<p>"),
    ] {
        assert_eq!(server.get(path).text(), expected, "{path}");
    }
    let plain = server.get("/plain/p.html").text();
    assert!(plain.contains("\n//// single\n") && plain.contains("font-size:  20px ;"), "{plain}");
    assert_eq!(server.get("/big.html").text(), "<p>a b</p>\n".repeat(30_000));
    let answer = server.get("/p.html");
    assert!(answer.header("ETag").unwrap().starts_with("W/"));
    assert_eq!(answer.header("Content-Length"), None);
    let head = server.head("/p.html");
    assert_eq!((head.content_length(), head.header("ETag")), (None, answer.header("ETag")));
    let text = String::from_utf8(
        server.raw(b"GET /p.html HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n"),
    );
    let told = format!("X-Bytes: {} of {}", PAGE.len() - TRIMMED.len(), PAGE.len());
    assert!(text.as_ref().unwrap().contains(&told), "{text:?}");
}
