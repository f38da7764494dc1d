//! Keys that are named as OpenSSL names them: by a store's URI.

use weir_tests::tls::{self, Tls};
use weir_tests::{run_cli, Setup};

#[test]
fn keys_come_from_files_by_their_uri() {
    let (plain, locked) = (tls::self_signed("plain"), tls::self_signed("locked"));
    let server = Setup::new(
        "events {} http { ssl_certificate plain.crt;
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name one;
                ssl_certificate_key store:file:%%DIR%%/plain.key; return 200 one; }
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name slashes;
                ssl_certificate_key store:file://%%DIR%%/plain.key; return 200 slashes; }
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name der;
                ssl_certificate_key store:file:%%DIR%%/plain.der; return 200 der; }
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name locked;
                ssl_certificate locked.crt; ssl_password_file passwords;
                ssl_certificate_key store:file:%%DIR%%/$ssl_server_name.key; return 200 locked; } }",
    )
    .file("plain.crt", &plain.cert)
    .file("plain.key", &plain.key)
    .file("plain.der", plain.key_der())
    .file("locked.crt", &locked.cert)
    .file("locked.key", locked.locked("sesame").key)
    .file("passwords", "sesame\n")
    .start();
    let port = server.port(0);
    for name in ["one", "slashes", "der", "locked"] {
        assert_eq!(Tls::default().get(port, name, "/").text(), name);
    }
    assert!(Tls::default().connect(port, "locked").unwrap().shows(&locked));
}

#[test]
fn other_stores_are_refused() {
    let own = tls::self_signed("a");
    let files = Setup::new("").file("a.crt", own.cert);
    let crt = files.dir().join("a.crt").display().to_string();
    for key in ["store:pkcs11:object=a", "store:file:a.key", "engine:e:id"] {
        let conf = format!(
            "events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%% ssl;
                ssl_certificate {crt}; ssl_certificate_key {key}; }} }}"
        );
        let output = run_cli(&["-t"], &conf);
        assert_eq!(output.code, 1, "{key}");
        let text = format!("cannot load certificate key \"{key}\"");
        assert!(output.stderr.contains(&text), "{}", output.stderr);
    }
}
