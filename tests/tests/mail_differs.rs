//! Where `mail` does more than nginx does, which each of these says.

use weir_tests::mail::{self, asked, base64, plain, Backend, Line};
use weir_tests::{run_cli, skip, Server};

/// Whether this is to be tested.
fn is_weir() -> bool {
    let is_it = run_cli(&["-v"], "").stderr.contains("(weir/");
    if !is_it {
        skip("nginx does not");
    }
    is_it
}

fn login(server: &Server, user: &str) -> String {
    Line::on(server, 0).say(&format!("AUTH PLAIN {}", plain(user, "secret")))
}

/// nginx sends a name with a line end as it is: what follows is a command of the client's choice before
/// the server has checked its password. It is refused; and it is one line in the log.
#[test]
fn a_name_is_no_command() {
    if !is_weir() {
        return;
    }
    let backend = Backend::pop3();
    let auth = mail::auth_to(backend.port());
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }").start();
    for user in ["me\r\nDELE 1", "me\nDELE 1", "me\r"] {
        assert_eq!(login(&server, user), "-ERR internal server error", "{user:?}");
    }
    let word = base64("\0me\0secret\r\nDELE 1");
    let said = Line::on(&server, 0).say(&format!("AUTH PLAIN {word}"));
    assert_eq!(said, "-ERR internal server error");
    let sent = backend.lines();
    assert!(!sent.iter().any(|line| line.contains("DELE")), "{sent:?}");
    server.expect_error("user name or password with a line end cannot be sent to upstream");
    server.expect_error("login: \"me\\x0D\\x0ADELE 1\"");
}

/// IMAP has a way to write it: as a literal, of which the length is told.
#[test]
fn a_name_with_a_line_end_in_imap() {
    let backend = weir_tests::Origin::start_raw(|conn, _| {
        conn.write("* OK\r\n");
        assert_eq!(conn.read_until(b"\r\n").unwrap_or_default(), b"t LOGIN {7}\r\n");
        conn.write("+ \r\n");
        assert_eq!(conn.read_exactly(7).unwrap_or_default(), b"me\r\nyou");
        conn.read_until(b"\r\n");
        conn.write("+ \r\n");
        conn.read_until(b"\r\n");
        conn.write("t OK in\r\n");
    });
    let auth = mail::auth_to(backend.port());
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol imap; }").start();
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t LOGIN {7+}\r\nme\r\nyou secret"), "t OK in");
    assert_eq!(asked(&auth.only_request(), "Auth-User"), "me%0D%0Ayou");
}

/// In nginx a buffer that commands in one piece have filled is a command that is too long.
#[test]
fn more_commands_than_a_buffer_holds() {
    if !is_weir() {
        return;
    }
    let auth = mail::auth_none(false);
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }").start();
    let mut client = Line::on(&server, 0);
    client.send(&("NOOP\r\n".repeat(1000) + "QUIT\r\n"));
    for n in 0..1001 {
        assert_eq!(client.line(), "+OK", "{n}");
    }
    assert!(client.is_closed());
}

/// nginx takes the byte that follows an empty literal for its content, and answers a wrong line within
/// AUTHENTICATE without the command's tag.
#[test]
fn strings_and_tags_of_imap() {
    if !is_weir() {
        return;
    }
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol imap; }").start();
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t AUTHENTICATE LOGIN"), "+ VXNlcm5hbWU6");
    assert_eq!(client.say("*"), "t BAD invalid command");
    assert_eq!(client.say("t LOGIN me {0+}\r\n"), "t OK logged in");
    assert_eq!(asked(&auth.only_request(), "Auth-Pass"), "");
}

/// nginx expects one line before the last, and continuations of four bytes.
#[test]
fn what_servers_of_imap_say() {
    if !is_weir() {
        return;
    }
    let backend = Backend::start("* OK\r\n", |line, before| {
        let said = mail::imap_said(line, before)?;
        let said = said.replace("+ go on", "+");
        Some(said.replace("t OK logged in", "* CAPABILITY IMAP4rev1\r\n* OK [ALERT] a\r\nt OK in"))
    });
    let auth = mail::auth_to(backend.port());
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol imap; }").start();
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t LOGIN me secret"), "* CAPABILITY IMAP4rev1");
    assert_eq!([client.line(), client.line()], ["* OK [ALERT] a", "t OK in"]);
    assert_eq!(client.say("u NOOP"), "u OK NOOP");
}

/// nginx takes an empty word for OK, in SMTP alone, and waits for the rest of an answer that was cut.
#[test]
fn answers_of_auth_http() {
    if !is_weir() {
        return;
    }
    let backend = Backend::smtp();
    let port = backend.port();
    let auth = weir_tests::Origin::start(move |request, conn| {
        let more = match asked(request, "Auth-User").as_str() {
            "empty" => "Auth-Status:\r\n\r\n",
            _ => "Auth-Us",
        };
        conn.write(format!("HTTP/1.0 200 OK\r\n{}{more}", mail::to(port)));
        weir_tests::Next::Close
    });
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; }").start();
    assert_eq!(login(&server, "empty").trim_end(), "535 5.7.0");
    assert_eq!(login(&server, "cut"), "451 4.3.2 Internal server error");
    assert_eq!(backend.connections(), 0);
}

/// nginx looks at what there is of the header, once.
#[test]
fn a_header_of_the_proxy_protocol_in_pieces() {
    if !is_weir() {
        return;
    }
    let auth = mail::auth_none(false);
    let conf = "server { listen 127.0.0.1:%%PORT_0%% proxy_protocol; protocol pop3; }";
    let server = mail::setup(&auth, conf).start();
    let mut client = Line::from(server.connect());
    for piece in ["PRO", "XY TCP4 192.0.2.1 192.", "0.2.2 1234 110\r", "\n"] {
        assert!(client.client().is_silent(std::time::Duration::from_millis(100)), "{piece:?}");
        client.send(piece);
    }
    assert_eq!(client.line(), "+OK POP3 ready");
}
