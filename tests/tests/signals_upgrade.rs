//! A new binary takes over from a running one, which must be a daemon: one whose parent still
//! runs takes itself for the new one of two and refuses.

use weir_tests::{expect_soon, Origin, Peer, Server, Setup, Signal};

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
    let other = Server::start(CONF);
    left(other.pid());
    let (is_done, said) = ask();
    assert!(!is_done && said.contains("is to end first"), "{said}");
    let go_on = |before: u32| {
        let (is_done, said) = ask();
        assert!(is_done && said.contains("has taken the place of"), "{said}");
        pid_in(&server, "the.pid").filter(|new| *new != before).expect("another program")
    };
    left(i32::MAX as u32);
    let new = go_on(old);
    assert_eq!(kept.get("/").text(), "ok");
    expect_soon("the old one is gone", || !weir_tests::is_alive(old));
    // Of one that could not give it its first name again, and has written another.
    left(new);
    let new = go_on(new);
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

/// Who has started a program to take its place says so: one that died at once leaves another parent, which is none.
#[test]
fn a_parent_is_not_taken_for_the_program_before() {
    use std::os::fd::AsRawFd;
    if weir_tests::is_windows() {
        return weir_tests::skip("sockets are not told of by the environment there");
    }
    let refused = "the changing binary signal is ignored";
    let own = std::process::id();
    for (before, is_asked_to_wait) in [(own, true), (own + 1, false)] {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&socket).set_cloexec(false).unwrap();
        let port = socket.local_addr().unwrap().port();
        let conf = CONF
            .replace("daemon on", "error_log %%DIR%%/error.log info; daemon off")
            .replace("%%PORT_0%%", &port.to_string());
        let setup = Setup::new(&conf).env("NGINX", &format!("{};", socket.as_raw_fd()));
        let server = setup.env("WEIR_PREDECESSOR", &before.to_string()).start();
        // The socket listens before the program does.
        assert_eq!(Peer::Tcp(port).get("/").text(), "ok");
        drop(socket);
        server.signal(Signal::Usr2);
        if is_asked_to_wait {
            server.expect_error(refused);
            continue;
        }
        server.expect_error("start new binary process");
        let old = server.pid();
        let new = || pid_in(&server, "the.pid").filter(|pid| *pid != old);
        expect_soon("the new program serves", || new().is_some());
        assert!(!server.error_log().contains(refused));
        weir_tests::signal(new().unwrap(), Signal::Term);
        expect_soon("it is gone", || pid_in(&server, "the.pid") == Some(old));
    }
}
