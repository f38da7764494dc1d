//! Lua: `ngx.run_worker_thread`, by which code runs in a state and on a thread of its own.

use weir_tests::{expect_soon, run_cli, Server, Setup, Signal};

const MODULE: &str = r#"local M = { n = 0, notafunction = 1 }
function M.echo(...) return ... end
function M.count() M.n = M.n + 1 return M.n end
function M.fails() error("on purpose") end
function M.raises() error({}) end
function M.meets()
    ngx.shared.d:incr("begun", 1, 0)
    while not ngx.shared.d:get("go") do end
end
function M.until_there(path) while not io.open(path) do end return true end
function M.there()
    local names = {}
    for name in pairs(ngx) do names[#names + 1] = name end
    table.sort(names)
    return table.concat(names, " ")
end
function M.calls()
    return ngx.md5("a"), ngx.encode_base64("a") .. ngx.decode_base64mime("Y Q=="), ngx.config.subsystem, require("ngx").md5 == ngx.md5, (pcall(require, "ngx.pipe"))
end
function M.adds(n) return ngx.shared.d:incr("n", n, 0) end
function M.globals() counted = (counted or 0) + 1 return counted, from_init end
function M.eats() local t = {} while true do t[#t + 1] = ("x"):rep(1e6) .. #t end end
function M.function_of() return print end
function M.cycle() local t = {} t.t = t return t end
return M"#;

fn start(main: &str, block: &str, locations: &str) -> Server {
    let conf = format!(
        "{main} events {{}} error_log %%DIR%%/error.log info; http {{ default_type text/plain;\n\
         lua_package_path \"%%DIR%%/?.lua;;\"; lua_shared_dict d 1m; {block}\n\
         server {{ listen 127.0.0.1:%%PORT_0%%; {locations} }} }}"
    );
    Setup::new(&conf).file("m.lua", MODULE).start()
}

const RUN: &str = r#"location /run { content_by_lua_block { ngx.say(ngx.run_worker_thread("pool", "m", ngx.var.arg_f, ngx.var.arg_a)) } }"#;

/// Arguments and results are copied, and what cannot be is said.
#[test]
fn values_are_copied_and_errors_are_told() {
    let server = start(
        "thread_pool pool threads=4;",
        "init_by_lua_block { from_init = true }",
        &(RUN.to_owned()
            + r##"location /values { content_by_lua_block {
                local t = { 1, "two", { three = true, [4.5] = ngx.null }, f = false }
                local ok, a, b, c, d, e = ngx.run_worker_thread("pool", "m", "echo", t, nil, -0.1, "x\0y", nil)
                ngx.say(ok, a ~= t, a[1], a[2], a[3].three, a[3][4.5] == ngx.null, a.f, b, c, #d, e)
                ngx.say(select("#", ngx.run_worker_thread("pool", "m", "echo", nil, nil)))
                ngx.say(ngx.run_worker_thread("pool", "m", "echo", { print }))
                ngx.say(ngx.run_worker_thread("pool", "m", "echo", coroutine.create(print)))
                ngx.say(ngx.run_worker_thread("pool", "m", "echo", 1LL))
                local cycle = {} cycle[cycle] = 1 ngx.say(ngx.run_worker_thread("pool", "m", "echo", cycle))
                local deep = {} for _ = 1, 98 do deep = { deep } end
                ngx.say((ngx.run_worker_thread("pool", "m", "echo", deep)), " ", ngx.run_worker_thread("pool", "m", "echo", { deep })) } }
            location /args { content_by_lua_block {
                ngx.say(ngx.run_worker_thread("pool", "m")) ngx.say(ngx.run_worker_thread({}, "m", "f"))
                ngx.say(ngx.run_worker_thread("pool", nil, "f")) ngx.say(ngx.run_worker_thread("pool", "m", {}))
                ngx.say(ngx.run_worker_thread("none", "m", "echo")) } }
            location /phase { log_by_lua_block { ngx.log(ngx.ERR, select(2, pcall(ngx.run_worker_thread, "pool", "m", "echo"))) } return 200; }"##),
    );
    let deep = "suspicious circular references, table depth exceed max depth: 100 in the argument";
    let function = "unsupported Lua type: LUA_TFUNCTION";
    assert_eq!(
        server.get("/values").text(),
        format!("truetrue1twotruetruefalsenil-0.13nil\n3\nfalse{function} in the argument\nfalseunsupported Lua type: LUA_TTHREAD in the argument\nfalseunsupported Lua type in the argument\nfalse{deep}\ntrue false{deep}\n")
    );
    assert_eq!(
        server.get("/args").text(),
        "falseexpecting at least 3 arguments\nfalsethreadpool should be a string\nfalsemodule name should be a string\nfalsefunction name should be a string\nfalsethread pool none not found\n"
    );
    for (function, expected) in [
        ("count", "true1"),
        ("count", "true2"),
        ("globals", "true1nil"),
        ("notafunction", "falseinvalid function"),
        ("raises", "falsetable: "),
        ("function_of", "falseunsupported Lua type: LUA_TFUNCTION in the return value"),
        ("cycle", "falsesuspicious circular references"),
        ("calls", "true0cc175b9c0f1b6a831c399e269772661YQ==ahttptruefalse"),
        ("there", "truebase64"),
        ("adds&a=3", "true3nil"),
    ] {
        let text = server.get(&format!("/run?f={function}")).text();
        let expected = if function == "there" {
            "trueconfig crc32_long crc32_short decode_args decode_base64 decode_base64mime encode_args encode_base64 hmac_sha1 md5 md5_bin null quote_sql_str sha1_bin shared"
        } else {
            expected
        };
        assert!(text.starts_with(expected), "{function}: {text}");
    }
    let text = server.get("/run?f=fails").text();
    assert!(text.starts_with("false") && text.ends_with("m.lua:4: on purpose\n"), "{text}");
    server.get("/phase");
    server.expect_error("API disabled in the context of log_by_lua*");
}

/// While it runs its worker serves others; there are so many states and no more, and so many at work of a pool.
#[test]
fn threads_hold_no_worker_and_are_bounded() {
    let mut server = start(
        "thread_pool pool threads=1; thread_pool wide threads=8;",
        "lua_worker_thread_vm_pool_size 2; lua_vm_memory 100m; lua_max_run_time 200ms end;",
        &(RUN.to_owned()
            + r#"location /idle { content_by_lua_block { ngx.say("idle") } }
            location /wait { lua_check_client_abort on; content_by_lua_block { ngx.log(ngx.ERR, "waits for ", ngx.var.arg_a)
                ngx.say(ngx.run_worker_thread("wide", "m", "until_there", "%%DIR%%/" .. ngx.var.arg_a)) } }
            location /row { content_by_lua_block {
                local d = ngx.shared.d
                local function both(pool, at_once)
                    d:flush_all()
                    local function run() return ngx.run_worker_thread(pool, "m", "meets") end
                    local a, b = ngx.thread.spawn(run), ngx.thread.spawn(run)
                    repeat ngx.sleep(0.01) until d:get("begun") == at_once
                    ngx.sleep(0.1)
                    local begun = d:get("begun")
                    d:set("go", true) ngx.thread.wait(a) ngx.thread.wait(b)
                    return begun, d:get("begun")
                end
                local one, all = both("pool", 1)
                ngx.say(one, all, both("wide", 2)) } }"#),
    );
    assert_eq!(server.get("/row").text(), "1222\n");
    let mut one = server.connect();
    one.send(b"GET /wait?a=one HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut other = server.connect();
    other.send(b"GET /wait?a=other HTTP/1.1\r\nHost: a\r\n\r\n");
    server.expect_error("waits for other");
    assert_eq!(server.get("/idle").text(), "idle\n");
    assert_eq!(server.get("/run?f=count").text(), "falseno available Lua vm\n");
    // Who has gone leaves a thread that goes on to its end.
    drop(other);
    server.expect_error("client prematurely closed");
    assert_eq!(server.get("/run?f=count").text(), "falseno available Lua vm\n");
    server.write("other", "");
    expect_soon("it is free again", || server.get("/run?f=count").text() == "true1\n");
    server.write("one", "");
    assert_eq!(one.response().text(), "truetrue\n");
    // So much memory each may have, and goes on behind it.
    assert!(server.get("/run?f=eats").text().starts_with("falsenot enough memory"));
    assert!(server.get("/run?f=count").text().starts_with("true"));
    assert!(!server.error_log().contains("lua_max_run_time"), "it holds no worker");
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
}

#[test]
fn sizes_that_are_refused() {
    for size in ["0", "101", "x"] {
        let conf = format!("events {{}} http {{ lua_worker_thread_vm_pool_size {size}; }}");
        let told = run_cli(&["-t"], &conf);
        assert_ne!(told.code, 0, "{size}");
    }
}
