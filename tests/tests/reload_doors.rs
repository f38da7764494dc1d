//! A kept connection stays with how its address was when it came: plain or with TLS, with or without a
//! PROXY header, of `http` or `stream` or `mail`. Where a new configuration has that otherwise the
//! connection is closed when it is idle (nginx closes all that are).

use weir_tests::h2::H2;
use weir_tests::tls::{self, Tls};
use weir_tests::{expect_soon, Client, Origin, Peer, Server, Setup, Signal};

const HEAD: &str = "error_log %%DIR%%/error.log info; events {}";

/// A server of `http` on port 0; `listen` has the options, `answer` what is said by whom.
fn http(listen: &str, answer: &str) -> String {
    format!(
        "{HEAD} http {{ access_log off; ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            ssl_client_certificate %%DIR%%/a.crt; http2 on;
            server {{ listen 127.0.0.1:%%PORT_0%% {listen}; return 200 {answer}; }}
            server {{ listen 127.0.0.1:%%PORT_1%%; return 200 {answer}; }} }}"
    )
}

fn start(conf: &str) -> Server {
    let pair = tls::self_signed("localhost");
    Setup::new(conf).file("a.crt", pair.cert).file("a.key", pair.key).start()
}

/// Reloads, and waits until port 1 answers by the new configuration.
#[track_caller]
fn reload(server: &mut Server, conf: &str) {
    let other = server.on(1);
    server.reload(conf, || other.get("/").text() == "new");
}

/// How whoever serves an address begins what it says.
fn begins(peer: &Peer) -> Vec<u8> {
    let mut client = peer.connect();
    client.send(b"GET / HTTP/1.0\r\n\r\n");
    client.read_exactly(3).unwrap_or_default()
}

fn no_panic(server: &Server) {
    assert!(!server.read("stderr").contains("panicked"), "{}", server.read("stderr"));
}

#[test]
fn a_kept_connection_does_not_go_past_what_is_asked_for_now() {
    for (before, now) in [
        ("", "ssl; ssl_verify_client on"),
        ("", "proxy_protocol"),
        ("proxy_protocol", ""),
        ("proxy_protocol", "ssl proxy_protocol"),
    ] {
        let mut server = start(&http(before, "old"));
        let header: &[u8] = if before.is_empty() { b"" } else { b"PROXY UNKNOWN\r\n" };
        let open = || {
            let mut c = server.connect();
            c.send(header);
            c
        };
        let (mut kept, mut begun) = (open(), open());
        assert_eq!(kept.get("/").text(), "old");
        begun.send(b"GET / HTTP/1.1\r\nHo");
        let mut h2 = H2::over(open());
        h2.greet(&[]);
        assert_eq!(h2.fetch("/").text(), "old");
        reload(&mut server, &http(now, "new"));
        assert!(kept.is_closed(), "{before} -> {now}");
        // It was there before, and so it is answered once by who was there before.
        begun.send(b"st: localhost\r\n\r\n");
        let answer = begun.response();
        assert_eq!((&*answer.text(), answer.header("Connection")), ("old", Some("close")));
        assert!(begun.is_closed());
        h2.goaway();
        no_panic(&server);
    }
}

#[test]
fn one_with_tls_does_not_become_a_plain_one() {
    let mut server = start(&http("ssl", "old"));
    let ask = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut kept: Client =
        Tls::default().connect(server.port(0), "localhost").unwrap().into_client();
    kept.send(ask);
    assert_eq!(kept.response().text(), "old");
    reload(&mut server, &http("", "new"));
    assert!(kept.is_closed());
}

/// What is in flight is answered by whom it was asked; what was sent behind it is not.
#[test]
fn requests_behind_one_in_flight_are_not_let_past_either() {
    let mut server = start(&http("", "old"));
    let (mut busy, mut kept) = (server.connect(), server.connect());
    busy.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n");
    kept.get("/");
    reload(&mut server, &http("ssl", "new"));
    assert!(kept.is_closed());
    let again = "GET /again HTTP/1.1\r\nHost: localhost\r\n\r\n";
    busy.send(format!("\r\n{again}{again}").as_bytes());
    let said = String::from_utf8(busy.read_to_end()).unwrap();
    assert_eq!(said.matches("200 OK").count(), 1, "{said}");
    assert!(said.contains("Connection: close"), "{said}");
}

#[test]
fn a_new_process_is_told_how_the_address_was() {
    let with = |main: &str, conf: &str| format!("{main} {conf}");
    let first = "daemon on; pid %%DIR%%/the.pid;";
    for other_user in [true, false] {
        let mut server = start(&with(&format!("{first} user root;"), &http("", "old")));
        let (mut kept, mut same) = (server.connect(), server.on(1).connect());
        assert_eq!((&*kept.get("/").text(), &*same.get("/").text()), ("old", "old"));
        let new = http("ssl; ssl_verify_client on", "new");
        let other = server.on(1);
        let is_new = || other.get("/").text() == "new";
        if other_user {
            server.reload(&with(&format!("{first} user nobody nogroup;"), &new), is_new);
            assert!(kept.is_closed());
        } else {
            let old = server.pid();
            server.replace_conf(&with(&format!("{first} user root;"), &new));
            server.signal(Signal::Usr2);
            let pid = || server.read("the.pid").trim().parse().unwrap_or(old);
            expect_soon("the new one writes its pid", || pid() != old);
            let heir = pid();
            server.signal(Signal::Quit);
            assert!(kept.is_closed());
            weir_tests::signal(heir, Signal::Term);
            expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
        }
    }
}

/// An address that goes over to another protocol, with more and fewer servers than the other has.
#[test]
fn an_address_that_goes_over_to_another_protocol_takes_no_kept_connection_along() {
    let stream = "server { listen 127.0.0.1:%%PORT_0%%; return stream; }";
    let more = "server { listen 127.0.0.1:%%PORT_N%%; return more; } ";
    let auth = weir_tests::mail::auth_none(false);
    let mail = format!(
        "mail {{ auth_http {}; {} }}",
        auth.address(),
        "server { listen 127.0.0.1:%%PORT_0%%; protocol smtp; server_name x; }"
    );
    let four: String = (3..7).map(|n| more.replace('N', &n.to_string())).collect();
    for block in [format!("stream {{ {stream} }}"), format!("stream {{ {four} {stream} }}"), mail] {
        let web = "http { server { listen 127.0.0.1:%%PORT_1%%; return 200 new; } }";
        let mut server = start(&http("", "old"));
        let (mut kept, mut fresh) = (server.connect(), server.connect());
        let mut h2 = H2::connect(&server);
        assert_eq!((&*kept.get("/").text(), &*h2.fetch("/").text()), ("old", "old"));
        let mut stays = server.on(1).connect();
        stays.get("/");
        reload(&mut server, &format!("{HEAD} {block} {web}"));
        assert!(kept.is_closed(), "{block}");
        h2.goaway();
        // One that was never used has its turn, as in nginx.
        fresh.send_get("/");
        assert_eq!(fresh.response().text(), "old");
        assert!(fresh.is_closed());
        expect_soon("the other protocol", || begins(&server) != b"HTT");
        no_panic(&server);
    }
}

#[test]
fn the_whole_block_may_go() {
    let mut server = start(&http("", "old"));
    let mut kept: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    kept.iter_mut().for_each(|c| drop(c.get("/")));
    let mut fresh = server.connect();
    let on = server.on(0);
    let stream = "stream { server { listen 127.0.0.1:%%PORT_0%%; return stream; } }";
    server.reload(&format!("{HEAD} {stream}"), || begins(&on) == b"str");
    assert!(kept.iter_mut().all(Client::is_closed));
    fresh.send_get("/");
    assert_eq!(fresh.response().text(), "old");
    no_panic(&server);
}

/// A request of HTTP/2 that began before its connection has gone over still finds its address, whose number
/// is another one now. (nginx: the connection does not go over.)
#[test]
fn a_request_in_flight_finds_its_own_address() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
    let conf = |answer: &str, front: &str| {
        format!(
            "{HEAD} http {{ log_format v $uri:$ssl_client_verify; access_log off;
                server {{ listen 127.0.0.1:%%PORT_1%%; return 200 {answer}; }} {front}
                server {{ listen 127.0.0.1:%%PORT_0%% ssl; server_name first; http2 on;
                    ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key; }}
                server {{ listen 127.0.0.1:%%PORT_0%% ssl; server_name localhost; http2 on;
                    ssl_verify_client optional_no_ca;
                    location = /body {{ access_log %%DIR%%/access.log v; proxy_pass http://{}; }}
                    location / {{ return 200 {answer}; }} }} }}",
            origin.address()
        )
    };
    let mut server = start(&conf("old", ""));
    let tls = Tls::default().offering(&["h2"]);
    let mut h2 = H2::over(tls.connect(server.port(0), "localhost").unwrap().into_client());
    h2.greet(&[]);
    let slow = h2.open(&weir_tests::h2::request("POST", "/body"), false);
    let front: String =
        (3..7).map(|n| format!("server {{ listen 127.0.0.1:%%PORT_{n}%%; }} ")).collect();
    reload(&mut server, &conf("new", &front));
    if !weir_tests::binary().ends_with("nginx") {
        assert_eq!(h2.fetch("/").text(), "new");
    }
    h2.send(0, 1, slow, b"body");
    assert_eq!(h2.answer(slow).text(), "body");
    assert_eq!(server.log_lines("access.log", 1), ["/body:NONE"]);
    no_panic(&server);
}
