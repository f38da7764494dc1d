//! Sessions of `mail` live on when the configuration changes and when the server ends.

use weir_tests::mail::{self, Backend, Line};
use weir_tests::tls::{self, Tls};
use weir_tests::{expect_soon, Origin, Server, Setup, Signal};

fn conf(auth: &Origin, name: &str) -> String {
    format!(
        "worker_shutdown_timeout 60s; events {{}} mail {{ error_log %%DIR%%/error.log info;
            server_name {name}; auth_http {}/{name};
            server {{ listen 127.0.0.1:%%PORT_0%%; protocol smtp; xclient off; smtp_auth none; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; protocol imap; }} }}",
        auth.address()
    )
}

fn greeting(server: &Server) -> String {
    Line::from(server.connect()).line()
}

#[test]
fn sessions_outlive_a_reload() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let mut server = Setup::new(&conf(&auth, "old.test")).start();
    let mut done = Line::on(&server, 1);
    assert_eq!(done.say("a LOGIN me secret"), "a OK logged in");
    let mut begun = Line::on(&server, 1);
    assert_eq!(begun.say("b NOOP"), "b OK completed");
    let port = server.port(0);
    server.reload(&conf(&auth, "new.test"), || {
        Line::from(weir_tests::Peer::Tcp(port).connect()).line() == "220 new.test ESMTP ready"
    });
    assert_eq!(done.say("c SELECT inbox"), "c OK SELECT inbox");
    assert_eq!(begun.say("d LOGIN me secret"), "d OK logged in");
    assert_eq!(auth.last_request().target(), "/old.test", "begun by the old configuration");
    assert_eq!(begun.say("e SELECT inbox"), "e OK SELECT inbox");
    expect_soon("new sessions by the new configuration", || {
        let mut client = Line::on(&server, 1);
        assert_eq!(client.say("f LOGIN me secret"), "f OK logged in");
        auth.last_request().target() == "/new.test"
    });
    done.send("g LOGOUT\r\n");
    assert!(done.is_closed());
    assert_eq!(begun.say("h NOOP"), "h OK NOOP");
}

/// A certificate that has been renewed is shown by the new sessions.
#[test]
fn certificates_are_read_again() {
    let auth = mail::auth_none(false);
    let conf = "ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
        server { listen 127.0.0.1:%%PORT_0%% ssl; protocol imap; }";
    let (old, new) = (tls::self_signed("mail.test"), tls::self_signed("mail.test"));
    let server = mail::setup(&auth, conf).file("a.crt", &old.cert).file("a.key", &old.key).start();
    let connect = || Tls::default().connect(server.port(0), "mail.test").expect("a handshake");
    let conn = connect();
    assert!(conn.shows(&old));
    let mut client = Line::from(conn.into_client());
    client.line();
    for (name, text) in [("a.crt", &new.cert), ("a.key", &new.key)] {
        server.write("new", text);
        std::fs::rename(server.dir().join("new"), server.dir().join(name)).unwrap();
    }
    server.signal(Signal::Hup);
    expect_soon("the new certificate", || connect().shows(&new));
    assert_eq!(client.say("a NOOP"), "a OK completed");
}

/// Addresses come and go with the configuration, and go over to another protocol.
#[test]
fn addresses_come_and_go() {
    let auth = mail::auth_none(false);
    let server = |n: usize| {
        format!("server {{ listen 127.0.0.1:%%PORT_{n}%%; protocol smtp; server_name of{n}; }}")
    };
    let conf =
        |servers: &str| format!("events {{}} mail {{ auth_http {}; {servers} }}", auth.address());
    let mut running = Setup::new(&conf(&(server(0) + &server(1)))).start();
    let gone = running.port(1);
    let (stays, comes) = (running.on(0), weir_tests::free_port());
    let third = server(2).replace("%%PORT_2%%", &comes.to_string());
    running.reload(&conf(&(server(0) + &third)), || weir_tests::listens_on(comes));
    expect_soon("an address that is gone", || !weir_tests::listens_on(gone));
    assert_eq!(Line::from(stays.connect()).line(), "220 of0 ESMTP ready");
    let new = weir_tests::Peer::Tcp(comes);
    assert_eq!(Line::from(new.connect()).line(), "220 of2 ESMTP ready");
    let http = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 200 web; } }";
    running.reload(http, || !weir_tests::listens_on(comes));
    expect_soon("another protocol on the same address", || {
        let mut client = stays.connect();
        client.send(b"GET / HTTP/1.0\r\n\r\n");
        client.read_to_end().ends_with(b"web")
    });
}

/// A new program takes over the addresses; sessions stay with the old one.
#[test]
fn sessions_outlive_an_upgrade() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let conf = format!("daemon on; pid %%DIR%%/the.pid; {}", conf(&auth, "old.test"));
    let mut server = Setup::new(&conf).start();
    let mut client = Line::on(&server, 1);
    assert_eq!(client.say("a LOGIN me secret"), "a OK logged in");
    let old = server.pid().to_string();
    server.signal(Signal::Usr2);
    // It has none between the two.
    let new_pid = || Some(server.read("the.pid").trim().to_owned()).filter(|pid| *pid != old);
    let new_pid = || new_pid()?.parse::<u32>().ok();
    expect_soon("the new one's pid", || new_pid().is_some());
    let new = new_pid().unwrap();
    server.signal(Signal::Quit);
    expect_soon("a new session is the new one's", || {
        greeting(&server) == "220 old.test ESMTP ready"
    });
    assert_eq!(client.say("b SELECT inbox"), "b OK SELECT inbox");
    assert!(server.is_running());
    client.send("c LOGOUT\r\n");
    assert!(client.is_closed());
    assert_eq!(server.wait_exit(), Some(0));
    assert_eq!(greeting(&server), "220 old.test ESMTP ready");
    weir_tests::signal(new, Signal::Term);
    expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let auth = mail::auth_none(false);
    let mut server = Setup::new(&conf(&auth, "old.test")).start();
    let wrong = conf(&auth, "new.test").replace("protocol imap", "protocol nntp");
    server.replace_conf(&wrong);
    server.signal(Signal::Hup);
    server.expect_error("unknown protocol \"nntp\"");
    assert_eq!(greeting(&server), "220 old.test ESMTP ready");
}

/// A server that is asked to end takes no more clients, and waits for those it has.
#[test]
fn sessions_are_waited_for() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let mut server = Setup::new(&conf(&auth, "old.test")).start();
    let mut client = Line::on(&server, 1);
    assert_eq!(client.say("a LOGIN me secret"), "a OK logged in");
    server.signal(Signal::Quit);
    let port = server.port(0);
    expect_soon("no more clients", || !weir_tests::listens_on(port));
    assert_eq!(client.say("b SELECT inbox"), "b OK SELECT inbox");
    assert!(server.is_running());
    client.send("c LOGOUT\r\n");
    assert!(client.is_closed());
    assert_eq!(server.wait_exit(), Some(0));
}

#[test]
fn sessions_are_waited_for_so_long() {
    let backend = Backend::imap();
    let auth = mail::auth_to(backend.port());
    let conf = conf(&auth, "old.test").replace("timeout 60s", "timeout 500ms");
    let mut server = Setup::new(&conf).start();
    let mut client = Line::on(&server, 1);
    assert_eq!(client.say("a LOGIN me secret"), "a OK logged in");
    server.signal(Signal::Quit);
    assert!(client.is_closed());
    assert_eq!(server.wait_exit(), Some(0));
    server.expect_error("shutdown timeout");
}
