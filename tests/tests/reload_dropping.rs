//! Nothing is dropped while configurations and processes change under load: every request gets its
//! answer, and no kept connection is closed by the server. (nginx cuts idle kept connections with
//! each reload, and under `reuseport` resets what waits in the queues of workers that go.)

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use weir_tests::{expect_soon, Origin, Server, Setup, Signal, PATIENCE};

const RELOADS: usize = 20;

/// How an exchange ended.
#[derive(Debug, PartialEq)]
enum Answer {
    /// Answered, and the connection stays open.
    Kept,
    /// Answered, with the word that no more will be.
    Last,
    /// Closed without an answer, or with a wrong one.
    None,
}

/// What went wrong, and how much went right.
#[derive(Default)]
struct Tally {
    stop: AtomicBool,
    answered: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Tally {
    /// Counts an exchange that should have ended in one of these ways; whether it did.
    fn count(&self, what: &str, good: &[Answer], result: std::io::Result<Answer>) -> bool {
        let is_good = result.as_ref().is_ok_and(|a| good.contains(a));
        match is_good {
            true => drop(self.answered.fetch_add(1, Ordering::Relaxed)),
            false => self.wrong.lock().unwrap().push(format!("{what}: {result:?}")),
        }
        is_good
    }

    /// Requests on connections of their own, one after another.
    fn fresh(&self, port: u16) {
        while !self.stop.load(Ordering::Relaxed) {
            let result = connect(port).and_then(|mut c| ask(&mut c, true));
            self.count("fresh", &[Answer::Last], result);
        }
    }

    /// Requests on many kept connections in turn.
    fn kept(&self, port: u16) {
        self.kept_with(port, &[Answer::Kept]);
    }

    /// The same, where the server may end a connection if it says so.
    fn kept_until_told(&self, port: u16) {
        self.kept_with(port, &[Answer::Kept, Answer::Last]);
    }

    fn kept_with(&self, port: u16, good: &[Answer]) {
        let mut all: Vec<TcpStream> = (0..16).map(|_| connect(port).unwrap()).collect();
        while !self.stop.load(Ordering::Relaxed) {
            for c in &mut all {
                let result = ask(c, false);
                let stays = matches!(result, Ok(Answer::Kept));
                self.count("kept", good, result);
                if !stays {
                    *c = connect(port).unwrap();
                }
            }
        }
    }

    /// Runs the load beside `work`, and fails if anything was lost.
    fn during(&self, port: u16, work: impl FnOnce()) {
        self.during_loads(port, &[Tally::fresh, Tally::kept], work);
    }

    fn during_loads(&self, port: u16, loads: &[fn(&Tally, u16)], work: impl FnOnce()) {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        std::thread::scope(|scope| {
            let _stop = Stop(&self.stop);
            for load in loads.iter().chain(loads) {
                scope.spawn(|| load(self, port));
            }
            work();
        });
        let answered = self.answered.load(Ordering::Relaxed);
        let wrong = self.wrong.lock().unwrap();
        let some = &wrong[..wrong.len().min(5)];
        assert!(wrong.is_empty(), "{} of {answered} went wrong: {some:#?}", wrong.len());
        assert!(answered > 100, "only {answered} requests");
    }
}

fn connect(port: u16) -> std::io::Result<TcpStream> {
    let c = TcpStream::connect(("127.0.0.1", port))?;
    c.set_read_timeout(Some(PATIENCE))?;
    Ok(c)
}

/// One request whose answer has a body of eight bytes.
fn ask(c: &mut TcpStream, last: bool) -> std::io::Result<Answer> {
    let more = if last { "Connection: close\r\n" } else { "" };
    c.write_all(format!("GET /n HTTP/1.1\r\nHost: a\r\n{more}\r\n").as_bytes())?;
    let mut seen = Vec::new();
    let mut buf = [0; 4096];
    loop {
        let n = weir_tests::read(c, &mut buf)?;
        seen.extend_from_slice(&buf[..n]);
        if let Some(at) = seen.windows(4).position(|w| w == b"\r\n\r\n") {
            if seen.len() == at + 12 {
                let ok = seen.starts_with(b"HTTP/1.1 200 ");
                let told = seen.windows(17).any(|w| w == b"Connection: close");
                return Ok(match (ok, told) {
                    (false, _) => Answer::None,
                    (true, true) => Answer::Last,
                    (true, false) => Answer::Kept,
                });
            }
        }
        if n == 0 {
            return Ok(Answer::None);
        }
    }
}

fn conf(workers: usize, options: &str, turn: usize) -> String {
    format!(
        "worker_processes {workers}; error_log %%DIR%%/error.log notice; events {{}}
         http {{ keepalive_requests 100000000; server {{ listen 127.0.0.1:%%PORT_0%% {options};
            root %%DIR%%; location /n {{ return 200 {turn:08}; }} }} }}"
    )
}

/// Reloads many times with these options in turn, and another number of workers each time.
fn reload_with(main: &str, options: [&str; 2]) {
    let conf = |workers, options, turn| format!("{main} {}", conf(workers, options, turn));
    let mut server = Server::start(&conf(4, options[0], 0));
    let port = server.port(0);
    Tally::default().during(port, || {
        for turn in 1..=RELOADS {
            let text = conf([1, 4, 2, 3][turn % 4], options[turn / 2 % 2], turn);
            let peer = server.on(0);
            server.reload(&text, || peer.get("/n").text() == format!("{turn:08}"));
        }
    });
    assert!(!server.error_log().contains("emerg"), "{}", server.error_log());
    assert!(worker_threads(&server) <= 4, "workers that rest are taken back");
}

/// The worker threads of the serving process; 0 where workers are no threads.
fn worker_threads(server: &Server) -> usize {
    let pid = children(server.pid()).first().copied().unwrap_or(server.pid());
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let name = |t: std::fs::DirEntry| std::fs::read_to_string(t.path().join("comm"));
    let names = tasks.flatten().filter_map(|t| name(t).ok());
    names.filter(|n| n.starts_with("worker ")).count()
}

#[test]
fn workers_come_and_go_at_a_shared_socket() {
    reload_with("", ["", ""]);
}

#[test]
fn workers_come_and_go_with_sockets_of_their_own() {
    reload_with("", ["reuseport", "reuseport"]);
}

#[test]
fn reuseport_comes_and_goes() {
    reload_with("", ["reuseport", ""]);
}

#[test]
fn reuseport_comes_and_goes_without_a_master() {
    reload_with("master_process off;", ["", "reuseport"]);
}

/// How many sockets listen on a port.
fn listening(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!(":{port:04X} ");
    table.lines().filter(|l| l.contains(&local) && l.contains(" 0A ")).count()
}

#[test]
fn sockets_of_workers_that_went_are_closed_in_the_end() {
    let mut server = Server::start(&conf(4, "reuseport", 0));
    let (peer, port) = (server.on(0), server.port(0));
    assert_eq!(listening(port), 4);
    server.reload(&conf(2, "reuseport", 1), || peer.get("/n").text() == "00000001");
    assert_eq!(listening(port), 4);
    expect_soon("two are left", || listening(port) == 2);
    Tally::default().during(port, || {
        server.reload(&conf(3, "reuseport", 2), || peer.get("/n").text() == "00000002");
        assert_eq!(listening(port), 3);
    });
    server.reload(&conf(3, "", 3), || peer.get("/n").text() == "00000003");
    expect_soon("one is left", || listening(port) == 1);
}

#[test]
fn what_waits_at_an_address_that_goes_is_answered() {
    let two = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%%;
        location /n { return 200 00000000; } } }";
    let mut server = Server::start(two);
    let (peer, port) = (server.on(0), server.port(1));
    // Connections are made and used until they are refused; none is reset.
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while start.elapsed() < PATIENCE {
                let Ok(mut c) = connect(port) else { return };
                match ask(&mut c, true) {
                    Ok(Answer::Last) => {}
                    other => wrong.lock().unwrap().push(format!("{other:?}")),
                }
            }
            wrong.lock().unwrap().push("the port is still open".into());
        });
        server.reload(&conf(1, "", 1), || peer.get("/n").text() == "00000001");
    });
    assert_eq!(wrong.into_inner().unwrap(), Vec::<String>::new());
}

#[test]
fn tunnels_and_downloads_live_through_reloads() {
    const BIG_BYTES: usize = 24 << 20;
    let origin = Origin::start_raw(|conn, _| {
        if conn.read_until(b"\r\n\r\n").is_none() {
            return;
        }
        conn.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: e\r\nConnection: Upgrade\r\n\r\n");
        while conn.read_until(b"ping").is_some() {
            conn.write("pong");
        }
    });
    let tunnel = format!(
        "location /tunnel {{ proxy_pass http://{}; proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }} }} }}",
        origin.address()
    );
    let with_tunnel = |workers, options, turn| {
        let text = conf(workers, options, turn);
        text.trim_end().strip_suffix("} }").unwrap().to_string() + &tunnel
    };
    let mut server =
        Setup::new(&with_tunnel(4, "reuseport", 0)).file("big", vec![b'x'; BIG_BYTES]).start();
    let mut tunnels: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for t in &mut tunnels {
        t.send(b"GET /tunnel HTTP/1.1\r\nHost: a\r\nUpgrade: e\r\nConnection: Upgrade\r\n\r\n");
        t.read_until(b"\r\n\r\n");
    }
    let mut download = connect(server.port(0)).unwrap();
    download.write_all(b"GET /big HTTP/1.0\r\n\r\n").unwrap();
    let mut some = vec![0; 100_000];
    let mut got = 0;
    for turn in 1..=RELOADS {
        let text = with_tunnel([1, 4, 2][turn % 3], ["", "reuseport"][turn % 2], turn);
        let peer = server.on(0);
        server.reload(&text, || peer.get("/n").text() == format!("{turn:08}"));
        for t in &mut tunnels {
            t.send(b"ping");
            assert_eq!(t.read_until(b"pong"), b"pong");
        }
        got += weir_tests::read(&mut download, &mut some).unwrap();
    }
    let mut rest = Vec::new();
    got += download.read_to_end(&mut rest).unwrap();
    assert!(got > BIG_BYTES && got < BIG_BYTES + 1000, "{got}");
}

fn pid_in(server: &Server, file: &str) -> Option<u32> {
    server.read(file).trim().parse().ok()
}

#[test]
fn a_new_binary_takes_over_under_load() {
    for (options, workers) in [("", 2), ("reuseport", 3), ("reuseport", 1), ("reuseport", 4)] {
        // nginx closes its kept connections with an answer, not between two.
        let conf = |workers| {
            let conf = conf(workers, options, 0);
            let conf =
                conf.replace("keepalive_requests", "keepalive_min_timeout 3s; keepalive_requests");
            format!("daemon on; pid %%DIR%%/the.pid; {conf}")
        };
        let mut server = Server::start(&conf(2));
        let (old, port) = (server.pid(), server.port(0));
        let mut new = 0;
        let tally = Tally::default();
        let work = || {
            server.replace_conf(&conf(workers));
            server.signal(Signal::Usr2);
            expect_soon("the new one writes its pid", || {
                new = pid_in(&server, "the.pid").unwrap_or(old);
                new != old
            });
            server.signal(Signal::Quit);
            assert_eq!(server.wait_exit(), Some(0));
        };
        let kept = match weir_tests::binary().ends_with("nginx") {
            true => Tally::kept_until_told,
            false => Tally::kept,
        };
        tally.during_loads(port, &[Tally::fresh, kept], work);
        weir_tests::signal(new, Signal::Term);
        expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
    }
}

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    list.unwrap_or_default().split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

#[test]
fn a_killed_serving_process_is_followed_by_another_at_once() {
    for options in ["", "reuseport"] {
        let text = conf(2, options, 0);
        let server = Server::start(&format!("master_process on; {text}"));
        let mut killed = Vec::new();
        for _ in 0..3 {
            server.get("/n");
            let Some(&child) = server.children().first() else {
                return weir_tests::skip("not root, so there is no master");
            };
            assert!(!killed.contains(&child), "the same process again");
            weir_tests::signal(child, Signal::Kill);
            killed.push(child);
            expect_soon("it is dead", || !weir_tests::children(server.own_pid()).contains(&child));
            // Some wait in the sockets' queues before anyone serves them; none is lost.
            let mut waiting: Vec<_> = (0..50).map(|_| connect(server.port(0)).unwrap()).collect();
            for c in &mut waiting {
                c.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
                assert_eq!(ask(c, true).unwrap(), Answer::Last);
            }
        }
    }
}
