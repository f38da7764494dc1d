//! `ngx.location.capture`: answers that are there at once, and what is to be waited for.

use weir_tests::{Server, Setup};

fn serve(locations: &str) -> Server {
    let conf = format!(
        "worker_processes 1; events {{}} http {{ default_type text/plain; subrequest_output_buffer_size 64;
            server {{ listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; {locations} }} }}"
    );
    Setup::new(&conf).file("html/page", vec![b'p'; 100_000]).start()
}

/// What code asks for is kept whole, whatever `subrequest_output_buffer_size` says, and says so where it is not.
#[test]
fn answers_are_kept_whole() {
    let server = serve(
        r#"location /big { content_by_lua_block { for i = 1, 100 do ngx.print(string.rep("x", 1000)) ngx.flush() end } }
        location /said { return 200 said; }
        location /waits { content_by_lua_block { ngx.sleep(0.01) ngx.print(string.rep("y", 5000)) } }
        location = /do { content_by_lua_block {
            for _, name in ipairs { "/big", "/page", "/said", "/waits" } do
                local r = ngx.location.capture(name)
                ngx.say(name, " ", r.status, " ", r.truncated, " ", #r.body, " ", r.header["Content-Type"])
            end
            ngx.say(ngx.location.capture("/nothing").status)
        } }"#,
    );
    let expected = "/big 200 false 100000 text/plain\n/page 200 false 100000 text/plain\n\
        /said 200 false 4 text/plain\n/waits 200 false 5000 text/plain\n404\n";
    assert_eq!(server.get("/do").text(), expected);
}

/// One after the other there may be any number of them, within each other fifty.
#[test]
fn only_depth_has_a_bound() {
    let server = serve(
        r#"location /leaf { return 200 leaf; }
        location = /many { content_by_lua_block {
            local n = 0
            for i = 1, 6000 do n = n + #ngx.location.capture("/leaf").body end
            ngx.say(n)
        } }
        location = /deep { content_by_lua_block {
            local ok, r = pcall(ngx.location.capture, "/deep")
            ngx.print(1 + (ok and tonumber(r.body) or 0))
        } }"#,
    );
    assert_eq!(server.get("/many").text(), "24000\n");
    assert_eq!(server.get("/deep").text(), "51");
}

/// What a call that has failed was given is not the next one's.
#[test]
fn what_was_given_in_vain_is_gone() {
    let server = serve(
        r#"location /echo { set $mine ""; content_by_lua_block {
            ngx.req.read_body() ngx.print(ngx.var.mine, "/", ngx.req.get_body_data() or "none") } }
        location = /do { set $mine ""; content_by_lua_block {
            local ok, e = pcall(ngx.location.capture, "/echo", { body = "leak", vars = { mine = "leak", [1] = 1 } })
            ngx.say(ok, " ", e)
            ngx.say(ngx.location.capture("/echo", { method = ngx.HTTP_POST, share_all_vars = true }).body)
        } }"#,
    );
    let text = server.get("/do").text();
    let (first, second) = text.split_once('\n').unwrap();
    assert!(first.starts_with("false ") && first.contains("non-string key"), "{first}");
    assert_eq!(second, "/none\n");
}

/// Code in a subrequest runs behind the code that waits for it, in every phase, and threads in between.
#[test]
fn code_of_a_subrequest_has_its_turn() {
    let server = serve(
        r#"location /part {
            rewrite_by_lua_block { ngx.ctx.way = "rewrite" }
            content_by_lua_block { ngx.print(ngx.ctx.way, " content") }
            header_filter_by_lua_block { ngx.header["X-Way"] = ngx.ctx.way .. " header" }
            body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() }
        }
        location = /do { content_by_lua_block {
            ngx.ctx.way = "own"
            local r = ngx.location.capture("/part")
            ngx.say(r.body, ", ", r.header["X-Way"], ", ", ngx.ctx.way)
            local thread = ngx.thread.spawn(function()
                ngx.say("before")
                ngx.say(ngx.location.capture("/said").body)
            end)
            ngx.say("between")
            ngx.thread.wait(thread)
        } }
        location /said { return 200 said; }"#,
    );
    assert_eq!(
        server.get("/do").text(),
        "REWRITE CONTENT, rewrite header, own\nbefore\nbetween\nsaid\n"
    );
}

fn start(locations: &str) -> Server {
    let conf = format!(
        "events {{}} worker_processes 1; error_log %%DIR%%/error.log warn; http {{
         init_by_lua_block {{ function work(s) ngx.update_time() local e = ngx.now() + s repeat ngx.update_time() until ngx.now() > e end }} proxy_cache_path %%DIR%%/c keys_zone=c:1m;
         server {{ listen 127.0.0.1:%%PORT_0%%; location /ok {{ return 200 ok; }} {locations} }} }}"
    );
    Setup::new(&conf).start()
}

/// Others are served beside code that asks for one subrequest after the other, or for many at a time.
#[test]
fn others_have_their_turn() {
    let server = start(
        r#"location /loop { content_by_lua_block { ngx.say("begun") ngx.flush(true)
            while not seen do ngx.location.capture("/ok") end ngx.say("seen") } }
        location /many { content_by_lua_block { local list = {} for i = 1, 500 do list[i] = { "/ok" } end ngx.say("begun") ngx.flush(true)
            while not seen do ngx.location.capture_multi(list) end ngx.say("seen") } }
        location /see { content_by_lua_block { seen = ngx.var.arg_it == "yes" ngx.say("told") } }"#,
    );
    for path in ["/loop", "/many"] {
        let mut client = server.connect();
        client.send_get(path);
        client.read_until(b"begun\n");
        assert_eq!(server.get("/see?it=yes").text(), "told\n", "{path}");
        client.read_until(b"seen\n");
        server.get("/see?it=no");
    }
}

/// Thousands run a thousand at a time; more than code can be given at once are refused before any is made.
#[test]
fn many_run_some_at_a_time() {
    let server = start(
        r#"location / { content_by_lua_block { local n, list = tonumber(ngx.var.arg_n), {}
            for i = 1, n do list[i] = { "/asked?" .. i } end
            local done, why = pcall(function() local all = { ngx.location.capture_multi(list) } ngx.say(#all, " ", all[1].body, " ", all[n].body) end)
            if not done then ngx.say(why, " ", asked) end } }
        location /asked { content_by_lua_block { asked = (asked or 0) + 1 ngx.print(ngx.var.args) } }"#,
    );
    assert_eq!(server.get("/?n=2500").text(), "2500 1 2500\n");
    assert_eq!(server.get("/?n=7000").text(), "7000 1 7000\n");
    let refused = server.get("/?n=7001").text();
    assert!(refused.ends_with("too many subrequests: 7001 of at most 7000 9500\n"), "{refused}");
}

/// A subrequest's own time is not its caller's: neither of them takes too long here, and then it alone does.
#[test]
fn time_is_counted_where_it_is_taken() {
    let server = start(
        r#"lua_max_run_time 1s;
        location /part { empty_gif; header_filter_by_lua_block { work(tonumber(ngx.var.arg_s)) } }
        location /both { content_by_lua_block { work(0.8) ngx.location.capture("/part?s=0.8") } }
        location /long { content_by_lua_block { ngx.location.capture("/part?s=1.5") } }"#,
    );
    server.get("/both");
    assert!(!server.error_log().contains("has run for"), "{}", server.error_log());
    server.get("/long");
    server.expect_error("header_filter_by_lua");
    assert!(server.error_log().contains("without waiting, longer than lua_max_run_time"));
}

/// As with OpenResty: ranges of what is kept are no part's.
#[test]
fn what_is_kept_says_nothing_of_ranges_to_code() {
    let server = start(
        r#"location / { content_by_lua_block { ngx.say(tostring(ngx.location.capture(ngx.var.arg_u).header["Accept-Ranges"])) } }
        location /file { alias %%DIR%%/file; }
        location /proxied { proxy_pass http://127.0.0.1:%%PORT_0%%/file; }
        location /kept { proxy_pass http://127.0.0.1:%%PORT_0%%/file; proxy_cache c; proxy_cache_valid 1m; }"#,
    );
    server.write("file", "text");
    for (path, said) in
        [("/file", "nil"), ("/proxied", "bytes"), ("/kept", "nil"), ("/kept", "nil")]
    {
        assert_eq!(server.get(&format!("/?u={path}")).text(), format!("{said}\n"), "{path}");
    }
}
