//! Pairs and servers that stand in `state` files, while an upgrade's two processes serve: what either has answered as done is
//! there afterwards, and what is shown is the newest. (NGINX Plus's programs write the same file each for itself.)

use crate::upgrade_busy::next_pid;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use weir_tests::{children, expect_soon, is_alive, signal};
use weir_tests::{Peer, Response, Server, Setup, Signal};

const CONF: &str = "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log info; %%MAIN%%
    events {} http { access_log off; keepalive_timeout 0;
    keyval_zone zone=z:1m state=%%DIR%%/z.json; keyval $arg_k $v zone=z;
    upstream u { zone u 64k; state %%DIR%%/u.conf; }
    server { listen 127.0.0.1:%%PORT_0%%;
        location / { return 200 '$v'; } location /pid { return 200 $pid; }
        location /u { proxy_pass http://u; }
        location /api { api write=on; allow 127.0.0.1; deny all; } } }";

const PAIRS: &str = "/api/9/http/keyvals/z";
const SERVERS: &str = "/api/9/http/upstreams/u/servers";

fn send(to: &Peer, method: &str, path: &str, body: &str) -> Response {
    to.send_json(method, path, body)
}

/// Puts pairs and servers as long as `go_on`; those that were answered with 201.
fn put(to: &Peer, go_on: &AtomicBool, so_far: &AtomicUsize) -> (Vec<String>, Vec<(u64, String)>) {
    let (mut pairs, mut servers) = (Vec::new(), Vec::new());
    let mut n;
    while go_on.load(Ordering::Relaxed) {
        n = so_far.fetch_add(1, Ordering::Relaxed) + 1;
        let key = format!("k{n}");
        let done = send(to, "POST", PAIRS, &format!("{{\"{key}\":\"{n}\"}}"));
        assert_eq!(done.status, 201, "{}", done.text());
        // What is asked right after it may be the other process.
        let shown = to.get(&format!("{PAIRS}?key={key}")).text();
        assert_eq!(shown, format!("{{\"{key}\":\"{n}\"}}"));
        pairs.push(key);
        if servers.len() < 900 {
            let address = format!("10.0.{}.{}:80", n / 250, n % 250 + 1);
            let body = format!("{{\"server\":\"{address}\",\"down\":true}}");
            let done = send(to, "POST", SERVERS, &body);
            assert_eq!(done.status, 201, "{}", done.text());
            let id = weir_tests::figures::number(&done.text(), "id");
            assert!(to.get(&format!("{SERVERS}/{id}")).text().contains(&address));
            servers.push((id, address));
        }
    }
    (pairs, servers)
}

/// All of them are there: shown, looked up, and in the files.
fn check(server: &Server, (pairs, servers): &(Vec<String>, Vec<(u64, String)>)) {
    assert!(pairs.len() > 3 && servers.len() > 3);
    let (shown, file) = (server.get(PAIRS).text(), server.read("z.json"));
    for key in pairs {
        let quoted = format!("\"{key}\":");
        assert!(shown.contains(&quoted) && file.contains(&quoted), "{key} of {}", pairs.len());
    }
    let last = pairs.last().unwrap();
    let text = || server.get(&format!("/?k={last}")).text();
    expect_soon("it is looked up", || text() == last[1..]);
    let (shown, file) = (server.get(SERVERS).text(), server.read("u.conf"));
    for (id, address) in servers {
        assert!(
            shown.contains(&format!("{{\"id\":{id},\"server\":\"{address}\"")),
            "{id} {address}"
        );
        assert!(file.contains(&format!("server {address} down; # id={id}\n")), "{id} {address}");
    }
    assert_eq!(shown.matches("\"id\"").count(), servers.len());
}

/// Writes go on while `f` does what it does.
fn while_writing(
    server: &Server,
    f: impl FnOnce(&AtomicUsize),
) -> (Vec<String>, Vec<(u64, String)>) {
    let (go_on, so_far, peer) = (AtomicBool::new(true), AtomicUsize::new(0), server.on(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&peer, &go_on, &so_far));
        f(&so_far);
        go_on.store(false, Ordering::Relaxed);
        writer.join().unwrap()
    })
}

/// Until both have answered, and some writes more.
fn both_serve(server: &Server, old: u32, new: u32, so_far: &AtomicUsize) {
    let mut seen = [false; 2];
    expect_soon("both serve", || {
        let pid = server.get("/pid").text().parse().unwrap_or(0);
        seen[usize::from(pid == new || children(new).contains(&pid))] = true;
        seen == [true; 2] || !is_alive(old)
    });
    let before = so_far.load(Ordering::Relaxed);
    expect_soon("both are asked", || so_far.load(Ordering::Relaxed) > before + 20);
}

#[test]
fn writes_over_an_upgrade_are_there() {
    for main in ["", "master_process off;"] {
        let mut server = Setup::new(CONF).set("MAIN", main).start();
        let old = server.pid();
        let mut new = 0;
        let done = while_writing(&server, |so_far| {
            signal(old, Signal::Usr2);
            new = next_pid(&server, old);
            both_serve(&server, old, new, so_far);
            if main.is_empty() {
                signal(old, Signal::Winch);
                expect_soon("the old one rests", || {
                    let pid = server.get("/pid").text().parse().unwrap_or(0);
                    pid == new || children(new).contains(&pid)
                });
            }
            signal(old, Signal::Quit);
            expect_soon("the old one ends", || !server.dir().join("the.pid.oldbin").exists());
        });
        assert_eq!(server.wait_exit(), Some(0));
        check(&server, &done);
        signal(new, Signal::Term);
        expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
    }
}

#[test]
fn writes_over_an_upgrade_that_fails_are_there() {
    for is_killed in [false, true] {
        let server = Setup::new(CONF).set("MAIN", "").start();
        let old = server.pid();
        let done = while_writing(&server, |so_far| {
            signal(old, Signal::Usr2);
            let new = next_pid(&server, old);
            both_serve(&server, old, new, so_far);
            // Of one that is killed requests would fail, so that writing ends before.
            if !is_killed {
                signal(new, Signal::Quit);
                expect_soon("the pid file is back", || {
                    server.read("the.pid").trim() == old.to_string()
                });
            }
        });
        if is_killed {
            let new: u32 = server.read("the.pid").trim().parse().unwrap();
            [vec![new], children(new)]
                .concat()
                .into_iter()
                .for_each(|pid| signal(pid, Signal::Kill));
            expect_soon("the pid file is back", || {
                server.read("the.pid").trim() == old.to_string()
            });
        }
        check(&server, &done);
        assert_eq!(send(&server.on(0), "POST", PAIRS, "{\"later\":\"x\"}").status, 201);
        assert_eq!(server.get("/?k=later").text(), "x");
    }
}

/// A file that is none is told, and not written over.
#[test]
fn a_file_that_cannot_be_read_is_left() {
    let server = Setup::new(CONF).set("MAIN", "").start();
    let to = server.on(0);
    assert_eq!(send(&to, "POST", PAIRS, "{\"a\":\"1\"}").status, 201);
    let path = server.dir().join("z.json");
    std::fs::write(server.dir().join("other"), "{").unwrap();
    std::fs::rename(server.dir().join("other"), &path).unwrap();
    let refused = send(&to, "POST", PAIRS, "{\"b\":\"2\"}");
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains("nothing is changed"), "{}", refused.text());
    assert_eq!(server.get(PAIRS).text(), "{\"a\":\"1\"}");
    assert_eq!(server.read("z.json"), "{");
    server.expect_error("the state file cannot be read");
    // One that is put there as a whole counts.
    std::fs::write(server.dir().join("other"), "{\"c\":\"3\"}").unwrap();
    std::fs::rename(server.dir().join("other"), &path).unwrap();
    assert_eq!(server.get(PAIRS).text(), "{\"c\":\"3\"}");
    assert_eq!(send(&to, "PATCH", PAIRS, "{\"c\":\"4\"}").status, 204);
    assert_eq!(server.get("/?k=c").text(), "4");
}

/// A number means the same server to the next program.
#[test]
fn numbers_stay_over_an_upgrade() {
    let mut server = Setup::new(CONF).set("MAIN", "").start();
    let to = server.on(0);
    for n in 1..4 {
        let body = format!("{{\"server\":\"10.0.0.{n}:80\"}}");
        assert_eq!(send(&to, "POST", SERVERS, &body).status, 201);
    }
    assert_eq!(send(&to, "DELETE", &format!("{SERVERS}/0"), "").status, 200);
    assert_eq!(send(&to, "DELETE", &format!("{SERVERS}/2"), "").status, 200);
    let old = server.pid();
    server.signal(Signal::Usr2);
    let new = next_pid(&server, old);
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    let listed = server.get(SERVERS).text();
    assert!(listed.starts_with("[{\"id\":1,\"server\":\"10.0.0.2:80\""), "{listed}");
    let added = send(&to, "POST", SERVERS, "{\"server\":\"10.0.0.9:80\"}").text();
    assert!(added.starts_with("{\"id\":3,"), "{added}");
    signal(new, Signal::Term);
    expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
}
