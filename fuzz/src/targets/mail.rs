//! Mail: what clients, servers and whoever answers `auth_http` say, the same whole and in pieces.

use super::Target;
use crate::random::Random;
use std::sync::Arc;
use weir_base::{base64, line};
use weir_wire::mail::backend::{self, Client, Conversation, Options};
use weir_wire::mail::sasl::{Credentials, Method};
use weir_wire::mail::session::{Session, Settings, Step};
use weir_wire::mail::{auth_answer, auth_http, AuthMethods, Protocol, StartTls};

const COMMAND_MAX_BYTES: usize = 200;
const REPLY_MAX_BYTES: usize = 200;

const SECRETS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\0",
    b"=",
    b"AGEAYg==",
    b"YQ==",
    b"PLAIN",
    b"LOGIN",
    b"CRAM-MD5",
    b"EXTERNAL",
    b"NOOP\r\n",
    b"{3}",
    b"{3+}\r\n",
    b"{0}",
    b"\"",
    b"\\",
    b"a1 ",
    b"STLS\r\n",
    b"STARTTLS\r\n",
    b"RSET\r\n",
    b"QUIT\r\n",
    b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
];

pub const POP3: Target = Target {
    name: "pop3 client",
    seeds: &[
        b"USER a\r\nPASS b c\r\nNOOP\r\n",
        b"AUTH\r\nCAPA\r\nAPOP a b\r\nSTLS\r\nAUTH PLAIN AGEAYg==\r\n",
        b"AUTH LOGIN\r\nYQ==\r\nYg==\r\nAUTH CRAM-MD5\r\nYSAwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZg==\r\n",
    ],
    pieces: SECRETS,
    check: |buf, random| client(Protocol::Pop3, buf, random),
};

pub const IMAP: Target = Target {
    name: "imap client",
    seeds: &[
        b"a1 LOGIN {3}\r\nabc {2+}\r\nde\r\na2 NOOP\r\n",
        b"a LOGIN \"a\\\"b\" \"c\"\r\nb CAPABILITY\r\nc LOGOUT\r\n",
        b"1 AUTHENTICATE LOGIN\r\nYQ==\r\nYg==\r\n2 AUTHENTICATE PLAIN\r\nAGEAYg==\r\nx FOO {3+}\r\nabc\r\n",
    ],
    pieces: SECRETS,
    check: |buf, random| client(Protocol::Imap, buf, random),
};

pub const SMTP: Target = Target {
    name: "smtp client",
    seeds: &[
        b"EHLO a\r\nMAIL FROM:<a> SIZE=1\r\nRCPT TO:<b>\r\nQUIT\r\n",
        b"HELO a\r\nAUTH PLAIN\r\nAGEAYg==\r\nSTARTTLS\r\nRSET\r\n",
        b"AUTH EXTERNAL YQ==\r\nAUTH LOGIN YQ==\r\nYg==\r\nVRFY a\r\n",
    ],
    pieces: SECRETS,
    check: |buf, random| client(Protocol::Smtp, buf, random),
};

fn session(protocol: Protocol, choice: usize) -> Session {
    let all = AuthMethods::PLAIN.with(AuthMethods::APOP).with(AuthMethods::CRAM_MD5);
    let all = all.with(AuthMethods::EXTERNAL).with(AuthMethods::NONE);
    let mut settings = Settings::new(protocol, b"h.test", Some(all), None);
    settings.starttls = [StartTls::Off, StartTls::On, StartTls::Only][choice % 3];
    settings.command_max_bytes = COMMAND_MAX_BYTES;
    Session::new(Arc::new(settings), 7, 9, choice.is_multiple_of(2))
}

fn client(protocol: Protocol, buf: &[u8], random: &mut Random) {
    let choice = random.below(6);
    let whole = said(protocol, choice, buf, &[buf.len()]);
    assert_eq!(said(protocol, choice, buf, &random.cuts(buf.len())), whole);
}

/// All that a session says, with the questions that it leads to, and how much of `buf` it has read.
fn said(protocol: Protocol, choice: usize, buf: &[u8], cuts: &[usize]) -> (Vec<Vec<u8>>, usize) {
    let (mut session, mut at, mut out) = (session(protocol, choice), 0, Vec::new());
    for &cut in cuts {
        loop {
            let (len, step) = session.advance(&buf[at..cut]);
            assert!(len <= cut - at);
            if step == Step::NeedMore {
                assert!(len == 0 && cut - at < COMMAND_MAX_BYTES && session.out.is_empty());
                break;
            }
            at += len;
            out.push(session.notice.take().map(|n| n.to_string().into_bytes()).unwrap_or_default());
            if step == Step::Ask {
                out.push(question(&session));
                let refusal = session.protocol().internal_error();
                session.refused(refusal);
            }
            // A word for the client is a line, or several.
            assert!(session.out.ends_with(b"\r\n") && session.out.len() < 4 * COMMAND_MAX_BYTES);
            out.push(session.out.clone());
            match step {
                Step::Bye => return (out, at),
                // Nothing that came before the handshake is read after it.
                Step::StartTls => return (out, at),
                _ => {}
            }
        }
    }
    (out, at)
}

/// It keeps its lines, whatever the client has said of itself.
fn question(session: &Session) -> Vec<u8> {
    let facts = auth_http::Facts { uri: b"/", host: b"h", client_ip: b"::1", ..Default::default() };
    let mut out = Vec::new();
    auth_http::write_request(session, &facts, &mut out);
    let text = out.strip_suffix(b"\r\n\r\n").expect("an empty line ends it");
    let none = session.credentials.method == Method::None;
    let salted = session.credentials.method.is_salted();
    let lines: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
    assert_eq!(lines.len(), 8 + 3 * usize::from(none) + usize::from(salted));
    for found in lines {
        assert!(!line::is_broken(found.strip_suffix(b"\r").unwrap_or(found)));
    }
    out
}

pub const ANSWER: Target = Target {
    name: "auth_http answer",
    seeds: &[
        b"HTTP/1.1 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 10.0.0.1\r\nAuth-Port: 25\r\n\r\nbody",
        b"HTTP/1.0 204 x\nAuth-Status: WAIT\nAuth-Wait: 3\n\n",
        b"Auth-Status: no\r\nAuth-Error-Code: 454 4\r\nAuth-User: x\r\nAuth-Pass: y\r\n\r\n",
    ],
    pieces: &[
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b":",
        b"\0",
        b"Auth-Status: ",
        b"OK",
        b"Auth-Pass:",
        b"::1",
        b"Auth-Port: 65536",
        b"Auth-Wait: 99999999999999999999",
        b"HTTP/",
        b"\r\n\r\n",
    ],
    check: auth_answer,
};

fn auth_answer(buf: &[u8], random: &mut Random) {
    let protocol = [Protocol::Pop3, Protocol::Imap, Protocol::Smtp][random.below(3)];
    let session = session(protocol, 0);
    let read = |cuts: &[usize]| {
        let mut reader = auth_answer::Reader::new(&session, 1024);
        for &cut in cuts {
            match reader.read(&buf[..cut]) {
                Ok(None) => {}
                done => return done,
            }
        }
        Ok(None)
    };
    let whole = read(&[buf.len()]);
    assert_eq!(read(&random.cuts(buf.len())), whole);
    match whole {
        Ok(Some(auth_answer::Answer::Refused { words, .. })) => {
            let words = words.strip_suffix(b"\r\n").expect("a line");
            assert!(!line::is_broken(words));
        }
        Ok(Some(auth_answer::Answer::Pass { server, credentials })) => {
            assert!(server.port() > 0);
            assert!(credentials.password.is_some() || protocol == Protocol::Smtp);
        }
        Ok(_) => {}
        Err(e) => assert!(!e.log("x").to_string().is_empty()),
    }
}

pub const SERVER: Target = Target {
    name: "mail server",
    seeds: &[
        b"+OK hi\r\n+OK\r\n+OK in\r\n",
        b"* OK\r\n+ \r\n+ \r\n* CAPABILITY X\r\na1 OK in\r\n",
        b"220 a\r\n250-b\r\n250 c\r\n220 d\r\n250 e\r\n235 f\r\n250 g\r\n",
    ],
    pieces: &[
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"-",
        b"+",
        b"* ",
        b"a1 ",
        b"+OK\r\n",
        b"220 ",
        b"250 ",
        b"250-",
        b"235 \r\n",
        b"-ERR\r\n",
        b"NO\r\n",
        b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    ],
    check: server,
};

fn server(buf: &[u8], random: &mut Random) {
    let protocol = [Protocol::Pop3, Protocol::Imap, Protocol::Smtp][random.below(3)];
    let (choice, name) = (random.below(16), random.next().to_le_bytes());
    // What comes in one read with a reply belongs to it, so reads end with lines, and are cut within lines.
    let is_end = |at: usize| buf[..at].ends_with(b"\r\n");
    let mut reads: Vec<usize> = (1..buf.len()).filter(|&at| is_end(at)).collect();
    reads.retain(|_| random.below(4) > 0);
    reads.push(buf.len());
    let whole = told(protocol, choice, &name, buf, &reads);
    let mut cuts = random.cuts(buf.len());
    cuts.retain(|&at| !is_end(at));
    cuts.extend(reads);
    cuts.sort_unstable();
    cuts.dedup();
    assert_eq!(told(protocol, choice, &name, buf, &cuts), whole);
}

/// All that a server is told, and how much of `buf` was read.
fn told(
    protocol: Protocol,
    choice: usize,
    name: &[u8],
    buf: &[u8],
    cuts: &[usize],
) -> (Vec<Vec<u8>>, usize) {
    let mut session = session(protocol, 0);
    session.advance(b"a1 NOOP\r\n");
    let method = if choice & 8 == 0 { Method::Plain } else { Method::None };
    let (login, password) = (name.to_vec(), Some(name.to_vec()));
    let options = Options {
        pass_error_message: choice & 1 == 0,
        xclient: choice & 2 == 0,
        smtp_auth: choice & 4 == 0,
        reply_max_bytes: REPLY_MAX_BYTES,
        server_name: b"h.test".to_vec(),
    };
    let credentials = Credentials { method, login, password };
    let mut to = Conversation::new(&session, credentials, options, Client::default());
    let (mut at, mut out) = (0, Vec::new());
    for &cut in cuts {
        loop {
            let (len, step) = to.advance(&buf[at..cut]);
            assert!(len <= cut - at);
            at += len;
            assert_eq!(step == backend::Step::Failed, to.failure.is_some());
            match step {
                backend::Step::NeedMore => {
                    assert!(len == 0 && cut - at < REPLY_MAX_BYTES);
                    break;
                }
                backend::Step::Send => check_sent(protocol, &to.out, name),
                backend::Step::Join | backend::Step::Failed => {
                    out.push(to.out.clone());
                    out.push(to.failure.map(|f| f.to_string().into_bytes()).unwrap_or_default());
                    return (out, at);
                }
            }
            out.push(to.out.clone());
        }
    }
    (out, at)
}

/// One line; in IMAP the name itself may have more, for its length was said.
fn check_sent(protocol: Protocol, sent: &[u8], name: &[u8]) {
    let line = sent.strip_suffix(b"\r\n").expect("a line");
    if protocol != Protocol::Imap || !line.starts_with(name) {
        assert!(!line::is_broken(line), "{}", sent.escape_ascii());
    }
    if let Some(text) = line.strip_prefix(b"AUTH PLAIN ") {
        let expected = [b"\0", name, b"\0", name].concat();
        assert_eq!(base64::decode(text), Some(expected));
    }
}
