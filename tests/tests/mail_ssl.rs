//! TLS in `mail`: from the first byte, or begun by a command; certificates of clients.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, StreamOwned};
use weir_tests::mail::{self, asked, plain, Backend, Line};
use weir_tests::tls::{self, Authority, Tls};
use weir_tests::{Origin, Server, Setup, AT_LAST};

/// Servers with a certificate, that trust one authority.
fn setup(auth: &Origin, conf: &str) -> (Setup, Authority) {
    let authority = Authority::new("root");
    let own = tls::self_signed("mail.test");
    let conf = format!(
        "ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
         ssl_client_certificate %%DIR%%/root.crt; {conf}"
    );
    let setup = mail::setup(auth, &conf)
        .file("a.crt", own.cert)
        .file("a.key", own.key)
        .file("root.crt", &authority.cert);
    (setup, authority)
}

fn connect(server: &Server, n: usize, tls: &Tls) -> Line {
    tls.connect(server.port(n), "mail.test").expect("a handshake").into_client().into()
}

fn greeted(server: &Server, n: usize, tls: &Tls) -> Line {
    let mut client = connect(server, n, tls);
    client.line();
    client
}

#[test]
fn from_the_first_byte() {
    let backend = Backend::pop3();
    let auth = mail::auth_to(backend.port());
    let (setup, _) = setup(
        &auth,
        "starttls on;
         server { listen 127.0.0.1:%%PORT_0%% ssl; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_1%% ssl; protocol imap; }
         server { listen 127.0.0.1:%%PORT_2%% ssl; protocol smtp; }",
    );
    let server = setup.start();
    let client = Tls::default();
    for (n, greeting) in
        ["+OK POP3 ready", "* OK IMAP4 ready", "220 mail.test ESMTP ready"].iter().enumerate()
    {
        assert_eq!(connect(&server, n, &client).line(), *greeting);
    }
    let capa = greeted(&server, 0, &client).say_until("CAPA", ".");
    assert!(!capa.contains(&"STLS".to_string()), "{capa:?}");
    assert_eq!(greeted(&server, 0, &client).say("STLS"), "-ERR invalid command");
    assert!(!greeted(&server, 1, &client).say("c CAPABILITY").contains("STARTTLS"));
    assert_eq!(greeted(&server, 1, &client).say("c STARTTLS"), "c BAD invalid command");
    assert_eq!(greeted(&server, 2, &client).say("STARTTLS"), "500 5.5.1 Invalid command");
    let mut pop3 = greeted(&server, 0, &client);
    pop3.send("USER me\r\nPASS secret\r\nSTAT\r\n");
    assert_eq!([pop3.line(), pop3.line(), pop3.line()], ["+OK", "+OK", "+OK STAT"]);
    let request = auth.only_request();
    assert_eq!(asked(&request, "Auth-SSL"), "on");
    assert_eq!(asked(&request, "Auth-SSL-Protocol"), "TLSv1.3");
    assert!(asked(&request, "Auth-SSL-Cipher").starts_with("TLS_"), "{}", request.head);
    for name in ["Verify", "Subject", "Issuer", "Serial", "Fingerprint", "Cert"] {
        assert_eq!(request.header(&format!("Auth-SSL-{name}")), None);
    }
}

#[test]
fn who_speaks_plainly_where_tls_is_spoken() {
    let auth = mail::auth_none(false);
    let (setup, _) =
        setup(&auth, "timeout 500ms; server { listen 127.0.0.1:%%PORT_0%% ssl; protocol imap; }");
    let server = setup.start();
    let mut client = server.connect();
    client.send(b"a LOGIN me secret\r\n");
    let said = client.read_to_end();
    assert!(!String::from_utf8_lossy(&said).contains("OK"), "{said:?}");
    assert!(server.connect().is_closed(), "a handshake has the time of a command");
    assert!(auth.requests().is_empty());
}

/// STARTTLS, and everything that has come with it is dropped: it was said by whoever is in between.
#[test]
fn begun_by_a_command() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let (setup, _) = setup(
        &auth,
        "starttls on;
         server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol imap; }
         server { listen 127.0.0.1:%%PORT_2%%; protocol smtp; }",
    );
    let server = setup.start();
    let tls = Tls::default();
    let mut pop3 = Line::on(&server, 0);
    assert!(pop3.say_until("CAPA", ".").contains(&"STLS".to_string()));
    pop3.send("STLS\r\nUSER thief\r\nNOOP\r\n");
    assert_eq!(pop3.line(), "+OK");
    let mut pop3 = pop3.start_tls(&tls);
    assert!(!pop3.say_until("CAPA", ".").contains(&"STLS".to_string()));
    assert_eq!(pop3.say("PASS secret"), "-ERR invalid command");
    assert_eq!(pop3.say("STLS"), "-ERR invalid command");

    let mut imap = Line::on(&server, 1);
    let capability = "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS AUTH=PLAIN";
    assert_eq!(imap.say("c CAPABILITY"), format!("{capability} STARTTLS"));
    imap.line();
    imap.send("s STARTTLS\r\nt LOGIN thief secret\r\n");
    assert_eq!(imap.line(), "s OK completed");
    let mut imap = imap.start_tls(&tls);
    assert_eq!(imap.say("c CAPABILITY"), capability);
    imap.line();
    assert_eq!(imap.say("t LOGIN me secret"), "t OK logged in");
    assert_eq!(imap.say("u SELECT inbox"), "u OK SELECT inbox");
    let request = auth.only_request();
    assert_eq!((&asked(&request, "Auth-User")[..], &asked(&request, "Auth-SSL")[..]), ("me", "on"));

    let mut smtp = Line::on(&server, 2);
    let features = smtp.say_until("EHLO client.test", "250 ");
    assert_eq!(features, ["250-mail.test", "250-AUTH PLAIN LOGIN", "250 STARTTLS"]);
    smtp.send("STARTTLS\r\nQUIT\r\n");
    assert_eq!(smtp.line(), "220 2.0.0 Start TLS");
    let mut smtp = smtp.start_tls(&tls);
    let features = smtp.say_until("EHLO client.test", "250 ");
    assert_eq!(features, ["250-mail.test", "250 AUTH PLAIN LOGIN"]);
    assert_eq!(smtp.say("QUIT"), "221 2.0.0 Bye");
}

/// Plain words where a handshake should be end the session, unheard.
#[test]
fn plain_words_after_starttls() {
    let auth = mail::auth_none(false);
    let (setup, _) =
        setup(&auth, "starttls on; server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }");
    let server = setup.start();
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("STLS"), "+OK");
    client.send(&format!("AUTH PLAIN {}\r\n", plain("me", "secret")));
    let said = client.client().read_to_end();
    assert!(!said.starts_with(b"-ERR") && !said.starts_with(b"+OK"), "{said:?}");
    assert!(auth.requests().is_empty());
}

/// The certificate says who the client is.
#[test]
fn a_login_by_certificate() {
    let backend = Backend::imap();
    let port = backend.port();
    let auth = mail::auth(move |request| {
        let subject = asked(request, "Auth-SSL-Subject");
        match (&asked(request, "Auth-Method")[..], &asked(request, "Auth-SSL-Verify")[..]) {
            ("external", "SUCCESS") => {
                mail::to(port) + &format!("Auth-User: {}\r\nAuth-Pass: x\r\n", &subject[3..])
            }
            _ => "Auth-Status: no certificate\r\n".into(),
        }
    });
    let (setup, authority) = setup(
        &auth,
        "starttls only; imap_auth external; ssl_verify_client optional;
         server { listen 127.0.0.1:%%PORT_0%%; protocol imap; }",
    );
    let server = setup.start();
    let login = |tls: &Tls| {
        let mut client = Line::on(&server, 0);
        assert_eq!(client.say("s STARTTLS"), "s OK completed");
        client.start_tls(tls).say(&format!("t AUTHENTICATE EXTERNAL {}", mail::base64("anybody")))
    };
    assert_eq!(login(&Tls::default()), "t NO no certificate");
    assert_eq!(login(&Tls::showing(Some(&authority.issue("somebody")))), "t OK logged in");
    backend.expect(&["t LOGIN {8}", "somebody {1}", "x"]);
}

/// What an SMTP client has said before is forgotten.
#[test]
fn nothing_is_known_after_starttls() {
    let auth = mail::auth_none(false);
    let (setup, _) = setup(
        &auth,
        "starttls on; smtp_auth none; server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; }",
    );
    let server = setup.start();
    let mut client = Line::on(&server, 0);
    client.say_until("EHLO thief.test", "250 ");
    assert_eq!(client.say("MAIL FROM:<thief@mail.test>"), "250 2.0.0 OK");
    assert_eq!(client.say("STARTTLS"), "220 2.0.0 Start TLS");
    let mut client = client.start_tls(&Tls::default());
    assert_eq!(client.say("RCPT TO:<me@mail.test>"), "503 5.5.1 Bad sequence of commands");
    assert_eq!(client.say("MAIL FROM:<me@mail.test>"), "250 2.0.0 OK");
    assert_eq!(client.say("RCPT TO:<me@mail.test>"), "535 5.7.0 no");
    let request = auth.only_request();
    assert_eq!(asked(&request, "Auth-SMTP-Helo"), "");
    assert_eq!(asked(&request, "Auth-SMTP-From"), "MAIL FROM:<me@mail.test>");
    server.expect_error("using starttls, server: 127.0.0.1:");
}

/// Nobody logs in in the open.
#[test]
fn no_login_without_tls() {
    let auth = mail::auth_none(false);
    let (setup, _) = setup(
        &auth,
        "starttls only; max_errors 100; pop3_auth plain apop cram-md5 external;
         imap_auth plain login cram-md5 external; smtp_auth plain login cram-md5 external;
         server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol imap; }
         server { listen 127.0.0.1:%%PORT_2%%; protocol smtp; smtp_capabilities 8BITMIME; }",
    );
    let server = setup.start();
    let word = plain("me", "secret");
    let mut pop3 = Line::on(&server, 0);
    let capa = ["+OK Capability list follows", "TOP", "UIDL", "STLS", "."];
    assert_eq!(pop3.say_until("CAPA", "."), capa);
    let methods = [
        format!("AUTH PLAIN {word}"),
        "AUTH PLAIN".into(),
        "AUTH LOGIN".into(),
        "AUTH CRAM-MD5".into(),
        "AUTH EXTERNAL".into(),
    ];
    let others = ["USER me".to_string(), "APOP me x".into(), "AUTH".into()];
    for wrong in methods.iter().chain(&others) {
        assert_eq!(pop3.say(wrong), "-ERR invalid command", "{wrong}");
    }
    assert_eq!(pop3.say("STLS"), "+OK");
    assert_eq!(pop3.start_tls(&Tls::default()).say(&methods[0]), "-ERR no");

    let mut imap = Line::on(&server, 1);
    let capability = "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS STARTTLS LOGINDISABLED";
    assert_eq!(imap.say("c CAPABILITY"), capability);
    imap.line();
    for wrong in methods.iter().map(|m| m.replace("AUTH", "AUTHENTICATE")) {
        assert_eq!(imap.say(&format!("t {wrong}")), "t BAD invalid command", "{wrong}");
    }
    assert_eq!(imap.say("t LOGIN me secret"), "t BAD invalid command");
    assert_eq!(imap.say("t STARTTLS"), "t OK completed");
    assert_eq!(imap.start_tls(&Tls::default()).say("t LOGIN me secret"), "t NO no");

    let mut smtp = Line::on(&server, 2);
    let features = smtp.say_until("EHLO client.test", "250 ");
    assert_eq!(features, ["250-mail.test", "250-8BITMIME", "250 STARTTLS"]);
    for wrong in &methods {
        assert_eq!(smtp.say(wrong), "500 5.5.1 Invalid command", "{wrong}");
    }
    assert_eq!(smtp.say("STARTTLS"), "220 2.0.0 Start TLS");
    assert_eq!(smtp.start_tls(&Tls::default()).say(&methods[0]), "535 5.7.0 no");
    assert_eq!(auth.requests().len(), 3);
}

/// `auth_http` is told who the client is.
#[test]
fn clients_are_verified() {
    let auth = mail::auth_none(false);
    let (setup, authority) = setup(
        &auth,
        "server { listen 127.0.0.1:%%PORT_0%% ssl; protocol pop3; ssl_verify_client on;
            auth_http_pass_client_cert on; }
         server { listen 127.0.0.1:%%PORT_1%% ssl; protocol imap; ssl_verify_client on; }
         server { listen 127.0.0.1:%%PORT_2%%; protocol smtp; starttls on; ssl_verify_client optional; }
         server { listen 127.0.0.1:%%PORT_3%% ssl; protocol pop3; ssl_verify_client optional_no_ca; }",
    );
    let server = setup.start();
    let good = Tls::showing(Some(&authority.issue_numbered("client", 0x2a)));
    let word = plain("me", "secret");
    assert_eq!(greeted(&server, 0, &good).say(&format!("AUTH PLAIN {word}")), "-ERR no");
    let request = auth.last_request();
    assert_eq!(asked(&request, "Auth-SSL-Verify"), "SUCCESS");
    assert_eq!(asked(&request, "Auth-SSL-Subject"), "CN=client");
    assert_eq!(asked(&request, "Auth-SSL-Issuer"), "CN=root");
    assert_eq!(asked(&request, "Auth-SSL-Serial"), "2A");
    let fingerprint = asked(&request, "Auth-SSL-Fingerprint");
    assert!(fingerprint.len() == 40 && fingerprint.chars().all(|c| c.is_ascii_hexdigit()));
    let cert = asked(&request, "Auth-SSL-Cert");
    assert!(cert.starts_with("-----BEGIN%20CERTIFICATE-----%0A"), "{cert}");
    assert!(cert.trim_end_matches("%0A").ends_with("-----END%20CERTIFICATE-----"), "{cert}");
    assert_eq!(greeted(&server, 1, &good).say("t LOGIN me secret"), "t NO no");
    assert_eq!(auth.last_request().header("Auth-SSL-Cert"), None);
    let none = Tls::default();
    assert_eq!(connect(&server, 0, &none).line(), "-ERR No required SSL certificate");
    let mut client = connect(&server, 1, &none);
    assert_eq!(client.line(), "* BYE No required SSL certificate");
    assert!(client.is_closed());
    server.expect_error("client sent no required SSL certificate");
    let strange = Tls::showing(Some(&tls::self_signed("stranger")));
    assert_eq!(connect(&server, 0, &strange).line(), "-ERR SSL certificate error");
    assert_eq!(connect(&server, 1, &strange).line(), "* BYE SSL certificate error");
    server.expect_error("client SSL certificate verify error: (");
    let starttls = |tls: &Tls| {
        let mut client = Line::on(&server, 2);
        assert_eq!(client.say("STARTTLS"), "220 2.0.0 Start TLS");
        client.start_tls(tls)
    };
    assert_eq!(starttls(&none).say(&format!("AUTH PLAIN {word}")), "535 5.7.0 no");
    assert_eq!(asked(&auth.last_request(), "Auth-SSL-Verify"), "NONE");
    assert_eq!(auth.last_request().header("Auth-SSL-Subject"), None);
    assert_eq!(starttls(&good).say(&format!("AUTH PLAIN {word}")), "535 5.7.0 no");
    assert_eq!(asked(&auth.last_request(), "Auth-SSL-Verify"), "SUCCESS");
    let mut client = starttls(&strange);
    assert_eq!(client.line(), "421 4.7.1 SSL certificate error");
    assert!(client.is_closed());
    assert_eq!(greeted(&server, 3, &strange).say(&format!("AUTH PLAIN {word}")), "-ERR no");
    let verified = asked(&auth.last_request(), "Auth-SSL-Verify");
    assert!(verified.starts_with("FAILED:"), "{verified}");
    assert_eq!(asked(&auth.last_request(), "Auth-SSL-Subject"), "CN=stranger");
}

#[test]
fn revoked_and_deep_certificates() {
    let auth = mail::auth_none(false);
    let (setup, authority) = setup(
        &auth,
        "ssl_verify_client on;
         server { listen 127.0.0.1:%%PORT_0%% ssl; protocol pop3; ssl_crl %%DIR%%/list.crl; }
         server { listen 127.0.0.1:%%PORT_1%% ssl; protocol pop3; ssl_verify_depth 1;
            ssl_trusted_certificate %%DIR%%/middle.crt; }
         server { listen 127.0.0.1:%%PORT_2%% ssl; protocol pop3; ssl_verify_depth 0;
            ssl_trusted_certificate %%DIR%%/middle.crt; }",
    );
    let middle = authority.lower("middle", "http://nobody.test");
    let server =
        setup.file("list.crl", authority.revoking(7)).file("middle.crt", &middle.cert).start();
    let showing = |pair: &tls::Pair, n| connect(&server, n, &Tls::showing(Some(pair))).line();
    assert_eq!(showing(&authority.issue_numbered("good", 6), 0), "+OK POP3 ready");
    assert_eq!(showing(&authority.issue_numbered("bad", 7), 0), "-ERR SSL certificate error");
    let deep = middle.issue("deep");
    assert_eq!(showing(&deep, 1), "+OK POP3 ready");
    assert_eq!(showing(&deep, 2), "-ERR SSL certificate error");
}

#[test]
fn protocols_and_sessions() {
    let auth = mail::auth_none(false);
    let (setup, _) = setup(
        &auth,
        "ssl_session_cache shared:m:1m; ssl_session_timeout 1h;
         server { listen 127.0.0.1:%%PORT_0%% ssl; protocol pop3; ssl_protocols TLSv1.2; }
         server { listen 127.0.0.1:%%PORT_1%% ssl; protocol imap; ssl_session_tickets off; }
         server { listen 127.0.0.1:%%PORT_2%% ssl; protocol smtp; ssl_password_file %%DIR%%/words;
            ssl_certificate %%DIR%%/b.crt; ssl_certificate_key %%DIR%%/b.key; }
         server { listen 127.0.0.1:%%PORT_3%% ssl; protocol pop3; ssl_session_cache none;
            ssl_session_tickets off; ssl_protocols TLSv1.2; }",
    );
    let other = tls::self_signed("other.test");
    let locked = other.locked("secret");
    let server = setup
        .file("words", "wrong\nsecret\n")
        .file("b.crt", locked.cert)
        .file("b.key", locked.key)
        .start();
    assert!(Tls::speaking(&[&TLS13], None).connect(server.port(0), "a").is_err());
    let tls = Tls::default();
    for (n, is_resumed) in [(0, true), (1, true), (3, false)] {
        greeted(&server, n, &tls).say("QUIT");
        let conn = tls.connect(server.port(n), "mail.test").unwrap();
        assert_eq!(conn.is_resumed(), is_resumed, "{n}");
    }
    assert!(tls.connect(server.port(2), "mail.test").unwrap().shows(&other));
    let client = Tls::speaking(&[&TLS12], None);
    let word = plain("me", "secret");
    assert_eq!(greeted(&server, 0, &client).say(&format!("AUTH PLAIN {word}")), "-ERR no");
    let request = auth.last_request();
    assert_eq!(asked(&request, "Auth-SSL-Protocol"), "TLSv1.2");
    assert!(asked(&request, "Auth-SSL-Cipher").starts_with("ECDHE-"), "{}", request.head);
}

/// An end is told from a cut: TLS says so, before the login and behind it.
#[test]
fn ends_are_told() {
    let backend = Backend::pop3();
    let auth = mail::auth_to(backend.port());
    let (setup, _) = setup(&auth, "server { listen 127.0.0.1:%%PORT_0%% ssl; protocol pop3; }");
    let server = setup.start();
    for commands in ["QUIT\r\n", "USER me\r\nPASS secret\r\nQUIT\r\n"] {
        let tcp = TcpStream::connect(("127.0.0.1", server.port(0))).unwrap();
        tcp.set_read_timeout(Some(AT_LAST)).unwrap();
        let name = "mail.test".try_into().unwrap();
        let conn = ClientConnection::new(Tls::default().config(), name).unwrap();
        let mut stream = StreamOwned::new(conn, tcp);
        stream.write_all(commands.as_bytes()).unwrap();
        let mut said = String::new();
        let read = stream.read_to_string(&mut said);
        assert!(read.is_ok(), "{commands:?}: {read:?}");
        assert!(said.starts_with("+OK POP3 ready\r\n+OK\r\n"), "{said}");
    }
}

/// A client that says what it speaks is told if that is not spoken here.
#[test]
fn alpn() {
    let auth = mail::auth_none(false);
    let (setup, _) = setup(
        &auth,
        "server { listen 127.0.0.1:%%PORT_0%% ssl; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_1%% ssl; protocol imap; }
         server { listen 127.0.0.1:%%PORT_2%%; protocol smtp; starttls on; }",
    );
    let server = setup.start();
    for (n, name) in ["pop3", "imap"].iter().enumerate() {
        let offering = Tls::default().offering(&["http/1.1", name]);
        let conn = offering.connect(server.port(n), "mail.test").unwrap();
        assert_eq!(conn.protocol().as_deref(), Some(*name));
        let other = Tls::default().offering(&["http/1.1", "smtp"]);
        assert!(other.connect(server.port(n), "mail.test").is_err());
        let conn = Tls::default().connect(server.port(n), "mail.test").unwrap();
        assert_eq!(conn.protocol(), None);
    }
    let mut client = Line::on(&server, 2);
    assert_eq!(client.say("STARTTLS"), "220 2.0.0 Start TLS");
    let mut client = client.start_tls(&Tls::default().offering(&["smtp"]));
    assert_eq!(client.say("NOOP"), "250 2.0.0 OK");
}
