//! What sessions and tickets may take, whatever clients put into them.

use rustls::version::{TLS12, TLS13};
use weir_tests::tls::{self, Authority, Pair, Tls};
use weir_tests::{Server, Setup};

/// One of these is a chain that nothing is kept of, four are nearly all that a handshake takes.
const CERTIFICATE_BYTES: usize = 15_000;

fn server(more: &str) -> (Server, Authority) {
    let authority = Authority::new("root");
    let own = tls::self_signed("localhost");
    let server = Setup::new(
        "worker_processes 1; events {} http { %%MORE%%
            ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            server { listen 127.0.0.1:%%PORT_0%% ssl; ssl_verify_client optional;
                ssl_client_certificate %%DIR%%/root.crt;
                location / { return 200 $ssl_client_verify:$ssl_session_reused; } } }",
    )
    .set("MORE", more)
    .file("a.crt", own.cert)
    .file("a.key", own.key)
    .file("root.crt", &authority.cert)
    .start();
    (server, authority)
}

/// A client's certificate with others that are good for nothing.
fn with_chain(authority: &Authority, count: usize) -> Pair {
    let mut pair = authority.issue("client");
    for _ in 0..count {
        pair.cert += &authority.issue_large("more", CERTIFICATE_BYTES).cert;
    }
    pair
}

/// Of the process that serves, which is the only one or the master's child.
fn resident_kib(server: &Server) -> u64 {
    let pid = server.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let all = children.unwrap_or_default();
    let own = pid.to_string();
    let of = |pid: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    all.split_whitespace().chain([own.as_str()]).map(of).max().unwrap_or(0)
}

#[test]
fn a_session_zone_counts_the_certificates_in_it() {
    const HANDSHAKES: usize = 400;
    let (server, authority) = server("ssl_session_cache shared:s:1m; ssl_session_tickets off;");
    let pair = with_chain(&authority, 3);
    let get = || {
        let answer = Tls::showing(Some(&pair)).get(server.port(0), "localhost", "/");
        assert_eq!(answer.text(), "SUCCESS:.");
    };
    (0..20).for_each(|_| get());
    let before = resident_kib(&server);
    (0..HANDSHAKES).for_each(|_| get());
    let grown = resident_kib(&server).saturating_sub(before);
    assert!(grown < 12 * 1024, "{HANDSHAKES} handshakes: {grown} KiB more");
}

/// The oldest sessions give way; those of ordinary clients are resumed.
#[test]
fn ordinary_sessions_are_resumed() {
    for more in ["ssl_session_cache shared:s:1m; ssl_session_tickets off;", ""] {
        let (server, authority) = server(more);
        for version in [&TLS12, &TLS13] {
            let client = Tls::speaking(&[version], Some(&authority.issue("client")));
            let said = |n: usize| {
                let at = format!("{more} {:?} {n}", version.version);
                (client.get(server.port(0), "localhost", "/").text(), at)
            };
            let (first, at) = said(0);
            assert_eq!(first, "SUCCESS:.", "{at}");
            let (second, at) = said(1);
            assert_eq!(second, "SUCCESS:r", "{at}");
        }
    }
}

/// A chain that would not fit into a ticket's length does no harm.
#[test]
fn a_long_chain_makes_no_broken_ticket() {
    let (server, authority) = server("");
    let pair = with_chain(&authority, 4);
    for version in [&TLS12, &TLS13] {
        let client = Tls::speaking(&[version], Some(&pair));
        for _ in 0..2 {
            let answer = client.get(server.port(0), "localhost", "/");
            assert!(answer.text().starts_with("SUCCESS:"), "{:?}", version.version);
        }
    }
}
