//! What levels inherit without a word of their own is one for all of them: what each has itself, and what a
//! block without a name has besides, must not be seen anywhere else.

use weir_tests::{printed, Next, Origin, Setup};

const CONF: &str =
    "events {} http { add_header X-Level http always; limit_conn_zone $host zone=z:64k;
    server { listen 127.0.0.1:%%PORT_0%%; server_name quiet; }
    server { listen 127.0.0.1:%%PORT_0%%; server_name loud; add_header X-Level server always;
        location /a/ { }
        location /b/ { add_header X-Level location always; location /b/c/ { } }
        location /pass { proxy_pass http://%%ORIGIN%%; location /pass/not { }
            if ($arg_if) { add_header X-Level if always; }
            limit_except GET { allow all; } }
        location /alias/ { alias %%DIR%%/; location /alias/in/ { } if ($arg_if) { } }
        location = /none { limit_conn z 1; return 403; }
    }
    server { listen 127.0.0.1:%%PORT_0%%; server_name still; location /a/ { } location /pass { } }
} ";

#[test]
fn each_level_has_its_own() {
    let origin = Origin::start(|request, conn| {
        conn.reply("200 OK", "", request.method());
        Next::Keep
    });
    let server = Setup::new(CONF).set("ORIGIN", origin.address()).start();
    std::fs::create_dir(server.dir().join("in")).expect("a directory");
    for name in ["file", "in/file"] {
        std::fs::write(server.dir().join(name), name).expect("a file");
    }
    let ask = |method: &str, host: &str, path: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        let mut client = server.connect();
        client.send(head.as_bytes());
        let answer = client.response();
        (answer.status, answer.header("X-Level").unwrap_or_default().to_string(), answer.text())
    };
    for (method, host, path, status, level) in [
        ("GET", "quiet", "/a/x", 404, "http"),
        ("GET", "loud", "/a/x", 404, "server"),
        ("GET", "loud", "/b/x", 404, "location"),
        ("GET", "loud", "/b/c/x", 404, "location"),
        ("GET", "still", "/a/x", 404, "http"),
        ("GET", "loud", "/pass", 200, "server"),
        ("GET", "loud", "/pass?if=1", 200, "if"),
        ("PUT", "loud", "/pass", 200, "server"),
        ("GET", "loud", "/pass/not", 404, "server"),
        ("GET", "still", "/pass", 404, "http"),
        ("GET", "loud", "/none", 403, "server"),
    ] {
        let (got, shown, text) = ask(method, host, path);
        assert_eq!((got, &*shown), (status, level), "{method} {host}{path}");
        assert!(status != 200 || text == method, "{method} {host}{path}: {text}");
    }
    for path in ["/alias/file", "/alias/file?if=1"] {
        assert_eq!(ask("GET", "loud", path).2, "file", "{path}");
    }
    // What is inside inherits what the alias cuts off.
    assert_eq!(ask("GET", "loud", "/alias/in/file").2, "in/file");
}

/// The directory that nobody names is the build's, whatever level the request is answered at.
#[test]
fn bodies_in_a_directory_that_nobody_names() {
    let conf = "events {} http { client_body_in_file_only on; server { listen 127.0.0.1:%%PORT_0%%;
        location / { proxy_pass http://%%ORIGIN%%; add_header X-File $request_body_file; }
    } }";
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "", "ok");
        Next::Keep
    });
    let server = Setup::new(conf).set("ORIGIN", origin.address()).start();
    let answer = server.post("/", "hello");
    let path = printed(answer.header("X-File").expect("a file").as_bytes());
    let path = std::path::Path::new(&path);
    assert!(path.is_absolute(), "{}", path.display());
    assert_eq!(std::fs::read(path).expect("it is there"), b"hello");
}
