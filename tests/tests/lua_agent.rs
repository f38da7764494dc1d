//! The privileged agent: one more worker, for code that has asked for it, as APISIX's exporter of metrics does.

use crate::upgrade_busy::next_pid;
use weir_tests::{expect_soon, is_alive, signal, Server, Setup, Signal};

const CONF: &str = r#"%%MAIN%% pid %%DIR%%/the.pid; worker_processes 2; error_log %%DIR%%/error.log info; events {}
    http { lua_shared_dict d 1m; access_log off; default_type text/plain; keepalive_timeout 0;
    init_by_lua_block {
        local process = require "ngx.process"
        of_init = process.type() .. " " .. tostring(select(2, process.enable_privileged_agent("x"))) .. " " .. tostring(process.enable_privileged_agent(%%CONNECTIONS%%)) }
    init_worker_by_lua_block {
        local process, d = require "ngx.process", ngx.shared.d
        d:incr("of " .. process.type() .. " %%ROUND%%", 1, 0)
        if process.type() == "privileged agent" then
            d:set("id", tostring(ngx.worker.id()) .. " " .. ngx.worker.count() .. " " .. ngx.get_phase())
            ngx.timer.every(0.01, function(early) if not early then d:incr("ticks %%ROUND%%", 1, 0) end end)
            ngx.timer.every(0.01, function() if d:get("leave") then d:delete("leave") process.signal_graceful_exit() end end)
        end }
    exit_worker_by_lua_block { if ngx.worker.id() == nil then ngx.log(ngx.WARN, "the agent of %%ROUND%% ends") end }
    server { listen 127.0.0.1:%%PORT_0%%;
        location /get { content_by_lua_block { ngx.print(ngx.shared.d:get(ngx.unescape_uri(ngx.var.arg_k))) } }
        location /of { content_by_lua_block { local process = require "ngx.process"
            ngx.print(of_init, ", ", process.type(), " ", tostring(process.get_master_pid() ~= nil), " ", select(2, process.enable_privileged_agent())) } }
        location /leave { content_by_lua_block { ngx.shared.d:set("leave", 1) } }
        location /worker { content_by_lua_block { require "ngx.process".signal_graceful_exit() ngx.print(ngx.worker.id()) } }
        location /pid { return 200 $pid; } } }"#;

fn conf(main: &str, round: usize) -> String {
    CONF.replace("%%MAIN%%", main).replace("%%ROUND%%", &round.to_string())
}

fn get(server: &Server, key: &str) -> String {
    server.get(&format!("/get?k={}", key.replace(' ', "%20"))).text()
}

fn ticks(server: &Server, round: usize) {
    let number = || get(server, &format!("ticks {round}")).parse::<u64>().unwrap_or(0);
    let before = number();
    expect_soon("it goes on", || number() > before);
}

#[test]
fn code_has_an_agent_that_asks_for_one() {
    let main = |round| conf("", round).replace("%%CONNECTIONS%%", "");
    let mut server = Setup::new(&main(1)).start();
    ticks(&server, 1);
    assert_eq!(get(&server, "id"), "nil 2 init_worker");
    assert_eq!(
        (get(&server, "of privileged agent 1"), get(&server, "of worker 1")),
        ("1".into(), "2".into())
    );
    assert_eq!(
        server.get("/of").text(),
        "master bad 'connections' argument: number expected and greater than 0 true, worker true API disabled in the current context"
    );
    // With the next configuration there is another, also where that does not want one.
    let at = server.port(0).to_string();
    let fresh =
        |conf: String| conf.replace("%%PORT_0%%", &at).replace("%%DIR%%", &server_dir(&server));
    let second = fresh(main(2));
    let third =
        fresh(conf("", 3).replace("process.enable_privileged_agent(%%CONNECTIONS%%)", "'none'"));
    server.replace_conf(&second);
    server.signal(Signal::Hup);
    ticks(&server, 2);
    server.expect_error("the agent of 1 ends");
    // It is begun again when it leaves, and when it does not.
    server.get("/leave");
    server.expect_error("privileged agent has ended, starting it again");
    expect_soon("it is there again", || get(&server, "of privileged agent 2") == "2");
    ticks(&server, 2);
    server.replace_conf(&third);
    server.signal(Signal::Hup);
    server.expect_error("the agent of 2 ends");
    assert_eq!(get(&server, "of privileged agent 3"), "nil");
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
}

fn server_dir(server: &Server) -> String {
    server.dir().display().to_string()
}

/// A worker that leaves is followed by another, and its process stays.
#[test]
fn a_worker_leaves_by_itself() {
    let server = Setup::new(&conf("", 1).replace("%%CONNECTIONS%%", "0")).start();
    server.expect_error(
        "0 worker_connection is not enough, privileged agent process cannot be spawned",
    );
    let pid = server.get("/pid").text();
    expect_soon("both have begun", || get(&server, "of worker 1") == "2");
    let id = server.get("/worker").text();
    server.expect_error(&format!("worker {id} has ended, starting it again"));
    expect_soon("there is another", || get(&server, "of worker 1") == "3");
    assert_eq!(server.get("/pid").text(), pid);
    assert_eq!(get(&server, "of privileged agent 1"), "nil");
}

/// Neither where there is to be one process, which ends when its code says so.
#[test]
fn one_process_has_no_agent() {
    let mut server =
        Setup::new(&conf("master_process off;", 1).replace("%%CONNECTIONS%%", "")).start();
    assert!(server.get("/of").text().starts_with("single "), "{}", server.get("/of").text());
    expect_soon("both workers have begun", || get(&server, "of single 1") == "2");
    server.get("/worker");
    assert_eq!(server.wait_exit(), Some(0));
    assert!(!server.error_log().contains("privileged agent"));
}

/// The process that takes the place of this one has one of its own.
#[test]
fn another_program_has_another_agent() {
    let server = Setup::new(&conf("daemon on;", 1).replace("%%CONNECTIONS%%", "")).start();
    ticks(&server, 1);
    let old = server.pid();
    signal(old, Signal::Usr2);
    next_pid(&server, old);
    signal(old, Signal::Quit);
    expect_soon("the old one ends", || !is_alive(old));
    server.expect_error("the agent of 1 ends");
    ticks(&server, 1);
}

/// What one of an older configuration does without an end ends all the same: jobs that one is to do were done twice.
#[test]
fn one_that_does_not_end_is_ended() {
    let conf = |round: usize| {
        format!(
            r#"worker_processes 1; error_log %%DIR%%/error.log info; events {{}} http {{ lua_shared_dict d 1m;
            init_by_lua_block {{ require "ngx.process".enable_privileged_agent(8) }}
            init_worker_by_lua_block {{ if require "ngx.process".type() == "privileged agent" then
                ngx.timer.at(0, function() while true do ngx.shared.d:incr("{round}", 1, 0) ngx.sleep(0.01) end end) end }}
            exit_worker_by_lua_block {{ if ngx.worker.id() == nil then ngx.log(ngx.WARN, "agent {round} ends") end }}
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ content_by_lua_block {{ ngx.print(ngx.shared.d:get(ngx.var.arg_k)) }} }} }} }}"#
        )
    };
    let mut server = Server::start(&conf(1));
    let turns = |server: &Server, round| {
        server.get(&format!("/?k={round}")).text().parse::<u64>().unwrap_or(0)
    };
    expect_soon("it works", || turns(&server, 1) > 3);
    server.replace_conf(&conf(2));
    server.signal(Signal::Hup);
    expect_soon("the new one works", || turns(&server, 2) > 3);
    server.expect_error("agent 1 ends");
    let (old, new) = (turns(&server, 1), turns(&server, 2));
    expect_soon("the new one goes on", || turns(&server, 2) > new + 5);
    assert_eq!(turns(&server, 1), old);
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
}
