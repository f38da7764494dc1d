//! Passwords whose hashes are slow on purpose: few threads, a queue that ends, and nothing is
//! computed for a client that has gone.

use std::time::Duration;
use weir_tests::{expect_soon, skip, Client, Server, Setup};

/// `Basic` credentials for `u:p`.
const ASK: &str = "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic dTpw\r\n\r\n";

/// "password".
const V: &str = "$6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS130MTSuDDl3aCI6WouIL9AjRbLCelDCy.g.";

fn start(rounds: u32) -> Server {
    let hash = format!("$6$rounds={rounds}$saltsalt${}.", "a".repeat(85));
    Setup::new(
        "worker_processes 1; events { worker_connections 1000; } http {
            server { listen 127.0.0.1:%%PORT_0%%; location / { auth_basic closed;
                auth_basic_user_file %%DIR%%/users; }
                set_real_ip_from 127.0.0.0/8; real_ip_header X-A;
                location /open { return 200 open; } } }",
    )
    .file("users", format!("u:{hash}\nv:{V}\n"))
    .start()
}

fn wait_for_answer(server: &Server) {
    let mut client = server.connect();
    client.set_patience(Duration::from_secs(60));
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
        client.is_silent(Duration::from_millis(50))
    });
}

/// Asks as the client at an address.
fn ask_from(server: &Server, address: &str, credentials: &str) -> Client {
    let mut client = server.connect();
    client.set_patience(Duration::from_secs(60));
    client.send(
        format!("GET / HTTP/1.1\r\nHost: a\r\nX-A: {address}\r\nAuthorization: Basic {credentials}\r\n\r\n")
            .as_bytes(),
    );
    client
}

#[test]
fn one_client_does_not_fill_the_queue_for_others() {
    let own = |n: usize| format!("10.0.0.{}", 1 + n % 2);
    let network = |n: usize| format!("2001:db8::{n:x}");
    one_kind_of_client(&own, "10.0.0.9");
    one_kind_of_client(&network, "2001:db8:0:1::1");
}

/// Those of `crowd` are one client or two, and the one at `alone` is another.
fn one_kind_of_client(crowd: &dyn Fn(usize) -> String, alone: &str) {
    let server = start(999_999);
    let mut clients: Vec<_> = (0..300).map(|n| ask_from(&server, &crowd(n), "dTpw")).collect();
    server.expect_error("passwords wait to be checked");
    // "v:password"
    let mut other = ask_from(&server, alone, "djpwYXNzd29yZA==");
    assert_eq!(other.response().status, 404, "{alone}");
    // It took the place of the crowd's last.
    let refused = server.error_log().matches("passwords wait to be checked").count();
    assert!(refused > 300 - 256 - 8, "{refused}");
    let waits = clients.iter_mut().any(|c| c.is_silent(Duration::from_millis(1)));
    assert!(waits, "the crowd was through, so nothing was tested");
}
