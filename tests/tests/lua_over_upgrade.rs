//! What is in dictionaries while another process takes the place of the one that has them.

use crate::upgrade_busy::next_pid;
use weir_tests::{children, expect_soon, is_alive, signal, Setup, Signal};

const CONF: &str = r#"daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log info; %%MAIN%%
    events {} http { access_log off; keepalive_timeout 0; default_type text/plain;
    lua_shared_dict d 10m; lua_shared_dict other 1m;
    server { listen 127.0.0.1:%%PORT_0%%;
        location / { content_by_lua_block { ngx.say(ngx.shared.d:get(ngx.var.arg_k)) } }
        location /ttl { content_by_lua_block { ngx.say(ngx.shared.d:ttl("short") > 50) } }
        location /list { content_by_lua_block { ngx.say((ngx.shared.other:lpop("list"))) } }
        location /env { content_by_lua_block {
            local all = io.popen("env"):read("*a")
            ngx.say(all:find("NGINX=") or all:find("WEIR_") or "none", os.getenv("NGINX") or "") } }
        location /pid { return 200 $pid; }
        location /fill { content_by_lua_block { local d = ngx.shared.d
            for n = 1, 10000 do d:set("k" .. n, n) end
            d:set("text", ("x"):rep(100)) d:set("yes", true) d:set("short", 1, 100)
            ngx.shared.other:rpush("list", "first") ngx.say("filled") } }
        location /set { content_by_lua_block { ngx.shared.d:set(ngx.var.arg_k, ngx.var.arg_v) ngx.say("set") } } } }"#;

fn hands_on(main: &str) {
    let server = Setup::new(&CONF.replace("%%MAIN%%", main)).start();
    assert_eq!(server.get("/fill").text(), "filled\n");
    let old = server.pid();
    let serving = server.get("/pid").text();
    signal(old, Signal::Usr2);
    let new = next_pid(&server, old);
    signal(old, Signal::Quit);
    expect_soon("the old one ends", || !is_alive(old));
    expect_soon("another serves", || server.get("/pid").text() != serving);
    expect_soon("it has all", || server.get("/?k=k10000").text() == "10000\n");
    for (path, expected) in
        [("/?k=k1", "1\n"), ("/?k=yes", "true\n"), ("/ttl", "true\n"), ("/list", "first\n")]
    {
        assert_eq!(server.get(path).text(), expected, "{path}");
    }
    assert_eq!(server.get("/?k=text").text(), "x".repeat(100) + "\n");
    // What it was started with is not for programs that it starts.
    assert_eq!(server.get("/env").text(), "none\n");
    assert!(is_alive(new) && (main.is_empty() || children(new).is_empty()));
}

#[test]
fn a_new_program_finds_what_was_there() {
    hands_on("");
}

#[test]
fn so_it_does_without_a_master() {
    hands_on("master_process off;");
}
