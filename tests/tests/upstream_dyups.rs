//! Tengine's `dyups`: upstreams that are put and deleted by requests.

use weir_tests::{expect_soon, run_cli, skip, Next, Origin, Server, Setup};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/") || {
        skip("nginx has no dyups");
        false
    }
}

fn named(name: &'static str) -> Origin {
    Origin::start(move |_, conn| {
        conn.reply("200 OK", "", name);
        Next::Keep
    })
}

const CONF: &str = "worker_processes 2; error_log %%DIR%%/error.log info; events {} http {
    dyups_read_msg_timeout 1s; dyups_read_msg_log on; dyups_shm_zone_size 2m; dyups_trylock on;
    upstream host1 { server %%A%% weight=2 max_fails=3; server 127.0.0.1:1 backup; }
    server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://$arg_u; } }
    server { listen 127.0.0.1:%%PORT_1%%; location / { dyups_interface; } } }";

fn start(a: &Origin) -> Server {
    Setup::new(CONF).set("A", a.address()).start()
}

#[test]
fn upstreams_are_put_replaced_and_deleted() {
    if !is_weir() {
        return;
    }
    let (a, b) = (named("a"), named("b"));
    let mut server = start(&a);
    let (port, admin) = (server.on(0), server.on(1));
    let ask = |name: &str| port.get(&format!("/?u={name}"));
    assert_eq!((ask("host1").text().as_str(), ask("fresh").status), ("a", 502));
    assert_eq!(admin.get("/list").text(), "host1\n");
    let lines = format!(
        "server {} weight=2 max_conns=0 max_fails=3 fail_timeout=10 backup=0 down=0\n\
         server 127.0.0.1:1 weight=1 max_conns=0 max_fails=1 fail_timeout=10 backup=1 down=0\n",
        a.address()
    );
    assert_eq!(admin.get("/upstream/host1").text(), lines);
    assert_eq!(admin.get("/upstream/fresh").status, 404);

    let put = |name: &str, text: String| admin.post(&format!("/upstream/{name}"), &text);
    let answer = put("fresh", format!("server {};server {} down;", b.address(), a.address()));
    assert_eq!((answer.status, answer.text().as_str()), (200, "success"));
    for _ in 0..8 {
        assert_eq!(ask("fresh").text(), "b");
    }
    assert_eq!(admin.get("/list").text(), "fresh\nhost1\n");
    assert!(admin.get("/detail").text().ends_with(&format!("host1\n{lines}\n")));
    assert_eq!(put("fresh", format!("server {};", a.address())).status, 200);
    assert_eq!(ask("fresh").text(), "a");
    // One of the configuration too.
    assert_eq!(put("host1", format!("ip_hash; server {};", b.address())).status, 200);
    assert_eq!(ask("host1").text(), "b");

    let next = format!("{CONF} # again").replace(
        "server { listen 127.0.0.1:%%PORT_0%%;",
        "server { listen 127.0.0.1:%%PORT_0%%; location /new { return 204; }",
    );
    server.reload(&next.replace("%%A%%", &a.address()), || port.get("/new").status == 204);
    assert_eq!((ask("fresh").text().as_str(), ask("host1").text().as_str()), ("a", "b"));

    let delete = |name: &str| admin.request("DELETE", &format!("/upstream/{name}"), "").status;
    assert_eq!(
        [delete("fresh"), delete("host1"), delete("host1"), delete("nobody")],
        [200, 200, 404, 404]
    );
    assert_eq!((ask("fresh").status, ask("host1").status), (502, 502));
    server.expect_error("upstream \"host1\" has been deleted");
    assert_eq!(admin.get("/list").status, 204);
}

#[test]
fn what_is_no_upstream_is_refused() {
    if !is_weir() {
        return;
    }
    let a = named("a");
    let server = start(&a);
    let admin = server.on(1);
    for (name, text, told) in [
        ("x", "", "one to 1000 servers"),
        ("x", "server 127.0.0.1:1 nosuch;", "invalid parameter \"nosuch\""),
        ("x", "server example.test:80;", "\"example.test\" is no address"),
        ("x", "server", "unexpected end"),
        ("x", "include /etc/passwd;", ""),
        ("x", "keepalive 3; server 127.0.0.1:1;", "\"keepalive\" is none of server"),
        ("x%20y", "server 127.0.0.1:1;", "no name of an upstream"),
    ] {
        let answer = admin.post(&format!("/upstream/{name}"), text);
        assert!(answer.status == 400 && answer.text().contains(told), "{text}: {}", answer.text());
    }
    assert_eq!(admin.post("/upstream/a/b", "server 127.0.0.1:1;").status, 404);
    assert_eq!(admin.post("/upstream/x", &"#".repeat(100_000)).status, 413);
    assert_eq!(admin.request("PUT", "/upstream/x", "").status, 405);
    assert_eq!(admin.get("/list").text(), "host1\n");
}

#[test]
fn what_is_put_has_a_bound() {
    if !is_weir() {
        return;
    }
    let a = named("a");
    let conf = CONF.replace("dyups_shm_zone_size 2m", "dyups_shm_zone_size 64k");
    let server = Setup::new(&conf).set("A", a.address()).start();
    let admin = server.on(1);
    let put = |name: &str, servers: usize| {
        let text = "server 127.0.0.1:1;".repeat(servers);
        admin.post(&format!("/upstream/{name}"), &text).status
    };
    // Half a KB for a server: this is nearly half of it.
    assert_eq!([put("x1", 50), put("x2", 50)], [200, 200]);
    for _ in 0..3 {
        assert_eq!((put("x3", 50), put("x4", 200)), (507, 507));
        // What was there counts no more where it is replaced.
        assert_eq!((put("x1", 50), put("x2", 40)), (200, 200));
    }
    server.expect_error("upstream \"x3\" is not put: \"dyups_shm_zone_size\" is 65536 bytes");
    assert_eq!(admin.get("/list").text(), "host1\nx1\nx2\n");
    assert_eq!(admin.request("DELETE", "/upstream/x1", "").status, 200);
    assert_eq!(put("x3", 50), 200);
}

#[test]
fn an_upstream_that_has_gone_ends_no_request() {
    if !is_weir() {
        return;
    }
    let slow = Origin::start(|_, conn| {
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab");
        std::thread::sleep(std::time::Duration::from_millis(300));
        conn.write("cd");
        Next::Keep
    });
    let server = start(&slow);
    let admin = server.on(1);
    let text = format!("server {};", slow.address());
    assert_eq!(admin.post("/upstream/fresh", &text).status, 200);
    let mut client = server.on(0).connect();
    client.send_get("/?u=fresh");
    expect_soon("it is asked", || !slow.requests().is_empty());
    assert_eq!(admin.request("DELETE", "/upstream/fresh", "").status, 200);
    assert_eq!(client.response().text(), "abcd");
}
