//! Where `mail` is not as in nginx, and what cannot be seen from what is said.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_tests::{expect_soon, run_cli, Client, Next, Origin, Server, Setup};

fn setup(auth: &Origin, more: &str) -> Setup {
    let conf = format!(
        "events {{}} mail {{ error_log %%DIR%%/error.log info; auth_http {};
            server {{ listen 127.0.0.1:%%PORT_0%%; protocol pop3; {more} }} }}",
        auth.address()
    );
    Setup::new(&conf)
}

fn say(client: &mut Client, text: &str) -> String {
    client.send(format!("{text}\r\n").as_bytes());
    String::from_utf8_lossy(&client.read_until(b"\r\n")).trim_end().to_string()
}

fn greeted(server: &Server) -> Client {
    let mut client = server.connect();
    client.read_until(b"\r\n");
    client
}

/// Answers "ask again" without a time so often, and then refuses.
fn later(times: usize) -> (Origin, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let auth = Origin::start(move |_, conn| {
        let status = match count.fetch_add(1, Ordering::SeqCst) < times {
            true => "WAIT",
            false => "no",
        };
        conn.write(format!("HTTP/1.0 200 OK\r\nAuth-Status: {status}\r\n\r\n"));
        Next::Close
    });
    (auth, asked)
}

/// A client that is asked about for ever.
fn asked_about() -> (Origin, Server, Client) {
    let (auth, asked) = later(usize::MAX);
    let server = setup(&auth, "").start();
    let mut client = greeted(&server);
    say(&mut client, "USER me");
    client.send(b"PASS secret\r\n");
    expect_soon("a question", || asked.load(Ordering::SeqCst) > 0);
    (auth, server, client)
}

#[test]
fn who_is_asked_again_and_again_has_a_pause() {
    let (auth, asked) = later(1);
    let server = setup(&auth, "").start();
    let mut client = greeted(&server);
    assert_eq!(say(&mut client, "USER me"), "+OK");
    let began = Instant::now();
    assert_eq!(say(&mut client, "PASS secret"), "-ERR no");
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn a_client_that_goes_is_not_waited_for() {
    let (_auth, mut server, client) = asked_about();
    drop(client);
    // A session that was still there would keep the process.
    server.signal(weir_tests::Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
}

#[test]
fn an_address_needs_a_port() {
    for block in [
        "mail { auth_http 127.0.0.1:1; server { listen 127.0.0.1; protocol imap; } }",
        "mail { auth_http 127.0.0.1:1; server { listen [::1]; protocol imap; } }",
        "stream { server { listen 127.0.0.1; return x; } }",
    ] {
        let said = run_cli(&["-t"], &format!("events {{}} {block}"));
        let text = "of the \"listen\" directive";
        assert!(said.code != 0 && said.stderr.contains("no port in \""), "{}", said.stderr);
        assert!(said.stderr.contains(text), "{}", said.stderr);
    }
}

/// A client that begins TLS is served by what it says behind the handshake alone, also where both came in one
/// packet.
#[test]
fn words_before_a_handshake_are_dropped() {
    let (auth, asked) = later(0);
    let pair = weir_tests::tls::self_signed("localhost");
    let more = "starttls on; ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;";
    let server = setup(&auth, more).file("a.crt", pair.cert).file("a.key", pair.key).start();
    let mut client = greeted(&server);
    client.send(b"STLS\r\nUSER me\r\nPASS secret\r\n");
    assert_eq!(client.read_until(b"\r\n"), b"+OK\r\n");
    assert!(client.is_silent(Duration::from_millis(300)));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

/// What is said of TLS is looked at where there is TLS alone, as in nginx.
#[test]
fn tls_that_nobody_uses_is_not_read() {
    let server = |more: &str, listen: &str| {
        let conf = format!(
            "events {{}} mail {{ auth_http 127.0.0.1:1; {more} ssl_certificate none.crt;
                ssl_certificate_key none.key; server {{ listen 127.0.0.1:1 {listen}; protocol imap; }} }}"
        );
        run_cli(&["-t"], &conf)
    };
    let said = server("ssl_verify_client on;", "");
    assert_eq!(said.code, 0, "{}", said.stderr);
    for tls in ["ssl", "; starttls on"] {
        let said = server("", tls);
        assert!(
            said.code != 0 && said.stderr.contains("cannot load certificate"),
            "{}",
            said.stderr
        );
    }
}

/// What has come and is not read hides the end of a client.
#[test]
fn a_client_that_has_said_more_and_goes_is_not_asked_for() {
    let (_auth, mut server, mut client) = asked_about();
    client.send(&[b'z'; 5000]);
    drop(client);
    server.signal(weir_tests::Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
}

#[test]
fn a_wait_without_end_is_no_fault() {
    let auth = Origin::start(move |_, conn| {
        conn.write("HTTP/1.0 200 OK\r\nAuth-Status: no\r\nAuth-Wait: 9223372036854775807\r\n\r\n");
        Next::Close
    });
    let server = setup(&auth, "").start();
    let mut client = greeted(&server);
    say(&mut client, "USER me");
    client.send(b"PASS secret\r\n");
    expect_soon("a refusal", || server.error_log().contains("client login failed"));
    let mut other = greeted(&server);
    assert_eq!(say(&mut other, "USER me"), "+OK");
    assert!(!server.error_log().contains("panicked"), "{}", server.error_log());
}

/// `timeout` is the longest until there is a server, however much is said until then and heard.
#[test]
fn who_never_stops_talking_has_no_longer() {
    let (auth, _) = later(0);
    let conf = "events {} mail { error_log %%DIR%%/error.log info; auth_http %%AUTH%%; timeout 1s;
        server { listen 127.0.0.1:%%PORT_0%% sndbuf=8k; protocol pop3; } }";
    let server = Setup::new(conf).set("AUTH", auth.address()).start();
    let mut client = TcpStream::connect(("127.0.0.1", server.port(0))).expect("a connection");
    let mut answers = client.try_clone().expect("the same");
    // It reads so slowly that there is always more to be read of it too.
    let reader = std::thread::spawn(move || {
        while answers.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (began, patience) = (Instant::now(), Duration::from_secs(20));
    while client.write_all(&b"CAPA\r\n".repeat(1000)).is_ok() {
        assert!(began.elapsed() < patience, "it is still there");
    }
    drop(reader.join());
    expect_soon("its end", || server.error_log().contains("client timed out"));
}
