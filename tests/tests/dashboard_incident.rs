//! The dashboard, `weir top`, `weir doctor` and the error log in incidents: what is wrong has its name.

use serde_json::Value;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use weir_tests::{binary, expect_soon, signal, Browser, Server, Setup, Signal};

const CONF: &str = "worker_processes 1; error_log error.log;
events {} http { access_log off;
    upstream pay { zone pay 64k; server 127.0.0.1:%%PORT_1%% max_conns=1; queue 1 timeout=30s; }
    upstream none { zone none 64k; state none.state; }
    server { listen 127.0.0.1:%%PORT_0%%; server_name shop;
        location / { return 200 ok; }
        location /pay { proxy_pass http://pay; }
        location /none { proxy_pass http://none; }
        location /live/ { dashboard api=/api/; }
        location /api/ { allow 127.0.0.1; deny all; api write=on; } } 
    server { listen 127.0.0.1:%%PORT_1%%; location / { echo_sleep 60; echo late; } } }";

fn open(server: &Server, page: &str) -> Option<Browser> {
    let mut browser = Browser::start()?;
    browser.open(&format!("http://127.0.0.1:{}/live/#{page}", server.port(0)));
    browser.until("document.querySelector('.state')?.textContent === 'live'");
    Some(browser)
}

fn weir(server: &Server, words: &[&str]) -> String {
    let mut command = Command::new(binary());
    command.args(words).arg("-p").arg(server.dir()).arg("-c").arg(server.dir().join("nginx.conf"));
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn a_queue_that_is_full_is_shown_as_that() {
    let server = Server::start(CONF);
    // One is answered, one waits, and the third is refused.
    let mut clients: Vec<_> = (0..2).map(|_| server.connect()).collect();
    let api = |server: &Server| -> Value {
        serde_json::from_str(&server.get("/api/9/http/upstreams/pay").text()).unwrap()
    };
    clients[0].send_get("/pay");
    expect_soon("one that is answered", || api(&server)["state"] == "at max_conns");
    clients[1].send_get("/pay");
    expect_soon("one that waits", || api(&server)["state"] == "queue full");
    assert_eq!(server.get("/pay").status, 502);
    server.expect_error("queue of upstream is full while connecting to upstream");
    assert!(!server.error_log().contains("no live upstreams"));
    assert_eq!(server.get("/none").status, 502);

    let top: Value = serde_json::from_str(&weir(&server, &["top", "--once", "--json"])).unwrap();
    let states = top["upstream_states"].as_array().unwrap();
    let state =
        |name: &str| states.iter().find(|row| row["name"] == name).unwrap()["state"].clone();
    assert_eq!((state("pay"), state("none")), ("queue full".into(), "no servers".into()));
    let doctor = weir(&server, &["doctor"]);
    assert!(doctor.contains("upstream \"pay\": queue full"), "{doctor}");
    assert!(doctor.contains("upstream \"none\": no servers"), "{doctor}");

    let Some(mut page) = open(&server, "upstreams") else { return };
    let row = |name: &str, what: &str| {
        format!("[...document.querySelectorAll('tbody tr')].some(r => r.innerText.includes('{name}') && r.innerText.includes('{what}'))")
    };
    page.until(&row("pay", "queue full"));
    page.until(&row("pay", "1 of 1"));
    page.until(&row("none", "no servers"));
    page.click("a[href='#overview']");
    page.until("[...document.querySelectorAll('.tile')].some(t => t.innerText.includes('Servers asked') && t.querySelector('.bad') && t.innerText.includes('queue full'))");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn who_has_waited_too_long_is_told_so() {
    let server = Server::start(&CONF.replace("timeout=30s", "timeout=200ms"));
    let mut busy = server.connect();
    busy.send_get("/pay");
    expect_soon("one that is answered", || {
        server.get("/api/9/http/upstreams/pay").text().contains("at max_conns")
    });
    assert_eq!(server.get("/pay").status, 502);
    server.expect_error("timed out in queue of upstream while connecting to upstream");
    assert!(!server.error_log().contains("no live upstreams"));
}

#[test]
fn a_process_that_is_stopped_is_told_as_that() {
    let server = Server::start(CONF);
    assert_eq!(server.get("/").status, 200);
    let serving = server.children()[0];
    signal(serving, Signal::Stop);
    let began = Instant::now();
    let doctor = weir(&server, &["doctor"]);
    let took = began.elapsed();
    signal(serving, Signal::Cont);
    assert!(doctor.contains("the server does not answer"), "{doctor}");
    assert!(took.as_secs() < 15, "{took:?}");
}

#[test]
fn a_worker_that_has_no_time_left_is_shown_as_that() {
    // Compressed anew for each request.
    let conf = CONF.replace(
        "location / { return 200 ok; }",
        "location / { root .; gzip on; gzip_comp_level 9; gzip_types text/plain; gzip_min_length 1; }",
    );
    let text: String =
        (0..60_000).map(|n: u32| format!("{} ", n.wrapping_mul(2_654_435_761))).collect();
    let server = Setup::new(&conf).file("big.txt", &text).start();
    let Some(mut page) = open(&server, "system") else { return };
    let address = format!("127.0.0.1:{}", server.port(0));
    let is_over = AtomicBool::new(false);
    // However this ends: the scope waits for its threads.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let peer = weir_tests::Peer::Tcp(server.port(0));
                    let head = format!("GET /big.txt HTTP/1.1\r\nHost: {address}\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n");
                    peer.exchange("GET", head.as_bytes());
                }
            });
        }
        let doctor = || weir(&server, &["doctor"]);
        expect_soon("the doctor's word", || doctor().contains("worker 0 has no time left"));
        page.until("document.querySelector('section[aria-labelledby=workers-head] .warn')?.innerText === 'saturated' || document.body.innerText.includes('Worker 0 has no time left')");
    });
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn plots_are_looked_at_and_zoomed_by_keys() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server, "overview") else { return };
    page.until("document.querySelectorAll('.plot canvas').length === 4");
    page.until("document.querySelector('#over-time')");
    // A few seconds.
    page.until(
        "document.querySelector('.plot [role=group]').getAttribute('aria-label').includes('2xx 0')",
    );
    let mut viewer = server.connect();
    viewer.send_get("/live/events");
    for _ in 0..5 {
        viewer.read_until(b"event: tick\n");
    }
    page.run("document.querySelector('.plot [role=group]').focus()");
    page.key("ArrowLeft");
    page.until("document.querySelector('.plot .unseen').textContent.includes('2xx')");
    page.key("+");
    page.until("document.querySelector('#see-all')");
    page.key("0");
    page.until("!document.querySelector('#see-all')");
    // No number that stands for a page was meant.
    assert_eq!(page.text("location.hash"), "#overview");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn a_change_is_told_and_the_focus_stays_where_it_was() {
    let server = Server::start(CONF);
    let Some(mut page) = open(&server, "upstreams") else { return };
    let peer = format!("127.0.0.1:{}", server.port(1));
    page.click(&format!("button[aria-label='Drain {peer} of pay']"));
    page.click("#do-it");
    page.until(&format!(
        "document.querySelector('.said').innerText === '{peer} of pay is drained.'"
    ));
    page.until("document.activeElement.className === 'acts'");
    let name = page.text("document.querySelector('h2').textContent");
    assert!(name.ends_with(" of 1 servers up"), "{name}");
    assert_eq!(page.text("String(document.querySelectorAll('h2 input').length)"), "0");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// The names of upstreams in a table, from above.
fn upstreams(table: usize) -> String {
    format!(
        "[...document.querySelectorAll('main table')[{table}].querySelectorAll('tbody tr:not(.space)')]\
         .map(r => r.children[0].innerText.trim()).join()"
    )
}

#[test]
fn upstreams_in_trouble_stand_first() {
    let server = Server::start(
        "worker_processes 1; events {} http {
        upstream a { zone a 64k; server 127.0.0.1:1; queue 5; }
        upstream b { zone b 64k; server 127.0.0.1:1; server 127.0.0.1:2 down; }
        upstream c { zone c 64k; server 127.0.0.1:1; }
        upstream d { zone d 64k; server 127.0.0.1:2 down; server 127.0.0.1:3 down; }
        server { listen 127.0.0.1:%%PORT_0%%; location /live/ { dashboard; } } }",
    );
    let Some(mut page) = open(&server, "upstreams") else { return };
    page.until(&format!("{} === 'd,a'", upstreams(0)));
    page.until(&format!("{} === 'd,d,b,b,a,c'", upstreams(1)));
    // By a click they are in another order.
    page.run(
        "[...document.querySelectorAll('main table')[1].querySelectorAll('th button')][0].click()",
    );
    page.until(&format!("{} === 'a,b,b,c,d,d'", upstreams(1)));
    assert_eq!(page.complaints(), Vec::<String>::new());
}
