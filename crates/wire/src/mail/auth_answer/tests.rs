use super::*;
use crate::mail::session::Settings;
use crate::mail::AuthMethods;
use std::sync::Arc;

fn session(protocol: Protocol, text: &str) -> Session {
    let all = AuthMethods::APOP.with(AuthMethods::EXTERNAL);
    let settings = Settings::new(protocol, b"h.test", Some(all), None);
    let mut session = Session::new(Arc::new(settings), 7, 9, false);
    session.advance(text.as_bytes());
    assert_eq!(session.attempts, 1);
    session
}

/// What clients of the three say.
fn sessions() -> [Session; 3] {
    [
        session(Protocol::Pop3, "AUTH PLAIN AGEAYg==\r\n"),
        session(Protocol::Imap, "t1 LOGIN a b\r\n"),
        session(Protocol::Smtp, "AUTH PLAIN AGEAYg==\r\n"),
    ]
}

fn read(session: &Session, text: &str) -> Result<Option<Answer>, AnswerError> {
    Reader::new(session, 1024).read(text.as_bytes())
}

fn passed(session: &Session, text: &str) -> String {
    let text = format!("HTTP/1.1 200 OK\r\n{text}\r\nbody");
    match read(session, &text) {
        Ok(Some(Answer::Pass { server, credentials })) => {
            let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
            let password = credentials.password.as_deref().map_or("-".into(), text);
            format!("{server} {}:{password}", text(&credentials.login))
        }
        Ok(other) => format!("{other:?}"),
        Err(e) => e.log("a:80").to_string(),
    }
}

#[test]
fn a_server_is_named() {
    let [pop3, ..] = sessions();
    for (text, expected) in [
        ("Auth-Status: OK\r\nAuth-Server: 192.0.2.1\r\nAuth-Port: 143\r\n", "192.0.2.1:143 a:b"),
        ("auth-server:192.0.2.1\nAUTH-PORT:  1 \nX: y\n", "192.0.2.1:1 a:b"),
        ("Auth-Server: 2001:db8::1\r\nAuth-Port: 65535\r\n", "[2001:db8::1]:65535 a:b"),
        (
            "Auth-Server: 10.0.0.1\r\nAuth-Port: 1\r\nAuth-User: x y\r\nAuth-Pass: \r\n",
            "10.0.0.1:1 x y:",
        ),
        (
            "Auth-Server: h.test\r\nAuth-Port: 1\r\n",
            "auth http server a:80 sent invalid server address:\"h.test\"",
        ),
        (
            "Auth-Server: 10.0.0.1\r\nAuth-Port: 0\r\n",
            "auth http server a:80 sent invalid server port:\"0\"",
        ),
        (
            "Auth-Server: 10.0.0.1\r\nAuth-Port: 65536\r\n",
            "auth http server a:80 sent invalid server port:\"65536\"",
        ),
        ("Auth-Server: 10.0.0.1\r\n", "auth http server a:80 did not send server or port"),
        ("Auth-Port: 1\r\n", "auth http server a:80 did not send server or port"),
        ("Auth-Status: OK\r\n", "auth http server a:80 did not send server or port"),
    ] {
        assert_eq!(passed(&pop3, text), expected, "{text:?}");
    }
}

/// A digest is no password, and servers of POP3 and IMAP want one.
#[test]
fn passwords() {
    let server = "Auth-Server: 10.0.0.1\r\nAuth-Port: 1\r\n";
    let without = "auth http server a:80 did not send password";
    for (protocol, text, expected) in [
        (Protocol::Pop3, "APOP a digest\r\n", without),
        (Protocol::Imap, "a AUTHENTICATE EXTERNAL YQ==\r\n", without),
        (Protocol::Smtp, "AUTH EXTERNAL YQ==\r\n", "10.0.0.1:1 a:-"),
    ] {
        let session = session(protocol, text);
        assert_eq!(passed(&session, server), expected);
        let with = format!("{server}Auth-Pass: secret\r\n");
        assert_eq!(passed(&session, &with), "10.0.0.1:1 a:secret");
    }
}

#[test]
fn refusals() {
    let server = "Auth-Server: 10.0.0.1\r\nAuth-Port: 1\r\n";
    let code = "Auth-Error-Code: 454 4.7.0\r\n";
    for (session, words) in sessions().iter().zip([
        ["-ERR go away\r\n", "-ERR go away\r\n", "-ERR \r\n"],
        ["t1 NO go away\r\n", "t1 NO go away\r\n", "t1 NO \r\n"],
        ["535 5.7.0 go away\r\n", "454 4.7.0 go away\r\n", "535 5.7.0 \r\n"],
    ]) {
        for (text, words, reason, secs) in [
            ("Auth-Status: go away\r\nAuth-Wait: 3\r\n".to_owned(), words[0], "go away", 3),
            (format!("{code}Auth-Status: go away\r\nAuth-Wait: -1\r\n"), words[1], "go away", 0),
            ("Auth-Status:\r\n".to_owned(), words[2], "", 0),
            ("Auth-Status: WAIT\r\nAuth-Status: go away\r\n".to_owned(), words[0], "go away", 0),
            ("Auth-Status: go away\r\nAuth-Status: OK\r\n".to_owned(), words[0], "go away", 0),
        ] {
            let text = format!("HTTP/1.0 403 x\r\n{server}{text}\r\n");
            let (reason, words) = (reason.as_bytes().to_vec(), words.as_bytes().to_vec());
            let refused = Answer::Refused { reason, words, wait_secs: secs };
            assert_eq!(read(session, &text), Ok(Some(refused)), "{text:?}");
        }
        for (text, secs) in [("", 0), ("Auth-Wait: 10\r\n", 10), ("Auth-Wait: x\r\n", 0)] {
            let text = format!("HTTP/1.0 200 OK\r\nAuth-Status: WAIT\r\n{text}{server}\r\n");
            assert_eq!(read(session, &text), Ok(Some(Answer::Wait { secs })));
        }
    }
}

#[test]
fn what_is_no_answer() {
    let [pop3, ..] = sessions();
    for (text, error) in [
        ("HTTP/1.0 200 OK\rX\r\n", AnswerError::StatusLine),
        ("HTTP/1.0 200 OK\r\nX_Y: z\r\n\r\n", AnswerError::Field),
        ("HTTP/1.0 200 OK\r\n-X: z\r\n\r\n", AnswerError::Field),
        ("HTTP/1.0 200 OK\r\n: z\r\n\r\n", AnswerError::Field),
        ("HTTP/1.0 200 OK\r\nX : z\r\n\r\n", AnswerError::Field),
        ("HTTP/1.0 200 OK\r\nX: z\rY\r\n\r\n", AnswerError::Field),
        ("<html>\r\n", AnswerError::Field),
        ("\r\n", AnswerError::NoServer),
        ("HTTQ: x\r\n\r\n", AnswerError::NoServer),
    ] {
        assert_eq!(read(&pop3, text), Err(error), "{text:?}");
    }
    let text = format!("HTTP/1.0 200 OK\r\nX: {}", "y".repeat(2000));
    assert_eq!(read(&pop3, &text), Err(AnswerError::TooLong));
    assert_eq!(read(&pop3, &text[..1023]), Ok(None));
    let text = format!("HTTP/1.0 200 {}", "y".repeat(2000));
    assert_eq!(read(&pop3, &text), Err(AnswerError::TooLong));
    // Without a status line the fields stand first.
    let text = "Auth-Server: 10.0.0.1\nAuth-Port: 1\n\n";
    assert!(matches!(read(&pop3, text), Ok(Some(Answer::Pass { .. }))));
}

#[test]
fn in_pieces() {
    for session in &sessions() {
        let text = "HTTP/1.1 204 No Content\r\nAuth-Status: OK\r\nAuth-Server: 10.0.0.1\r\n\
                    Auth-Port: 25\r\nAuth-User: x\r\n\r\n";
        let mut reader = Reader::new(session, 1024);
        for end in 0..text.len() {
            assert_eq!(reader.read(&text.as_bytes()[..end]), Ok(None), "{end}");
        }
        assert_eq!(reader.read(text.as_bytes()), read(session, text));
    }
}
