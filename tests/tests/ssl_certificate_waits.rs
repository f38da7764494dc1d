//! Certificates that variables name and whose files are slow to be read hold up nobody else. (In nginx they
//! stop the worker: on it these tests fail.)

use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use weir_tests::tls::{self, Pair, Tls};
use weir_tests::{expect_soon, Next, Origin, Pipe, Server, Setup, Signal, PATIENCE};

const OWN: &str =
    "ssl_certificate %%DIR%%/$ssl_server_name.crt; ssl_certificate_key %%DIR%%/$ssl_server_name.key;";

struct Given {
    slow: Pair,
    quick: Pair,
    pipe: Pipe,
    server: Server,
}

/// One worker; the certificate of `slow.test` is a pipe.
fn start(conf: &str) -> Given {
    let (slow, quick) = (tls::self_signed("slow.test"), tls::self_signed("quick.test"));
    let conf = conf.replace("%%OWN%%", OWN);
    let setup = Setup::new(&format!(
        "worker_processes 1; events {{}} error_log %%DIR%%/error.log info; {conf}"
    ))
    .file("quick.test.crt", &quick.cert)
    .file("quick.test.key", &quick.key)
    .file("slow.test.key", &slow.key);
    let pipe = Pipe::make(setup.dir().join("slow.test.crt"));
    Given { slow, quick, pipe, server: setup.start() }
}

const HTTP: &str = "http { client_header_timeout 1s; server { listen 127.0.0.1:%%PORT_0%% ssl; %%OWN%%
    return 200 $connections_active; } server { listen 127.0.0.1:%%PORT_1%%; return 200 $connections_active; } }";

#[test]
fn others_are_served_while_one_is_read() {
    for block in [
        "http { server { listen 127.0.0.1:%%PORT_0%% ssl; %%OWN%% return 200 ok; } }",
        "stream { server { listen 127.0.0.1:%%PORT_0%% ssl; %%OWN%% return ok; } }",
    ] {
        let mut given = start(block);
        let port = given.server.port(0);
        let slow = thread::spawn(move || Tls::default().connect(port, "slow.test"));
        given.pipe.open();
        let quick = Tls::default().connect(port, "quick.test").expect("it is not held up");
        assert!(quick.shows(&given.quick));
        assert!(!slow.is_finished());
        given.pipe.give(&given.slow.cert);
        assert!(slow.join().unwrap().unwrap().shows(&given.slow));
    }
}

#[test]
fn it_is_waited_for_no_longer_than_for_the_handshake() {
    let stream =
        "stream { server { listen 127.0.0.1:%%PORT_0%% ssl; ssl_handshake_timeout 1s; %%OWN%%
        return ok; } }";
    for block in [HTTP, stream] {
        let mut given = start(block);
        let port = given.server.port(0);
        let slow = thread::spawn(move || Tls::default().connect(port, "slow.test"));
        given.pipe.open();
        assert!(slow.join().unwrap().is_err());
        given.server.expect_error("the certificate was not read within the time of the handshake");
    }
}

#[test]
fn what_is_read_is_no_certificate() {
    let mut given = start(HTTP);
    let port = given.server.port(0);
    let slow = thread::spawn(move || Tls::default().connect(port, "slow.test"));
    given.pipe.open();
    given.pipe.give("nothing");
    let error = slow.join().unwrap().err().expect("it is refused").to_string();
    assert!(error.contains("InternalError"), "{error}");
    given.server.expect_error("cannot load certificate");
}

/// Of two letters, in which every place has as many matches as a compressor cares to look at.
fn long_text() -> String {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 31) as u8)
    };
    (0..400_000).map(|_| next()).collect()
}

#[test]
fn many_that_wait_for_one_file_take_one_thread() {
    const MANY: usize = 40;
    let text = long_text();
    let mut given = start(
        "http { client_header_timeout 1h; aio threads; sendfile off;
          server { listen 127.0.0.1:%%PORT_0%% ssl; %%OWN%% return 200 ok; }
          server { listen 127.0.0.1:%%PORT_1%%; root %%DIR%%; default_type text/plain;
            gzip on; gzip_comp_level 9; gzip_types text/plain;
            location = /count { return 200 $connections_active; } } }",
    );
    std::fs::write(given.server.dir().join("long"), &text).unwrap();
    let port = given.server.port(0);
    let before = given.server.threads();
    let connect = move || Tls::default().connect(port, "slow.test");
    let slow: Vec<_> = (0..MANY).map(|_| thread::spawn(connect)).collect();
    given.pipe.open();
    expect_soon("all are there", || given.server.on(1).get("/count").text() == "41");
    let more = given.server.threads().saturating_sub(before);
    assert!(more <= 4, "{more} more threads");

    let quick = Tls::default().connect(port, "quick.test").expect("it is not held up");
    assert!(quick.shows(&given.quick));
    assert_eq!(given.server.on(1).get("/long").text(), text);
    let mut client = given.server.on(1).connect();
    client.send(b"GET /long HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(client.response().header("Content-Encoding"), Some("gzip"));
    assert!(slow.iter().all(|one| !one.is_finished()));

    given.pipe.give(&given.slow.cert);
    for one in slow {
        assert!(one.join().unwrap().unwrap().shows(&given.slow));
    }
}

#[test]
fn what_clients_that_have_gone_asked_for_holds_one_thread_however_often() {
    let mut given = start(&HTTP.replace("client_header_timeout 1s", "client_header_timeout 1h"));
    for _ in 0..8 {
        let client = hello(given.server.port(0), "slow.test");
        if !given.pipe.is_open() {
            given.pipe.open();
        }
        expect_soon("it is there", || given.server.on(1).get("/").text() == "2");
        drop(client);
        expect_soon("its connection is over", || given.server.on(1).get("/").text() == "1");
    }
    let quick = Tls::default().connect(given.server.port(0), "quick.test");
    assert!(quick.expect("it is not held up").shows(&given.quick));
    let port = given.server.port(0);
    let tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let from = tcp.local_addr().unwrap().port();
    let (say, said) = mpsc::channel();
    let slow = thread::spawn(move || {
        let tell = || say.send(()).unwrap();
        Tls::default().connect_telling(tcp, "slow.test", tell)
    });
    said.recv().unwrap();
    // Not only accepted: what is given before it asks is not for it.
    expect_soon("its hello is read", || is_read(port, from));
    assert_eq!(given.server.on(1).get("/").text(), "2");
    given.pipe.give(&given.slow.cert);
    assert!(slow.join().unwrap().unwrap().shows(&given.slow), "what was begun for others");
}

/// Whether the server has taken all that has come from a client.
fn is_read(port: u16, from: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = format!(":{port:04X} 0100007F:{from:04X} 01 ");
    let line = table.lines().find_map(|line| line.split_once(&ends));
    line.is_some_and(|(_, queues)| queues[9..].starts_with("00000000"))
}

/// Sends a hello and no more.
fn hello(port: u16, name: &str) -> TcpStream {
    let name = rustls_name(name);
    let mut conn = rustls::ClientConnection::new(Tls::default().config(), name).unwrap();
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
    while conn.wants_write() {
        conn.write_tls(&mut tcp).unwrap();
    }
    tcp
}

fn rustls_name(name: &str) -> rustls::pki_types::ServerName<'static> {
    name.to_string().try_into().unwrap()
}

#[test]
fn a_client_that_goes_is_not_waited_for() {
    let mut given = start(&HTTP.replace("client_header_timeout 1s", "client_header_timeout 1h"));
    let client = hello(given.server.port(0), "slow.test");
    given.pipe.open();
    assert_eq!(given.server.on(1).get("/").text(), "2");
    drop(client);
    expect_soon("its connection is over", || given.server.on(1).get("/").text() == "1");
    given.server.expect_error("peer closed connection in SSL handshake while SSL handshaking");
}

#[test]
fn a_file_that_never_comes_does_not_keep_the_server_from_ending() {
    for signal in [Signal::Term, Signal::Quit] {
        let mut given = start(HTTP);
        let _client = hello(given.server.port(0), "slow.test");
        given.pipe.open();
        given.server.signal(signal);
        assert_eq!(given.server.wait_exit(), Some(0), "{signal:?}");
    }
}

#[test]
fn a_certificate_for_a_server_behind() {
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "", "never");
        Next::Close
    });
    let how =
        "proxy_ssl_certificate %%DIR%%/$NAME.crt; proxy_ssl_certificate_key %%DIR%%/$NAME.key;
        proxy_connect_timeout 1s;";
    let mut given = start(
        &"http { server { listen 127.0.0.1:%%PORT_0%%; HOW
            location / { proxy_pass https://127.0.0.1:%%PORT_1%%; }
            location /plain { proxy_pass http://%%ORIGIN%%; } }
          server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_certificate %%DIR%%/quick.test.crt;
            ssl_certificate_key %%DIR%%/quick.test.key; ssl_verify_client optional_no_ca; keepalive_timeout 0;
            return 200 $ssl_client_s_dn; } }"
            .replace("HOW", how)
            .replace("$NAME", "$arg_name.test")
            .replace("%%ORIGIN%%", &origin.address()),
    );
    let mut slow = given.server.connect();
    slow.send_get("/?name=slow");
    given.pipe.open();
    assert_eq!(given.server.get("/plain").text(), "never");
    assert_eq!(given.server.get("/?name=quick").text(), "CN=quick.test");
    given.pipe.give(&given.slow.cert);
    assert_eq!(slow.response().text(), "CN=slow.test");

    slow.send_get("/?name=slow");
    given.pipe.open();
    assert_eq!(slow.response().status, 500, "not read in time");
    given.server.expect_error("was not read in time");
}
