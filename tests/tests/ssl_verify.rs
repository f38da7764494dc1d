//! Certificates that are verified: those of clients, and those of servers behind the proxy.

use weir_tests::tls::{self, Authority, Tls};
use weir_tests::{Server, Setup};

fn verifying() -> (Server, Authority) {
    let authority = Authority::new("root");
    let own = tls::self_signed("localhost");
    let server = Setup::new(
        "events {} http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            ssl_client_certificate %%DIR%%/root.crt;
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name on; ssl_verify_client on;
                location / { return 200 $ssl_client_verify:$ssl_client_s_dn:$ssl_client_i_dn; } }
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name maybe; ssl_verify_client optional;
                error_page 495 = /bad; location = /bad { return 200 $ssl_client_verify; }
                location / { return 200 $ssl_client_verify; } }
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name any;
                ssl_verify_client optional_no_ca;
                location / { return 200 $ssl_client_verify; } } }",
    )
    .file("a.crt", own.cert)
    .file("a.key", own.key)
    .file("root.crt", &authority.cert)
    .start();
    (server, authority)
}

#[test]
fn clients_show_certificates() {
    let (server, authority) = verifying();
    let port = server.port(0);
    let good = Tls::showing(Some(&authority.issue("client")));
    assert_eq!(good.get(port, "on", "/").text(), "SUCCESS:CN=client:CN=root");
    let none = Tls::default();
    let refused = none.get(port, "on", "/");
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("No required SSL certificate was sent"));
    assert_eq!(none.get(port, "maybe", "/").text(), "NONE");
    let strange = Tls::showing(Some(&tls::self_signed("stranger")));
    assert!(strange.get(port, "on", "/").text().contains("The SSL certificate error"));
    assert!(strange.get(port, "maybe", "/").text().starts_with("FAILED:self"));
    assert!(strange.get(port, "any", "/").text().starts_with("FAILED:self"));
    // An unknown issuer is let pass there; time that is over is not.
    let other = Authority::new("other");
    let unknown = Tls::showing(Some(&other.issue("client")));
    assert!(unknown.get(port, "any", "/").text().starts_with("FAILED:unable to verify"));
    let over = Tls::showing(Some(&other.issue_expired("client")));
    assert_eq!(over.get(port, "any", "/").status, 400);
}

#[test]
fn a_host_of_another_verifying_server_is_misdirected() {
    let (server, authority) = verifying();
    let good = Tls::showing(Some(&authority.issue("client")));
    assert_eq!(good.get_host(server.port(0), "maybe", "on", "/").status, 421);
}

/// A proxy names one host in its hello, and another, or an address, in the request.
#[test]
fn the_only_server_of_an_address_is_asked_under_any_name() {
    let authority = Authority::new("root");
    let own = tls::self_signed("localhost");
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%% ssl; server_name app.test;
            ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            ssl_client_certificate %%DIR%%/root.crt; ssl_verify_client on;
            location / { return 200 $ssl_client_verify:$ssl_server_name:$host; } } }",
    )
    .file("a.crt", own.cert)
    .file("a.key", own.key)
    .file("root.crt", &authority.cert)
    .start();
    let good = Tls::showing(Some(&authority.issue("client")));
    for (host, text) in
        [("app.test", "SUCCESS:app.test:app.test"), ("10.0.0.1:99", "SUCCESS:app.test:10.0.0.1")]
    {
        assert_eq!(good.get_host(server.port(0), "app.test", host, "/").text(), text);
    }
}

#[test]
fn servers_are_verified_where_that_is_asked_for() {
    let authority = Authority::new("root");
    let (known, own) = (authority.issue("app.test"), authority.issue("proxy"));
    let server = Setup::new(
        "events {} http {
            server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_verify_client optional;
                ssl_client_certificate %%DIR%%/root.crt;
                ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
                location / { return 200 $ssl_server_name:$ssl_client_s_dn:$ssl_session_reused; } }
            server { listen 127.0.0.1:%%PORT_0%%; proxy_ssl_name app.test;
                proxy_ssl_trusted_certificate %%DIR%%/root.crt; error_log %%DIR%%/error.log;
                location / { proxy_pass https://127.0.0.1:%%PORT_1%%; }
                proxy_ssl_session_reuse off;
                location /good { proxy_ssl_verify on; proxy_ssl_server_name on;
                    proxy_ssl_certificate %%DIR%%/own.crt; proxy_ssl_certificate_key %%DIR%%/own.key;
                    proxy_pass https://127.0.0.1:%%PORT_1%%; }
                location /bad { proxy_ssl_verify on; proxy_ssl_name other.test;
                    proxy_pass https://127.0.0.1:%%PORT_1%%; }
                location /var { set $to https; proxy_pass $to://127.0.0.1:%%PORT_1%%; } } }",
    )
    .file("a.crt", known.cert)
    .file("a.key", known.key)
    .file("own.crt", own.cert)
    .file("own.key", own.key)
    .file("root.crt", &authority.cert)
    .start();
    assert_eq!(server.get("/").text(), "::.");
    assert_eq!(server.get("/good").text(), "app.test:CN=proxy:.");
    assert_eq!(server.get("/var").text(), "::.");
    assert_eq!(server.get("/bad").status, 502);
    server.expect_error("upstream SSL certificate does not match \"other.test\"");
}
