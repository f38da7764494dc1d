//! What bursts of requests leave of the connections to servers: more than `keepalive` says only for a
//! moment, in which the next burst finds them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use weir_tests::{
    expect_soon, skip, tls, wait_for, Client, Conn, Dns, Origin, Server, Setup, Signal, PATIENCE,
};

/// Requests at the same time, and connections that are to be kept.
const BURST: usize = 24;
const KEPT: usize = 4;

fn is_nginx() -> bool {
    weir_tests::binary().ends_with("nginx")
}

#[derive(Default)]
struct Seen {
    /// Connections that are open, and requests of each connection there was.
    open: AtomicUsize,
    requests: Mutex<Vec<usize>>,
}

/// Answers `/burst` only when it has been asked so many times at once, `/held` when that is allowed,
/// anything else at once; closes its connections only by itself where it is asked for `/last`.
struct Held {
    origin: Origin,
    seen: Arc<Seen>,
    hold: Arc<Barrier>,
}

impl Held {
    fn start() -> Held {
        let (seen, hold) = (Arc::<Seen>::default(), Arc::new(Barrier::new(2)));
        let (count, held, together) = (Arc::clone(&seen), Arc::clone(&hold), Barrier::new(BURST));
        let origin = Origin::start_raw(move |conn, _| {
            count.open.fetch_add(1, Ordering::SeqCst);
            let n = answer_all(conn, &together, &held);
            count.requests.lock().unwrap().push(n);
            count.open.fetch_sub(1, Ordering::SeqCst);
        });
        Held { origin, seen, hold }
    }

    fn open(&self) -> usize {
        self.seen.open.load(Ordering::SeqCst)
    }
}

/// How many requests the connection has carried.
fn answer_all(conn: &mut Conn, together: &Barrier, held: &Barrier) -> usize {
    let mut n = 0;
    while let Some(head) = conn.read_until(b"\r\n\r\n") {
        n += 1;
        let asked = |path: &str| head.windows(path.len()).any(|w| w == path.as_bytes());
        match () {
            () if asked(" /held ") => drop(held.wait()),
            () if asked(" /burst ") || asked(" /last ") => drop(together.wait()),
            () => {}
        }
        conn.reply("200 OK", "", "ok");
        if asked(" /last ") {
            break;
        }
    }
    n
}

const LOCATION: &str = "proxy_http_version 1.1; proxy_set_header Connection '';";

fn conf(upstream: &str) -> String {
    format!(
        "events {{ worker_connections 256; }} http {{
            log_format t '$status $upstream_addr'; access_log %%DIR%%/access.log t;
            upstream u {{ server %%ORIGIN%%; {upstream} }}
            server {{ listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
                location / {{ {LOCATION} proxy_pass http://u; }} }} }}"
    )
}

fn start(upstream: &str, held: &Held) -> Server {
    Setup::new(&conf(upstream)).set("ORIGIN", held.origin.address()).start()
}

fn clients(server: &Server) -> Vec<Client> {
    (0..BURST).map(|_| server.connect()).collect()
}

#[track_caller]
fn burst(clients: &mut [Client], path: &str) {
    clients.iter_mut().for_each(|c| c.send_get(path));
    assert!(clients.iter_mut().all(|c| c.response().status == 200));
}

/// nginx: only what is kept, and as many connects as there are requests above it.
#[test]
fn a_burst_finds_the_connections_of_the_one_before() {
    if is_nginx() {
        return skip("nginx closes at once what is above the number");
    }
    for upstream in ["keepalive 4;", "keepalive 4 local;", "keepalive 1; least_conn; zone z 64k;"] {
        let held = Held::start();
        let server = start(upstream, &held);
        let mut clients = clients(&server);
        burst(&mut clients, "/burst");
        assert_eq!(held.origin.connections(), BURST, "{upstream}");
        // On a busy machine one may come too late.
        expect_soon("a burst without a connect", || {
            let before = held.origin.connections();
            burst(&mut clients, "/burst");
            held.origin.connections() == before
        });
    }
}

/// Clients and servers on a busy machine are not heard of for so long.
const PAUSE: Duration = Duration::from_millis(250);

#[test]
fn a_pause_is_no_reason_to_close_them() {
    if is_nginx() {
        return skip("nginx closes at once what is above the number");
    }
    let held = Held::start();
    let server = start("keepalive 4;", &held);
    let mut clients = clients(&server);
    burst(&mut clients, "/burst");
    expect_soon("a burst behind a pause without a connect", || {
        let before = held.origin.connections();
        std::thread::sleep(PAUSE);
        burst(&mut clients, "/burst");
        held.origin.connections() == before
    });
}

#[test]
fn when_all_is_quiet_just_so_many_are_kept() {
    let held = Held::start();
    let server = start("keepalive 4;", &held);
    let mut clients = clients(&server);
    for _ in 0..5 {
        burst(&mut clients, "/burst");
    }
    // Long before `keepalive_timeout`.
    let settled = wait_for(|| held.open() == KEPT, PATIENCE);
    assert!(settled, "{} are open", held.open());
    let before = held.origin.connections();
    for client in clients.iter_mut().take(2 * KEPT) {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!((held.origin.connections(), held.open()), (before, KEPT));
}

#[test]
fn none_carries_more_requests_than_it_may() {
    let held = Held::start();
    let server = start("keepalive 4; keepalive_requests 2;", &held);
    let mut clients = clients(&server);
    for _ in 0..6 {
        burst(&mut clients, "/burst");
    }
    drop(server);
    expect_soon("all are closed", || held.open() == 0);
    let requests = held.seen.requests.lock().unwrap();
    assert_eq!(requests.iter().sum::<usize>(), 6 * BURST);
    assert!(requests.iter().all(|n| *n <= 2), "{requests:?}");
}

/// What cannot be repeated is sent on none of them, and what can is not sent twice.
#[test]
fn what_the_server_has_closed_is_not_used_again() {
    let held = Held::start();
    let server = start("keepalive 4;", &held);
    let mut clients = clients(&server);
    burst(&mut clients, "/last");
    expect_soon("the server has closed all", || held.open() == 0);
    for client in &mut clients {
        client.send(b"POST /burst HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    }
    assert!(clients.iter_mut().all(|c| c.response().status == 200));
    let once = format!("200 {}", held.origin.address());
    assert_eq!(server.log_lines("access.log", 2 * BURST), vec![once; 2 * BURST]);
}

/// Also while a request goes on that keeps the worker from ending.
#[test]
fn a_server_that_ends_closes_them_at_once() {
    let held = Held::start();
    let mut server = start("keepalive 4;", &held);
    let mut slow = server.connect();
    slow.send_get("/held");
    expect_soon("it has come", || held.open() == 1);
    let mut clients = clients(&server);
    burst(&mut clients, "/burst");
    server.signal(Signal::Quit);
    let closed = wait_for(|| held.open() == 1, PATIENCE);
    assert!(closed, "{} are open", held.open());
    held.hold.wait();
    assert_eq!(slow.response().status, 200);
    assert_eq!(server.wait_exit(), Some(0));
    expect_soon("the last is closed", || held.open() == 0);
}

/// Also while a request goes on that began before.
#[test]
fn a_reload_without_the_upstream_closes_them_at_once() {
    for keepalive in ["keepalive 4;", "keepalive 4 local;"] {
        let held = Held::start();
        let mut server = start(keepalive, &held);
        let mut slow = server.connect();
        slow.send_get("/held");
        expect_soon("it has come", || held.open() == 1);
        let mut clients = clients(&server);
        burst(&mut clients, "/burst");
        let other = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 200 new; } }";
        let port = server.on(0);
        server.reload(other, || port.get("/").text() == "new");
        let closed = wait_for(|| held.open() == 1, PATIENCE);
        assert!(closed, "{keepalive}: {} are open", held.open());
        held.hold.wait();
        assert_eq!(slow.response().status, 200);
        expect_soon("the last is closed", || held.open() == 0);
    }
}

/// The clients that need room come to that port, where so many descriptors more are to be had.
fn they_give_way_to(port: usize, more: usize) {
    const OTHERS: usize = 16;
    let (held, other) = (Held::start(), Held::start());
    let stream = "stream { server { listen 127.0.0.1:%%PORT_1%%; proxy_pass %%OTHER%%; } } http {";
    let conf = |limit: &str| {
        let text = conf("keepalive 4;")
            .replace("events", &format!("master_process off; {limit} events"))
            .replace("http {", stream)
            .replace(
                "location / {",
                "location /other { proxy_pass http://%%OTHER%%; } location / {",
            );
        let setup = Setup::new(&text).set("ORIGIN", held.origin.address());
        setup.set("OTHER", other.origin.address())
    };
    let unlimited = conf("").start();
    assert_eq!(unlimited.get("/").status, 200);
    // With a connection to a server, and a client's that may just be closing.
    let at_rest = unlimited.descriptors();
    drop(unlimited);
    let limit = at_rest + BURST + KEPT + 2 * OTHERS + more;
    let server = conf(&format!("worker_rlimit_nofile {limit};")).start();
    let mut first = clients(&server);
    for _ in 0..5 {
        burst(&mut first, "/burst");
        let at = server.on(port);
        let mut others: Vec<Client> = (0..OTHERS).map(|_| at.connect()).collect();
        others.iter_mut().for_each(|c| c.send_get("/other"));
        assert!(others.iter_mut().all(|c| c.response().status == 200), "{}", server.error_log());
        drop(others);
        expect_soon("they are gone", || server.descriptors() <= at_rest + BURST + KEPT);
    }
    let log = server.error_log();
    assert!(!log.contains("accept4") && !log.contains("socket()"), "{log}");
}

#[test]
fn they_give_way_where_descriptors_run_out() {
    they_give_way_to(0, 0);
}

/// Each session takes two descriptors: they run out at the client's once, at the server's once.
#[test]
fn they_give_way_to_streams_too() {
    they_give_way_to(1, 0);
    they_give_way_to(1, 1);
}

/// The servers of the last are found by name.
const KINDS: &str = "events { worker_connections 1024; } http { resolver %%DNS%% ipv6=off;
    ssl_certificate %%DIR%%/own.crt; ssl_certificate_key %%DIR%%/own.key;
    upstream tls { server 127.0.0.1:%%PORT_1%%; keepalive 4; }
    upstream h2 { server 127.0.0.1:%%PORT_2%%; keepalive 4; }
    upstream live { zone z 64k; server a.test:%%PORT_3%% resolve; keepalive 4; }
    server { listen 127.0.0.1:%%PORT_0%%; proxy_http_version 1.1; proxy_set_header Connection '';
        location /tls/ { proxy_pass https://tls/; }
        location /h2/ { proxy_http_version 2; proxy_pass http://h2/; }
        location /live/ { proxy_pass http://live/; } }
    server { listen 127.0.0.1:%%PORT_1%% ssl; listen 127.0.0.1:%%PORT_2%%; http2 on;
        listen 127.0.0.1:%%PORT_3%%;
        add_header X-C $connection; location / { proxy_pass http://%%ORIGIN%%; } } }";

#[test]
fn connections_of_all_kinds_are_found_again() {
    if is_nginx() {
        return skip("nginx closes at once what is above the number");
    }
    let (held, dns, pair) = (Held::start(), Dns::start(), tls::self_signed("localhost"));
    dns.set_ip("a.test", 60, std::net::Ipv4Addr::LOCALHOST);
    let setup = Setup::new(KINDS).set("ORIGIN", held.origin.address()).set("DNS", dns.address());
    let server = setup.file("own.crt", &pair.cert).file("own.key", &pair.key).start();
    expect_soon("the name is known", || server.get("/live/").status == 200);
    for path in ["/tls/burst", "/h2/burst", "/live/burst"] {
        let mut clients = clients(&server);
        let mut used = || -> BTreeSet<String> {
            clients.iter_mut().for_each(|c| c.send_get(path));
            let answers = clients.iter_mut().map(Client::response);
            answers.map(|a| a.header("X-C").unwrap_or_default().to_owned()).collect()
        };
        let mut before = used();
        assert_eq!(before.len(), BURST, "{path}");
        expect_soon("a burst without a connect", || {
            let now = used();
            let all_known = now.is_subset(&before);
            before.extend(now);
            all_known
        });
    }
}

/// nginx closes all.
#[test]
fn a_reload_takes_them_along_and_keeps_just_so_many() {
    if is_nginx() {
        return skip("in nginx the new workers begin without connections");
    }
    let held = Held::start();
    let mut server = start("keepalive 4;", &held);
    let mut slow = server.connect();
    slow.send_get("/held");
    expect_soon("it has come", || held.open() == 1);
    let mut clients = clients(&server);
    burst(&mut clients, "/burst");
    let port = server.on(0);
    let newer = conf("keepalive 4;")
        .replace("%%ORIGIN%%", &held.origin.address())
        .replace("location / {", "location /new { return 200 new; } location / {");
    server.reload(&newer, || port.get("/new").text() == "new");
    held.hold.wait();
    assert_eq!(slow.response().status, 200);
    // The one of the request that began before the reload goes over too.
    let settled = wait_for(|| held.open() == KEPT, PATIENCE);
    assert!(settled, "{} are open", held.open());
    let before = held.origin.connections();
    assert!(clients.iter_mut().all(|c| c.get("/").status == 200));
    assert_eq!((held.origin.connections(), held.open()), (before, KEPT));
}
