//! `mail` itself: addresses, names, levels of the configuration, and what is wrong in it.

use std::net::TcpStream;

use weir_tests::mail::{self, asked, Backend, Line};
use weir_tests::tls;
use weir_tests::{run_cli, Dns, Peer, Setup};

/// The first line that each address says.
#[test]
fn addresses_choose_servers() {
    let auth = mail::auth_none(false);
    let server = mail::setup(
        &auth,
        "server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; server_name one; }
         server { listen *:%%PORT_0%% bind backlog=64 rcvbuf=64k sndbuf=64k so_keepalive=30m::10;
            protocol smtp; server_name all; }
         server { listen [::1]:%%PORT_0%% ipv6only=on; protocol smtp; server_name six; }
         server { listen unix:%%DIR%%/mail.sock; listen 127.0.0.1:%%PORT_1%% so_keepalive=on;
            protocol smtp; server_name unix; }",
    )
    .start();
    let name = |peer: &Peer| Line::from(peer.connect()).line();
    assert_eq!(name(&server.on(0)), "220 one ESMTP ready");
    assert_eq!(name(&Peer::Tcp6(server.port(0))), "220 six ESMTP ready");
    assert_eq!(name(&server.on(1)), "220 unix ESMTP ready");
    assert_eq!(name(&server.unix("mail.sock")), "220 unix ESMTP ready");
    let mut other = TcpStream::connect(("127.0.0.2", server.port(0))).unwrap();
    let mut greeting = [0; 19];
    std::io::Read::read_exact(&mut other, &mut greeting).unwrap();
    assert_eq!(&greeting, b"220 all ESMTP ready");
}

#[test]
fn a_client_of_a_unix_socket() {
    let backend = Backend::pop3();
    let auth = mail::auth_to(backend.port());
    let server = mail::setup(
        &auth,
        "server { listen unix:%%DIR%%/mail.sock; listen 127.0.0.1:%%PORT_0%%; protocol pop3; }",
    )
    .start();
    let mut client = Line::greeted(&server.unix("mail.sock"));
    assert_eq!(client.say("USER me"), "+OK");
    assert_eq!(client.say("PASS secret"), "+OK");
    assert_eq!(asked(&auth.only_request(), "Client-IP"), "unix:");
}

/// Without `server_name` it is the machine's.
#[test]
fn the_name_of_a_server() {
    let auth = mail::auth_none(false);
    let conf = format!(
        "events {{}} mail {{ auth_http {};
            server {{ listen 127.0.0.1:%%PORT_0%%; protocol smtp; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; protocol smtp; server_name own.test; }} }}",
        auth.address()
    );
    let server = Setup::new(&conf).start();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim().to_lowercase();
    let mut client = Line::from(server.connect());
    assert_eq!(client.line(), format!("220 {host} ESMTP ready"));
    assert_eq!(client.say("HELO a"), format!("250 {host}"));
    assert_eq!(Line::from(server.on(1).connect()).line(), "220 own.test ESMTP ready");
}

/// Each is taken where nginx takes it, and the lower level wins.
#[test]
fn every_directive() {
    let shared = "
        timeout 1m; server_name a.test; error_log %%DIR%%/own.log notice; max_errors 4;
        resolver %%DNS%% valid=10s ipv6=off; resolver_timeout 5s;
        auth_http http://127.0.0.1:%%PORT_9%%/a?b=c; auth_http_timeout 10s;
        auth_http_header X-Key 'a value'; auth_http_pass_client_cert on;
        imap_client_buffer 8k; imap_capabilities IMAP4rev1 IDLE; imap_auth plain login cram-md5 external;
        pop3_capabilities TOP; pop3_auth plain apop cram-md5 external;
        smtp_client_buffer 8k; smtp_greeting_delay 0; smtp_capabilities 8BITMIME;
        smtp_auth plain login cram-md5 external none;
        proxy on; proxy_buffer 8k; proxy_timeout 1h; proxy_pass_error_message on;
        xclient off; proxy_smtp_auth on; proxy_protocol v2;
        set_real_ip_from 127.0.0.0/8; set_real_ip_from unix:; set_real_ip_from ::1;
        starttls on; ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
        ssl_password_file %%DIR%%/words; ssl_certificate_compression off;
        ssl_ecdh_curve X25519:prime256v1; ssl_protocols TLSv1.2 TLSv1.3;
        ssl_ciphers HIGH:!aNULL:!MD5; ssl_prefer_server_ciphers on; ssl_session_cache shared:m:1m;
        ssl_session_tickets on; ssl_session_ticket_key %%DIR%%/ticket.key; ssl_session_timeout 10m;
        ssl_verify_client optional; ssl_verify_depth 2; ssl_client_certificate %%DIR%%/a.crt;
        ssl_trusted_certificate %%DIR%%/a.crt; ssl_conf_command Options PrioritizeChaCha;";
    let conf = format!(
        "events {{}} mail {{ {shared} server {{ listen 127.0.0.1:%%PORT_0%%; protocol imap; {shared} }}
            server {{ listen 127.0.0.1:%%PORT_1%%; protocol smtp; }} }}"
    );
    let own = tls::self_signed("mail.test");
    let dns = Dns::start();
    let server = Setup::new(&conf)
        .set("DNS", dns.address())
        .file("a.crt", own.cert)
        .file("a.key", own.key)
        .file("words", "secret\n")
        .file("ticket.key", [7; 80])
        .start();
    let mut client = Line::on(&server, 0);
    assert!(client.say("c CAPABILITY").contains("IDLE"));
    assert_eq!(Line::from(server.on(1).connect()).line(), "220 a.test ESMTP ready");
    assert!(server.dir().join("own.log").exists());
}

/// The usual ports need no `protocol`.
#[test]
fn ports_that_have_a_protocol() {
    for (port, is_known) in [
        (25, true),
        (465, true),
        (587, true),
        (110, true),
        (995, true),
        (143, true),
        (993, true),
        (26, false),
    ] {
        let out = run_cli(
            &["-t"],
            &format!(
                "events {{}} mail {{ auth_http 127.0.0.1:1;
                    server {{ listen 127.0.0.1:{port}; }} }}"
            ),
        );
        let told = out.stderr.contains("unknown mail protocol");
        assert_eq!(told, !is_known, "{port}: {}", out.stderr);
    }
}

const LISTEN: &str = "listen 127.0.0.1:1;";

#[test]
fn what_is_wrong_is_told() {
    let pop3 = |more: &str| {
        format!("mail {{ auth_http 127.0.0.1:1; server {{ {LISTEN} protocol pop3; {more} }} }}")
    };
    for (conf, error) in [
        (format!("mail {{ server {{ {LISTEN} protocol pop3; }} }}"), "no \"auth_http\" is defined"),
        (
            format!("mail {{ auth_http 127.0.0.1:1; server {{ {LISTEN} }} }}"),
            "unknown mail protocol",
        ),
        (
            "mail { auth_http 127.0.0.1:1; server { protocol pop3; } }".into(),
            "no \"listen\" is defined",
        ),
        (pop3("protocol nntp;"), "unknown protocol \"nntp\""),
        (pop3(LISTEN), "duplicate \"127.0.0.1:1\" address and port pair"),
        (pop3("listen 127.0.0.1:2 http2;"), "\"http2\""),
        (pop3("listen 127.0.0.1:99999;"), "127.0.0.1:99999"),
        (pop3("listen 127.0.0.1:2 backlog=many;"), "backlog=many"),
        (pop3("pop3_auth plain login;"), "\"login\""),
        (pop3("imap_auth apop;"), "\"apop\""),
        (pop3("smtp_auth apop;"), "\"apop\""),
        (pop3("starttls maybe;"), "\"maybe\""),
        (pop3("proxy_protocol v3;"), "\"v3\""),
        (pop3("xclient maybe;"), "\"xclient\""),
        (pop3("timeout soon;"), "\"timeout\""),
        (pop3("timeout 1s; timeout 2s;"), "\"timeout\" directive is duplicate"),
        (pop3("max_errors few;"), "max_errors"),
        (pop3("set_real_ip_from nowhere/8;"), "nowhere/8"),
        (pop3("auth_http 127.0.0.1:port;"), "127.0.0.1:port"),
        (
            pop3("resolver off; resolver 127.0.0.1; resolver 127.0.0.1;"),
            "\"resolver\" directive is duplicate",
        ),
        (pop3("server_names a;"), "\"server_names\""),
        (pop3("access_log a.log;"), "\"access_log\""),
        (pop3("ssl_verify_client maybe;"), "\"maybe\""),
        (pop3("ssl_session_cache shared:m;"), "\"shared:m\""),
        ("mail { protocol pop3; }".into(), "\"protocol\" directive is not allowed here"),
        ("mail { listen 127.0.0.1:1; }".into(), "\"listen\" directive is not allowed here"),
        ("auth_http 127.0.0.1:1;".into(), "\"auth_http\" directive is not allowed here"),
        ("http { max_errors 1; }".into(), "\"max_errors\" directive is not allowed here"),
        ("mail {} mail {}".into(), "\"mail\" directive is duplicate"),
    ] {
        let out = run_cli(&["-t"], &format!("events {{}} {conf}"));
        assert_ne!(out.code, 0, "{conf}: {}", out.stderr);
        assert!(out.stderr.contains(error), "{conf}: {}", out.stderr);
    }
}

/// A server that speaks TLS has a certificate; one that asks for the client's knows whose to trust.
#[test]
fn what_is_wrong_in_tls_is_told() {
    let own = tls::self_signed("mail.test");
    let files = Setup::new("").file("a.crt", &own.cert).file("a.key", &own.key);
    let dir = files.dir().display().to_string();
    let pair = "ssl_certificate %%FILES%%/a.crt; ssl_certificate_key %%FILES%%/a.key;";
    for (more, error) in [
        ("starttls on;", "no \"ssl_certificate\" is defined for the \"starttls\" directive"),
        (
            "listen 127.0.0.1:2 ssl;",
            "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive",
        ),
        (
            "starttls only; ssl_certificate %%FILES%%/a.crt;",
            "no \"ssl_certificate_key\" is defined",
        ),
        (
            "starttls on; ssl_verify_client on; %%PAIR%%",
            "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client",
        ),
        (
            "starttls on; ssl_certificate nothing.crt; ssl_certificate_key %%FILES%%/a.key;",
            "nothing.crt",
        ),
    ] {
        let conf = format!(
            "events {{}} mail {{ auth_http 127.0.0.1:1;
                server {{ listen 127.0.0.1:%%PORT_0%%; protocol pop3; {more} }} }}"
        );
        let out = run_cli(&["-t"], &conf.replace("%%PAIR%%", pair).replace("%%FILES%%", &dir));
        assert_ne!(out.code, 0, "{more}: {}", out.stderr);
        assert!(out.stderr.contains(error), "{more}: {}", out.stderr);
    }
}
