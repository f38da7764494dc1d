//! Sessions and connections that `pass` hands on, over a reload: a session keeps to the configuration that it
//! began with, and who came by way of another server is not kept beyond it.

use weir_tests::h2::H2;
use weir_tests::{Client, Server, Setup, Signal};

const HEAD: &str = "error_log %%DIR%%/error.log info; events {}";

fn no_panic(server: &Server) {
    assert!(!server.read("stderr").contains("panicked"), "{}", server.read("stderr"));
}

/// Listening sockets in front of the others: all numbers are other ones than before.
fn in_front() -> String {
    let server = |n| format!("server {{ listen 127.0.0.1:%%PORT_{n}%%; return front; }} ");
    (4..9).map(server).collect()
}

#[test]
fn a_session_that_waits_over_a_reload_is_handed_on_as_it_would_have_been() {
    let stream = |front: &str, last: &str| {
        format!(
            "{HEAD} stream {{ {front}
                server {{ listen 127.0.0.1:%%PORT_0%%; ssl_preread on; pass 127.0.0.1:%%PORT_1%%; }}
                server {{ listen 127.0.0.1:%%PORT_2%%; ssl_preread on; pass 127.0.0.1:%%PORT_3%%; }}
                {last} }}"
        )
    };
    let web = "http { server { listen 127.0.0.1:%%PORT_3%%; return 200 old; } }";
    let last = "server { listen 127.0.0.1:%%PORT_1%%; return old; }";
    for new in ["", "server { listen 127.0.0.1:%%PORT_1%%; return new; }"] {
        let mut server = Setup::new(&format!("{} {web}", stream("", last))).start();
        let (mut waits, mut gone) = (server.connect(), server.connect());
        let mut to_web = server.on(2).connect();
        let front = weir_tests::free_port();
        let conf = stream(&in_front().replace("%%PORT_4%%", &front.to_string()), new);
        server.reload(&conf, || weir_tests::listens_on(front));
        waits.send(b"no hello");
        to_web.send_get("/");
        // A process of nginx's that ends knows no sockets any more.
        if weir_tests::binary().ends_with("nginx") {
            assert!(waits.is_closed() && to_web.is_closed());
        } else {
            assert_eq!(waits.read_to_end(), b"old");
            assert_eq!(to_web.response().text(), "old");
            assert!(to_web.is_closed());
        }
        gone.shutdown_write();
        assert!(gone.is_closed());
        no_panic(&server);
    }
}

const PASSED: &str = "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log info; events {}
    stream { server { listen 127.0.0.1:%%PORT_0%%; %%RULE%% pass 127.0.0.1:%%PORT_1%%; } }
    http { http2 on; server { listen 127.0.0.1:%%PORT_1%%; return 200 %%ANSWER%%; } }";

fn passed(rule: &str, answer: &str) -> String {
    PASSED.replace("%%RULE%%", rule).replace("%%ANSWER%%", answer)
}

#[test]
fn who_was_handed_on_is_not_kept_over_a_reload() {
    for rule in ["", "deny all;"] {
        let mut server = Setup::new(&passed("", "old")).start();
        let mut kept: Vec<Client> = (0..3).map(|_| server.connect()).collect();
        kept.iter_mut().for_each(|c| assert_eq!(c.get("/").text(), "old"));
        let mut busy = server.connect();
        busy.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n");
        let mut h2 = H2::connect(&server);
        assert_eq!(h2.fetch("/").text(), "old");
        let behind = server.on(1);
        server.reload(&passed(rule, "new"), || behind.get("/").text() == "new");
        assert!(kept.iter_mut().all(Client::is_closed), "{rule}");
        busy.send(b"\r\n");
        let answer = busy.response();
        assert_eq!((&*answer.text(), answer.header("Connection")), ("old", Some("close")));
        assert!(busy.is_closed());
        h2.goaway();
        no_panic(&server);
    }
}

#[test]
fn who_was_handed_on_is_no_other_process() {
    let mut server = Setup::new(&passed("", "old")).start();
    let mut kept = server.connect();
    assert_eq!(kept.get("/").text(), "old");
    let old = server.pid();
    server.replace_conf(&passed("deny all;", "new"));
    server.signal(Signal::Usr2);
    let pid = || server.read("the.pid").trim().parse().unwrap_or(old);
    weir_tests::expect_soon("the new one writes its pid", || pid() != old);
    let heir = pid();
    server.signal(Signal::Quit);
    assert!(kept.is_closed());
    weir_tests::signal(heir, Signal::Term);
    weir_tests::expect_soon("it is gone", || !server.dir().join("the.pid").exists());
}
