//! Requests counted by key over time.

use std::time::{Duration, Instant};
use weir_tests::Server;

const CONF: &str = "events {} http {
    limit_req_zone $arg_k zone=slow:1m rate=1r/m;
    limit_req_zone $arg_k zone=fast:1m rate=20r/s;
    log_format s '$uri $limit_req_status'; access_log %%DIR%%/access.log s;
    server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log; root %%DIR%%/html;
        location /none { limit_req zone=slow; error_page 404 =200 /ok; }
        location /burst { limit_req zone=slow burst=2 nodelay; error_page 404 =200 /ok; }
        location /delay { limit_req zone=fast burst=10; error_page 404 =200 /ok; }
        location /429 { limit_req zone=slow; limit_req_status 429; error_page 404 =200 /ok; }
        location /dry { limit_req zone=slow; limit_req_dry_run on; error_page 404 =200 /ok; }
        location /ok { return 200 ok; }
} }";

#[test]
fn more_than_the_rate_is_refused() {
    let server = Server::start(CONF);
    assert_eq!(server.get("/none?k=a").status, 200);
    assert_eq!(server.get("/none?k=a").status, 503);
    assert_eq!(server.get("/429?k=a").status, 429);
    assert_eq!(server.get("/dry?k=a").status, 200);
    assert_eq!(server.get("/none?k=b").status, 200);
    for _ in 0..3 {
        assert_eq!(server.get("/none").status, 200, "no key, no limit");
    }
    server.expect_error("limiting requests, excess: 1.000 by zone \"slow\"");
    let log = server.log_lines("access.log", 4);
    assert_eq!(log[..4], ["/ok PASSED", "/none REJECTED", "/429 REJECTED", "/ok REJECTED_DRY_RUN"]);
}

#[test]
fn a_burst_passes_at_once_without_delay() {
    let server = Server::start(CONF);
    let statuses: Vec<u16> = (0..5).map(|_| server.get("/burst?k=a").status).collect();
    assert_eq!(statuses, [200, 200, 200, 503, 503]);
}

#[test]
fn a_burst_is_spread_over_time() {
    let server = Server::start(CONF);
    let start = Instant::now();
    let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send_get("/delay?k=a");
    }
    assert!(clients.iter_mut().all(|client| client.response().status == 200));
    let took = start.elapsed();
    assert!(took > Duration::from_millis(150) && took < Duration::from_secs(2), "{took:?}");
    assert!(server.log_lines("access.log", 5).iter().any(|line| line == "/ok DELAYED"));
}
