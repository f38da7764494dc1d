//! Signals: reloading, reopening, stopping.

use std::sync::{mpsc, Mutex};
use std::time::Duration;
use weir_tests::h2::H2;
use weir_tests::{expect_soon, run_cli, skip, Next, Origin, Server, Setup, Signal, PATIENCE};

fn conf(answer: &str) -> String {
    format!(
        "events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log notice;
            location / {{ return 200 {answer}; }} }} }}"
    )
}

#[test]
fn hup_brings_the_new_configuration_and_loses_nothing() {
    let mut server = Server::start(&conf("old"));
    let peer = server.on(0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (answered, answers) = mpsc::channel();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let answered = answered;
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                let text = peer.get("/").text();
                assert!(text == "old" || text == "new", "{text}");
                // Nobody listens after the first.
                let _ = answered.send(());
            }
        });
        answers.recv_timeout(PATIENCE).unwrap();
        server.reload(&conf("new"), || peer.get("/").text() == "new");
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        load.join().unwrap();
    });
}

#[test]
fn hup_with_a_broken_configuration_changes_nothing() {
    let mut server = Server::start(&conf("old"));
    server.replace_conf("events {} http { nosuch; }");
    server.signal(Signal::Hup);
    server.expect_error("unknown directive \"nosuch\"");
    assert_eq!(server.get("/").text(), "old");
    assert!(server.is_running());
}

/// As programs look for it that read nginx's log.
#[test]
fn the_error_log_tells_who_has_sent_a_signal() {
    let mut server =
        Server::start(&conf("old").replace("events", "error_log %%DIR%%/error.log notice; events"));
    for (signal, name, action) in [
        (Signal::Hup, "1 (SIGHUP)", "reconfiguring"),
        (Signal::Usr1, "10 (SIGUSR1)", "reopening logs"),
        (Signal::Quit, "3 (SIGQUIT)", "shutting down"),
    ] {
        server.signal(signal);
        let told = || {
            let log = server.error_log();
            let from = log.split("[notice] ").filter_map(|line| line.split_once(": "));
            let said = from.filter_map(|(_, text)| {
                text.strip_prefix(&format!("signal {name} received from "))
            });
            let mut pids = said.filter_map(|text| text.split_once(&format!(", {action}\n")));
            pids.any(|(pid, _)| pid.parse::<u32>().is_ok_and(|pid| pid > 1))
        };
        expect_soon(&format!("a line about {name}"), told);
    }
    assert_eq!(server.wait_exit(), Some(0));
}

fn ends_while_it_reads(first_line: &str, signal: Signal) {
    if !run_cli(&["-v"], "").stderr.contains("(weir/") {
        return skip("nginx reads to the end before it looks at signals");
    }
    let locations: String =
        (0..40_000).map(|i| format!("location /l{i}/ {{ return 200; }}\n")).collect();
    let conf = |locations: &str| {
        format!(
            "{first_line} events {{}} error_log %%DIR%%/error.log notice;
            http {{ server {{ listen 127.0.0.1:%%PORT_0%%; {locations} }} }}"
        )
    };
    let mut server = Server::start(&conf(""));
    server.replace_conf(&conf(&locations));
    server.signal(Signal::Hup);
    server.expect_error("reconfiguring");
    server.signal(signal);
    assert_eq!(server.wait_exit(), Some(0));
    let log = server.error_log();
    assert!(log.contains("interrupted, the process is to end"), "{log}");
}

#[test]
fn a_long_reload_does_not_keep_a_process_from_ending() {
    ends_while_it_reads("master_process off;", Signal::Term);
}

#[test]
fn a_long_reload_does_not_keep_a_master_from_ending() {
    ends_while_it_reads("", Signal::Quit);
}

#[test]
fn hup_opens_new_ports_and_closes_old_ones() {
    let two = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%%;
        location / { return 200 two; } } }";
    let mut server = Server::start(&conf("one"));
    let kept = server.on(0);
    server.reload(two, || kept.get("/").text() == "two");
    let extra = server.port(1);
    assert_eq!(server.on(1).get("/").text(), "two");
    server.reload(&conf("back"), || kept.get("/").text() == "back");
    expect_soon("the port is closed", || {
        std::net::TcpStream::connect(("127.0.0.1", extra)).is_err()
    });
}

/// An origin that answers once it is told to, and how to tell it.
fn gated() -> (Origin, mpsc::Sender<()>) {
    let (go, gate) = mpsc::channel();
    let gate = Mutex::new(gate);
    let origin = Origin::start(move |_, conn| {
        let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
        conn.reply("200 OK", "", "finished");
        Next::Keep
    });
    (origin, go)
}

#[test]
fn quit_lets_requests_finish() {
    let (origin, go) = gated();
    let mut server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%O%%; } location /now { return 200 now; } } }",
    )
    .set("O", origin.address())
    .start();
    let mut idle = server.connect();
    idle.get("/now");
    let mut busy = server.connect();
    busy.send_get("/");
    origin.expect_requests(1);
    server.signal(Signal::Quit);
    assert!(idle.is_closed());
    let port = server.port(0);
    expect_soon("nobody listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(server.is_running());
    go.send(()).unwrap();
    let last = busy.response();
    assert_eq!((last.text().as_str(), last.header("Connection")), ("finished", Some("close")));
    assert_eq!(server.wait_exit(), Some(0));
}

#[test]
fn term_does_not_wait() {
    let (origin, _go) = gated();
    let mut server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://%%O%%; } } }",
    )
    .set("O", origin.address())
    .start();
    let mut busy = server.connect();
    busy.send_get("/");
    origin.expect_requests(1);
    server.signal(Signal::Term);
    assert_eq!(busy.read_to_end(), b"");
    assert_eq!(server.wait_exit(), Some(0));
}

#[test]
fn usr1_reopens_the_logs() {
    let server = Server::start(
        "events {} http { log_format u $uri; access_log %%DIR%%/access.log u;
            server { listen 127.0.0.1:%%PORT_0%%; return 200; } }",
    );
    server.get("/1");
    assert_eq!(server.log_lines("access.log", 1), ["/1"]);
    std::fs::rename(server.dir().join("access.log"), server.dir().join("access.log.1")).unwrap();
    server.get("/2");
    assert_eq!(server.log_lines("access.log.1", 2), ["/1", "/2"]);
    server.signal(Signal::Usr1);
    expect_soon("the log is reopened", || server.dir().join("access.log").exists());
    expect_soon("lines go to the new file", || {
        server.get("/3");
        server.read("access.log").starts_with("/3\n")
    });
}

#[test]
fn requests_in_flight_finish_on_the_old_configuration() {
    let (origin, go) = gated();
    let old = "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
        location / { proxy_pass http://%%O%%; add_header X-Conf old; } location /c { return 200 old; } } }";
    let mut server = Setup::new(old).set("O", origin.address()).start();
    let mut busy = server.connect();
    busy.send_get("/");
    origin.expect_requests(1);
    let peer = server.on(0);
    server.reload(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; location /c { return 200 new; } } }",
        || peer.get("/c").text() == "new",
    );
    go.send(()).unwrap();
    assert_eq!(busy.response().header("X-Conf"), Some("old"));
}

#[test]
fn a_shutdown_can_be_given_a_limit() {
    let (origin, _go) = gated();
    let mut server = Setup::new(
        "worker_shutdown_timeout 300ms; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%O%%; } } }",
    )
    .set("O", origin.address())
    .start();
    let mut busy = server.connect();
    busy.send_get("/");
    origin.expect_requests(1);
    server.signal(Signal::Quit);
    busy.set_patience(Duration::from_secs(4));
    assert_eq!(busy.read_to_end(), b"");
    assert_eq!(server.wait_exit(), Some(0));
}

#[test]
fn requests_that_worker_shutdown_timeout_ends_are_logged() {
    let origin = Origin::start_raw(|conn, _| {
        conn.wait_closed();
    });
    for version in ["1.1", "2"] {
        let mut server = Setup::new(
            "worker_shutdown_timeout 50ms; events {} http { log_format s $status; http2 on;
                access_log %%DIR%%/access.log s; server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://%%ORIGIN%%; } } }",
        )
        .set("ORIGIN", origin.address())
        .start();
        let before = origin.connections();
        let mut client = server.on(0).connect();
        let mut h2;
        let raw = match version {
            "2" => {
                h2 = H2::over(client);
                h2.greet(&[]);
                h2.get("/");
                &mut h2.raw
            }
            _ => {
                client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                &mut client
            }
        };
        expect_soon("the request at the origin", || origin.connections() > before);
        server.signal(Signal::Quit);
        assert_eq!(server.wait_exit(), Some(0));
        // nginx knows no status then; here it is that of a client who goes away.
        let status = server.log_lines("access.log", 1).remove(0);
        assert!(matches!(&status[..], "499" | "000"), "HTTP/{version}: {status}");
        raw.read_to_end();
    }
}
