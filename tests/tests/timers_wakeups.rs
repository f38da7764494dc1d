//! Who waits for a time is woken, whatever else the worker does meanwhile.

use std::time::Duration;
use weir_tests::{expect_soon, listens_on, Client, Setup, Signal};

/// Matched by trying every way to cut it up.
const SLOW_TO_MATCH: usize = 18;
const OTHERS: usize = 24;

#[test]
fn a_download_at_a_rate_goes_on_while_the_worker_finishes_others() {
    let s = Setup::new(
        "worker_processes 1; events {} http { access_log off; server { listen %%PORT_0%%;
           location / { root %%DIR%%/www; limit_rate 4k; }
           location /slow { if ($arg_s ~ \"^(x+x+)+[yz]\") { return 204; } return 200; } } }",
    )
    .file("www/big", "x".repeat(11_000))
    .start();
    let mut download = s.connect();
    download.send_get("/big");
    assert!(download.read_exactly(4000).is_some());
    // What has begun when the worker is told to finish is answered still, one after another.
    let mut others: Vec<Client> = (0..OTHERS).map(|_| s.connect()).collect();
    for other in &mut others {
        other.send(b"GET /slow?s=");
    }
    assert!(download.read_exactly(100).is_some());
    s.signal(Signal::Quit);
    expect_soon("nobody listens", || !listens_on(s.port(0)));
    let rest = "x".repeat(SLOW_TO_MATCH);
    for other in &mut others {
        other.send(format!("{rest} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!(other.response().status, 200);
    }
    download.set_patience(Duration::from_secs(20));
    let all = download.read_to_end().len();
    assert!(all > 11_000 - 4100, "{all} bytes");
}
