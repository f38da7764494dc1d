//! IMAP before the login: the commands of a client, and each way to log in.

use weir_tests::mail::{self, asked, base64, from_base64, plain, Backend, Line};
use weir_tests::{Origin, Server};

fn start(auth: &Origin, more: &str) -> Server {
    let conf = format!("server {{ listen 127.0.0.1:%%PORT_0%%; protocol imap; {more} }}");
    mail::setup(auth, &conf).start()
}

#[test]
fn commands_before_a_login() {
    let auth = mail::auth_none(false);
    let server = start(&auth, "max_errors 100;");
    let mut client = Line::from(server.connect());
    assert_eq!(client.line(), "* OK IMAP4 ready");
    assert_eq!(client.say("a1 NOOP"), "a1 OK completed");
    assert_eq!(client.say("A-.1_b  noop "), "A-.1_b OK completed");
    client.send("a2 NOOP\n");
    assert_eq!(client.line(), "a2 OK completed");
    let tag = "t".repeat(31);
    assert_eq!(client.say(&format!("{tag} NOOP")), format!("{tag} OK completed"));
    for wrong in
        ["SELECT inbox", "STARTTLS", "LOGIN", "LOGIN me", "LOGIN \"\" x", "LOGIN a b c", "NOO\u{1}"]
    {
        assert_eq!(client.say(&format!("a3 {wrong}")), "a3 BAD invalid command", "{wrong}");
    }
    for wrong in ["", "NOOP", "*", &format!("{} NOOP", "t".repeat(33))] {
        assert_eq!(client.say(wrong), "* BAD invalid command", "{wrong}");
    }
    assert_eq!(client.say("a4 LOGOUT"), "* BYE");
    assert_eq!(client.line(), "a4 OK completed");
    assert!(client.is_closed());
    assert!(auth.requests().is_empty());
}

#[test]
fn capabilities() {
    let auth = mail::auth_none(false);
    let server = mail::setup(
        &auth,
        "server { listen 127.0.0.1:%%PORT_0%%; protocol imap; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol imap;
            imap_capabilities IMAP4rev1 IDLE; imap_capabilities LITERAL+;
            imap_auth plain login cram-md5 external; }
         server { listen 127.0.0.1:%%PORT_2%%; protocol imap; imap_auth login; }",
    )
    .start();
    for (n, expected) in [
        (0, "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS AUTH=PLAIN"),
        (
            1,
            "* CAPABILITY IMAP4rev1 IDLE LITERAL+ AUTH=PLAIN AUTH=LOGIN AUTH=CRAM-MD5 AUTH=EXTERNAL",
        ),
        (2, "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS AUTH=LOGIN"),
    ] {
        let mut client = Line::on(&server, n);
        assert_eq!(client.say("c CAPABILITY"), expected);
        assert_eq!(client.line(), "c OK completed");
    }
}

/// In each way of writing a string; the server is told by literals.
#[test]
fn login_strings() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "");
    let mut lines: Vec<&str> = Vec::new();
    for (said, user, password) in [
        ("t LOGIN me secret", "me", "secret"),
        ("t login \"my name\" \"se\\\"cr\\\\et\"", "my name", "se\"cr\\et"),
        ("t LOGIN {7+}\r\nmy name {6+}\r\nsecret", "my name", "secret"),
        ("t LOGIN me \"\"", "me", ""),
        ("t LOGIN  me   secret ", "me", "secret"),
    ] {
        let mut client = Line::on(&server, 0);
        assert_eq!(client.say(said), "t OK logged in", "{said}");
        let request = auth.last_request();
        let escaped = user.replace(' ', "%20");
        assert_eq!(asked(&request, "Auth-User"), escaped, "{said}");
        assert_eq!(asked(&request, "Auth-Pass"), password, "{said}");
        assert_eq!(asked(&request, "Auth-Method"), "plain");
        assert_eq!(asked(&request, "Auth-Protocol"), "imap");
        lines.extend([user, password]);
    }
    let sent = backend.lines();
    assert_eq!(&sent[3..6], ["t LOGIN {7}", "my name {8}", "se\"cr\\et"]);
    assert_eq!(sent.len(), 15);
}

#[test]
fn literals_are_asked_for() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t LOGIN {2}"), "+ OK");
    client.send("m");
    client.send("e {6}\r\n");
    assert_eq!(client.line(), "+ OK");
    assert_eq!(client.say("a } {b"), "t OK logged in");
    assert_eq!(asked(&auth.only_request(), "Auth-Pass"), "a%20}%20{b");
    backend.expect(&["t LOGIN {2}", "me {6}", "a } {b"]);
}

/// A wrong command with a literal that is not asked for ends the session: what follows would be read
/// as commands.
#[test]
fn literals_in_wrong_commands() {
    let auth = mail::auth_none(false);
    let server = start(&auth, "max_errors 100;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t FETCH {x}"), "t BAD invalid command");
    assert_eq!(client.say("t LOGIN {99999999999999999999999}"), "t BAD invalid command");
    client.send("t APPEND inbox {12+}\r\na LOGIN x y\r\n");
    assert_eq!(client.line(), "t BAD invalid command");
    assert!(client.is_closed());
    assert!(auth.requests().is_empty());
}

#[test]
fn what_follows_the_login_is_for_the_server() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "");
    let mut client = Line::from(server.connect());
    client.send("a NOOP\r\nb LOGIN me secret\r\nc SELECT inbox\r\nd FETCH 1 BODY\r\n");
    let said: Vec<String> = (0..5).map(|_| client.line()).collect();
    let expected = [
        "* OK IMAP4 ready",
        "a OK completed",
        "b OK logged in",
        "c OK SELECT inbox",
        "d OK FETCH 1 BODY",
    ];
    assert_eq!(said, expected);
    client.send("e LOGOUT\r\n");
    assert!(client.is_closed());
    let sent = ["b LOGIN {2}", "me {6}", "secret", "c SELECT inbox", "d FETCH 1 BODY", "e LOGOUT"];
    backend.expect(&sent);
}

#[test]
fn authenticate_plain_and_login() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let server = start(&auth, "");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t AUTHENTICATE PLAIN"), "+ ");
    assert_eq!(client.say(&plain("one", "1")), "t OK logged in");
    let mut client = Line::on(&server, 0);
    assert_eq!(
        client.say(&format!("t authenticate plain {}", plain("two", "2"))),
        "t OK logged in"
    );
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t AUTHENTICATE LOGIN"), "+ VXNlcm5hbWU6");
    assert_eq!(client.say(&base64("three")), "+ UGFzc3dvcmQ6");
    assert_eq!(client.say(&base64("3")), "t OK logged in");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say(&format!("t AUTHENTICATE LOGIN {}", base64("four"))), "+ UGFzc3dvcmQ6");
    assert_eq!(client.say(&base64("4")), "t OK logged in");
    let logins = [("one", "1"), ("two", "2"), ("three", "3"), ("four", "4")];
    for (request, (user, password)) in auth.requests().iter().zip(logins) {
        assert_eq!(asked(request, "Auth-Method"), "plain");
        assert_eq!(asked(request, "Auth-User"), user);
        assert_eq!(asked(request, "Auth-Pass"), password);
    }
    assert_eq!(auth.requests().len(), 4);
}

#[test]
fn authenticate_cram_md5() {
    let backend = Backend::imap();
    let port = backend.port();
    let auth = mail::auth(move |_| mail::to(port) + "Auth-Pass: secret\r\n");
    let server = start(&auth, "imap_auth cram-md5;");
    let mut client = Line::on(&server, 0);
    let challenge = client.say("t AUTHENTICATE CRAM-MD5");
    let salt = from_base64(challenge.strip_prefix("+ ").unwrap());
    assert!(salt.starts_with('<') && salt.ends_with("@mail.test>"), "{salt}");
    assert_eq!(client.say("="), "t BAD invalid command");
    assert_eq!(client.say("u AUTHENTICATE CRAM-MD5"), challenge);
    let digest = "0123456789abcdef0123456789abcdef";
    assert_eq!(client.say(&base64(&format!("me {digest}"))), "u OK logged in");
    backend.expect(&["u LOGIN {2}", "me {6}", "secret"]);
    let request = auth.only_request();
    assert_eq!(asked(&request, "Auth-Method"), "cram-md5");
    assert_eq!(asked(&request, "Auth-Salt"), salt);
    assert_eq!(asked(&request, "Auth-Pass"), digest);
}

#[test]
fn authenticate_external() {
    let backend = Backend::imap();
    let port = backend.port();
    let auth = mail::auth(move |_| mail::to(port) + "Auth-Pass: known\r\n");
    let server = start(&auth, "imap_auth external;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t AUTHENTICATE EXTERNAL"), "+ VXNlcm5hbWU6");
    assert_eq!(client.say(&base64("me")), "t OK logged in");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say(&format!("t AUTHENTICATE EXTERNAL {}", base64("you"))), "t OK logged in");
    for (request, user) in auth.requests().iter().zip(["me", "you"]) {
        assert_eq!(asked(request, "Auth-Method"), "external");
        assert_eq!(asked(request, "Auth-User"), user);
    }
}

#[test]
fn methods_that_are_not_named() {
    let auth = mail::auth_none(false);
    let server = start(&auth, "max_errors 100;");
    let mut client = Line::on(&server, 0);
    for wrong in ["CRAM-MD5", "EXTERNAL", "GSSAPI", "PLAIN !", ""] {
        let said = client.say(&format!("t AUTHENTICATE {wrong}"));
        assert_eq!(said, "t BAD invalid command", "{wrong}");
    }
    assert_eq!(client.say("t NOOP"), "t OK completed");
}
