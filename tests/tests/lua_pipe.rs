//! Lua: `ngx.pipe`, by which code starts programs, writes to them, reads from them and waits for them.

use weir_tests::{expect_soon, is_alive, is_windows, line_in_lua, Client, Server, Setup, Signal};

fn start(main: &str, block: &str, locations: &str) -> Server {
    let conf = format!(
        "{main} events {{}} error_log %%DIR%%/error.log debug; http {{ default_type text/plain; {block}\n\
         server {{ listen 127.0.0.1:%%PORT_0%%; {locations} }} }}"
    );
    Setup::new(&conf).start()
}

/// What a program writes, ends with, and is killed by.
#[test]
fn programs_are_talked_to_and_waited_for() {
    let line = line_in_lua(r#""printf 'a\r\nbcdef'; echo error >&2; exit 7""#);
    let server = start(
        "",
        "lua_socket_max_read_size 64k;",
        &r#"location /cat { content_by_lua_block {
            local proc = require "ngx.pipe".spawn({ "cat" })
            local text = ("x"):rep(1000000)
            local reader = ngx.thread.spawn(function()
                local n = 0
                repeat
                    local part, e = proc:stdout_read_any(100000)
                    n = n + #(part or "")
                until not part
                return n
            end)
            ngx.say(proc:write { text, "abc" }, " ", proc:write(12), " ", proc:shutdown("stdin"), " ", proc:write("x"))
            ngx.say(select(2, ngx.thread.wait(reader))) ngx.say(proc:wait()) ngx.say(proc:wait()) ngx.say(proc:kill(15))
            ngx.say(proc:stdout_read_line()) ngx.say(proc:shutdown("stdout")) } }
        location /sh { content_by_lua_block {
            local proc = require "ngx.pipe".spawn(LINE)
            ngx.say(proc:stdout_read_line(), "|", proc:stdout_read_bytes(2), "|", proc:stdout_read_bytes(0), "|", proc:stderr_read_line())
            ngx.say(proc:stdout_read_bytes(10)) ngx.say(#proc:stdout_read_all()) ngx.say(proc:stdout_read_line()) ngx.say(proc:wait())
            proc = require "ngx.pipe".spawn({ "sh", "-c", "echo $0 $A; echo b >&2", "name" }, { merge_stderr = true, environ = { "A=1=2" } })
            ngx.say(proc:stdout_read_all(), proc:stderr_read_all()) ngx.say(proc:shutdown("stderr")) ngx.say(proc:wait()) } }
        location /kill { content_by_lua_block {
            local proc = require "ngx.pipe".spawn({ "sleep", 1000 }, { wait_timeout = 20, stdout_read_timeout = 20 })
            ngx.say(proc:wait()) ngx.say(proc:stdout_read_all()) ngx.say(proc:kill(1000)) ngx.say(proc:kill(0)) ngx.say(proc:kill(15))
            proc:set_timeouts(nil, nil, nil, 0) ngx.say(proc:wait()) ngx.say(pcall(proc.kill, proc, "TERM")) } }
        location /full { content_by_lua_block {
            local proc = require "ngx.pipe".spawn({ "sleep", 1000 }, { write_timeout = 20 })
            ngx.say(proc:write(("x"):rep(100000)))
            local reader = ngx.thread.spawn(proc.stdout_read_all, proc)
            ngx.say(proc:stdout_read_line()) ngx.say(proc:shutdown("stdout")) ngx.say(select(2, ngx.thread.wait(reader)))
            local waiter = ngx.thread.spawn(proc.wait, proc)
            ngx.say(proc:wait()) ngx.thread.kill(waiter) proc:kill(9) ngx.say(proc:wait()) } }
        location /none { content_by_lua_block {
            local proc = require "ngx.pipe".spawn({ "no-such-program" })
            ngx.say(proc:stdout_read_all(), "|", proc:write("x")) ngx.say(proc:kill(9)) ngx.say(proc:wait()) } }
        location /endless { content_by_lua_block {
            ngx.say(#select(3, require "ngx.pipe".spawn({ "yes" }):stdout_read_all()) < 100000)
            ngx.say((select(2, require "ngx.pipe".spawn({ "yes" }):stdout_read_all()))) } }"#
            .replace("LINE", &line),
    );
    assert_eq!(
        server.get("/cat").text(),
        "1000003 2 true nilclosed\n1000005\ntrueexit0\nnilexited\nnilexited\nnilclosednil\nnilclosed\n"
    );
    assert_eq!(
        server.get("/sh").text(),
        "a|bc||errornilnil\nnilcloseddef\n0\nnilclosed\nfalseexit7\nname 1=2\nb\nnilmerged to stdoutnil\nnilmerged to stdout\ntrueexit0\n"
    );
    assert_eq!(
        server.get("/kill").text(),
        "niltimeoutnil\nniltimeout\nnilinvalid signal\ntrue\ntrue\nfalsesignal15\nfalsebad signal arg: number expected, got TERM\n"
    );
    assert_eq!(
        server.get("/full").text(),
        "niltimeout\nnilpipe busy readingnil\ntrue\nnilaborted\nnilpipe busy waiting\nfalsesignal9\n"
    );
    assert_eq!(server.get("/none").text(), "|nilclosed\nnilexited\nfalseexit1\n");
    server.expect_error("execvp() failed while executing no-such-program (2: No such file");
    assert_eq!(server.get("/endless").text(), "true\nmore than lua_socket_max_read_size\n");
}

/// The children of the serving process, whichever of its threads has started them.
fn programs(serving: u32) -> Vec<u32> {
    if is_windows() {
        return weir_tests::children(serving);
    }
    let tasks = std::fs::read_dir(format!("/proc/{serving}/task")).unwrap().flatten();
    let of_task = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
    let all: Vec<String> = of_task.map(Result::unwrap_or_default).collect();
    all.iter().flat_map(|text| text.split_whitespace()).map(|pid| pid.parse().unwrap()).collect()
}

fn serving(server: &Server) -> u32 {
    server.get("/pid").text().trim().parse().unwrap()
}

/// Asks for what goes on for long, and for the number of the program that it tells first.
fn begin(server: &Server, path: &str) -> (Client, u32) {
    let mut client = server.connect();
    client.send(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
    client.read_until(b"\r\n\r\n");
    let pid = String::from_utf8(client.read_until(b"\n")).unwrap();
    (client, pid.trim().parse().unwrap())
}

const LIVING: &str = r#"location /pid { return 200 $pid; }
    location /held { lua_http10_buffering off; lua_check_client_abort on; content_by_lua_block {
        local proc = require "ngx.pipe".spawn({ "sleep", 1000 }, { wait_timeout = 0 })
        ngx.say(proc:pid()) ngx.flush(true) proc:wait() } }
    location /left { content_by_lua_block { local proc = require "ngx.pipe".spawn({ "sleep", 1000 }) ngx.say(proc:pid()) } }
    location /collected { lua_http10_buffering off; content_by_lua_block {
        local pipe = require "ngx.pipe"
        do local proc = pipe.spawn({ "sleep", 1000 }) ngx.say(proc:pid()) proc = nil end
        collectgarbage() collectgarbage() pipe.spawn({ "true" }):wait() ngx.flush(true) ngx.sleep(1000) } }
    location /many { content_by_lua_block {
        local pipe, threads = require "ngx.pipe", {}
        for n = 1, MANY do threads[n] = ngx.thread.spawn(function() return select(3, pipe.spawn("exit " .. n):wait()) end) end
        local sum = 0
        for n = 1, MANY do sum = sum + select(2, ngx.thread.wait(threads[n])) end
        ngx.say(sum) } }
    location /too_many { content_by_lua_block {
        local all, proc, e = {}
        repeat proc, e = require "ngx.pipe".spawn({ "sleep", 1000 }) all[#all + 1] = proc until not proc
        ngx.say(e) } }
    location /timer { content_by_lua_block { ngx.timer.at(0, function()
        local proc = require "ngx.pipe".spawn({ "cat" }) proc:write("timed\n") ngx.log(ngx.ERR, proc:stdout_read_line()) end) } }
    location /phases { rewrite_by_lua_block { ngx.ctx.proc = require "ngx.pipe".spawn({ "cat" }) }
        access_by_lua_block { ngx.ctx.proc:write("over phases\n") } content_by_lua_block { ngx.say(ngx.ctx.proc:stdout_read_line()) }
        log_by_lua_block { ngx.log(ngx.ERR, select(2, pcall(ngx.ctx.proc.wait, ngx.ctx.proc))) } }"#;

/// A server with those; and what the numbers of many programs come to. Of wine's, one in some thousands does not begin.
fn living(main: &str) -> (Server, String) {
    let many = if is_windows() { 20 } else { 100 };
    let server = start(main, "", &LIVING.replace("MANY", &many.to_string()));
    (server, format!("{}\n", many * (many + 1) / 2))
}

/// Who is started goes with the request, however that ends, or when nobody has it; nothing stays behind.
#[test]
fn nobody_outlives_what_has_started_it() {
    for main in ["", "master_process off;"] {
        let (server, sum) = living(main);
        let left: u32 = server.get("/left").text().trim().parse().unwrap();
        expect_soon("who is left is killed", || !is_alive(left));
        let (client, pid) = begin(&server, "/held");
        assert!(is_alive(pid));
        drop(client);
        expect_soon("who is waited for goes with the client", || !is_alive(pid));
        let (_client, pid) = begin(&server, "/collected");
        expect_soon("who is collected is killed", || !is_alive(pid));
        assert_eq!(server.get("/many").text(), sum, "{main}");
        assert_eq!(server.get("/phases").text(), "over phasesnilnil\n");
        server.expect_error("API disabled in the context of log_by_lua*");
        server.get("/timer");
        server.expect_error("timed");
        // A thousand programs of wine's are too many for most machines.
        if !is_windows() {
            let too_many = "too many processes: there are 1024 already\n";
            assert_eq!(server.get("/too_many").text(), too_many);
        }
        let serving = serving(&server);
        expect_soon("no child is left", || programs(serving).is_empty());
        let before = server.descriptors();
        assert_eq!(server.get("/many").text(), sum);
        expect_soon("no descriptor is left", || server.descriptors() <= before);
    }
}

/// A worker that quits waits for the request, and a reload leaves it alone; a stop takes the program with it.
#[test]
fn programs_while_the_server_changes() {
    for main in ["", "master_process off;"] {
        let (mut server, sum) = living(main);
        let (_client, pid) = begin(&server, "/held");
        server.signal(Signal::Hup);
        server.expect_error("reconfiguring");
        assert_eq!(server.get("/many").text(), sum);
        assert!(is_alive(pid));
        server.signal(Signal::Quit);
        server.expect_error("gracefully shutting down");
        assert!(is_alive(pid) && server.is_running());
        server.signal(Signal::Term);
        assert_eq!(server.wait_exit(), Some(0));
        expect_soon("nobody outlives the server", || !is_alive(pid));
    }
}

/// A child has the signals, the CPUs and of the descriptors what a program expects.
#[test]
fn children_have_nothing_of_the_server() {
    let server = start(
        "worker_cpu_affinity auto; env FROM_CONF=yes;",
        "",
        r#"location / { content_by_lua_block {
            local function all(line) return (require "ngx.pipe".spawn(line):stdout_read_all()) end
            ngx.print(all("grep -E 'Sig(Blk|Ign)|Cpus_allowed_list' /proc/self/status; echo $FROM_CONF $NGINX; ls -l /proc/self/fd"))
            } }"#,
    );
    let text = server.get("/").text();
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = |text: &str, name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("{text}"))
            .trim()
            .to_owned()
    };
    let bits = |name: &str| u64::from_str_radix(&line(&text, name), 16).unwrap();
    assert_eq!(bits("SigBlk:"), 0);
    // The C library has two of its own.
    assert_eq!(bits("SigIgn:") & 0x7fff_ffff, 0);
    assert_eq!(line(&text, "Cpus_allowed_list:"), line(&own, "Cpus_allowed_list:"));
    assert!(text.contains("\nyes\n"), "{text}");
    for kind in ["socket:", "anon_inode", "error.log"] {
        assert!(!text.contains(kind), "{text}");
    }
}
