//! Calls that block a worker are named in the log with their place, and go on as they are.

use weir_tests::{run_cli, Server, Setup};

const CONF: &str = r#"worker_processes 2; events {} error_log %%DIR%%/error.log warn; http { default_type text/plain;
    lua_package_path "%%DIR%%/?.lua;;"; lua_package_cpath "%%DIR%%/?.so";
    init_by_lua_block { local f = io.open("%%DIR%%/a.txt") kept = f; f:read(1); os.remove("%%DIR%%/nothing") }
    server { listen 127.0.0.1:%%PORT_0%%;
    location /files { content_by_lua_block {
        local f = assert(io.open("%%DIR%%/a.txt"))
        local all = f:read("*a") f:close()
        ngx.print(all, io.type(f), " ", kept:read(1) or "-")
        for line in io.lines("%%DIR%%/a.txt") do ngx.print(" ", line) end
        local p = io.popen("echo piped") ngx.print(" ", p:read("*l"), " ", type(p:close()))
        os.rename("%%DIR%%/b.txt", "%%DIR%%/c.txt")
        ngx.say(" ", os.execute("exit 0"))
    } }
    location /loop { content_by_lua_block { for i = 1, 200 do assert(not os.remove("%%DIR%%/none")) end ngx.say("done") } }
    location /off { lua_log_blocking_calls off; content_by_lua_block { ngx.say(type(os.tmpname)) local f = io.open("%%DIR%%/a.txt") ngx.say(f:read("*a")) } }
    location /timer { content_by_lua_block { ngx.timer.at(0, function() os.execute("exit 0") end) ngx.say("later") } }
    location /errors { content_by_lua_block {
        ngx.say(select(2, pcall(function() local f = io.open() end)))
        ngx.say(select(2, pcall(function() local f = io.open({}) end)))
        ngx.say(select(2, pcall(function() local f = io.open("x", {}) end)))
        ngx.say(select(2, pcall(function() for l in io.lines("/nowhere") do end end)))
        ngx.say(select(2, pcall(function() local f = io.stdout.read() end)))
        ngx.say(select(2, io.open("/nowhere/at/all")))
        ngx.say(pcall(io.open, "/nowhere/at/all"))
    } }
    location /many { content_by_lua_block {
        for i = 1, 300 do assert(loadstring(("\n"):rep(i) .. "os.remove('/nowhere/at/all')", "=many"))() end
        ngx.say("done")
    } }
    location /socket { content_by_lua_block { local s = require "socket" ngx.say(s.answer(), " ", #package.loaders, " ", (pcall(require, "nowhere.at.all"))) } } }
}
stream { server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block { os.execute("exit 0") ngx.say("done") } } }"#;

fn start() -> Server {
    let library = "local core = require 'socket.core'\nreturn { answer = function()\n    return core.tcp()\nend }";
    let core = "return { tcp = function() return 'a socket' end }";
    let setup = Setup::new(CONF).file("a.txt", "text").file("b.txt", "");
    setup.file("socket.lua", library).file("socket/core.lua", core).start()
}

/// How often the log has that.
fn told(server: &Server, text: &str) -> usize {
    server.error_log().matches(text).count()
}

#[test]
fn calls_that_block_are_named_once_with_their_place() {
    let server = start();
    for _ in 0..8 {
        let text = server.get("/files").text();
        assert!(text.starts_with("textclosed file "), "{text}");
        assert!(text.ends_with(" text piped boolean trueexit0\n"), "{text}");
    }
    let open = "[warn]";
    assert!(server.error_log().contains(open));
    for (line, call, instead) in [
        (2, "io.open", "init_by_lua"),
        (4, "file:read", "init_by_lua"),
        (5, "io.lines", "ngx.location.capture"),
        (6, "io.popen", "; use ngx.pipe"),
        (7, "os.rename", "another program"),
        (8, "os.execute", "; use ngx.pipe"),
    ] {
        let text = format!(
            "[lua] content_by_lua(nginx.conf:5):{line} calls {call}, which blocks the worker; "
        );
        assert_eq!(told(&server, &text), 1, "{text}: {}", server.error_log());
        assert!(server.error_log().lines().any(|l| l.contains(&text) && l.contains(instead)));
    }
    assert_eq!(
        told(&server, "which blocks"),
        6,
        "what was opened is read unsaid, and so is init: {}",
        server.error_log()
    );
    assert_eq!(server.get("/loop").text(), "done\n");
    assert_eq!(told(&server, "calls os.remove"), 1);
}

#[test]
fn timers_and_sessions_are_told_of_and_nobody_who_does_not_want_to_be() {
    let server = start();
    assert_eq!(server.get("/off").text(), "function\ntext\n");
    assert_eq!(told(&server, "which blocks"), 0, "{}", server.error_log());
    assert_eq!(server.get("/timer").text(), "later\n");
    server.expect_error(
        "calls os.execute, which blocks the worker; use ngx.pipe, context: ngx.timer",
    );
    assert_eq!(server.on(1).raw(b""), b"done\n");
    server.expect_error("stream [lua] content_by_lua(nginx.conf:32):1 calls os.execute");
    let script = run_cli(
        &["lua", "-e", "os.execute('exit 0') print(io.open('/nowhere/at/all') == nil)"],
        "",
    );
    assert_eq!((script.stdout.as_str(), script.stderr.as_str()), ("true\n", ""));
}

#[test]
fn errors_are_those_of_the_stock_functions() {
    let server = start();
    let text = server.get("/errors").text();
    let at = "content_by_lua(nginx.conf:17)";
    let expected = [
        format!("{at}:2: bad argument #1 to 'open' (string expected, got no value)"),
        format!("{at}:3: bad argument #1 to 'open' (string expected, got table)"),
        format!("{at}:4: bad argument #2 to 'open' (string expected, got table)"),
        format!("{at}:5: bad argument #1 to 'lines' (/nowhere: No such file or directory)"),
        format!("{at}:6: bad argument #1 to 'read' (FILE* expected, got no value)"),
        "/nowhere/at/all: No such file or directory2".to_owned(),
        "truenil/nowhere/at/all: No such file or directory2".to_owned(),
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn places_have_a_bound_and_a_library_is_not_its_own_caller() {
    let server = start();
    let text = server.get("/socket").text();
    assert_eq!(text, "a socket 4 false\n");
    server.expect_error("[lua] content_by_lua(nginx.conf:30):1 calls luasocket's socket.tcp, which blocks the worker; use ngx.socket.tcp");
    for _ in 0..4 {
        assert_eq!(server.get("/many").text(), "done\n");
    }
    assert_eq!(told(&server, "which blocks"), 100, "{}", server.error_log());
}
