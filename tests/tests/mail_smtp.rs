//! SMTP before the login: the commands of a client, each way to log in, and none.

use weir_tests::mail::{self, asked, base64, from_base64, plain, Backend, Line};
use weir_tests::{Dns, Origin, Record, Server};

const INVALID: &str = "500 5.5.1 Invalid command";
const OK: &str = "250 2.0.0 OK";
const BAD_SEQUENCE: &str = "503 5.5.1 Bad sequence of commands";
const BAD_ARGUMENT: &str = "501 5.5.4 Invalid argument";

fn start(auth: &Origin, more: &str) -> Server {
    let conf = format!("server {{ listen 127.0.0.1:%%PORT_0%%; protocol smtp; {more} }}");
    mail::setup(auth, &conf).start()
}

#[test]
fn commands_before_a_login() {
    let auth = mail::auth_none(false);
    let server = start(&auth, "max_errors 100;");
    let mut client = Line::from(server.connect());
    assert_eq!(client.line(), "220 mail.test ESMTP ready");
    assert_eq!(client.say("NOOP"), OK);
    assert_eq!(client.say("helo client.test"), "250 mail.test");
    assert_eq!(client.say("HELO"), BAD_ARGUMENT);
    assert_eq!(client.say("HELO two words"), BAD_ARGUMENT);
    assert_eq!(client.say("RSET"), OK);
    for wrong in ["", "DATA", "VRFY me", "EXPN all", "HELP", "STARTTLS", "BDAT 1", "EHLOS a"] {
        assert_eq!(client.say(wrong), INVALID, "{wrong}");
    }
    assert_eq!(client.say("MAIL FROM:<a@b>"), "530 5.7.1 Authentication required");
    assert_eq!(client.say("RCPT TO:<a@b>"), BAD_SEQUENCE);
    client.send("NOOP\n");
    assert_eq!(client.line(), OK);
    assert_eq!(client.say("QUIT"), "221 2.0.0 Bye");
    assert!(client.is_closed());
    assert!(auth.requests().is_empty());
    server.expect_error("client was rejected: \"MAIL FROM:<a@b>__\"");
}

#[test]
fn capabilities() {
    let auth = mail::auth_none(false);
    let server = mail::setup(
        &auth,
        "server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol smtp;
            smtp_capabilities 'SIZE 10485760' 8BITMIME; smtp_auth plain login cram-md5 external; }
         server { listen 127.0.0.1:%%PORT_2%%; protocol smtp; smtp_auth none;
            smtp_capabilities 'SIZE 10485760' 8BITMIME; }
         server { listen 127.0.0.1:%%PORT_3%%; protocol smtp; smtp_auth none; }",
    )
    .start();
    let ehlo = |n, expected: &[&str]| {
        assert_eq!(Line::on(&server, n).say_until("EHLO a", "250 "), expected);
    };
    ehlo(0, &["250-mail.test", "250 AUTH PLAIN LOGIN"]);
    let all = "250 AUTH PLAIN LOGIN CRAM-MD5 EXTERNAL";
    ehlo(1, &["250-mail.test", "250-SIZE 10485760", "250-8BITMIME", all]);
    ehlo(2, &["250-mail.test", "250-SIZE 10485760", "250 8BITMIME"]);
    ehlo(3, &["250 mail.test"]);
}

/// The client is told of the login by the proxy itself.
#[test]
fn auth_plain_and_login() {
    let backend = Backend::smtp();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "xclient off;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("EHLO client.test"), "250-mail.test");
    assert_eq!(client.line(), "250 AUTH PLAIN LOGIN");
    assert_eq!(client.say(&format!("AUTH PLAIN {}", plain("one", "1"))), "235 2.0.0 OK");
    assert_eq!(client.say("MAIL FROM:<a@b>"), "250 MAIL FROM:<a@b>");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("auth plain"), "334 ");
    assert_eq!(client.say(&plain("two", "2")), "235 2.0.0 OK");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("AUTH LOGIN"), "334 VXNlcm5hbWU6");
    assert_eq!(client.say(&base64("three")), "334 UGFzc3dvcmQ6");
    assert_eq!(client.say(&base64("3")), "235 2.0.0 OK");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say(&format!("AUTH LOGIN {}", base64("four"))), "334 UGFzc3dvcmQ6");
    assert_eq!(client.say(&base64("4")), "235 2.0.0 OK");
    let logins = [("one", "1"), ("two", "2"), ("three", "3"), ("four", "4")];
    for (request, (user, password)) in auth.requests().iter().zip(logins) {
        assert_eq!(asked(request, "Auth-Method"), "plain");
        assert_eq!(asked(request, "Auth-User"), user);
        assert_eq!(asked(request, "Auth-Pass"), password);
        assert_eq!(asked(request, "Auth-Protocol"), "smtp");
        assert_eq!(asked(request, "Client-Host"), "[UNAVAILABLE]");
        assert_eq!(request.header("Auth-SMTP-Helo"), None);
    }
    assert_eq!(backend.lines()[..2], ["EHLO mail.test", "MAIL FROM:<a@b>"]);
}

#[test]
fn wrong_logins() {
    let auth = mail::auth_none(false);
    let server = start(&auth, "max_errors 100;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("AUTH"), BAD_ARGUMENT);
    for wrong in ["AUTH GSSAPI", "AUTH PLAIN !", "AUTH CRAM-MD5", "AUTH EXTERNAL", "AUTH LOGIN a b"]
    {
        assert_eq!(client.say(wrong), INVALID, "{wrong}");
    }
    assert_eq!(client.say("AUTH PLAIN"), "334 ");
    assert_eq!(client.say("*"), INVALID, "given up by the client");
    assert_eq!(client.say("NOOP"), OK);
    assert!(auth.requests().is_empty());
}

#[test]
fn auth_cram_md5_and_external() {
    let backend = Backend::smtp();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "smtp_auth cram-md5 external;");
    let mut client = Line::on(&server, 0);
    let challenge = client.say("AUTH CRAM-MD5");
    let salt = from_base64(challenge.strip_prefix("334 ").unwrap());
    assert!(salt.ends_with("@mail.test>"), "{salt}");
    let digest = "0123456789abcdef0123456789abcdef";
    assert_eq!(client.say(&base64(&format!("me {digest}"))), "235 2.0.0 OK");
    let request = auth.last_request();
    assert_eq!(asked(&request, "Auth-Method"), "cram-md5");
    assert_eq!(asked(&request, "Auth-Salt"), salt);
    assert_eq!(asked(&request, "Auth-Pass"), digest);
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("AUTH EXTERNAL"), "334 VXNlcm5hbWU6");
    assert_eq!(client.say(&base64("me")), "235 2.0.0 OK");
    assert_eq!(asked(&auth.last_request(), "Auth-Method"), "external");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say(&format!("AUTH EXTERNAL {}", base64("me"))), "235 2.0.0 OK");
}

/// Without a login, the first recipient is asked about and the rest is between client and server.
#[test]
fn no_login() {
    let backend = Backend::smtp();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "smtp_auth none; max_errors 100; xclient off;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("EHLO client.test"), "250 mail.test");
    assert_eq!(client.say("RCPT TO:<to@mail.test>"), BAD_SEQUENCE);
    assert_eq!(client.say("MAIL"), BAD_ARGUMENT);
    assert_eq!(client.say("MAIL FROM:<first@mail.test>"), OK);
    assert_eq!(client.say("MAIL FROM:<second@mail.test>"), BAD_SEQUENCE);
    assert_eq!(client.say("RCPT"), BAD_ARGUMENT);
    assert_eq!(client.say("RSET"), OK);
    assert_eq!(client.say("MAIL FROM:<from@mail.test> SIZE=10"), OK);
    assert_eq!(client.say("RCPT TO:<to@mail.test>"), "250 RCPT TO:<to@mail.test>");
    assert_eq!(client.say("RCPT TO:<more@mail.test>"), "250 RCPT TO:<more@mail.test>");
    assert_eq!(client.say("DATA"), "354 go on");
    assert_eq!(client.say("Subject: hello\r\n\r\nMAIL is no command here\r\n."), "250 queued");
    client.send("QUIT\r\n");
    assert!(client.is_closed());
    let sent = backend.lines();
    let expected =
        ["EHLO mail.test", "MAIL FROM:<from@mail.test> SIZE=10", "RCPT TO:<to@mail.test>"];
    assert_eq!(sent[..3], expected);
    let request = auth.only_request();
    assert_eq!(asked(&request, "Auth-Method"), "none");
    assert_eq!(asked(&request, "Auth-User"), "");
    assert_eq!(asked(&request, "Auth-Pass"), "");
    assert_eq!(asked(&request, "Auth-SMTP-Helo"), "client.test");
    assert_eq!(asked(&request, "Auth-SMTP-From"), "MAIL FROM:<from@mail.test> SIZE=10");
    assert_eq!(asked(&request, "Auth-SMTP-To"), "RCPT TO:<to@mail.test>");
}

/// The server says no to the recipient: the client is told so, and may try another.
#[test]
fn a_recipient_that_the_server_does_not_want() {
    let backend = Backend::start("220 backend ESMTP\r\n", |line, before| {
        if line == "RCPT TO:<no@mail.test>" {
            return Some("550 no such user\r\n".into());
        }
        mail::smtp_said(line, before)
    });
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "smtp_auth none;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("HELO client.test"), "250 mail.test");
    assert_eq!(client.say("MAIL FROM:<>"), OK);
    assert_eq!(client.say("RCPT TO:<no@mail.test>"), "550 no such user");
    assert_eq!(client.say("RCPT TO:<yes@mail.test>"), "250 RCPT TO:<yes@mail.test>");
}

#[test]
fn commands_in_one_piece() {
    let backend = Backend::smtp();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "smtp_auth none; xclient off;");
    let mut client = Line::on(&server, 0);
    client
        .send("EHLO client.test\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nRCPT TO:<e@f>\r\nDATA\r\n");
    let said: Vec<String> = (0..5).map(|_| client.line()).collect();
    let expected = ["250 mail.test", OK, "250 RCPT TO:<c@d>", "250 RCPT TO:<e@f>", "354 go on"];
    assert_eq!(said, expected);
    client.send("text\r\n.\r\n");
    assert_eq!(client.line(), "250 queued");
    let sent = ["EHLO mail.test", "MAIL FROM:<a@b>", "RCPT TO:<c@d>", "RCPT TO:<e@f>", "DATA"];
    assert_eq!(backend.lines()[..5], sent);
}

/// Mail that is sent with the login in one piece.
#[test]
fn what_follows_the_login_is_for_the_server() {
    let backend = Backend::smtp();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "xclient off;");
    let mut client = Line::on(&server, 0);
    let word = plain("me", "secret");
    client.send(&format!("AUTH PLAIN {word}\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nQUIT\r\n"));
    let said = [client.line(), client.line(), client.line()];
    assert_eq!(said, ["235 2.0.0 OK", "250 MAIL FROM:<a@b>", "250 RCPT TO:<c@d>"]);
    assert!(client.is_closed());
    backend.expect(&["HELO mail.test", "MAIL FROM:<a@b>", "RCPT TO:<c@d>", "QUIT"]);
}

/// Who speaks before the greeting does not wait for answers.
#[test]
fn early_talkers() {
    let auth = mail::auth_none(false);
    let server = mail::setup(
        &auth,
        "server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; smtp_greeting_delay 60s; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol smtp; smtp_greeting_delay 100ms; }
         server { listen 127.0.0.1:%%PORT_2%% proxy_protocol; protocol smtp;
            smtp_greeting_delay 60s; }",
    )
    .start();
    let mut client = Line::from(server.on(2).connect());
    client.send("PROXY TCP4 192.0.2.1 192.0.2.2 1234 25\r\nEHLO client.test\r\n");
    assert_eq!(client.line(), "503 5.5.0 Improper use of SMTP command pipelining");
    let mut client = Line::from(server.connect());
    client.send("EHLO client.test\r\n");
    assert_eq!(client.line(), "503 5.5.0 Improper use of SMTP command pipelining");
    assert!(client.is_closed());
    server.expect_error("client was rejected before greeting: \"EHLO client.test__\"");
    let mut client = Line::from(server.on(1).connect());
    assert_eq!(client.line(), "220 mail.test ESMTP ready");
    assert_eq!(client.say("NOOP"), OK);
}

/// A client's name is one that its address has, and that has its address.
#[test]
fn the_name_of_a_client() {
    let backend = Backend::smtp();
    let auth = mail::auth_to(backend.port());
    let dns = Dns::start();
    let conf = "resolver %%DNS%%; resolver_timeout 2s;
         server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol smtp; resolver off; }";
    let asked_name = |server: &Server, n| {
        let mut client = Line::on(server, n);
        assert_eq!(client.say(&format!("AUTH PLAIN {}", plain("me", "secret"))), "235 2.0.0 OK");
        asked(&auth.last_request(), "Client-Host")
    };
    let reverse = "1.0.0.127.in-addr.arpa";
    for (pointer, address, expected) in [
        (Record::Ptr(60, "client.test"), Record::A(60, [127, 0, 0, 1]), "client.test"),
        (Record::Ptr(60, "client.test"), Record::A(60, [127, 0, 0, 9]), "[UNAVAILABLE]"),
        (Record::Ptr(60, "client.test"), Record::Code(3), "[UNAVAILABLE]"),
        (Record::Ptr(60, "client.test"), Record::Code(2), "[TEMPUNAVAIL]"),
        (Record::Ptr(60, "bad_name"), Record::A(60, [127, 0, 0, 1]), "[TEMPUNAVAIL]"),
        (Record::Code(3), Record::Code(3), "[UNAVAILABLE]"),
        (Record::Code(2), Record::Code(3), "[TEMPUNAVAIL]"),
        (Record::Silence, Record::Code(3), "[TEMPUNAVAIL]"),
    ] {
        let case = format!("{pointer:?} {address:?}");
        dns.set(reverse, &[pointer]);
        dns.set("client.test", &[address]);
        let server = mail::setup(&auth, conf).set("DNS", dns.address()).start();
        assert_eq!(asked_name(&server, 0), expected, "{case}");
        assert_eq!(asked_name(&server, 1), "[UNAVAILABLE]", "{case}");
        if expected == "client.test" {
            dns.set(reverse, &[Record::Code(3)]);
            assert_eq!(asked_name(&server, 0), expected, "remembered");
        }
    }
    let last = backend.lines().into_iter().rfind(|l| l.starts_with("XCLIENT")).unwrap();
    assert_eq!(last, "XCLIENT ADDR=127.0.0.1 LOGIN=me NAME=[UNAVAILABLE]");
}
