//! A client that hangs up while its request waits: the wait is over, whichever way it has gone.

use weir_tests::h2::H2;
use weir_tests::{Server, Setup};

fn start() -> Server {
    Setup::new(
        "error_log %%DIR%%/error.log info; events {} http { http2 on; log_format s '$uri $status';
         access_log %%DIR%%/access.log s; limit_req_zone $host zone=slow:1m rate=1r/m;
         server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
             location = /delayed { auth_basic r; auth_basic_user_file %%DIR%%/users; auth_delay 60s; }
             location = /limited { limit_req zone=slow burst=9; } } }",
    )
    .file("users", "a:{PLAIN}b\n")
    .file("limited", "x")
    .start()
}

#[test]
fn while_it_waits_for_a_wrong_password() {
    let server = start();
    for (n, way) in ["end", "reset", "stream"].into_iter().enumerate() {
        let waits = || server.error_log().matches("no user/password").count() > n;
        if way == "stream" {
            let mut h2 = H2::connect(&server);
            let stream = h2.open(&weir_tests::h2::request("GET", "/delayed"), true);
            weir_tests::expect_soon("the request waits", waits);
            h2.reset(stream);
        } else {
            let mut client = server.connect();
            client.send_get("/delayed");
            weir_tests::expect_soon("the request waits", waits);
            match way {
                "end" => drop(client),
                _ => client.reset(),
            }
        }
        assert_eq!(server.log_lines("access.log", n + 1)[n], "/delayed 499", "{way}");
    }
}

#[test]
fn while_it_waits_for_its_turn() {
    let server = start();
    assert_eq!(server.get("/limited").status, 200);
    for (n, is_reset) in [false, true].into_iter().enumerate() {
        let mut client = server.connect();
        client.send_get("/limited");
        let waits = || server.error_log().matches("delaying request").count() > n;
        weir_tests::expect_soon("the request waits", waits);
        match is_reset {
            false => drop(client),
            true => client.reset(),
        }
        assert_eq!(server.log_lines("access.log", n + 2)[n + 1], "/limited 499");
        server.expect_error("client prematurely closed connection");
    }
}

/// Each of them could have accepting rest for a while.
#[test]
fn clients_that_reset_at_once_keep_nobody_waiting() {
    let server = Server::start(
        "error_log %%DIR%%/error.log info; events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 200 ok; } }",
    );
    (0..60).for_each(|_| server.connect().reset());
    let begun = std::time::Instant::now();
    assert_eq!(server.get("/").text(), "ok");
    assert!(begun.elapsed().as_secs() < 3, "{:?}\n{}", begun.elapsed(), server.error_log());
    assert!(!server.error_log().contains("[crit]"), "{}", server.error_log());
}
