//! Real servers of mail behind the proxy, and curl before it.

use weir_tests::mail::{self, plain, Line};
use weir_tests::mail_servers::{Dovecot, Postfix};
use weir_tests::tls;
use weir_tests::{expect_soon, tools, Server};

const MESSAGE: &str = "From: a@b\r\nSubject: hello\r\n\r\nwords of a message\r\n";

fn with_certificate(setup: weir_tests::Setup) -> Server {
    let own = tls::self_signed("mail.test");
    setup.file("a.crt", own.cert).file("a.key", own.key).start()
}

/// A message is fetched, plainly, by STARTTLS and by TLS.
#[test]
fn dovecot_and_curl() {
    let Some(curl) = tools::need("curl") else { return };
    let Some(dovecot) = Dovecot::start(MESSAGE) else { return };
    let (imap, pop3) = (dovecot.imap, dovecot.pop3);
    let auth = mail::auth(move |request| match mail::asked(request, "Auth-Protocol").as_str() {
        "imap" => mail::to(imap),
        _ => mail::to(pop3),
    });
    let server = with_certificate(mail::setup(
        &auth,
        "ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key; starttls on;
         imap_capabilities IMAP4rev1 SASL-IR; pop3_capabilities TOP USER UIDL SASL-IR;
         server { listen 127.0.0.1:%%PORT_0%%; protocol imap; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_2%% ssl; protocol imap; }
         server { listen 127.0.0.1:%%PORT_3%% ssl; protocol pop3; }",
    ));
    let message = MESSAGE.replace("\r\n", "\n");
    for (scheme, n, path, more) in [
        ("imap", 0, "INBOX;MAILINDEX=1", "-sS"),
        ("imap", 0, "INBOX;MAILINDEX=1", "--ssl-reqd"),
        ("imaps", 2, "INBOX;MAILINDEX=1", "-sS"),
        ("pop3", 1, "1", "-sS"),
        ("pop3", 1, "1", "--ssl-reqd"),
        ("pop3s", 3, "1", "-sS"),
    ] {
        let url = format!("{scheme}://127.0.0.1:{}/{path}", server.port(n));
        let said = curl.run(&["-sSk", "-m", "20", more, "-u", "me@mail.test:secret", &url]);
        assert_eq!(said.code, 0, "{url} {more}: {}", said.stderr);
        assert_eq!(said.stdout.replace("\r\n", "\n"), message, "{url} {more}");
    }
    assert_eq!(auth.requests().len(), 6);
    assert!(auth.requests().iter().all(|r| mail::asked(r, "Auth-User") == "me@mail.test"));
}

/// What a client asks for in one piece with its login, and what is wrong with it.
#[test]
fn dovecot_in_lines() {
    let Some(dovecot) = Dovecot::start(MESSAGE) else { return };
    let auth = mail::auth_to(dovecot.imap);
    let server = mail::setup(
        &auth,
        "proxy_pass_error_message on; server { listen 127.0.0.1:%%PORT_0%%; protocol imap; }",
    )
    .start();
    let mut client = Line::on(&server, 0);
    client.send("a LOGIN \"me\" {6+}\r\nsecret\r\nb SELECT inbox\r\nc FETCH 1 BODY[HEADER.FIELDS (SUBJECT)]\r\n");
    let mut until = |last: &str| {
        std::iter::from_fn(|| Some(client.line())).find(|l| l.starts_with(last)).unwrap_or_default()
    };
    assert!(until("a ").starts_with("a OK"));
    assert_eq!(until("* 1 EXISTS"), "* 1 EXISTS");
    assert!(until("b ").starts_with("b OK"));
    assert_eq!(until("Subject"), "Subject: hello");
    assert!(until("c ").starts_with("c OK"));
    let mut client = Line::on(&server, 0);
    let said = client.say("a LOGIN me wrong");
    assert!(said.starts_with("a NO [AUTHENTICATIONFAILED]"), "{said}");
    assert!(client.is_closed());
}

/// Dovecot believes us who the client is.
#[test]
fn dovecot_behind_the_proxy_protocol() {
    let Some(dovecot) = Dovecot::start(MESSAGE) else { return };
    let auth = mail::auth_to(dovecot.imap_proxied);
    let server = mail::setup(
        &auth,
        "set_real_ip_from 127.0.0.1;
         server { listen 127.0.0.1:%%PORT_0%% proxy_protocol; protocol imap; proxy_protocol on; }
         server { listen 127.0.0.1:%%PORT_1%% proxy_protocol; protocol imap; proxy_protocol v2; }",
    )
    .start();
    for (n, ip) in ["192.0.2.7", "192.0.2.8"].iter().enumerate() {
        let mut client = Line::from(server.on(n).connect());
        client.send(&format!("PROXY TCP4 {ip} 192.0.2.1 1234 143\r\n"));
        client.line();
        assert!(client.say("a LOGIN me secret").starts_with("a OK"));
        expect_soon("the client's address", || dovecot.log().contains(&format!("rip={ip}")));
    }
}

/// Mail for Postfix, which takes it for whom XCLIENT names: the client is at 127.0.0.2 and the proxy
/// is not.
#[test]
fn postfix_and_curl() {
    let Some(curl) = tools::need("curl") else { return };
    let Some(postfix) = Postfix::start() else { return };
    let auth = mail::auth_to(postfix.smtp);
    let setup = mail::setup(
        &auth,
        "ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key; starttls only;
         proxy_pass_error_message on; server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; }",
    );
    let server = with_certificate(setup.file("message", MESSAGE));
    let send = |from: &str| {
        let url = format!("smtp://127.0.0.1:{}/client.test", server.port(0));
        let file = server.dir().join("message").display().to_string();
        let mail = ["--mail-from", "a@b.test", "--mail-rcpt", "me@mail.test", "-T", &file];
        let more = ["-sSk", "-m", "20", "--ssl-reqd", "--interface", from, "-u", "me:secret", &url];
        curl.run(&[&mail[..], &more[..]].concat())
    };
    let said = send("127.0.0.1");
    assert_eq!(said.code, 55, "sending was refused: {}", said.stderr);
    postfix.expect_log("[127.0.0.1]: 554 5.7.1");
    let said = send("127.0.0.2");
    assert_eq!(said.code, 0, "{}", said.stderr);
    let messages = postfix.messages(1);
    assert!(messages[0].contains("Received: from client.test ("), "{}", messages[0]);
    assert!(messages[0].contains("[127.0.0.2]"), "{}", messages[0]);
    assert!(messages[0].contains("words of a message"));
    postfix.expect_log("sasl_username=me\n");
}

/// A client behind another proxy, with a name that XCLIENT has to write in other letters.
#[test]
fn postfix_in_lines() {
    let Some(postfix) = Postfix::start() else { return };
    let (smtp, proxied) = (postfix.smtp, postfix.smtp_proxied);
    let auth = mail::auth(move |request| match mail::asked(request, "Auth-Method").as_str() {
        "none" => mail::to(proxied),
        _ => mail::to(smtp),
    });
    let server = mail::setup(
        &auth,
        "set_real_ip_from 127.0.0.1; smtp_auth plain none;
         server { listen 127.0.0.1:%%PORT_0%% proxy_protocol; protocol smtp; }
         server { listen 127.0.0.1:%%PORT_1%% proxy_protocol; protocol smtp;
            xclient off; proxy_protocol on; }
         server { listen 127.0.0.1:%%PORT_2%% proxy_protocol; protocol smtp;
            xclient off; proxy_protocol v2; }",
    )
    .start();
    for n in 0..3 {
        let mut client = Line::from(server.on(n).connect());
        client.send(&format!("PROXY TCP4 192.0.2.{n} 192.0.2.9 1234 25\r\n"));
        client.line();
        client.say_until("EHLO client.test", "250 ");
        if n == 0 {
            let word = plain("me+you", "secret");
            assert_eq!(client.say(&format!("AUTH PLAIN {word}")), "235 2.0.0 OK");
        }
        client.send("MAIL FROM:<a@b.test>\r\nRCPT TO:<me@mail.test>\r\nDATA\r\n");
        let said = [client.line(), client.line(), client.line()].map(|l| l[..3].to_owned());
        assert_eq!(said, ["250", "250", "354"], "{n}");
        assert!(client.say(&format!("{MESSAGE}.")).starts_with("250"));
        assert!(client.say("QUIT").starts_with("221"));
        assert!(client.is_closed());
    }
    let messages = postfix.messages(3).join("\n");
    for n in 0..3 {
        assert!(messages.contains(&format!("[192.0.2.{n}]")), "{messages}");
    }
    postfix.expect_log("sasl_username=me+you\n");
}
