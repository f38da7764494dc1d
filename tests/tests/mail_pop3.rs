//! POP3 before the login: the commands of a client, and each way to log in.

use weir_tests::mail::{self, asked, base64, from_base64, plain, Backend, Line};
use weir_tests::{Origin, Server};

const INVALID: &str = "-ERR invalid command";

fn start(auth: &Origin, more: &str) -> Server {
    let conf = format!("server {{ listen 127.0.0.1:%%PORT_0%%; protocol pop3; {more} }}");
    mail::setup(auth, &conf).start()
}

#[test]
fn commands_before_a_login() {
    let auth = mail::auth_none(false);
    let server = start(&auth, "max_errors 100;");
    let mut client = Line::from(server.connect());
    assert_eq!(client.line(), "+OK POP3 ready");
    assert_eq!(client.say("NOOP"), "+OK");
    assert_eq!(client.say("noop "), "+OK");
    client.send("NOOP\n");
    assert_eq!(client.line(), "+OK");
    for wrong in ["", "STAT", "LIST 1", "USER", "PASS secret", "NOOPS", "STLS", "N OP", "\u{1}"] {
        assert_eq!(client.say(wrong), INVALID, "{wrong:?}");
    }
    assert_eq!(client.say("USER me"), "+OK");
    assert_eq!(client.say("NOOP"), "+OK");
    assert_eq!(client.say("USER me"), INVALID);
    assert_eq!(client.say("PASS secret"), INVALID, "the name was forgotten with the last");
    assert_eq!(client.say("USER me"), "+OK");
    assert_eq!(client.say("QUIT"), "+OK");
    assert!(client.is_closed());
    assert!(auth.requests().is_empty());
}

#[test]
fn capabilities() {
    let auth = mail::auth_none(false);
    let server = mail::setup(
        &auth,
        "pop3_capabilities TOP 'EXPIRE NEVER';
         server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol pop3; pop3_capabilities LAST-DELAY;
            pop3_capabilities UIDL; pop3_auth apop cram-md5 external; }",
    )
    .start();
    let capa = |n, lines: &[&str]| {
        let mut client = Line::on(&server, n);
        let first = ["+OK Capability list follows"];
        let expected: Vec<_> =
            first.iter().chain(lines).chain(&["."]).map(|l| l.to_string()).collect();
        assert_eq!(client.say_until("CAPA", "."), expected);
        client
    };
    capa(0, &["TOP", "EXPIRE NEVER", "SASL PLAIN LOGIN"]);
    let mut client = capa(1, &["LAST-DELAY", "UIDL", "SASL CRAM-MD5 EXTERNAL"]);
    let methods = ["+OK methods supported:", "CRAM-MD5", "EXTERNAL", "."];
    assert_eq!(client.say_until("AUTH", "."), methods);
    assert_eq!(client.say("USER me"), "+OK");
    assert_eq!(client.say_until("CAPA", ".").len(), 5, "asked between name and password");
    let server = start(&auth, "");
    let mut client = Line::on(&server, 0);
    let expected = ["+OK Capability list follows", "TOP", "USER", "UIDL", "SASL PLAIN LOGIN", "."];
    assert_eq!(client.say_until("CAPA", "."), expected);
}

/// A space is of the name, and of the password.
#[test]
fn a_name_and_a_password() {
    let backend = Backend::pop3();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("user a name@mail.test"), "+OK");
    assert_eq!(client.say("pass se cret "), "+OK");
    assert_eq!(client.say("STAT"), "+OK STAT");
    assert_eq!(client.say("RETR 1"), "+OK RETR 1");
    client.send("QUIT\r\n");
    assert!(client.is_closed());
    backend.expect(&["USER a name@mail.test", "PASS se cret ", "STAT", "RETR 1", "QUIT"]);
    let request = auth.only_request();
    assert_eq!(asked(&request, "Auth-Method"), "plain");
    assert_eq!(asked(&request, "Auth-User"), "a%20name@mail.test");
    assert_eq!(asked(&request, "Auth-Pass"), "se%20cret%20");
    assert_eq!(asked(&request, "Auth-Protocol"), "pop3");
    assert_eq!(request.header("Auth-Salt"), None);
}

/// What comes with the password in one piece is the server's.
#[test]
fn what_follows_the_password_is_for_the_server() {
    let backend = Backend::pop3();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "");
    let mut client = Line::from(server.connect());
    client.send("USER me\r\nPASS secret\r\nSTAT\r\nLIST\r\n");
    let said: Vec<String> = (0..5).map(|_| client.line()).collect();
    assert_eq!(said, ["+OK POP3 ready", "+OK", "+OK", "+OK STAT", "+OK LIST"]);
    backend.expect(&["USER me", "PASS secret", "STAT", "LIST"]);
}

#[test]
fn auth_plain_and_login() {
    let backend = Backend::pop3();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say(&format!("AUTH PLAIN {}", plain("one", "1"))), "+OK");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("auth plain"), "+ ");
    assert_eq!(client.say(&plain("two", "2")), "+OK");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("AUTH LOGIN"), "+ VXNlcm5hbWU6");
    assert_eq!(client.say(&base64("three")), "+ UGFzc3dvcmQ6");
    assert_eq!(client.say(&base64("3")), "+OK");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say(&format!("AUTH LOGIN {}", base64("four"))), "+ UGFzc3dvcmQ6");
    assert_eq!(client.say(&base64("4")), "+OK");
    let logins = [("one", "1"), ("two", "2"), ("three", "3"), ("four", "4")];
    for (request, (user, password)) in auth.requests().iter().zip(logins) {
        assert_eq!(asked(request, "Auth-Method"), "plain");
        assert_eq!(asked(request, "Auth-User"), user);
        assert_eq!(asked(request, "Auth-Pass"), password);
    }
    assert_eq!(auth.requests().len(), 4);
    assert_eq!(backend.lines().len(), 8);
}

#[test]
fn what_is_not_base64_or_no_login() {
    let auth = mail::auth_none(false);
    let server = start(&auth, "max_errors 100;");
    let mut client = Line::on(&server, 0);
    for wrong in ["AUTH PLAIN *", "AUTH PLAIN AAA= more", "AUTH", "AUTH BEARER x"] {
        let said = client.say(wrong);
        let expected = if wrong == "AUTH" { "+OK methods supported:" } else { INVALID };
        assert_eq!(said, expected, "{wrong}");
        if wrong == "AUTH" {
            assert_eq!(["PLAIN", "LOGIN", "."], [client.line(), client.line(), client.line()][..]);
        }
    }
    for wrong in ["!!!", &base64("no zeroes"), &base64("\0only one")] {
        assert_eq!(client.say("AUTH PLAIN"), "+ ");
        assert_eq!(client.say(wrong), INVALID, "{wrong}");
    }
    assert_eq!(client.say("AUTH LOGIN"), "+ VXNlcm5hbWU6");
    assert_eq!(client.say("!"), INVALID);
    assert_eq!(client.say("NOOP"), "+OK");
    assert!(auth.requests().is_empty());
    server.expect_error("client sent invalid base64 encoding in AUTH PLAIN command");
    server.expect_error("client sent invalid login in AUTH PLAIN command");
    server.expect_error("client sent invalid password in AUTH PLAIN command");
    server.expect_error("client sent invalid base64 encoding in AUTH LOGIN command");
}

/// The digest is for `auth_http` to check, which says the password for the server.
#[test]
fn apop() {
    let backend = Backend::pop3();
    let port = backend.port();
    let auth = mail::auth(move |request| match asked(request, "Auth-User").as_str() {
        "me" => mail::to(port) + "Auth-Pass: plain one\r\n",
        _ => mail::to(port),
    });
    let server = start(&auth, "pop3_auth plain apop;");
    let mut client = Line::from(server.connect());
    let greeting = client.line();
    let salt = greeting.strip_prefix("+OK POP3 ready ").expect("a salt").to_owned();
    assert!(salt.starts_with('<') && salt.ends_with("@mail.test>"), "{salt}");
    let digest = "0123456789abcdef0123456789abcdef";
    assert_eq!(client.say("APOP me"), INVALID);
    assert_eq!(client.say(&format!("APOP me {digest}")), "+OK");
    assert_eq!(client.say("STAT"), "+OK STAT");
    backend.expect(&["USER me", "PASS plain one", "STAT"]);
    let request = auth.only_request();
    assert_eq!(asked(&request, "Auth-Method"), "apop");
    assert_eq!(asked(&request, "Auth-User"), "me");
    assert_eq!(asked(&request, "Auth-Salt"), salt);
    assert_eq!(asked(&request, "Auth-Pass"), digest);
    let mut client = Line::from(server.connect());
    assert_ne!(client.line(), greeting, "a salt of its own");
    assert_eq!(client.say(&format!("APOP you {digest}")), "-ERR internal server error");
    assert!(client.is_closed());
    server.expect_error("did not send password");
}

#[test]
fn cram_md5() {
    let backend = Backend::pop3();
    let port = backend.port();
    let auth = mail::auth(move |_| mail::to(port) + "Auth-Pass: secret\r\n");
    let server = start(&auth, "pop3_auth cram-md5;");
    let mut client = Line::from(server.connect());
    let salt = client.line().strip_prefix("+OK POP3 ready ").expect("a salt").to_owned();
    let challenge = client.say("AUTH CRAM-MD5");
    assert_eq!(from_base64(challenge.strip_prefix("+ ").unwrap()), salt);
    assert_eq!(client.say(&base64("me too-short")), INVALID);
    server.expect_error("client sent invalid CRAM-MD5 hash in AUTH CRAM-MD5 command");
    assert_eq!(client.say("AUTH CRAM-MD5"), challenge);
    let digest = "0123456789abcdef0123456789abcdef";
    assert_eq!(client.say(&base64(&format!("me {digest}"))), "+OK");
    backend.expect(&["USER me", "PASS secret"]);
    let request = auth.only_request();
    assert_eq!(asked(&request, "Auth-Method"), "cram-md5");
    assert_eq!(asked(&request, "Auth-Salt"), salt);
    assert_eq!(asked(&request, "Auth-User"), "me");
    assert_eq!(asked(&request, "Auth-Pass"), digest);
}

#[test]
fn external() {
    let backend = Backend::pop3();
    let port = backend.port();
    let auth = mail::auth(move |_| mail::to(port) + "Auth-Pass: known\r\n");
    let server = start(&auth, "pop3_auth plain external;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("AUTH EXTERNAL"), "+ VXNlcm5hbWU6");
    assert_eq!(client.say(&base64("me")), "+OK");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say(&format!("AUTH EXTERNAL {}", base64("you"))), "+OK");
    backend.expect(&["USER me", "PASS known", "USER you", "PASS known"]);
    for (request, user) in auth.requests().iter().zip(["me", "you"]) {
        assert_eq!(asked(request, "Auth-Method"), "external");
        assert_eq!(asked(request, "Auth-User"), user);
        assert_eq!(asked(request, "Auth-Pass"), "");
    }
}

/// Plain ways are always there; the others are refused where they are not named.
#[test]
fn methods_that_are_not_named() {
    let auth = mail::auth_to(Backend::pop3().port());
    let server = mail::setup(
        &auth,
        "server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol pop3; pop3_auth apop; }",
    )
    .start();
    let digest = "0123456789abcdef0123456789abcdef";
    let apop = format!("APOP me {digest}");
    for (n, wrong) in [
        (0, apop.as_str()),
        (0, "AUTH CRAM-MD5"),
        (0, "AUTH EXTERNAL"),
        (1, "AUTH CRAM-MD5"),
        (1, "AUTH EXTERNAL"),
    ] {
        assert_eq!(Line::on(&server, n).say(wrong), INVALID, "{n} {wrong}");
    }
    assert_eq!(Line::on(&server, 1).say("USER me"), "+OK");
    assert_eq!(Line::on(&server, 1).say("AUTH PLAIN"), "+ ");
}
