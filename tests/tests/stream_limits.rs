//! `limit_conn` in `stream`: sessions that are in progress are counted.

use weir_tests::{expect_soon, Client, Setup};

fn text(client: &mut Client) -> String {
    String::from_utf8_lossy(&client.read_to_end()).into_owned()
}

#[test]
fn sessions_of_a_key_are_counted() {
    let server = Setup::new(
        "events {} stream { error_log %%DIR%%/error.log info;
            limit_conn_zone $binary_remote_addr zone=one:32k;
            limit_conn_zone $none zone=none:32k;
            map '' $none { default ''; }
            limit_conn_log_level warn;
            preread_timeout 60s; preread_buffer_size 1k;
            server { listen 127.0.0.1:%%PORT_0%%; limit_conn one 1; ssl_preread on;
                return held=$limit_conn_status; }
            server { listen 127.0.0.1:%%PORT_1%%; limit_conn one 1; limit_conn_dry_run on;
                return free=$limit_conn_status; }
            server { listen 127.0.0.1:%%PORT_2%%; limit_conn none 1; return none=$limit_conn_status; }
            server { listen 127.0.0.1:%%PORT_3%%; limit_conn one 1; return $limit_conn_status; }
        }",
    )
    .start();
    // It waits for what the client says first, and is counted meanwhile.
    let mut first = server.on(0).connect();
    let rejected = || text(&mut server.on(3).connect()).is_empty();
    expect_soon("a session that is counted", rejected);
    assert_eq!(text(&mut server.on(1).connect()), "free=REJECTED_DRY_RUN");
    assert_eq!(text(&mut server.on(2).connect()), "none=");
    first.send(b"hello, nobody speaks TLS here");
    assert_eq!(text(&mut first), "held=PASSED");
    let passed = || text(&mut server.on(3).connect()) == "PASSED";
    expect_soon("the place of the first session", passed);
    server.expect_error("[warn]");
    server.expect_error("limiting connections by zone \"one\"");
    server.expect_error("limiting connections, dry run, by zone \"one\"");
}
