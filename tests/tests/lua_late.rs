//! What code does late: the status of an answer that has begun, and timers that have missed a time.

use weir_tests::{wait_for, Setup, AT_LAST};

/// A header filter is before the head is out, whoever has begun the answer.
#[test]
fn a_header_filter_sets_the_status() {
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            header_filter_by_lua_block { ngx.status = 201 }
            location / { content_by_lua_block { ngx.print("said") } }
            location /returned { return 200 said; } } }"#,
    )
    .start();
    for path in ["/", "/returned"] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.text()), (201, "said".to_string()), "{path}");
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
