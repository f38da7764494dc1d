//! Several origins behind one name: turns, failures, spares.

use weir_tests::{free_port, Next, Origin, Server, Setup};

fn named(name: &'static str) -> Origin {
    Origin::start(move |_, conn| {
        conn.reply("200 OK", "", name);
        Next::Keep
    })
}

fn turns(server: &Server, path: &str, count: usize) -> String {
    (0..count).map(|_| server.get(path).text()).collect()
}

#[test]
fn weights_share_the_turns_smoothly() {
    let (a, b, c) = (named("a"), named("b"), named("c"));
    let server = Setup::new(
        "events {} http {
            upstream even { server %%A%%; server %%B%%; }
            upstream heavy { server %%A%% weight=3; server %%B%%; }
            upstream down { server %%A%% down; server %%B%%; server %%C%%; }
            upstream spare { server %%A%%; server %%B%% backup; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location /even { proxy_pass http://even; }
                location /heavy { proxy_pass http://heavy; }
                location /down { proxy_pass http://down; }
                location /spare { proxy_pass http://spare; } } }",
    )
    .set("A", a.address())
    .set("B", b.address())
    .set("C", c.address())
    .start();
    assert_eq!(turns(&server, "/even", 4), "abab");
    assert_eq!(turns(&server, "/heavy", 8), "aabaaaba");
    assert_eq!(turns(&server, "/down", 4), "bcbc");
    assert_eq!(turns(&server, "/spare", 3), "aaa");
}

#[test]
fn the_next_is_tried_when_one_fails() {
    let bad = Origin::start(|request, conn| {
        match request.target() {
            "/500" => conn.reply("500 Bad", "", "bad"),
            "/404" => conn.reply("404 Bad", "", "bad"),
            _ => return Next::Close,
        }
        Next::Keep
    });
    let good = named("good");
    let server = Setup::new(
        "events {} http { upstream u { server %%BAD%% max_fails=0; server %%GOOD%% max_fails=0; }
            upstream refused { server 127.0.0.1:%%PORT_1%% max_fails=0; server %%GOOD%%; }
            server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
                add_header X-Addr $upstream_addr always; add_header X-Status $upstream_status always;
                location / { proxy_pass http://u; }
                location /500 { proxy_next_upstream http_500; proxy_pass http://u; }
                location /404 { proxy_next_upstream http_404; proxy_pass http://u; }
                location /off { proxy_next_upstream off; proxy_pass http://u; }
                location /one { proxy_next_upstream_tries 1; proxy_pass http://u; }
                location /non { proxy_next_upstream error non_idempotent; proxy_pass http://u; }
                location /refused { proxy_pass http://refused; }
            } }",
    )
    .set("BAD", bad.address())
    .set("GOOD", good.address())
    .start();
    let twice = |path: &str| {
        let mut statuses = [server.get(path).status, server.get(path).status];
        statuses.sort_unstable();
        statuses
    };
    assert_eq!(twice("/x"), [200, 200]);
    assert_eq!(twice("/500"), [200, 200]);
    assert_eq!(twice("/404"), [200, 200]);
    assert_eq!(twice("/off"), [200, 502]);
    assert_eq!(twice("/one"), [200, 502]);
    let post = |path: &str| {
        let mut statuses = [server.post(path, "x").status, server.post(path, "x").status];
        statuses.sort_unstable();
        statuses
    };
    assert_eq!(post("/x"), [200, 502]);
    assert_eq!(post("/non"), [200, 200]);
    let response = server.get("/refused");
    let tried = format!("127.0.0.1:{}, {}", server.port(1), good.address());
    assert_eq!(response.header("X-Addr"), Some(tried.as_str()));
    assert_eq!(response.header("X-Status"), Some("502, 200"));
    server.expect_error("connect() failed (111: Connection refused) while connecting to upstream");
}

#[test]
fn failed_ones_are_left_alone_for_a_while() {
    let good = named("good");
    let server = Setup::new(
        "events {} http { upstream u { zone u 64k;
                server 127.0.0.1:%%PORT_1%% max_fails=2 fail_timeout=60s; server %%GOOD%%; }
            upstream all { server 127.0.0.1:%%PORT_1%%; server 127.0.0.1:%%PORT_2%%; }
            upstream spare { server 127.0.0.1:%%PORT_1%%; server %%GOOD%% backup; }
            server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log warn;
                add_header X-Addr $upstream_addr always;
                location / { proxy_pass http://u; }
                location /all { proxy_pass http://all; }
                location /spare { proxy_pass http://spare; } } }",
    )
    .set("GOOD", good.address())
    .start();
    let tried_bad = (0..10)
        .filter(|_| server.get("/").header("X-Addr").is_some_and(|v| v.contains(", ")))
        .count();
    assert_eq!(tried_bad, 2);
    server.expect_error("upstream server temporarily disabled while connecting to upstream");
    assert_eq!(server.get("/all").status, 502);
    let none = server.get("/all");
    assert_eq!((none.status, none.header("X-Addr")), (502, Some("all")));
    server.expect_error("no live upstreams while connecting to upstream");
    assert_eq!(server.get("/spare").text(), "good");
}

#[test]
fn other_ways_of_choosing() {
    let (a, b, c) = (named("a"), named("b"), named("c"));
    let server = Setup::new(
        "events {} http {
            upstream hash { hash $arg_k; server %%A%%; server %%B%%; server %%C%%; }
            upstream ring { hash $arg_k consistent; server %%A%%; server %%B%%; server %%C%%; }
            upstream ip { ip_hash; server %%A%%; server %%B%%; server %%C%%; }
            upstream least { least_conn; server %%A%%; server %%B%%; }
            upstream random { random two; server %%A%%; server %%B%%; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location /hash { proxy_pass http://hash; }
                location /ring { proxy_pass http://ring; }
                location /ip { proxy_pass http://ip; }
                location /least { proxy_pass http://least; }
                location /random { proxy_pass http://random; } } }",
    )
    .set("A", a.address())
    .set("B", b.address())
    .set("C", c.address())
    .start();
    for path in ["/hash?k=1", "/hash?k=2", "/ring?k=1", "/ring?k=2", "/ip"] {
        let all = turns(&server, path, 5);
        assert_eq!(all, all[..1].repeat(5), "{path}");
    }
    let spread: std::collections::BTreeSet<String> =
        (0..30).map(|n| server.get(&format!("/hash?k={n}")).text()).collect();
    assert_eq!(spread.len(), 3);
    assert_eq!(turns(&server, "/least", 4), "abab");
    let random = turns(&server, "/random", 40);
    assert!(random.contains('a') && random.contains('b'));
}

#[test]
fn connections_are_kept_and_reused() {
    let origin = named("x");
    let server = Setup::new(
        "events {} http { upstream kept { server %%O%%; keepalive 1; }
            upstream few { server %%O%%; keepalive 1; keepalive_requests 2; }
            upstream none { server %%O%%; keepalive 0; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_http_version 1.1; proxy_set_header Connection ''; proxy_pass http://kept; }
                location /few { proxy_http_version 1.1; proxy_set_header Connection ''; proxy_pass http://few; }
                location /old { proxy_http_version 1.0; proxy_set_header Connection close; proxy_pass http://kept; } } }",
    )
    .set("O", origin.address())
    .start();
    turns(&server, "/", 5);
    assert_eq!(origin.connections(), 1);
    turns(&server, "/few", 4);
    assert_eq!(origin.connections(), 3);
    turns(&server, "/", 1);
    assert_eq!(origin.connections(), 3);
}

#[test]
fn a_kept_connection_that_the_origin_closed_is_replaced() {
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "", "once");
        Next::Close
    });
    let server = Setup::new(
        "events {} http { upstream u { server %%O%%; keepalive 4; }
            server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_http_version 1.1;
                proxy_set_header Connection ''; proxy_pass http://u; } } }",
    )
    .set("O", origin.address())
    .start();
    for _ in 0..10 {
        assert_eq!(server.get("/").text(), "once");
    }
}

#[test]
fn what_does_not_answer_times_out() {
    let silent = Origin::start_raw(|conn, _| {
        conn.wait_closed();
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
            location / { proxy_read_timeout 300ms; proxy_pass http://%%O%%; }
            location /dead { proxy_pass http://127.0.0.1:%%DEAD%%; } } }",
    )
    .set("O", silent.address())
    .set("DEAD", free_port())
    .start();
    assert_eq!(server.get("/").status, 504);
    server.expect_error(
        "upstream timed out (110: Connection timed out) while reading response header",
    );
    assert_eq!(server.get("/dead").status, 502);
}

#[test]
fn a_unix_socket_is_an_origin_as_well() {
    let server = Setup::new(
        "events {} http { upstream u { server unix:%%DIR%%/in; }
            server { listen unix:%%DIR%%/in; return 200 '$uri $host'; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://u; }
                location /direct/ { proxy_pass http://unix:%%DIR%%/in:/base/; } } }",
    )
    .start();
    assert_eq!(server.get("/x").text(), "/x u");
    assert_eq!(server.get("/direct/y").text(), "/base/y localhost");
}
