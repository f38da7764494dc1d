//! Passwords whose hashes are slow on purpose: few threads, a queue that ends, and nothing is
//! computed for a client that has gone.

use weir_tests::{expect_soon, skip, Server, Setup};

/// `Basic` credentials for `u:p`.
const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic dTpw\r\n\r\n";

fn start(rounds: u32) -> Server {
    let hash = format!("$6$rounds={rounds}$saltsalt${}.", "a".repeat(85));
    Setup::new(
        "worker_processes 1; events { worker_connections 1000; } http {
            server { listen 127.0.0.1:%%PORT_0%%; location / { auth_basic closed;
                auth_basic_user_file %%DIR%%/users; }
                location /open { return 200 open; } } }",
    )
    .file("users", format!("u:{hash}\n"))
    .start()
}

fn wait_for_answer(server: &Server) {
    let mut client = server.connect();
    client.set_patience(std::time::Duration::from_secs(60));
    client.send(ASK.as_bytes());
    assert_eq!(client.response().status, 401);
}

#[test]
fn what_a_client_asked_for_ends_with_it() {
    const CLIENTS: usize = 120;
    let server = start(200_000);
    wait_for_answer(&server);
    let (threads, before) = (server.threads(), server.processor_ticks());
    if threads == 0 {
        return skip("the system has no /proc");
    }
    for _ in 0..4 {
        wait_for_answer(&server);
    }
    let four = server.processor_ticks() - before;
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|c| c.send(ASK.as_bytes()));
    // Answered by the worker, which has read what came before.
    assert_eq!(server.get("/open").text(), "open");
    let more = server.threads() - threads;
    assert!(more <= 8, "{more} more threads");
    let before = server.processor_ticks();
    drop(clients);
    // It waits in the same queue.
    wait_for_answer(&server);
    let taken = server.processor_ticks() - before;
    assert!(taken < four * 10 + 20, "{taken} ticks, where four took {four}");
}

#[test]
fn beyond_the_queue_requests_are_refused() {
    let server = start(999_999);
    let mut clients: Vec<_> = (0..300).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|c| c.send(ASK.as_bytes()));
    server.expect_error("passwords wait to be checked");
    assert_eq!(server.get("/open").text(), "open");
    drop(clients);
    expect_soon("those that have gone have left the queue", || {
        let mut client = server.connect();
        client.send(ASK.as_bytes());
        client.is_silent(std::time::Duration::from_millis(50))
    });
}
