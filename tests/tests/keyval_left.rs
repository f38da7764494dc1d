//! `keyval` zones without a file, and the number of the configuration, when the serving process is killed: a master starts
//! another one, which goes on with the pairs and under the number that there were.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_tests::{expect_soon, figures, skip, Response, Server, Setup, Signal};

const CONF: &str = "master_process on; error_log %%DIR%%/error.log notice; events {} http {
    keyval_zone zone=one:1m; keyval $arg_k $one zone=one;
    keyval_zone zone=nets:64k type=ip timeout=1h; keyval $arg_k $net zone=nets;
    server { listen 127.0.0.1:%%PORT_0%%;
        location / { return 200 '$one|$net'; }
        location /api { api write=on; allow 127.0.0.1; deny all; } } }
    stream { keyval_zone zone=s:64k; keyval $remote_addr $who zone=s;
        server { listen 127.0.0.1:%%PORT_1%%; return $who; } }";

fn send(server: &Server, method: &str, zone: &str, body: &str) -> Response {
    server.send_json(method, &format!("/api/9/{zone}"), body)
}

/// Kills the serving process, and waits for the next one.
fn kill(server: &Server) {
    let child = server.children()[0];
    weir_tests::signal(child, Signal::Kill);
    expect_soon("another one serves", || {
        server.children().first().is_some_and(|pid| *pid != child)
            && std::net::TcpStream::connect(("127.0.0.1", server.port(0))).is_ok()
    });
}

const ONE: &str = "http/keyvals/one";

#[test]
fn pairs_outlive_the_process_that_serves() {
    let server = Setup::new(CONF).start();
    if server.children().is_empty() {
        return skip("no master");
    }
    assert_eq!(send(&server, "POST", ONE, "{\"a\":\"1\",\"b\":\"2\",\"c\":\"3\"}").status, 201);
    assert_eq!(send(&server, "PATCH", ONE, "{\"a\":\"changed\"}").status, 204);
    assert_eq!(send(&server, "PATCH", ONE, "{\"b\":null}").status, 204);
    let soon = "{\"10.0.0.0/8\":\"net\",\"::1\":{\"value\":\"six\",\"expire\":50}}";
    assert_eq!(send(&server, "POST", "http/keyvals/nets", soon).status, 201);
    assert_eq!(send(&server, "POST", "stream/keyvals/s", "{\"127.0.0.1\":\"me\"}").status, 201);
    expect_soon("its time is over", || server.get("/?k=::1").text() == "|");
    kill(&server);
    assert_eq!(server.get("/api/9/http/keyvals/one").text(), "{\"a\":\"changed\",\"c\":\"3\"}");
    assert_eq!(server.get("/?k=10.1.1.1").text(), "|net");
    assert_eq!(server.get("/api/9/http/keyvals/nets").text(), "{\"10.0.0.0/8\":\"net\"}");
    assert_eq!(server.on(1).connect().read_to_end(), b"me");
    // And the one after that.
    assert_eq!(send(&server, "DELETE", "http/keyvals/nets", "").status, 204);
    assert_eq!(send(&server, "POST", ONE, "{\"d\":\"4\"}").status, 201);
    kill(&server);
    assert_eq!(server.get("/api/9/http/keyvals/nets").text(), "{}");
    assert_eq!(server.get("/?k=d").text(), "4|");
    assert_eq!(server.get("/?k=a").text(), "changed|");
}

/// What is noted is written anew when it has grown, and what it takes has a bound.
#[test]
fn many_changes_take_no_more_than_they_must() {
    let server = Setup::new(CONF).start();
    let Some(child) = server.children().first().copied() else { return skip("no master") };
    assert_eq!(send(&server, "POST", ONE, "{\"a\":\"1\",\"b\":\"2\"}").status, 201);
    let long = "x".repeat(8000);
    for n in 0..100 {
        let body = format!("{{\"a\":\"{n}{long}\"}}");
        assert_eq!(send(&server, "PATCH", ONE, &body).status, 204);
    }
    let is_it = |path: &std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("weir-journal"))
    };
    let sizes = || {
        let all = std::fs::read_dir(format!("/proc/{child}/fd")).unwrap().flatten();
        let all = all.map(|e| e.path()).filter(is_it);
        all.map(|p| std::fs::metadata(p).map_or(0, |m| m.len())).collect::<Vec<u64>>()
    };
    assert_eq!(sizes().len(), 2);
    expect_soon("it is written anew", || (8000..400_000).contains(&sizes().iter().sum::<u64>()));
    kill(&server);
    assert_eq!(server.get("/?k=a").text(), format!("99{long}|"));
    assert_eq!(server.get("/?k=b").text(), "2|");
}

/// A zone that a reload has put away is not there again, however the process ends.
#[test]
fn a_zone_of_another_size_is_another_zone() {
    let mut server = Setup::new(CONF).start();
    if server.children().is_empty() {
        return skip("no master");
    }
    assert_eq!(send(&server, "POST", ONE, "{\"a\":\"1\"}").status, 201);
    let conf = |size: &str, to: &str| {
        CONF.replace("one:1m", size)
            .replace("location / {", &format!("location {to} {{ return 204; }} location / {{"))
    };
    let peer = server.on(0);
    server.reload(&conf("one:2m", "/first"), || peer.get("/first").status == 204);
    assert_eq!(server.get("/?k=a").text(), "|");
    assert_eq!(send(&server, "POST", ONE, "{\"a\":\"2\"}").status, 201);
    kill(&server);
    assert_eq!(server.get("/?k=a").text(), "2|");
}

#[test]
fn the_number_of_the_configuration_is_as_it_was() {
    let mut server = Setup::new(CONF).start();
    if server.children().is_empty() {
        return skip("no master");
    }
    let number =
        |server: &Server| figures::number(&server.get("/api/9/nginx").text(), "generation");
    assert_eq!(number(&server), 1);
    kill(&server);
    assert_eq!(number(&server), 1);
    let peer = server.on(0);
    let conf = CONF.replace("location / {", "location /new { return 204; } location / {");
    server.reload(&conf, || peer.get("/new").status == 204);
    assert_eq!(number(&server), 2);
    kill(&server);
    assert_eq!(number(&server), 2);
    // One that was refused is none.
    server.replace_conf(&conf.replace("events {}", "events { nonsense; }"));
    server.signal(Signal::Hup);
    server.expect_error("unknown directive \"nonsense\"");
    kill(&server);
    assert_eq!(number(&server), 2);
    let again = conf.replace("/new", "/other");
    let peer = server.on(0);
    server.reload(&again, || peer.get("/other").status == 204);
    assert_eq!(number(&server), 3);
}

/// Whatever the moment in which it is killed.
#[test]
fn what_was_answered_is_there_after_a_kill_while_it_is_written() {
    let server = Setup::new(&CONF.replace("zone=one:1m", "zone=one:8m")).start();
    if server.children().is_empty() {
        return skip("no master");
    }
    assert_eq!(send(&server, "POST", ONE, "{\"first\":\"1\"}").status, 201);
    let (done, port) = (AtomicBool::new(false), server.port(0));
    let put = std::thread::scope(|scope| {
        let writer = |who: usize| {
            let done = &done;
            scope.spawn(move || {
                let mut put = Vec::new();
                for n in 0..20_000 {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = format!("w{who}-{n}");
                    if post(port, &format!("{{\"{key}\":\"{}\"}}", "v".repeat(n % 900))) {
                        put.push((key, n % 900));
                    }
                }
                put
            })
        };
        let writers = [0, 1].map(writer);
        for _ in 0..4 {
            // Until some have been put since.
            let before = number_of(&server);
            expect_soon("pairs come", || number_of(&server) > before + 50);
            kill(&server);
        }
        done.store(true, Ordering::Relaxed);
        writers.map(|w| w.join().unwrap()).concat()
    });
    assert!(put.len() > 100, "{}", put.len());
    let shown = server.get("/api/9/http/keyvals/one").text();
    for (key, len) in &put {
        let pair = format!("\"{key}\":\"{}\"", "v".repeat(*len));
        assert!(shown.contains(&pair), "{key} of {}", put.len());
    }
}

fn number_of(server: &Server) -> usize {
    server.get("/api/9/http/keyvals/one").text().matches("\":\"").count()
}

/// Whether it was answered with 201; it may not be answered at all.
fn post(port: u16, body: &str) -> bool {
    let text = format!(
        "POST /api/9/http/keyvals/one HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let Ok(mut to) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut answer = Vec::new();
    // One that is cut off says what it has said.
    let _ = to.set_read_timeout(Some(weir_tests::PATIENCE));
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.read_to_end(&mut answer));
    answer.starts_with(b"HTTP/1.1 201")
}
