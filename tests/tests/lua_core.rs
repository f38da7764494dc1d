//! What runs and coroutines of Lua's leave behind, and what they cannot do to each other.

use weir_tests::{Server, Setup};

fn start(http: &str) -> Server {
    Setup::new(&format!(
        "events {{}} error_log %%DIR%%/error.log notice; http {{ default_type text/plain; {http} }}"
    ))
    .start()
}

/// Handlers, light threads (waited for or not) and timers leave nothing in the state.
#[test]
fn runs_leave_nothing() {
    let server = start(
        r#"lua_shared_dict d 100k; keepalive_requests 100000; server { listen 127.0.0.1:%%PORT_0%%;
        location /spawn { access_by_lua_block { ngx.ctx.a = {} }
            content_by_lua_block {
                local kept = ("x"):rep(1000) .. math.random()
                local t = ngx.thread.spawn(function() ngx.sleep(0) return kept end)
                ngx.thread.spawn(function() return kept end)
                ngx.thread.wait(t)
                ngx.timer.at(0, function() ngx.shared.d:incr("n", 1, 0) end)
                ngx.say(#kept > 1000)
            } }
        location /leave { access_by_lua_block { local kept = ("x"):rep(100000) .. math.random() ngx.exit(#kept > 0 and 401 or 200) } }
        location /used { content_by_lua_block { collectgarbage() collectgarbage() ngx.say(math.floor(collectgarbage("count"))) } } }"#,
    );
    let mut client = server.connect();
    let after = |times: usize, client: &mut weir_tests::Client| {
        for _ in 0..times {
            assert_eq!(client.get("/spawn").text(), "true\n");
            assert_eq!(client.get("/leave").status, 401);
        }
        client.get("/used").text().trim().parse::<u64>().unwrap()
    };
    let first = after(300, &mut client);
    let then = after(600, &mut client);
    assert!(then < first + 200, "KB: {first}, then {then}");
}

/// Calls that nest as deep as they like are errors of code's, and end no process.
#[test]
fn deep_calls_are_errors() {
    let server = start(
        r#"server { listen 127.0.0.1:%%PORT_0%%;
        location /gsub { content_by_lua_block {
            local function expand(n) return (("x"):gsub("x", function() return n > 0 and expand(n - 1) or "end" end)) end
            ngx.say(expand(300), " ", (pcall(expand, 100000)))
        } }
        location /wrap { content_by_lua_block {
            local function deep(n) return n == 0 and "end" or coroutine.wrap(deep)(n - 1) end
            ngx.say(deep(20000))
        } } }"#,
    );
    assert_eq!(server.get("/gsub").text(), "end false\n");
    assert_eq!(server.get("/wrap").text(), "end\n");
}

/// A coroutine that waits is let go on by what it waits for, and by no other request.
#[test]
fn nobody_ends_the_wait_of_another() {
    let server = start(
        r#"init_by_lua_block { kept = {} } server { listen 127.0.0.1:%%PORT_0%%;
        location /a { content_by_lua_block {
            kept.entry = coroutine.running()
            kept.co = coroutine.create(function() ngx.sleep(0.3) return "mine" end)
            ngx.say(coroutine.resume(kept.co))
        } }
        location /b { content_by_lua_block {
            while not kept.co or coroutine.status(kept.co) ~= "running" do ngx.sleep(0.01) end
            ngx.say(coroutine.resume(kept.co))
            ngx.say(coroutine.resume(kept.entry))
        } } }"#,
    );
    let a = std::thread::spawn({
        let peer = server.on(0);
        move || peer.get("/a").text()
    });
    assert_eq!(
        server.get("/b").text(),
        "falsecannot resume running coroutine\nfalsecannot resume non-suspended coroutine\n"
    );
    assert_eq!(a.join().unwrap(), "truemine\n");
}

/// An error whose text cannot be made is told as such, and ends what it happened in.
#[test]
fn errors_that_cannot_be_told() {
    let server = start(
        r#"server { listen 127.0.0.1:%%PORT_0%%;
        location /content { content_by_lua_block { error(setmetatable({}, { __tostring = function() error("again") end })) } }
        location /header { header_filter_by_lua_block { error(setmetatable({}, { __tostring = function() error("again") end })) }
            return 200 never; }
        location /thread { content_by_lua_block {
            ngx.thread.spawn(function() error(setmetatable({}, { __metatable = 5 })) end)
            ngx.say("goes on")
        } } }"#,
    );
    assert_eq!(server.get("/content").status, 500);
    assert!(server.on(0).raw(b"GET /header HTTP/1.1\r\nHost: a\r\n\r\n").is_empty());
    assert_eq!(server.get("/thread").text(), "goes on\n");
    assert_eq!(server.error_log().matches("unknown reason").count(), 3);
}
