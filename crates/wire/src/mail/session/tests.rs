use super::*;
use crate::mail::sasl::Method;

fn settings(protocol: Protocol, methods: AuthMethods) -> Settings {
    Settings::new(protocol, b"h.test", Some(methods), None)
}

fn session(settings: Settings) -> Session {
    Session::new(Arc::new(settings), 7, 9, false)
}

/// What a client is told line by line, `!` before an end, `tls` and `ask …` where that is next.
fn talk(session: &mut Session, text: &str) -> String {
    let mut buf = text.as_bytes();
    let mut out = Vec::new();
    loop {
        let (len, step) = session.advance(buf);
        buf = &buf[len..];
        let said = session.out.escape_ascii().to_string().replace(r"\r\n", "/");
        match step {
            Step::NeedMore => {
                out.extend((!buf.is_empty()).then(|| "more".to_owned()));
                return out.join(" ");
            }
            Step::Reply => out.push(said),
            Step::Bye => {
                out.push(format!("!{said}"));
                return out.join(" ");
            }
            Step::StartTls => {
                out.push(format!("tls {said}"));
                session.tls_begun();
                return out.join(" ");
            }
            Step::Ask => {
                let Credentials { method, login, password } = &session.credentials;
                let text = |text: &[u8]| text.escape_ascii().to_string();
                let password = password.as_ref().map_or("-".into(), |p| text(p));
                out.push(format!("ask {}:{}:{password}", method.name(), text(login)));
            }
        }
    }
}

fn table(make: impl Fn() -> Settings, rows: &[(&str, &str)]) {
    for (text, expected) in rows {
        assert_eq!(talk(&mut session(make()), text), *expected, "{text:?}");
    }
}

const BAD: &str = "-ERR invalid command/";

#[test]
fn pop3() {
    let all = AuthMethods::PLAIN.with(AuthMethods::APOP).with(AuthMethods::CRAM_MD5);
    let make = || settings(Protocol::Pop3, all.with(AuthMethods::EXTERNAL));
    let digest = "YSAwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZg==";
    table(
        make,
        &[
            ("NOOP\r\nUSER a\r\nPASS b c\r\n", "+OK/ +OK/ ask plain:a:b c"),
            ("USER\r\n", BAD),
            ("PASS x\r\n", BAD),
            ("USER a\r\nNOOP\r\nPASS\r\nPASS b\r\n", &format!("+OK/ +OK/ {BAD} {BAD}")),
            ("USER a\r\nUSER b\r\nPASS c\r\n", &format!("+OK/ {BAD} {BAD}")),
            ("USER a\r\nQUIT\r\nNOOP\r\n", "+OK/ !+OK/"),
            ("APOP a b\r\n", "ask apop:a:b"),
            ("APOP a\r\n", BAD),
            ("AUTH\r\n", "+OK methods supported:/PLAIN/LOGIN/CRAM-MD5/EXTERNAL/./"),
            ("AUTH LOGIN\r\nYQ==\r\nYg==\r\n", "+ VXNlcm5hbWU6/ + UGFzc3dvcmQ6/ ask plain:a:b"),
            ("AUTH LOGIN YQ==\r\nYg==\r\n", "+ UGFzc3dvcmQ6/ ask plain:a:b"),
            ("AUTH PLAIN\r\nAGEAYg==\r\n", "+ / ask plain:a:b"),
            ("AUTH PLAIN\r\n*\r\nNOOP\r\n", &format!("+ / {BAD} +OK/")),
            (
                &format!("AUTH CRAM-MD5\r\n{digest}\r\n"),
                "+ PDcuOUBoLnRlc3Q+/ ask cram-md5:a:0123456789abcdef0123456789abcdef",
            ),
            ("AUTH EXTERNAL\r\nYQ==\r\n", "+ VXNlcm5hbWU6/ ask external:a:-"),
            ("STLS\r\n", BAD),
            (
                "CAPA\r\n",
                "+OK Capability list follows/TOP/USER/UIDL/SASL PLAIN LOGIN CRAM-MD5 EXTERNAL/./",
            ),
        ],
    );
    let mut session = session(make());
    session.greet();
    assert_eq!(session.out, b"+OK POP3 ready <7.9@h.test>\r\n");
    assert!(self::session(settings(Protocol::Pop3, AuthMethods::PLAIN)).salt().is_none());
}

#[test]
fn imap() {
    let methods = AuthMethods::PLAIN.with(AuthMethods::CRAM_MD5);
    table(
        || settings(Protocol::Imap, methods),
        &[
            ("a01 NOOP\r\na02 LOGOUT\r\n", "a01 OK completed/ !* BYE/a02 OK completed/"),
            ("a LOGIN\r\nb LOGIN \"\" x\r\n", "a BAD invalid command/ b BAD invalid command/"),
            (
                r#"a LOGIN "te\\\"st" ""
"#,
                r#"ask plain:te\\\"st:"#,
            ),
            ("a LOGIN {1}\r\nx {2}\r\nyz\r\n", "+ OK/ + OK/ ask plain:x:yz"),
            (
                "1 CAPABILITY\r\n",
                "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS AUTH=PLAIN AUTH=CRAM-MD5/1 OK completed/",
            ),
            ("1 AUTHENTICATE\r\n", "1 BAD invalid command/"),
            ("1 AUTHENTICATE PLAIN AGEAYg==\r\n", "ask plain:a:b"),
            (
                "1 AUTHENTICATE LOGIN\r\nYQ==\r\nYg\n",
                "+ VXNlcm5hbWU6/ + UGFzc3dvcmQ6/ ask plain:a:b",
            ),
            ("1 AUTHENTICATE LOGIN\r\n*\r\n", "+ VXNlcm5hbWU6/ 1 BAD invalid command/"),
            ("1 AUTHENTICATE CRAM-MD5\r\n\r\n", "+ PDcuOUBoLnRlc3Q+/ 1 BAD invalid command/"),
            ("1 AUTHENTICATE EXTERNAL YQ==\r\n", "1 BAD invalid command/"),
            ("a x {3+}\r\nabc\r\n", "!a BAD invalid command/"),
            ("a STARTTLS\r\n\r\n", "a BAD invalid command/ * BAD invalid command/"),
        ],
    );
    let mut session = session(settings(Protocol::Imap, methods));
    assert_eq!(talk(&mut session, "a1 AUTHENTICATE PLAIN\r\nAGEAYg==\r\n"), "+ / ask plain:a:b");
    assert_eq!(session.tag(), b"a1 ");
}

#[test]
fn smtp() {
    let all = AuthMethods::PLAIN.with(AuthMethods::LOGIN).with(AuthMethods::NONE);
    table(
        || settings(Protocol::Smtp, all),
        &[
            ("HELO a\r\nEHLO b\r\n", "250 h.test/ 250-h.test/250 AUTH PLAIN LOGIN/"),
            ("HELO\r\nEHLO a b\r\n", "501 5.5.4 Invalid argument/ 501 5.5.4 Invalid argument/"),
            ("AUTH\r\nNOOP\r\n", "501 5.5.4 Invalid argument/ 250 2.0.0 OK/"),
            ("AUTH PLAIN\r\nAGEAYg==\r\n", "334 / ask plain:a:b"),
            ("AUTH LOGIN\r\nYQ==\r\nYg==\r\n", "334 VXNlcm5hbWU6/ 334 UGFzc3dvcmQ6/ ask plain:a:b"),
            ("RCPT TO:<a>\r\n", "503 5.5.1 Bad sequence of commands/"),
            ("MAIL\r\n", "501 5.5.4 Invalid argument/"),
            ("VRFY a\r\nQUIT\r\n", "500 5.5.1 Invalid command/ !221 2.0.0 Bye/"),
            (
                "MAIL FROM:<a>\r\nMAIL FROM:<b>\r\n",
                "250 2.0.0 OK/ 503 5.5.1 Bad sequence of commands/",
            ),
            (
                "MAIL FROM:<a>\r\nRSET\r\nMAIL FROM:<b>\r\n",
                "250 2.0.0 OK/ 250 2.0.0 OK/ 250 2.0.0 OK/",
            ),
        ],
    );
    let mut session = session(settings(Protocol::Smtp, all));
    let text = "EHLO me\r\nMAIL  FROM:<a>  SIZE=1 \r\nrcpt TO:<b>\r\n";
    assert!(talk(&mut session, text).ends_with("250 2.0.0 OK/ ask none::-"));
    assert_eq!(session.credentials.method, Method::None);
    let envelope = &session.envelope;
    assert!(envelope.esmtp && envelope.helo == b"me");
    assert_eq!(
        (&envelope.from[..], &envelope.to[..]),
        (&b"MAIL  FROM:<a>  SIZE=1"[..], &b"rcpt TO:<b>"[..])
    );
    session.greet();
    assert_eq!(session.out, b"220 h.test ESMTP ready\r\n");
    let mut session = self::session(settings(Protocol::Smtp, AuthMethods::PLAIN));
    assert_eq!(talk(&mut session, "MAIL FROM:<a>\r\n"), "530 5.7.1 Authentication required/");
    assert_eq!(
        session.notice.take().map(|n| n.to_string()),
        Some("client was rejected: \"MAIL FROM:<a>__\"".into())
    );
}

#[test]
fn starttls() {
    for (protocol, command, said, secret, bad) in [
        (Protocol::Pop3, "STLS", "+OK/", "USER a", "-ERR invalid command/"),
        (Protocol::Pop3, "STLS", "+OK/", "AUTH", "-ERR invalid command/"),
        (Protocol::Pop3, "STLS", "+OK/", "APOP a b", "-ERR invalid command/"),
        (Protocol::Imap, "a STARTTLS", "a OK completed/", "a LOGIN a b", "a BAD invalid command/"),
        (
            Protocol::Imap,
            "a STARTTLS",
            "a OK completed/",
            "a AUTHENTICATE PLAIN",
            "a BAD invalid command/",
        ),
        (
            Protocol::Smtp,
            "STARTTLS",
            "220 2.0.0 Start TLS/",
            "AUTH LOGIN",
            "500 5.5.1 Invalid command/",
        ),
    ] {
        let all = AuthMethods::PLAIN.with(AuthMethods::APOP);
        for starttls in [StartTls::On, StartTls::Only] {
            let mut session = session(Settings { starttls, ..settings(protocol, all) });
            let answer = talk(&mut session, &format!("{secret}\r\n"));
            assert_eq!(answer == bad, starttls == StartTls::Only, "{answer}");
            let mut session = self::session(Settings { starttls, ..settings(protocol, all) });
            // What stands behind the command is never read.
            let answer = talk(&mut session, &format!("{command}\r\n{command}\r\n"));
            assert_eq!(answer, format!("tls {said}"));
            assert_eq!(talk(&mut session, &format!("{command}\r\n")), bad);
            assert_ne!(talk(&mut session, &format!("{secret}\r\n")), bad);
        }
    }
    let mut session =
        session(Settings { starttls: StartTls::On, ..settings(Protocol::Smtp, AuthMethods::NONE) });
    talk(&mut session, "EHLO a\r\nMAIL FROM:<a>\r\nSTARTTLS\r\n");
    assert_eq!(session.envelope, Envelope { esmtp: true, ..Envelope::default() });
}

#[test]
fn too_much() {
    let mut session = session(settings(Protocol::Pop3, AuthMethods::PLAIN));
    let bad = ["-ERR invalid command/"; 4].join(" ");
    assert_eq!(talk(&mut session, &"X\r\n".repeat(9)), format!("{bad} !-ERR invalid command/"));
    assert_eq!(session.notice, Some(Notice::TooManyErrors));
    // Those that are known, but not now, do not count.
    let mut session = self::session(settings(Protocol::Pop3, AuthMethods::PLAIN));
    assert!(!talk(&mut session, &"PASS a\r\n".repeat(9)).contains('!'));
    for (protocol, text, said) in [
        (Protocol::Pop3, "-ERR invalid command\r\n", &b"USER "[..]),
        (Protocol::Imap, "abc BAD invalid command\r\n", b"abc LOGIN "),
        (Protocol::Smtp, "500 5.5.1 Invalid command\r\n", b"AUTH "),
    ] {
        let mut session = self::session(Settings {
            command_max_bytes: 50,
            ..settings(protocol, AuthMethods::PLAIN)
        });
        let long = [said, &[b'x'; 60]].concat();
        assert_eq!(session.advance(&long[..49]), (0, Step::NeedMore));
        assert_eq!(session.advance(&long), (50, Step::Bye));
        assert_eq!(session.out, text.as_bytes());
        assert_eq!(session.notice, Some(Notice::TooLong(long[..50].to_vec())));
    }
}

#[test]
fn attempts() {
    let mut session = session(settings(Protocol::Imap, AuthMethods::PLAIN));
    talk(&mut session, "a LOGIN b c\r\n");
    session.refused(b"a NO no\r\n");
    assert_eq!(
        (&session.out[..], &session.credentials),
        (&b"a NO no\r\n"[..], &Credentials::default())
    );
    assert_eq!(talk(&mut session, "b LOGIN b c\r\n\r\n"), "ask plain:b:c * BAD invalid command/");
    assert_eq!(session.attempts, 2);
    session.internal_error();
    assert_eq!(session.out, b"* BAD internal server error\r\n");
    session.spoke_too_early(b"QUIT\r\n");
    let notice = session.notice.map(|n| n.to_string());
    assert_eq!(notice, Some("client was rejected before greeting: \"QUIT__\"".into()));
}
