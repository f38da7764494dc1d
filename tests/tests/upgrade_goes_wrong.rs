//! Changes of the process that do not go as they should: told twice, taken back, too early, and
//! new processes that are slow, stopped or killed.

use crate::upgrade_busy::{end, next_pid, pid_of};
use std::process::Command;
use weir_tests::{children, expect_soon, is_alive, is_windows, signal, skip, wait_for};
use weir_tests::{Client, Server, Signal, PATIENCE};

const CONF: &str = "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log info;
    worker_shutdown_timeout 50s; events { worker_connections 4000; } http { access_log off;
    server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 $pid; }
        location /name { return 200 old; } } }";

fn is_nginx() -> bool {
    weir_tests::binary().ends_with("nginx")
}

/// The processes of a server whose main process is this one.
fn all_of(pid: u32) -> Vec<u32> {
    [vec![pid], children(pid)].concat()
}

/// Starts the new program and waits until it serves.
fn begin(server: &Server, old: u32) -> u32 {
    signal(old, Signal::Usr2);
    let new = next_pid(server, old);
    let mut c = server.connect();
    if pid_of(&mut c) != old {
        expect_soon("a serving process", || !children(new).is_empty());
    }
    new
}

#[test]
fn hup_after_winch_serves_the_new_configuration() {
    let mut server = Server::start(CONF);
    let [child, ..] = server.children()[..] else { return skip("no master") };
    server.signal(Signal::Winch);
    expect_soon("nobody serves", || !is_alive(child));
    // It waits in the socket's queue.
    let mut waits = server.connect();
    waits.send_get("/name");
    server.replace_conf(&CONF.replace("200 old", "200 new"));
    server.signal(Signal::Hup);
    assert_eq!(waits.response().text(), "new");
}

#[test]
fn a_second_upgrade_waits_for_the_end_of_the_first() {
    let server = Server::start(CONF);
    let old = server.pid();
    let new = begin(&server, old);
    for (n, pid) in [(1, old), (2, new)] {
        signal(pid, Signal::Usr2);
        let refused =
            || server.error_log().matches("the changing binary signal is ignored").count();
        expect_soon("it is refused", || refused() == n);
    }
    assert_eq!(server.get("/name").text(), "old");
    assert_eq!(server.read("the.pid").trim(), new.to_string());
    // Taken back, it can be begun again.
    for how in [Signal::Term, Signal::Quit, Signal::Kill] {
        let new: u32 = server.read("the.pid").trim().parse().unwrap();
        all_of(new).into_iter().for_each(|pid| signal(pid, how));
        expect_soon("the pid file is back", || server.read("the.pid").trim() == old.to_string());
        assert_eq!(server.get("/name").text(), "old", "{how:?}");
        assert!(server.dir().join("the.pid.oldbin").metadata().is_err());
        begin(&server, old);
    }
    let new: u32 = server.read("the.pid").trim().parse().unwrap();
    signal(new, Signal::Term);
    expect_soon("the last new one is gone", || !is_alive(new));
}

/// What the old one has is not touched by a new one that is taken back.
#[test]
fn connections_outlive_an_upgrade_that_is_taken_back() {
    let server = Server::start(CONF);
    let old = server.pid();
    let mut kept: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    let before: Vec<u32> = kept.iter_mut().map(pid_of).collect();
    let new = begin(&server, old);
    signal(new, Signal::Term);
    expect_soon("the pid file is back", || server.read("the.pid").trim() == old.to_string());
    let after: Vec<u32> = kept.iter_mut().map(pid_of).collect();
    assert_eq!(before, after);
}

/// The new one says nothing yet when the old one is told to end.
#[test]
fn a_new_process_that_is_slow_is_waited_for() {
    if is_nginx() {
        return skip("nginx closes them");
    }
    let mut server = Server::start(CONF);
    let old = server.pid();
    let mut kept: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    let before = pid_of(&mut kept[0]);
    kept.iter_mut().for_each(|c| assert_eq!(pid_of(c), before));
    server.signal(Signal::Usr2);
    let new = next_pid(&server, old);
    let all = all_of(new);
    all.iter().for_each(|pid| signal(*pid, Signal::Stop));
    server.signal(Signal::Quit);
    server.expect_error("gracefully shutting down");
    kept.iter_mut().for_each(|c| c.send_get("/"));
    all.iter().for_each(|pid| signal(*pid, Signal::Cont));
    for c in &mut kept {
        assert_eq!(c.response().header("Connection"), Some("keep-alive"));
    }
    assert_eq!(server.wait_exit(), Some(0));
    kept.iter_mut().for_each(|c| assert_ne!(pid_of(c), before));
    end(&server, new);
}

/// Who is told to end at once waits for nobody, and neither does who is told so while it waits.
#[test]
fn term_does_not_wait_for_a_new_process_that_is_slow() {
    if is_nginx() {
        return skip("nginx hands nothing on");
    }
    for first in [None, Some(Signal::Quit)] {
        let mut server = Server::start(CONF);
        let old = server.pid();
        let gate = server.dir().join("gate");
        assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
        let waits =
            format!("http {{ init_by_lua_block {{ io.open('{}'):close() }}", gate.display());
        server.replace_conf(&CONF.replace("http {", &waits));
        server.signal(Signal::Usr2);
        server.expect_error("start new binary process");
        if let Some(first) = first {
            server.signal(first);
            server.expect_error("gracefully shutting down");
        }
        server.signal(Signal::Term);
        let ended = wait_for(|| !server.is_running(), PATIENCE / 4);
        // Workers open it too.
        let _opened = std::fs::File::options().write(true).open(&gate).unwrap();
        let new = next_pid(&server, old);
        signal(new, Signal::Term);
        expect_soon("the new one is gone", || !is_alive(new));
        assert!(ended && !server.error_log().contains("does not end"), "{first:?}");
    }
}

/// More than go into the queue that nobody reads: those that stay are served, and told of the end
/// when it is clear that they must stay.
#[test]
fn a_new_process_that_is_stopped_does_not_hold_the_old_one() {
    if is_nginx() {
        return skip("nginx closes them");
    }
    let mut server = Server::start(CONF);
    let old = server.pid();
    // More than find room on the way to a process that does not read.
    let all = if is_windows() { 1300 } else { 600 };
    let mut kept: Vec<Client> = (0..all).map(|_| server.connect()).collect();
    let before = pid_of(&mut kept[0]);
    kept.iter_mut().for_each(|c| assert_eq!(pid_of(c), before));
    let new = begin(&server, old);
    // It takes connections before that.
    expect_soon("it serves", || pid_of(&mut server.connect()) != before);
    let processes = all_of(new);
    processes.iter().for_each(|pid| signal(*pid, Signal::Stop));
    server.signal(Signal::Quit);
    // It waits five seconds for the new one to read.
    let given_up = || server.error_log().contains("the new process takes no connections");
    assert!(wait_for(given_up, 4 * PATIENCE), "it waits on:\n{}", server.error_log());
    kept.iter_mut().for_each(|c| c.send_get("/"));
    assert_eq!(server.wait_exit(), Some(0));
    processes.iter().for_each(|pid| signal(*pid, Signal::Cont));
    let mut told = 0;
    for c in &mut kept {
        let answer = c.response();
        let stayed = answer.text() == before.to_string();
        assert_eq!(answer.header("Connection"), Some(if stayed { "close" } else { "keep-alive" }));
        told += usize::from(stayed);
    }
    assert!((1..all).contains(&told), "{told}");
    end(&server, new);
}

/// Another serving process takes its place, and the connections that had not come yet.
#[test]
fn a_new_process_that_is_killed_is_followed_by_another() {
    if is_nginx() {
        return skip("nginx closes them");
    }
    let mut server = Server::start(CONF);
    let old = server.pid();
    let mut kept: Vec<Client> = (0..600).map(|_| server.connect()).collect();
    kept.iter_mut().for_each(|c| assert_ne!(pid_of(c), 0));
    let new = begin(&server, old);
    let [child] = children(new)[..] else { return skip("no master") };
    // Some are in its queue when it dies.
    signal(child, Signal::Stop);
    server.signal(Signal::Quit);
    server.expect_error("gracefully shutting down");
    signal(child, Signal::Kill);
    assert_eq!(server.wait_exit(), Some(0));
    let next = pid_of(&mut server.connect());
    assert_ne!(next, child);
    kept.iter_mut().for_each(|c| assert_eq!(pid_of(c), next));
    end(&server, new);
}
