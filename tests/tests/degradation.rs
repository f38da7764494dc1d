//! `degrade`: who is refused while the process has too much memory.

use std::time::{Duration, Instant};
use weir_tests::Server;

fn start(most: &str) -> Server {
    let conf = "error_log %%DIR%%/error.log notice; events {} http { access_log off; degradation sbrk=MOST;
        server { listen 127.0.0.1:%%PORT_0%%; location / { return 200; }
            location /less { degrade 204; try_files /none /ok; } location /ok { return 200; }
            location /none { degrade 444; try_files /none /ok; } } }";
    Server::start(&conf.replace("MOST", most))
}

/// A figure needs no descriptor that others have taken.
#[test]
fn too_much_memory_refuses_where_no_descriptor_is_left() {
    let conf =
        "error_log %%DIR%%/error.log notice; worker_processes 1; worker_rlimit_nofile 64; events {}
        http { access_log off; degradation sbrk=8k; keepalive_requests 1000000;
        server { listen 127.0.0.1:%%PORT_0%%; location / { degrade 204; empty_gif; } } }";
    let server = Server::start(conf);
    let ask = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut kept = server.connect();
    kept.send(ask);
    assert_eq!(kept.response().status, 204);
    let others: Vec<_> = (0..80).map(|_| server.connect()).collect();
    server.expect_error("Too many open files");
    // It is looked at once a second.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2100) {
        kept.send(ask);
        assert_eq!(kept.response().status, 204);
    }
    drop(others);
}

#[test]
fn too_much_memory_refuses_what_can_wait() {
    let server = start("8k");
    assert_eq!((server.get("/").status, server.get("/less").status), (200, 204));
    assert_eq!(server.raw(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n"), b"");
    if !weir_tests::binary().ends_with("nginx") {
        server.expect_error("of memory");
    }
    let server = start("100000m");
    assert_eq!((server.get("/less").status, server.get("/none").status), (200, 200));
}
