//! `ship` over TLS: who is at the other end is verified, and asks for a certificate himself.

use weir_tests::bulk::Bulk;
use weir_tests::tls::{Authority, Pair};
use weir_tests::{expect_soon, Server, Setup};

/// In front of a receiver: TLS, for clients with a certificate of that authority.
fn front(bulk: &Bulk, pair: &Pair, clients: &Authority) -> Server {
    Setup::new(
        "error_log error.log info; events {} http { server { listen 127.0.0.1:%%PORT_0%% ssl;
            ssl_certificate c.crt; ssl_certificate_key c.key;
            ssl_verify_client on; ssl_client_certificate clients.crt;
            location / { proxy_pass http://127.0.0.1:%%BULK%%; client_max_body_size 0; } } }",
    )
    .set("BULK", bulk.port())
    .file("c.crt", &pair.cert)
    .file("c.key", &pair.key)
    .file("clients.crt", &clients.cert)
    .start()
}

/// Ships by that, with files `ca.crt`, `other.crt`, `own.crt`, `own.key`.
fn shipping(
    front: &Server,
    host: &str,
    more: &str,
    authorities: [&Authority; 2],
    own: &Pair,
) -> Server {
    let conf = "worker_processes 1; error_log error.log info; events {}
        ship es { to elasticsearch https://HOST:%%FRONT%%; queue %%DIR%%/queue size=1m;
            batch linger=10ms; retry first=5ms most=20ms; MORE }
        http { access_log off; server { listen 127.0.0.1:%%PORT_0%%;
            location / { ship_access es; return 200 ok; } } }";
    let server = Setup::new(&conf.replace("HOST", host).replace("MORE", more))
        .set("FRONT", front.port(0))
        .file("ca.crt", &authorities[0].cert)
        .file("other.crt", &authorities[1].cert)
        .file("own.crt", &own.cert)
        .file("own.key", &own.key)
        .start();
    assert_eq!(server.get("/").status, 200);
    server
}

const OWN: &str = "ssl_certificate own.crt; ssl_certificate_key own.key;";

#[test]
fn a_receiver_is_verified_and_verifies_us() {
    let (authority, stranger) = (Authority::new("ca"), Authority::new("other"));
    let bulk = Bulk::good();
    let front = front(&bulk, &authority.issue("localhost"), &authority);
    let (own, strange) = (authority.issue("weir"), stranger.issue("weir"));
    let both = [&authority, &stranger];
    let trusted = format!("ssl_trusted_certificate ca.crt; {OWN}");
    let wrong = [
        ("127.0.0.1", trusted.clone(), &own, "its certificate does not match \"127.0.0.1\""),
        (
            "localhost",
            format!("ssl_name elsewhere; {trusted}"),
            &own,
            "does not match \"elsewhere\"",
        ),
        (
            "localhost",
            format!("ssl_trusted_certificate other.crt; {OWN}"),
            &own,
            "certificate verify error",
        ),
        // The other end refuses: nginx answers a client without a good certificate with 400.
        ("localhost", "ssl_trusted_certificate ca.crt;".into(), &own, "answers 400"),
        ("localhost", trusted.clone(), &strange, "answers 400"),
    ];
    for (host, more, own, why) in wrong {
        let server = shipping(&front, host, &more, both, own);
        expect_soon(why, || server.error_log().contains(why));
    }
    assert_eq!(bulk.documents().len(), 0, "nothing was told to a stranger or by one");
    for more in [trusted.clone(), format!("ssl_name localhost; {trusted}")] {
        let host = if more.contains("ssl_name") { "127.0.0.1" } else { "localhost" };
        let before = bulk.documents().len();
        let _server = shipping(&front, host, &more, both, &own);
        expect_soon("the event", || bulk.documents().len() == before + 1);
    }
}
