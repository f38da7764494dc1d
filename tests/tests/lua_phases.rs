//! Lua: its directives, and what the phases of a request make of their code.

use weir_tests::{run_cli, Server, Setup, Signal};

const CONF: &str = r#"events {} error_log %%DIR%%/error.log notice; http { default_type text/plain; access_log %%DIR%%/access.log;
    lua_package_path '${prefix}/lib/?.lua;;'; lua_package_cpath '$prefix/?.so;;'; lua_code_cache on;
    lua_max_pending_timers 8; lua_max_running_timers 4; lua_regex_cache_max_entries 64; lua_regex_match_limit 100000;
    lua_vm_memory 64m;
    init_by_lua_block { begun = "begun" }
    init_worker_by_lua_block { worker = begun .. " in a worker" }
    exit_worker_by_lua_block { ngx.log(ngx.NOTICE, "the worker has ended") }
    server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
    server_rewrite_by_lua_block { if ngx.var.uri == "/moved" then ngx.req.set_uri("/there", true) end }
    location /there { return 200 "there\n"; }
    location /worker { content_by_lua_block { ngx.say(worker, " of ", ngx.worker.count()) } }
    location /old { content_by_lua 'ngx.say("an argument\'s")'; }
    location /file { content_by_lua_file code.lua; }
    location /no-file { content_by_lua_file missing.lua; }
    location /module { content_by_lua_block { ngx.say(require("greeting").hello("you")) } }
    location /set { set_by_lua_block $sum { return 1 + 2 } set_by_lua $next 'return ngx.arg[1] + 1' $sum; return 200 "$sum $next\n"; }
    location /rewrite { rewrite_by_lua_block { ngx.req.set_uri("/there") ngx.exec("/there") } }
    location /access { access_by_lua_block { if ngx.var.arg_key ~= "please" then return ngx.exit(403) end } content_by_lua_block { ngx.say("in") } }
    location /answered { access_by_lua_block { ngx.say("by access") } content_by_lua_block { ngx.say("never") } }
    location /precontent { precontent_by_lua_block { ngx.ctx.from = ngx.get_phase() } content_by_lua_block { ngx.say(ngx.ctx.from) } }
    location /filters { header_filter_by_lua_block { ngx.header["X-Phase"] = ngx.get_phase() ngx.header.content_length = nil }
        body_filter_by_lua_block { ngx.arg[1] = ngx.arg[1]:upper() } return 200 "small\n"; }
    location /log { log_by_lua_block { ngx.log(ngx.NOTICE, "logged with ", ngx.status) } return 204; }
    location /error { content_by_lua_block { 
        local nothing
        nothing.happens() } }
    location /syntax { content_by_lua_block { this is no code } }
    location /typed { lua_use_default_type off; content_by_lua_block { ngx.say("untyped") } }
    location /names { lua_transform_underscores_in_response_headers off; content_by_lua_block { ngx.header.x_y = "z" ngx.say("named") } }
    location /body { lua_need_request_body on; lua_check_client_abort on; content_by_lua_block { ngx.say(ngx.req.get_body_data()) } }
    location /old-client { lua_http10_buffering on; content_by_lua_block { ngx.say("a") ngx.say("b") } }
    location /timer { content_by_lua_block {
        local ok, e = ngx.timer.at(0, function(premature, who) ngx.log(ngx.NOTICE, "a timer of ", who) end, "mine") ngx.say(ok) } }
    location /memory { content_by_lua_block { local t = {} for i = 1, 1e9 do t[i] = ("x"):rep(1e6) .. i end } }
} }"#;

fn start() -> Server {
    Setup::new(CONF)
        .file("code.lua", "ngx.say(\"a file's, by \", ngx.var.arg_who)\n")
        .file("lib/greeting.lua", "return { hello = function(who) return 'hello ' .. who end }\n")
        .start()
}

#[test]
fn each_phase_runs_its_code() {
    let server = start();
    for (path, expected) in [
        ("/worker", "begun in a worker of 1\n"),
        ("/moved", "there\n"),
        ("/old", "an argument's\n"),
        ("/file?who=me", "a file's, by me\n"),
        ("/module", "hello you\n"),
        ("/set", "3 4\n"),
        ("/rewrite", "there\n"),
        ("/access?key=please", "in\n"),
        ("/answered", "by access\n"),
        ("/precontent", "precontent\n"),
        ("/filters", "SMALL\n"),
        ("/names", "named\n"),
        ("/timer", "1\n"),
    ] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.text()), (200, expected.to_owned()), "{path}");
    }
    assert_eq!(server.get("/filters").header("X-Phase"), Some("header_filter"));
    assert_eq!(server.get("/names").header("x_y"), Some("z"));
    assert_eq!(server.get("/typed").header("Content-Type"), None);
    assert_eq!(server.get("/access").status, 403);
    assert_eq!(server.get("/no-file").status, 404);
    server.expect_error("a timer of mine");
    assert_eq!(server.get("/log").status, 204);
    server.expect_error("logged with 204");
}

#[test]
fn errors_name_their_place_and_end_the_request() {
    let server = start();
    assert_eq!(server.get("/error").status, 500);
    assert_eq!(server.get("/syntax").status, 500);
    for text in [
        "lua entry thread aborted: runtime error: content_by_lua(nginx.conf:",
        "attempt to index local 'nothing' (a nil value)\nstack traceback:\n",
        "failed to load inlined Lua code: content_by_lua(nginx.conf:",
    ] {
        server.expect_error(text);
    }
    assert_eq!(server.get("/worker").text(), "begun in a worker of 1\n");
}

/// What runs out of memory ends; the others of the worker do not notice.
#[test]
fn memory_has_a_bound() {
    let server = start();
    assert_eq!(server.get("/memory").status, 500);
    server.expect_error("not enough memory");
    assert_eq!(server.get("/set").text(), "3 4\n");
}

#[test]
fn old_clients_are_told_the_length() {
    let server = start();
    let mut client = server.connect();
    client.send(b"GET /old-client HTTP/1.0\r\nHost: a\r\n\r\n");
    let answer = client.read_to_end();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("Content-Length: 4\r\n") && text.ends_with("a\nb\n"), "{text}");
}

#[test]
fn bodies_are_read_before_code_that_needs_them() {
    let server = start();
    let answer = server.post("/body", "hello");
    assert_eq!(answer.text(), "hello\n");
}

#[test]
fn what_is_not_there_yet_is_refused() {
    for (line, expected) in [
        ("lua_sa_restart off;", "interrupt no call"),
        ("lua_shared_dict d 1k;", "invalid lua shared dict size"),
        ("balancer_by_lua_block { }", "is not allowed here"),
        ("content_by_lua_block { }", "is not allowed here"),
        ("init_by_lua_block { this is no code }", "init_by_lua error: init_by_lua("),
        ("init_by_lua_file missing.lua;", "init_by_lua_file error: cannot open "),
    ] {
        let conf = format!("events {{}} http {{ {line} }}");
        let said = run_cli(&["-t"], &conf);
        assert!(said.stderr.contains(expected), "{line}: {}", said.stderr);
    }
}

#[test]
fn code_runs_before_its_phase_where_it_is_not_postponed() {
    for (first, statuses) in [("off", [403, 404]), ("on", [500, 500])] {
        let server = Setup::new(&format!(
            "events {{}} error_log %%DIR%%/error.log; http {{ rewrite_by_lua_no_postpone {first};
            access_by_lua_no_postpone {first}; precontent_by_lua_no_postpone {first};
            server {{ listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; set $a off;
            location /rewrite {{ rewrite_by_lua 'ngx.var.a = \"on\"'; if ($a = on) {{ return 200 on; }} return 200 off; }}
            location /access {{ deny all; access_by_lua 'ngx.exit(500)'; }}
            location /precontent {{ try_files /no-file =404; precontent_by_lua 'ngx.exit(500)'; }} }} }}"
        ))
        .start();
        assert_eq!(server.get("/rewrite").text(), first);
        assert_eq!(["/access", "/precontent"].map(|path| server.get(path).status), statuses);
    }
}

/// Globals are the worker's, as they are in OpenResty; who makes one while requests are served is told of it once.
#[test]
fn globals_are_shared_and_told_of() {
    let server = Setup::new(
        "events {} error_log %%DIR%%/error.log notice; http { default_type text/plain;
        init_by_lua 'begun = 1';
        server { listen 127.0.0.1:%%PORT_0%%;
        location / { content_by_lua_block { count = (count or begun) + 1 ngx.say(count) } } } }",
    )
    .start();
    assert_eq!([server.get("/").text(), server.get("/").text()], ["2\n", "3\n"]);
    server.get("/none");
    let log = server.read("error.log");
    let told = "writing a global Lua variable ('count')";
    assert_eq!(log.matches(told).count(), 1, "{log}");
    assert!(log.contains("\n\tcontent_by_lua(nginx.conf:4):1"), "{log}");
    assert!(!log.contains("('begun')"), "{log}");
}

/// Without the cache code is read anew for each request, and its globals are that request's.
#[test]
fn each_request_has_a_state_of_its_own_without_the_cache() {
    let server = Setup::new(
        "events {} error_log %%DIR%%/error.log notice; http { default_type text/plain;
        lua_package_path '%%DIR%%/?.lua;;'; init_by_lua 'begun = 1'; lua_shared_dict d 100k; lua_code_cache off;
        server { listen 127.0.0.1:%%PORT_0%%;
        location /kept { lua_code_cache on; content_by_lua_block { ngx.say(require('m')) } }
        location / { rewrite_by_lua_block { count = (count or begun) + 1 ngx.ctx.n = require('m') }
            content_by_lua_block { ngx.say(ngx.ctx.n, ' ', _G.count, ' ', (ngx.shared.d:incr('n', 1, 0))) } } } }",
    )
    .file("m.lua", "return 'one'")
    .start();
    assert_eq!(server.get("/").text(), "one 2 1\n");
    assert_eq!(server.get("/kept").text(), "one\n");
    server.write("m.lua", "return 'two'");
    assert_eq!(server.get("/").text(), "two 2 2\n");
    assert_eq!(server.get("/kept").text(), "one\n");
    let said = run_cli(&["-t"], "events {} http { lua_code_cache off; }");
    assert!(
        said.stderr.contains("lua_code_cache is off; this will hurt performance"),
        "{}",
        said.stderr
    );
}

/// The same code as an argument and in a file.
const FORMS: &str = r#"events {} error_log %%DIR%%/error.log notice; http { default_type text/plain;
    %%INIT%%
    server { listen 127.0.0.1:%%PORT_0%%;
    location /by-argument { set $made "";
        rewrite_by_lua 'note("rewrite")'; access_by_lua 'note("access")'; precontent_by_lua 'note("precontent")';
        header_filter_by_lua 'note("header")'; body_filter_by_lua 'note("body")'; log_by_lua 'tell()';
        content_by_lua 'ngx.say(begun, begun_worker)'; }
    location /by-file { set_by_lua_file $made set.lua one;
        rewrite_by_lua_file rewrite.lua; access_by_lua_file access.lua; precontent_by_lua_file precontent.lua;
        header_filter_by_lua_file header.lua; body_filter_by_lua_file body.lua; log_by_lua_file log.lua;
        content_by_lua_file content.lua; }
} }"#;

fn forms(init: &str, server: &str) -> Server {
    let conf = FORMS.replace("%%INIT%%", init);
    let conf = conf.replace("server { listen", &format!("{server} server {{ listen"));
    let init = "function note(p) ngx.ctx[#ngx.ctx + 1] = p end\n\
        function tell() ngx.log(ngx.NOTICE, \"phases: \", table.concat(ngx.ctx, \" \")) end\nbegun = 'begun'\n";
    let mut setup = Setup::new(&conf).file("init.lua", init);
    for (name, code) in [
        ("init_worker.lua", "begun_worker = 'worker'"),
        ("exit_worker.lua", "ngx.log(ngx.NOTICE, 'a worker has ended')"),
        ("server_rewrite.lua", "note('server')"),
        ("set.lua", "note('set ' .. ngx.arg[1]) return 'made'"),
        ("rewrite.lua", "note('rewrite')"),
        ("access.lua", "note('access')"),
        ("precontent.lua", "note('precontent')"),
        ("header.lua", "note('header')"),
        ("body.lua", "note('body')"),
        ("log.lua", "tell()"),
        ("content.lua", "ngx.say(begun, begun_worker, ngx.var.made)"),
    ] {
        setup = setup.file(name, code);
    }
    setup.start()
}

#[test]
fn code_is_an_argument_or_in_a_file() {
    let init = "init_by_lua_file init.lua; init_worker_by_lua_file init_worker.lua; exit_worker_by_lua_file exit_worker.lua;";
    let mut server = forms(init, "server_rewrite_by_lua_file server_rewrite.lua;");
    assert_eq!(server.get("/by-file").text(), "begunworkermade\n");
    server.expect_error("phases: server set one rewrite access precontent header body body");
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    server.expect_error("a worker has ended");
    let init =
        "init_by_lua 'dofile(\"%%DIR%%/init.lua\")'; init_worker_by_lua 'begun_worker = \"too\"'; \
        exit_worker_by_lua 'ngx.log(ngx.NOTICE, \"ended\")';";
    let server = forms(init, "server_rewrite_by_lua 'note(\"server\")';");
    assert_eq!(server.get("/by-argument").text(), "beguntoo\n");
    server.expect_error("phases: server rewrite access precontent header body body");
}

/// What `init_by_lua` has to say against a configuration is heard: nobody starts with it, and who serves goes on.
#[test]
fn init_code_that_fails_refuses_the_configuration() {
    let conf = |code: &str, text: &str| {
        format!(
            "events {{}} error_log %%DIR%%/error.log notice; http {{ init_by_lua_block {{ {code} }}
            server {{ listen 127.0.0.1:%%PORT_0%%; access_by_lua_block {{ if not ready then ngx.exit(403) end }}
            location / {{ return 200 {text}; }} }} }}"
        )
    };
    let said = run_cli(&["-t"], &conf("error('boom')", "ok"));
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("init_by_lua error: init_by_lua("), "{}", said.stderr);
    assert!(said.stderr.contains("boom\nstack traceback:"), "{}", said.stderr);
    let mut server = Setup::new(&conf("ready = true ngx.log(ngx.NOTICE, 'begins')", "one")).start();
    assert_eq!(server.get("/").text(), "one");
    assert_eq!(server.error_log().matches("begins").count(), 1, "an attempt says nothing");
    server.replace_conf(&conf("error('boom')", "two"));
    server.signal(weir_tests::Signal::Hup);
    server.expect_error("init_by_lua error: ");
    assert_eq!(server.get("/").text(), "one");
    let peer = server.on(0);
    server.reload(&conf("ready = true", "three"), || peer.get("/").text() == "three");
}

/// As in OpenResty a test of the configuration runs it, but for one with dictionaries.
#[test]
fn a_test_runs_init_where_there_are_no_dictionaries() {
    let conf = |dict: &str, code: &str| {
        format!("events {{}} http {{ {dict} {code} server {{ listen 127.0.0.1:%%PORT_0%%; }} }}")
    };
    let code = "init_by_lua_block { error('on purpose') }";
    let without = run_cli(&["-t"], &conf("", code));
    assert!(without.stderr.contains("init_by_lua error: ") && without.code == 1);
    let with = run_cli(&["-t"], &conf("lua_shared_dict d 12k;", code));
    assert!(with.stderr.contains("test is successful"), "{}", with.stderr);
}
