//! `auth_http`: what it is asked, and what its answers do.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use weir_tests::mail::{self, asked, plain, Backend, Line};
use weir_tests::{Next, Origin, Server, Setup, PATIENCE};

/// One server of each protocol, on ports 0 to 2.
fn three(auth: &Origin, more: &str) -> Server {
    let conf = format!(
        "{more} smtp_auth plain none;
         server {{ listen 127.0.0.1:%%PORT_0%%; protocol pop3; }}
         server {{ listen 127.0.0.1:%%PORT_1%%; protocol imap; }}
         server {{ listen 127.0.0.1:%%PORT_2%%; protocol smtp; }}"
    );
    mail::setup(auth, &conf).start()
}

/// Logs in, and what is said to that.
fn login(server: &Server, n: usize, user: &str) -> (Line, String) {
    let mut client = Line::on(server, n);
    let said = login_again(&mut client, n, user);
    (client, said)
}

fn login_again(client: &mut Line, n: usize, user: &str) -> String {
    let verb = ["AUTH PLAIN", "t AUTHENTICATE PLAIN", "AUTH PLAIN"][n];
    client.say(&format!("{verb} {}", plain(user, "secret")))
}

const INTERNAL: [&str; 3] = [
    "-ERR internal server error",
    "* BAD internal server error",
    "451 4.3.2 Internal server error",
];

#[test]
fn the_question() {
    let auth = mail::auth_none(false);
    let server = three(&auth, "auth_http_header X-Key 'a key'; auth_http_header X-More more;");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("USER a%b c\u{7f}\u{1}d+/?"), "+OK");
    assert_eq!(client.say("PASS p:%20\t&\"<"), "-ERR no");
    let head = auth.only_request().head;
    let expected = "GET /auth HTTP/1.0\r\nHost: 127.0.0.1\r\nAuth-Method: plain\r\n\
        Auth-User: a%25b%20c\u{7f}%01d+/?\r\nAuth-Pass: p:%2520%09&\"<\r\nAuth-Protocol: pop3\r\n\
        Auth-Login-Attempt: 1\r\nClient-IP: 127.0.0.1\r\nX-Key: a key\r\nX-More: more\r\n\r\n";
    assert_eq!(head, expected);
    let mut client = Line::on(&server, 2);
    client.say("HELO client.test");
    client.say("MAIL FROM:<a@b>");
    assert_eq!(client.say("RCPT TO:<c@d>"), "535 5.7.0 no");
    let expected = "GET /auth HTTP/1.0\r\nHost: 127.0.0.1\r\nAuth-Method: none\r\nAuth-User: \r\n\
        Auth-Pass: \r\nAuth-Protocol: smtp\r\nAuth-Login-Attempt: 1\r\nClient-IP: 127.0.0.1\r\n\
        Client-Host: [UNAVAILABLE]\r\nAuth-SMTP-Helo: client.test\r\n\
        Auth-SMTP-From: MAIL FROM:<a@b>\r\nAuth-SMTP-To: RCPT TO:<c@d>\r\n\
        X-Key: a key\r\nX-More: more\r\n\r\n";
    assert_eq!(auth.last_request().head, expected);
}

#[test]
fn where_it_is_asked() {
    let auth = mail::auth_none(false);
    let conf = "events {} mail { auth_http_header X-Key all; auth_http localhost:%%AUTH%%;
        server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }
        server { listen 127.0.0.1:%%PORT_1%%; protocol pop3; auth_http_header X-Own own;
            auth_http http://127.0.0.1:%%AUTH%%/a/b?c=d; }
        server { listen 127.0.0.1:%%PORT_2%%; protocol pop3; auth_http unix:%%DIR%%/auth.sock:/path; } }";
    let setup = Setup::new(conf).set("AUTH", auth.port());
    let socket = UnixListener::bind(setup.dir().join("auth.sock")).unwrap();
    let server = setup.start();
    assert_eq!(login(&server, 0, "me").1, "-ERR no");
    let request = auth.last_request();
    assert_eq!((request.target(), &asked(&request, "Host")[..]), ("/", "localhost"));
    assert_eq!(asked(&request, "X-Key"), "all");
    let mut client = Line::on(&server, 1);
    assert_eq!(login_again(&mut client, 0, "me"), "-ERR no");
    let request = auth.last_request();
    assert_eq!((request.target(), &asked(&request, "Host")[..]), ("/a/b?c=d", "127.0.0.1"));
    assert_eq!(request.header("X-Key"), None, "those of a server are all it sends");
    assert_eq!(asked(&request, "X-Own"), "own");
    let mut client = Line::on(&server, 2);
    client.send(&format!("AUTH PLAIN {}\r\n", plain("me", "secret")));
    let (mut stream, _) = socket.accept().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(weir_tests::read(&mut stream, &mut byte).unwrap(), 1);
        head.extend(byte);
    }
    std::io::Write::write_all(&mut stream, b"HTTP/1.0 200 OK\r\nAuth-Status: unix\r\n\r\n")
        .unwrap();
    assert_eq!(client.line(), "-ERR unix");
    assert!(String::from_utf8(head)
        .unwrap()
        .starts_with("GET /path HTTP/1.0\r\nHost: localhost\r\n"));
}

/// Whoever is not let in is told why, and that is the end.
#[test]
fn refused() {
    let auth = mail::auth(|request| match asked(request, "Auth-User").as_str() {
        "code" => "Auth-Status: Not now \r\nAuth-Error-Code: 454 4.7.0\r\n".into(),
        _ => "auth-status: Invalid login or password\r\nAuth-Server: 127.0.0.1\r\n".into(),
    });
    let server = three(&auth, "");
    let words = [
        "-ERR Invalid login or password",
        "t NO Invalid login or password",
        "535 5.7.0 Invalid login or password",
    ];
    let coded = ["-ERR Not now", "t NO Not now", "454 4.7.0 Not now"];
    for n in 0..3 {
        for (user, said) in [("me", words[n]), ("code", coded[n])] {
            let (mut client, answer) = login(&server, n, user);
            assert_eq!(answer, said);
            assert!(client.is_closed());
        }
    }
    server.expect_error("client login failed: \"Invalid login or password\"");
}

/// With a wait the session goes on.
#[test]
fn refused_for_a_while() {
    let backend = Backend::imap();
    let port = backend.port();
    let auth = mail::auth(move |request| match asked(request, "Auth-Login-Attempt").as_str() {
        "1" | "2" => "Auth-Status: wrong\r\nAuth-Wait: 1\r\n".into(),
        _ => mail::to(port),
    });
    let server = three(&auth, "");
    let mut client = Line::on(&server, 1);
    let start = Instant::now();
    assert_eq!(login_again(&mut client, 1, "me"), "t NO wrong");
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    assert_eq!(client.say("u NOOP"), "u OK completed");
    assert_eq!(client.say("v LOGIN me secret"), "v NO wrong");
    assert_eq!(client.say("w LOGIN me secret"), "w OK logged in");
    let attempts: Vec<_> = auth.requests().iter().map(|r| asked(r, "Auth-Login-Attempt")).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
}

/// What has come meanwhile is answered behind the refusal, and another way to log in may be tried.
#[test]
fn commands_while_it_waits() {
    let auth = mail::auth_none(true);
    let conf = "server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; pop3_auth plain apop; }
        server { listen 127.0.0.1:%%PORT_1%%; protocol smtp; smtp_auth plain none; }";
    let server = mail::setup(&auth, conf).start();
    let mut client = Line::on(&server, 0);
    let digest = "0123456789abcdef0123456789abcdef";
    client.send(&format!("APOP me {digest}\r\nNOOP\r\nUSER me\r\n"));
    assert_eq!([client.line(), client.line(), client.line()], ["-ERR no", "+OK", "+OK"]);
    assert_eq!(client.say("PASS secret"), "-ERR no");
    let methods: Vec<_> = auth.requests().iter().map(|r| asked(r, "Auth-Method")).collect();
    assert_eq!(methods, ["apop", "plain"]);
    assert_eq!(auth.last_request().header("Auth-Salt"), None);
    let mut client = Line::on(&server, 1);
    client.send("MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nRCPT TO:<e@f>\r\nQUIT\r\n");
    let said = [client.line(), client.line(), client.line(), client.line()];
    assert_eq!(said, ["250 2.0.0 OK", "535 5.7.0 no", "535 5.7.0 no", "221 2.0.0 Bye"]);
    assert!(client.is_closed());
}

/// Who answers may be the same server.
#[test]
fn a_server_that_asks_itself() {
    let backend = Backend::imap();
    let conf = "events {} mail { auth_http 127.0.0.1:%%PORT_0%%/auth;
            server { listen 127.0.0.1:%%PORT_1%%; protocol imap; } }
        http { server { listen 127.0.0.1:%%PORT_0%%; location = /auth {
            add_header Auth-Status $good; add_header Auth-Server 127.0.0.1;
            add_header Auth-Port %%BACKEND%%; return 204; } }
            map $http_auth_user:$http_auth_pass $good { default wrong; me:secret OK; } }";
    let server = Setup::new(conf).set("BACKEND", backend.port()).start();
    let mut client = Line::on(&server, 1);
    assert_eq!(client.say("a LOGIN me secret"), "a OK logged in");
    let mut client = Line::on(&server, 1);
    assert_eq!(client.say("a LOGIN me other"), "a NO wrong");
}

/// `WAIT` is asked again later, with nothing said to the client.
#[test]
fn asked_again() {
    let backend = Backend::pop3();
    let port = backend.port();
    let times = std::sync::atomic::AtomicUsize::new(0);
    let auth = mail::auth(move |_| match times.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => "Auth-Status: WAIT\r\nAuth-Wait: 1\r\nAuth-Server: 127.0.0.1\r\n".into(),
        _ => mail::to(port),
    });
    let server = three(&auth, "");
    let start = Instant::now();
    assert_eq!(login(&server, 0, "me").1, "+OK");
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    let requests = auth.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].head, requests[1].head);
}

#[test]
fn another_name_and_password() {
    let pop3 = Backend::pop3();
    let port = pop3.port();
    let auth = mail::auth(move |_| {
        mail::to(port) + "AUTH-USER: other@mail.test\r\nAuth-Pass:other secret\r\nX-Other: x\r\n"
    });
    let server = three(&auth, "");
    assert_eq!(login(&server, 0, "me").1, "+OK");
    pop3.expect(&["USER other@mail.test", "PASS other secret"]);
    server.expect_error("client logged in, client: 127.0.0.1");
    server.expect_error("login: \"other@mail.test\"");
}

/// Answers as they come in the world: with another status, a body, line ends of one kind, in pieces.
#[test]
fn unusual_answers() {
    let backend = Backend::pop3();
    let port = backend.port();
    let auth = Origin::start(move |request, conn| {
        let good = mail::to(port);
        match asked(request, "Auth-User").as_str() {
            "status" => conn.write(format!("HTTP/1.1 404 Not Found\r\n{good}\r\nbody")),
            "lf" => conn.write(format!("HTTP/1.0 200 OK\r\n{good}\r\n").replace("\r\n", "\n")),
            "pieces" => {
                for byte in format!("HTTP/1.0 200 OK\r\n{good}\r\n").bytes() {
                    conn.write([byte]);
                }
            }
            "spaces" => {
                let good = good.replace(": ", ":   ").replace("\r\n", "  \r\n");
                conn.write(format!("HTTP/1.0 200 OK\r\nEmpty:\r\n{good}\r\n"));
            }
            _ => conn.write(format!("HTTP/1.1 204 No Content\r\nNo-Value\r\n{good}\r\n")),
        }
        Next::Close
    });
    let server = three(&auth, "");
    for user in ["status", "lf", "pieces", "spaces", "other"] {
        assert_eq!(login(&server, 0, user).1, "+OK", "{user}");
    }
}

/// A client is told of no detail; the log is.
#[test]
fn wrong_answers() {
    let auth = Origin::start(move |request, conn| {
        let user = asked(request, "Auth-User");
        let to = |server: &str, port: &str| {
            format!("HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: {server}\r\nAuth-Port: {port}\r\n\r\n")
        };
        conn.write(match user.as_str() {
            "server" => "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Port: 1\r\n\r\n".into(),
            "port" => "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\n\r\n".into(),
            "name" => to("backend.test", "1"),
            "number" => to("127.0.0.1", "70000"),
            "header" => "HTTP/1.0 200 OK\r\nAuth Status: OK\r\n\r\n".into(),
            "line" => "HTTP/1.0 200 OK\rX\r\n\r\n".into(),
            _ => String::new(),
        });
        Next::Close
    });
    let server = three(&auth, "");
    let address = auth.address();
    for (user, logged) in [
        ("server", "did not send server or port"),
        ("port", "did not send server or port"),
        ("name", "sent invalid server address:\"backend.test\""),
        ("number", "sent invalid server port:\"70000\""),
        ("header", "sent invalid header in response"),
        ("line", "sent invalid response"),
        ("nothing", ""),
    ] {
        for (n, internal) in INTERNAL.iter().enumerate() {
            let (mut client, said) = login(&server, n, user);
            assert_eq!(said, *internal, "{user}");
            assert!(client.is_closed(), "{user}");
        }
        if !logged.is_empty() {
            server.expect_error(&format!("auth http server {address} {logged}"));
        }
    }
}

#[test]
fn nobody_answers() {
    let silent = Origin::start_raw(|conn, _| {
        conn.wait_closed();
    });
    let cut = Origin::replying("HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Ser");
    let (_socket, nobody) = mail::refusing();
    let server = mail::setup(
        &silent,
        "auth_http_timeout 300ms;
         server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol imap; auth_http 127.0.0.1:%%NOBODY%%; }
         server { listen 127.0.0.1:%%PORT_2%%; protocol smtp; auth_http %%CUT%%; }",
    )
    .set("CUT", cut.address())
    .set("NOBODY", nobody)
    .start();
    for (n, internal) in INTERNAL.iter().enumerate() {
        let (mut client, said) = login(&server, n, "me");
        assert_eq!(said, *internal);
        assert!(client.is_closed());
    }
    server.expect_error(&format!("auth http server {} timed out", silent.address()));
    server.expect_error(
        "failed (111: Connection refused) while in http auth state, client: 127.0.0.1",
    );
}

/// The client has gone while it was asked about, which harms nobody.
#[test]
fn a_client_that_goes_away() {
    let backend = Backend::pop3();
    let port = backend.port();
    let (go, wait) = std::sync::mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    let auth = mail::auth(move |_| {
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        mail::to(port)
    });
    let server = three(&auth, "");
    let mut client = Line::on(&server, 0);
    client.send(&format!("AUTH PLAIN {}\r\n", plain("me", "secret")));
    auth.expect_requests(1);
    drop(client);
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!(login(&server, 0, "me").1, "+OK");
    assert!(!server.error_log().contains("exited on signal"));
}
