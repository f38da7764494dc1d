//! What a server says in one piece with a reply of its login, behind it.

use std::time::Duration;

use weir_tests::mail::{self, plain, Backend, Line};
use weir_tests::{Origin, Server};

/// Each reply of the login, and `more` in one piece with it.
fn with(reply: Option<String>, more: &str) -> Option<String> {
    reply.map(|reply| format!("{reply}{more}"))
}

fn serve(backend: &Backend, conf: &str) -> (Server, Origin) {
    let auth = mail::auth_to(backend.port());
    let setup = mail::setup(&auth, &format!("server {{ listen 127.0.0.1:%%PORT_0%%; {conf} }}"));
    (setup.start(), auth)
}

/// A second greeting, and further lines before the tagged one.
#[test]
fn imap() {
    let backend = Backend::start("* OK hi\r\n* more\r\n", |line, before| {
        let more = if line.ends_with('}') { "* 1 EXISTS\r\n" } else { "" };
        with(mail::imap_said(line, before), more)
    });
    let (server, _auth) = serve(&backend, "protocol imap;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t LOGIN me secret"), "t OK logged in");
    assert_eq!(client.say("u NOOP"), "u OK NOOP");
    assert_eq!(backend.lines(), ["t LOGIN {2}", "me {6}", "secret", "u NOOP"]);
}

#[test]
fn pop3() {
    let backend = Backend::start("+OK a\r\n+OK b\r\n-ERR c\r\n", |line, _| {
        let more = if line.starts_with("USER") { "-ERR no\r\n" } else { "" };
        with(mail::pop3_said(line), more)
    });
    let (server, _auth) = serve(&backend, "protocol pop3;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("USER me"), "+OK");
    assert!(client.say("PASS secret").starts_with("+OK"));
    assert_eq!(backend.lines(), ["USER me", "PASS secret"]);
    client.say("NOOP");
    assert_eq!(backend.lines(), ["USER me", "PASS secret", "NOOP"]);
}

/// Of the last reply the client is told that its login was good, and no more.
#[test]
fn smtp() {
    let auth = plain("me", "secret");
    for (conf, last) in [("", "XCLIENT"), ("xclient off;", "HELO"), ("proxy_smtp_auth on;", "AUTH")]
    {
        let backend = Backend::start("220 a\r\n220 b\r\n", |line, before| {
            let more = if line.starts_with("NOOP") { "" } else { "550 c\r\n" };
            match line.starts_with("EHLO") {
                true => Some("250-x\r\n250 y\r\n250-c\r\n250 d\r\n".into()),
                false => with(mail::smtp_said(line, before), more),
            }
        });
        let (server, _auth) = serve(&backend, &format!("protocol smtp; {conf}"));
        let mut client = Line::on(&server, 0);
        assert_eq!(client.say(&format!("AUTH PLAIN {auth}")), "235 2.0.0 OK", "{last}");
        assert_eq!(client.say("NOOP"), "250 NOOP", "{last}");
        let lines = backend.lines();
        assert!(lines.iter().rev().nth(1).is_some_and(|l| l.starts_with(last)), "{lines:?}");
    }
}

/// What follows the reply that lets a client in is the client's.
#[test]
fn behind_the_last_reply() {
    let backend = Backend::start("* OK\r\n", |line, before| {
        let said = mail::imap_said(line, before)?;
        Some(said.replace("logged in\r\n", "in\r\n* 1 EXISTS\r\n"))
    });
    let (server, _auth) = serve(&backend, "protocol imap;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t LOGIN me secret"), "t OK in");
    assert_eq!(client.line(), "* 1 EXISTS");
    let backend = Backend::start("220 a\r\n", |line, before| {
        let more = if line.starts_with("RCPT") { "250 more\r\n" } else { "" };
        with(mail::smtp_said(line, before), more)
    });
    let (server, _auth) = serve(&backend, "protocol smtp; smtp_auth none;");
    let mut client = Line::on(&server, 0);
    client.say("MAIL FROM:<a@b>");
    assert_eq!(client.say("RCPT TO:<c@d>"), "250 RCPT TO:<c@d>");
    assert_eq!(client.line(), "250 more");
}

/// A refusal with several lines is passed on as it came.
#[test]
fn refusals() {
    let said = |greeting: &str, conf: &str, login: &str| {
        let backend = Backend::start(greeting, |_, _| None);
        let (server, _auth) = serve(&backend, &format!("proxy_pass_error_message on; {conf}"));
        let mut client = Line::on(&server, 0);
        client.send(&format!("{login}\r\n"));
        let said = String::from_utf8(client.client().read_to_end()).unwrap();
        server.expect_error("upstream sent invalid response: \"");
        said
    };
    let word = plain("me", "secret");
    let refusal = "* BYE go away\r\n* NO and do not come back\r\n";
    assert_eq!(said(refusal, "protocol imap;", "t LOGIN me secret"), refusal);
    let refusal = "-ERR go away\r\n+OK or not\r\n";
    assert_eq!(said(refusal, "protocol pop3;", &format!("AUTH PLAIN {word}")), refusal);
    let refusal = "421 go away\r\n220 or not\r\n";
    assert_eq!(said(refusal, "protocol smtp;", &format!("AUTH PLAIN {word}")), refusal);
}

/// A line that has begun with the reply belongs to it too.
#[test]
fn in_pieces() {
    let backend = Origin::start_raw(|conn, _| {
        conn.write("+OK a\r\n+OK");
        std::thread::sleep(Duration::from_millis(50));
        conn.write(" b\r\n");
        conn.read_until(b"\r\n");
        conn.write("+OK c\r\n");
        let pass = conn.read_until(b"\r\n").unwrap_or_default();
        conn.write(pass);
    });
    let auth = mail::auth_to(backend.port());
    let conf =
        "proxy_pass_error_message on; server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }";
    let server = mail::setup(&auth, conf).start();
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say(&format!("AUTH PLAIN {}", plain("me", "secret"))), "PASS secret");
}
