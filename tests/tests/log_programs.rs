//! Logs that programs read (Tengine's `pipe:COMMAND`): who is started, what it gets, and that neither its end
//! nor the server's costs a line or leaves anybody behind.

use std::path::Path;
use std::process::Command;
use weir_tests::{
    binary, expect_soon, is_alive, is_windows, signal, skip, with_shell, Server, Setup, Signal,
};

/// Notes its number, copies what it reads, and says when that is over.
const READER: &str = "echo begin $$ >> $0.said; cat >> $0.out; echo end $$ >> $0.said\n";
/// The same, and its number is that of what reads.
const PLAIN: &str = "echo begin $$ >> $0.said; exec cat >> $0.out\n";

const CONF: &str = r#"MAIN worker_processes 1; error_log %%DIR%%/error.log notice; events {} http { log_format l $request_uri;
    access_log "pipe:/bin/sh   %%DIR%%/reader" l; server { listen 127.0.0.1:%%PORT_0%%;
    location / { return 200 ok; } location /twice { access_log "pipe:/bin/sh %%DIR%%/reader " l;
    access_log %%DIR%%/file l; return 200 ok; } } }"#;

fn setup(main: &str, reader: &str) -> Setup {
    Setup::new(&CONF.replace("MAIN", main)).file("reader", reader)
}

fn numbers(server: &Server, word: &str) -> Vec<u32> {
    let said = server.read("reader.said");
    said.lines().filter_map(|l| l.strip_prefix(word)?.trim().parse().ok()).collect()
}

/// The program, once there have been so many.
fn program(server: &Server, count: usize) -> u32 {
    expect_soon("a program", || numbers(server, "begin").len() >= count);
    numbers(server, "begin")[count - 1]
}

fn exists(pid: u32) -> bool {
    if is_windows() {
        return is_alive(pid);
    }
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Asks for so many, and waits until they are in the program's file, each once and in order.
fn ask(server: &Server, from: usize, count: usize) {
    (from..from + count).for_each(|n| assert_eq!(server.get(&format!("/{n}")).text(), "ok"));
    expect_lines(server, from + count);
}

fn expect_lines(server: &Server, count: usize) {
    let lines = server.log_lines("reader.out", count);
    assert_eq!(lines, (0..count).map(|n| format!("/{n}")).collect::<Vec<_>>());
}

#[test]
fn one_program_reads_what_names_it() {
    for main in ["master_process on;", "master_process off;"] {
        let mut server = setup(main, READER).start();
        ask(&server, 0, 3);
        server.get("/twice");
        let pid = program(&server, 1);
        server.log_lines("reader.out", 4);
        server.log_lines("file", 1);
        assert!(server.children().contains(&pid), "{main}");
        server.signal(Signal::Usr1);
        server.expect_error("reopening logs");
        ask_again(&server);
        server.signal(Signal::Quit);
        assert_eq!(server.wait_exit(), Some(0));
        expect_soon("the program has ended", || numbers(&server, "end") == [pid]);
        assert_eq!(numbers(&server, "begin"), [pid], "{main}");
        assert_eq!(server.read("reader.out").lines().count(), 5);
    }
}

fn ask_again(server: &Server) {
    server.get("/5");
    server.log_lines("reader.out", 5);
}

/// Nothing of the server's is open there but a pipe, a way out and nowhere.
#[test]
fn a_program_is_given_three_descriptors() {
    const LIST: &str = "ls /proc/self/fd > $0.list; mv $0.list $0.out; exec cat > /dev/null\n";
    let server = setup("", LIST).start();
    server.log_lines("reader.out", 4);
    // This process may have inherited some for all that it starts.
    let setup = setup("", LIST);
    let started = Command::new("/bin/sh")
        .arg(setup.dir().join("reader"))
        .stdin(std::process::Stdio::null())
        .status();
    assert!(started.unwrap().success());
    let here = std::fs::read_to_string(setup.dir().join("reader.out")).unwrap();
    assert_eq!(server.read("reader.out"), here);
}

#[test]
fn a_test_starts_nothing_and_tells_what_cannot_be_started() {
    let setup = setup("", READER);
    let path = setup.dir().join("nginx.conf");
    let conf = CONF.replace("MAIN", "").replace("%%PORT_0%%", "0").replace("0;\n", "8080;\n");
    let conf = conf.replace("%%DIR%%", &setup.dir().display().to_string());
    std::fs::write(&path, with_shell(conf)).unwrap();
    let mut command = Command::new(binary());
    let out = command.args(["-t", "-p"]).arg(setup.dir()).arg("-c").arg(&path).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(!setup.dir().join("reader.said").exists());
    for (log, told) in [
        ("pipe:", "no command"),
        ("pipe:cat", "write the whole path"),
        ("pipe:/nosuch/program a", "open() \"pipe:/nosuch/program a\" failed (2: No such file"),
        ("pipe:/etc/passwd", "it cannot be executed"),
        ("pipe:rollback", "no file"),
        ("pipe:rollback a size=1", "invalid parameter \"size=1\""),
        ("pipe:rollback a interval=x", "invalid parameter \"interval=x\""),
        ("pipe:rollback a baknum=129", "between 1 and 128"),
    ] {
        for (before, after) in [("", "http { access_log \"LOG\"; }"), ("error_log \"LOG\";", "")] {
            let conf = format!("{before} events {{}} {after}").replace("LOG", log);
            let out = weir_tests::run_cli(&["-t"], &conf);
            assert!(out.code != 0 && out.stderr.contains(told), "{conf}: {}", out.stderr);
        }
    }
}

/// What was written while nobody read is there for the next.
#[test]
fn a_program_that_dies_is_started_again_and_reads_on() {
    for main in ["master_process on;", "master_process off;"] {
        let server = setup(main, PLAIN).start();
        ask(&server, 0, 2);
        let first = program(&server, 1);
        signal(first, Signal::Kill);
        server.expect_error(&format!("({first}) exited on signal 9, starting it again in 500 ms"));
        ask(&server, 2, 5);
        assert!(!exists(first), "reaped");
        let second = program(&server, 2);
        signal(second, Signal::Kill);
        server
            .expect_error(&format!("({second}) exited on signal 9, starting it again in 1000 ms"));
        ask(&server, 7, 5);
    }
}

/// A program that cannot be started is tried again with pauses, and costs no request.
#[test]
fn a_program_that_always_fails_is_no_storm() {
    let server = setup("", "exit 3\n").start();
    server.expect_error("exited with code 3, starting it again in 1000 ms");
    assert_eq!(server.get("/").text(), "ok");
    server.expect_error("exited with code 3, starting it again in 2000 ms");
    assert_eq!(server.error_log().matches("exited with code 3").count(), 3);
}

#[test]
fn a_reload_keeps_the_program_it_names_and_ends_others() {
    for main in ["master_process on;", "master_process off;"] {
        let mut server = setup(main, READER).start();
        ask(&server, 0, 2);
        let pid = program(&server, 1);
        let conf = CONF.replace("MAIN", main);
        let same = conf.replace("return 200 ok; } } }", "return 200 same; } } }");
        reload(&mut server, &same, "same");
        assert!(is_alive(pid) && numbers(&server, "begin") == [pid], "{main}");
        server.replace_conf("events { nosuch; }");
        server.signal(Signal::Hup);
        server.expect_error("unknown directive");
        assert!(is_alive(pid), "{main}");
        let before = server.read("reader.out").lines().count();
        let other = same.replace("%%DIR%%/reader", "%%DIR%%/other").replace("same;", "other;");
        server.write("other", READER);
        reload(&mut server, &other, "other");
        expect_soon("it finds the end", || numbers(&server, "end") == [pid]);
        expect_soon("it is reaped", || !exists(pid));
        assert!(server.read("reader.out").lines().count() >= before);
        server.log_lines("other.said", 1);
        let again = other.replace("%%DIR%%/other", "%%DIR%%/reader").replace("other;", "again;");
        reload(&mut server, &again, "again");
        assert_ne!(program(&server, 2), pid);
    }
}

fn reload(server: &mut Server, conf: &str, word: &str) {
    let peer = server.on(0);
    server.reload(conf, || peer.get("/twice").text() == word);
}

/// A program that reads no end of its input is told.
#[test]
fn a_program_that_stays_is_told_to_end() {
    let stays = "echo begin $$ >> $0.said; trap 'echo end $$ >> $0.said; exit' TERM; cat > $0.out\nwhile :; do sleep 0.1; done\n";
    // Where there are no signals it is ended, and says nothing of it.
    let (stays, says) = match is_windows() {
        true => ("echo begin $$ >> $0.said; cat > $0.out; sleep 1000\n", false),
        false => (stays, true),
    };
    let mut server = setup("", stays).start();
    server.get("/0");
    let pid = program(&server, 1);
    server.log_lines("reader.out", 1);
    let plain =
        CONF.replace("MAIN", "").replace("access_log \"pipe:/bin/sh   %%DIR%%/reader\" l;", "");
    let plain = plain
        .replace("access_log \"pipe:/bin/sh %%DIR%%/reader \" l;", "")
        .replace("200 ok", "200 no");
    reload(&mut server, &plain, "no");
    expect_soon("it is told to end", || {
        !exists(pid) && numbers(&server, "end") == if says { vec![pid] } else { Vec::new() }
    });
}

#[test]
fn a_program_that_does_not_read_holds_nobody() {
    let mut server = Setup::new(
        r#"worker_processes 1; error_log %%DIR%%/error.log; events {} http { keepalive_requests 10000;
        access_log "pipe:/bin/sh %%DIR%%/reader"; server { listen 127.0.0.1:%%PORT_0%%;
        location / { return 200 ok; } } }"#,
    )
    .file("reader", "echo begin $$ >> $0.said; exec sleep 100\n")
    .start();
    let pid = program(&server, 1);
    let mut client = server.connect();
    for n in 0..900 {
        assert_eq!(client.get(&format!("/{n}{}", "x".repeat(2500))).status, 200);
    }
    expect_soon("the log says what was lost", || {
        server.get("/");
        server.error_log().contains("were dropped")
    });
    drop(client);
    server.signal(Signal::Term);
    server.wait_exit();
    expect_soon("it does not outlive the server", || !is_alive(pid));
}

#[test]
fn a_serving_process_that_dies_takes_no_line_along() {
    let server = setup("", PLAIN).start();
    let pid = program(&server, 1);
    let Some(child) = server.children().into_iter().find(|c| *c != pid) else {
        return skip("no master");
    };
    ask(&server, 0, 3);
    signal(child, Signal::Kill);
    expect_soon("another serving process", || {
        server.children().iter().any(|c| *c != pid && *c != child)
    });
    ask(&server, 3, 3);
    assert!(is_alive(pid) && numbers(&server, "begin") == [pid]);
}

#[test]
fn a_master_that_dies_leaves_nobody_for_ever() {
    let server = setup("", READER).start();
    let pid = program(&server, 1);
    let Some(child) = server.children().into_iter().find(|c| *c != pid) else {
        return skip("no master");
    };
    ask(&server, 0, 3);
    server.signal(Signal::Kill);
    server.expect_error("the master process has died");
    ask(&server, 3, 3);
    signal(child, Signal::Quit);
    expect_soon("the program's input ends", || numbers(&server, "end") == [pid]);
    expect_lines(&server, 6);
}

#[test]
fn one_process_that_is_killed_leaves_nobody() {
    let server = setup("master_process off;", READER).start();
    ask(&server, 0, 3);
    server.signal(Signal::Kill);
    expect_soon("the program's input ends", || numbers(&server, "end") == [program(&server, 1)]);
}

#[test]
fn an_upgrade_has_its_own_program() {
    let main = "daemon on; pid %%DIR%%/the.pid;";
    let server = setup(main, READER).start();
    let (old, first) = (server.pid(), program(&server, 1));
    ask(&server, 0, 3);
    signal(old, Signal::Usr2);
    let second = program(&server, 2);
    let pid = || server.read("the.pid").trim().parse::<u32>().ok();
    expect_soon("the new program", || pid().is_some_and(|p| p != old));
    signal(old, Signal::Quit);
    expect_soon("the old one and its program have gone", || {
        !is_alive(old) && numbers(&server, "end") == [first]
    });
    ask(&server, 3, 3);
    signal(pid().unwrap(), Signal::Term);
    expect_soon("the new one too", || numbers(&server, "end") == [first, second]);
}

/// The error log tells of its own program, also of its end.
#[test]
fn an_error_log_may_be_a_program() {
    let mut server = Setup::new(
        r#"worker_processes 1; pipe_set_size 8k; error_log "pipe:/bin/sh %%DIR%%/reader" notice; events {} http { access_log off;
        server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; } }"#,
    )
    .file("reader", PLAIN)
    .start();
    let has = |server: &Server, text: &str| server.read("reader.out").contains(text);
    server.get("/nosuch");
    expect_soon("a line", || has(&server, "nosuch\" failed"));
    let pid = program(&server, 1);
    signal(pid, Signal::Kill);
    expect_soon("its end", || has(&server, &format!("({pid}) exited on signal 9")));
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    expect_soon("the last line", || has(&server, " exit\n"));
}
