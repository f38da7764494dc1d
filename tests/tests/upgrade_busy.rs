//! Connections that are busy while another process takes this one's place are answered as ever,
//! and go to that process once they are idle: none is ended. nginx closes each with its answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Mutex};
use weir_tests::h2::H2;
use weir_tests::{expect_soon, skip, Client, Next, Origin, Server, Setup, Signal, PATIENCE};

const CONF: &str = "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log info; %%MAIN%%
    worker_shutdown_timeout 30s; events {} http { access_log off; keepalive_requests 100000000;
    server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 $pid; }
        location /long { proxy_pass http://%%ORIGIN%%; } }
    server { listen 127.0.0.1:%%PORT_1%%; http2 on; return 200 $pid; } }";

/// An origin that answers when it is told to.
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

fn start(main: &str, origin: &Origin) -> Option<Server> {
    if weir_tests::binary().ends_with("nginx") {
        skip("nginx closes them");
        return None;
    }
    Some(Setup::new(CONF).set("MAIN", main).set("ORIGIN", origin.address()).start())
}

/// The number in the pid file once it is another.
pub(crate) fn next_pid(server: &Server, old: u32) -> u32 {
    let pid = || server.read("the.pid").trim().parse().unwrap_or(old);
    expect_soon("the new one writes its pid", || pid() != old);
    pid()
}

pub(crate) fn end(server: &Server, pid: u32) {
    weir_tests::signal(pid, Signal::Term);
    expect_soon("it is gone", || !server.dir().join("the.pid").exists());
}

/// One request; an error says how the server ended the connection.
fn ask(c: &mut TcpStream) -> Result<(), String> {
    c.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").map_err(|e| e.to_string())?;
    let (mut seen, mut buf) = (Vec::new(), [0; 4096]);
    loop {
        let n = c.read(&mut buf).map_err(|e| e.to_string())?;
        if n == 0 {
            return Err("closed".into());
        }
        seen.extend_from_slice(&buf[..n]);
        let text = String::from_utf8_lossy(&seen);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.split_once("Content-Length: ").map_or("", |(_, rest)| rest);
        if length.lines().next() != Some(&body.len().to_string()) {
            continue;
        }
        return match head.starts_with("HTTP/1.1 200 ") && !head.contains("Connection: close") {
            true => Ok(()),
            false => Err(head.into()),
        };
    }
}

const CONNECTIONS: u64 = 50;

/// Asks without a rest over as many connections while `work` runs, and after it until each has
/// been answered once more; tells how those ended that the server ended.
fn ended_during(port: u16, work: impl FnOnce()) -> Vec<String> {
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let ended = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut c = TcpStream::connect(("127.0.0.1", port)).unwrap();
                c.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut result = Ok(());
                while result.is_ok() && !stop.load(Ordering::Relaxed) {
                    result = ask(&mut c);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                ended.lock().unwrap().extend(result.and_then(|()| ask(&mut c)).err());
            });
        }
        expect_soon("all ask", || answered.load(Ordering::Relaxed) > 2 * CONNECTIONS);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|e| std::panic::resume_unwind(e));
    });
    ended.into_inner().unwrap()
}

#[test]
fn upgrades_end_no_connection_that_asks() {
    let origin = Origin::replying("");
    for main in ["", "worker_processes 3;", "master_process off;"] {
        let Some(mut server) = start(main, &origin) else { return };
        let mut pid = server.pid();
        let ended = ended_during(server.port(0), || {
            // The second is told to end while it may still be given connections.
            for _ in 0..2 {
                let old = pid;
                weir_tests::signal(old, Signal::Usr2);
                pid = next_pid(&server, old);
                weir_tests::signal(old, Signal::Quit);
                expect_soon("the old one is gone", || !weir_tests::is_alive(old));
            }
        });
        assert!(ended.is_empty(), "{main} {} of {CONNECTIONS}: {:?}", ended.len(), ended[0]);
        assert_eq!(server.wait_exit(), Some(0));
        end(&server, pid);
    }
}

#[test]
fn reloads_with_a_new_process_end_none_either() {
    let origin = Origin::replying("");
    let Some(mut server) = start("user root;", &origin) else { return };
    let [mut child] = server.children()[..] else { return skip("no master") };
    let ended = ended_during(server.port(0), || {
        for user in ["nobody nogroup", "root"] {
            let conf = CONF.replace("%%MAIN%%", &format!("user {user};"));
            server.replace_conf(&conf.replace("%%ORIGIN%%", &origin.address()));
            server.signal(Signal::Hup);
            expect_soon("the old process is gone", || !weir_tests::is_alive(child));
            child = server.children()[0];
        }
    });
    assert!(ended.is_empty(), "{} of {CONNECTIONS}: {:?}", ended.len(), ended[0]);
}

pub(crate) fn pid_of(client: &mut Client) -> u32 {
    client.get("/").text().parse().unwrap()
}

/// One that is busy for long is answered, and goes then; what it has sent ahead is answered first.
#[test]
fn a_long_request_is_answered_and_its_connection_goes_on() {
    let (origin, go) = gated();
    let Some(mut server) = start("", &origin) else { return };
    let old = server.pid();
    let mut long = server.connect();
    let before = pid_of(&mut long);
    long.send(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.expect_requests(1);
    server.signal(Signal::Usr2);
    let new = next_pid(&server, old);
    server.signal(Signal::Quit);
    server.expect_error("gracefully shutting down");
    assert!(weir_tests::is_alive(old));
    go.send(()).unwrap();
    for body in ["finished", &before.to_string()] {
        let answer = long.response();
        assert_eq!((answer.text(), answer.header("Connection")), (body.into(), Some("keep-alive")));
    }
    assert_eq!(server.wait_exit(), Some(0));
    assert_ne!(pid_of(&mut long), before);
    end(&server, new);
}

/// HTTP/2 has a word of its own for the end, and stays where it is until then.
#[test]
fn http2_is_told_to_go_away() {
    let origin = Origin::replying("");
    let Some(mut server) = start("", &origin) else { return };
    let old = server.pid();
    let mut all: Vec<H2> = (0..20).map(|_| H2::over(server.on(1).connect())).collect();
    for h2 in &mut all {
        h2.greet(&[]);
        assert_eq!(h2.fetch("/").status, 200);
    }
    server.signal(Signal::Usr2);
    let new = next_pid(&server, old);
    // Ready to take connections, so that the old one might give them all at once.
    let before = all[0].fetch("/").text();
    let answers = || pid_of(&mut server.connect()).to_string() != before;
    expect_soon("the new one answers", answers);
    server.signal(Signal::Quit);
    for h2 in &mut all {
        assert_eq!(h2.goaway(), 0);
    }
    assert_eq!(server.wait_exit(), Some(0));
    end(&server, new);
}

/// With all its threads, the last of which closes what it has open.
fn is_gone(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    !weir_tests::is_alive(pid) && threads <= 1
}

/// The new process goes before it has taken anything: what it would have taken is answered by the
/// old one, and told of the end then.
#[test]
fn without_the_new_process_connections_end_with_an_answer() {
    let (origin, go) = gated();
    let Some(mut server) = start("", &origin) else { return };
    let old = server.pid();
    let mut long = server.connect();
    let before = pid_of(&mut long);
    long.send_get("/long");
    origin.expect_requests(1);
    server.signal(Signal::Usr2);
    let new = next_pid(&server, old);
    server.signal(Signal::Quit);
    server.expect_error("gracefully shutting down");
    // Where there is a master, the serving process is its child.
    let with_master = old != before;
    expect_soon("it serves", || !with_master || !weir_tests::children(new).is_empty());
    let children = weir_tests::children(new);
    let all: Vec<u32> = [new].into_iter().chain(children).collect();
    all.iter().for_each(|pid| weir_tests::signal(*pid, Signal::Kill));
    expect_soon("the new one is gone", || all.iter().all(|pid| is_gone(*pid)));
    go.send(()).unwrap();
    // Whether it is told now or with its next answer depends on who hears first.
    if long.response().header("Connection") == Some("keep-alive") {
        expect_soon("its end", || long.get("/").header("Connection") == Some("close"));
        server.expect_error("the new process takes no connections");
    }
    assert!(long.is_closed());
    assert_eq!(server.wait_exit(), Some(0));
}
