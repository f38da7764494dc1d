//! What sessions with servers may take that are kept for being resumed.

use weir_tests::tls::{self, Authority, Pair};
use weir_tests::{skip, Server, Setup};

/// Three of these are nearly all that a handshake takes.
const CERTIFICATE_BYTES: usize = 15_000;
const LOCATIONS: usize = 4;
const NAMES: usize = 32;

/// A server whose chain is long where it is to be, and one that asks it.
fn servers(own: &Pair, chain: &str) -> (Server, Server) {
    let behind = Setup::new(
        "events {} http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            server { listen 127.0.0.1:%%PORT_0%% ssl;
                location / { return 200 $ssl_server_name:$ssl_session_reused; } } }",
    )
    .file("a.crt", own.cert.clone() + chain)
    .file("a.key", &own.key)
    .start();
    let one = |n: usize| {
        format!(
            "location /{n} {{ proxy_pass https://%%BEHIND%%; proxy_ssl_server_name on;
                proxy_ssl_name $arg_name; proxy_http_version 1.0; }}"
        )
    };
    let all: String = (1..=LOCATIONS).map(one).collect();
    let conf = format!(
        "worker_processes 1; events {{}} http {{ proxy_buffers 4 4k;
            server {{ listen 127.0.0.1:%%PORT_0%%; {all} }} }}"
    );
    let asks = Setup::new(&conf).set("BEHIND", format!("127.0.0.1:{}", behind.port(0))).start();
    (behind, asks)
}

#[test]
fn chains_of_servers_are_counted() {
    let authority = Authority::new("root");
    let more = || authority.issue_large("more", CERTIFICATE_BYTES).cert;
    let chain: String = (0..3).map(|_| more()).collect();
    let (_behind, asks) = servers(&tls::self_signed("localhost"), &chain);
    let mut client = asks.connect();
    let mut ask = |location: usize, name: usize| {
        let path = format!("/{location}?name=n{name}.test");
        let answer = client.get(&path);
        assert!(answer.text().starts_with(&format!("n{name}.test:")), "{}", answer.text());
    };
    (0..8).for_each(|_| ask(1, 0));
    let Some(before) = asks.memory() else { return skip("the system has no /proc") };
    for location in 1..=LOCATIONS {
        for name in 0..NAMES {
            (0..3).for_each(|_| ask(location, name));
        }
    }
    let growth = asks.memory_growth(before);
    assert!(growth < 14 << 20, "grew by {growth} bytes");
}

/// Also after many other names have been asked for.
#[test]
fn ordinary_sessions_are_resumed() {
    let (_behind, asks) = servers(&tls::self_signed("localhost"), "");
    let said = |name: &str| asks.get(&format!("/1?name={name}")).text();
    assert_eq!(said("a.test"), "a.test:.");
    assert_eq!(said("a.test"), "a.test:r");
    // nginx resumes a server's session whatever the name.
    (0..100).for_each(|n| assert!(said(&format!("n{n}.test")).starts_with(&format!("n{n}.test:"))));
    assert_eq!(said("n99.test"), "n99.test:r");
    assert_eq!(said("n70.test"), "n70.test:r");
}
