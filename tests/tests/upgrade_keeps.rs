//! Connections that wait for their next request live through the change of the process: an upgrade
//! (USR2, then QUIT to the old one), or a reload that needs a new serving process. nginx closes
//! them.

use weir_tests::tls::{self, Tls};
use weir_tests::{expect_soon, skip, Client, Server, Setup, Signal};

const CONF: &str = "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log notice; %%MAIN%%
    events {} http { access_log %%DIR%%/access.log;
    server { listen 127.0.0.1:%%PORT_0%%; listen unix:%%DIR%%/sock;
        location / { return 200 $connection_requests:$pid; } }
    server { listen 127.0.0.1:%%PORT_1%% proxy_protocol;
        location / { return 200 $proxy_protocol_addr:$proxy_protocol_port; } }
    ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
    server { listen 127.0.0.1:%%PORT_2%% ssl; location / { return 200 secret; }
        location /large { alias %%DIR%%/large; } } }";

fn start(main: &str) -> Option<Server> {
    if weir_tests::binary().ends_with("nginx") {
        skip("nginx closes them");
        return None;
    }
    let pair = tls::self_signed("localhost");
    let setup = Setup::new(CONF).set("MAIN", main).file("a.crt", pair.cert).file("a.key", pair.key);
    Some(setup.start())
}

/// Starts the new program and ends the old one.
fn upgrade(server: &mut Server) -> u32 {
    let old = server.pid();
    server.signal(Signal::Usr2);
    let pid = || server.read("the.pid").trim().parse().unwrap_or(old);
    expect_soon("the new one writes its pid", || pid() != old);
    let new = pid();
    server.signal(Signal::Quit);
    new
}

fn end(server: &Server, new: u32) {
    weir_tests::signal(new, Signal::Term);
    expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
}

fn number_of(client: &mut Client) -> String {
    let answer = client.get("/");
    assert_ne!(answer.header("Connection"), Some("close"));
    answer.text().split(':').next().unwrap_or_default().to_string()
}

#[test]
fn an_upgrade_closes_no_connection_that_waits() {
    for main in ["", "worker_processes 3;", "master_process off;"] {
        let Some(mut server) = start(main) else { return };
        let mut kept: Vec<Client> = (0..300).map(|_| server.connect()).collect();
        kept.push(server.unix("sock").connect());
        for c in &mut kept {
            assert_eq!(number_of(c), "1");
        }
        let mut proxied = server.on(1).connect();
        proxied.send(b"PROXY TCP4 1.2.3.4 5.6.7.8 1000 2000\r\n");
        assert_eq!(proxied.get("/").text(), "1.2.3.4:1000");
        let new = upgrade(&mut server);
        assert_eq!(server.wait_exit(), Some(0), "{main}");
        for c in &mut kept {
            assert_eq!(number_of(c), "2", "{main}");
        }
        assert_eq!(proxied.get("/").text(), "1.2.3.4:1000");
        assert_eq!(number_of(&mut kept[0]), "3");
        end(&server, new);
    }
}

#[test]
fn one_with_tls_is_answered_once_more() {
    let Some(mut server) = start("worker_shutdown_timeout 20s;") else { return };
    let port = server.port(2);
    let mut secure = Tls::default().connect(port, "localhost").unwrap();
    let ask = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    secure.send(ask);
    server.log_lines("access.log", 1);
    let mut plain = server.connect();
    let mut process = || plain.get("/").text().split(':').nth(1).map(str::to_string);
    let old = process();
    let new = upgrade(&mut server);
    // The only worker knows of the end once it has given this one away.
    expect_soon("the new process answers", || process() != old);
    secure.send(ask);
    let both = String::from_utf8(secure.read_to_end()).unwrap();
    assert_eq!(both.matches("200 OK").count(), 2, "{both}");
    assert_eq!(both.matches("Connection: close").count(), 1, "{both}");
    assert_eq!(server.wait_exit(), Some(0));
    end(&server, new);
}

/// The head of its answer has said that it is kept.
#[test]
fn one_with_tls_that_is_answered_meanwhile_is_answered_once_more() {
    const LARGE: usize = 40_000_000;
    let Some(mut server) = start("worker_shutdown_timeout 20s;") else { return };
    std::fs::write(server.dir().join("large"), vec![b'x'; LARGE]).unwrap();
    let mut secure = Tls::default().connect(server.port(2), "localhost").unwrap().into_client();
    secure.send_get("/large");
    let head = secure.read_until(b"\r\n\r\n");
    assert!(String::from_utf8_lossy(&head).contains("Connection: keep-alive"));
    let new = upgrade(&mut server);
    server.expect_error("gracefully shutting down");
    assert!(secure.read_exactly(LARGE).is_some());
    let last = secure.get("/");
    assert_eq!((last.text(), last.header("Connection")), ("secret".into(), Some("close")));
    assert_eq!(server.wait_exit(), Some(0));
    end(&server, new);
}

/// A reload that changes the user needs a new serving process.
#[test]
fn a_reload_with_a_new_process_closes_none_either() {
    let Some(mut server) = start("user root;") else { return };
    let [old] = server.children()[..] else { return skip("no master") };
    let mut kept: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    kept.iter_mut().for_each(|c| drop(number_of(c)));
    server.replace_conf(&CONF.replace("%%MAIN%%", "user nobody nogroup;"));
    server.signal(Signal::Hup);
    expect_soon("the old process is gone", || !weir_tests::is_alive(old));
    for c in &mut kept {
        assert_eq!(number_of(c), "2");
    }
}
