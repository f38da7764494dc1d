//! A serving process that another has taken the place of, and that still has requests to finish: signals
//! to the master reach it too.

use std::cell::RefCell;
use weir_tests::{expect_soon, skip, Client, Server, Signal};

/// The body's rest is waited for before the server behind is asked.
fn conf(env: &str, more: &str) -> String {
    format!(
        "user root root; env A={env}; events {{}} error_log %%DIR%%/error.log notice;
        http {{ log_format p '$pid $uri'; access_log %%DIR%%/both.log p;
            server {{ listen 127.0.0.1:%%PORT_0%%;
                location /pid {{ access_log off; return 200 $pid; }}
                location / {{ proxy_pass http://127.0.0.1:%%PORT_1%%; }}
                {more} }}
            server {{ listen 127.0.0.1:%%PORT_1%%; access_log off; return 200 ok; }} }}"
    )
}

const OLD: &str =
    "location /old { proxy_pass http://127.0.0.1:%%PORT_1%%; access_log %%DIR%%/old.log p; }";

fn hold(server: &Server, path: &str) -> Client {
    let mut client = server.connect();
    client
        .send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1").as_bytes());
    client
}

/// A server whose old process has requests of each path; they, and its number.
fn replaced(paths: &[&str]) -> Option<(Server, Vec<Client>, String)> {
    let mut server = Server::start(&conf("1", OLD));
    if server.children().is_empty() {
        skip("no master");
        return None;
    }
    let held = (0..40).flat_map(|_| paths.iter().map(|path| hold(&server, path))).collect();
    let old = server.get("/pid").text();
    let peer = server.on(0);
    server.reload(&conf("2", ""), || peer.get("/pid").text() != old);
    Some((server, held, old))
}

/// Logs are what has their names now, whether or not the new configuration names them.
#[test]
fn an_old_process_opens_its_logs_again() {
    let Some((server, held, old)) = replaced(&["/both", "/old"]) else { return };
    for log in ["both.log", "old.log"] {
        std::fs::rename(server.dir().join(log), server.dir().join(format!("{log}.1"))).unwrap();
    }
    server.signal(Signal::Usr1);
    let held = RefCell::new(held);
    for (log, path) in [("old.log", "/old"), ("both.log", "/both")] {
        let line = format!("{old} {path}");
        expect_soon(&format!("a line in the new {log}"), || {
            let mut held = held.borrow_mut();
            for _ in 0..2.min(held.len()) {
                let Some(mut client) = held.pop() else { return false };
                client.send(b"2");
                assert_eq!(client.response().text(), "ok");
            }
            std::fs::read_to_string(server.dir().join(log)).is_ok_and(|text| text.contains(&line))
        });
    }
}

#[test]
fn an_old_process_is_told_to_end_at_once() {
    let Some((mut server, mut held, _)) = replaced(&["/both"]) else { return };
    server.signal(Signal::Term);
    assert_eq!(server.wait_exit(), Some(0));
    held.iter_mut().for_each(|client| assert!(client.is_closed()));
}
