//! Tengine's `session_sticky`: a client comes to the same server again, by a cookie.

use weir_tests::{run_cli, skip, Next, Origin, Response, Server, Setup};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/") || {
        skip("nginx has no session_sticky");
        false
    }
}

/// Answers with its name and the cookies that it was sent; sets its own for `/set`, fails for `/bad`.
fn named(name: &'static str) -> Origin {
    Origin::start(move |request, conn| {
        let body = format!("{name} {}", request.header("Cookie").unwrap_or("-"));
        match request.target() {
            "/set" => conn.reply(
                "200 OK",
                "Set-Cookie: route=own; Path=/x\r\nSet-Cookie: other=1\r\n",
                &body,
            ),
            "/bad" => conn.reply("503 No", "", &body),
            _ => conn.reply("200 OK", "", &body),
        }
        Next::Keep
    })
}

fn start(a: &Origin, b: &Origin, sticky: &str, location: &str) -> Server {
    let conf = format!(
        "error_log %%DIR%%/error.log info; events {{}} http {{ upstream u {{ server %%A%%; server %%B%%; {sticky} }}
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ proxy_pass http://u; {location} }} }} }}"
    );
    Setup::new(&conf).set("A", a.address()).set("B", b.address()).start()
}

/// Cookie's value and what follows it.
fn set_cookie(answer: &Response) -> Option<(String, String)> {
    let set = answer.header("Set-Cookie")?;
    let (pair, rest) = set.split_once("; ").unwrap_or((set, ""));
    Some((pair.split_once('=')?.1.to_string(), rest.to_string()))
}

fn ask(server: &Server, path: &str, cookie: &str) -> Response {
    server.get_with(path, &format!("Cookie: {cookie}\r\n"))
}

#[test]
fn a_cookie_is_inserted_once_and_leads_to_its_server() {
    if !is_weir() {
        return;
    }
    let (a, b) = (named("a"), named("b"));
    let server = start(&a, &b, "session_sticky;", "");
    let first = server.get("/");
    let (value, rest) = set_cookie(&first).unwrap();
    assert_eq!((value.len(), rest.as_str()), (32, "Path=/"));
    let who = first.text()[..1].to_string();
    for _ in 0..5 {
        let again = ask(&server, "/", &format!("x=1; route={value}; y=2"));
        assert_eq!(again.text(), format!("{who} x=1; route={value}; y=2"));
        assert_eq!(again.header("Set-Cookie"), None);
    }
    assert_eq!(set_cookie(&server.get("/bad")), None);
    let (fresh, _) = set_cookie(&ask(&server, "/", "route=nobody")).unwrap();
    assert_eq!(fresh.len(), 32);
}

#[test]
fn a_cookie_has_what_is_said_and_may_be_hidden() {
    if !is_weir() {
        return;
    }
    let (a, b) = (named("a"), named("b"));
    let sticky =
        "session_sticky cookie=uid domain=www.test path=/p maxage=60 hash=plain option=indirect;";
    let server = start(&a, &b, sticky, "session_sticky_hide_cookie upstream=u;");
    let (value, rest) = set_cookie(&server.get("/")).unwrap();
    assert!([a.address(), b.address()].contains(&value), "{value}");
    assert!(rest.starts_with("Domain=www.test; Path=/p; Max-Age=60; Expires="), "{rest}");
    let who = if value == a.address() { "a" } else { "b" };
    for _ in 0..4 {
        assert_eq!(ask(&server, "/", &format!("x=1; uid={value}")).text(), format!("{who} x=1"));
        assert_eq!(ask(&server, "/", &format!("uid={value}")).text(), format!("{who} -"));
    }
    // Without the other directive nothing is inserted.
    let server = start(&a, &b, sticky, "");
    assert_eq!(set_cookie(&server.get("/")), None);
}

#[test]
fn a_session_ends_when_it_rests_or_is_old() {
    if !is_weir() {
        return;
    }
    let (a, b) = (named("a"), named("b"));
    let server = start(&a, &b, "session_sticky maxidle=100 maxlife=1000;", "");
    let (value, _) = set_cookie(&server.get("/")).unwrap();
    let parts: Vec<&str> = value.split('|').collect();
    let (id, now): (&str, u64) = (parts[0], parts[1].parse().unwrap());
    assert_eq!(parts[2], parts[1]);
    // Each answer says when it was.
    let first_of = |last: u64, first: u64| {
        let (value, _) =
            set_cookie(&ask(&server, "/", &format!("route={id}|{last}|{first}"))).unwrap();
        let parts: Vec<String> = value.split('|').map(str::to_string).collect();
        (parts[0] == id, parts[2].parse::<u64>().unwrap() == first)
    };
    assert_eq!(first_of(now - 50, now - 500), (true, true));
    for (last, first) in [(now - 150, now - 500), (now - 50, now - 1500)] {
        assert!(!first_of(last, first).1);
    }
}

#[test]
fn a_servers_own_cookie_is_marked_or_replaced() {
    if !is_weir() {
        return;
    }
    let (a, b) = (named("a"), named("b"));
    let server = start(
        &a,
        &b,
        "session_sticky mode=prefix hash=plain;",
        "session_sticky_header upstream=u;",
    );
    let set = server.get("/set");
    let (value, rest) = set_cookie(&set).unwrap();
    assert_eq!((rest.as_str(), set.all("Set-Cookie")[1]), ("Path=/x", "other=1"));
    let (who, own) = value.split_once('~').unwrap();
    assert_eq!(own, "own");
    let name = if who == a.address() { "a" } else { "b" };
    for _ in 0..4 {
        assert_eq!(
            ask(&server, "/", &format!("route={value}")).text(),
            format!("{name} route=own")
        );
    }
    assert_eq!(server.get("/").header("Set-Cookie"), None);
    let server = start(&a, &b, "session_sticky mode=rewrite hash=plain;", "");
    let (value, rest) = set_cookie(&server.get("/set")).unwrap();
    assert!([a.address(), b.address()].contains(&value) && rest == "Path=/x", "{value} {rest}");
    assert_eq!(server.get("/").header("Set-Cookie"), None);
}

#[test]
fn without_fallback_nobody_else_answers() {
    if !is_weir() {
        return;
    }
    let a = named("a");
    for (fallback, status) in [("off", 502), ("on", 200)] {
        let sticky = format!("session_sticky hash=plain fallback={fallback};");
        let conf = format!(
            "events {{}} http {{ upstream u {{ server {}; server 127.0.0.1:%%PORT_1%%; {sticky} }}
                server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ proxy_pass http://u; }} }} }}",
            a.address()
        );
        let server = Setup::new(&conf).start();
        let gone = format!("route=127.0.0.1:{}", server.port(1));
        for _ in 0..3 {
            assert_eq!(ask(&server, "/", &gone).status, status, "{fallback}");
        }
        assert_eq!(server.get("/").status, 200);
    }
}

#[test]
fn what_it_cannot_do_is_refused() {
    if !is_weir() {
        return;
    }
    for (sticky, location, told) in [
        ("session_sticky mode=other;", "", "invalid argument \"mode=other\""),
        ("session_sticky fallback=maybe;", "", "invalid argument \"fallback=maybe\""),
        ("session_sticky maxlife=10;", "", "\"maxlife\" without \"maxidle\""),
        ("session_sticky maxidle=10 mode=prefix;", "", "\"maxidle\" without \"mode=insert\""),
        ("session_sticky; session_sticky;", "", "\"session_sticky\" directive is duplicate"),
        ("", "session_sticky_hide_cookie u;", "invalid argument \"u\""),
        ("", "session_sticky_hide_cookie upstream=none;", "upstream \"none\""),
    ] {
        let conf = format!(
            "events {{}} http {{ upstream u {{ server 127.0.0.1:1; {sticky} }}
                server {{ listen 127.0.0.1:1; location / {{ {location} }} }} }}"
        );
        let output = run_cli(&["-t"], &conf);
        assert!(output.code == 1 && output.stderr.contains(told), "{told}: {}", output.stderr);
    }
}

#[test]
fn it_does_not_go_with_sticky() {
    if !weir_tests::run_cli(&["-v"], "").stderr.contains("(weir/") {
        return skip("nginx has no session_sticky");
    }
    for (first, second, told) in [
        (
            "sticky cookie a;",
            "session_sticky;",
            "\"session_sticky\" directive may not be used with \"sticky\"",
        ),
        (
            "session_sticky;",
            "sticky cookie a;",
            "\"sticky\" directive may not be used with \"session_sticky\"",
        ),
        ("sticky cookie a;", "sticky cookie b;", "\"sticky\" directive is duplicate"),
        ("session_sticky;", "session_sticky;", "\"session_sticky\" directive is duplicate"),
    ] {
        let conf =
            format!("events {{}} http {{ upstream u {{ server 127.0.0.1:1; {first} {second} }} }}");
        let said = weir_tests::run_cli(&["-t"], &conf);
        assert!(said.code == 1 && said.stderr.contains(told), "{first} {second}: {}", said.stderr);
    }
}
