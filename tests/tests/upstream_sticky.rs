//! `sticky`: a client comes to the same server again.

use weir_tests::{Next, Origin, Server, Setup};

fn named(name: &'static str) -> Origin {
    Origin::start(move |request, conn| {
        let session = match request.target().contains("login") {
            true => format!("Set-Cookie: sid=from-{name}; path=/\r\n"),
            false => String::new(),
        };
        conn.reply("200 OK", &session, name);
        Next::Keep
    })
}

/// Who answers so many requests, one letter each.
fn turns(server: &Server, path: &str, headers: &str, count: usize) -> String {
    (0..count).map(|_| server.get_with(path, headers).text()).collect()
}

#[test]
fn a_cookie_brings_the_client_back() {
    let (a, b) = (named("a"), named("b"));
    let server = Setup::new(
        "events {} http {
            upstream u { server %%A%%; server %%B%%;
                sticky cookie srv expires=1h domain=$arg_d path=/p httponly secure samesite=lax; }
            upstream short { least_conn; server %%A%%; server %%B%%; sticky cookie srv; }
            upstream down { server %%A%% down; server %%B%%; sticky cookie srv; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://u; }
                location /short { proxy_pass http://short; }
                location /down { proxy_pass http://down; } } }",
    )
    .set("A", a.address())
    .set("B", b.address())
    .start();
    let first = server.get("/?d=x.org");
    let cookie = first.header("Set-Cookie").unwrap();
    let (id, rest) = cookie.split_once("; expires=").unwrap();
    assert_eq!(id.len(), "srv=".len() + 32);
    let wanted = "GMT; max-age=3600; domain=x.org; httponly; secure; samesite=lax; path=/p";
    assert!(rest.ends_with(wanted), "{rest}");
    let own = format!("Cookie: {id}\r\n");
    for path in ["/", "/short"] {
        assert_eq!(turns(&server, path, &own, 4), first.text().repeat(4));
    }
    assert_eq!(server.get_with("/short", &own).header("Set-Cookie"), Some(id));
    // A server that is down is not waited for: the client moves.
    let moved = server.get_with("/down", &own);
    assert_eq!(moved.text(), "b");
    let unknown = turns(&server, "/short", "Cookie: srv=nobody\r\n", 4);
    assert!(unknown.contains('a') && unknown.contains('b'), "{unknown}");
}

#[test]
fn a_cookie_names_the_server_that_answered() {
    let (bad, good) = (Origin::start(|_, _| Next::Close), named("b"));
    let server = Setup::new(
        "events {} http {
            upstream one { server %%GOOD%%; sticky cookie srv; }
            upstream u { server %%BAD%%; server %%GOOD%%; sticky cookie srv; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://u; }
                location /one { proxy_pass http://one; } } }",
    )
    .set("BAD", bad.address())
    .set("GOOD", good.address())
    .start();
    let wanted = server.get("/one");
    let response = server.get("/");
    assert_eq!(response.text(), "b");
    assert_eq!(response.all("Set-Cookie"), wanted.all("Set-Cookie"));
}

#[test]
fn a_route_is_found_in_the_first_variable_that_has_one() {
    let (a, b, c) = (named("a"), named("b"), named("c"));
    let server = Setup::new(
        "events {} http {
            upstream u { server %%A%% route=1; server %%B%% route=2; server %%C%% route=3 drain;
                sticky route $cookie_r $arg_r; }
            upstream single { server %%A%% route=1 drain; sticky route $arg_r; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://u; }
                location /single { proxy_pass http://single; } } }",
    )
    .set("A", a.address())
    .set("B", b.address())
    .set("C", c.address())
    .start();
    assert_eq!(turns(&server, "/?r=1", "", 3), "aaa");
    assert_eq!(turns(&server, "/?r=1", "Cookie: r=2\r\n", 3), "bbb");
    // Who drains gets its own and nobody new.
    assert_eq!(turns(&server, "/?r=3", "", 2), "cc");
    let fresh = turns(&server, "/", "", 6);
    assert!(!fresh.contains('c') && fresh.contains('a') && fresh.contains('b'), "{fresh}");
    assert_eq!(server.get("/single?r=1").status, 200);
    assert_eq!(server.get("/single").status, 502);
}

#[test]
fn a_session_is_learned_from_the_server() {
    let (a, b) = (named("a"), named("b"));
    let conf = "events {} http {
            upstream u { server %%A%%; server %%B%%;
                sticky learn create=$upstream_cookie_sid lookup=$cookie_sid zone=s:64k HEADER; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://u; } } }";
    for word in ["", "header"] {
        let server = Setup::new(&conf.replace("HEADER", word))
            .set("A", a.address())
            .set("B", b.address())
            .start();
        let login = server.get("/login");
        let session = login.header("Set-Cookie").unwrap().split(';').next().unwrap();
        let own = format!("Cookie: {session}\r\n");
        assert_eq!(turns(&server, "/", &own, 4), login.text().repeat(4));
        let other = turns(&server, "/", "Cookie: sid=unknown\r\n", 4);
        assert!(other.contains('a') && other.contains('b'), "{other}");
    }
}

#[test]
fn a_full_server_gives_its_client_to_another() {
    let (a, b) = (named("a"), named("b"));
    let slow = Origin::start_raw(|conn, _| {
        conn.read_until(b"\r\n\r\n");
        conn.wait_closed();
    });
    let server = Setup::new(
        "events {} http {
            upstream u { zone u 64k; server %%SLOW%% route=1 max_conns=1; server %%B%% route=2;
                sticky route $arg_r; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://u; } } }",
    )
    .set("SLOW", slow.address())
    .set("B", b.address())
    .start();
    let mut first = server.connect();
    first.send_get("/?r=1");
    weir_tests::expect_soon("the slow server is asked", || slow.connections() == 1);
    assert_eq!(turns(&server, "/?r=1", "", 2), "bb");
    drop(a);
}

#[test]
fn what_is_wrong_is_said() {
    let tests = [
        ("sticky cookie;", "invalid number of arguments"),
        ("sticky cookie s expires=x;", "invalid \"expires\" parameter value"),
        ("sticky cookie s secure secure;", "parameter \"secure\" is duplicate"),
        ("sticky cookie s samesite=x;", "invalid \"samesite\" parameter value"),
        ("sticky route foo;", "invalid variable name \"foo\""),
        ("sticky learn create=$arg_a zone=s:64k;", "\"lookup\" parameter is not specified"),
        ("sticky learn create=$arg_a lookup=$arg_b zone=s:1k;", "zone is too small"),
        ("sticky fast x;", "unknown parameter \"fast\""),
        ("sticky route $arg_a; sticky route $arg_a;", "is duplicate"),
        ("server 127.0.0.1:1 route=;", "route is empty"),
        ("least_time soon;", "invalid value \"soon\""),
    ];
    for (line, wanted) in tests {
        let conf = format!("events {{}} http {{ upstream u {{ server 127.0.0.1:1; {line} }} }}");
        let output = weir_tests::run_cli(&["-t"], &conf);
        assert!(output.stderr.contains(wanted), "{line}: {}", output.stderr);
    }
}
