//! Bounds of `mail`: times, buffers, errors.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use weir_tests::mail::{self, plain, Backend, Line};
use weir_tests::{expect_soon, Next, Origin, Server, AT_LAST};

fn three(auth: &Origin, more: &str) -> Server {
    let conf = format!(
        "{more}
         server {{ listen 127.0.0.1:%%PORT_0%%; protocol pop3; }}
         server {{ listen 127.0.0.1:%%PORT_1%%; protocol imap; }}
         server {{ listen 127.0.0.1:%%PORT_2%%; protocol smtp; }}"
    );
    mail::setup(auth, &conf).start()
}

const INVALID: [&str; 3] =
    ["-ERR invalid command", "* BAD invalid command", "500 5.5.1 Invalid command"];

#[test]
fn a_client_that_says_nothing() {
    let auth = mail::auth_none(false);
    let server = three(&auth, "timeout 300ms;");
    for n in 0..3 {
        assert!(Line::on(&server, n).is_closed());
    }
    let mut client = Line::on(&server, 0);
    client.send("USER m");
    assert!(client.is_closed(), "a line that is not ended");
    server.expect_error(
        "client timed out (110: Connection timed out) while in auth state, client: 127.0.0.1",
    );
}

/// The time is for all there is before the login; commands do not begin it anew.
#[test]
fn a_client_that_does_not_log_in() {
    let auth = mail::auth_none(false);
    let server = three(&auth, "timeout 1s;");
    let mut client = Line::on(&server, 2);
    let start = Instant::now();
    while client.client().is_silent(Duration::from_millis(50)) {
        assert!(start.elapsed() < AT_LAST, "it may go on for ever");
        client.send("NOOP\r\n");
        if client.client().read_exactly(14).is_none() {
            break;
        }
    }
    assert!(start.elapsed() > Duration::from_millis(800), "{:?}", start.elapsed());
}

#[test]
fn wrong_commands_are_counted() {
    let auth = mail::auth_none(false);
    let server = mail::setup(
        &auth,
        "max_errors 3;
         server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol imap; }
         server { listen 127.0.0.1:%%PORT_2%%; protocol smtp; }
         server { listen 127.0.0.1:%%PORT_3%%; protocol smtp; max_errors 1; }",
    )
    .start();
    let noop = ["NOOP", "t NOOP", "NOOP"];
    for n in 0..3 {
        let mut client = Line::on(&server, n);
        for _ in 0..3 {
            client.say(noop[n]);
            assert_eq!(client.say("*"), INVALID[n]);
        }
        assert!(client.is_closed(), "{n}");
    }
    server.expect_error("client sent too many invalid commands");
    let mut client = Line::on(&server, 3);
    assert_eq!(client.say("*"), INVALID[2]);
    assert!(client.is_closed());
    let server = three(&auth, "");
    let mut client = Line::on(&server, 2);
    client.send(&"*\r\n".repeat(100));
    for _ in 0..5 {
        assert_eq!(client.line(), INVALID[2], "five without a directive");
    }
    assert!(client.is_closed());
}

/// A command has its buffer, and a line that does not fit is the last.
#[test]
fn long_commands() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let server = three(&auth, "imap_client_buffer 512; smtp_client_buffer 256;");
    for (n, fits, ends) in [(0, 120, 129), (1, 500, 513), (2, 240, 257)] {
        let mut client = Line::on(&server, n);
        let command = ["USER ", "t NOOP ", "NOOP "][n];
        let line = |len: usize| format!("{command}{}\r\n", "x".repeat(len - command.len() - 2));
        client.send(&line(fits));
        let said = client.line();
        assert!(said.contains("OK"), "{n}: {said}");
        let mut client = Line::on(&server, n);
        client.send(line(ends + 2).trim_end());
        assert!(client.line().contains(&INVALID[n][5..]), "{n}");
        assert!(client.is_closed(), "{n}");
    }
    server.expect_error("client sent too long command \"USER xxxx");
    // Literals are of the command too.
    let mut client = Line::on(&server, 1);
    assert_eq!(client.say("t LOGIN {1000}"), "+ OK");
    client.send(&"x".repeat(1000));
    assert!(client.line().ends_with("BAD invalid command"));
    assert!(client.is_closed());
}

/// A long command of which the rest is still on its way is no reason to forget what was said to it.
#[test]
fn the_buffer_is_for_one_command_at_a_time() {
    let auth = mail::auth_none(false);
    let server = three(&auth, "smtp_client_buffer 256; imap_client_buffer 256;");
    for n in 1..3 {
        let mut client = Line::on(&server, n);
        for _ in 0..20 {
            let command = ["", "t NOOP ", "NOOP "][n];
            let said = client.say(&format!("{command}{}", "x".repeat(200)));
            assert!(said.contains("OK"), "{n}: {said}");
        }
    }
}

#[test]
fn a_server_that_says_nothing() {
    let backend = Backend::start("", |_, _| None);
    let auth = mail::auth_to(backend.port());
    let server = three(&auth, "timeout 1500ms;");
    let mut client = Line::on(&server, 0);
    assert_eq!(
        client.say(&format!("AUTH PLAIN {}", plain("me", "x"))),
        "-ERR internal server error"
    );
    assert!(client.is_closed());
    server.expect_error("upstream timed out (110: Connection timed out) while");
}

/// The same time for every step, not for the login as a whole.
#[test]
fn a_server_that_says_something_and_no_more() {
    let backend = Backend::start("* OK\r\n", |_, _| Some(String::new()));
    let auth = mail::auth_to(backend.port());
    let server = three(&auth, "timeout 1500ms;");
    let mut client = Line::on(&server, 1);
    assert_eq!(client.say("t LOGIN me x"), "* BAD internal server error");
    assert!(client.is_closed());
    backend.expect(&["t LOGIN {2}"]);
}

/// A session in which nothing happens ends; one in which the client or the server speaks does not.
#[test]
fn a_session_in_which_nothing_happens() {
    let backend = Backend::pop3();
    let auth = mail::auth_to(backend.port());
    let server = three(&auth, "timeout 800ms; proxy_timeout 2500ms;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say(&format!("AUTH PLAIN {}", plain("me", "x"))), "+OK");
    for _ in 0..3 {
        assert!(client.client().is_silent(Duration::from_millis(900)), "timeout is over by now");
        assert_eq!(client.say("NOOP"), "+OK NOOP");
    }
    assert!(client.is_closed());
    server.expect_error(
        "client timed out (110: Connection timed out) while proxying, client: 127.0.0.1",
    );
}

/// A client that asks and does not listen is not read for ever.
#[test]
fn a_client_that_does_not_listen() {
    const MAX_BYTES: usize = 64 << 20;
    let auth = mail::auth_none(false);
    let server = three(&auth, "");
    let mut client = TcpStream::connect(("127.0.0.1", server.port(0))).unwrap();
    client.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let commands = "NOOP\r\n".repeat(10_000);
    let mut sent = 0;
    while let Ok(n) = client.write(commands.as_bytes()) {
        sent += n;
        assert!(sent < MAX_BYTES, "all of it is read");
    }
    client.set_read_timeout(Some(AT_LAST)).unwrap();
    let mut said = [0; 21];
    client.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"+OK POP3 ready\r\n+OK\r\n");
}

/// An answer of `auth_http` that does not end is given up.
#[test]
fn an_endless_answer() {
    let auth = Origin::start_raw(|conn, _| {
        conn.read_until(b"\r\n\r\n");
        conn.write("HTTP/1.0 200 OK\r\nX-Long: ");
        while conn.try_write(&[b'x'; 4096]) {}
    });
    let server = three(&auth, "auth_http_timeout 2s;");
    let mut client = Line::on(&server, 0);
    let said = client.say(&format!("AUTH PLAIN {}", plain("me", "x")));
    assert_eq!(said, "-ERR internal server error");
    assert!(client.is_closed());
}

/// More than a buffer holds, sent with the login: all of it is the server's.
#[test]
fn much_behind_a_login() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let server = three(&auth, "imap_client_buffer 512; proxy_buffer 512;");
    let mut client = Line::on(&server, 1);
    let more: String = (0..5000).map(|n| format!("t{n} NOOP some words\r\n")).collect();
    client.send(&format!("t LOGIN me secret\r\n{more}"));
    assert_eq!(client.line(), "t OK logged in");
    for n in 0..5000 {
        assert_eq!(client.line(), format!("t{n} OK NOOP some words"));
    }
    assert_eq!(backend.lines().len(), 3 + 5000);
}

/// What the server has open, in all its processes.
fn open_files(server: &Server) -> usize {
    let processes = server.children().into_iter().chain([server.pid()]);
    let count = |pid| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    processes.map(count).sum()
}

/// Clients that go away at any time, and servers that do not answer: no connection is left of them.
#[test]
fn nothing_is_left() {
    let pop3 = Backend::pop3();
    let silent = Backend::start("", |_, _| None);
    let ports = [pop3.port(), silent.port()];
    let auth = Origin::start(move |request, conn| {
        match mail::asked(request, "Auth-User").as_str() {
            "never" => drop(conn.wait_closed()),
            "silent" => conn.write(format!("HTTP/1.0 200 OK\r\n{}\r\n", mail::to(ports[1]))),
            _ => conn.write(format!("HTTP/1.0 200 OK\r\n{}\r\n", mail::to(ports[0]))),
        }
        Next::Close
    });
    let server = three(&auth, "timeout 2s; auth_http_timeout 2s; proxy_timeout 2s;");
    drop(Line::on(&server, 0));
    let mut before = 0;
    expect_soon("a number that stays", || {
        std::mem::replace(&mut before, open_files(&server)) == before
    });
    let mut held = Vec::new();
    for n in 0..60 {
        let mut client = Line::from(server.connect());
        let user = ["never", "silent", "me"][n % 3];
        let words = format!("USER {user}\r\nPASS secret\r\nNOOP\r\n");
        let len = [0, 5, words.len() - 6, words.len()][n % 4];
        client.send(&words[..len]);
        if n / 12 % 2 == 0 {
            held.push(client);
        }
    }
    expect_soon("sessions of all kinds", || pop3.connections() >= 3 && silent.connections() >= 3);
    expect_soon("nothing but what there was", || open_files(&server) <= before);
    assert!(held.iter_mut().all(|client| client.client().read_to_end().starts_with(b"+OK")));
}
