//! What Lua code may take of its worker: time without waiting, and memory.

use weir_tests::{wait_for, Origin, Server, Setup, AT_LAST};

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

/// A session ends with 500 in its log.
#[test]
fn code_of_sessions_is_ended_too() {
    let server = Setup::new(
        r#"events {} error_log %%DIR%%/error.log notice; stream { log_format status $status; access_log %%DIR%%/stream.log status;
        lua_max_run_time 100ms end;
        server { listen 127.0.0.1:%%PORT_0%%; content_by_lua_block { while true do pcall(error) end } }
        server { listen 127.0.0.1:%%PORT_1%%; preread_by_lua_block { local n = 0 while true do n = n + 1 end } return text; }
        server { listen 127.0.0.1:%%PORT_2%%; content_by_lua_block { ngx.say("idle") } } }"#,
    )
    .start();
    for port in [0, 1] {
        assert_eq!(server.on(port).connect().read_to_end(), b"");
        assert_eq!(server.on(2).connect().read_to_end(), b"idle\n");
    }
    server.expect_error("longer than lua_max_run_time (100 ms), and is ended\nstack traceback:\n\tpreread_by_lua(nginx.conf:");
    assert!(
        wait_for(|| server.read("stream.log") == "500\n200\n500\n200\n", AT_LAST),
        "{}",
        server.read("stream.log")
    );
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

const MEMORY: &str = r#"events {} error_log %%DIR%%/error.log notice; http { default_type text/plain; lua_vm_memory 32m;
    init_worker_by_lua_block { local t = {} while true do t[#t + 1] = {} end }
    server { listen 127.0.0.1:%%PORT_0%%;
    location /small { content_by_lua_block { local t = {} for i = 1, 1e4 do t[i] = i .. "" end ngx.say(#t) } }
    location /string { content_by_lua_block { local s = "x" while true do s = s:rep(3) end } }
    location /table { content_by_lua_block { local t = {} for i = 1, 1e9 do t[i] = {} end } }
    location /concat { content_by_lua_block { local t = {} for i = 1, 1e4 do t[i] = ("x"):rep(1e6) end ngx.say(table.concat(t)) } }
    location /coroutines { content_by_lua_block { local t = {} while true do t[#t + 1] = coroutine.wrap(function() coroutine.yield(1) end) t[#t]() end } }
    location /threads { content_by_lua_block { while true do ngx.thread.spawn(function() ngx.sleep(1) end) end } }
    location /timers { content_by_lua_block { while true do local ok = ngx.timer.at(1e6, function() end, ("x"):rep(1e3) .. math.random()) if not ok then break end end ngx.say("full") } }
    location /ffi { content_by_lua_block { local ffi, t = require "ffi", {} while true do t[#t + 1] = ffi.new("char[?]", 1e6) end } }
    location /code { content_by_lua_block { local t = {} while true do t[#t + 1] = assert(loadstring("return function() return " .. #t .. " end")) end } }
    location /replaced { content_by_lua_block { ngx.say(#ngx.re.gsub(("x"):rep(1e4), "x", ("y"):rep(1e4))) } }
    location /read { content_by_lua_block { ngx.req.read_body() local t = {} while true do t[#t + 1] = ngx.req.get_body_data() .. #t end } }
    location /finalizer { content_by_lua_block {
        for i = 1, 5 do local p = newproxy(true) getmetatable(p).__gc = function() local t = {} while true do t[#t + 1] = {} end end end
        local s = "x" while true do s = s .. s end } }
    location /header { header_filter_by_lua_block { local s = "x" while true do s = s .. s end } return 200 "text\n"; }
    location /filter { body_filter_by_lua_block { local t = {} while true do t[#t + 1] = ngx.arg[1] .. #t end } return 200 "text\n"; }
    location /log { log_by_lua_block { local s = "x" while true do s = s .. s end } return 200 "text\n"; }
    location /timer { content_by_lua_block { ngx.timer.at(0, function() local s = "x" while true do s = s .. s end end) ngx.say("begun") } }
    location /kept { content_by_lua_block { kept = kept or {} local k = package.loaded.kept or {} package.loaded.kept = k while true do k[#k + 1] = ("x"):rep(1000) .. #k end } }
} }"#;

/// Whatever takes all the memory there is, its request ends, and what is garbage then is there for the next.
#[test]
fn memory_that_runs_out_ends_its_request() {
    let server = Setup::new(MEMORY).start();
    let small = |after: &str| {
        let answer = server.get("/small");
        assert_eq!((answer.status, answer.text()), (200, "10000\n".to_owned()), "after {after}");
    };
    small("init_worker");
    server.expect_error("not enough memory");
    for path in
        ["/string", "/table", "/concat", "/coroutines", "/threads", "/ffi", "/code", "/replaced"]
    {
        assert_eq!(server.get(path).status, 500, "{path}");
        small(path);
    }
    assert_eq!(server.post("/read", "text").status, 500);
    assert_eq!(server.get("/timer").text(), "begun\n");
    assert_eq!(server.get("/log").text(), "text\n");
    small("/log");
    for path in ["/header", "/filter"] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert!(!client.read_to_end().ends_with(b"text\n"), "{path}");
        small(path);
    }
    // An error of a finalizer is raised in whatever code runs then.
    assert_eq!(server.get("/finalizer").status, 500);
    assert!(wait_for(|| server.get("/small").status == 200, AT_LAST));
    assert_eq!(server.get("/timers").text(), "full\n");
}

/// Code that keeps what it takes leaves nothing for others: the state is begun anew.
#[test]
fn memory_that_code_keeps_is_given_back() {
    let server = Setup::new(MEMORY).start();
    assert_eq!(server.get("/kept").status, 500);
    let is_well = || server.get("/small").text() == "10000\n";
    assert!(wait_for(is_well, AT_LAST), "{}", server.error_log());
    server.expect_error("its state is begun anew");
}

/// What a peer sends is kept until a call has it whole, and not for ever.
#[test]
fn what_a_socket_reads_has_a_bound() {
    let without_end = |conn: &mut weir_tests::Conn, _| while conn.try_write(&[b'x'; 65536]) {};
    let origin = Origin::start_raw(without_end);
    let server = Setup::new(
        r#"events {} http { default_type text/plain; server { listen 127.0.0.1:%%PORT_0%%;
        lua_socket_max_read_size 300k;
        location / { content_by_lua_block {
            local how = ngx.var.arg_how
            local s = ngx.socket.tcp() assert(s:connect("127.0.0.1", ngx.var.arg_port))
            local text, e, partial
            if how == "until" then text, e, partial = s:receiveuntil("xxy")()
            else text, e, partial = s:receive(tonumber(how) or how) end
            ngx.say(text and #text, " ", e, " ", #(partial or "") > 300 * 1024, " ", select(2, s:receive())) } } } }"#,
    )
    .start();
    for how in ["*a", "*l", "until", "1000000"] {
        let answer = server.get(&format!("/?how={how}&port={}", origin.port())).text();
        let why = "more than lua_socket_max_read_size";
        assert_eq!(answer, format!("nil {why} true {why}\n"), "{how}");
    }
    let answer = server.get(&format!("/?how=200000&port={}", origin.port())).text();
    assert!(answer.starts_with("200000 nil false "), "{answer}");
}

/// What a request had is garbage once it is over, its coroutines too.
#[test]
fn requests_leave_nothing_behind() {
    let server = Setup::new(
        r#"events {} error_log %%DIR%%/error.log crit; http { default_type text/plain; keepalive_requests 10000;
        server { listen 127.0.0.1:%%PORT_0%%;
        location / { content_by_lua_block {
            local t = ngx.thread.spawn(function() ngx.sleep(0) end)
            ngx.thread.wait(t)
            ngx.thread.kill(ngx.thread.spawn(function() ngx.sleep(100) end))
            ngx.say(coroutine.wrap(function() return "done" end)()) } }
        location /failed { content_by_lua_block { local t = {} for i = 1, 1000 do t[i] = {} end error("on purpose") } }
        location /used { content_by_lua_block { collectgarbage() ngx.say(collectgarbage("count")) } } } }"#,
    )
    .start();
    let kb = || server.get("/used").text().trim().parse::<f64>().unwrap();
    let many = || {
        for _ in 0..100 {
            assert_eq!(server.get("/").text(), "done\n");
            assert_eq!(server.get("/failed").status, 500);
        }
    };
    many();
    let before = kb();
    many();
    let after = kb();
    assert!(after - before < 20.0, "{before} KB, then {after} KB");
}

/// What C calls between coroutines takes most of the stack.
#[test]
fn coroutines_within_calls_of_c_have_a_bound() {
    const CODE: &str = r#"local M = {}
        -- So many calls of gsub to each coroutine.
        function M.nest(calls)
            local depth, top = 0, 0
            local function f()
                depth = depth + 1
                if depth > top then top = depth end
                if depth % calls ~= 0 then return (("x"):gsub("x", function() f() end)) end
                return coroutine.wrap(f)()
            end
            local ok, e = pcall(f)
            return e
        end
        return M"#;
    let server = Setup::new(
        r#"thread_pool pool threads=1; events {} http { lua_package_path "%%DIR%%/?.lua;;"; server { listen 127.0.0.1:%%PORT_0%%;
        location /here { content_by_lua_block { ngx.say(require("m").nest(tonumber(ngx.var.arg_n))) } }
        location /there { content_by_lua_block { ngx.say(select(2, ngx.run_worker_thread("pool", "m", "nest", tonumber(ngx.var.arg_n)))) } }
        location /within { content_by_lua_block {
            local function f(n) return ("x"):gsub("x", function() if n > 0 then f(n - 1) else ngx.say("x") end end) end
            f(6000) ngx.flush(true) ngx.say(told) }
            body_filter_by_lua_block { if not told then told = true told = require("m").nest(2) end } } } }"#,
    )
    .file("m.lua", CODE)
    .start();
    for path in ["/here?n=1", "/here?n=2", "/here?n=3000", "/there?n=1", "/there?n=20"] {
        let e = server.get(path).text();
        assert!(e.ends_with("C stack overflow\n"), "{path}: {e}");
    }
    assert_eq!(server.get("/within").text(), "x\nC stack overflow\n");
}

/// Coroutines within coroutines take of the worker's own stack: it has ended the process.
#[test]
fn coroutines_within_coroutines_have_a_bound() {
    let server = Server::start(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; location /resume { content_by_lua_block {
            local depth = 0
            local function f() depth = depth + 1 coroutine.resume(coroutine.create(f)) end
            f() ngx.say(depth > 20000) } }
        location /wrap { content_by_lua_block {
            local function f() return coroutine.wrap(f)() end
            ngx.say((select(2, pcall(f)))) } }
        location /waits { content_by_lua_block {
            local function f(n) if n > 0 then return coroutine.wrap(f)(n - 1) end ngx.sleep(0.001) return "slept" end
            for i = 1, 20 do f(500) end
            ngx.say(f(500)) } } } }"#,
    );
    for _ in 0..3 {
        assert_eq!(server.get("/resume").text(), "true\n");
        assert_eq!(server.get("/wrap").text(), "C stack overflow\n");
        assert_eq!(server.get("/waits").text(), "slept\n");
    }
}
