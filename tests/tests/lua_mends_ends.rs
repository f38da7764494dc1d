//! Lua: bodies that code makes, timers of a worker that ends, subrequests that fail, and what the log says.

use std::net::UdpSocket;
use weir_tests::{expect_soon, Server, Setup, Signal};

fn start(block: &str, locations: &str) -> Server {
    let conf = format!(
        "events {{}} error_log %%DIR%%/error.log debug; http {{ default_type text/plain; {block}\n\
         server {{ listen 127.0.0.1:%%PORT_0%%; {locations} }} }}"
    );
    Setup::new(&conf).start()
}

/// A body is made while the client's own is read, and goes to a file where it is long.
#[test]
fn a_body_is_made_of_what_a_socket_reads() {
    let server = start(
        "client_max_body_size 0; client_body_buffer_size 16k;",
        r#"location /again { content_by_lua_block {
            local s = ngx.req.socket() ngx.req.init_body()
            while true do
                local text, e, partial = s:receive(1000)
                ngx.req.append_body((text or partial):upper())
                if not text then break end
            end
            ngx.req.finish_body() ngx.say(#(ngx.req.get_body_data() or ""), " ", ngx.req.get_body_file() ~= nil)
            local r = ngx.location.capture("/to", { method = ngx.HTTP_POST, always_forward_body = true }) ngx.print(r.body) } }
        location /part { content_by_lua_block {
            local s = ngx.req.socket() ngx.req.init_body() ngx.req.append_body(s:receive(3)) ngx.req.finish_body()
            ngx.print(ngx.req.get_body_data()) } }
        location /to { proxy_pass http://127.0.0.1:%%PORT_0%%/count; }
        location /count { client_body_buffer_size 1m; content_by_lua_block { ngx.req.read_body() local text = ngx.req.get_body_data() ngx.say(#text, text:sub(1, 3)) } }
        location /long { content_by_lua_block {
            ngx.req.init_body() local piece = ("x"):rep(1024 * 1024)
            for i = 1, 100 do ngx.req.append_body(piece) end
            ngx.req.finish_body() ngx.say(io.open(ngx.req.get_body_file()):seek("end")) } }
        location /small { content_by_lua_block { ngx.req.init_body(4) ngx.req.append_body("fours") ngx.req.finish_body()
            ngx.say(ngx.req.get_body_data(), io.open(ngx.req.get_body_file()):read("*a")) } }"#,
    );
    assert_eq!(server.post("/again", "abc").text(), "3 false\n3ABC\n");
    assert_eq!(server.post("/again", &"abc".repeat(20_000)).text(), "0 true\n60000ABC\n");
    assert_eq!(server.get("/small").text(), "nilfours\n");
    let before = server.memory().unwrap_or(0);
    assert_eq!(server.get("/long").text(), format!("{}\n", 100 << 20));
    assert!(server.memory_growth(before) < 50 << 20, "{}", server.memory_growth(before));
    // What was not read of the first body is never the next request.
    let mut client = server.connect();
    client.send(b"POST /part HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\nGET /long HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n");
    let answer = String::from_utf8_lossy(&client.read_to_end()).into_owned();
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
}

/// A worker that quits lets its timers end: those that wait come at once, those that run see that it ends.
#[test]
fn timers_end_before_their_worker() {
    let mut server = start(
        r#"init_worker_by_lua_block {
            ngx.timer.at(3600, function(premature) ngx.log(ngx.ERR, "pending: ", premature, " ", ngx.timer.at(1, print)) ngx.timer.at(0, function() ngx.log(ngx.ERR, "at once") end) end)
            ngx.timer.every(3600, function(premature) ngx.log(ngx.ERR, "every: ", premature) end)
            ngx.timer.at(0, function() ngx.log(ngx.ERR, "running")
                while not ngx.worker.exiting() do ngx.sleep(0.01) end ngx.sleep(0.05) ngx.log(ngx.ERR, "has seen it") end) }"#,
        "location / { return 200; }",
    );
    server.expect_error("running");
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    let log = server.error_log();
    for text in ["pending: true nilprocess exiting", "at once", "every: true", "has seen it"] {
        assert!(log.contains(text), "{text} is not in {log}");
    }
}

/// Who asks by a subrequest looks at the status itself.
#[test]
fn a_subrequest_that_fails_has_no_page() {
    let server = start(
        "error_page 503 /instead;",
        r#"location / { content_by_lua_block {
            local r = ngx.location.capture("/s" .. ngx.var.uri) ngx.say(r.status, " ", r.truncated, " [", r.body, "]", r.header.Location) } }
        location /s/none { root /nowhere; }
        location /s/text { return 404 text; }
        location /s/moved { return 301 /x; }
        location /s/refused { proxy_pass http://127.0.0.1:1; }
        location /s/exit { content_by_lua_block { ngx.exit(500) } }
        location /s/page { return 503; }
        location /s/own { content_by_lua_block { ngx.status = 502 ngx.print("own") ngx.exit(502) } }
        location /instead { return 200 page; }
        location /s/empty { return 204; }"#,
    );
    for (path, said) in [
        ("/none", "404 true []nil"),
        ("/text", "404 false [text]nil"),
        ("/moved", "301 true []/x"),
        ("/refused", "502 true []nil"),
        ("/exit", "500 true []nil"),
        ("/page", "503 true []nil"),
        ("/own", "502 false [own]nil"),
        ("/empty", "204 false []nil"),
    ] {
        assert_eq!(server.get(path).text(), format!("{said}\n"), "{path}");
    }
}

/// Lines that are looked for in the log, and one that is none.
#[test]
fn the_log_says_what_there_was() {
    let server = start(
        "",
        r#"location /status { content_by_lua_block { ngx.status = 418 ngx.say("tea") ngx.exit(ngx.HTTP_OK) } log_by_lua_block { ngx.log(ngx.WARN, "logged") } }
        location /other { content_by_lua_block { ngx.say("a") ngx.exit(404) } }
        location /exec { content_by_lua_block { ngx.exec("@name", "a=1") } }
        location @name { return 200 "named $args"; }
        location /timer { content_by_lua_block { ngx.timer.at(0, function() ngx.log(ngx.DEBUG, "small line") ngx.log(ngx.WARN, "large line") end) ngx.say("") } }
        location /udp { content_by_lua_block { local s = ngx.socket.udp() s:settimeout(5000)
            s:setpeername("127.0.0.1", tonumber(ngx.var.arg_port)) s:send("x") ngx.say(s:receive()) } }"#,
    );
    assert_eq!(server.get("/status").text(), "tea\n");
    server.expect_error("logged while logging request, client: ");
    assert!(!server.error_log().contains("after sending out the response status 418"));
    assert_eq!(server.get("/other").text(), "a\n");
    server.expect_error(
        "attempt to set status 404 via ngx.exit after sending out the response status 200",
    );
    assert_eq!(server.get("/exec").text(), "named ");
    server.expect_error("query strings a=1 ignored when exec'ing named location @name");
    server.get("/timer");
    server.expect_error("large line, context: ngx.timer");
    expect_soon("a line", || server.error_log().contains("small line\n"));
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = server.get(&format!("/udp?port={port}")).text();
    assert_eq!(text, "nilconnection refused\n");
    server.expect_error("recv() failed (111: Connection refused)");
}

/// `exit_worker_by_lua` runs behind all that the worker has had to do: at a reload for the configuration that is not used
/// any more, at an end behind requests that are being answered.
#[test]
fn a_worker_leaves_behind_its_last_request() {
    let mut server = Setup::new(
        r#"events {} error_log %%DIR%%/error.log notice; http { default_type text/plain; lua_check_client_abort on; init_worker_by_lua_block { name = "VERSION" }
        exit_worker_by_lua_block { ngx.log(ngx.NOTICE, "left: ", name) }
        server { listen 127.0.0.1:%%PORT_0%%;
        location /name { content_by_lua_block { ngx.say(name) } }
        location /hold { content_by_lua_block { ngx.timer.at(60, function(early) ngx.log(ngx.NOTICE, "timer: ", name, " ", early) end)
            ngx.say("held") ngx.flush(true) held = require "ngx.semaphore".new(0) held:wait(60) ngx.say("done") }
            log_by_lua_block { ngx.log(ngx.NOTICE, "logged: ", name) } } } }"#,
    )
    .start();
    let told = |server: &Server, what: &str| {
        let log = server.error_log();
        log.lines().filter(|line| line.contains(what)).count()
    };
    let hold = |server: &Server| {
        let mut client = server.connect();
        client.send(b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        client.read_until(b"held\n");
        client
    };
    let client = hold(&server);
    let conf = server.read("nginx.conf").replace("VERSION", "second");
    server.write("nginx.conf", conf);
    server.signal(Signal::Hup);
    expect_soon("the new one serves", || server.get("/name").text() == "second\n");
    expect_soon("timers come", || told(&server, "timer: VERSION true") == 1);
    assert_eq!(told(&server, "left: "), 0, "a request is there yet");
    drop(client);
    expect_soon("the old one has gone", || told(&server, "left: VERSION") == 1);
    let client = hold(&server);
    server.signal(Signal::Quit);
    expect_soon("it ends", || told(&server, "timer: second true") == 1);
    assert_eq!(told(&server, "left: second"), 0);
    drop(client);
    assert_eq!(server.wait_exit(), Some(0));
    let log = server.error_log();
    let last = log.lines().filter(|line| line.contains("left: ") || line.contains("logged: "));
    let last: Vec<_> = last.filter_map(|line| line.split("):1: ").nth(1)).collect();
    assert_eq!(last.len(), 4, "{log}");
    assert!(
        last[0].starts_with("logged: VERSION") && last[1].starts_with("left: VERSION"),
        "{last:?}"
    );
    assert!(
        last[2].starts_with("logged: second") && last[3].starts_with("left: second"),
        "{last:?}"
    );
}
