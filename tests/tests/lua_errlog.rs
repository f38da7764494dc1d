//! `lua_capture_error_log` and `ngx.errlog`: lines of the error log that code reads.

use weir_tests::{expect_soon, run_cli, Server, Setup, Signal};

const CONF: &str = r#"worker_processes 1; events {} error_log %%DIR%%/error.log info; http { default_type text/plain; lua_capture_error_log 4k;
    server { listen 127.0.0.1:%%PORT_0%%;
    location /two { error_log %%DIR%%/other.log error; content_by_lua_block {
        local errlog = require "ngx.errlog"
        errlog.get_logs(0)
        ngx.log(ngx.WARN, "too little for this log")
        ngx.log(ngx.ERR, "first")
        local now = ngx.now()
        ngx.log(ngx.CRIT, "second")
        local all = errlog.get_logs()
        ngx.say(#all / 3, " ", all[1], " ", all[4], " ", now - all[2] < 10 and all[5] >= now, "\n", all[3], "\n", all[6])
        ngx.say(#errlog.get_logs())
    } }
    location /filtered { content_by_lua_block {
        local errlog = require "ngx.errlog"
        errlog.get_logs(0)
        assert(errlog.set_filter_level(ngx.WARN))
        ngx.log(ngx.INFO, "1") ngx.log(ngx.WARN, "2") ngx.log(ngx.ERR, "3")
        local t = { 0, 0, 0, 0, 0, 0, 0, 0, 0 }
        local same = errlog.get_logs(2, t) == t
        ngx.say(same, " ", t[1], " ", t[4], " ", t[7])
        assert(errlog.set_filter_level(ngx.DEBUG))
        ngx.say(select(2, errlog.set_filter_level()), ", ", select(2, errlog.set_filter_level(9)))
    } }
    location /flood { content_by_lua_block {
        local errlog = require "ngx.errlog"
        errlog.get_logs(0)
        for i = 1, 100 do ngx.log(ngx.ERR, "--> ", i) end
        local some = errlog.get_logs(3)
        local all = errlog.get_logs(1000)
        local first, last = some[3]:match("--> (%d+)"), all[#all]:match("--> (%d+)")
        local bytes = 0
        for i = 3, #all, 3 do bytes = bytes + #all[i] end
        ngx.say(#some / 3, " ", #all / 3 + 3 == 101 - first, " ", last, " ", bytes > 2500 and bytes < 4096)
    } }
    location /failed { content_by_lua_block { require("ngx.errlog").get_logs(0) local t = {} / 4 } }
    location /after { content_by_lua_block { for _, line in ipairs(require("ngx.errlog").get_logs()) do ngx.say(line) end } } } }
stream { lua_capture_error_log 8k; init_by_lua_block { require("ngx.errlog").set_filter_level(ngx.ERR) }
    server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block {
        require("ngx.errlog").get_logs(0)
        ngx.log(ngx.WARN, "no") ngx.log(ngx.ERR, "yes")
        ngx.say((require("ngx.errlog").get_logs()[3]:gsub("^.-stream", "stream")))
    } } }"#;

fn start() -> Server {
    Setup::new(CONF).start()
}

#[test]
fn lines_are_read_with_level_and_time() {
    let server = start();
    let text = server.get("/two").text();
    let lines: Vec<&str> = text.lines().collect();
    let [figures, first, second, rest] = lines[..] else { panic!("{text}") };
    assert_eq!((figures, rest), ("2 4 3 true", "0"));
    assert!(first.contains(" [error] ") && first.starts_with("20"), "{text}");
    assert!(
        first.contains("[lua] content_by_lua(nginx.conf:3):5: first, client: 127.0.0.1"),
        "{text}"
    );
    assert!(first.ends_with("host: \"localhost\"") && second.contains(" [crit] "), "{text}");
    let other = server.read("other.log");
    assert!(other.contains(first) && other.contains(second), "{other}");
    assert_eq!(
        server.get("/filtered").text(),
        "true 5 4 nil\nmissing \"level\" argument, bad log level: 9\n"
    );
    assert_eq!(server.get("/failed").status, 500);
    let after = server.get("/after").text();
    assert!(after.contains("attempt to perform arithmetic on a table value"), "{after}");
}

#[test]
fn the_oldest_lines_give_way_and_sessions_have_a_ring_of_their_own() {
    let server = start();
    assert_eq!(server.get("/flood").text(), "3 true 100 true\n");
    let text = String::from_utf8(server.on(1).raw(b"")).unwrap();
    assert!(text.starts_with("stream [lua] content_by_lua(nginx.conf:"), "{text}");
    assert!(text.contains(":3: yes, client: 127.0.0.1"), "{text}");
    assert!(server.get("/after").text().contains("stream [lua]"), "who writes does not matter");
}

#[test]
fn a_reload_begins_anew_and_without_the_directive_there_are_none() {
    let mut server = start();
    let got = |server: &Server| server.get("/after").text();
    assert_eq!(server.get("/failed").status, 500);
    server.replace_conf(&CONF.replace("lua_capture_error_log 4k;", ""));
    server.signal(Signal::Hup);
    expect_soon("the new configuration", || server.get("/after").status == 500);
    let conf = CONF.replace("lua_capture_error_log 4k;", "").replace(
        "location /after {",
        "location /why { content_by_lua_block { local e = require 'ngx.errlog'
            ngx.say(select(2, e.get_logs()), select(2, e.set_filter_level(3))) } } location /after {",
    );
    server.replace_conf(&conf);
    server.signal(Signal::Hup);
    expect_soon("the new configuration", || server.get("/why").status == 200);
    let why = "directive \"lua_capture_error_log\" is not set";
    assert_eq!(server.get("/why").text(), format!("{why}{why}\n"));
    server.replace_conf(CONF);
    server.signal(Signal::Hup);
    expect_soon("the first again", || server.get("/why").status == 404);
    assert!(!got(&server).contains("arithmetic"), "what another generation has kept is gone");
}

#[test]
fn sizes_are_checked() {
    for (size, why) in [
        ("3k", "invalid capture error log size \"3k\", minimum size is 4096"),
        ("x", "invalid value"),
        ("4k; lua_capture_error_log 4k", "is duplicate"),
    ] {
        let conf = format!("events {{}} http {{ lua_capture_error_log {size}; }}");
        let told = run_cli(&["-t"], &conf);
        assert!(told.code == 1 && told.stderr.contains(why), "{told:?}");
    }
}
