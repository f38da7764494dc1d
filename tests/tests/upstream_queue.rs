//! `queue`: requests that no server has room for wait for one.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use weir_tests::h2::H2;
use weir_tests::{expect_soon, run_cli, Next, Origin, Request, Server, Setup};

/// A server that answers each request once the test lets it.
struct Held {
    origin: Origin,
    go_on: Arc<(Mutex<usize>, Condvar)>,
}

impl Held {
    fn start() -> Held {
        let go_on = Arc::<(Mutex<usize>, Condvar)>::default();
        let gate = Arc::clone(&go_on);
        let origin = Origin::start(move |request, conn| {
            if request.target() == "/fails" {
                return Next::Close;
            }
            let mut left = gate.0.lock().unwrap();
            while *left == 0 {
                left = gate.1.wait(left).unwrap();
            }
            *left -= 1;
            drop(left);
            conn.reply("200 OK", "", request.target());
            Next::Keep
        });
        Held { origin, go_on }
    }

    fn let_answer(&self, n: usize) {
        *self.go_on.0.lock().unwrap() += n;
        self.go_on.1.notify_all();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.let_answer(1000);
    }
}

fn start(held: &Held, workers: usize, upstream: &str) -> Server {
    Setup::new(&format!(
        "worker_processes {workers}; error_log %%DIR%%/error.log info; events {{}} http {{
            upstream u {{ server %%ORIGIN%% max_conns=1; {upstream} }}
            server {{ listen 127.0.0.1:%%PORT_0%%; http2 on; location / {{ proxy_pass http://u; }}
                location /active {{ return 200 $connections_active; }} }} }}"
    ))
    .set("ORIGIN", held.origin.address())
    .start()
}

#[test]
fn requests_are_served_in_their_order() {
    let held = Held::start();
    let server = start(&held, 1, "queue 2 timeout=1h;");
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send_get(&format!("/{n}"));
        // One after the other: what is said on another connection is read behind it.
        server.get("/active");
    }
    held.origin.expect_requests(1);
    assert_eq!(server.get("/too-many").status, 502);
    for (n, client) in clients.iter_mut().enumerate() {
        held.let_answer(1);
        assert_eq!(client.response().text(), format!("/{n}"));
    }
    let asked = held.origin.requests();
    assert_eq!(asked.iter().map(Request::target).collect::<Vec<_>>(), ["/0", "/1", "/2"]);
    held.let_answer(1);
    assert_eq!(server.get("/there-is-room-again").status, 200);
}

#[test]
fn who_waits_too_long_or_goes_leaves_the_queue() {
    let held = Held::start();
    let server = start(&held, 1, "queue 1 timeout=1s;");
    let mut first = server.connect();
    first.send_get("/first");
    held.origin.expect_requests(1);
    assert_eq!(server.get("/late").status, 502);
    server.expect_error("timed out in queue of upstream while connecting to upstream");
    let mut gone = server.connect();
    gone.send_get("/gone");
    drop(gone);
    expect_soon("it is no longer counted", || server.get("/active").text() == "2");
    let mut next = server.connect();
    next.send_get("/next");
    server.get("/active");
    held.let_answer(2);
    assert_eq!(first.response().text(), "/first");
    assert_eq!(next.response().text(), "/next");
    assert_eq!(held.origin.requests().len(), 2);
}

#[test]
fn workers_share_the_queue_of_a_zone() {
    let held = Held::start();
    let server = start(&held, 2, "zone z 64k; queue 20;");
    let mut clients: Vec<_> = (0..16).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send_get("/"));
    held.origin.expect_requests(1);
    for n in 1..=16 {
        assert_eq!(held.origin.requests().len(), n, "one at a time");
        held.let_answer(1);
        if n < 16 {
            held.origin.expect_requests(n + 1);
        }
    }
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
}

#[test]
fn servers_that_were_counted_out_are_waited_for() {
    let origin = Origin::start(|request, conn| {
        if request.target() == "/bad" {
            return Next::Close;
        }
        conn.reply("200 OK", "", "good");
        Next::Close
    });
    let server = Setup::new(
        "worker_processes 1; events {} http {
            upstream u { server %%ORIGIN%% max_fails=1 fail_timeout=1s;
                server %%ORIGIN%% max_fails=1 fail_timeout=1s; queue 5 timeout=20s; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://u; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    assert_eq!(server.get("/bad").status, 502);
    assert_eq!(server.get("/").text(), "good", "once they are asked again");
}

#[test]
fn what_is_written_wrongly() {
    for (text, error) in [
        ("queue 0;", "invalid parameter \"0\""),
        ("queue 1 time=1s;", "invalid parameter \"time=1s\""),
        ("queue 1; queue 2;", "\"queue\" directive is duplicate"),
    ] {
        let conf = format!("events {{}} http {{ upstream u {{ server 127.0.0.1:1; {text} }} }}");
        let out = run_cli(&["-t"], &conf);
        assert!(out.stderr.contains(error), "{}", out.stderr);
    }
}

#[test]
fn the_time_in_the_queue_is_that_of_all_tries_together() {
    let (failing, busy) = (Held::start(), Held::start());
    let server = Setup::new(
        "worker_processes 1; events {} http {
            upstream u { server %%FAILING%% max_conns=1 fail_timeout=1h; server %%BUSY%% max_conns=1;
                queue 9 timeout=6s; }
            server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://u; }
                location /active { return 200 $connections_active; } } }",
    )
    .set("FAILING", failing.origin.address())
    .set("BUSY", busy.origin.address())
    .start();
    let mut first: Vec<_> = (0..2).map(|_| server.connect()).collect();
    first.iter_mut().for_each(|client| client.send_get("/first"));
    failing.origin.expect_requests(1);
    busy.origin.expect_requests(1);
    let (mut tried, mut other) = (server.connect(), server.connect());
    tried.send_get("/fails");
    // The time between them, and from the second to the failure, is what is tested.
    assert!(tried.is_silent(Duration::from_secs(2)));
    other.send_get("/other");
    assert!(other.is_silent(Duration::from_secs(2)));
    failing.let_answer(1);
    failing.origin.expect_requests(2);
    assert_eq!(tried.response().status, 502);
    assert!(other.is_silent(Duration::from_millis(1)), "the one that came later was over first");
    assert_eq!(other.response().status, 502);
}

#[test]
fn no_server_is_taken_for_who_went_with_the_one_before() {
    const WAITING: usize = 50;
    let held = Held::start();
    let server = start(&held, 1, "queue 100 timeout=1h;");
    let mut client = H2::connect(&server);
    for _ in 0..=WAITING {
        client.get("/");
    }
    held.origin.expect_requests(1);
    assert_eq!(server.get("/active").text(), "2");
    drop(client);
    let left = || server.error_log().matches("while waiting for an upstream server").count();
    expect_soon("all have left the queue", || left() == WAITING);
    assert_eq!(held.origin.requests().len(), 1);
}
