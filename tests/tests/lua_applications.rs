//! What larger applications that were written for OpenResty rely on: APISIX, Kong, lua-resty-events.

use crate::lua_mends::start;
use weir_tests::tls::Authority;
use weir_tests::{expect_soon, Server, Setup};

/// LuaJIT by itself throws all traces away where there are 1,000; code may set its own measures.
#[test]
fn compiled_code_of_larger_applications_stays() {
    let server = start(
        r#"init_by_lua_block {
            require "jit".attach(function(what) if what == "flush" then flushed = true end end, "trace") }"#,
        r#"location / { content_by_lua_block {
            kept = {}
            for n = 1, 1500 do
                kept[n] = loadstring("local s = 0 for i = 1, 100 do s = s + i % " .. n .. " end return s")
                kept[n]()
            end
            ngx.say(require "jit.util".traceinfo(1400) ~= nil, " ", flushed or "kept")
        } }
        location /own { content_by_lua_block {
            require "jit.opt".start("maxtrace=100")
            for n = 1, 1500 do
                kept[n] = loadstring("local s = 0 for i = 1, 100 do s = s - i % " .. n .. " end return s")
                kept[n]()
            end
            ngx.say(flushed)
        } }"#,
    );
    assert_eq!(server.get("/").text(), "true kept\n");
    assert_eq!(server.get("/own").text(), "true\n");
}

#[test]
fn expressions_are_compiled_by_resty_core() {
    let server = start(
        "",
        r#"location / { content_by_lua_block {
            local core = require "resty.core.regex"
            ngx.say(core.is_regex_cache_empty())
            local compiled, once, flags = core.re_match_compile("a+(b)", "jo")
            ngx.say(compiled ~= nil, once, type(flags), core.is_regex_cache_empty())
            local compiled, e = core.re_match_compile("a(b", "jo")
            ngx.say(compiled, e:find("missing", 1, true) ~= nil)
            compiled, once = core.re_match_compile("a", "")
            core.destroy_compiled_regex(compiled)
            ngx.say(once, (select(2, core.re_sub_compile("a", "jo", "$1x"))), core.re_sub_compile("a", "jo", "${x"))
            ngx.say(pcall(core.re_match_compile, "a", "k"))
            local ffi = require "ffi"
            local room = require "resty.core.base".get_string_buf(4) ffi.copy(room, "abcd", 4)
            local larger, size, pos, length = core.check_buf_size(room, 4, room + 4, 4, 9, true)
            ngx.say(size, " ", length, " ", pos == larger + 4, " ", ffi.string(larger, 4))
        } }"#,
    );
    assert_eq!(
        server.get("/").text(),
        "true\ntruetruenumberfalse\nniltrue\n\
         falsetruenilfailed to compile the replacement template\n\
         falseunknown flag \"k\" (flags \"k\")\n9 9 true abcd\n"
    );
}

#[test]
fn parts_of_resty_core_have_all_their_fields() {
    let server = start(
        "",
        r#"location / { content_by_lua_block {
            local time, request, utils = require "resty.core.time", require "resty.core.request", require "resty.core.utils"
            local before = time.monotonic_msec() ngx.sleep(0.02) ngx.update_time()
            ngx.say(time.monotonic_msec() - before >= 20, time.monotonic_time() * 1000 >= before)
            request.set_req_header("X-A", "1", true) request.set_req_header("X-A", "2", false)
            ngx.say(table.concat(ngx.req.get_headers()["X-A"], ","), " ", utils.str_replace_char("a.b.c", ".", "_"))
            ngx.say(ngx.get_raw_phase(), " ", require "ngx.req".version == require "resty.core.base".version)
        } }
        location /whole { content_by_lua_block {
            ngx.header["Last-Modified"] = ngx.http_time(ngx.time() - 100)
            if ngx.var.arg_all then require "resty.core.response".bypass_if_checks() end ngx.say("whole") } }"#,
    );
    assert_eq!(server.get("/").text(), "truetrue\n1,2 a_b_c\n8 true\n");
    let asked = |path: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIf-None-Match: *\r\n\r\n"
        );
        String::from_utf8_lossy(&server.raw(request.as_bytes()))[9..12].to_string()
    };
    assert_eq!((asked("/whole").as_str(), asked("/whole?all=1").as_str()), ("304", "200"));
}

/// As lua-resty-core itself does: the number of the context, the table of that number, and one of its own where
/// there is none yet. However it is asked for there is one, and the next request has another.
const CONTEXTS: &str = r#"
    local ffi, base = require "ffi", require "resty.core.base"
    local C, tables = ffi.C, debug.getregistry().ngx_lua_ctx_tables
    local get, set = C["ngx_" .. ngx.config.subsystem .. "_lua_ffi_get_ctx_ref"], C["ngx_" .. ngx.config.subsystem .. "_lua_ffi_set_ctx_ref"]
    local is_handshake, of_handshake = ffi.new("int[1]"), ffi.new("int[1]")
    function look(say)
        local r = base.get_request()
        local number = get(r, is_handshake, of_handshake)
        say(number > 0, tables[number] == ngx.ctx, ngx.ctx.mine)
        ngx.ctx.mine = "mine"
        say(get(r, nil, nil) == number, tables[number].mine)
        local own = { mine = "own" }
        local number = base.ref_in_table(tables, own)
        say(set(r, number), ngx.ctx.mine, get(r, nil, nil) == number)
        ngx.ctx = { mine = "more" }
        say(tables[number].mine, ngx.ctx == tables[get(r, nil, nil)])
    end
"#;
const SEEN: &str = "truetruenil\ntruemine\n0owntrue\nmoretrue\n";

#[test]
fn contexts_are_found_by_their_numbers() {
    let conf = r##"events {} http { lua_shared_dict d 100k; init_by_lua_block { %%LOOK%% }
        init_worker_by_lua_block { ngx.timer.at(0, function()
            local lines = {} look(function(...) lines[#lines + 1] = table.concat { tostring((...)), tostring((select(2, ...))), select("#", ...) > 2 and tostring((select(3, ...))) or "" } end)
            ngx.shared.d:set("lines", table.concat(lines, "\n")) end) }
        server { listen 127.0.0.1:%%PORT_0%%; location / { content_by_lua_block { look(ngx.say) } }
            location /timer { content_by_lua_block { ngx.say(ngx.shared.d:get("lines")) } } } }
        stream { init_by_lua_block { %%LOOK%% } server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block { look(ngx.say) } } }"##;
    let server = Setup::new(&conf.replace("%%LOOK%%", CONTEXTS)).start();
    for _ in 0..3 {
        assert_eq!(server.get("/").text(), SEEN);
        assert_eq!(String::from_utf8_lossy(&server.on(1).raw(b"")), SEEN);
    }
    expect_soon("the timer has run", || server.get("/timer").text() == SEEN);
}

fn who_answers(server: &Server) -> String {
    server.unix("events.sock").get("/").text()
}

/// lua-resty-events has one worker take what comes by a Unix socket; by a newer configuration it is another.
#[test]
fn a_worker_leaves_a_socket_to_the_others() {
    let conf = |broker: usize| {
        format!(
            r#"worker_processes 3; error_log %%DIR%%/error.log notice; events {{}} http {{ lua_shared_dict d 100k;
            init_worker_by_lua_block {{
                local ffi = require "ffi" require "resty.core.base"
                ffi.cdef "int ngx_lua_ffi_disable_listening_unix_socket(ngx_str_t *sock_name);"
                local function leave(name)
                    return ffi.C.ngx_lua_ffi_disable_listening_unix_socket(ffi.new("ngx_str_t", {{ #name, name }}))
                end
                local done = ngx.worker.id() == {broker} or leave("unix:%%DIR%%/events.sock") == 0
                ngx.shared.d:incr("begun{broker}", done and leave("unix:/nowhere") == -1 and 1 or 100, 0)
            }}
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ content_by_lua_block {{ ngx.print({broker}, ngx.shared.d:get("begun{broker}")) }} }} }}
            server {{ listen unix:%%DIR%%/events.sock; location / {{ content_by_lua_block {{ ngx.print(ngx.worker.id()) }} }} }} }}"#
        )
    };
    let mut server = Setup::new(&conf(1)).start();
    expect_soon("all have begun", || server.get("/").text() == "13");
    for _ in 0..20 {
        assert_eq!(who_answers(&server), "1");
    }
    let port = server.port(0);
    let fresh = conf(2).replace("%%PORT_0%%", &port.to_string());
    let fresh = fresh.replace("%%DIR%%", &server.dir().display().to_string());
    server.replace_conf(&fresh);
    server.signal(weir_tests::Signal::Hup);
    expect_soon("all have begun anew", || server.get("/").text() == "23");
    for _ in 0..20 {
        assert_eq!(who_answers(&server), "2");
    }
}

/// Timers that a worker's beginning has begun have the block's settings, not a server's: they verify by its
/// authorities, wait as long as it says, ask its name servers, and log where it says.
#[test]
fn timers_of_a_workers_beginning_have_the_blocks_settings() {
    let authority = Authority::new("ca");
    let own = authority.issue("own.test");
    let conf = r#"worker_processes 1; error_log %%DIR%%/error.log info; events {} http { lua_shared_dict d 100k;
        error_log %%DIR%%/http.log info; lua_ssl_trusted_certificate %%DIR%%/ca.crt; lua_socket_connect_timeout 1234ms;
        lua_socket_log_errors off; lua_socket_read_timeout 20ms; resolver 127.0.0.1:1;
        init_worker_by_lua_block { local function try() local d = ngx.shared.d
            local s = ngx.socket.tcp()
            if not s:connect("127.0.0.1", %%PORT_1%%) then return ngx.timer.at(0.01, try) end
            d:set("tls", s:sslhandshake(nil, "own.test", true) and "verified" or "not")
            local s = ngx.socket.tcp() s:connect("127.0.0.1", %%PORT_1%%)
            d:set("read", (select(2, s:receive())))
            ngx.log(ngx.ERR, "of the timer")
            d:set("done", 1) end ngx.timer.at(0, try) }
        server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate %%DIR%%/own.crt; ssl_certificate_key %%DIR%%/own.key; }
        server { listen 127.0.0.1:%%PORT_0%%; lua_socket_log_errors on; lua_ssl_trusted_certificate %%DIR%%/own.crt; lua_socket_read_timeout 60s;
            error_log %%DIR%%/server.log info;
            location / { content_by_lua_block { local d = ngx.shared.d ngx.say(d:get("done"), d:get("tls"), d:get("read")) } } } }
        stream { lua_ssl_trusted_certificate %%DIR%%/ca.crt; lua_shared_dict s 100k;
        init_worker_by_lua_block { local function try() local s = ngx.socket.tcp()
            if not s:connect("127.0.0.1", %%PORT_1%%) then return ngx.timer.at(0.01, try) end
            ngx.shared.s:set("tls", s:sslhandshake(nil, "own.test", true) and "verified" or "not") end ngx.timer.at(0, try) }
        server { listen 127.0.0.1:%%PORT_2%%; lua_ssl_trusted_certificate %%DIR%%/own.crt; content_by_lua_block { ngx.say(ngx.shared.s:get("tls")) } } }"#;
    let setup = Setup::new(conf)
        .file("ca.crt", &authority.cert)
        .file("own.crt", &own.cert)
        .file("own.key", &own.key);
    let server = setup.start();
    expect_soon("the timer has run", || server.get("/").text() == "1verifiedtimeout\n");
    expect_soon("that of stream too", || server.on(2).raw(b"") == b"verified\n");
    assert!(server.read("http.log").contains("of the timer, context: ngx.timer"));
    assert!(!server.read("http.log").contains("timed out"), "{}", server.read("http.log"));
}

/// Lines about sockets name whom they were with, and tracebacks of code's are lines; what a client has sent begins none.
#[test]
fn lines_of_the_log_name_peers_and_are_lines() {
    let server = start(
        "lua_socket_read_timeout 10ms;",
        r#"location /refused { content_by_lua_block { ngx.say(ngx.socket.tcp():connect("127.0.0.1", 1)) } }
        location /unix { content_by_lua_block { ngx.say(ngx.socket.tcp():connect("unix:/nowhere/x")) } }
        location /late { content_by_lua_block { local s = ngx.socket.tcp() s:connect("127.0.0.1", %%PORT_0%%) ngx.say(s:receive()) } }
        location /udp { content_by_lua_block { local s = ngx.socket.udp() s:setpeername("127.0.0.1", %%PORT_0%%) s:settimeout(10) ngx.say(s:receive()) } }
        location /trace { content_by_lua_block {
            ngx.log(ngx.ERR, "it is here:\n", debug.traceback("traced")) ngx.log(ngx.ERR, ngx.unescape_uri(ngx.var.arg_x)) } }
        location /error { content_by_lua_block { error("on purpose\nstack traceback:\n\tin some place") } }"#,
    );
    let at = server.port(0);
    server.get("/refused");
    let about = |path: &str| {
        format!(
            ", client: 127.0.0.1, server: , request: \"GET {path} HTTP/1.1\", host: \"localhost\""
        )
    };
    server.expect_error(&format!(
        "connect() failed (111: Connection refused), upstream: 127.0.0.1:1(127.0.0.1){}",
        about("/refused")
    ));
    server.get("/unix");
    let unix = "[crit] ";
    server.expect_error(unix);
    server.expect_error(&format!("connect() to unix:/nowhere/x failed (2: No such file or directory), upstream: unix:/nowhere/x(unix:/nowhere/x){}", about("/unix")));
    server.get("/late");
    server.expect_error(&format!(
        "lua tcp socket read timed out, upstream: 127.0.0.1:{at}(127.0.0.1){}",
        about("/late")
    ));
    server.get("/udp");
    server.expect_error("lua udp socket read timed out, upstream: 127.0.0.1:");
    server.get("/trace?x=a%0A2026/01/01%2000:00:00%20[alert]%20forged%0D%1B%0A%092026%0Ab");
    server.expect_error("it is here:\\x0Atraced\nstack traceback:\n\tcontent_by_lua(nginx.conf:");
    server
        .expect_error("a\\x0A2026/01/01 00:00:00 [alert] forged\\x0D\\x1B\n\t2026\\x0Ab, client: ");
    server.get("/error");
    server.expect_error("on purpose\nstack traceback:\n\tin some place\nstack traceback:\ncoroutine 0:\n\t[C]: in function 'error'");
}

#[test]
fn a_dictionary_gives_all_its_keys() {
    let conf = r#"events {} error_log %%DIR%%/error.log info; http { default_type text/plain; lua_shared_dict d 64m; %%MEMORY%%
        lua_max_run_time 0; server { listen 127.0.0.1:%%PORT_0%%; location / { content_by_lua_block {
            local d, n = ngx.shared.d, 200000
            for i = 1, n do d:set("a key of some length " .. i, i) end
            local ok, keys = pcall(d.get_keys, d, 0)
            if not ok then return ngx.say(keys) end
            local seen, all = {}, 0
            for _, key in ipairs(keys) do if not seen[key] then seen[key], all = true, all + 1 end end
            ngx.say(#keys, " ", all, " ", #d:get_keys(), " ", #d:get_keys(5)) } } } }"#;
    let server = Setup::new(&conf.replace("%%MEMORY%%", "")).start();
    assert_eq!(server.get("/").text(), "200000 200000 1024 5\n");
    let server = Setup::new(&conf.replace("%%MEMORY%%", "lua_vm_memory 8m;")).start();
    assert_eq!(server.get("/").text(), "200000 keys are more than lua_vm_memory has room for\n");
}

#[test]
fn options_of_sockets_are_set_and_read() {
    let server = start(
        "init_by_lua_block { made = {} }",
        r#"location / { content_by_lua_block {
            local s = ngx.socket.tcp()
            ngx.say(pcall(s.getoption, s, "keepalive"))
            s:connect("127.0.0.1", %%PORT_0%%)
            for _, name in ipairs { "keepalive", "tcp-nodelay", "keepcnt", "keepintvl" } do
                ngx.say(s:setoption(name, 1), s:getoption(name))
            end
            ngx.say(s:setoption("sndbuf", 10240), s:getoption("sndbuf"), s:setoption("rcvbuf", 10240), s:getoption("rcvbuf"))
            ngx.say(s:getoption()) ngx.say(s:getoption("x")) ngx.say(s:setoption("keepalive")) ngx.say(s:setoption("x", 1))
            ngx.say((pcall(s.setoption, s, "keepalive", {}))) ngx.say(s:setoption("x", {}))
            s:close() ngx.say(s:getoption("keepalive")) ngx.say(s:setoption("reuseaddr", 1)) } }
        location /made { content_by_lua_block { made[1], made[2] = ngx.socket.tcp(), ngx.socket.tcp()
            made[1]:settimeout(50) made[2]:connect("127.0.0.1", %%PORT_0%%) } }
        location /elsewhere { content_by_lua_block {
            ngx.say(made[1]:connect("127.0.0.1", %%PORT_0%%), made[1]:receive())
            ngx.say(made[2]:send("x")) ngx.say(pcall(made[2].connect, made[2], "127.0.0.1", %%PORT_0%%)) } }
        location /host { content_by_lua_block { ngx.say(pcall(ngx.req.set_header, "Host", "x/y")) ngx.say(ngx.var.host) } }"#,
    );
    assert_eq!(
        server.get("/").text(),
        "falsesocket is never created nor connected\ntrue1\ntrue1\ntrue1\ntrue1\ntrue20480true20480\n\
         nilmissing the \"option\" argument\nnilunsupported option x\nnilmissing the \"value\" argument\nnilunsupported option x\n\
         false\nnilunsupported option x\nnilclosed\nnilclosed\n"
    );
    server.get("/made");
    assert_eq!(server.get("/elsewhere").text(), "1niltimeout\nnilclosed\nfalsebad request\n");
    let host = server.get("/host").text();
    assert!(
        host.starts_with("false") && host.ends_with("failed to set header\nlocalhost\n"),
        "{host}"
    );
}
