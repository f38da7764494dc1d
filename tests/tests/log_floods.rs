//! What one client can have written to the error log.

use std::time::Instant;
use weir_tests::Server;

const CLIENTS: usize = 200;

#[test]
fn that_connections_are_reused_is_said_once_a_second() {
    let server = Server::start(
        "error_log %%DIR%%/error.log warn; worker_processes 1; events { worker_connections 32; }
         http { server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 ok; } } }",
    );
    let begun = Instant::now();
    let kept: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = server.connect();
            client.get("/");
            client
        })
        .collect();
    let seconds = begun.elapsed().as_secs() as usize;
    server.expect_error("reusing connections");
    let lines = server.error_log().matches("reusing connections").count();
    assert!(lines <= seconds + 2, "{lines} lines in {seconds} s for {} clients", kept.len());
}
