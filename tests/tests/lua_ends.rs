//! Lua: requests that end otherwise than at the end of their code, and what is sent and logged of them: cut when a
//! worker ends, given up by their clients, broken off by errors.

use std::time::Duration;
use weir_tests::h2::H2;
use weir_tests::tls::{self_signed, Tls};
use weir_tests::{expect_soon, Client, Server, Setup, Signal};

const CONF: &str = r#"worker_shutdown_timeout 100ms; events {} error_log %%DIR%%/error.log info; http { http2 on; default_type text/plain;
    log_format l "$uri $status $body_bytes_sent"; access_log %%DIR%%/access.log l;
    server { listen 127.0.0.1:%%PORT_0%%; log_by_lua_block { ngx.log(ngx.WARN, "logged ", ngx.var.uri) } %%LOCATIONS%% } }"#;

fn start(locations: &str) -> Server {
    Setup::new(&CONF.replace("%%LOCATIONS%%", locations)).start()
}

/// One that is one process, which can be stopped while a client sends.
fn start_alone(locations: &str) -> Server {
    let conf = CONF.replace("%%LOCATIONS%%", locations);
    Setup::new(&format!("master_process off; {conf}")).start()
}

/// The server has the request and the end when it first looks.
fn send_with_end(server: &Server, request: &str) -> Client {
    server.signal(Signal::Stop);
    let mut client = server.connect();
    client.send(request.as_bytes());
    client.shutdown_write();
    server.signal(Signal::Cont);
    client
}

/// nginx ends them without a word to the client, and logs them.
#[test]
fn requests_that_are_cut_are_logged() {
    const SLOW: &str = r#"
        location /sleep { content_by_lua_block { ngx.log(ngx.WARN, "begun") ngx.sleep(30) } }
        location /access { access_by_lua_block { ngx.log(ngx.WARN, "begun") ngx.sleep(30) } empty_gif; }
        location /said { content_by_lua_block { ngx.say("part") ngx.flush(true) ngx.log(ngx.WARN, "begun") ngx.sleep(30) } }
        location /part { content_by_lua_block { ngx.location.capture("/sleep") } }
        location /semaphore { content_by_lua_block { ngx.log(ngx.WARN, "begun") require("ngx.semaphore").new(0):wait(30) } }"#;
    for is_reload in [true, false] {
        let mut server = start(SLOW);
        let begun = |server: &Server| server.error_log().matches("begun").count();
        let mut clients = Vec::new();
        for (at, path) in ["sleep", "access", "said", "part", "semaphore"].iter().enumerate() {
            let mut client = server.connect();
            client.send_get(&format!("/{path}"));
            expect_soon("the code has begun", || begun(&server) == at + 1);
            clients.push(client);
        }
        let mut h2 = H2::connect(&server);
        h2.get("/sleep");
        expect_soon("the code has begun", || begun(&server) == clients.len() + 1);
        server.signal(if is_reload { Signal::Hup } else { Signal::Quit });
        let mut lines = server.log_lines("access.log", 6);
        lines.sort();
        let all = ["/access 000 0", "/part 000 0", "/said 200 10", "/semaphore 000 0"];
        assert_eq!(lines[..4], all, "reload: {is_reload}");
        assert_eq!(lines[4..], ["/sleep 000 0"; 2]);
        for path in ["access", "part", "said", "sleep", "semaphore"] {
            server.expect_error(&format!("logged /{path} while logging request"));
        }
        for client in &mut clients {
            client.set_patience(Duration::from_secs(5));
            let answer = client.read_to_end();
            assert!(answer.is_empty() || answer.ends_with(b"5\r\npart\n\r\n"));
        }
        if !is_reload {
            assert_eq!(server.wait_exit(), Some(0));
        }
    }
}

/// Who sends the end together with the request waits for the answer; who has gone does not.
#[test]
fn a_client_may_end_its_side_with_its_request() {
    let server = start_alone(
        r#"lua_check_client_abort on;
        location /short { content_by_lua_block { ngx.sleep(0.1) ngx.say("answer") } }
        location /long { content_by_lua_block { ngx.log(ngx.WARN, "begun") ngx.sleep(30) } }"#,
    );
    let send_with_end =
        |path: &str| send_with_end(&server, &format!("GET {path} HTTP/1.0\r\n\r\n"));
    let answer = send_with_end("/short").read_to_end();
    assert!(answer.ends_with(b"\r\n\r\nanswer\n"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(server.log_lines("access.log", 1), ["/short 200 7"]);
    let client = send_with_end("/long");
    server.expect_error("begun");
    client.reset();
    assert_eq!(server.log_lines("access.log", 2)[1], "/long 499 0");
    // The end alone says that the client is gone, where it comes later.
    let mut client = server.connect();
    client.send_get("/long");
    expect_soon("the code has begun", || server.error_log().matches("begun").count() == 2);
    client.shutdown_write();
    assert_eq!(server.log_lines("access.log", 3)[2], "/long 499 0");
}

/// Behind `close_notify` a client may wait for the answer (RFC 8446 section 6.1); the connection's end says that it is gone.
#[test]
fn a_client_may_end_its_session_before_its_answer() {
    let pair = self_signed("a.test");
    let conf = r#"lua_check_client_abort on; ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
        listen 127.0.0.1:%%PORT_1%% ssl; location = /go { content_by_lua_block { ngx.shared.d:set("go", true) } }
        location /code { content_by_lua_block { ngx.log(ngx.WARN, "begun")
            repeat ngx.sleep(0.01) until ngx.shared.d:get("go") ngx.say("answer") } }
        location /proxied { proxy_pass http://127.0.0.1:%%PORT_0%%/code; }"#;
    let conf =
        CONF.replace("%%LOCATIONS%%", conf).replace("http {", "http { lua_shared_dict d 1m;");
    let server = Setup::new(&conf).file("a.crt", &pair.cert).file("a.key", &pair.key).start();
    let begun = || server.error_log().matches("begun").count();
    let ask = |path: &str| {
        let before = begun();
        let mut client = Tls::default().connect(server.port(1), "a.test").unwrap();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        expect_soon("the code has begun", || begun() > before);
        client.end_session();
        client
    };
    drop(ask("/code"));
    assert_eq!(server.log_lines("access.log", 1), ["/code 499 0"]);
    let mut waiting = [ask("/code"), ask("/proxied")];
    // What comes behind it is not read.
    let sent = ask("/code").fill(64 << 20);
    assert!(sent < 64 << 20, "{sent} bytes");
    // The server has read the notify by then.
    assert_eq!(server.get("/go").status, 200);
    for client in &mut waiting {
        let answer = client.read_to_end();
        assert!(
            answer.ends_with(b"7\r\nanswer\n\r\n0\r\n\r\n"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
}

/// What OpenResty keeps back of an answer that then breaks off (less than `postpone_output`) is never sent, and the log
/// says so.
#[test]
fn of_an_answer_that_breaks_off_only_what_was_flushed_is_sent() {
    let server = start(
        r#"location /say { content_by_lua_block { ngx.say("part") error("oops") } }
        location /slept { content_by_lua_block { ngx.say("part") ngx.sleep(0.01) error("oops") } }
        location /access { access_by_lua_block { ngx.say("part") error("oops") } }
        location /much { content_by_lua_block { ngx.print(("x"):rep(2000)) ngx.print("rest") error("oops") } }
        location /flushed { content_by_lua_block { ngx.print("part") ngx.flush() ngx.print("rest") error("oops") } }
        location /over { content_by_lua_block { ngx.print("part") ngx.eof() error("oops") } }
        location /filter { return 200 text; body_filter_by_lua_block { error("oops") } }
        location /returns { return 200 text; body_filter_by_lua_block { return ngx.ERROR } }
        location /later { content_by_lua_block { ngx.say("a") ngx.say("b") }
            body_filter_by_lua_block { if ngx.arg[1] == "b\n" then error("oops") end } }
        location /proxied { proxy_pass http://127.0.0.1:%%PORT_0%%/text; body_filter_by_lua_block { error("oops") } }
        location /text { access_log off; return 200 text; }
        location /header { content_by_lua_block { ngx.say("a") } header_filter_by_lua_block { error("oops") } }
        location /nothing { content_by_lua_block { ngx.print() error("oops") } }
        location /gone { content_by_lua_block { ngx.say("part") ngx.exit(444) } }
        location /error { content_by_lua_block { ngx.say("part") ngx.exit(ngx.ERROR) } }"#,
    );
    let x = "x".repeat(2000);
    let body = |path: &str| match path {
        "/much" => x.clone(),
        "/flushed" | "/over" => "part".to_string(),
        _ => String::new(),
    };
    let raw = |method: &str, path: &str, version: &str| {
        let mut client = server.connect();
        client.send(format!("{method} {path} HTTP/{version}\r\nHost: a\r\n\r\n").as_bytes());
        String::from_utf8_lossy(&client.read_to_end()).into_owned()
    };
    let mut lines = 0;
    let mut logged = || {
        lines += 1;
        server.log_lines("access.log", lines).remove(lines - 1)
    };
    let all =
        "say slept access much flushed over filter returns later proxied header nothing gone error";
    for path in all.split(' ').map(|name| format!("/{name}")) {
        let answer = raw("GET", &path, "1.1");
        let (body, status) = (body(&path), if path == "/gone" { 444 } else { 200 });
        let chunk = format!("{:x}\r\n{body}\r\n", body.len());
        match body.is_empty() {
            true => assert_eq!(answer, "", "{path}"),
            false => assert!(answer.contains(&format!("\r\n\r\n{chunk}")), "{path}: {answer}"),
        }
        assert!(!answer.contains("rest") && answer.ends_with("0\r\n\r\n") == (path == "/over"));
        let sent = answer.split_once("\r\n\r\n").map_or(0, |(_, rest)| rest.len());
        assert_eq!(logged(), format!("{path} {status} {sent}"));
    }
    // A header without a body leaves at once.
    for path in ["/say", "/gone"] {
        let head = raw("HEAD", path, "1.1");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert_eq!(logged(), format!("{path} 200 0"));
    }
    // What is kept until its length is known is given up for a page, but nothing is not kept.
    for (path, status, begin) in [
        ("/say", 500, "HTTP/1.1 500 "),
        ("/nothing", 200, ""),
        ("/gone", 444, ""),
        ("/error", 200, ""),
    ] {
        let answer = raw("GET", path, "1.0");
        assert!(answer.starts_with(begin) && answer.is_empty() == begin.is_empty(), "{answer}");
        assert!(logged().starts_with(&format!("{path} {status} ")), "{path}");
    }
    let mut h2 = H2::connect(&server);
    for path in all.split(' ').map(|name| format!("/{name}")) {
        let answer = h2.fetch(&path);
        let reset = match &path[..] {
            "/over" => None,
            "/gone" => Some(1),
            _ => Some(2),
        };
        let status = if path == "/header" { 0 } else { 200 };
        let wanted = (status, body(&path), reset);
        assert_eq!((answer.status, answer.text(), answer.reset), wanted, "{path}");
        assert_eq!(logged(), format!("{path} 200 {}", body(&path).len()));
    }
}

/// Neither a rate that is waited for nor a body that ends too early is a reason to think that it has gone.
#[test]
fn one_that_has_ended_its_side_is_answered_slowly_too() {
    let server = start_alone(
        r#"location /file { limit_rate 60k; root %%DIR%%; }
        location /lua { limit_rate 60k; content_by_lua_block { ngx.print(("x"):rep(100000)) } }
        location /socket { content_by_lua_block { local socket = ngx.req.socket()
            local data, err, part = socket:receive(50)
            ngx.say(data, " ", err, " ", part) } }"#,
    );
    server.write("file", vec![b'x'; 100_000]);
    for (path, is_late) in [("/file", false), ("/lua", false), ("/file", true), ("/lua", true)] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let mut answer = Vec::new();
        if is_late {
            answer = client.read_until(b"\r\n\r\n");
        }
        client.shutdown_write();
        answer.extend(client.read_to_end());
        assert!(
            answer.iter().filter(|b| **b == b'x').count() >= 100_000,
            "{path}: {}",
            answer.len()
        );
    }
    let request = "POST /socket HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n0123456789";
    let mut client = send_with_end(&server, request);
    let answer = String::from_utf8(client.read_to_end()).unwrap();
    assert!(answer.contains("nil client aborted 0123456789\n"), "{answer}");
}
