//! SCGI and uwsgi servers: what they are asked, and how they answer.

use weir_tests::cgi::Asked;
use weir_tests::tools::{file, need, skip};
use weir_tests::{expect_soon, free_port, Next, Origin, Setup};

const CONF: &str = "events {} http { NAME_cache_path %%DIR%%/cache keys_zone=z:1m;
    server { listen 127.0.0.1:%%PORT_0%%; NAME_param URI $request_uri; NAME_param A $arg_a if_not_empty; MORE
        location / { NAME_pass %%ORIGIN%%; }
        location /off { NAME_pass %%ORIGIN%%; NAME_request_buffering off; }
        location /kept { NAME_pass %%ORIGIN%%; NAME_cache z; NAME_cache_key $uri; NAME_cache_valid 1m; } } }";

fn check(name: &str, length: &str, origin: &Origin) {
    let conf = CONF.replace("NAME", name).replace("MORE", length);
    let server = Setup::new(&conf).set("ORIGIN", origin.address()).start();
    let r = server.get_with("/x?a=b", "X-C: 1\r\nX-C: 2\r\n");
    assert_eq!((r.status, &*r.reason, r.header("X-A")), (201, "Made", Some("b")));
    for line in ["URI=/x?a=b\n", "A=b\n", "HTTP_X_C=1, 2\n"] {
        assert!(r.text().contains(line), "{line} in {}", r.text());
    }
    assert!(!server.get("/").text().contains("\nA="));
    for path in ["/", "/off"] {
        let body = "z".repeat(100_000);
        assert!(server.post(path, &body).text().ends_with(&body), "{path}");
        let chunks = format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
            3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        );
        assert!(server.exchange("POST", chunks.as_bytes()).text().ends_with("\nabcde"), "{path}");
    }
    let head = server.head("/");
    assert_eq!((head.status, head.body.len()), (201, 0));
    for status in [200, 200] {
        assert_eq!(server.get("/kept/there").status, status);
    }
}

fn echo(asked: &Asked, conn: &mut weir_tests::Conn) -> Next {
    let status = match asked.param("URI") {
        Some("/kept/there") => "200 OK",
        _ => "201 Made",
    };
    conn.write(format!("Status: {status}\r\nX-A: b\r\n\r\n{}", asked.text()));
    Next::Close
}

#[test]
fn scgi() {
    let origin = Origin::scgi(|asked, conn| {
        assert_eq!(asked.params[0].0, "CONTENT_LENGTH");
        assert_eq!(asked.param("SCGI"), Some("1"));
        echo(asked, conn)
    });
    check("scgi", "scgi_param SCGI 1;", &origin);
}

#[test]
fn uwsgi() {
    let origin = Origin::uwsgi(|asked, conn| {
        assert_eq!(asked.modifiers, (7, 9));
        echo(asked, conn)
    });
    let more = "uwsgi_param CONTENT_LENGTH $content_length; uwsgi_modifier1 7; uwsgi_modifier2 9;";
    check("uwsgi", more, &origin);
}

#[test]
fn a_status_line_instead_of_a_field() {
    let origin = Origin::uwsgi(|_, conn| {
        conn.write("HTTP/1.0 403 Not You\r\nContent-Length: 2\r\n\r\nno");
        Next::Close
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / { uwsgi_pass uwsgi://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let r = server.get("/");
    assert_eq!((r.status, &*r.reason, &*r.text()), (403, "Not You", "no"));
}

const APP: &str = "
def application(env, start_response):
    start_response('200 OK', [('X-Path', env['PATH_INFO'])])
    return [env['wsgi.input'].read() or b'empty']
";

#[test]
fn the_real_uwsgi_answers() {
    let Some(uwsgi) = need("uwsgi") else { return };
    let plugin = file("usr/lib/uwsgi/plugins", "python3");
    let plugin = plugin.map_or("python3".to_string(), |path| path.display().to_string());
    if !uwsgi.run(&["--plugin", &plugin, "-h"]).stdout.contains("--wsgi-file") {
        return skip("uwsgi has no Python");
    }
    let port = free_port();
    let setup = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / { uwsgi_pass 127.0.0.1:%%UWSGI%%;
            uwsgi_param REQUEST_METHOD $request_method; uwsgi_param PATH_INFO $document_uri;
            uwsgi_param CONTENT_LENGTH $content_length; uwsgi_param SERVER_PROTOCOL $server_protocol; } } }",
    )
    .set("UWSGI", port)
    .file("app.py", APP);
    let app = setup.dir().join("app.py");
    let listen = format!("127.0.0.1:{port}");
    let _uwsgi = uwsgi.start(|c| {
        c.args(["--plugin", &plugin, "--die-on-term", "--socket", &listen, "--wsgi-file"]).arg(app);
    });
    expect_soon("uwsgi listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let server = setup.start();
    let r = server.get("/a/b");
    assert_eq!((r.status, r.header("X-Path"), &*r.text()), (200, Some("/a/b"), "empty"));
    assert_eq!(server.post("/", "some").text(), "some");
}
