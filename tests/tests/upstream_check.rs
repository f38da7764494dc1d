//! Tengine's `check` and `check_status`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use weir_tests::{expect_soon, run_cli, skip, tls, Next, Origin, Server, Setup};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/") || {
        skip("nginx has no check");
        false
    }
}

fn conf(servers: &str, check: &str) -> String {
    format!(
        "worker_processes 2; error_log %%DIR%%/error.log info; events {{}} http {{ check_shm_size 2m;
            upstream u {{ {servers} {check} }}
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ proxy_pass http://u; }}
                location /csv {{ check_status csv; }} location /page {{ check_status; }} }} }}"
    )
}

/// `up` and `down` of the servers, in their order.
fn standing(server: &Server) -> Vec<String> {
    let page = server.get("/csv").text();
    page.lines().map(|line| line.split(',').nth(3).unwrap().to_string()).collect()
}

/// Answers questions by `answer`, and requests for `/` with `served`.
fn origin(answer: &'static [u8], begins: &'static [u8], end: &'static [u8]) -> Origin {
    Origin::start_raw(move |conn, _| {
        conn.write(begins);
        if conn.read_until(end).is_some() {
            conn.write(answer);
        }
        conn.wait_closed();
    })
}

#[test]
fn a_server_rises_and_falls() {
    if !is_weir() {
        return;
    }
    let well = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&well);
    let origin = Origin::start(move |request, conn| {
        let status = match state.load(Ordering::SeqCst) || request.target() == "/" {
            true => "404 Gone",
            false => "200 OK",
        };
        conn.reply(status, "", "");
        Next::Close
    });
    let check = "check interval=20 rise=2 fall=3 timeout=1000 type=http;
        check_http_send \"HEAD /health HTTP/1.0\\r\\n\\r\\n\"; check_http_expect_alive http_1xx http_4xx;";
    let servers = format!("server {0}; server {0} backup;", origin.address());
    let server = Setup::new(&conf(&servers, check)).start();
    origin.expect_requests(2);
    assert_eq!(server.get("/").status, 502);
    assert_eq!(standing(&server), ["down", "down"]);
    well.store(true, Ordering::SeqCst);
    expect_soon("it rises", || standing(&server)[0] == "up");
    expect_soon("it is asked", || server.get("/").status == 404);
    server.expect_error(&format!("enable check peer: {}", origin.address()));
    assert_eq!(origin.requests()[0].line(), "HEAD /health HTTP/1.0");
    well.store(false, Ordering::SeqCst);
    expect_soon("it falls", || server.get("/").status == 502);
    server.expect_error(&format!(
        "disable check peer: {} while checking status code",
        origin.address()
    ));
}

#[test]
fn servers_are_up_at_first_where_that_is_said() {
    if !is_weir() {
        return;
    }
    let origin = Origin::replying("HTTP/1.0 200 OK\r\n\r\nserved");
    let servers = format!("server {};", origin.address());
    let check = "check interval=3600000 default_down=false type=tcp;";
    let server = Setup::new(&conf(&servers, check)).start();
    assert_eq!(server.get("/").text(), "served");
    assert_eq!(standing(&server), ["up"]);
}

/// The kinds of questions, with a server of each that is well and one that is not.
#[test]
fn each_kind_knows_its_servers() {
    if !is_weir() {
        return;
    }
    const FASTCGI_END: &[u8] = &[1, 5, 0, 1, 0, 0, 0, 0];
    // Standard output with a head, and the request's end.
    const FASTCGI: &[u8] = b"\x01\x06\0\x01\0\x1b\x05\0Status: 200 OK\r\nA: b\r\n\r\nok!\0\0\0\0\0\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";
    const FASTCGI_BAD: &[u8] = b"\x01\x06\0\x01\0\x17\x01\0Status: 500 No\r\nA: b\r\n\r\n\0\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";
    for (kind, good, bad) in [
        (
            "mysql",
            origin(b"", b"\x4a\0\0\0\x0a8.0", b"never"),
            origin(b"", b"\x4a\0\0\0\xff8.0", b"never"),
        ),
        (
            "ajp",
            origin(b"AB\0\x01\x09", b"", b"\x12\x34\0\x01\x0a"),
            origin(b"AB\0\x01\x08", b"", b"\x12\x34\0\x01\x0a"),
        ),
        ("fastcgi", origin(FASTCGI, b"", FASTCGI_END), origin(FASTCGI_BAD, b"", FASTCGI_END)),
        (
            "http",
            origin(b"HTTP/1.0 301 M\r\n\r\n", b"", b"\r\n\r\n"),
            origin(b"HTTP/1.0 500 M\r\n\r\n", b"", b"\r\n\r\n"),
        ),
        (
            "http",
            origin(b"HTTP/1.0 200 O\r\n\r\n", b"", b"\r\n\r\n"),
            origin(b"nonsense\r\n\r\n", b"", b"\r\n\r\n"),
        ),
        (
            "http",
            origin(b"HTTP/1.0 200 O\r\n\r\n", b"", b"\r\n\r\n"),
            origin(b"", b"", b"\r\n\r\n"),
        ),
        (
            "ssl_hello",
            Origin::start_raw(tls_server),
            origin(b"\x15\x03\x01\0\x02\x02\x28", b"", b"\x5a\x5a"),
        ),
        ("tcp", origin(b"", b"", b"never"), Origin::start_raw(|_, _| ())),
    ] {
        let servers = format!("server {}; server {};", good.address(), bad.address());
        let check = format!(
            "check interval=30 rise=1 fall=1 timeout=300 type={kind} unique=false;
             check_fastcgi_param SCRIPT_FILENAME /ping; check_fastcgi_param REQUEST_METHOD HEAD;"
        );
        let server = Setup::new(&conf(&servers, &check)).start();
        let up = |s: &str| s == "up";
        expect_soon(&format!("{kind} knows the good one"), || up(&standing(&server)[0]));
        expect_soon(&format!("{kind} asks the bad one"), || bad.connections() > 2);
        let told = standing(&server);
        // A connection that is closed at once may be closed after it was looked at.
        assert!(kind == "tcp" || told == ["up", "down"], "{kind}: {told:?}");
    }
}

/// Answers a hello as a server of TLS does.
fn tls_server(conn: &mut weir_tests::Conn, _: usize) {
    let Some(head) = conn.read_exactly(5) else { return };
    assert_eq!(head[..2], [22, 3]);
    let Some(hello) = conn.read_exactly(usize::from(head[3]) * 256 + usize::from(head[4])) else {
        return;
    };
    assert_eq!(hello[0], 1);
    conn.write([22, 3, 3, 0, 4, 2, 0, 0, 0]);
    conn.wait_closed();
}

/// What a real server of TLS says to the hello.
#[test]
fn a_real_tls_server_is_well() {
    if !is_weir() {
        return;
    }
    let conf = "error_log %%DIR%%/error.log info; events {} http {
        upstream u { server 127.0.0.1:%%PORT_1%%; check interval=30 rise=1 timeout=2000 type=ssl_hello; }
        server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate %%DIR%%/cert.pem; ssl_certificate_key %%DIR%%/key.pem; }
        server { listen 127.0.0.1:%%PORT_0%%; location /csv { check_status csv; } } }";
    let pair = tls::self_signed("check.test");
    let server = Setup::new(conf).file("cert.pem", &pair.cert).file("key.pem", &pair.key).start();
    expect_soon("it is up", || standing(&server) == ["up"]);
}

#[test]
fn a_connection_carries_several_questions() {
    if !is_weir() {
        return;
    }
    let origin = Origin::start(|_, conn| {
        conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        Next::Keep
    });
    for requests in [1, 3] {
        let check = format!(
            "check interval=10 timeout=1000 type=http; check_keepalive_requests {requests};
             check_http_send \"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n\";"
        );
        let (connections, asked) = (origin.connections(), origin.requests().len());
        let servers = format!("server {};", origin.address());
        let server = Setup::new(&conf(&servers, &check)).start();
        origin.expect_requests(asked + 6);
        drop(server);
        let (all, fresh) = (origin.requests().len() - asked, origin.connections() - connections);
        assert!(
            (all.div_ceil(requests)..=all.div_ceil(requests) + 1).contains(&fresh),
            "{requests}: {all} on {fresh}"
        );
    }
}

#[test]
fn the_page_has_several_forms() {
    if !is_weir() {
        return;
    }
    let origin = Origin::start_raw(|conn, _| {
        conn.wait_closed();
    });
    let servers = format!("server {}; server 127.0.0.1:%%PORT_1%%;", origin.address());
    let check = "check interval=20 rise=1 fall=1 timeout=1000 type=tcp;";
    let server = Setup::new(&conf(&servers, check)).start();
    expect_soon("both are known", || {
        standing(&server) == ["up", "down"] && !server.get("/csv").text().contains(",0,0,")
    });
    let page = server.get("/page");
    assert_eq!(page.header("Content-Type"), Some("text/html"));
    assert!(
        page.text().contains("Check upstream server number: 2, generation: 1"),
        "{}",
        page.text()
    );
    // Scripts look for cells by their lines.
    let row = "  <tr bgcolor=\"#FF0000\">\n    <td>1</td>\n    <td>u</td>\n    <td>127.0.0.1:";
    assert!(page.text().contains(row), "{}", page.text());
    assert!(page.text().contains("    <td>tcp</td>\n    <td>0</td>\n  </tr>\n</table>\n"));
    let csv = server.get("/page?format=CSV&status=Up");
    assert_eq!(csv.text().lines().count(), 1);
    assert!(
        csv.text().starts_with(&format!("0,u,{},up,", origin.address()))
            && csv.text().ends_with(",tcp,0\n")
    );
    assert_eq!(csv.header("Content-Type"), Some("text/plain"));
    let json = server.get("/page?format=json&status=down");
    assert_eq!(json.header("Content-Type"), Some("application/json"));
    let text = json.text();
    assert!(
        text.contains("\"total\": 1,") && text.contains("\"index\": 1, \"upstream\": \"u\""),
        "{text}"
    );
    assert!(text.contains("\"status\": \"down\"") && text.ends_with("  ]\n}}\n"), "{text}");
    let prometheus = server.get("/csv?format=prometheus").text();
    assert!(prometheus.contains("nginx_upstream_count_up 1\n"), "{prometheus}");
    assert!(prometheus.contains("nginx_upstream_server_rise{index=\"0\",upstream=\"u\""));
    assert_eq!(server.post("/page", "x").status, 405);
}

#[test]
fn what_cannot_be_checked_is_refused() {
    if !is_weir() {
        return;
    }
    for (check, told) in [
        ("check type=smtp;", "invalid parameter \"type=smtp\""),
        ("check interval=0;", "invalid parameter \"interval=0\""),
        ("check interval=3s;", "invalid parameter \"interval=3s\""),
        ("check default_down=maybe;", "invalid parameter \"default_down=maybe\""),
        ("check unique=true;", "invalid parameter \"unique=true\""),
        ("check rise=1; check rise=1;", "\"check\" directive is duplicate"),
        ("check_http_expect_alive http_9xx;", "invalid value \"http_9xx\""),
        ("check_keepalive_requests 0;", "invalid value \"0\""),
    ] {
        let output =
            run_cli(&["-t"], &conf("server 127.0.0.1:1;", check).replace("%%PORT_0%%", "1"));
        assert!(output.code == 1 && output.stderr.contains(told), "{told}: {}", output.stderr);
    }
}
