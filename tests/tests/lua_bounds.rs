//! What Lua code may take of its worker: time without waiting.

use weir_tests::{wait_for, Server, Setup, AT_LAST};

const LOOPS: &str = r#"events {} error_log %%DIR%%/error.log notice; http { default_type text/plain;
    server { listen 127.0.0.1:%%PORT_0%%; lua_max_run_time 200ms end;
    location /idle { content_by_lua_block { ngx.say("idle") } }
    location /compiled { content_by_lua_block { local n = 0 while true do n = n + 1 end } }
    location /interpreted { content_by_lua_block { jit.off(true, true) local n = 0 while true do n = n + 1 end } }
    location /caught { content_by_lua_block { while true do pcall(function() while true do pcall(ngx.now) end end) end } }
    location /handled { content_by_lua_block {
        while true do xpcall(function() while true do end end, function() while true do end end) end } }
    location /coroutine { content_by_lua_block {
        local function spin() while true do end end
        while true do coroutine.wrap(function() pcall(coroutine.resume, coroutine.create(spin)) end)() end } }
    location /thread { content_by_lua_block {
        local t = ngx.thread.spawn(function() ngx.sleep(0.01) while true do pcall(function() while true do end end) end end)
        ngx.thread.wait(t) while true do end } }
    location /filter { body_filter_by_lua_block { while true do pcall(error) end } return 200 "text\n"; }
    location /filtered { body_filter_by_lua_block { if ngx.arg[1] ~= "" then while true do end end }
        content_by_lua_block { while true do pcall(ngx.say, "text") end } }
    location /set { set_by_lua_block $a { while true do end } return 200 "$a\n"; }
    location /timer { content_by_lua_block { ngx.timer.at(0, function() while true do pcall(error) end end) ngx.say("begun") } }
    location /told { lua_max_run_time 100ms; content_by_lua_block {
        local function slowly() local begun = os.clock() while os.clock() - begun < 1 do end end
        slowly() ngx.say("done") } }
    location /waits { content_by_lua_block { local begun = ngx.now() while ngx.now() - begun < 1 do ngx.sleep(0) end ngx.say("done") } }
    location /free { lua_max_run_time 0; content_by_lua_block { local begun = os.clock() while os.clock() - begun < 1 do end ngx.say("done") } }
} }"#;

fn start() -> Server {
    Setup::new(LOOPS).start()
}

/// However code holds on, in the interpreter or compiled, its request ends with 500 and the worker goes on.
#[test]
fn code_that_runs_too_long_is_ended() {
    let server = start();
    for path in
        ["/compiled", "/interpreted", "/caught", "/handled", "/coroutine", "/thread", "/set"]
    {
        assert_eq!(server.get(path).status, 500, "{path}");
        assert_eq!(server.get("/idle").text(), "idle\n", "after {path}");
    }
    server.expect_error("longer than lua_max_run_time (200 ms), and is ended\nstack traceback:\n\tcontent_by_lua(nginx.conf:");
    server.expect_error("aborted: runtime error: content_by_lua(nginx.conf:5):1: it has run for longer than lua_max_run_time without waiting");
}

/// What has begun to be sent is cut off.
#[test]
fn filters_and_timers_are_ended_too() {
    let server = start();
    for path in ["/filter", "/filtered"] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let answer = client.read_to_end();
        assert!(!answer.ends_with(b"text\n") && !answer.ends_with(b"0\r\n\r\n"), "{path}");
        assert_eq!(server.get("/idle").text(), "idle\n", "after {path}");
    }
    let ended = || server.error_log().matches("and is ended").count();
    let before = ended();
    assert_eq!(server.get("/timer").text(), "begun\n");
    assert!(wait_for(|| ended() > before, AT_LAST), "{}", server.error_log());
    assert_eq!(server.get("/idle").text(), "idle\n");
}

#[test]
fn otherwise_it_is_told_of_once_with_its_place() {
    let server = start();
    assert_eq!(server.get("/told").text(), "done\n");
    server.expect_error("and holds its worker as long as it does\nstack traceback:\n");
    server.expect_error("in 'slowly'\n\tcontent_by_lua(nginx.conf:");
    assert_eq!(server.get("/waits").text(), "done\n");
    assert_eq!(server.get("/free").text(), "done\n");
    assert_eq!(server.error_log().matches("lua_max_run_time").count(), 1, "{}", server.error_log());
}
