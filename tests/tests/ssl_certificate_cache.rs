//! Certificates that variables name, and what is kept of them.

use weir_tests::tls::{self, Tls};
use weir_tests::Setup;

#[test]
fn keys_that_a_password_opens_are_not_kept() {
    let (open, locked) = (tls::self_signed("open.test"), tls::self_signed("locked.test"));
    let server = Setup::new(
        "events {} http {
            ssl_certificate %%DIR%%/$ssl_server_name.crt;
            ssl_certificate_key %%DIR%%/$ssl_server_name.key;
            ssl_certificate_cache max=8 valid=1h;
            ssl_password_file %%DIR%%/passwords; ssl_session_tickets off;
            server { listen 127.0.0.1:%%PORT_0%% ssl; return 200 ok; } }",
    )
    .file("passwords", "wrong\nsesame\n")
    .file("open.test.crt", &open.cert)
    .file("open.test.key", &open.key)
    .file("locked.test.crt", &locked.cert)
    .file("locked.test.key", locked.locked("sesame").key)
    .start();
    let shows = |name: &str, pair: &tls::Pair| {
        Tls::default().connect(server.port(0), name).unwrap().shows(pair)
    };
    assert!(shows("open.test", &open) && shows("locked.test", &locked));
    let fresh = tls::self_signed("fresh");
    for name in ["open.test", "locked.test"] {
        for (end, text) in [("crt", &fresh.cert), ("key", &fresh.key)] {
            let whole = server.dir().join("fresh");
            std::fs::write(&whole, text).unwrap();
            std::fs::rename(whole, server.dir().join(format!("{name}.{end}"))).unwrap();
        }
    }
    assert!(shows("open.test", &open), "kept");
    assert!(shows("locked.test", &fresh), "read anew");
}
