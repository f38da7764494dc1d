//! What FastCGI servers are asked.

use weir_tests::cgi::{answer, read_fastcgi};
use weir_tests::{Next, Origin, Server, Setup};

/// A server that answers with what it was asked.
fn echo() -> Origin {
    Origin::fastcgi(|asked, conn| {
        conn.write(answer(&format!("\r\n{}", asked.text())));
        Next::Close
    })
}

fn start(origin: &Origin, locations: &str) -> Server {
    let conf = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; server_name here;
        LOCATIONS } }";
    Setup::new(&conf.replace("LOCATIONS", locations)).set("ORIGIN", origin.address()).start()
}

fn line(text: &str, name: &str) -> Option<String> {
    let start = format!("{name}=");
    text.lines().find_map(|l| l.strip_prefix(&start)).map(str::to_string)
}

#[test]
fn parameters_and_fields() {
    let origin = echo();
    let server = start(
        &origin,
        "location / { fastcgi_pass %%ORIGIN%%; fastcgi_param A $arg_a; fastcgi_param B $arg_b if_not_empty;
            fastcgi_param HTTP_X_MINE of-ours; fastcgi_param HTTP_X_GONE ''; fastcgi_param LONG $arg_l; }
        location /none { fastcgi_pass %%ORIGIN%%; fastcgi_pass_request_headers off; }",
    );
    let long = "x".repeat(200);
    let headers = "X-Mine: theirs\r\nX-Gone: theirs\r\nX-Two: 1\r\nCookie: a=b\r\nx-two: 2\r\nCookie: c=d\r\n";
    let text = server.get_with(&format!("/?a=1&l={long}"), headers).text();
    for (name, value) in [
        ("A", Some("1")),
        ("B", None),
        ("LONG", Some(&*long)),
        ("HTTP_X_MINE", Some("of-ours")),
        ("HTTP_X_GONE", None),
        ("HTTP_X_TWO", Some("1, 2")),
        ("HTTP_COOKIE", Some("a=b; c=d")),
    ] {
        assert_eq!(line(&text, name).as_deref(), value, "{name} in {text}");
    }
    let text = server.get_with("/none", "X-A: b\r\n").text();
    assert_eq!((line(&text, "HTTP_X_A"), line(&text, "A")), (None, None));
    assert!(line(&text, "HTTP_HOST").is_some());
}

#[test]
fn the_scripts_name_and_the_path_behind_it() {
    let origin = echo();
    let server = start(
        &origin,
        r"location / { fastcgi_pass %%ORIGIN%%; fastcgi_index index.php; fastcgi_param NAME $fastcgi_script_name;
            fastcgi_param PATH $fastcgi_path_info; }
        location /s/ { fastcgi_pass %%ORIGIN%%; fastcgi_split_path_info ^(.+\.php)(.*)$;
            fastcgi_param NAME $fastcgi_script_name; fastcgi_param PATH $fastcgi_path_info; }",
    );
    for (path, name, info) in [
        ("/a/", "/a/index.php", ""),
        ("/a.php", "/a.php", ""),
        ("/s/a.php/b/c", "/s/a.php", "/b/c"),
        ("/s/other", "/s/other", ""),
    ] {
        let text = server.get(path).text();
        assert_eq!(line(&text, "NAME").as_deref(), Some(name), "{path}");
        assert_eq!(line(&text, "PATH").as_deref(), Some(info), "{path}");
    }
}

#[test]
fn bodies_of_any_size() {
    let origin = Origin::fastcgi(|asked, conn| {
        let sum: u64 = asked.body.iter().map(|b| u64::from(*b)).sum();
        conn.write(answer(&format!("\r\n{} {sum}", asked.body.len())));
        Next::Close
    });
    let server = start(
        &origin,
        "client_body_buffer_size 8k; client_max_body_size 0;
        location / { fastcgi_pass %%ORIGIN%%; }
        location /stream { fastcgi_pass %%ORIGIN%%; fastcgi_request_buffering off; }
        location /without { fastcgi_pass %%ORIGIN%%; fastcgi_pass_request_body off; }",
    );
    for path in ["/", "/stream"] {
        for size in [0, 1, 5000, 70_000, 400_000] {
            let body = "a".repeat(size);
            let wanted = format!("{size} {}", size * 97);
            assert_eq!(server.post(path, &body).text(), wanted, "{path}");
        }
        let chunks = b"POST /stream HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
            3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(server.exchange("POST", chunks).text(), "5 495");
    }
    assert_eq!(server.post("/without", "abc").text(), "0 0");
}

#[test]
fn connections_are_kept_where_they_may_be() {
    let origin = Origin::start_raw(|conn, id| {
        while let Some(asked) = read_fastcgi(conn) {
            conn.write(answer(&format!("\r\n{id} {}", asked.keep)));
            if !asked.keep {
                return;
            }
        }
    });
    let server = Setup::new(
        "events {} http { upstream u { server %%ORIGIN%%; keepalive 4; }
        server { listen 127.0.0.1:%%PORT_0%%;
            location / { fastcgi_pass u; fastcgi_keep_conn on; }
            location /closes { fastcgi_pass u; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    assert_eq!(server.get("/").text(), "0 true");
    assert_eq!(server.get("/").text(), "0 true");
    // This one is told to close and is not kept, whichever it is.
    assert!(server.get("/closes").text().ends_with(" false"));
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn where_variables_lead() {
    let origin = echo();
    let server = start(
        &origin,
        "location / { set $to %%ORIGIN%%; fastcgi_pass $to; fastcgi_param A b; }
        location /bad { set $to nowhere; fastcgi_pass $to; }",
    );
    assert_eq!(line(&server.get("/").text(), "A").as_deref(), Some("b"));
    assert_eq!(server.get("/bad").status, 500);
    server.expect_error("no port in upstream \"nowhere\"");
}
