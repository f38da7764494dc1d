//! The server's side of a session: how a proxy logs in, and what it copies then.

use std::sync::{Arc, Mutex};

use weir_tests::mail::{self, asked, plain, Backend, Line};
use weir_tests::tls::{self, Tls};
use weir_tests::{expect_soon, Origin, Peer, Server};

fn login(server: &Server, n: usize) -> (Line, String) {
    let mut client = Line::on(server, n);
    let said = client.say(&format!("AUTH PLAIN {}", plain("me@mail.test", "secret")));
    (client, said)
}

/// What a backend of SMTP is told by a client that says these lines, of which the last is the login.
fn smtp_lines(more: &str, lines: &[&str]) -> Vec<String> {
    let backend = Backend::smtp();
    let auth = mail::auth_to(backend.port());
    let conf = format!(
        "smtp_auth plain none; server {{ listen 127.0.0.1:%%PORT_0%%; protocol smtp; {more} }}"
    );
    let server = mail::setup(&auth, &conf).start();
    let mut client = Line::on(&server, 0);
    let mut last = String::new();
    for line in lines {
        last = client.say_until(line, "2").pop().unwrap_or_default();
        while last.starts_with("250-") {
            last = client.line();
        }
    }
    assert!(last.starts_with("2"), "{last}");
    backend.lines()
}

const CLIENT: &str = "XCLIENT ADDR=127.0.0.1 NAME=[UNAVAILABLE]";
const FROM: &str = "MAIL FROM:<a@b>";
const TO: &str = "RCPT TO:<c@d>";

/// A server is told by XCLIENT who the client is, and then what the client has said.
#[test]
fn xclient() {
    let auth = format!("AUTH PLAIN {}", plain("me@mail.test", "secret"));
    let user = "XCLIENT ADDR=127.0.0.1 LOGIN=me@mail.test NAME=[UNAVAILABLE]";
    let ours = "EHLO mail.test";
    assert_eq!(smtp_lines("", &[&auth]), [ours, user]);
    assert_eq!(smtp_lines("", &["HELO x", &auth]), [ours, user, "HELO x"]);
    assert_eq!(smtp_lines("", &["EHLO x", &auth]), [ours, user, "EHLO x"]);
    assert_eq!(smtp_lines("", &[FROM, TO]), [ours, CLIENT, FROM, TO]);
    assert_eq!(smtp_lines("", &["HELO x", FROM, TO]), [ours, CLIENT, "HELO x", FROM, TO]);
    assert_eq!(smtp_lines("", &["EHLO x", FROM, TO]), [ours, CLIENT, "EHLO x", FROM, TO]);
}

#[test]
fn no_xclient() {
    let auth = format!("AUTH PLAIN {}", plain("me@mail.test", "secret"));
    let (off, ours, hello) = ("xclient off;", "EHLO mail.test", "HELO mail.test");
    assert_eq!(smtp_lines(off, &[&auth]), [hello]);
    assert_eq!(smtp_lines(off, &["HELO x", &auth]), [hello]);
    assert_eq!(smtp_lines(off, &["EHLO x", &auth]), [ours]);
    assert_eq!(smtp_lines(off, &[FROM, TO]), [hello, FROM, TO]);
    assert_eq!(smtp_lines(off, &["EHLO x", FROM, TO]), [ours, FROM, TO]);
}

/// The login is the server's to check too.
#[test]
fn proxy_smtp_auth() {
    let auth = format!("AUTH PLAIN {}", plain("me@mail.test", "secret"));
    let on = "proxy_smtp_auth on;";
    let ours = "EHLO mail.test";
    assert_eq!(smtp_lines(on, &[&auth]), [ours, CLIENT, &auth]);
    assert_eq!(smtp_lines(on, &["EHLO x", &auth]), [ours, CLIENT, "EHLO x", &auth]);
    assert_eq!(smtp_lines(on, &["EHLO x", FROM, TO]), [ours, CLIENT, "EHLO x", FROM, TO]);
    let off = "proxy_smtp_auth on; xclient off;";
    assert_eq!(smtp_lines(off, &["EHLO x", &auth]), [ours, &auth]);
    assert_eq!(smtp_lines(off, &["EHLO x", FROM, TO]), [ours, FROM, TO]);
}

#[test]
fn proxy_smtp_auth_without_a_password() {
    let backend = Backend::smtp();
    let auth = mail::auth_to(backend.port());
    let server = mail::setup(
        &auth,
        "proxy_smtp_auth on; smtp_auth external;
         server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; }",
    )
    .start();
    let mut client = Line::on(&server, 0);
    let said = client.say(&format!("AUTH EXTERNAL {}", mail::base64("me")));
    assert_eq!(said, "451 4.3.2 Internal server error");
    assert!(client.is_closed());
    server.expect_error("no password available");
}

/// A name says nothing but a name in XCLIENT.
#[test]
fn names_in_xclient() {
    let backend = Backend::smtp();
    let auth = mail::auth_to(backend.port());
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; }").start();
    let word = plain("a+b=c d\r\n\u{7f}é", "secret");
    assert_eq!(Line::on(&server, 0).say(&format!("AUTH PLAIN {word}")), "235 2.0.0 OK");
    let line = "XCLIENT ADDR=127.0.0.1 LOGIN=a+2Bb+3Dc+20d+0D+0A+7F+C3+A9 NAME=[UNAVAILABLE]";
    backend.expect(&["EHLO mail.test", line]);
}

/// A client's address of six, and one that has none.
#[test]
fn other_addresses() {
    let backend = Backend::smtp();
    let auth = mail::auth_to(backend.port());
    let server = mail::setup(
        &auth,
        "server { listen [::1]:%%PORT_0%%; listen unix:%%DIR%%/mail.sock; protocol smtp; }
         server { listen [::1]:%%PORT_1%%; listen unix:%%DIR%%/more.sock; protocol smtp;
            xclient off; proxy_protocol on; }",
    )
    .start();
    let word = format!("AUTH PLAIN {}", plain("me", "secret"));
    let login = |peer: Peer| {
        let mut client = Line::greeted(&peer);
        assert_eq!(client.say(&word), "235 2.0.0 OK");
        client.client().local_port()
    };
    login(Peer::Tcp6(server.port(0)));
    assert_eq!(asked(&auth.last_request(), "Client-IP"), "::1");
    login(server.unix("mail.sock"));
    let port = login(Peer::Tcp6(server.port(1)));
    login(server.unix("more.sock"));
    let ours = "EHLO mail.test";
    backend.expect(&[
        ours,
        "XCLIENT ADDR=IPV6:::1 LOGIN=me NAME=[UNAVAILABLE]",
        ours,
        "XCLIENT ADDR=unix: LOGIN=me NAME=[UNAVAILABLE]",
        &format!("PROXY TCP6 ::1 ::1 {port} {}", server.port(1)),
        "HELO mail.test",
        "PROXY UNKNOWN",
        "HELO mail.test",
    ]);
}

/// The rest of the client's own words, in whatever pieces they come.
#[test]
fn what_is_copied() {
    let backend = Origin::start_raw(|conn, _| {
        conn.write("+OK\r\n");
        for _ in 0..2 {
            conn.read_until(b"\r\n");
            conn.write("+OK\r\n");
        }
        let sent = conn.read_exactly(300_000).unwrap_or_default();
        conn.write(&sent);
    });
    let auth = mail::auth_to(backend.port());
    let server = mail::setup(
        &auth,
        "proxy on; proxy_buffer 1k; server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }",
    )
    .start();
    let (mut client, said) = login(&server, 0);
    assert_eq!(said, "+OK");
    let sent: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    let copy = sent.clone();
    let client = client.client();
    client.send(&copy);
    assert_eq!(client.read_to_end(), sent);
    server.expect_error("proxied session done");
}

/// All that a server has said before it closes is the client's.
#[test]
fn the_last_words_of_a_server() {
    let backend = Origin::start_raw(|conn, _| {
        conn.write("+OK\r\n");
        for _ in 0..2 {
            conn.read_until(b"\r\n");
            conn.write("+OK\r\n");
        }
        conn.read_until(b"\r\n");
        conn.write(vec![b'x'; 500_000]);
    });
    let auth = mail::auth_to(backend.port());
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }").start();
    let (mut client, _) = login(&server, 0);
    client.send("RETR 1\r\n");
    assert_eq!(client.client().read_to_end().len(), 500_000);
}

#[test]
fn many_sessions() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let conf = format!(
        "worker_processes 2; events {{}} mail {{ error_log %%DIR%%/error.log info; auth_http {};
            server {{ listen 127.0.0.1:%%PORT_0%%; protocol imap; }} }}",
        auth.address()
    );
    let server = weir_tests::Setup::new(&conf).start();
    let mut clients: Vec<Line> = (0..100).map(|_| Line::from(server.connect())).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(&format!("t{n} LOGIN user{n} secret\r\n"));
    }
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.line(), "* OK IMAP4 ready");
        assert_eq!(client.line(), format!("t{n} OK logged in"));
        assert_eq!(client.say(&format!("u{n} NOOP")), format!("u{n} OK NOOP"));
    }
    drop(clients);
    let done = || server.error_log().matches("proxied session done").count();
    expect_soon("the end of every session", || done() == 100);
    assert_eq!(backend.connections(), 100);
}

#[test]
fn either_side_ends_a_session() {
    let (gone, told) = std::sync::mpsc::channel();
    let gone = Mutex::new(gone);
    let backend = Origin::start_raw(move |conn, n| {
        conn.write("+OK\r\n");
        for _ in 0..2 {
            conn.read_until(b"\r\n");
            conn.write("+OK\r\n");
        }
        if n == 0 {
            gone.lock().unwrap().send(conn.wait_closed()).unwrap();
        }
    });
    let auth = mail::auth_to(backend.port());
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }").start();
    let (client, _) = login(&server, 0);
    drop(client);
    assert!(told.recv().unwrap(), "the server sees the client's end");
    let (mut client, _) = login(&server, 0);
    assert!(client.is_closed(), "the client sees the server's end");
}

/// What is wrong at the server is the client's to know, if it is to be told.
#[test]
fn errors_of_a_server() {
    let wrong = |greeting: &str, said: &'static str| {
        Backend::start(greeting, move |_, _| Some(said.to_string()))
    };
    let greets = wrong("-ERR go away\r\n", "");
    let refuses = wrong("+OK\r\n", "-ERR not you\r\n");
    let closes = Backend::start("+OK\r\n", |_, _| None);
    let smtp = wrong("220 a\r\n", "421-not you\r\n421 nor anybody\r\n");
    let imap = wrong("* BYE go away\r\n", "");
    let ports = [greets.port(), refuses.port(), closes.port(), smtp.port(), imap.port()];
    let auth = mail::auth(move |request| {
        let n: usize = asked(request, "Auth-User").parse().unwrap();
        mail::to(ports[n])
    });
    let conf = |message: &str, a: usize| {
        format!(
            "server {{ listen 127.0.0.1:%%PORT_{}%%; protocol pop3; {message} }}
             server {{ listen 127.0.0.1:%%PORT_{}%%; protocol smtp; {message} }}
             server {{ listen 127.0.0.1:%%PORT_{}%%; protocol imap; {message} }}",
            a,
            a + 1,
            a + 2
        )
    };
    let both = conf("", 0) + &conf("proxy_pass_error_message on;", 3);
    let server = mail::setup(&auth, &both).start();
    let said = |port: usize, n: usize| {
        let mut client = Line::on(&server, port);
        let verb = if port % 3 == 2 { "t AUTHENTICATE" } else { "AUTH" };
        client.send(&format!("{verb} PLAIN {}\r\n", plain(&n.to_string(), "secret")));
        String::from_utf8(client.client().read_to_end()).unwrap()
    };
    for n in 0..3 {
        assert_eq!(said(0, n), "-ERR internal server error\r\n", "{n}");
    }
    assert_eq!(said(1, 3), "451 4.3.2 Internal server error\r\n");
    assert_eq!(said(2, 4), "* BAD internal server error\r\n");
    assert_eq!(said(3, 0), "-ERR go away\r\n");
    assert_eq!(said(3, 1), "-ERR not you\r\n");
    assert_eq!(said(3, 2), "-ERR internal server error\r\n");
    assert_eq!(said(4, 3), "421-not you\r\n421 nor anybody\r\n");
    assert_eq!(said(5, 4), "* BYE go away\r\n");
    server.expect_error("upstream sent invalid response: \"-ERR go away\"");
}

/// At each step of SMTP's login.
#[test]
fn a_server_of_smtp_that_says_no() {
    for (verb, mode) in [
        ("EHLO", ""),
        ("XCLIENT", ""),
        ("AUTH", "proxy_smtp_auth on;"),
        ("MAIL", "smtp_auth none;"),
    ] {
        let backend = Backend::start("220 backend\r\n", move |line, before| {
            if line.starts_with(verb) {
                return Some("550-not\r\n550 here\r\n".into());
            }
            mail::smtp_said(line, before)
        });
        let auth = mail::auth_to(backend.port());
        let conf = format!(
            "proxy_pass_error_message on; {mode} server {{ listen 127.0.0.1:%%PORT_0%%; protocol smtp; }}"
        );
        let server = mail::setup(&auth, &conf).start();
        let mut client = Line::on(&server, 0);
        let said = match verb {
            "MAIL" => {
                client.say(FROM);
                client.say(TO)
            }
            _ => client.say(&format!("AUTH PLAIN {}", plain("me", "secret"))),
        };
        assert_eq!([said, client.line()], ["550-not", "550 here"], "{verb}");
        assert!(client.is_closed(), "{verb}");
    }
}

/// Some servers of IMAP say what they can before they say that the login was good.
#[test]
fn capabilities_before_the_end_of_a_login() {
    let backend = Backend::start("* OK [CAPABILITY IMAP4rev1] hello\r\n", |line, before| {
        let said = mail::imap_said(line, before)?;
        Some(said.replace("a OK logged in", "* CAPABILITY IMAP4rev1 MOVE\r\na OK logged in"))
    });
    let auth = mail::auth_to(backend.port());
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol imap; }").start();
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("a LOGIN me secret"), "* CAPABILITY IMAP4rev1 MOVE");
    assert_eq!(client.line(), "a OK logged in");
}

#[test]
fn a_long_answer_of_a_server() {
    let backend = Backend::start(&format!("+OK {}\r\n", "x".repeat(600)), |_, _| None);
    let auth = mail::auth_to(backend.port());
    let server = mail::setup(
        &auth,
        "proxy_buffer 512; server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }",
    )
    .start();
    let (mut client, said) = login(&server, 0);
    assert_eq!(said, "-ERR internal server error");
    assert!(client.is_closed());
    server.expect_error("upstream sent too long response line: \"+OK xxxx");
}

/// The server's answers may come in pieces, also between CR and LF.
#[test]
fn answers_in_pieces() {
    let backend = Origin::start_raw(|conn, _| {
        let mut say = |text: &str| {
            for byte in text.bytes() {
                conn.write([byte]);
                std::thread::yield_now();
            }
            conn.read_until(b"\r\n")
        };
        say("220-backend\r\n220 ready\r\n");
        say("250-backend\r\n250-XCLIENT\r\n250 AUTH PLAIN\r\n");
        say("220 backend\r\n");
        say("250-backend\r\n250 AUTH PLAIN\r\n");
    });
    let auth = mail::auth_to(backend.port());
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; }").start();
    let mut client = Line::on(&server, 0);
    client.say_until("EHLO client.test", "250 ");
    let said = client.say(&format!("AUTH PLAIN {}", plain("me", "secret")));
    assert_eq!(said, "235 2.0.0 OK");
}

/// A server is told who the client is by a header before all else.
#[test]
fn proxy_protocol_to_the_server() {
    let backend = Backend::pop3();
    let auth = mail::auth_to(backend.port());
    let server = mail::setup(
        &auth,
        "proxy_protocol on; server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_1%% proxy_protocol; protocol pop3; set_real_ip_from 127.0.0.1; }",
    )
    .start();
    let (mut client, said) = login(&server, 0);
    assert_eq!(said, "+OK");
    let header = format!(
        "PROXY TCP4 127.0.0.1 127.0.0.1 {} {}",
        client.client().local_port(),
        server.port(0)
    );
    backend.expect(&[&header, "USER me@mail.test", "PASS secret"]);
    let mut client = Line::from(server.on(1).connect());
    client.send("PROXY TCP4 192.0.2.1 192.0.2.2 1234 110\r\n");
    client.line();
    assert_eq!(client.say(&format!("AUTH PLAIN {}", plain("me", "secret"))), "+OK");
    let line = backend.lines()[3].clone();
    assert!(line.starts_with("PROXY TCP4 192.0.2.1 "), "{line}");
    assert!(line.contains(" 1234 "), "{line}");
}

/// Version 2 has addresses, and may have more behind them.
#[test]
fn proxy_protocol_in_bytes() {
    let seen: Arc<Mutex<(Vec<u8>, Vec<u8>)>> = Arc::default();
    let kept = Arc::clone(&seen);
    let backend = Origin::start_raw(move |conn, _| {
        let header = conn.read_exactly(16).unwrap_or_default();
        let len = u16::from_be_bytes([header[14], header[15]]);
        let addresses = conn.read_exactly(usize::from(len)).unwrap_or_default();
        *kept.lock().unwrap() = (header, addresses);
        conn.write("* OK\r\n");
        let line = conn.read_until(b"\r\n").unwrap_or_default();
        assert_eq!(line, b"t LOGIN {2}\r\n");
        conn.write("* BYE\r\n");
    });
    let auth = mail::auth_to(backend.port());
    let server = mail::setup(
        &auth,
        "server { listen 127.0.0.1:%%PORT_0%%; protocol imap; proxy_protocol v2;
            proxy_pass_error_message on; }",
    )
    .start();
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t LOGIN me secret"), "* BYE");
    let (header, addresses) = seen.lock().unwrap().clone();
    assert_eq!(header[..14], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11");
    let mut expected = vec![127, 0, 0, 1, 127, 0, 0, 1];
    expected.extend(client.client().local_port().to_be_bytes());
    expected.extend(server.port(0).to_be_bytes());
    assert_eq!(addresses[..12], expected);
}

/// Who sends such a header to us is believed where it is listened for; its address is the client's only
/// where that proxy is trusted.
#[test]
fn proxy_protocol_from_the_client() {
    let auth = mail::auth_none(false);
    let own = tls::self_signed("mail.test");
    let server = mail::setup(
        &auth,
        "ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
         server { listen 127.0.0.1:%%PORT_0%% proxy_protocol; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_1%% proxy_protocol; protocol pop3;
            set_real_ip_from 192.0.2.0/24; set_real_ip_from 127.0.0.0/8; }
         server { listen 127.0.0.1:%%PORT_2%% proxy_protocol ssl; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_3%% proxy_protocol; protocol pop3;
            set_real_ip_from 192.0.2.0/24; }
         server { listen 127.0.0.1:%%PORT_4%% proxy_protocol; protocol pop3; timeout 300ms; }",
    )
    .file("a.crt", own.cert)
    .file("a.key", own.key)
    .start();
    let word = format!("AUTH PLAIN {}\r\n", plain("me", "secret"));
    let v1 = "PROXY TCP4 192.0.2.1 192.0.2.2 1234 110\r\n";
    for (n, ip) in [(0, "127.0.0.1"), (1, "192.0.2.1"), (3, "127.0.0.1")] {
        let mut client = Line::from(server.on(n).connect());
        client.send(v1);
        assert_eq!(client.line(), "+OK POP3 ready");
        client.send(&word);
        assert_eq!(client.line(), "-ERR no");
        let request = auth.last_request();
        assert_eq!(asked(&request, "Client-IP"), ip, "{n}");
        assert_eq!(asked(&request, "Proxy-Protocol-Addr"), "192.0.2.1");
        assert_eq!(asked(&request, "Proxy-Protocol-Port"), "1234");
        assert_eq!(asked(&request, "Proxy-Protocol-Server-Addr"), "192.0.2.2");
        assert_eq!(asked(&request, "Proxy-Protocol-Server-Port"), "110");
    }
    server.expect_error("client login failed: \"no\" while in http auth state, client: 192.0.2.1,");
    let mut client = server.on(1).connect();
    client.send(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc0\0\x02\x08\x12\x34\0\x6e");
    let mut client = Line::from(client);
    assert_eq!(client.line(), "+OK POP3 ready");
    client.send(&word);
    assert_eq!(client.line(), "-ERR no");
    assert_eq!(asked(&auth.last_request(), "Client-IP"), "192.0.2.7");
    let mut client = Line::from(server.on(2).connect());
    client.send(v1);
    let mut client = client.start_tls(&Tls::default());
    assert_eq!(client.line(), "+OK POP3 ready");
    client.send(&word);
    assert_eq!(client.line(), "-ERR no");
    assert_eq!(asked(&auth.last_request(), "Proxy-Protocol-Addr"), "192.0.2.1");
    let mut client = Line::from(server.on(0).connect());
    client.send("USER me\r\n");
    assert!(client.is_closed());
    server.expect_error("broken header: \"USER me");
    assert!(server.on(4).connect().is_closed());
    server
        .expect_error("client timed out (110: Connection timed out) while reading PROXY protocol");
}
