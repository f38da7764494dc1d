//! `weir profile --lua`: which functions of Lua's the workers spend their time in.

use std::process::{Child, Command, Stdio};
use weir_tests::{binary, expect_soon, run_cli, Load, Peer, Server, Setup};

const CONF: &str = r#"worker_processes 2; pid the.pid; error_log e.log notice; events {} http { access_log off; lua_package_path "%%DIR%%/?.lua";
    server { listen 127.0.0.1:%%PORT_0%%;
    location /compiled { content_by_lua_block {
        local work = require "work"
        ngx.say(work.hot(1e6), work.cold())
    } }
    location /interpreted { access_by_lua_block {
        local work = require "work"
        for i = 1, 100 do work.cold() end
        ngx.say((work.slow(1e5)))
    } }
    location /in_c { content_by_lua_block {
        local text = ("x"):rep(3000)
        local found = text:find(".-b")
        ngx.say(found == nil)
    } }
    location /stuck { content_by_lua_block { os.execute("while ! test -e %%DIR%%/go; do sleep 0.05; done") ngx.say("done") } }
    location /spawned { content_by_lua_block {
        local work = require "work"
        ngx.thread.wait(ngx.thread.spawn(function() ngx.say(work.hot(1e6)) end))
    } }
    location /waits { content_by_lua_block { ngx.sleep(0.05) ngx.say("done") } } } }
stream { lua_package_path "%%DIR%%/?.lua"; server { listen 127.0.0.1:%%PORT_1%%; content_by_lua_block { ngx.say(require("work").hot(1e6)) } } }"#;

const WORK: &str = "local M = {}
function M.hot(n)
    local sum = 0
    for i = 1, n do sum = (sum + i * 7) % 1000003 end
    return sum
end
function M.slow(n)
    local sum = 0
    for i = 1, n do sum = (sum + i * 7) % 1000003 end
    return sum
end
jit.off(M.slow)
function M.cold()
    local t = {}
    for i = 1, 10 do t[i] = i end
    return #t
end
return M
";

fn start() -> Server {
    let server = Setup::new(CONF).file("work.lua", WORK).start();
    expect_soon("a pid file", || server.read("the.pid").ends_with('\n'));
    server
}

/// A client that asks again and again for a page, or in a session of `stream`.
fn load_on(server: &Server, path: Option<&str>) -> Load {
    let peer = Peer::Tcp(server.port(usize::from(path.is_none())));
    let request = path.map_or(String::new(), |path| {
        format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    });
    let load = Load::on(&peer, request.as_bytes(), 1, b"");
    expect_soon("answers", || load.answers() > 2);
    load
}

fn command(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(["profile", "--lua", "-c"]).arg(server.dir().join("nginx.conf"));
    command.arg("-p").arg(server.dir()).args(arguments).current_dir(server.dir());
    command.stderr(Stdio::piped());
    command
}

fn begin(server: &Server, arguments: &[&str]) -> Child {
    let before = log(server).matches("a profile of Lua").count();
    let child = command(server, arguments).spawn().unwrap();
    expect_soon("a profile", || log(server).matches("a profile of Lua").count() > before);
    child
}

fn log(server: &Server) -> String {
    std::fs::read_to_string(server.dir().join("e.log")).unwrap_or_default()
}

/// A second's profile, as stacks with their samples.
#[track_caller]
fn profile(server: &Server, arguments: &[&str]) -> Vec<(String, u64)> {
    let arguments =
        [&["--seconds", "1", "--frequency", "199", "-o", "out.txt"], arguments].concat();
    let output = command(server, &arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    folded(&server.read("out.txt"))
}

fn folded(text: &str) -> Vec<(String, u64)> {
    let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines.map(|(stack, count)| (stack.to_owned(), count.parse().unwrap())).collect()
}

/// The samples whose stack has that, and all.
fn samples(stacks: &[(String, u64)], part: &str) -> (u64, u64) {
    let with = stacks.iter().filter(|(stack, _)| stack.contains(part)).map(|s| s.1).sum();
    (with, stacks.iter().map(|s| s.1).sum())
}

#[track_caller]
fn refused(server: &Server, arguments: &[&str]) -> String {
    let output = command(server, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Most samples are of what is hot, by its phase, its callers and its line.
#[test]
fn the_hot_function_has_most_samples_compiled_and_interpreted() {
    let server = start();
    for (path, function, phase, line) in [
        ("/compiled", "hot", "content", 4),
        ("/interpreted", "slow", "access", 9),
        ("/spawned", "hot", "content", 4),
    ] {
        let _load = load_on(&server, Some(path));
        let stacks = profile(&server, &[]);
        let (hot, all) = samples(&stacks, &format!("{function} ("));
        assert!(all > 10 && hot * 10 > all * 6, "{path}: {stacks:?}");
        let (cold, _) = samples(&stacks, "cold (");
        assert!(cold * 10 < hot, "{path}: {stacks:?}");
        let (at_line, _) = samples(&stacks, &format!("work.lua:{line}"));
        assert!(at_line * 10 > hot * 9, "{path}: {stacks:?}");
        let (of_phase, _) = samples(&stacks, &format!(";{phase};"));
        assert!(of_phase * 10 > all * 9, "{path}: {stacks:?}");
    }
    let _load = load_on(&server, None);
    let stacks = profile(&server, &[]);
    let (hot, all) = samples(&stacks, ";stream content;content_by_lua(nginx.conf:");
    assert!(hot > 10 && hot * 10 > all * 6, "{stacks:?}");
}

/// What C does is the line's that has called it; what waits is nobody's.
#[test]
fn calls_of_c_count_and_waits_do_not() {
    let server = start();
    let load = load_on(&server, Some("/in_c"));
    let stacks = profile(&server, &[]);
    let (at, all) =
        samples(&stacks, "content_by_lua(nginx.conf:12);content_by_lua(nginx.conf:12):3");
    assert!(all > 10 && at * 10 > all * 9, "{stacks:?}");
    drop(load);
    let text = refused(&server, &["--seconds", "1", "-o", "no.svg"]);
    assert!(text.contains("there are no samples: no Lua code has run"), "{text}");
    assert!(!server.dir().join("no.svg").exists());
    let _load = load_on(&server, Some("/waits"));
    let output = command(&server, &["--seconds", "1", "-o", "few.txt"]).output().unwrap();
    let few = if output.status.success() { folded(&server.read("few.txt")) } else { Vec::new() };
    assert!(samples(&few, "").1 < 10, "{few:?}");
}

#[test]
fn not_even_what_never_comes_back_is_lost() {
    let server = start();
    let stuck = std::thread::spawn({
        let peer = server.on(0);
        move || peer.get("/stuck").text()
    });
    expect_soon("it", || log(&server).contains("calls os.execute"));
    let stacks = profile(&server, &[]);
    let (at, _) = samples(&stacks, "(a function of C's that has not returned);?");
    assert!(at > 100, "{stacks:?}");
    std::fs::write(server.dir().join("go"), "").unwrap();
    assert_eq!(stuck.join().unwrap(), "done\n");
}

#[test]
fn one_worker_a_flame_graph_and_bounds() {
    let server = start();
    let _load = [load_on(&server, Some("/compiled")), load_on(&server, Some("/compiled"))];
    let output = command(&server, &["--seconds", "1", "-o", "out.svg"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let svg = server.read("out.svg");
    assert!(
        svg.starts_with("<svg ") && svg.contains("hot (") && svg.contains("at 99 Hz of Lua"),
        "{svg}"
    );
    for (arguments, why) in [
        (["--seconds", "301"], "seconds is a number from 1 to 300"),
        (["--frequency", "1001"], "frequency is a number from 1 to 1000"),
        (["--worker", "2"], "there is no such worker"),
        (["-o", "no.pb.gz"], "a profile of Lua is a flame graph (-o FILE.svg) or text"),
    ] {
        let text = refused(&server, &[&["-o", "no.svg"], &arguments[..]].concat());
        assert!(text.contains(why), "{text}");
    }
    let help = run_cli(&["profile", "--help"], "");
    assert!(help.stdout.contains("--lua"), "{help:?}");
}

/// One at a time, and a reload in its midst is in it.
#[test]
fn two_at_once_and_a_reload_in_the_midst() {
    let mut server = start();
    let _load = load_on(&server, Some("/compiled"));
    let mut asking = begin(&server, &["--seconds", "4", "-o", "out.txt"]);
    let text = refused(&server, &["--seconds", "1", "-o", "two.txt"]);
    assert!(text.contains("a profile is being made already"), "{text}");
    let new = CONF.replace("work.hot(1e6), work.cold()", "work.slow(3e5)");
    server.replace_conf(&new);
    server.signal(weir_tests::Signal::Hup);
    assert!(asking.wait().unwrap().success(), "{}", log(&server));
    let stacks = folded(&server.read("out.txt"));
    assert!(samples(&stacks, "hot (").0 > 0 && samples(&stacks, "slow (").0 > 10, "{stacks:?}");
    // Who goes leaves room for the next.
    let mut asking = begin(&server, &["--seconds", "300", "-o", "never.txt"]);
    asking.kill().unwrap();
    asking.wait().unwrap();
    let again = || command(&server, &["--seconds", "1", "-o", "again.txt"]).output().unwrap();
    expect_soon("room for the next", || again().status.success());
    assert!(!log(&server).contains("[alert]"), "{}", log(&server));
}
