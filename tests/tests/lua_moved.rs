//! Lua: what somebody has met who has moved an application of OpenResty's.

use super::lua_mends::start;
use weir_tests::h2::H2;
use weir_tests::Origin;

/// Arguments of other functions are as many as these give: one, and a second where something was cut.
#[test]
fn tables_come_alone() {
    let server = start(
        "",
        r##"location / { content_by_lua_block {
            ngx.req.read_body()
            ngx.say(select("#", ngx.req.get_uri_args()), select("#", ngx.req.get_post_args()), select("#", ngx.req.get_headers()),
                select("#", ngx.resp.get_headers()), select("#", ngx.decode_args("a=1")))
            ngx.say(require "cjson".encode(ngx.req.get_uri_args()), " ", select(2, ngx.req.get_uri_args(1)), " ", select(2, ngx.decode_args("a&b", 1)))
        } }"##,
    );
    assert_eq!(
        server.get("/?a=1&a=2").text(),
        "11111\n{\"a\":[\"1\",\"2\"]} truncated truncated\n"
    );
}

/// Variables of nginx's own that take values, and ones that the log is to have.
#[test]
fn variables_take_values() {
    let origin = Origin::echo();
    let server = start(
        "log_format about '$about $status'; access_log %%DIR%%/about.log about;",
        &format!(
            r#"set $about '-'; log_by_lua_block {{ ngx.var.about = ngx.var.uri .. " is logged" }}
            location /bare {{ rewrite_by_lua_block {{ ngx.var.args = nil }} proxy_pass http://127.0.0.1:{0}; }}
            location /other {{ rewrite_by_lua_block {{ ngx.var.args = "c=3" }} proxy_pass http://127.0.0.1:{0}; }}
            location /rate {{ content_by_lua_block {{ ngx.var.limit_rate = "100k" ngx.say(ngx.var.limit_rate) }} }}
            location /uri {{ content_by_lua_block {{ ngx.say(pcall(function() ngx.var.uri = "/" end)) }} }}"#,
            origin.port()
        ),
    );
    let passed_on =
        |path: &str| server.get(path).text().lines().next().unwrap_or_default().to_owned();
    assert_eq!(passed_on("/bare?a=1"), "GET /bare HTTP/1.1");
    assert_eq!(passed_on("/other?a=1"), "GET /other?c=3 HTTP/1.1");
    assert_eq!(server.get("/rate").text(), "102400\n");
    assert!(server.get("/uri").text().contains("variable \"uri\" not changeable"));
    let lines = server.log_lines("about.log", 4);
    assert_eq!(lines[0], "/bare is logged 200");
    assert_eq!(lines[3], "/uri is logged 200");
}

/// A field that code takes away is not sent by itself.
#[test]
fn fields_of_the_servers_own_go() {
    let server = start(
        "",
        r#"location /code { content_by_lua_block { ngx.header.Server = nil ngx.header.Date = nil ngx.say("x") } }
        location /filter { header_filter_by_lua_block { ngx.header.server = nil } return 200 x; }"#,
    );
    let answer = server.get("/code");
    assert_eq!((answer.header("Server"), answer.header("Date")), (None, None));
    let answer = server.get("/filter");
    assert!(answer.header("Server").is_none() && answer.header("Date").is_some());
}

/// A stream of events that nobody listens to ends.
#[test]
fn an_answer_without_body_takes_none() {
    let server = start(
        "",
        r#"location / { content_by_lua_block {
            ngx.say("event") local ok, e = ngx.flush(true) ngx.log(ngx.WARN, "flush: ", ok, " ", e, " ", select(2, ngx.say("more")), " ", select(2, ngx.eof())) } }"#,
    );
    assert!(server
        .raw(b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .ends_with(b"\r\n\r\n"));
    server.expect_error("flush: nil header only header only seen eof");
}

/// An answer that code breaks off has no end that looks like one.
#[test]
fn what_is_broken_off_is_not_whole() {
    let server = start(
        "log_format how '$status $request_completion'; access_log %%DIR%%/how.log how; lua_check_client_abort on;",
        r#"location /444 { content_by_lua_block { ngx.print("half") ngx.flush(true) ngx.exit(444) } }
        location /499 { content_by_lua_block { ngx.header.content_length = 1000 ngx.print("half") ngx.flush(true) ngx.exit(499) } }
        location /part { content_by_lua_block { local part = ngx.location.capture("/444") ngx.say(part.body, " ", part.truncated) } }
        location /all { content_by_lua_block { ngx.print("half") ngx.flush(true) ngx.exit(200) } }
        location /status { content_by_lua_block { ngx.status = 1000 ngx.status = -5 ngx.say(ngx.status) } }
        location /one { content_by_lua_block { ngx.exit(1) } }"#,
    );
    for (path, end) in
        [("/444", &b"4\r\nhalf\r\n"[..]), ("/499", b"half"), ("/all", b"0\r\n\r\n"), ("/one", b"")]
    {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\n{}\r\n",
            if path == "/all" { "Connection: close\r\n" } else { "" }
        );
        let answer = server.raw(request.as_bytes());
        assert!(answer.ends_with(end), "{path}: {}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(server.get("/part").text(), "half true\n");
    let lines = server.log_lines("how.log", 5);
    assert_eq!(lines[..3], ["200 ", "200 ", "200 OK"], "{lines:?}");
    let answer = server.get("/status");
    assert_eq!((answer.status, answer.text()), (200, "0\n".into()));
    server.expect_error("invalid HTTP status code 1000");
}

/// A client that waits for "100 Continue" gets it before the answer, or knows where the next request begins.
#[test]
fn a_client_that_waits_to_send_is_not_misled() {
    let server = start(
        "",
        r#"location /early { content_by_lua_block { ngx.say("early") ngx.flush(true) ngx.req.read_body() ngx.say(ngx.req.get_body_data()) } }
        location /unread { content_by_lua_block { ngx.say("no") } }
        location /read { content_by_lua_block { ngx.req.read_body() ngx.print(ngx.req.get_body_data()) } }"#,
    );
    let head = |path| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    let mut client = server.connect();
    client.send(head("/early").as_bytes());
    client.read_until(b"early\n\r\n");
    client.send(b"body");
    let rest = client.read_to_end();
    assert!(
        rest.starts_with(b"5\r\nbody\n\r\n") && rest.ends_with(b"0\r\n\r\n"),
        "{}",
        String::from_utf8_lossy(&rest)
    );
    let answer = server.raw(head("/unread").as_bytes());
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("\r\nConnection: close\r\n") && !text.contains("100 Continue"), "{text}");
    let mut client = server.connect();
    client.send(head("/read").as_bytes());
    client.read_until(b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"body");
    client.read_until(b"Connection: keep-alive\r\n");
    client.read_until(b"body");
    client.send(b"GET /unread HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_until(b"no\n");
}

/// What code sends over the client's connection itself (WebSockets) is in the log.
#[test]
fn the_log_counts_what_a_raw_socket_sends() {
    let server = start(
        "log_format sent '$status $bytes_sent $request_completion'; access_log %%DIR%%/sent.log sent;",
        r#"location / { content_by_lua_block {
            local sock = ngx.req.socket(true) sock:send("HTTP/1.1 200 OK\r\n\r\n") sock:send(("x"):rep(3000000)) if ngx.var.arg_fails then error("fails") end } }"#,
    );
    assert_eq!(server.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").len(), 3000019);
    assert_eq!(server.raw(b"GET /?fails=1 HTTP/1.1\r\nHost: a\r\n\r\n").len(), 3000019);
    let lines = server.log_lines("sent.log", 2);
    assert!(lines[0].ends_with(" 3000019 OK") && lines[1].ends_with(" 3000019 "), "{lines:?}");
}

/// `ngx.flush(true)` over HTTP/2: what it waits for has left, whatever the code does next; here it holds its worker until
/// the client has read.
#[test]
fn what_is_flushed_over_http2_has_left() {
    let server = start(
        "http2 on;",
        r#"location / { lua_log_blocking_calls off; content_by_lua_block {
            ngx.say("first") ngx.flush(true)
            local begun = os.clock() repeat local read = io.open("%%DIR%%/read") until read or os.clock() - begun > 5
            error("broken off") } }"#,
    );
    let mut h2 = H2::connect(&server);
    h2.get("/");
    let data = h2.expect(0);
    assert_eq!((data.payload.as_slice(), data.ends_stream()), (&b"first\n"[..], false));
    assert!(!server.error_log().contains("broken off"), "the code has gone on");
    server.write("read", "");
    assert_eq!(h2.expect(3).code(), 2, "INTERNAL_ERROR");
}

/// A client that is refused by a page of the configuration's is not asked for its body.
#[test]
fn who_is_refused_is_not_asked_for_a_body() {
    let server = start(
        "",
        r#"error_page 403 /refused; location = /refused { return 200 "refused"; }
        location / { access_by_lua_block { ngx.exit(403) } content_by_lua_block { ngx.say("in") } }"#,
    );
    let mut client = server.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    let head = client.read_until(b"\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 403 Forbidden\r\n"), "{}", String::from_utf8_lossy(&head));
}

/// What code has refused stays the status of an answer that says none of its own (`error_page … =`), as in OpenResty.
#[test]
fn code_that_answers_for_a_refusal_leaves_its_status() {
    let server = start(
        "",
        r#"location /access { error_page 403 = @login; access_by_lua_block { ngx.exit(403) } }
        location /content { error_page 502 = @login; content_by_lua_block { ngx.exit(502) } }
        location /rewrite { error_page 404 = @late; rewrite_by_lua_block { ngx.exit(404) } }
        location /other { error_page 404 =201 @login; content_by_lua_block { ngx.exit(404) } }
        location /own { error_page 404 = @own; content_by_lua_block { ngx.exit(404) } }
        location /error { error_page 500 = @login; content_by_lua_block { error("x") } }
        location /any { satisfy any; access_by_lua_block { ngx.exit(403) } allow all; content_by_lua_block { ngx.say(ngx.status) } }
        location @login { content_by_lua_block { ngx.say(ngx.status) } }
        location @late { content_by_lua_block { ngx.sleep(0.001) ngx.say(ngx.status) } }
        location @own { return 202 "own\n"; }"#,
    );
    for (path, status, text) in [
        ("/access", 403, "403\n"),
        ("/content", 502, "502\n"),
        ("/rewrite", 404, "404\n"),
        ("/other", 201, "201\n"),
        ("/own", 202, "own\n"),
        ("/error", 200, "0\n"),
        ("/any", 200, "0\n"),
    ] {
        let r = server.get(path);
        assert_eq!((r.status, r.text().as_str()), (status, text), "{path}");
    }
}

/// A long match in a template that has it often is an error, and takes no more memory than its bound.
#[test]
fn replacing_has_a_bound_within_one_match() {
    let server = start(
        "",
        r#"location / { content_by_lua_block { local whole, n, e = ngx.re.gsub(("a"):rep(2^20), "^a+$", ("$0"):rep(3000), "jo") ngx.say(whole, n, e) } }"#,
    );
    assert_eq!(server.get("/").text(), "nilnilpcre_exec() failed: -48\n");
    let peak = server.memory_peak();
    assert!(peak < 700 << 20, "{peak} bytes");
}
