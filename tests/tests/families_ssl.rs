//! TLS towards servers, the same for HTTP, gRPC and uwsgi.

use weir_tests::tls::{self, Authority, Pair, Tls};
use weir_tests::{Server, Setup};

/// What directives begin with, how a URL does, and the status when the handshake went well: the
/// HTTPS server behind takes uwsgi's packet for a bad request.
const FAMILIES: [(&str, &str, u16); 3] =
    [("proxy", "https://", 200), ("grpc", "grpcs://", 200), ("uwsgi", "suwsgi://", 400)];

struct Given {
    root: Authority,
    server: Pair,
    client: Pair,
}

fn given() -> Given {
    let root = Authority::new("root");
    let server = root.issue_numbered("app.test", 7);
    let client = root.issue("client");
    Given { root, server, client }
}

/// A server of each family's kind behind one that speaks plain, with `how` for the way between.
fn start(given: &Given, family: (&str, &str, u16), behind: &str, how: &str) -> Server {
    let (name, scheme, _) = family;
    let conf = format!(
        "events {{}} http {{ http2 on;
            server {{ listen 127.0.0.1:%%PORT_0%%; {how}
                location / {{ {name}_pass {scheme}127.0.0.1:%%PORT_1%%; }} }}
            server {{ listen 127.0.0.1:%%PORT_1%% ssl; server_name app.test;
                ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key; {behind}
                location / {{ return 200 $ssl_protocol:$ssl_cipher:$ssl_client_verify:$ssl_server_name; }} }} }}"
    );
    Setup::new(&conf.replace("%%F%%", name))
        .file("a.crt", &given.server.cert)
        .file("a.key", &given.server.key)
        .file("root.crt", &given.root.cert)
        .file("own.crt", &given.client.cert)
        .file("own.key", &given.client.locked("secret").key)
        .file("passwords", "wrong\nsecret\n")
        .file("revoked.crl", given.root.revoking(7))
        .file("others.crl", given.root.revoking(8))
        .start()
}

const TRUST: &str = "%%F%%_ssl_verify on; %%F%%_ssl_trusted_certificate %%DIR%%/root.crt;
    %%F%%_ssl_name app.test; %%F%%_ssl_server_name on; %%F%%_ssl_session_reuse off;";

#[test]
fn the_server_is_verified() {
    let given = given();
    for family in FAMILIES {
        for (how, is_good) in [
            ("", true),
            ("%%F%%_ssl_verify_depth 0;", true),
            ("%%F%%_ssl_crl %%DIR%%/others.crl;", true),
            ("%%F%%_ssl_crl %%DIR%%/revoked.crl;", false),
        ] {
            let server = start(&given, family, "", &format!("{TRUST} {how}"));
            let wanted = if is_good { family.2 } else { 502 };
            assert_eq!(server.get("/").status, wanted, "{} {how}", family.0);
        }
        let other = TRUST.replace("app.test", "other.test");
        assert_eq!(start(&given, family, "", &other).get("/").status, 502, "{}", family.0);
    }
}

#[test]
fn versions_and_ciphers_are_chosen() {
    let given = given();
    for family in FAMILIES {
        let good = "%%F%%_ssl_protocols TLSv1.2; %%F%%_ssl_ciphers ECDHE-ECDSA-AES256-GCM-SHA384;";
        let server = start(&given, family, "ssl_protocols TLSv1.2 TLSv1.3;", good);
        let r = server.get("/");
        assert_eq!(r.status, family.2, "{}", family.0);
        if family.0 == "proxy" {
            assert!(r.text().starts_with("TLSv1.2:ECDHE-ECDSA-AES256-GCM-SHA384:"), "{}", r.text());
        }
        let none = start(&given, family, "ssl_protocols TLSv1.3;", "%%F%%_ssl_protocols TLSv1.2;");
        assert_eq!(none.get("/").status, 502, "{}", family.0);
    }
}

#[test]
fn a_certificate_is_shown_and_its_key_opened() {
    let given = given();
    let behind = "ssl_verify_client on; ssl_client_certificate %%DIR%%/root.crt;";
    for family in FAMILIES {
        let own =
            "%%F%%_ssl_certificate %%DIR%%/own.crt; %%F%%_ssl_certificate_key %%DIR%%/own.key;
            %%F%%_ssl_password_file %%DIR%%/passwords; %%F%%_ssl_certificate_cache max=10;";
        let r = start(&given, family, behind, own).get("/");
        assert_eq!(r.status, family.2, "{}", family.0);
        if family.0 == "proxy" {
            assert!(r.text().contains(":SUCCESS:"), "{}", r.text());
        }
    }
    let r = start(&given, FAMILIES[0], behind, "").get("/");
    assert!(r.status == 400 && r.text().contains("No required SSL certificate"), "{}", r.text());
}

#[test]
fn commands_for_openssl_are_honoured_or_refused() {
    let given = given();
    for family in FAMILIES {
        let how = "%%F%%_ssl_conf_command MinProtocol TLSv1.3;";
        let server = start(&given, family, "ssl_protocols TLSv1.2;", how);
        assert_eq!(server.get("/").status, 502, "{}", family.0);
    }
}

#[test]
fn keys_of_sessions_are_logged_for_who_watches() {
    let given = given();
    let server = start(&given, FAMILIES[0], "", "proxy_ssl_key_log %%DIR%%/keys.log;");
    assert_eq!(server.get("/").status, 200);
    weir_tests::expect_soon("a line of keys", || {
        server.read("keys.log").contains("CLIENT_TRAFFIC_SECRET_0 ")
    });
}

/// With root's rights it is the master who opens the file; the workers' user may not.
#[test]
fn keys_are_logged_after_a_reload_and_a_rotation() {
    let given = given();
    let how = "proxy_ssl_session_reuse off; proxy_ssl_key_log %%DIR%%/keys.log;";
    let conf = "user nobody nogroup; events {} http {
            client_body_temp_path %%DIR%%/t1; proxy_temp_path %%DIR%%/t2;
            server { listen 127.0.0.1:%%PORT_0%%; HOW
                location / { proxy_pass https://127.0.0.1:%%PORT_1%%; } }
            server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate %%DIR%%/a.crt;
                ssl_certificate_key %%DIR%%/a.key; location / { return 200 GEN; } } }";
    let conf = conf.replace("HOW", how);
    let (old, new) = (conf.replace("GEN", "old"), conf.replace("GEN", "new"));
    let setup = Setup::new(&old).file("a.crt", &given.server.cert).file("a.key", &given.server.key);
    let mut server = setup.start();
    let port = server.on(0);
    server.reload(&new, || port.get("/").text() == "new");
    std::fs::rename(server.dir().join("keys.log"), server.dir().join("keys.old")).unwrap();
    server.signal(weir_tests::Signal::Usr1);
    weir_tests::expect_soon("keys in a new file", || {
        port.get("/").status == 200 && server.read("keys.log").contains("CLIENT_TRAFFIC_SECRET_0 ")
    });
    assert!(server.read("keys.old").contains("CLIENT_TRAFFIC_SECRET_0 "));
}

#[test]
fn a_revoked_client_is_refused() {
    let given = given();
    let revoked = given.root.issue_numbered("gone", 7);
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%% ssl; ssl_certificate %%DIR%%/a.crt;
            ssl_certificate_key %%DIR%%/a.key; ssl_client_certificate %%DIR%%/root.crt; ssl_verify_client on;
            ssl_crl %%DIR%%/revoked.crl; ssl_dhparam %%DIR%%/dh.pem; ssl_conf_command MinProtocol TLSv1.3;
            ssl_session_ticket_key %%DIR%%/ticket.key;
            location / { return 200 $ssl_client_verify:$ssl_protocol; } } }",
    )
    .file("a.crt", &given.server.cert)
    .file("a.key", &given.server.key)
    .file("root.crt", &given.root.cert)
    .file("revoked.crl", given.root.revoking(7))
    .file("ticket.key", [7; 80])
    // It must be there, and is not read.
    .file("dh.pem", "")
    .start();
    let get = |pair: &Pair| Tls::showing(Some(pair)).get(server.port(0), "app.test", "/");
    assert_eq!(get(&given.client).text(), "SUCCESS:TLSv1.3");
    assert_eq!(get(&revoked).status, 400);
    assert_eq!(get(&tls::self_signed("stranger")).status, 400);
}
