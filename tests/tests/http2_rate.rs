//! `limit_rate` over HTTP/2: what a second is worth goes at once, as over HTTP/1.

use std::time::{Duration, Instant};
use weir_tests::{h2::H2, Setup};

const MIB: usize = 1024 * 1024;
const BODY_BYTES: usize = 3_000_000;
const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;

/// Two seconds' worth of what is limited: one at once, the other after a second's pause.
#[test]
fn a_second_is_sent_at_once() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; http2 on; root %%DIR%%;
            sendfile on; limit_rate 1m; limit_rate_after 1m; } }",
    )
    .file("big", vec![b'x'; BODY_BYTES])
    .start();
    let mut h2 = H2::over(server.connect());
    h2.greet(&[(SETTINGS_INITIAL_WINDOW_SIZE, 8 * MIB as u32)]);
    h2.widen(0, 8 * MIB as u32);
    let start = Instant::now();
    let answer = h2.fetch("/big");
    let took = start.elapsed();
    assert_eq!(answer.body.len(), BODY_BYTES);
    assert!(took > Duration::from_millis(850), "{took:?}");
    assert!(took < Duration::from_millis(1600), "{took:?}");
}
