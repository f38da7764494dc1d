//! A reload of what stands at the main level: in force afterwards, or the log says what is not.

use std::os::unix::fs::MetadataExt;
use weir_tests::{expect_soon, skip, Server, Setup};

fn conf(main: &str, answer: &str) -> String {
    format!(
        "{main} error_log %%DIR%%/error.log notice; events {{}} http {{
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ return 200 {answer}; }} }} }}"
    )
}

/// A server that went from one configuration to the other.
fn reloaded(from: &str, to: &str) -> Server {
    let mut server = Server::start(&conf(from, "old"));
    let peer = server.on(0);
    server.reload(&conf(to, "new"), || peer.get("/").text() == "new");
    server
}

/// The number of a process that serves.
fn serving(server: &Server) -> u32 {
    server.children().last().copied().unwrap_or(server.pid())
}

fn proc(pid: u32, name: &str) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn is_root(server: &Server) -> bool {
    server.dir().metadata().unwrap().uid() == 0
}

#[test]
fn the_user_changes() {
    let server = reloaded("user root;", "user nobody nogroup;");
    if !is_root(&server) {
        return skip("not root");
    }
    let uid = || proc(serving(&server), "status").contains("Uid:\t65534");
    expect_soon("the serving process is nobody's", uid);
    expect_soon("the old one is gone", || server.children().len() == 1);
    assert_eq!(server.get("/").text(), "new");
}

#[test]
fn the_directory_and_the_priority_change() {
    let server = reloaded("", "working_directory /tmp; worker_priority 5;");
    if !is_root(&server) {
        return skip("not root");
    }
    expect_soon("another directory", || {
        let path = std::fs::read_link(format!("/proc/{}/cwd", serving(&server)));
        path.is_ok_and(|p| p.as_os_str() == "/tmp")
    });
}

#[test]
fn the_limit_of_open_files_changes() {
    let server = reloaded("", "worker_rlimit_nofile 7000;");
    expect_soon("the limit", || proc(serving(&server), "limits").contains("7000"));
}

#[test]
fn the_pid_file_moves() {
    let from = "pid %%DIR%%/one.pid;";
    let server = reloaded(from, "pid %%DIR%%/two.pid;");
    expect_soon("the new one", || server.read("two.pid").trim() == server.own_pid().to_string());
    expect_soon("the old one is gone", || !server.dir().join("one.pid").exists());
}

#[test]
fn what_needs_a_restart_is_named() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("nginx says nothing");
    }
    let server = reloaded("master_process on;", "master_process off;");
    server.expect_error("the new value of \"master_process\" is not in force");
}

#[test]
fn too_many_connections_for_the_open_files_are_warned_of() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("nginx looks at the limit it was started with");
    }
    let conf = "events { worker_connections 4000; } http {
        server { listen 127.0.0.1:%%PORT_0%%; return 200; } } error_log %%DIR%%/error.log warn;
        worker_rlimit_nofile 2000;";
    let server = Setup::new(conf).start();
    server.expect_error("4000 worker_connections exceed open file resource limit: 2000");
}

/// The limit is of each worker, though they are threads of one process.
#[test]
fn workers_do_not_share_one_workers_limit() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("nginx's workers are processes");
    }
    let server = Server::start(&conf("worker_processes 3; worker_rlimit_nofile 1500;", "ok"));
    expect_soon("three times the limit", || proc(serving(&server), "limits").contains("4500"));
    let mut command = std::process::Command::new(weir_tests::binary());
    let help = command.args(["help", "worker_rlimit_nofile"]).output().unwrap();
    let text = [help.stdout, help.stderr].concat();
    assert!(String::from_utf8_lossy(&text).contains("Of each worker"));
}
