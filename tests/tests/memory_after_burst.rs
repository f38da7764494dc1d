//! What a burst has needed goes back to the system also when the server is never without a request: so few
//! as there are then need none of it.

use std::time::Duration;
use weir_tests::{skip, wait_for, Setup};

const BURST: usize = 3000;
const HEAD_BYTES: usize = 7000;
const LEFT_MAX_BYTES: u64 = 4 << 20;
/// nginx gives it back at once; here it is looked for some seconds whether it will be needed again.
const GIVEN_WITHIN: Duration = Duration::from_secs(40);

#[test]
fn a_little_traffic_does_not_hold_what_much_has_needed() {
    let server = Setup::new(
        "worker_processes 1; events { worker_connections 4096; } http { client_header_buffer_size 8k;
            server { listen 127.0.0.1:%%PORT_0%% backlog=1024; return 200 ok; } }",
    )
    .start();
    assert_eq!(server.get("/").text(), "ok");
    let Some(before) = server.memory() else { return skip("the system has no /proc") };
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(HEAD_BYTES));
    let mut burst: Vec<_> = (0..BURST).map(|_| server.connect()).collect();
    burst.iter_mut().for_each(|client| client.send(head.as_bytes()));
    let needed = (BURST * HEAD_BYTES) as u64;
    let is_needed = || server.memory().unwrap_or_default() > before + needed / 2;
    assert!(wait_for(is_needed, GIVEN_WITHIN), "the heads are kept");
    drop(burst);
    let mut left = 0;
    let is_back = wait_for(
        || {
            assert_eq!(server.get("/").text(), "ok");
            left = server.memory().unwrap_or(u64::MAX).saturating_sub(before);
            left <= LEFT_MAX_BYTES
        },
        GIVEN_WITHIN,
    );
    assert!(is_back, "{left} bytes are left of {needed}");
}
