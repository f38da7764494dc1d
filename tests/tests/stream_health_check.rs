//! `health_check`, `health_check_timeout` and `match` in stream.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;
use weir_tests::{expect_soon, free_port, run_cli, skip, Origin, Server, Setup};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/") || {
        skip("nginx has no health_check");
        false
    }
}

fn conf(servers: &str, check: &str, block: &str) -> String {
    format!(
        "worker_processes 2; error_log %%DIR%%/error.log info; events {{}} stream {{ {block}
            upstream u {{ zone u 64k; {servers} }}
            server {{ listen 127.0.0.1:%%PORT_0%%; proxy_pass u; {check} }} }}"
    )
}

/// What a session is told.
fn told(server: &Server) -> String {
    let mut client = server.on(0).connect();
    client.try_send(b"who\n");
    String::from_utf8_lossy(&client.read_to_end()).into_owned()
}

/// Says its name and the word for a session, and for the question `ping` what it is.
fn speaker(name: &'static str, well: &Arc<AtomicBool>) -> Origin {
    let well = Arc::clone(well);
    Origin::start_raw(move |conn, _| {
        let Some(line) = conn.read_until(b"\n") else { return };
        match &line[..] {
            b"ping\n" if well.load(Ordering::SeqCst) => conn.write("+PONG\r\n"),
            b"ping\n" => conn.write("-LOADING\r\n"),
            _ => conn.write(name),
        }
    })
}

#[test]
fn a_server_that_takes_no_connection_is_found_without_a_client() {
    if !is_weir() {
        return;
    }
    let a = speaker("a", &Arc::default());
    let servers = format!("server {}; server 127.0.0.1:%%PORT_1%%;", a.address());
    let server = Setup::new(&conf(&servers, "health_check interval=20ms;", "")).start();
    server.expect_error("connect() failed (111: Connection refused) while connecting to upstream, health check \"\" of peer");
    server
        .expect_error("peer is unhealthy while connecting to upstream, health check \"\" of peer");
    let all: Vec<String> = (0..4).map(|_| told(&server)).collect();
    assert_eq!(all, ["a"; 4]);
    assert!(!server.error_log().contains("client: 127.0.0.1, server"));
}

#[test]
fn what_a_server_says_is_judged() {
    if !is_weir() {
        return;
    }
    for expect in ["expect +PONG;", "expect ~ ^.PONG;", "expect ~* pong;", "expect \"\\x2bPONG\";"]
    {
        let well = Arc::new(AtomicBool::new(false));
        let (a, b) = (speaker("a", &well), speaker("b", &Arc::new(AtomicBool::new(true))));
        let servers = format!("server {}; server {};", a.address(), b.address());
        let block = format!("match redis {{ send \"ping\\x0a\"; {expect} }}");
        let check = "health_check interval=20ms mandatory passes=2 match=redis;";
        let server = Setup::new(&conf(&servers, check, &block)).start();
        server.expect_error(
            "peer is healthy while checking data from upstream, health check \"redis\"",
        );
        expect_soon("a was asked", || a.connections() > 2);
        let all: Vec<String> = (0..4).map(|_| told(&server)).collect();
        assert_eq!(all, ["b"; 4], "{expect}");
        well.store(true, Ordering::SeqCst);
        expect_soon("a is well", || told(&server) == "a");
    }
}

#[test]
fn a_silent_server_costs_no_more_than_the_timeout() {
    if !is_weir() {
        return;
    }
    let open = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, peak) = (Arc::clone(&open), Arc::clone(&most));
    let origin = Origin::start_raw(move |conn, _| {
        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        conn.wait_closed();
        now.fetch_sub(1, Ordering::SeqCst);
    });
    let check = "health_check_timeout 50ms; health_check interval=10ms match=m fails=2;";
    let servers = format!("server {};", origin.address());
    let server = Setup::new(&conf(&servers, check, "match m { expect x; }")).start();
    server.expect_error("peer is unhealthy while reading data from upstream, health check \"m\"");
    expect_soon("it is asked again", || origin.connections() > 4);
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[test]
fn datagrams_are_sent_and_answers_judged() {
    if !is_weir() {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let port = socket.local_addr().unwrap().port();
    let over = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(std::sync::Mutex::new(Vec::<Vec<u8>>::new()));
    let (end, log) = (Arc::clone(&over), Arc::clone(&seen));
    let thread = std::thread::spawn(move || {
        let mut buf = [0; 512];
        while !end.load(Ordering::SeqCst) {
            let Ok((n, from)) = socket.recv_from(&mut buf) else { continue };
            log.lock().unwrap().push(buf[..n].to_vec());
            let _ = socket.send_to(b"answer", from);
        }
    });
    let closed = free_port();
    let conf = format!(
        "error_log %%DIR%%/error.log info; events {{}} stream {{ match m {{ send q; expect ~ ^ans; }}
            upstream u {{ zone u 64k; server 127.0.0.1:{port}; server 127.0.0.1:{closed}; }}
            upstream v {{ zone v 64k; server 127.0.0.1:{port}; }}
            server {{ listen 127.0.0.1:%%PORT_0%% udp; proxy_pass u; health_check udp interval=20ms; }}
            server {{ listen 127.0.0.1:%%PORT_1%% udp; proxy_pass v;
                health_check udp interval=20ms match=m mandatory; }} }}"
    );
    let server = Setup::new(&conf).start();
    server.expect_error(&format!("peer is unhealthy while reading data from upstream, health check \"\" of peer 127.0.0.1:{closed}"));
    server.expect_error(&format!("peer is healthy while checking data from upstream, health check \"m\" of peer 127.0.0.1:{port}"));
    let has = |text: &[u8]| seen.lock().unwrap().iter().any(|s| s == text);
    assert!(has(b"nginx health check") && has(b"q"));
    assert!(!server.error_log().contains(&format!("\"\" of peer 127.0.0.1:{port}")));
    over.store(true, Ordering::SeqCst);
    thread.join().unwrap();
}

#[test]
fn what_cannot_be_checked_is_refused() {
    if !is_weir() {
        return;
    }
    let server = "server 127.0.0.1:1;";
    for (conf, text) in [
        (conf(server, "health_check match=x;", ""), "unknown match \"x\""),
        (conf(server, "health_check uri=/;", ""), "invalid parameter \"uri=/\""),
        (
            conf(server, "health_check; health_check;", ""),
            "\"health_check\" directive is duplicate",
        ),
        (conf(server, "health_check persistent;", ""), "\"persistent\" without \"mandatory\""),
        (conf(server, "", "match m { status 200; }"), "invalid \"status\" in \"match\""),
        (conf(server, "", "match m { send \"\\xzz\"; }"), "invalid \\x"),
        (conf(server, "health_check;", "").replace("zone u 64k;", ""), "to be in shared memory"),
    ] {
        let output = run_cli(&["-t"], &conf);
        assert!(output.code == 1 && output.stderr.contains(text), "{text}: {}", output.stderr);
    }
}
