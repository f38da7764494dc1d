//! Lua: sockets whose use was broken off, and the client's connection.

use crate::lua_mends::start;
use std::time::{Duration, Instant};
use weir_tests::tls::Authority;
use weir_tests::{Origin, Setup};

/// What a thread that was killed has left on a connection is nobody else's.
#[test]
fn a_connection_that_was_left_in_the_middle_is_not_kept() {
    let server = start(
        "",
        r#"location /read { content_by_lua_block {
            local s = ngx.socket.tcp() assert(s:connect("127.0.0.1", tonumber(ngx.var.arg_port)))
            s:send("ASK\n") local t = ngx.thread.spawn(s.receive, s) ngx.thread.kill(t)
            ngx.say(s:setkeepalive()) ngx.say((select(2, s:receive()))) } }
        location /send { content_by_lua_block {
            local s = ngx.socket.tcp() s:settimeouts(1000, 50, 1000) assert(s:connect("127.0.0.1", tonumber(ngx.var.arg_port)))
            ngx.say(s:send(("x"):rep(32 * 1024 * 1024))) ngx.say(s:setkeepalive()) ngx.say(s:send("more")) } }
        location /killed { content_by_lua_block {
            local s = ngx.socket.tcp() assert(s:connect("127.0.0.1", tonumber(ngx.var.arg_port)))
            local t = ngx.thread.spawn(s.send, s, ("x"):rep(32 * 1024 * 1024)) ngx.thread.kill(t)
            ngx.say(s:setkeepalive()) } }"#,
    );
    // It reads a line of each, and waits for the end.
    let origin = Origin::start_raw(|conn, _| {
        conn.read_until(b"\n");
        conn.wait_closed();
    });
    let ask = |path: &str| server.get(&format!("{path}?port={}", origin.port())).text();
    assert_eq!(ask("/read"), "nilclosed\nclosed\n");
    assert_eq!(ask("/send"), "niltimeout\nnilclosed\nnilclosed\n");
    assert_eq!(ask("/killed"), "nilclosed\n");
}

/// A handshake that nobody has seen the end of is none.
#[test]
fn a_handshake_that_was_broken_off_is_not_taken_for_done() {
    let conf = r#"events {} error_log %%DIR%%/error.log info; http { default_type text/plain;
        lua_ssl_trusted_certificate %%DIR%%/ca.crt;
        server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key; return 200 "got $http_secret"; }
        server { listen 127.0.0.1:%%PORT_0%%; location / { content_by_lua_block {
            local s = ngx.socket.tcp() assert(s:connect("127.0.0.1", %%PORT_1%%))
            local t = ngx.thread.spawn(s.sslhandshake, s, nil, "wrong.name", true)
            if ngx.var.arg_wait then ngx.sleep(tonumber(ngx.var.arg_wait)) end
            ngx.thread.kill(t)
            ngx.say(s:sslhandshake(nil, "wrong.name", true)) ngx.say(s:send("GET / HTTP/1.0\r\nSecret: s\r\n\r\n")) } } } }"#;
    let authority = Authority::new("ca");
    let pair = authority.issue("a.test");
    let setup = Setup::new(conf).file("ca.crt", &authority.cert);
    let server = setup.file("a.crt", pair.cert).file("a.key", pair.key).start();
    assert_eq!(server.get("/").text(), "nilclosed\nnilclosed\n");
    for wait in ["0.0005", "0.001", "0.002"] {
        let text = server.get(&format!("/?wait={wait}")).text();
        assert!(text.starts_with("nil") && text.ends_with("\nnilclosed\n"), "{text}");
    }
}

/// A request's body is that request's, whoever has its socket.
#[test]
fn a_body_is_read_by_nobody_else() {
    let server = start(
        "init_by_lua_block { kept = {} }",
        r#"location /a { content_by_lua_block {
            local s = ngx.req.socket() kept.s, kept.it = s, s:receiveuntil("\n") ngx.say(s:receive(2)) ngx.flush(true) s:receive(100) } }
        location /b { content_by_lua_block { local said = {}
            for _, f in ipairs { function() return kept.it() end, function() return kept.s:receive(3) end, function() return kept.s:receiveany(5) end } do
                local ok, e = pcall(f) said[#said + 1] = tostring(e):match("bad request") or "got it" end
            ngx.say(table.concat(said, ",")) } }"#,
    );
    let mut a = server.connect();
    a.send(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n12secret\nline\n");
    assert!(a.read_until(b"12\n").ends_with(b"12\n"));
    let mut b = server.connect();
    b.send(b"POST /b HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\nown");
    assert_eq!(b.response().text(), "bad request,bad request,bad request\n");
    drop(a);
    assert_eq!(server.post("/b", "own").text(), "bad request,bad request,bad request\n");
}

/// Lines and patterns in what comes in pieces, each looked through once.
#[test]
fn long_texts_are_looked_through_once() {
    let server = start(
        "client_max_body_size 0; client_body_buffer_size 16k;",
        r#"location /line { content_by_lua_block {
            local s = ngx.req.socket() local line, e, partial = s:receive("*l") ngx.say(e or #line, " ", partial and #partial) } }
        location /until { content_by_lua_block {
            local it = ngx.req.socket():receiveuntil("--end--") ngx.say(#it()) ngx.say(it()) } }
        location /pieces { content_by_lua_block {
            local s = ngx.req.socket() local it, said = s:receiveuntil("ab\r\n", { inclusive = true }), {}
            ngx.say(s:receive()) ngx.say(s:receive(3)) ngx.say(it(2)) ngx.say(it(20)) ngx.say(it(20)) ngx.say(it()) ngx.say(s:receiveany(2)) ngx.say(s:receive("*a")) } }
        location /own { content_by_lua_block {
            local s = ngx.socket.tcp() assert(s:connect("127.0.0.1", tonumber(ngx.var.arg_port)))
            ngx.say(#s:receive("*l")) ngx.say(#s:receiveuntil("--end--")()) ngx.say(s:receive(4)) } }"#,
    );
    let (long, many) = ("x".repeat(8 << 20), "-".repeat(8 << 20));
    let begun = Instant::now();
    assert_eq!(server.post("/line", &long).text(), format!("closed {}\n", long.len()));
    let sent = format!("{many}-end--last");
    let length = sent.len() - "--end--last".len();
    assert!(server.post("/until", &sent).text().starts_with(&format!("{length}\n")));
    let text = format!("{long}\n{long}--end--rest");
    let origin = Origin::start_raw(move |conn, _| conn.write(&text));
    let text = server.get(&format!("/own?port={}", origin.port())).text();
    assert_eq!(text, format!("{0}\n{0}\nrest\n", long.len()));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let text = server.post("/pieces", "one\r\ntwothreeab\r\nfourab\r\nfive").text();
    assert_eq!(text, "one\ntwo\nth\nreeab\r\n\nnilnilnil\nfourab\r\n\nfi\nve\n");
}

/// The first answer of a WebSocket, whose bytes are the code's from there on.
#[test]
fn websockets_are_answered_as_clients_want_it() {
    let server = start(
        "",
        r#"location / { content_by_lua_block {
            ngx.status = 101 ngx.header["Upgrade"] = "websocket" ngx.header["Sec-WebSocket-Accept"] = "key"
            ngx.header["Content-Type"] = nil
            assert(ngx.send_headers()) assert(ngx.flush(true))
            local s = assert(ngx.req.socket(true)) s:settimeout(5000)
            s:send("<" .. s:receive(4) .. ">") } }
        location /typed { content_by_lua_block { ngx.status = 101 ngx.send_headers() ngx.flush(true) } }"#,
    );
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    let head = client.read_until(b"\r\n\r\n");
    let head = String::from_utf8_lossy(&head);
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("\r\nConnection: upgrade\r\n"), "{head}");
    for name in ["Content-Type", "Transfer-Encoding", "Content-Length"] {
        assert!(!head.contains(name), "{head}");
    }
    client.send(b"ping");
    assert_eq!(client.read_to_end(), b"<ping>");
    let mut client = server.connect();
    client.send_get("/typed");
    let head = client.read_until(b"\r\n\r\n");
    assert!(!String::from_utf8_lossy(&head).contains("Content-Type"));
}
