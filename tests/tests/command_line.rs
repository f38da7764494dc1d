//! The command line.

use weir_tests::{run_cli, Server};

#[test]
fn versions_and_help() {
    let version = run_cli(&["-v"], "");
    assert_eq!(version.code, 0);
    assert!(version.stderr.starts_with("nginx version: "), "{}", version.stderr);
    assert!(run_cli(&["-V"], "").stderr.contains("configure arguments:"));
    assert_eq!(run_cli(&["--help"], "").stderr, run_cli(&["-h"], "").stderr);
    assert_eq!(run_cli(&["--version"], "").stderr, run_cli(&["-v"], "").stderr);
    let help = run_cli(&["-h"], "");
    assert_eq!(help.code, 0);
    for option in [
        "-t ",
        "-T ",
        "-q ",
        "-s signal",
        "-p prefix",
        "-c filename",
        "-g directives",
        "-e filename",
    ] {
        assert!(help.stderr.contains(option), "{option}: {}", help.stderr);
    }
}

#[test]
fn mistakes_on_the_command_line() {
    let unknown = run_cli(&["-x"], "events {}");
    assert_eq!(unknown.code, 1);
    assert!(unknown.stderr.contains("invalid option: \"x\""), "{}", unknown.stderr);
    let signal = run_cli(&["-s", "nosuch"], "events {}");
    assert_eq!(signal.code, 1);
    assert!(signal.stderr.contains("invalid option: \"-s nosuch\""), "{}", signal.stderr);
}

/// A server is found by its configuration, of which nothing runs for that.
#[test]
fn nothing_runs_where_a_server_is_told_something() {
    let conf = "pid the.pid; events {} http { init_by_lua_block { error('it ran') } }";
    for word in ["stop", "quit", "reload", "reopen"] {
        let said = run_cli(&["-s", word], conf).stderr;
        assert!(said.contains("the.pid\" failed") && !said.contains("it ran"), "{word}: {said}");
    }
}

#[test]
fn global_directives_can_be_given() {
    let output = run_cli(&["-t", "-g", "worker_processes x;"], "events {}");
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("in command line"), "{}", output.stderr);
}

#[test]
fn a_running_server_is_signalled_by_its_pid_file() {
    let conf = "pid %%DIR%%/the.pid; events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 200 ok; } }";
    let mut server = Server::start(conf);
    weir_tests::expect_soon("a pid file", || !server.read("the.pid").is_empty());
    assert_eq!(server.read("the.pid"), format!("{}\n", server.pid()));
    let stop = || {
        let mut stop = std::process::Command::new(weir_tests::binary());
        stop.arg("-p").arg(server.dir()).arg("-c").arg(server.dir().join("nginx.conf"));
        stop.args(["-s", "stop"]).output().unwrap()
    };
    // A number below 0 would be a group of processes.
    std::fs::write(server.dir().join("the.pid"), format!("-{}\n", server.pid())).unwrap();
    let refused = stop();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("invalid PID number \"-"), "{said}");
    std::fs::write(server.dir().join("the.pid"), format!("{}\n", server.pid())).unwrap();
    let output = stop();
    assert!(output.status.success());
    assert_eq!(server.wait_exit(), Some(0));
    assert!(!server.dir().join("the.pid").exists());
}

#[test]
fn a_port_in_use_is_an_error() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let conf = format!("events {{}} http {{ server {{ listen 127.0.0.1:{port}; }} }}");
    assert_eq!(run_cli(&["-t"], &conf).code, 0, "a test does not need the port");
    let output = run_cli(&[], &conf);
    assert_eq!(output.code, 1);
    for error in [
        format!("[emerg] bind() to 127.0.0.1:{port} failed (98: Address already in use)"),
        "[emerg] still could not bind()".into(),
    ] {
        assert!(output.stderr.contains(&error), "{error}: {}", output.stderr);
    }
}
