//! Clients' certificates that OCSP responders are asked about.

use weir_tests::ocsp::{Responder, Says};
use weir_tests::tls::{self, Authority, Pair, Tls};
use weir_tests::{run_cli, Dns, Server, Setup};

const CONF: &str = "worker_processes 2; error_log %%DIR%%/error.log;
    events {} http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
        ssl_verify_client on; ssl_verify_depth 2; ssl_client_certificate %%DIR%%/root.crt;
        ssl_ocsp leaf; add_header X-Verify $ssl_client_verify always; client_header_timeout 10s;
        server { listen 127.0.0.1:%%PORT_0%% ssl; server_name a; %%MORE%%
            location / { return 200 $ssl_session_reused; } } }";

fn server(trusted: &str, more: &str) -> Server {
    let own = tls::self_signed("localhost");
    let setup = Setup::new(CONF).set("MORE", more);
    setup.file("a.crt", own.cert).file("a.key", own.key).file("root.crt", trusted).start()
}

/// What a client with that certificate is told, on a session of its own.
#[track_caller]
fn told(server: &Server, pair: &Pair) -> String {
    let answer = Tls::showing(Some(pair)).get(server.port(0), "a", "/");
    let verify = answer.header("X-Verify").unwrap_or_default().to_string();
    assert_eq!(answer.status, if verify == "SUCCESS" { 200 } else { 400 }, "{verify}");
    verify
}

const FAILED: &str = "FAILED:certificate status request failed";

#[test]
fn what_responders_say_counts() {
    let root = Authority::new("root");
    let responder = Responder::start(root.signer());
    let client = root.issue_asked("client", &responder.url());
    let server = server(&root.cert, "");
    for (says, verify) in [
        (Says::Good, "SUCCESS"),
        (Says::Revoked, "FAILED:certificate revoked"),
        (Says::Unknown, "FAILED:certificate status unknown"),
        (Says::Expired, FAILED),
        (Says::Another, FAILED),
        (Says::Forged, FAILED),
        (Says::Unauthorized, FAILED),
        (Says::NotFound, FAILED),
    ] {
        responder.says(says);
        assert_eq!(told(&server, &client), verify, "{says:?}");
    }
    assert!(responder.last_head().starts_with("GET /"), "{}", responder.last_head());
    let nobody = root.issue("unasked");
    assert_eq!(told(&server, &nobody), FAILED);
    server.expect_error("no OCSP responder URL in certificate");
}

#[test]
fn only_the_issuer_or_whom_it_lets_may_answer() {
    let (root, other) = (Authority::new("root"), Authority::new("other"));
    let trusted = format!("{}{}", root.cert, other.cert);
    let server = server(&trusted, "");
    for (signer, verify) in [
        (root.helper(true), "SUCCESS"),
        (root.helper(false), FAILED),
        (other.signer(), FAILED),
        (other.helper(true), FAILED),
    ] {
        let responder = Responder::start(signer);
        let client = root.issue_asked("client", &responder.url());
        assert_eq!(told(&server, &client), verify);
    }
}

#[test]
fn sessions_are_asked_about_again() {
    let root = Authority::new("root");
    let responder = Responder::start(root.signer());
    let client = Tls::showing(Some(&root.issue_asked("client", &responder.url())));
    let server = server(&root.cert, "");
    assert_eq!(client.get(server.port(0), "a", "/").text(), ".");
    assert_eq!(client.get(server.port(0), "a", "/").text(), "r");
    responder.says(Says::Revoked);
    let refused = client.get(server.port(0), "a", "/");
    assert_eq!(refused.header("X-Verify"), Some("FAILED:certificate revoked"));
}

#[test]
fn the_whole_chain_where_it_is_wanted() {
    let root = Authority::new("root");
    let (above, below) = (Responder::start(root.signer()), root);
    let middle = below.lower("middle", &above.url());
    let responder = Responder::start(middle.signer());
    let client = middle.issue_asked("client", &responder.url());
    let trusted = format!("{}{}", below.cert, middle.cert);
    let (leaf, whole) = (server(&trusted, ""), server(&trusted, "ssl_ocsp on;"));
    assert_eq!(told(&leaf, &client), "SUCCESS");
    assert_eq!(above.asked(), 0);
    assert_eq!(told(&whole, &client), "SUCCESS");
    assert_eq!(above.asked(), 1);
    above.says(Says::Revoked);
    assert_eq!(told(&leaf, &client), "SUCCESS");
    assert_eq!(told(&whole, &client), "FAILED:certificate revoked");
}

#[test]
fn answers_are_kept_for_all_workers() {
    let root = Authority::new("root");
    let responder = Responder::start(root.signer());
    let client = root.issue_asked("client", &responder.url());
    let server = server(&root.cert, "ssl_ocsp_cache shared:ocsp:1m;");
    assert_eq!(told(&server, &client), "SUCCESS");
    responder.says(Says::Revoked);
    for _ in 0..20 {
        assert_eq!(told(&server, &client), "SUCCESS");
    }
    assert_eq!(responder.asked(), 1);
    let another = root.issue_asked("another", &responder.url());
    assert_eq!(told(&server, &another), "FAILED:certificate revoked");
    responder.says(Says::Good);
    assert_eq!(told(&server, &another), "FAILED:certificate revoked", "that is kept as well");
}

#[test]
fn the_configured_responder_is_asked_instead() {
    let root = Authority::new("root");
    let (named, configured) = (Responder::start(root.signer()), Responder::start(root.signer()));
    configured.says(Says::Revoked);
    let client = root.issue_asked("client", &named.url());
    let url = configured.url();
    let server = server(&root.cert, &format!("ssl_ocsp_responder {url}ask;"));
    assert_eq!(told(&server, &client), "FAILED:certificate revoked");
    assert_eq!((named.asked(), configured.asked()), (0, 1));
    let head = configured.last_head();
    assert!(head.starts_with("GET /ask/") && head.contains(" HTTP/1.0\r\n"), "{head}");
}

#[test]
fn names_of_responders_need_a_resolver() {
    let root = Authority::new("root");
    let responder = Responder::start(root.signer());
    let url = format!("http://ocsp.test:{}/", responder.port());
    let client = root.issue_asked("client", &url);
    let alone = server(&root.cert, "");
    assert_eq!(told(&alone, &client), FAILED);
    alone.expect_error("no resolver defined to resolve ocsp.test");
    let dns = Dns::start();
    dns.set_ip("ocsp.test", 60, [127, 0, 0, 1].into());
    let more = format!("resolver {} ipv6=off;", dns.address());
    assert_eq!(told(&server(&root.cert, &more), &client), "SUCCESS");
    let lost = root.issue_asked("client", "http://lost.test/");
    let asking = server(&root.cert, &more);
    assert_eq!(told(&asking, &lost), FAILED);
    asking.expect_error("lost.test could not be resolved (3: Host not found)");
}

#[test]
fn a_silent_responder_is_not_waited_for_longer_than_the_client() {
    let root = Authority::new("root");
    let responder = Responder::start(root.signer());
    responder.says(Says::Nothing);
    let client = root.issue_asked("client", &responder.url());
    let server = server(&root.cert, "client_header_timeout 500ms;");
    let mut conn = Tls::showing(Some(&client)).connect(server.port(0), "a").unwrap();
    conn.send(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    assert_eq!(conn.read_to_end(), b"", "no request is served before it is known");
    assert_eq!(responder.asked(), 1);
}

#[test]
fn mistakes_in_the_configuration() {
    let own = tls::self_signed("localhost");
    let files = Setup::new("").file("a.crt", &own.cert).file("a.key", own.key);
    let files = files.file("root.crt", own.cert);
    let said = |more: &str| {
        let conf = CONF.replace("ssl_ocsp leaf;", "").replace("%%MORE%%", more);
        let conf = conf.replace("%%DIR%%", &files.dir().display().to_string());
        run_cli(&["-t"], &conf).stderr
    };
    for (more, text) in [
        ("ssl_ocsp leaf; ssl_verify_client optional_no_ca;", "\"ssl_ocsp\" is incompatible with"),
        ("ssl_ocsp on; ssl_ocsp_responder https://a/;", "invalid URL prefix in OCSP responder"),
        ("ssl_ocsp_cache shared:a:1k;", "OCSP cache \"shared:a:1k\" is too small"),
        ("ssl_ocsp_cache builtin;", "invalid OCSP cache \"builtin\""),
        ("ssl_ocsp maybe;", "invalid value \"maybe\""),
    ] {
        let said = said(more);
        assert!(said.contains(text), "{more}: {said}");
    }
}
