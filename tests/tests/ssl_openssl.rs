//! TLS as OpenSSL's own client sees it: what is agreed on, sessions, stapling, early data.

use std::path::PathBuf;
use weir_tests::tls::Authority;
use weir_tests::tools::{self, Tool};
use weir_tests::{CliOutput, Server, Setup};

/// A server whose certificates OpenSSL has made, and OpenSSL.
struct Peers {
    openssl: Tool,
    server: Server,
}

const CONF: &str = "events {} http { ssl_certificate_key %%DIR%%/a.key; http2 on; %%MORE%%
    server { listen 127.0.0.1:%%PORT_0%% ssl; server_name rsa.test; %%OWN%%
        ssl_certificate %%DIR%%/rsa.crt; ssl_certificate_key %%DIR%%/rsa.key;
        return 200 '[$ssl_server_name $ssl_session_reused $ssl_early_data]'; }
    server { listen 127.0.0.1:%%PORT_0%% ssl; server_name ec.test;
        ssl_certificate %%DIR%%/ec.crt; ssl_certificate_key %%DIR%%/ec.key;
        return 200 '[$ssl_server_name $ssl_session_reused $ssl_early_data]'; } }";

/// `more` for all servers, `own` for the one with the RSA key.
fn start(more: &str, own: &str) -> Option<Peers> {
    start_with(more, own, |_, _| {})
}

fn start_with(more: &str, own: &str, prepare: impl Fn(&Tool, PathBuf)) -> Option<Peers> {
    let openssl = tools::need("openssl")?;
    let setup = Setup::new(CONF).set("MORE", more).set("OWN", own);
    let dir = setup.dir().to_path_buf();
    let setup = setup.set("DIR", dir.display());
    for (name, kind) in [("rsa", &["rsa:2048"][..]), ("ec", EC)] {
        let (cert, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        let subject = format!("/CN={name}.test");
        let alternative = format!("subjectAltName=DNS:{name}.test");
        let said = openssl.run(
            &[
                &["req", "-x509", "-nodes", "-days", "30", "-set_serial", "0x1000", "-newkey"],
                kind,
                &["-subj", &subject, "-addext", &alternative],
                &["-keyout", &key.display().to_string(), "-out", &cert.display().to_string()],
            ]
            .concat(),
        );
        assert_eq!(said.code, 0, "{said:?}");
    }
    prepare(&openssl, dir);
    Some(Peers { openssl, server: setup.start() })
}

const EC: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

impl Peers {
    fn path(&self, name: &str) -> String {
        self.server.dir().join(name).display().to_string()
    }

    /// `s_client` asks that server, verifying it, and shows what was agreed on and the answer.
    fn client(&self, name: &str, arguments: &[&str]) -> CliOutput {
        let address = format!("127.0.0.1:{}", self.server.port(0));
        let (host, trusted) = (format!("{name}.test"), self.path(&format!("{name}.crt")));
        let mut all = vec!["s_client", "-ign_eof", "-connect", &address, "-CAfile", &trusted];
        all.extend(["-verify_hostname", &host, "-verify_return_error"]);
        if !arguments.iter().any(|a| a.ends_with("servername")) {
            all.extend(["-servername", &host]);
        }
        all.extend(arguments);
        self.openssl.run_with(&all, REQUEST)
    }

    #[track_caller]
    fn says(&self, name: &str, arguments: &[&str], expected: &[&str]) {
        let said = self.client(name, arguments);
        // Versions of OpenSSL differ in how they write names.
        let text = said.stdout.replace(" = ", "=");
        for part in expected {
            assert!(text.contains(part), "no {part:?} with {arguments:?}: {said:?}");
        }
    }
}

#[test]
fn versions_suites_and_curves_are_agreed_on() {
    let Some(peers) = start("", "") else { return };
    for (arguments, expected) in [
        (&["-tls1_3"][..], &["New, TLSv1.3, Cipher is TLS_AES_256_GCM_SHA384"][..]),
        (&["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], &["is TLS_CHACHA20_POLY1305_SHA256"]),
        (
            &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"],
            &[
                "New, TLSv1.2, Cipher is ECDHE-RSA-AES128-GCM-SHA256",
                "Secure Renegotiation IS supported",
            ],
        ),
        (&["-groups", "P-384"], &["secp384r1"]),
        (&["-alpn", "http/1.1"], &["ALPN protocol: http/1.1", "[rsa.test . ]"]),
        (&[], &["No ALPN negotiated", "Verify return code: 0 (ok)", "[rsa.test . ]"]),
    ] {
        peers.says("rsa", arguments, expected);
    }
    let h2 = peers.client("rsa", &["-alpn", "h2,http/1.1"]);
    assert!(h2.stdout.contains("ALPN protocol: h2"), "{h2:?}");
    // The second has no forward secrecy; nginx takes it.
    for refused in [["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], ["-tls1_2", "-cipher", "AES128-SHA"]]
    {
        let said = peers.client("rsa", &refused);
        assert!(said.code != 0 && said.stdout.contains("Cipher is (NONE)"), "{said:?}");
    }
}

#[test]
fn the_name_chooses_among_kinds_of_keys() {
    let Some(peers) = start("", "") else { return };
    for version in ["-tls1_2", "-tls1_3"] {
        for (name, kind) in [("rsa", "peer signature type: rsa_pss"), ("ec", "type: ecdsa")] {
            let (subject, body) = (format!("subject=CN={name}.test"), format!("[{name}.test . ]"));
            peers.says(name, &[version], &[&subject, &body]);
            // `RSA-PSS` in one version of OpenSSL, `rsa_pss_rsae_sha256` in another.
            let said = peers.client(name, &[version]).stdout.to_lowercase().replace('-', "_");
            assert!(said.contains(kind), "{version} {name}: {said}");
        }
    }
    // Without a name, or with one of nobody, the first server's.
    let first = ["subject=CN=rsa.test"];
    peers.says("rsa", &["-noservername"], &first);
    peers.says("rsa", &["-servername", "other.test"], &first);
}

#[test]
fn sessions_are_resumed_by_ticket_and_by_id() {
    for (more, arguments, version) in [
        ("", &["-tls1_3"][..], "TLSv1.3"),
        ("", &["-tls1_2"], "TLSv1.2"),
        ("ssl_session_cache shared:a:1m; ssl_session_tickets off;", &["-tls1_2"], "TLSv1.2"),
        ("ssl_session_cache shared:b:1m;", &["-tls1_2", "-no_ticket"], "TLSv1.2"),
        ("ssl_session_cache shared:c:1m; ssl_session_tickets off;", &["-tls1_3"], "TLSv1.3"),
    ] {
        let Some(peers) = start(more, "") else { return };
        let session = peers.path("session");
        let new = format!("New, {version}, Cipher is");
        let keep = [arguments, &["-sess_out", &session]].concat();
        peers.says("rsa", &keep, &[&new, "[rsa.test . ]"]);
        let reused = format!("Reused, {version}, Cipher is");
        let again = [arguments, &["-sess_in", &session]].concat();
        peers.says("rsa", &again, &[&reused, "[rsa.test r ]"]);
        // A session of one name is none of another's.
        let elsewhere = peers.client("ec", &again);
        assert!(!elsewhere.stdout.contains("[ec.test r"), "{more}: {elsewhere:?}");
    }
}

#[test]
fn tickets_and_ids_may_both_be_off() {
    let Some(peers) = start("ssl_session_cache off; ssl_session_tickets off;", "") else { return };
    for version in ["-tls1_2", "-tls1_3"] {
        let session = peers.path("session");
        peers.says("rsa", &[version, "-sess_out", &session], &["New, TLSv1.", "[rsa.test . ]"]);
        // nginx gives TLS 1.3 clients a session all the same, which it then does not know.
        if std::path::Path::new(&session).exists() {
            peers.says("rsa", &[version, "-sess_in", &session], &["New, TLSv1.", "[rsa.test . ]"]);
        }
    }
}

/// The responder of a certificate that is its own authority.
fn make_ocsp_answer(openssl: &Tool, dir: PathBuf) {
    let path = |name: &str| dir.join(name).display().to_string();
    let (cert, key) = (path("rsa.crt"), path("rsa.key"));
    std::fs::write(path("index"), "V\t401231235959Z\t\t1000\tunknown\t/CN=rsa.test\n").unwrap();
    let ask = ["ocsp", "-no_nonce", "-issuer", &cert, "-cert", &cert, "-reqout", &path("ask")];
    let said = openssl.run(&ask);
    assert_eq!(said.code, 0, "{said:?}");
    let said = openssl.run(
        &[
            &["ocsp", "-index", &path("index"), "-CA", &cert, "-rsigner", &cert, "-rkey", &key][..],
            &["-reqin", &path("ask"), "-respout", &path("answer"), "-ndays", "7"],
        ]
        .concat(),
    );
    assert!(said.code == 0 && dir.join("answer").exists(), "{said:?}");
}

#[test]
fn an_ocsp_answer_from_a_file_is_stapled() {
    let own = "ssl_stapling on; ssl_stapling_file %%DIR%%/answer;";
    let Some(peers) = start_with("", own, make_ocsp_answer) else { return };
    for version in ["-tls1_2", "-tls1_3"] {
        let stapled = ["OCSP Response Status: successful (0x0)", "Cert Status: good", "[rsa.test"];
        peers.says("rsa", &[version, "-status"], &stapled);
        let unasked = peers.client("rsa", &[version]).stdout;
        assert!(!unasked.contains("Cert Status"), "{unasked}");
        peers.says("ec", &[version, "-status"], &["OCSP response: no response sent"]);
    }
}

#[test]
fn early_data_is_taken_once_and_where_allowed() {
    for (more, fate, seen) in [
        ("ssl_early_data on; ssl_session_cache shared:e:1m;", "Early data was accepted", "1]"),
        ("ssl_session_cache shared:f:1m;", "Early data was not sent", " ]"),
    ] {
        let Some(peers) = start(more, "") else { return };
        let (session, early) = (peers.path("session"), peers.path("early"));
        peers.says("rsa", &["-tls1_3", "-sess_out", &session], &["New, TLSv1.3"]);
        peers.server.write("early", REQUEST);
        let again = ["-tls1_3", "-sess_in", &session, "-early_data", &early];
        let said = peers.client("rsa", &again).stdout;
        assert!(said.contains(fate) && said.contains("Reused, TLSv1.3"), "{more}: {said}");
        assert!(said.contains(&format!("[rsa.test r {}", seen.trim_start())), "{more}: {said}");
        // Played again, it is not early any more. (nginx takes it again.)
        let replayed = peers.client("rsa", &again).stdout;
        assert!(!replayed.contains("Early data was accepted"), "{replayed}");
    }
}

/// `s_server` shows the second certificate for the second name, ends the handshake for any other
/// (`-servername_fatal`), and wants a certificate of the client.
#[test]
fn openssl_as_a_server_is_told_the_name_and_shown_a_certificate() {
    let Some(openssl) = tools::need("openssl") else { return };
    let authority = Authority::new("root");
    let mut setup = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
            proxy_ssl_trusted_certificate %%DIR%%/root.crt; proxy_ssl_verify on;
            proxy_ssl_certificate %%DIR%%/own.crt; proxy_ssl_certificate_key %%DIR%%/own.key;
            proxy_ssl_name app.test; proxy_ssl_session_reuse off;
            location / { proxy_ssl_server_name on; proxy_pass https://127.0.0.1:%%PORT_1%%; }
            location /unnamed/ { proxy_pass https://127.0.0.1:%%PORT_1%%/; }
            location /other/ { proxy_ssl_server_name on; proxy_ssl_name other.test;
                proxy_pass https://127.0.0.1:%%PORT_1%%/; }
            location /nobody/ { proxy_ssl_server_name on; proxy_ssl_certificate '';
                proxy_ssl_certificate_key ''; proxy_pass https://127.0.0.1:%%PORT_1%%/; } } }",
    )
    .file("root.crt", &authority.cert);
    for name in ["first", "app", "own"] {
        let pair = authority.issue(&format!("{name}.test"));
        setup = setup.file(format!("{name}.crt"), pair.cert).file(format!("{name}.key"), pair.key);
    }
    let server = setup.file("page", "HTTP/1.0 200 OK\r\nX-From: openssl\r\n\r\nthe page").start();
    let port = server.port(1).to_string();
    let _server = openssl.start(|command| {
        command.current_dir(server.dir()).args(["s_server", "-accept", &port, "-HTTP"]);
        command.args(["-cert", "first.crt", "-key", "first.key"]);
        command.args(["-cert2", "app.crt", "-key2", "app.key"]);
        command.args(["-servername", "app.test", "-servername_fatal"]);
        command.args(["-Verify", "1", "-CAfile", "root.crt", "-verify_return_error"]);
    });
    weir_tests::expect_soon("s_server listens", || tools::listens_on(server.port(1)));
    let answer = server.get("/page");
    assert_eq!((answer.status, answer.header("X-From")), (200, Some("openssl")));
    assert_eq!(answer.text(), "the page");
    assert_eq!(server.get("/unnamed/page").status, 502);
    server.expect_error("upstream SSL certificate does not match \"app.test\"");
    assert_eq!(server.get("/other/page").status, 502);
    assert_eq!(server.get("/nobody/page").status, 502);
    assert_eq!(server.get("/page").text(), "the page");
}
