//! An API that `ssl_verify_client` alone keeps strangers from: who has no certificate comes there by no way round.

use weir_tests::tls::{self, Authority, Tls};
use weir_tests::{Server, Setup};

const CONF: &str = "events {} http { keyval_zone zone=z:64k;
    server { listen 127.0.0.1:%%PORT_0%% ssl; ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
        ssl_client_certificate %%DIR%%/root.crt; ssl_verify_client on; error_page 495 496 @bad;
        location @bad { rewrite ^ /api/9/http/keyvals/z last; }
        location /api { api write=on; } } }";

fn put(server: &Server, who: &Tls) -> String {
    let text = "POST /api/9/http/keyvals/z HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
        Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{\"a\":\"1\"}";
    let mut conn = who.connect(server.port(0), "localhost").unwrap();
    conn.send(text.as_bytes());
    String::from_utf8(conn.read_to_end()).unwrap()
}

#[test]
fn a_page_for_those_without_a_certificate_does_not_lead_there() {
    let authority = Authority::new("root");
    let own = tls::self_signed("localhost");
    let setup = Setup::new(CONF).file("a.crt", own.cert).file("a.key", own.key);
    let server = setup.file("root.crt", &authority.cert).start();
    let strange = Tls::showing(Some(&tls::self_signed("stranger")));
    for who in [Tls::default(), strange] {
        let said = put(&server, &who);
        assert!(said.contains("\"status\":403") && said.contains("CertificateRequired"), "{said}");
    }
    let good = Tls::showing(Some(&authority.issue("client")));
    assert_eq!(good.get(server.port(0), "localhost", "/api/9/http/keyvals/z").text(), "{}");
    let said = put(&server, &good);
    assert!(said.contains(" 201 "), "{said}");
}
