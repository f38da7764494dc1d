//! A client's certificate on an address that servers with other authorities share: the server that
//! answers is the one that judges, whichever the handshake was done with.

use rustls::version::{TLS12, TLS13};
use weir_tests::h2::H2;
use weir_tests::ocsp::{Responder, Says};
use weir_tests::tls::{self, Authority, Tls};
use weir_tests::{Server, Setup};

/// The number of the certificate that b's list revokes.
const REVOKED: u64 = 77;

const CONF: &str = "events {} http { error_log %%DIR%%/error.log info; http2 on;
    ssl_certificate %%DIR%%/own.crt; ssl_certificate_key %%DIR%%/own.key; %%MORE%%
    server { listen 127.0.0.1:%%PORT_0%% ssl; server_name a.test;
        ssl_client_certificate %%DIR%%/a.crt; ssl_verify_client optional; error_page 495 = /bad;
        location / { return 200 a:$ssl_client_verify:$ssl_client_s_dn; }
        location /bad { return 200 a:$ssl_client_verify:$ssl_client_s_dn; } }
    server { listen 127.0.0.1:%%PORT_0%% ssl; server_name b.test;
        ssl_client_certificate %%DIR%%/b.crt; ssl_crl %%DIR%%/b.crl; ssl_verify_client on;
        error_page 495 496 = /bad;
        location / { return 200 b:$ssl_client_verify:$ssl_client_s_dn; }
        location /bad { return 200 b:$ssl_client_verify:$ssl_client_s_dn; } }
    server { listen 127.0.0.1:%%PORT_0%% ssl; server_name off.test;
        location / { return 200 off:$ssl_client_verify:$ssl_client_s_dn; } } }";

/// What a client shows, and what a and b have to say to that.
struct Shown {
    pair: Option<tls::Pair>,
    a: &'static str,
    b: &'static str,
}

struct World {
    server: Server,
    clients: Vec<Shown>,
}

fn world(more: &str) -> World {
    let (a, b) = (Authority::new("a"), Authority::new("b"));
    let own = tls::self_signed("localhost");
    let unknown = "FAILED:unable to verify the first certificate:CN=x";
    let unknown = |pair, a, b| Shown { pair: Some(pair), a: a_or(a, unknown), b: a_or(b, unknown) };
    let server = Setup::new(CONF)
        .set("MORE", more)
        .file("own.crt", own.cert)
        .file("own.key", own.key)
        .file("a.crt", &a.cert)
        .file("b.crt", &b.cert)
        .file("b.crl", b.revoking(REVOKED))
        .start();
    let clients = vec![
        Shown { pair: None, a: "NONE:", b: "NONE:" },
        unknown(a.issue("x"), "SUCCESS:CN=x", ""),
        unknown(b.issue("x"), "", "SUCCESS:CN=x"),
        unknown(
            b.issue_expired("x"),
            "FAILED:certificate has expired:CN=x",
            "FAILED:certificate has expired:CN=x",
        ),
        unknown(b.issue_numbered("x", REVOKED), "", "FAILED:certificate revoked:CN=x"),
    ];
    World { server, clients }
}

fn a_or(said: &'static str, other: &'static str) -> &'static str {
    if said.is_empty() {
        other
    } else {
        said
    }
}

/// The client that differs from the revoked one in nothing that matters to sessions.
const EXPIRED: usize = 3;
const SECOND: [&str; 3] = ["", "a.test", "b.test"];
const NAMES: [&str; 4] = ["", "a.test", "b.test", "unknown.test"];
const HOSTS: [&str; 4] = ["a.test", "b.test", "off.test", "unknown.test"];

/// The verdict of the handshake's server is not that of the one that answers.
fn is_judged_again(sni: &str, host: &str, shown: &Shown) -> bool {
    let is_other = host == "b.test" && !matches!(sni, "a.test" | "b.test");
    (is_other || host == "off.test") && shown.pair.is_some()
}

/// What must be answered: a name that a server has fixes the server, as far as that verifies.
fn expected(sni: &str, host: &str, shown: &Shown) -> String {
    let answers = match host {
        "b.test" => "b",
        "off.test" => "off",
        _ => "a",
    };
    let is_named = matches!(sni, "a.test" | "b.test");
    if is_named && sni != host && answers != "off" {
        return "421".to_string();
    }
    match answers {
        "a" => format!("200 a:{}", shown.a),
        "b" => format!("200 b:{}", shown.b),
        _ => "200 off:NONE:".to_string(),
    }
}

fn name_of(sni: &str) -> &str {
    a_or_str(sni, "a.test")
}

fn a_or_str<'a>(said: &'a str, other: &'a str) -> &'a str {
    if said.is_empty() {
        other
    } else {
        said
    }
}

fn told(status: u16, text: &str) -> String {
    match status {
        200 => format!("200 {text}"),
        _ => status.to_string(),
    }
}

fn ask(client: &Tls, port: u16, sni: &str, host: &str) -> String {
    let name = name_of(sni);
    let answer = match sni {
        "" => client.but_nameless().get_host(port, name, host, "/"),
        _ => client.get_host(port, name, host, "/"),
    };
    told(answer.status, &answer.text())
}

/// All cells of one kind, over HTTP/1, each on a connection of its own.
fn check_all(world: &World, again: bool) {
    let port = world.server.port(0);
    for (i, shown) in world.clients.iter().enumerate() {
        for version in [&TLS12, &TLS13] {
            let client = || Tls::speaking(&[version], shown.pair.as_ref());
            for sni in NAMES {
                for host in HOSTS.iter().filter(|h| is_judged_again(sni, h, shown) == again) {
                    let said = ask(&client(), port, sni, host);
                    let at = format!("{i} {:?} {sni:?} {host}", version.version);
                    assert_eq!(said, expected(sni, host, shown), "{at}");
                }
            }
        }
    }
}

#[test]
fn a_name_in_the_hello_fixes_the_verifying_server() {
    check_all(&world(""), false);
}

/// nginx answers these with what the default server thinks.
#[test]
fn without_a_name_in_the_hello_the_server_that_answers_judges() {
    check_all(&world(""), true);
}

/// Sessions and tickets made with one server are shown to another.
#[test]
fn resumption_makes_no_difference() {
    for more in ["ssl_session_cache shared:s:1m; ssl_session_tickets off;", ""] {
        let world = world(more);
        let port = world.server.port(0);
        for (i, shown) in world.clients.iter().enumerate().filter(|(i, _)| *i != EXPIRED) {
            for version in [&TLS12, &TLS13] {
                for (first, second) in NAMES.iter().flat_map(|f| SECOND.map(|s| (*f, s))) {
                    let client = Tls::speaking(&[version], shown.pair.as_ref());
                    let client = client.offers_sessions_to_all();
                    ask(&client, port, first, a_or_str(first, "b.test"));
                    for host in ["a.test", "b.test"] {
                        let said = ask(&client, port, second, host);
                        let at = format!("{i} {:?} {first:?} {second:?} {host}", version.version);
                        assert_eq!(said, expected(second, host, shown), "{at}");
                    }
                }
            }
        }
    }
}

/// Several authorities on one connection, in turn.
#[test]
fn every_stream_is_judged_by_its_own_server() {
    let world = world("");
    for (i, shown) in world.clients.iter().enumerate() {
        for sni in NAMES {
            let client = Tls::showing(shown.pair.as_ref()).offering(&["h2"]);
            let client = if sni.is_empty() { client.nameless() } else { client };
            let conn = client.connect(world.server.port(0), name_of(sni)).expect("a handshake");
            let mut h2 = H2::over(conn.into_client());
            h2.greet(&[]);
            for host in HOSTS.into_iter().chain(HOSTS) {
                let fields = [
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":path", "/"),
                    (":authority", host),
                ];
                let stream = h2.open(&fields, true);
                let answer = h2.answer(stream);
                let said = told(answer.status, &answer.text());
                assert_eq!(said, expected(sni, host, shown), "{i} {sni:?} {host}");
            }
        }
    }
}

const ASKING_B: &str = "events {} http {
    ssl_certificate %%DIR%%/own.crt; ssl_certificate_key %%DIR%%/own.key;
    server { listen 127.0.0.1:%%PORT_0%% ssl; server_name a.test; %%A%%
        location / { return 200 a:$ssl_client_verify:$ssl_client_s_dn; } }
    server { listen 127.0.0.1:%%PORT_0%% ssl; server_name b.test; %%B%%
        location / { return 200 b:$ssl_client_verify:$ssl_client_s_dn; } } }";

fn asking_conf(a: &str, b: &str) -> String {
    ASKING_B.replace("%%A%%", a).replace("%%B%%", b)
}

fn asking(a: &str, b: &str, authority: &Authority) -> Server {
    let own = tls::self_signed("localhost");
    let setup = Setup::new(&asking_conf(a, b));
    let setup = setup.file("own.crt", own.cert).file("own.key", own.key);
    setup.file("b.crt", &authority.cert).start()
}

const ON: &str = "ssl_client_certificate %%DIR%%/b.crt; ssl_verify_client on;";

/// The default server asks for no certificate; the other requires one.
#[test]
fn a_default_server_that_does_not_ask_lets_nobody_through_to_one_that_does() {
    let authority = Authority::new("b");
    let server = asking("", ON, &authority);
    let good = authority.issue("x");
    for (sni, host, said) in [
        ("b.test", "b.test", "200 b:SUCCESS:CN=x"),
        ("a.test", "b.test", "421"),
        ("a.test", "a.test", "200 a:NONE:"),
        ("", "b.test", "400"),
        ("unknown.test", "b.test", "400"),
        ("", "a.test", "200 a:NONE:"),
        ("B.test", "b.TEST", "200 b:SUCCESS:CN=x"),
    ] {
        let client = Tls::showing(Some(&good));
        assert_eq!(ask(&client, server.port(0), sni, host), said, "{sni:?} {host}");
    }
}

/// nginx tells a server that does not verify what another has found.
#[test]
fn what_was_shown_to_another_server_is_not_told() {
    let authority = Authority::new("b");
    let server = asking("", ON, &authority);
    let client = Tls::showing(Some(&authority.issue("x")));
    assert_eq!(ask(&client, server.port(0), "b.test", "a.test"), "200 a:NONE:");
}

/// The page for a misdirected request is one of the server that was negotiated.
#[test]
fn a_misdirected_request_sees_nothing_of_the_other_server() {
    let authority = Authority::new("b");
    let page = "error_page 421 = /page; location = /page { return 200";
    let server =
        asking(&format!("{page} 'of a'; }}"), &format!("{ON} {page} 'of b'; }}"), &authority);
    let client = Tls::showing(Some(&authority.issue("x")));
    assert_eq!(ask(&client, server.port(0), "a.test", "b.test"), "200 of a");
}

/// Servers that say the same take the same clients, whichever name the hello has.
#[test]
fn the_same_authorities_for_all_servers_are_asked_once() {
    let authority = Authority::new("b");
    let server = asking(ON, &format!("{ON} ssl_verify_depth 2;"), &authority);
    let client = Tls::showing(Some(&authority.issue("x")));
    for (host, said) in [("a.test", "200 a:SUCCESS:CN=x"), ("b.test", "200 b:SUCCESS:CN=x")] {
        assert_eq!(ask(&client, server.port(0), "", host), said);
    }
}

/// A server without certificates leaves the handshake to the default one, not the judgement.
#[test]
fn a_server_without_certificates_judges_by_its_own_authorities() {
    let (a, b) = (Authority::new("a"), Authority::new("b"));
    let own = tls::self_signed("localhost");
    let server = Setup::new(
        "events {} http {
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name a.test;
                ssl_certificate %%DIR%%/own.crt; ssl_certificate_key %%DIR%%/own.key;
                ssl_client_certificate %%DIR%%/a.crt; ssl_verify_client optional; }
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name b.test; error_page 495 = /bad;
                ssl_client_certificate %%DIR%%/b.crt; ssl_verify_client on;
                location / { return 200 $ssl_client_verify; } }
            server { listen 127.0.0.1:%%PORT_0%% ssl; server_name c.test; ssl_verify_client on;
                location / { return 200 $ssl_client_verify; } } }",
    )
    .file("own.crt", own.cert)
    .file("own.key", own.key)
    .file("a.crt", &a.cert)
    .file("b.crt", &b.cert)
    .start();
    let port = server.port(0);
    let (of_a, of_b) = (Tls::showing(Some(&a.issue("x"))), Tls::showing(Some(&b.issue("x"))));
    let unknown = "200 FAILED:unable to verify the first certificate";
    for sni in ["", "b.test"] {
        assert_eq!(ask(&of_a, port, sni, "b.test"), unknown, "{sni:?}");
        assert_eq!(ask(&of_b, port, sni, "b.test"), "200 SUCCESS", "{sni:?}");
    }
    // One that names nobody has the default server's.
    assert_eq!(ask(&of_a, port, "c.test", "c.test"), "200 SUCCESS");
    assert_eq!(ask(&of_b, port, "c.test", "c.test"), "400");
}

/// The responder is asked for the server that answers, in the middle of the connection.
#[test]
fn revocation_is_asked_about_for_the_server_that_answers() {
    let authority = Authority::new("b");
    let responder = Responder::start(authority.signer());
    let server = asking(ON, &format!("{ON} ssl_ocsp on;"), &authority);
    let client = Tls::showing(Some(&authority.issue_asked("x", &responder.url())));
    let port = server.port(0);
    assert_eq!(ask(&client, port, "", "a.test"), "200 a:SUCCESS:CN=x");
    assert_eq!(responder.asked(), 0);
    assert_eq!(ask(&client, port, "", "b.test"), "200 b:SUCCESS:CN=x");
    assert_eq!(responder.asked(), 1);
    responder.says(Says::Revoked);
    assert_eq!(ask(&client, port, "", "a.test"), "200 a:SUCCESS:CN=x");
    assert_eq!(ask(&client, port, "", "b.test"), "400");
}

/// A connection that outlives a reload is judged by the new configuration.
#[test]
fn a_list_that_comes_with_a_reload_counts_on_open_connections() {
    let authority = Authority::new("b");
    let mut server = asking(ON, "", &authority);
    server.write("b.crl", authority.revoking(REVOKED));
    let tls = Tls::showing(Some(&authority.issue_numbered("x", REVOKED)));
    let conn = tls.connect(server.port(0), "a.test").expect("a handshake");
    let mut client = conn.into_client();
    let get = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    client.send(get);
    assert_eq!(client.response().text(), "a:SUCCESS:CN=x");
    let port = server.port(0);
    let conf = asking_conf(&format!("{ON} ssl_crl %%DIR%%/b.crl;"), "");
    server.reload(&conf, || tls.get(port, "a.test", "/").status == 400);
    client.send(get);
    assert_eq!(client.response().status, 400);
}
