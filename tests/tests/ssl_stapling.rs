//! Answers of OCSP responders that go with the server's certificate.

use weir_tests::ocsp::{Responder, Says};
use weir_tests::tls::{Authority, Pair, Tls};
use weir_tests::{expect_soon, run_cli, Dns, Server, Setup};

const CONF: &str = "worker_processes 1; error_log %%DIR%%/error.log;
    events {} http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
        ssl_stapling on; %%MORE%%
        server { listen 127.0.0.1:%%PORT_0%% ssl; server_name a; return 200 ok; } }";

struct Stapling {
    responder: Responder,
    server: Server,
}

impl Stapling {
    fn new(root: &Authority, responder: Responder, url: &str, more: &str) -> Stapling {
        let own = root.issue_asked("a", url);
        let server = Setup::new(CONF)
            .set("MORE", more)
            .file("a.crt", format!("{}{}", own.cert, root.cert))
            .file("a.key", own.key)
            .file("root.crt", &root.cert)
            .start();
        Stapling { responder, server }
    }

    /// A root that answers by itself.
    fn simple(more: &str) -> Stapling {
        let root = Authority::new("root");
        let responder = Responder::start(root.signer());
        let url = responder.url();
        Stapling::new(&root, responder, &url, more)
    }

    /// The answer that a new client gets.
    fn stapled(&self) -> Vec<u8> {
        Tls::default().stapled(self.server.port(0), "a")
    }

    #[track_caller]
    fn expect(&self) {
        expect_soon("a stapled answer", || !self.stapled().is_empty());
    }

    /// Handshakes bring nothing, whatever has been said.
    #[track_caller]
    fn expect_none(&self, error: &str) {
        assert_eq!(self.stapled(), b"");
        self.server.expect_error(error);
        assert_eq!(self.stapled(), b"");
    }
}

#[test]
fn an_answer_is_fetched_and_stapled() {
    let test = Stapling::simple("");
    assert_eq!(test.responder.asked(), 0, "nobody asks before there is a client");
    test.expect();
    assert_eq!(test.stapled()[..2], [0x30, 0x82], "an answer, in DER");
    let head = test.responder.last_head();
    assert!(head.starts_with("GET /") && head.contains(" HTTP/1.0\r\n"), "{head}");
}

#[test]
fn bad_answers_are_not_stapled() {
    for (says, error) in [
        (Says::Revoked, "certificate status \"revoked\" in the OCSP response"),
        (Says::Expired, "OCSP_check_validity() failed"),
        (Says::Another, "certificate status not found in the OCSP response"),
        (Says::Unauthorized, "OCSP response not successful (6: unauthorized)"),
    ] {
        let root = Authority::new("root");
        let responder = Responder::start(root.signer());
        responder.says(says);
        let url = responder.url();
        Stapling::new(&root, responder, &url, "").expect_none(error);
    }
}

#[test]
fn signers_are_verified_where_that_is_asked_for() {
    let verify = "ssl_stapling_verify on; ssl_trusted_certificate root.crt;";
    let (root, stranger) = (Authority::new("root"), Authority::new("stranger"));
    let with = |signer, more: &str| {
        let responder = Responder::start(signer);
        let url = responder.url();
        Stapling::new(&root, responder, &url, more)
    };
    with(stranger.signer(), "").expect();
    with(root.helper(true), verify).expect();
    with(stranger.signer(), verify).expect_none("OCSP_basic_verify() failed");
    with(root.helper(false), verify).expect_none("OCSP_basic_verify() failed");
}

#[test]
fn a_silent_responder_holds_nobody_up() {
    let test = Stapling::simple("");
    test.responder.says(Says::Nothing);
    for _ in 0..10 {
        assert_eq!(test.stapled(), b"");
    }
    expect_soon("a question", || test.responder.asked() > 0);
}

#[test]
fn a_responder_that_failed_is_left_alone_for_a_while() {
    let test = Stapling::simple("");
    test.responder.says(Says::Unauthorized);
    test.expect_none("OCSP response not successful");
    test.responder.says(Says::Good);
    for _ in 0..20 {
        assert_eq!(test.stapled(), b"");
    }
    assert_eq!(test.responder.asked(), 1);
}

#[test]
fn the_configured_responder_by_name() {
    let root = Authority::new("root");
    let (unused, responder) = (Responder::start(root.signer()), Responder::start(root.signer()));
    let dns = Dns::start();
    dns.set_ip("localhost", 60, [127, 0, 0, 1].into());
    let port = responder.port();
    let address = dns.address();
    let more =
        format!("resolver {address} ipv6=off; ssl_stapling_responder http://localhost:{port}/ask;");
    let url = unused.url();
    let test = Stapling::new(&root, responder, &url, &more);
    test.expect();
    assert!(test.responder.last_head().starts_with("GET /ask/"));
    assert_eq!(unused.asked(), 0);
    dns.expect("localhost A", 1);
}

/// nginx starts without an answer after each reload, and each of its workers asks.
#[test]
fn answers_are_for_all_workers_and_outlive_a_reload() {
    let mut test = Stapling::simple("");
    test.expect();
    let asked = test.responder.asked();
    let conf = CONF.replace("%%MORE%%", "").replace("return 200 ok", "return 201");
    let conf = conf.replace("worker_processes 1", "worker_processes 2");
    let port = test.server.port(0);
    test.server.reload(&conf, || Tls::default().get(port, "a", "/").status == 201);
    for _ in 0..10 {
        assert!(!test.stapled().is_empty());
    }
    assert_eq!(test.responder.asked(), asked);
}

#[test]
fn what_cannot_be_stapled_is_said() {
    let root = Authority::new("root");
    let said = |own: Pair, chain: &str| {
        let cert = format!("{}{chain}", own.cert);
        let files = Setup::new("").file("a.crt", cert).file("a.key", own.key);
        let conf = CONF.replace("%%DIR%%", &files.dir().display().to_string());
        let output = run_cli(&["-t"], &conf.replace("%%MORE%%", ""));
        assert_eq!(output.code, 0, "{}", output.stderr);
        output.stderr
    };
    let url = "http://127.0.0.1/";
    for (own, chain, text) in [
        (root.issue_asked("a", url), "", "issuer certificate not found for certificate"),
        (root.issue("a"), &root.cert[..], "no OCSP responder URL in the certificate"),
        (
            root.issue_asked("a", "https://a/"),
            &root.cert[..],
            "invalid URL prefix in OCSP responder",
        ),
    ] {
        let said = said(own, chain);
        assert!(said.contains(&format!("\"ssl_stapling\" ignored, {text}")), "{said}");
    }
}
