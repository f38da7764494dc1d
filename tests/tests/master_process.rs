//! The master and its serving process: neither waits for ever for the other.

use std::process::{Child, Command, Stdio};
use weir_tests::{expect_soon, is_alive, signal, skip, Client, Server, Setup, Signal};

const CONF: &str = "pid %%DIR%%/the.pid; error_log %%DIR%%/error.log notice; events {}
    http { server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 ok; } } }";

/// The one process that serves; `None` without root's rights, where the main process does.
fn serving(server: &Server) -> Option<u32> {
    match server.children()[..] {
        [pid] => Some(pid),
        _ => {
            skip("no master");
            None
        }
    }
}

#[test]
fn term_ends_a_serving_process_that_is_stopped() {
    let mut server = Server::start(CONF);
    let Some(child) = serving(&server) else { return };
    signal(child, Signal::Stop);
    server.signal(Signal::Term);
    assert_eq!(server.wait_exit(), Some(0));
    assert!(!is_alive(child));
}

/// Who is started while another still ends writes the pid file anew, and is to be found by it.
#[test]
fn the_pid_file_of_another_stays() {
    let mut server = Server::start(CONF);
    let file = server.dir().join("the.pid");
    assert_eq!(server.read("the.pid").trim().parse(), Ok(server.own_pid()));
    std::fs::write(&file, "1\n").unwrap();
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "1\n");
    // Its own goes.
    let mut server = Server::start(CONF);
    let file = server.dir().join("the.pid");
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    assert!(!file.exists());
}

#[test]
fn a_reload_does_not_wait_for_a_serving_process_that_is_stopped() {
    let mut server = Server::start(CONF);
    let Some(child) = serving(&server) else { return };
    signal(child, Signal::Stop);
    let mut long = "# more than fits into a socket\n".repeat(100_000);
    long.push_str(&CONF.replace("200 ok", "200 new"));
    server.replace_conf(&long);
    for _ in 0..3 {
        server.signal(Signal::Hup);
        server.expect_error("reconfiguring");
    }
    let log = server.dir().join("error.log");
    std::fs::rename(&log, server.dir().join("old.log")).unwrap();
    server.signal(Signal::Usr1);
    expect_soon("the master goes on", || log.exists());
    signal(child, Signal::Cont);
    expect_soon("the new configuration", || server.get("/").text() == "new");
    server.signal(Signal::Stop);
    server.signal(Signal::Cont);
    server.signal(Signal::Term);
    assert_eq!(server.wait_exit(), Some(0));
}

#[test]
fn without_its_master_the_serving_process_goes_on() {
    let mut server = Server::start(CONF);
    let Some(child) = serving(&server) else { return };
    let mut kept = server.connect();
    assert_eq!(kept.get("/").text(), "ok");
    server.signal(Signal::Kill);
    server.wait_exit();
    for _ in 0..20 {
        assert_eq!(server.get("/").text(), "ok");
        assert_eq!(kept.get("/").text(), "ok");
    }
    signal(child, Signal::Quit);
    expect_soon("the serving process ends", || !is_alive(child));
}

/// Starts the program once more, as an administrator does who finds no master.
fn start_again(server: &Server) -> Child {
    let mut command = Command::new(weir_tests::binary());
    command.arg("-p").arg(server.dir()).arg("-c").arg(server.dir().join("nginx.conf"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn a_new_master_takes_the_sockets_over() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("nginx finds the address in use");
    }
    let setup = Setup::new(&CONF.replace("%%PORT_0%%;", "%%PORT_0%%; listen unix:%%DIR%%/sock;"));
    let mut server = setup.start();
    let Some(child) = serving(&server) else { return };
    server.signal(Signal::Kill);
    server.wait_exit();
    server.expect_error("goes on serving");
    let mut kept: Vec<Client> = (0..30).map(|_| server.connect()).collect();
    kept.push(server.unix("sock").connect());
    kept.iter_mut().for_each(|c| assert_eq!(c.get("/").text(), "ok"));
    let mut again = start_again(&server);
    let pid = again.id();
    while is_alive(child) {
        assert_eq!(server.get("/").text(), "ok");
        assert!(again.try_wait().unwrap().is_none(), "{}", server.error_log());
    }
    assert_eq!(server.get("/").text(), "ok");
    assert_eq!(server.unix("sock").get("/").text(), "ok");
    for c in &mut kept {
        let answer = c.get("/");
        assert_eq!((answer.text(), answer.header("Connection")), ("ok".into(), Some("keep-alive")));
    }
    assert_eq!(server.read("the.pid").trim(), pid.to_string());
    signal(pid, Signal::Term);
    again.wait().unwrap();
}

#[test]
fn what_a_stopped_serving_process_does_not_read_does_not_pile_up() {
    let mut server = Server::start(CONF);
    let Some(child) = serving(&server) else { return };
    signal(child, Signal::Stop);
    let log = server.dir().join("error.log");
    let reopen = |server: &Server, n: usize| {
        std::fs::rename(&log, server.dir().join(format!("old.{n}"))).unwrap();
        server.signal(Signal::Usr1);
        expect_soon("the master opens its log", || log.exists());
    };
    // More than the link holds: from then on messages wait in the master.
    let mut long = "# more than fits into a socket\n".repeat(100_000);
    long.push_str(CONF);
    server.replace_conf(&long);
    server.signal(Signal::Hup);
    server.expect_error("reconfiguring");
    (0..5).for_each(|n| reopen(&server, n));
    let before = server.descriptors();
    (5..40).for_each(|n| reopen(&server, n));
    let after = server.descriptors();
    assert!(after < before + 10, "{before} descriptors, then {after}");
    signal(child, Signal::Cont);
    expect_soon("it goes on", || server.get("/").text() == "ok");
}

/// Root in a container may be without the right to raise limits.
#[test]
fn a_reload_without_the_right_to_raise_limits_changes_none() {
    let setup = Setup::new(CONF);
    let dir = setup.dir();
    let port = weir_tests::free_port();
    let log = || std::fs::read_to_string(dir.join("error.log")).unwrap_or_default();
    let conf = "daemon off; user nobody nogroup; pid DIR/the.pid; error_log DIR/error.log notice;
        events {} http { access_log off; server { listen 127.0.0.1:PORT; return 200 ok; } }";
    let conf = conf.replace("DIR", &dir.display().to_string()).replace("PORT", &port.to_string());
    std::fs::write(dir.join("nginx.conf"), conf).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource"]);
    let can = command.arg("true").stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    if !can {
        return skip("no setpriv, or not root");
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource"]);
    command.arg(weir_tests::binary()).arg("-p").arg(dir).arg("-c").arg(dir.join("nginx.conf"));
    let mut master = command.stderr(Stdio::null()).spawn().unwrap();
    expect_soon("it has started", || !weir_tests::children(master.id()).is_empty());
    for n in 1..3 {
        signal(master.id(), Signal::Hup);
        expect_soon("a reload", || log().matches("reconfiguring").count() >= n);
    }
    signal(master.id(), Signal::Term);
    master.wait().unwrap();
    assert!(!log().contains("setrlimit("), "{}", log());
}
