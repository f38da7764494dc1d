//! What compressors take while nothing is compressed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use weir_tests::{expect_soon, wait_for, Next, Origin, Setup};

/// Compressors at work at the same time; each has a quarter of a megabyte or more.
const AT_ONCE: usize = 16;
const MB: u64 = 1024 * 1024;

#[test]
fn a_worker_that_is_quiet_keeps_none_of_them() {
    let all_run = Arc::new(AtomicBool::new(false));
    let go_on = Arc::clone(&all_run);
    let origin = Origin::start(move |_, conn| {
        let piece = "some words of a page, ".repeat(500);
        let begin = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
        conn.write(format!("{begin}{piece}"));
        wait_for(|| go_on.load(Ordering::SeqCst), std::time::Duration::from_secs(60));
        conn.write(piece);
        Next::Close
    });
    let server = Setup::new(
        "worker_processes 1; events {} http { access_log off; gzip on; gzip_comp_level 6;
         server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://%%ORIGIN%%; proxy_buffering off; }
         location /plain { return 200 x; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    // More than a little, so that it is soon seen that nothing more is done.
    let mut one = server.connect();
    (0..300).for_each(|_| assert_eq!(one.get("/plain").text(), "x"));
    drop(one);
    let Some(before) = server.memory() else {
        return weir_tests::tools::skip("no figures of memory");
    };
    let get = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
    let mut clients: Vec<_> = (0..AT_ONCE).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|c| c.send(get.as_bytes()));
    for client in &mut clients {
        let head = client.read_until(b"\r\n\r\n");
        assert!(String::from_utf8_lossy(&head).contains("Content-Encoding: gzip"));
    }
    all_run.store(true, Ordering::SeqCst);
    clients.iter_mut().for_each(|c| assert!(!c.read_to_end().is_empty()));
    drop(clients);
    expect_soon("a quiet worker gives compressors back", || {
        server.memory().is_some_and(|now| now < before + 3 * MB)
    });
}
