//! The error log of `mail`: who did what with whom, and no password.

use weir_tests::mail::{self, plain, Backend, Line};
use weir_tests::Setup;

#[test]
fn a_session() {
    let backend = Backend::pop3();
    let auth = mail::auth_to(backend.port());
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; }").start();
    let mut client = Line::on(&server, 0);
    let (own, port) = (client.client().local_port(), server.port(0));
    assert_eq!(client.say("USER me@mail.test"), "+OK");
    assert_eq!(client.say("PASS secret"), "+OK");
    client.send("QUIT\r\n");
    assert!(client.is_closed());
    server.expect_error(&format!("client 127.0.0.1:{own} connected to 127.0.0.1:{port}"));
    let who = format!(
        "client: 127.0.0.1, server: 127.0.0.1:{port}, login: \"me@mail.test\", upstream: 127.0.0.1:{}",
        backend.port()
    );
    server.expect_error("[info]");
    server.expect_error(&format!("client logged in, {who}\n"));
    server.expect_error(&format!("proxied session done, {who}\n"));
}

#[test]
fn refusals() {
    let auth = mail::auth_none(false);
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol imap; }").start();
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("t LOGIN me secret"), "t NO no");
    assert!(client.is_closed());
    let port = server.port(0);
    server.expect_error(&format!(
        "client login failed: \"no\" while in http auth state, client: 127.0.0.1, server: 127.0.0.1:{port}, login: \"me\"\n"
    ));
}

#[test]
fn what_a_server_does_wrong() {
    let backend = Backend::start("* OK\r\n", |_, _| Some("t NO go away\r\n".into()));
    let auth = mail::auth_to(backend.port());
    let server = mail::setup(
        &auth,
        "server { listen 127.0.0.1:%%PORT_0%%; protocol imap; }
         server { listen 127.0.0.1:%%PORT_1%%; protocol imap; proxy_pass_error_message on; }",
    )
    .start();
    let who = |n: usize| {
        format!(
            " while reading response from upstream, client: 127.0.0.1, server: 127.0.0.1:{}, login: \"me\", upstream: 127.0.0.1:{}\n",
            server.port(n),
            backend.port()
        )
    };
    Line::on(&server, 0).say("t LOGIN me secret");
    let line = format!("upstream sent invalid response: \"t NO go away\"{}", who(0));
    server.expect_error(&line);
    Line::on(&server, 1).say("t LOGIN me secret");
    let line = format!("upstream sent invalid response: \"t NO go away\"{}", who(1));
    server.expect_error(&line);
    let levels: Vec<_> = server
        .error_log()
        .lines()
        .filter(|l| l.contains("upstream sent invalid response"))
        .map(|l| l.split(['[', ']']).nth(1).unwrap_or_default().to_owned())
        .collect();
    assert_eq!(levels, ["error", "info"], "what the client is told is the client's affair");
}

#[test]
fn a_server_that_is_not_there() {
    let (_socket, port) = mail::refusing();
    let auth = mail::auth_to(port);
    let server =
        mail::setup(&auth, "server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; }").start();
    let mut client = Line::on(&server, 0);
    let said = client.say(&format!("AUTH PLAIN {}", plain("me", "secret")));
    assert_eq!(said, "451 4.3.2 Internal server error");
    assert!(client.is_closed());
    server.expect_error("failed (111: Connection refused) while ");
    server.expect_error(&format!(
        ", client: 127.0.0.1, server: 127.0.0.1:{}, login: \"me\", upstream: 127.0.0.1:{port}\n",
        server.port(0)
    ));
    assert!(server.error_log().contains("[error]"));
}

/// Each server has the log of its level; a level of `error` has none of what clients do.
#[test]
fn logs_of_servers() {
    let auth = mail::auth_none(false);
    let conf = format!(
        "events {{}} mail {{ auth_http {}; error_log %%DIR%%/all.log info;
            server {{ listen 127.0.0.1:%%PORT_0%%; protocol pop3; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; protocol pop3; error_log %%DIR%%/own.log info; }}
            server {{ listen 127.0.0.1:%%PORT_2%%; protocol pop3; error_log %%DIR%%/few.log; }} }}",
        auth.address()
    );
    let server = Setup::new(&conf).start();
    for n in 0..3 {
        let mut client = Line::on(&server, n);
        assert_eq!(client.say(&format!("AUTH PLAIN {}", plain("me", "x"))), "-ERR no");
        assert!(client.is_closed());
    }
    let failed = |path: &str| server.read(path).matches("client login failed").count();
    weir_tests::expect_soon("lines of both", || failed("all.log") > 0 && failed("own.log") > 0);
    assert_eq!((failed("all.log"), failed("own.log")), (1, 1));
    assert_eq!(server.read("few.log"), "");
}

/// What is secret is in no log, however much is told.
#[test]
fn no_password() {
    let backend = Backend::pop3();
    let port = backend.port();
    let auth = mail::auth_to(port);
    let conf = format!(
        "error_log %%DIR%%/error.log debug; events {{}} mail {{ auth_http {};
            server {{ listen 127.0.0.1:%%PORT_0%%; protocol pop3; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; protocol imap; }} }}",
        auth.address()
    );
    let server = Setup::new(&conf).start();
    let word = plain("me", "opensesame");
    let mut client = Line::on(&server, 0);
    assert_eq!(client.say("USER me"), "+OK");
    assert_eq!(client.say("PASS opensesame"), "+OK");
    assert_eq!(Line::on(&server, 0).say(&format!("AUTH PLAIN {word}")), "+OK");
    assert_eq!(Line::on(&server, 1).say("t LOGIN me opensesame"), "* BAD internal server error");
    server.expect_error("upstream sent invalid response");
    let log = server.error_log();
    let told = log.lines().find(|l| l.contains("opensesame") || l.contains(&word));
    assert_eq!(told, None);
}
