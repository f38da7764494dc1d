//! Balancing and servers as NGINX Plus and Tengine have them besides nginx.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use weir_tests::{run_cli, skip, Next, Origin, Server, Setup};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/") || {
        skip("nginx does not have it");
        false
    }
}

/// Answers everything with its name.
fn named(name: &'static str) -> Origin {
    Origin::start(move |_, conn| {
        conn.reply("200 OK", "", name);
        Next::Keep
    })
}

fn start(a: &Origin, b: &Origin, upstream: &str, location: &str) -> Server {
    let conf = format!(
        "error_log %%DIR%%/error.log info; events {{}} http {{ upstream u {{ zone u 64k; {upstream} }}
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ proxy_pass http://u; {location} }} }} }}"
    );
    Setup::new(&conf).set("A", a.address()).set("B", b.address()).start()
}

fn answers(server: &Server, count: usize) -> String {
    (0..count).map(|_| server.get("/").text()).collect()
}

fn count(text: &str, name: char) -> usize {
    text.chars().filter(|c| *c == name).count()
}

#[test]
fn a_server_that_comes_back_starts_slowly() {
    if !is_weir() {
        return;
    }
    for (parameter, turns) in [("", 5), ("slow_start=1h", 0)] {
        let well = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&well);
        let a = Origin::start(move |request, conn| {
            let fails = request.target() == "/health" && !state.load(Ordering::SeqCst);
            conn.reply(if fails { "500 No" } else { "200 OK" }, "", "a");
            Next::Keep
        });
        let b = named("b");
        for method in ["", "least_conn;"] {
            well.store(false, Ordering::SeqCst);
            let upstream = format!("{method} server %%A%% {parameter}; server %%B%%;");
            let server = start(&a, &b, &upstream, "health_check interval=20ms uri=/health;");
            server.expect_error("peer is unhealthy");
            well.store(true, Ordering::SeqCst);
            server.expect_error("peer is healthy");
            let got = answers(&server, 10);
            assert_eq!(count(&got, 'a'), turns, "{method} {parameter}: {got}");
        }
    }
    for method in ["hash $uri", "ip_hash", "random", "iwrr"] {
        let conf = format!(
            "events {{}} http {{ upstream u {{ {method}; server 127.0.0.1:1 slow_start=3s; }} }}"
        );
        let output = run_cli(&["-t"], &conf);
        assert!(output.stderr.contains("does not support parameter \"slow_start\""), "{method}");
    }
}

#[test]
fn the_better_of_two_is_the_one_that_was_quicker() {
    if !is_weir() {
        return;
    }
    let (slow, quick) = (
        Origin::start(|_, conn| {
            std::thread::sleep(std::time::Duration::from_millis(150));
            conn.reply("200 OK", "", "s");
            Next::Keep
        }),
        named("q"),
    );
    let server =
        start(&slow, &quick, "random two least_time=header; server %%A%%; server %%B%%;", "");
    let got = answers(&server, 12);
    assert!(count(&got, 'q') >= 9, "{got}");
    let wrong = run_cli(
        &["-t"],
        "events {} http { upstream u { random two least_time=never; server 127.0.0.1:1; } }",
    );
    assert!(wrong.stderr.contains("invalid parameter \"least_time=never\""));
}

#[test]
fn servers_may_stand_in_a_file() {
    if !is_weir() {
        return;
    }
    let (a, b) = (named("a"), named("b"));
    let conf = "error_log %%DIR%%/error.log info; events {} http { upstream u { zone u 64k; state %%DIR%%/u.state; }
        upstream none { state %%DIR%%/none.state; }
        server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://u; }
            location /none { proxy_pass http://none; } location /new { return 200 $args; } } }";
    let mut server =
        Setup::new(conf).file("u.state", format!("server {} weight=2;\n", a.address())).start();
    assert_eq!(answers(&server, 3), "aaa");
    assert_eq!(server.get("/none").status, 502);
    server.write("u.state", format!("server {};\n", b.address()));
    let port = server.on(0);
    server.reload(conf, || port.get("/").text() == "b");
    for (text, told) in [
        ("server 127.0.0.1:1 nosuch;", "invalid parameter \"nosuch\" in state file"),
        ("listen 1;", "\"listen\" is no server in state file"),
    ] {
        server.write("u.state", text);
        server.signal(weir_tests::Signal::Hup);
        server.expect_error(told);
        assert_eq!(server.get("/").text(), "b");
    }
    let both = run_cli(&["-t"], "events {} http { upstream u { server 127.0.0.1:1; state x; } }");
    assert!(both.stderr.contains("\"state\" may not be used with \"server\""));
}

#[test]
fn each_client_has_a_connection_of_its_own() {
    if !is_weir() {
        return;
    }
    let numbered = || {
        let next = AtomicUsize::new(0);
        Origin::start(move |request, conn| {
            let number = next.fetch_add(1, Ordering::SeqCst);
            conn.reply(
                "200 OK",
                &format!("X-Connection: {}\r\n", request.connection),
                &number.to_string(),
            );
            Next::Keep
        })
    };
    let (a, b) = (numbered(), numbered());
    let location = "proxy_http_version 1.1; proxy_set_header Connection \"\"; add_header X-Server $upstream_addr;";
    let server = start(&a, &b, "ntlm; keepalive 16; server %%A%%; server %%B%%;", location);
    let who = |client: &mut weir_tests::Client| {
        let answer = client.get("/");
        let field = |name: &str| answer.header(name).unwrap().to_string();
        (field("X-Server"), field("X-Connection"))
    };
    let mut clients: Vec<_> = (0..4).map(|_| server.on(0).connect()).collect();
    let first: Vec<_> = clients.iter_mut().map(who).collect();
    for _ in 0..3 {
        let again: Vec<_> = clients.iter_mut().map(who).collect();
        assert_eq!(again, first);
    }
    let mut unlike = first.clone();
    unlike.sort();
    unlike.dedup();
    assert_eq!(unlike.len(), 4);
}

/// Nobody else uses them: they are closed with their client's.
#[test]
fn a_connection_of_a_client_goes_with_it() {
    if !is_weir() {
        return;
    }
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let a = Origin::start_raw(move |conn, _| {
        if conn.read_until(b"\r\n\r\n").is_some() {
            conn.reply("200 OK", "", "a");
            let closed = conn.wait_closed();
            let _ = tell.lock().unwrap().send(closed);
        }
    });
    let b = named("b");
    let location = "proxy_http_version 1.1; proxy_set_header Connection \"\";";
    let server = start(
        &a,
        &b,
        "ntlm; keepalive 16; keepalive_timeout 1h; server %%A%%; server %%B%% down;",
        location,
    );
    let mut client = server.on(0).connect();
    let mut other = server.on(0).connect();
    assert_eq!((client.get("/").text(), other.get("/").text()), ("a".into(), "a".into()));
    drop(client);
    assert_eq!(told.recv_timeout(weir_tests::PATIENCE), Ok(true));
    assert!(told.try_recv().is_err(), "the other client's stays");
}

#[test]
fn a_hash_knows_servers_by_their_ids() {
    if !is_weir() {
        return;
    }
    let (a, b) = (named("a"), named("b"));
    let conf = "events {} http {
        upstream plain { hash $arg_k consistent; server %%A%%; server %%B%%; }
        upstream ours { consistent_hash $arg_k; server %%A%%; server %%B%%; }
        upstream ids { consistent_hash $arg_k; server %%A%% id=1; server %%B%% id=2; }
        upstream swapped { consistent_hash $arg_k; server %%B%% id=1; server %%A%% id=2; }
        server { listen 127.0.0.1:%%PORT_0%%; location ~ /(.*) { proxy_pass http://$1; } } }";
    let server = Setup::new(conf).set("A", a.address()).set("B", b.address()).start();
    let ask = |upstream: &str, key: usize| server.get(&format!("/{upstream}?k={key}")).text();
    for key in 0..12 {
        assert_eq!(ask("plain", key), ask("ours", key));
        assert_ne!(ask("ids", key), ask("swapped", key));
    }
}

#[test]
fn turns_go_by_weight() {
    if !is_weir() {
        return;
    }
    let (a, b) = (named("a"), named("b"));
    for method in ["vnswrr;", "vnswrr max_init=3;", "iwrr;", "iwrr max_init=1;"] {
        let server = start(&a, &b, &format!("{method} server %%A%% weight=3; server %%B%%;"), "");
        let got = answers(&server, 16);
        assert!((11..=13).contains(&count(&got, 'a')), "{method} {got}");
    }
    let wrong =
        run_cli(&["-t"], "events {} http { upstream u { iwrr max=1; server 127.0.0.1:1; } }");
    assert!(wrong.stderr.contains("invalid parameter \"max=1\""));
}

#[test]
fn a_kept_connection_that_fails_is_a_try_or_none() {
    if !is_weir() {
        return;
    }
    for (on, status) in [("on", 200), ("off", 502)] {
        let last = AtomicUsize::new(usize::MAX);
        let origin = Origin::start(move |request, conn| {
            if last.swap(request.connection, Ordering::SeqCst) == request.connection {
                return Next::Close;
            }
            conn.reply("200 OK", "", "a");
            Next::Keep
        });
        let location = format!("proxy_http_version 1.1; proxy_set_header Connection \"\"; retry_cached_connection {on};");
        let server = start(&origin, &origin, "keepalive 4; server %%A%%;", &location);
        assert_eq!(server.get("/").status, 200);
        assert_eq!(server.get("/").status, status, "{on}");
    }
}

#[test]
fn tries_have_another_name() {
    if !is_weir() {
        return;
    }
    let a = named("a");
    for (tries, wanted) in [("proxy_upstream_tries 1;", true), ("proxy_upstream_tries 2;", false)] {
        let server = start(&a, &a, "server 127.0.0.1:%%PORT_1%% max_fails=0; server %%A%%;", tries);
        let all: Vec<u16> = (0..4).map(|_| server.get("/").status).collect();
        assert_eq!(all.contains(&502), wanted, "{tries} {all:?}");
    }
    let output = run_cli(
        &["-t"],
        "events {} http { fastcgi_upstream_tries 1; scgi_upstream_tries 1; uwsgi_upstream_tries 1; memcached_upstream_tries 1; }",
    );
    assert_eq!(output.code, 0, "{}", output.stderr);
}
