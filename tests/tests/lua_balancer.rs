//! Lua: `balancer_by_lua`, which chooses servers, and what connections to them are kept.

use weir_tests::{expect_soon, free_port, run_cli, Next, Origin, Server, Setup};

const CONF: &str = r#"events {} error_log %%DIR%%/error.log notice; http { default_type text/plain; log_format a "$uri $upstream_addr $upstream_status";
    access_log %%DIR%%/access.log a; proxy_next_upstream error timeout http_503;
    upstream named { server 0.0.0.1; balancer_keepalive 4; balancer_by_lua_block {
        local b = require "ngx.balancer"
        assert(b.set_current_peer("127.0.0.1", tonumber(ngx.var.arg_to)))
        if ngx.var.arg_keep then assert(b.enable_keepalive(10, 100)) end
        if ngx.var.arg_ms then assert(b.set_timeouts(1, 1, tonumber(ngx.var.arg_ms) / 1000)) end
        if ngx.var.arg_from then assert(b.bind_to_local_addr(ngx.var.arg_from)) end } }
    upstream tries { balancer_by_lua_block {
        local b = require "ngx.balancer"
        local state, status = b.get_last_failure()
        if state then ngx.log(ngx.NOTICE, "before: ", state, " ", status) return b.set_current_peer("127.0.0.1", %%PORT_0%%) end
        b.set_more_tries(1)
        b.set_current_peer("127.0.0.1", tonumber(ngx.var.arg_to)) } }
    upstream none { balancer_by_lua_block { if ngx.var.arg_exit then ngx.exit(tonumber(ngx.var.arg_exit)) end } }
    upstream own { server 127.0.0.1:%%PORT_0%%; balancer_by_lua 'ngx.ctx.seen = ngx.get_phase()'; }
    upstream file { server 127.0.0.1:%%PORT_0%%; balancer_by_lua_file choose.lua; }
    upstream broken { server 127.0.0.1:%%PORT_0%%; balancer_by_lua_block { ngx.sleep(1) } }
    upstream rewritten { server 127.0.0.1:%%PORT_0%%; balancer_by_lua_block {
        ngx.req.set_header("X-From", "the balancer") assert(require("ngx.balancer").recreate_request()) } }
    server { listen 127.0.0.1:%%PORT_0%%;
        location /named { proxy_pass http://named/origin; }
        location /tries { proxy_pass http://tries/back; }
        location /none { proxy_pass http://none/back; }
        location /own { proxy_pass http://own/back; header_filter_by_lua_block { ngx.header["X-Seen"] = ngx.ctx.seen } }
        location /file { proxy_pass http://file/back; }
        location /broken { proxy_pass http://broken/back; }
        location /rewritten { proxy_pass http://rewritten/back; }
        location /elsewhere { content_by_lua_block { ngx.say(select(2, require("ngx.balancer").set_current_peer("127.0.0.1", 1))) } }
        location /back { return 200 "back $http_x_from\n"; } } }"#;

fn start() -> Server {
    Setup::new(CONF).file("choose.lua", "ngx.log(ngx.NOTICE, 'a file chooses')\n").start()
}

#[test]
fn a_server_is_named_and_its_connection_kept() {
    let server = start();
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "", "origin\n");
        Next::Keep
    });
    for (path, connections) in
        [("/named?", 1), ("/named?", 2), ("/named?keep=1&", 3), ("/named?keep=1&", 3)]
    {
        let r = server.get(&format!("{path}to={}", origin.port()));
        assert_eq!((r.status, &*r.text()), (200, "origin\n"));
        assert_eq!(origin.connections(), connections, "{path}");
    }
    let r = server.get(&format!("/named?from=203.0.113.1&to={}", origin.port()));
    assert_eq!(r.status, 500);
    server.expect_error("bind(203.0.113.1) failed");
}

/// Names that connections are kept for may be clients': they have a bound.
#[test]
fn connections_for_many_names_are_let_go() {
    let conf = CONF.replace(
        "assert(b.set_current_peer(\"127.0.0.1\", tonumber(ngx.var.arg_to)))",
        "assert(b.set_current_peer(\"127.0.0.1\", tonumber(ngx.var.arg_to), ngx.var.arg_name))",
    );
    let server = Setup::new(&conf).file("choose.lua", "").start();
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "", "origin\n");
        Next::Keep
    });
    let ask =
        |n: usize| server.get(&format!("/named?keep=1&name=n{n}&to={}", origin.port())).status;
    assert!((0..520).all(|n| ask(n) == 200));
    let held = || server.descriptors();
    expect_soon("descriptors are given back", || held() < 300);
    assert_eq!((ask(519), origin.connections()), (200, 520));
}

#[test]
fn a_server_that_says_nothing_is_given_up_when_code_says() {
    let server = start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    assert_eq!(server.get(&format!("/named?ms=100&to={port}")).status, 504);
}

#[test]
fn code_is_told_of_the_failure_before_and_chooses_again() {
    let server = start();
    let refusing = free_port();
    assert_eq!(server.get(&format!("/tries?to={refusing}")).text(), "back \n");
    server.expect_error("before: failed 502");
    let busy = Origin::start(|_, conn| {
        conn.reply("503 Service Unavailable", "", "");
        Next::Keep
    });
    assert_eq!(server.get(&format!("/tries?to={}", busy.port())).text(), "back \n");
    server.expect_error("before: failed 503");
}

#[test]
fn what_code_leaves_alone_is_the_configurations() {
    let server = start();
    let r = server.get("/own");
    assert_eq!((r.header("X-Seen"), &*r.text()), (Some("balancer"), "back \n"));
    assert_eq!(server.get("/file").text(), "back \n");
    server.expect_error("a file chooses while connecting to upstream");
    assert_eq!(server.get("/rewritten").text(), "back the balancer\n");
    let logged = |path: &str| {
        let before = server.read("access.log").lines().count();
        let status = server.get(path).status;
        format!("{status} {}", server.log_lines("access.log", before + 1)[before])
    };
    assert_eq!(logged("/none"), "500 /none  -");
    server.expect_error("lua balancer: no peer set");
    assert_eq!(logged("/none?exit=403"), "403 /none  -");
    assert_eq!(logged("/none?exit=-3"), "502 /none  502");
    // The next one, and so until there are no more tries.
    assert_eq!(server.get("/none?exit=-5").status, 502);
    assert_eq!(server.get("/broken").status, 500);
    server.expect_error("API disabled in the context of balancer_by_lua*");
    assert_eq!(server.get("/elsewhere").text(), "no upstream found\n");
}

#[test]
fn one_way_to_choose_is_enough() {
    for (block, word) in [
        ("server 127.0.0.1:1; sticky cookie a; balancer_by_lua_block { }", "may not be used with"),
        ("server 127.0.0.1:1; balancer_by_lua_block { } balancer_by_lua_block { }", "is duplicate"),
        ("balancer_keepalive 0; balancer_by_lua_block { }", "room for one connection"),
        ("", "no servers are inside upstream"),
    ] {
        let conf = format!("events {{}} http {{ upstream a {{ {block} }} }}");
        let said = run_cli(&["-t"], &conf);
        assert_eq!(said.code, 1);
        assert!(said.stderr.contains(word), "{block}: {}", said.stderr);
    }
}
