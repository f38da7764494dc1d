use super::*;
use crate::mail::session::Settings;
use crate::mail::AuthMethods;
use std::sync::Arc;

const ALL: AuthMethods = AuthMethods::PLAIN.with(AuthMethods::NONE).with(AuthMethods::EXTERNAL);

fn session(protocol: Protocol, text: &str) -> Session {
    let settings = Settings::new(protocol, b"h.test", Some(ALL), None);
    let mut session = Session::new(Arc::new(settings), 7, 9, false);
    let mut buf = text.as_bytes();
    while !buf.is_empty() {
        let (len, _) = session.advance(buf);
        assert!(len > 0, "{text:?}");
        buf = &buf[len..];
    }
    assert_eq!(session.attempts, 1, "{text:?}");
    session
}

fn options() -> Options {
    let server_name = b"h.test".to_vec();
    let pass_error_message = false;
    Options {
        pass_error_message,
        xclient: false,
        smtp_auth: false,
        reply_max_bytes: 100,
        server_name,
    }
}

fn conversation(session: &Session, options: Options) -> Conversation {
    let (address, host) = (b"192.0.2.1".to_vec(), b"c.test".to_vec());
    let client = Client { address, is_ipv6: false, host };
    Conversation::new(session, session.credentials.clone(), options, client)
}

/// What the server is told to each reply; `join …` and `failed …` have what the client is told. The
/// server speaks line by line.
fn talk(conversation: &mut Conversation, text: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    hear(conversation, &lines)
}

/// The same for what comes in these pieces.
fn hear(conversation: &mut Conversation, pieces: &[&str]) -> String {
    let mut buf = Vec::new();
    let mut out = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        buf.extend_from_slice(piece.as_bytes());
        let (len, step) = conversation.advance(&buf);
        buf.drain(..len);
        assert!(matches!(step, Step::NeedMore | Step::Failed) || buf.is_empty(), "{piece:?}");
        let said = conversation.out.escape_ascii().to_string().replace(r"\r\n", "/");
        match step {
            Step::NeedMore => out.extend((n + 1 == pieces.len()).then(|| "more".to_owned())),
            Step::Send => out.push(said),
            Step::Join => out.push(format!("join {said}")),
            Step::Failed => out.push(format!("failed {said}")),
        }
        if matches!(step, Step::Join | Step::Failed) {
            break;
        }
    }
    out.join(" ")
}

#[test]
fn pop3() {
    let session = session(Protocol::Pop3, "USER a\r\nPASS b c\r\n");
    for (text, expected) in [
        ("+OK hi\r\n+OK\r\n+OK 2 messages\r\n", "USER a/ PASS b c/ join +OK 2 messages/"),
        ("+OK hi\n", "more"),
        ("-ERR no\r\n", "failed -ERR internal server error/"),
        ("+OK\r\n+OK\r\n-ERR\r\n", "USER a/ PASS b c/ failed -ERR internal server error/"),
        ("x\r\n", "failed -ERR internal server error/"),
        ("\r\n", "failed -ERR internal server error/"),
    ] {
        assert_eq!(talk(&mut conversation(&session, options()), text), expected, "{text:?}");
    }
    let shown = Options { pass_error_message: true, ..options() };
    let mut conversation = conversation(&session, shown);
    assert_eq!(talk(&mut conversation, "+OK\r\n-ERR no\r\n"), "USER a/ failed -ERR no/");
    assert_eq!(conversation.failure, Some(Failure::Invalid(b"-ERR no".to_vec())));
}

/// By base64 a client can have anything in its name.
#[test]
fn names_are_no_commands() {
    // "\0a\r\nQUIT\0b" and "\0a\0b\r\nQUIT"
    for text in ["AUTH PLAIN AGENClFVSVQAYg==\r\n", "AUTH PLAIN AGEAYg0KUVVJVA==\r\n"] {
        let mut conversation = conversation(&session(Protocol::Pop3, text), options());
        let said = talk(&mut conversation, "+OK\r\n+OK\r\n+OK\r\n");
        assert!(said.contains("failed -ERR internal server error/"), "{said}");
        assert_eq!(conversation.failure, Some(Failure::LineEndInCredentials));
    }
    let xclient = Options { xclient: true, ..options() };
    let session = session(Protocol::Smtp, "AUTH PLAIN AGENClFVSVQAYg==\r\n");
    let said = talk(&mut conversation(&session, xclient), "220 a\r\n250 b\r\n");
    assert!(said.ends_with(" LOGIN=a+0D+0AQUIT NAME=c.test/"), "{said}");
}

#[test]
fn imap() {
    let session = session(Protocol::Imap, "a01 LOGIN \"x y\" \"p\\\"w\"\r\n");
    let login = "a01 LOGIN {3}/ x y {3}/ p\\\"w/";
    for (text, expected) in [
        ("* OK\r\n+\r\n+ go\r\na01 OK in\r\n", format!("{login} join a01 OK in/")),
        (
            "* OK\r\n+\r\n+ go\r\n* CAPABILITY X\r\n* Y\r\na01 OK in\r\n",
            format!("{login} join * CAPABILITY X/* Y/a01 OK in/"),
        ),
        ("* OK\r\n+\r\n+ go\r\n* CAPABILITY X\r\n", format!("{login} more")),
        ("* OK\r\n+\r\n+ go\r\na01 NO\r\n", format!("{login} failed * BAD internal server error/")),
        ("* OK\r\n+\r\n+ go\r\na02 OK\r\n", format!("{login} failed * BAD internal server error/")),
        ("* OK\r\na01 NO\r\n", "a01 LOGIN {3}/ failed * BAD internal server error/".into()),
        ("* PREAUTH\r\n", "failed * BAD internal server error/".into()),
    ] {
        assert_eq!(talk(&mut conversation(&session, options()), text), expected, "{text:?}");
    }
    let shown = Options { pass_error_message: true, ..options() };
    let mut conversation = conversation(&session, shown);
    let said = talk(&mut conversation, "* OK\r\n+\r\n+\r\n* X\r\na01 NO sorry\r\n");
    assert_eq!(said, format!("{login} failed * X/a01 NO sorry/"));
    assert_eq!(conversation.failure, Some(Failure::Invalid(b"a01 NO sorry".to_vec())));
}

const AUTH: &str = "EHLO me\r\nAUTH PLAIN AGErYgBw\r\n";
const MAIL: &str = "HELO me\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\n";

#[test]
fn smtp() {
    let plain = options();
    let xclient = Options { xclient: true, ..options() };
    let auth = Options { smtp_auth: true, ..options() };
    let both = Options { xclient: true, smtp_auth: true, ..options() };
    let hello = "220 a\r\n250-b\r\n250-c\r\n250 d\r\n";
    let ok = "join 235 2.0.0 OK/";
    for (client, options, text, expected) in [
        (AUTH, &plain, hello.to_owned(), format!("EHLO h.test/ {ok}")),
        ("AUTH PLAIN AGErYgBw\r\n", &plain, hello.to_owned(), format!("HELO h.test/ {ok}")),
        (
            AUTH,
            &xclient,
            format!("{hello}220 x\r\n250 y\r\n"),
            format!("EHLO h.test/ XCLIENT ADDR=192.0.2.1 LOGIN=a+2Bb NAME=c.test/ EHLO me/ {ok}"),
        ),
        (
            "AUTH EXTERNAL YQ==\r\n",
            &xclient,
            format!("{hello}250 x\r\n"),
            format!("EHLO h.test/ XCLIENT ADDR=192.0.2.1 LOGIN=a NAME=c.test/ {ok}"),
        ),
        (
            MAIL,
            &xclient,
            format!("{hello}220 x\r\n250 y\r\n250 z\r\n550 no\r\n"),
            "EHLO h.test/ XCLIENT ADDR=192.0.2.1 NAME=c.test/ HELO me/ MAIL FROM:<a>/ \
             RCPT TO:<b>/ join 550 no/"
                .into(),
        ),
        (
            MAIL,
            &auth,
            format!("{hello}250 z\r\n250-yes\r\n250 yes\r\n"),
            "HELO h.test/ MAIL FROM:<a>/ RCPT TO:<b>/ join 250-yes/250 yes/".into(),
        ),
        (
            AUTH,
            &auth,
            format!("{hello}235 in\r\n"),
            format!("EHLO h.test/ AUTH PLAIN AGErYgBw/ {ok}"),
        ),
        (
            AUTH,
            &both,
            format!("{hello}220 x\r\n250 y\r\n235 in\r\n"),
            format!(
                "EHLO h.test/ XCLIENT ADDR=192.0.2.1 NAME=c.test/ EHLO me/ \
                 AUTH PLAIN AGErYgBw/ {ok}"
            ),
        ),
    ] {
        let session = session(Protocol::Smtp, client);
        let mut conversation = conversation(&session, options.clone());
        assert_eq!(talk(&mut conversation, &text), expected, "{client:?}");
    }
}

#[test]
fn smtp_errors() {
    let failed = "failed 451 4.3.2 Internal server error/";
    let auth = Options { smtp_auth: true, ..options() };
    let xclient = Options { xclient: true, ..options() };
    for (client, options, text, expected) in [
        (AUTH, &options(), "421 no\r\n", failed.to_owned()),
        (AUTH, &options(), "220 a\r\n220 b\r\n", format!("EHLO h.test/ {failed}")),
        (AUTH, &options(), "220-a\r\n", "more".into()),
        (AUTH, &xclient, "220 a\r\n250 b\r\n550 c\r\n", {
            format!("EHLO h.test/ XCLIENT ADDR=192.0.2.1 LOGIN=a+2Bb NAME=c.test/ {failed}")
        }),
        (AUTH, &auth, "220 a\r\n250 b\r\n535 c\r\n", {
            format!("EHLO h.test/ AUTH PLAIN AGErYgBw/ {failed}")
        }),
        (MAIL, &options(), "220 a\r\n250 b\r\n550 c\r\n", {
            format!("HELO h.test/ MAIL FROM:<a>/ {failed}")
        }),
    ] {
        let session = session(Protocol::Smtp, client);
        let mut conversation = conversation(&session, options.clone());
        assert_eq!(talk(&mut conversation, text), expected, "{client:?}");
    }
    let external = session(Protocol::Smtp, "AUTH EXTERNAL YQ==\r\n");
    let mut without = conversation(&external, auth.clone());
    assert_eq!(talk(&mut without, "220 a\r\n250 b\r\n"), format!("HELO h.test/ {failed}"));
    assert_eq!(without.failure, Some(Failure::NoPassword));
    let shown = Options { pass_error_message: true, ..auth };
    let mut shown = conversation(&session(Protocol::Smtp, AUTH), shown);
    let said = talk(&mut shown, "220 a\r\n250 b\r\n535-5 no\r\n535 no\r\n");
    assert!(said.ends_with("failed 535-5 no/535 no/"), "{said}");
}

/// What came with a reply is no answer to what is sent then.
#[test]
fn surplus() {
    let pop3 = session(Protocol::Pop3, "USER a\r\nPASS b\r\n");
    for (pieces, expected) in [
        (
            &["+OK\r\n-ERR\r\n", "+OK\r\n+x\r\n", "+OK\r\n-y\r\n"][..],
            "USER a/ PASS b/ join +OK/-y/",
        ),
        (&["+OK\r\n-", "ERR\r", "\n", "+OK\r\n"], "USER a/ PASS b/"),
        (&["-ERR\r\n+OK\r\n"], "failed -ERR/+OK/"),
        (&["-ERR\r\n+OK"], "more"),
    ] {
        let shown = Options { pass_error_message: true, ..options() };
        assert_eq!(hear(&mut conversation(&pop3, shown), pieces), expected, "{pieces:?}");
    }
    let smtp = session(Protocol::Smtp, AUTH);
    for (pieces, expected) in [
        (&["220 a\r\n220-b\r\n", "250 c\r\n550 d\r\n"][..], "EHLO h.test/ join 235 2.0.0 OK/"),
        (&["220-a\r\n220 b\r\n220-c\r\n", "220 d\r\n"], "EHLO h.test/"),
    ] {
        assert_eq!(hear(&mut conversation(&smtp, options()), pieces), expected, "{pieces:?}");
    }
    let imap = session(Protocol::Imap, "a LOGIN b c\r\n");
    let mut refused = conversation(&imap, options());
    assert!(hear(&mut refused, &["* BYE\r\n* OK\r\n"]).starts_with("failed "));
    assert_eq!(refused.failure, Some(Failure::Invalid(b"* BYE\r\n* OK".to_vec())));
    let mut long = conversation(&pop3, options());
    assert!(hear(&mut long, &["+OK\r\n", &format!("+OK\r\n{}", "x".repeat(99))]).contains("failed"));
    assert!(matches!(long.failure, Some(Failure::TooLong(_))));
}

#[test]
fn ipv6_and_limits() {
    let session = session(Protocol::Smtp, AUTH);
    let (address, host) = (b"2001:db8::1".to_vec(), b"[UNAVAILABLE]".to_vec());
    let client = Client { address, is_ipv6: true, host };
    let options = Options { xclient: true, ..options() };
    let mut to = Conversation::new(&session, session.credentials.clone(), options.clone(), client);
    assert_eq!(
        talk(&mut to, "220 a\r\n250 b\r\n"),
        "EHLO h.test/ XCLIENT ADDR=IPV6:2001:db8::1 LOGIN=a+2Bb NAME=[UNAVAILABLE]/"
    );
    // The longest reply, and one that is longer.
    for (len, is_good) in [(100, true), (101, false)] {
        let reply = format!("220 {}\r\n", "x".repeat(len - 6));
        let mut conversation = conversation(&session, options.clone());
        let said = talk(&mut conversation, &reply);
        assert_eq!(said == "EHLO h.test/", is_good, "{said}");
        let too_long = conversation.failure.is_some_and(|f| matches!(f, Failure::TooLong(_)));
        assert_eq!(too_long, !is_good);
    }
    let reply = "220-xxxxx\r\n".repeat(20);
    let mut conversation = conversation(&session, options);
    assert!(talk(&mut conversation, &reply).starts_with("failed "));
    assert!(conversation.failure.unwrap().to_string().starts_with("upstream sent too long"));
}
