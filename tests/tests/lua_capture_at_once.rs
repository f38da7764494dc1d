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
