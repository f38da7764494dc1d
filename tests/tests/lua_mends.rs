//! Lua: what code decides, and what others are told of it, where something goes wrong.

use weir_tests::{expect_soon, Server, Setup};

/// A server with these locations; `%%DIR%%` is its directory.
pub(crate) fn start(block: &str, locations: &str) -> Server {
    let conf = format!(
        "events {{}} error_log %%DIR%%/error.log info; http {{ default_type text/plain; {block}\n\
         server {{ listen 127.0.0.1:%%PORT_0%%; {locations} }} }}"
    );
    Setup::new(&conf).start()
}

/// Code that has nothing to say leaves it to the others of the phase; where it is not there, nobody may go on as if it
/// had said something.
#[test]
fn code_that_declines_or_is_not_there_lets_nobody_in() {
    let server = start(
        "",
        r#"location /any { satisfy any; deny all; access_by_lua_block { ngx.exit(ngx.DECLINED) } content_by_lua_block { ngx.say("in") } }
        location /set { set_by_lua_file $deny %%DIR%%/$arg_f.lua; if ($deny) { return 403; } return 200 in; }
        location /filter { header_filter_by_lua_file %%DIR%%/$arg_f.lua; content_by_lua_block { ngx.say("in") } }
        location /access { access_by_lua_file %%DIR%%/$arg_f.lua; content_by_lua_block { ngx.say("in") } }
        location /content { content_by_lua_file %%DIR%%/$arg_f.lua; }"#,
    );
    assert_eq!(server.get("/any").status, 403);
    assert_eq!(server.get("/set?f=none").status, 500);
    let filtered = server.raw(b"GET /filter?f=none HTTP/1.0\r\n\r\n");
    assert!(!filtered.ends_with(b"in\n"), "{}", String::from_utf8_lossy(&filtered));
    assert_eq!(server.get("/access?f=none").status, 404);
    assert_eq!(server.get("/content?f=none").status, 404);
    server.expect_error("none.lua (2: No such file or directory)");
}

/// What editors on Windows put before a text is none of it.
#[test]
fn a_file_may_begin_with_a_byte_order_mark() {
    let conf = "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
        location / { content_by_lua_file %%DIR%%/marked.lua; } } }";
    let setup = Setup::new(conf).file("marked.lua", "\u{feff}#!/usr/bin/lua\nngx.say(\"here\")");
    assert_eq!(setup.start().get("/").text(), "here\n");
}

/// What is posted to one that does not wait any more is the next one's.
#[test]
fn what_is_posted_is_not_lost_with_who_waited() {
    let server = start(
        r#"lua_check_client_abort on; init_by_lua_block { sem = require("ngx.semaphore").new(1) waits = 0 }"#,
        r#"location /take { content_by_lua_block { ngx.say(sem:wait(0)) ngx.say(sem:count()) } }
        location /wait { content_by_lua_block { waits = waits + 1 sem:wait(60) ngx.say("got it") } log_by_lua_block { waits = waits - 1 } }
        location /waits { content_by_lua_block { ngx.say(waits, " ", sem:count()) } }
        location /post { content_by_lua_block { sem:post() ngx.say(sem:count()) } }
        location /leave { content_by_lua_block { ngx.thread.spawn(sem.wait, sem, 60) ngx.say(sem:count()) ngx.exit(200) } }
        location /kill { content_by_lua_block {
            local t = ngx.thread.spawn(sem.wait, sem, 60) ngx.say(sem:count()) ngx.thread.kill(t) ngx.say(sem:count()) } }
        location /both { content_by_lua_block {
            local t = ngx.thread.spawn(sem.wait, sem, 60) sem:post() ngx.thread.kill(t) ngx.say(sem:count()) sem:wait(0) } }
        location /filter { header_filter_by_lua_block { ngx.header["X-Said"] = select(2, sem:wait(0)) } return 200; }"#,
    );
    assert_eq!(server.get("/take").text(), "true\n0\n");
    let mut waiter = server.connect();
    waiter.send_get("/wait");
    expect_soon("somebody waits", || server.get("/waits").text() == "1 -1\n");
    drop(waiter);
    expect_soon("nobody waits", || server.get("/waits").text() == "0 0\n");
    assert_eq!(server.get("/post").text(), "1\n");
    assert_eq!(server.get("/take").text(), "true\n0\n");
    assert_eq!(server.get("/leave").text(), "-1\n");
    assert_eq!(server.get("/kill").text(), "-1\n0\n");
    assert_eq!(server.get("/both").text(), "1\n");
    assert_eq!(server.get("/waits").text(), "0 0\n");
    let said = server.get("/filter");
    assert_eq!(said.header("X-Said"), Some("API disabled in the context of header_filter_by_lua*"));
}

/// Each is its own, however many there are.
#[test]
fn dictionaries_behind_the_256th_are_their_own() {
    let dicts: String = (0..258).map(|n| format!("lua_shared_dict d{n} 12k; ")).collect();
    let server = start(
        &dicts,
        r#"location / { content_by_lua_block {
            local a, b, s = ngx.shared.d0, ngx.shared.d256, ngx.shared
            a:set("k", 1) ngx.say(b:get("k")) b:set("k", "two", 0, 3) ngx.say(a:get("k"), b:get("k"))
            ngx.say(b:add("k", 1), b:incr("n", 2, 5), a:get("n"), s.d257:lpush("l", 1), b:rpush("l", "x"), b:rpush("l", "y"), b:lpop("l"), a:llen("l")) } }"#,
    );
    assert_eq!(server.get("/").text(), "nil\n1two3\nfalse7nil112x0\n");
}

/// Of expressions that code leaves off with, and of templates that it makes anew, few are kept.
#[test]
fn what_ngx_re_keeps_is_bounded() {
    let server = start(
        "",
        r#"location / { content_by_lua_block {
            local n = tonumber(ngx.var.arg_n)
            for i = 1, n do
                ngx.re.gmatch("abc" .. i, "(a)(b)(c)" .. i)()
                pcall(ngx.re.gsub, "a", "(a)|" .. i, function() error("no") end)
                ngx.re.sub("a", "a", ("template"):rep(20) .. i, "jo")
            end
            local it = ngx.re.gmatch("a1b2c3", [[[a-z]\d]]) local first = it()[0]
            for i = 1, 200 do ngx.re.gmatch("a", "a")() end
            ngx.say(first, it()[0], it()[0], it()) ngx.say((ngx.re.gsub("abc", "[a-z]", function(m)
                for i = 1, 100 do ngx.re.gmatch("a", "a")() end return m[0]:upper() end)))
            collectgarbage() collectgarbage() ngx.say(collectgarbage("count")) } }"#,
    );
    let used = |n: u32| {
        let text = server.get(&format!("/?n={n}")).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["a1b2c3nil", "ABC"], "{text}");
        (lines[2].parse::<f64>().unwrap() as u64, server.memory().unwrap_or(0) / 1024)
    };
    let before = used(3_000);
    let after = used(20_000);
    assert!(after.0 < before.0 + 1_000, "Lua has {} kB, had {}", after.0, before.0);
    assert!(after.1 < before.1 + 30_000, "resident are {} kB, were {}", after.1, before.1);
}

/// The words of an error are there whatever is done with the expression.
#[test]
fn expressions_that_fail_say_why() {
    let server = start(
        "",
        r#"location /utf { content_by_lua_block {
            local function last(...) return (select(select('#', ...), ...)) end
            ngx.say(last(ngx.re.match("\200", "b", "u"))) ngx.say(last(ngx.re.find("\200", "b", "u"))) ngx.say(last(ngx.re.sub("\200", "b", "x", "u"))) } }
        location /end { content_by_lua_block {
            ngx.say(select(2, ngx.re.match("abc", "b", "", { pos = 5 })), select(3, ngx.re.find("abc", "b", "jo", { pos = 9 }))) ngx.say(ngx.re.match("abc", "c", "", { pos = 4 })) } }
        location /split { content_by_lua_block {
            local split, encode = require("ngx.re").split, require("cjson").encode
            ngx.say(encode(split("a,b,c,,", ","))) ngx.say(#split(",,", ",")) ngx.say(encode(split("a,,b,,", ","))) ngx.say(encode(split("a,b,c,,", ",", nil, nil, 6))) } }"#,
    );
    let failed = "pcre_exec() failed: -3\n";
    assert_eq!(server.get("/utf").text(), failed.repeat(3));
    let offset = "pcre_exec() failed: -33";
    assert_eq!(server.get("/end").text(), format!("{offset}{offset}\nnil\n"));
    let split = "[\"a\",\"b\",\"c\"]\n0\n[\"a\",\"\",\"b\"]\n[\"a\",\"b\",\"c\",\"\",\"\"]\n";
    assert_eq!(server.get("/split").text(), split);
}

/// A name is a name on the line that it comes to, and what code has taken away is not sent.
#[test]
fn names_that_would_be_others_are_escaped() {
    let server = start(
        "ignore_invalid_headers off;",
        r#"location /out { content_by_lua_block { for _, name in ipairs { "X:D", "X C", "", "X\nY", "X~|" } do ngx.header[name] = "v" end ngx.say("") } }
        location /in { content_by_lua_block {
            ngx.req.set_header("X C", "1") ngx.req.set_header("X:D", "2") ngx.req.set_header("", "3") ngx.exec("/to") } }
        location /to { proxy_pass http://127.0.0.1:%%PORT_0%%/echo; }
        location /echo { content_by_lua_block { ngx.print(ngx.req.raw_header(true)) } }
        location /none { content_by_lua_block { ngx.header.content_type = nil ngx.say("") } }
        location /empty { content_by_lua_block { ngx.header.content_type = "" ngx.say("") } }
        location /args { content_by_lua_block { ngx.req.set_uri_args("a b\n\"%") ngx.say(ngx.var.args) } }
        location /exit { content_by_lua_block { ngx.exit(150) } }"#,
    );
    let out = String::from_utf8_lossy(&server.raw(b"GET /out HTTP/1.0\r\n\r\n")).into_owned();
    for line in ["\r\nX%3AD: v\r\n", "\r\nX%20C: v\r\n", "\r\nX%0AY: v\r\n", "\r\nX~|: v\r\n"] {
        assert!(out.contains(line), "{out}");
    }
    assert!(!out.contains("\r\n: "), "{out}");
    let sent = server.get("/in").text();
    assert!(sent.contains("X%20C: 1\r\n") && sent.contains("X%3AD: 2\r\n"), "{sent}");
    assert!(!sent.contains("\r\n: "), "{sent}");
    assert_eq!(server.get("/none").header("Content-Type"), None);
    assert_eq!(server.get("/empty").header("Content-Type"), None);
    assert_eq!(server.get("/args").text(), "a%20b%0A\"%\n");
    assert_eq!(server.raw(b"GET /exit HTTP/1.1\r\nHost: a\r\n\r\n"), b"");
}

/// What is not run is not kept either.
#[test]
fn timers_that_are_one_too_many_are_forgotten() {
    let server = start(
        "lua_max_running_timers 1; init_by_lua_block { kept = setmetatable({}, { __mode = 'k' }) }",
        r#"location /begin { content_by_lua_block {
            for i = 1, 5 do local big = { i } kept[big] = true ngx.timer.at(0, function() ngx.sleep(60) return big end) end ngx.say("") } }
        location /left { content_by_lua_block { collectgarbage() collectgarbage() local n = 0 for _ in pairs(kept) do n = n + 1 end ngx.say(n) } }"#,
    );
    server.get("/begin");
    server.expect_error("lua_max_running_timers are not enough");
    expect_soon("four are gone", || server.get("/left").text() == "1\n");
}

/// How calls end that nobody makes twice, where code may look at it.
#[test]
fn what_is_refused_is_told_as_openresty_does() {
    let server = start(
        "lua_shared_dict d 1m;",
        r##"location /missing { return 404; } location /moved { return 302 /x; }
        location / { content_by_lua_block {
            local function show(...) for i = 1, select("#", ...) do ngx.print(i > 1 and " | " or "", tostring((select(i, ...)))) end ngx.say("") end
            local sock, sem, dict = ngx.socket.tcp(), require "ngx.semaphore".new(0), ngx.shared.d
            show(pcall(sock.settimeout, sock)) show(pcall(sock.settimeouts, sock, 1)) show(pcall(sock.settimeouts, sock, "1000", "x", nil))
            show(pcall(sock.setkeepalive, sock, "x")) show(sock:receiveany(10))
            show(sem:wait(0.001)) show(sem:wait(0))
            show(pcall(require "ffi".cdef, "nonsense")) show(pcall(function() require "ffi".cdef("nonsense") end))
            show(pcall(function() dict:set("a", 1, -1) end)) dict:set("a", 1) show(dict:expire("a", -1)) show(dict:ttl("a"))
            local due = false show(ngx.timer.at(-1, function() due = true end)) ngx.sleep(0.01) show(due)
            for _, path in ipairs { "/missing", "/moved" } do
                local part = ngx.location.capture(path) show(part.status, part.header["Content-Type"], part.header.Location)
            end } }"##,
    );
    assert_eq!(
        server.get("/").text().replace("content_by_lua(nginx.conf:3):", "at "),
        "false | ngx.socket settimeout: expecting 2 arguments (including the object) but seen 1\n\
         false | ngx.socket settimeouts: expecting 4 arguments (including the object) but seen 2\ntrue\n\
         false | bad argument #2 to '?' (number expected, got string)\nnil | closed\n\
         false | timeout\nnil | timeout\n\
         false | declaration specifier expected near 'nonsense'\n\
         false | at 7: declaration specifier expected near 'nonsense'\n\
         false | at 8: bad \"exptime\" argument\ntrue\n0\n1\ntrue\n\
         404 | text/plain | nil\n302 | text/plain | /x\n"
    );
}
