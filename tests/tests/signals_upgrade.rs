//! A new binary takes over from a running one, which must be a daemon: one whose parent still
//! runs takes itself for the new one of two and refuses.

use weir_tests::{expect_soon, Origin, Server, Setup, Signal};

const CONF: &str =
    "daemon on; pid %%DIR%%/the.pid; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
    location / { return 200 ok; } } }";

fn pid_in(server: &Server, file: &str) -> Option<u32> {
    server.read(file).trim().parse().ok()
}

#[test]
fn usr2_then_quit_hands_over() {
    let mut server = Server::start(CONF);
    let old = server.pid();
    server.signal(Signal::Usr2);
    expect_soon("the new one writes its pid", || {
        pid_in(&server, "the.pid").is_some_and(|pid| pid != old)
            && pid_in(&server, "the.pid.oldbin") == Some(old)
    });
    let new = pid_in(&server, "the.pid").unwrap_or(0);
    assert_eq!(server.get("/").text(), "ok");
    server.signal(Signal::Winch);
    assert_eq!(server.get("/").text(), "ok");
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    assert_eq!(server.get("/").text(), "ok");
    assert_eq!(pid_in(&server, "the.pid"), Some(new));
    weir_tests::signal(new, Signal::Term);
    expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
}

/// `-s upgrade`: a signal, the wait for the new one, another signal.
#[test]
fn one_command_hands_over() {
    if weir_tests::binary().ends_with("nginx") {
        return weir_tests::skip("nginx has no such command");
    }
    let mut server = Server::start(CONF);
    let old = server.pid();
    let mut kept = server.connect();
    assert_eq!(kept.get("/").text(), "ok");
    let ask = || {
        let mut command = std::process::Command::new(weir_tests::binary());
        command.arg("-p").arg(server.dir()).arg("-c").arg(server.dir().join("nginx.conf"));
        let output = command.args(["-s", "upgrade"]).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // Of one that runs, which is to end first; of one that was killed, which cannot.
    let left = |pid: u32| {
        std::fs::write(server.dir().join("the.pid.oldbin"), format!("{pid}\n")).unwrap();
    };
    left(old);
    let (is_done, said) = ask();
    assert!(!is_done && said.contains("is to end first"), "{said}");
    left(i32::MAX as u32);
    let (is_done, said) = ask();
    assert!(is_done && said.contains("has taken the place of"), "{said}");
    let new = pid_in(&server, "the.pid").unwrap_or(old);
    assert_ne!(new, old);
    assert_eq!(kept.get("/").text(), "ok");
    assert_eq!(server.wait_exit(), Some(0));
    weir_tests::signal(new, Signal::Term);
    expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
}

#[test]
fn an_upgrade_can_be_taken_back() {
    let server = Server::start(CONF);
    let old = server.pid();
    server.signal(Signal::Usr2);
    expect_soon("the new one writes its pid", || {
        pid_in(&server, "the.pid").is_some_and(|pid| pid != old)
    });
    let new = pid_in(&server, "the.pid").unwrap_or(0);
    weir_tests::signal(new, Signal::Quit);
    expect_soon("the old one has its pid file back", || pid_in(&server, "the.pid") == Some(old));
    assert_eq!(server.get("/").text(), "ok");
}

/// HUP brings the old program back at once, however long its last request takes.
#[test]
fn an_upgrade_is_taken_back_while_old_requests_last() {
    let origin = Origin::start_raw(|conn, _| drop(conn.read_until(b"never")));
    let server = Setup::new(
        "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log notice; events {}
         http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { return 200 ok; } location /long { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let mut long = server.connect();
    long.send_get("/long");
    expect_soon("it is asked", || origin.connections() == 1);
    let old = server.pid();
    server.signal(Signal::Usr2);
    expect_soon("the new one writes its pid", || {
        pid_in(&server, "the.pid").is_some_and(|pid| pid != old)
    });
    let new = pid_in(&server, "the.pid").unwrap_or(0);
    assert_eq!(server.get("/").text(), "ok");
    server.signal(Signal::Winch);
    // Of two signals that wait, the lower number is told first.
    server.expect_error("gracefully shutting down");
    server.signal(Signal::Hup);
    weir_tests::signal(new, Signal::Quit);
    expect_soon("the old one has its pid file back", || pid_in(&server, "the.pid") == Some(old));
    assert_eq!(server.get("/").text(), "ok");
    assert!(long.is_silent(std::time::Duration::from_millis(10)));
}

/// Who started it and reads what it says does not wait for ever.
#[test]
fn a_daemon_keeps_nothing_of_its_starter() {
    let server = Server::start(CONF);
    let fds = std::fs::read_dir(format!("/proc/{}/fd", server.pid()));
    let Ok(fds) = fds else { return weir_tests::skip("there is no /proc") };
    let open: Vec<_> = fds.flatten().filter_map(|e| std::fs::read_link(e.path()).ok()).collect();
    assert!(!open.contains(&server.dir().join("stderr")), "{open:?}");
}

/// What the environment says is not believed: numbers that are no listening sockets are left alone.
#[test]
fn a_wrong_list_of_sockets_does_no_harm() {
    for list in ["-1", "0;1;2;", "7;7;999999;", "x;-5;99999999999999999999;"] {
        let server =
            Setup::new(&CONF.replace("daemon on", "daemon off")).env("NGINX", list).start();
        assert_eq!(server.get("/").text(), "ok", "NGINX={list}");
    }
}
