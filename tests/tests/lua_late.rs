//! What code does late: the status of an answer that has begun, and timers that have missed a time.

use weir_tests::{wait_for, Setup, AT_LAST};

/// A header filter is before the head is out, whoever has begun the answer.
#[test]
fn a_header_filter_sets_the_status() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            header_filter_by_lua_block { ngx.status = 201 ngx.header["X-Sent"] = tostring(ngx.headers_sent) }
            location / { content_by_lua_block { ngx.print("said") } }
            location /line { content_by_lua_block { ngx.print("said") }
                header_filter_by_lua_block { require "ngx.resp".set_status(201, "Made Up") ngx.header["X-Sent"] = tostring(ngx.headers_sent) } }
            location /returned { return 200 said; } } }"#,
    )
    .start();
    for path in ["/", "/line", "/returned"] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.text()), (201, "said".to_string()), "{path}");
        assert_eq!(answer.header("X-Sent"), Some("false"), "{path}");
    }
}

/// While as many run as may, one of `ngx.timer.every` comes to nothing, and comes again.
#[test]
fn a_timer_that_repeats_outlives_a_burst() {
    let server = Setup::new(
        r#"worker_processes 1; events {} http { lua_max_running_timers 2; lua_shared_dict d 100k;
            init_worker_by_lua_block { ngx.timer.every(0.02, function() ngx.shared.d:incr("n", 1, 0) end) }
            server { listen 127.0.0.1:%%PORT_0%%;
                location /burst { content_by_lua_block {
                    local semaphore = require "ngx.semaphore"
                    go = semaphore.new(0)
                    for i = 1, 2 do ngx.timer.at(0, function() go:wait(60) end) end } }
                location /end { content_by_lua_block { go:post(2) } }
                location /n { content_by_lua_block { ngx.print(ngx.shared.d:get("n")) } } } }"#,
    )
    .start();
    let n = || server.get("/n").text().parse::<u64>().unwrap_or(0);
    assert!(wait_for(|| n() > 1, AT_LAST));
    server.get("/burst");
    server.expect_error("2 lua_max_running_timers are not enough");
    server.get("/end");
    let before = n();
    assert!(wait_for(|| n() > before + 1, AT_LAST), "it does not come again");
}

/// A program that a request has started is the request's, wherever that goes.
#[test]
fn a_program_lives_on_over_a_redirect() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { content_by_lua_block { program = require "ngx.pipe".spawn { "cat" } ngx.exec("/then") } }
            location /then { content_by_lua_block {
                program:write("there") program:shutdown("stdin") ngx.print((program:stdout_read_all())) } } } }"#,
    )
    .start();
    assert_eq!(server.get("/").text(), "there");
}

/// Requests that a reload finds half read are logged by the code that they began with, and what that sends away is sent.
#[test]
fn what_is_sent_away_at_the_end_is_sent() {
    let conf = |word: &str| {
        r#"worker_processes 1; events {} error_log %%DIR%%/error.log; http { server { listen 127.0.0.1:%%PORT_0%%;
            location /new { access_log off; return 200 WORD; }
            location / {
                content_by_lua_block { ngx.log(ngx.ERR, "begun") ngx.req.read_body() ngx.print("read") }
                log_by_lua_block { ngx.log(ngx.ERR, "timers: ",
                    ngx.timer.at(0, function(premature) ngx.log(ngx.ERR, "sent: ", premature) end), " ", ngx.timer.at(1, print)) } } } }"#
            .replace("WORD", word)
    };
    let mut server = Setup::new(&conf("old")).start();
    let mut client = server.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na");
    server.expect_error("begun");
    let port = server.port(0);
    server.reload(&conf("new"), || weir_tests::Peer::Tcp(port).get("/new").text() == "new");
    client.send(b"b");
    assert_eq!(client.response().text(), "read");
    server.expect_error("timers: 1 nilprocess exiting");
    server.expect_error("sent: false");
}
