//! `…_cache_standard`: a shared cache by RFC 9111, 5861, 9213 and 9211.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Mutex};
use weir_tests::family::{Family, FAMILIES};
use weir_tests::{expect_soon, run_cli, skip, Origin, Server, PATIENCE};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

/// Says how often it was asked. Status and fields of the answer are the client's to say (`X-Status`,
/// `X-Fields`), and what it says to a request with a validator (`X-304`).
fn counting(family: Family) -> Origin {
    let count = AtomicUsize::new(0);
    family.origin(move |asked, answer| {
        let n = count.fetch_add(1, Ordering::SeqCst) + 1;
        let lines = |name: &str| -> Option<String> {
            let text = asked.param(name)?;
            Some(text.split_terminator('|').map(|f| format!("{f}\r\n")).collect())
        };
        let is_conditional = asked.param("HTTP_IF_NONE_MATCH").is_some();
        if let Some(fields) = lines("HTTP_X_304").filter(|_| is_conditional) {
            return answer.reply("304 Not Modified", &fields, "");
        }
        let status = asked.param("HTTP_X_STATUS").unwrap_or("200 OK").to_string();
        let fields = lines("HTTP_X_FIELDS").unwrap_or_default();
        answer.reply(&status, &fields, &format!("answer {n}"));
    })
}

fn start(family: Family, origin: &Origin, location: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ %%F%%_cache_path %%DIR%%/cache levels=1:2 keys_zone=c:1m;
            server {{ listen 127.0.0.1:%%PORT_0%%;
                location / {{ %%F%%_pass %%TO%%; %%PARAMS%% %%F%%_cache c; %%F%%_cache_key $uri;
                    %%F%%_cache_standard on; {location} }}
                location /off/ {{ %%F%%_pass %%TO%%; %%PARAMS%% %%F%%_cache c; %%F%%_cache_key $uri; }} }} }}"
    );
    family.setup(&conf, origin).start()
}

struct Got {
    body: String,
    status: String,
    age: Option<u64>,
}

fn get(server: &Server, path: &str, fields: &str) -> Got {
    let r = server.get_with(path, fields);
    Got {
        body: r.text(),
        status: r.header("Cache-Status").unwrap_or_default().to_string(),
        age: r.header("Age").and_then(|a| a.parse().ok()),
    }
}

/// Asks for a path; what is said of it must begin so, and the answer have this body.
#[track_caller]
fn expect(server: &Server, path: &str, fields: &str, status: &str, body: &str) {
    let got = get(server, path, fields);
    assert!(got.status.starts_with(status), "{path} {fields}: {} instead of {status}", got.status);
    assert_eq!(got.body, body, "{path} {fields}: {}", got.status);
}

const MISS: &str = "Weir; fwd=uri-miss; fwd-status=200; stored";
const NOT_KEPT: &str = "Weir; fwd=uri-miss; fwd-status=200";
const HIT: &str = "Weir; hit; ttl=";

#[test]
fn answers_have_an_age() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(family, &origin, "");
        let fields = "X-Fields: Cache-Control: max-age=1000|Age: 100|Cache-Status: Origin; hit\r\n";
        let first = server.get_with("/a", fields);
        assert_eq!(first.all("Cache-Status"), ["Origin; hit", MISS], "{family:?}");
        assert_eq!(first.header("Age"), Some("100"));
        let again = server.get("/a");
        let age: u64 = again.header("Age").unwrap().parse().unwrap();
        assert!((100..130).contains(&age) && again.all("Age").len() == 1, "{family:?} {age}");
        let said = again.all("Cache-Status")[1].strip_prefix(HIT).unwrap().to_string();
        assert!((870..=900).contains(&said.parse::<u64>().unwrap()), "{family:?} {said}");
        // From how long ago its server has made it, too.
        let dated = "X-Fields: Date: Thu, 01 Jan 1970 00:00:10 GMT|Expires: Thu, 01 Jan 2099 00:00:00 GMT\r\n";
        get(&server, "/d", dated);
        let old = server.get("/d");
        assert_eq!(old.all("Date"), ["Thu, 01 Jan 1970 00:00:10 GMT"], "{family:?}");
        let age: u64 = old.header("Age").unwrap().parse().unwrap();
        assert!(age > 1_000_000_000, "{family:?}");
        // Without the directive all is as ever.
        let off = "X-Fields: Cache-Control: max-age=60\r\n";
        for body in ["answer 3", "answer 3"] {
            let got = get(&server, "/off/", off);
            assert_eq!((got.body.as_str(), got.status.as_str(), got.age), (body, "", None));
        }
    }
}

#[test]
fn what_may_be_kept() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    let origin = counting(Family::Proxy);
    let server = start(Family::Proxy, &origin, "proxy_cache_valid 404 1m;");
    for (n, (fields, more, is_kept)) in [
        ("Cache-Control: max-age=60", "", true),
        ("Cache-Control: max-age=60, max-age=0", "", true),
        ("Cache-Control: max-age=60, s-maxage=0", "", false),
        ("Cache-Control: max-age=0, s-maxage=60", "", true),
        ("Cache-Control: max-age=sixty", "", false),
        ("Cache-Control: x=\"no-store, private\", max-age=60", "", true),
        ("Cache-Control: max-age=60, no-store", "", false),
        ("Cache-Control: max-age=60, PRIVATE", "", false),
        ("Cache-Control: max-age=60, no-store, must-understand", "", true),
        ("Cache-Control: max-age=60, no-store, must-understand", "X-Status: 299 Odd\r\n", false),
        ("Cache-Control: max-age=60|Age: 61", "", false),
        ("Cache-Control: max-age=60|Set-Cookie: a", "", false),
        ("Cache-Control: max-age=60|Vary: a, *", "", false),
        ("Expires: 0", "", false),
        ("Date: Thu, 01 Jan 2099 00:00:00 GMT|Expires: Thu, 01 Jan 2099 00:01:00 GMT", "", true),
        ("", "", false),
        ("", "X-Status: 404 Not Found\r\n", true),
        ("Cache-Control: max-age=60", "Authorization: x\r\n", false),
        ("Cache-Control: max-age=60, public", "Authorization: x\r\n", true),
        ("Cache-Control: s-maxage=60", "Authorization: x\r\n", true),
        ("Cache-Control: max-age=60, must-revalidate", "Authorization: x\r\n", true),
        ("Cache-Control: max-age=60", "Cache-Control: no-store\r\n", false),
        ("Cache-Control: no-store|CDN-Cache-Control: max-age=60", "", true),
        ("Cache-Control: max-age=60|CDN-Cache-Control: no-store", "", false),
        ("Cache-Control: max-age=60|CDN-Cache-Control: No Dictionary", "", true),
        ("Cache-Control: max-age=60|CDN-Cache-Control:", "", true),
        ("X-Accel-Expires: 60|Cache-Control: no-store", "", true),
        // Parameters mean nothing, all lines are one list, and what forbids is not overruled.
        ("Cache-Control: max-age=60|CDN-Cache-Control: no-store;why=x", "", false),
        ("Cache-Control: max-age=60|CDN-Cache-Control: private;p=1", "", false),
        ("Cache-Control: no-store|CDN-Cache-Control: max-age=60;p=\"a, private\"", "", true),
        ("CDN-Cache-Control: max-age=60|CDN-Cache-Control: no-store", "", false),
        ("CDN-Cache-Control: max-age=0|CDN-Cache-Control: max-age=60", "", true),
        ("CDN-Cache-Control: no-store, max-age=60, no-store=?0", "", false),
        ("Cache-Control: no-store|CDN-Cache-Control: max-age=\"60\"", "", false),
        ("Cache-Control: max-age=60|CDN-Cache-Control: max-age=60, NO-STORE", "", false),
        ("Cache-Control: max-age=60|CDN-Cache-Control: x=\"a, private", "", false),
        // Nobody knows what is meant: so much is plain.
        ("Cache-Control: max-age=60, x=\"a, private", "", false),
        ("Cache-Control: max-age=60, x=\"a\\\", private", "", false),
        ("Cache-Control: max-age=60, x=\"a, no-store", "", false),
        ("Cache-Control: max-age=60, private =x", "", false),
        ("Cache-Control: max-age=60, x=\"a\" private", "", false),
        ("Cache-Control: max-age=60, x=\"a", "", true),
    ]
    .iter()
    .enumerate()
    {
        let path = format!("/{n}");
        let first = get(&server, &path, &format!("X-Fields: {fields}\r\n{more}"));
        assert_eq!(
            first.status.ends_with("; stored"),
            *is_kept,
            "{fields} {more}: {}",
            first.status
        );
        let again = get(&server, &path, "");
        assert_eq!(again.body == first.body, *is_kept, "{fields} {more}: {}", again.status);
    }
}

#[test]
fn fields_that_are_for_one_client() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(family, &origin, "");
        let fields = "X-Fields: Cache-Control: max-age=60, private=\"X-A, X-B\", no-cache=x-c|X-A: 1|x-b: 2|X-C: 3|X-D: 4\r\n";
        let names = ["X-A", "X-B", "X-C", "X-D"];
        let first = server.get_with("/", fields);
        assert_eq!(names.map(|n| first.header(n)), [Some("1"), Some("2"), Some("3"), Some("4")]);
        let again = server.get("/");
        assert_eq!(again.text(), first.text(), "{family:?}");
        assert_eq!(names.map(|n| again.header(n)), [None, None, None, Some("4")], "{family:?}");
    }
}

#[test]
fn clients_say_what_will_do() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    let origin = counting(Family::Proxy);
    let server = start(Family::Proxy, &origin, "");
    let only = server.get_with("/", "Cache-Control: only-if-cached\r\n");
    assert_eq!((only.status, origin.requests().len()), (504, 0));
    let fields = "X-Fields: Cache-Control: max-age=1000|ETag: \"e\"|Age: 100\r\n";
    expect(&server, "/", fields, MISS, "answer 1");
    for control in ["only-if-cached", "max-age=500", "min-fresh=500", "max-stale", "x"] {
        expect(&server, "/", &format!("Cache-Control: {control}\r\n"), HIT, "answer 1");
    }
    let fwd = "Weir; fwd=request; fwd-status=304; stored";
    for control in
        ["no-cache", "max-age=50", "max-age=0", "min-fresh=950", "no-cache, only-if-cached"]
    {
        // The copy is as old as ever: what its server says of its age is said again.
        let fields =
            format!("Cache-Control: {control}\r\nX-304: Cache-Control: max-age=1000|Age: 100\r\n");
        match control.contains("only") {
            false => expect(&server, "/", &fields, fwd, "answer 1"),
            true => assert_eq!(server.get_with("/", &fields).status, 504),
        }
    }
    expect(
        &server,
        "/",
        "Pragma: no-cache\r\nX-304: Cache-Control: max-age=1000\r\n",
        fwd,
        "answer 1",
    );
    // A copy that is stale, and a client that takes it so.
    let stale = "X-Fields: Cache-Control: max-age=60|Age: 70|ETag: \"s\"\r\n";
    expect(&server, "/s", stale, "Weir; fwd=uri-miss", "answer 7");
    expect(
        &server,
        "/s",
        "Cache-Control: max-stale=5\r\nX-304: Age: 70\r\n",
        "Weir; fwd=stale; fwd-status=304",
        "answer 7",
    );
    expect(&server, "/s", stale, "Weir; fwd=stale; fwd-status=200; stored", "answer 9");
    expect(&server, "/s", "Cache-Control: max-stale=100\r\n", HIT, "answer 9");
    expect(&server, "/s", "Cache-Control: max-stale\r\n", HIT, "answer 9");
    let strict = "X-Fields: Cache-Control: max-age=60, must-revalidate|Age: 70|ETag: \"s\"\r\n";
    expect(&server, "/m", strict, "Weir; fwd=uri-miss", "answer 10");
    expect(&server, "/m", "Cache-Control: max-stale\r\n", "Weir; fwd=stale", "answer 11");
}

#[test]
fn a_304_changes_what_is_kept() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(family, &origin, "");
        let fields = "X-Fields: Cache-Control: no-cache|ETag: \"e\"|X-V: 1|X-Old: o|Content-Type: text/x\r\n";
        get(&server, "/", fields);
        let fields = "X-304: Cache-Control: max-age=60|X-V: 2|X-New: a longer value than there was|Content-Type: text/y|ETag: \"e\"\r\n";
        let confirmed = server.get_with("/", fields);
        let again = server.get("/");
        for (r, said) in [(&confirmed, "Weir; fwd=stale; fwd-status=304; stored"), (&again, HIT)] {
            assert!(r.header("Cache-Status").unwrap().starts_with(said), "{family:?} {r:?}");
            assert_eq!((r.status, r.text().as_str()), (200, "answer 1"), "{family:?}");
            assert_eq!((r.all("X-V"), r.header("X-Old")), (vec!["2"], Some("o")), "{family:?}");
            assert_eq!(r.header("X-New"), Some("a longer value than there was"));
            assert_eq!(r.header("Content-Type"), Some("text/x"));
        }
        // More than there is room for in the file.
        get(&server, "/long", "X-Fields: Cache-Control: no-cache|ETag: \"e\"\r\n");
        let long = "x".repeat(2000);
        let fields = format!("X-304: Cache-Control: max-age=60|X-Long: {long}\r\n");
        server.get_with("/long", &fields);
        let again = server.get("/long");
        assert_eq!(again.header("X-Long"), Some(&*long), "{family:?}");
        assert!(again.header("Cache-Status").unwrap().starts_with(HIT));
    }
}

#[test]
fn what_is_changed_is_forgotten() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    let origin = counting(Family::Proxy);
    let server = start(Family::Proxy, &origin, "");
    let keep = "X-Fields: Cache-Control: max-age=60\r\n";
    expect(&server, "/", keep, MISS, "answer 1");
    let post = server.post("/", "body");
    assert_eq!(post.header("Cache-Status"), Some("Weir; fwd=method; fwd-status=200"));
    expect(&server, "/", keep, MISS, "answer 3");
    // Nothing has changed behind an error, or by a method that is safe.
    assert_eq!(server.request("DELETE", "/", "X-Status: 403 Forbidden\r\n").status, 403);
    assert_eq!(server.request("OPTIONS", "/", "").status, 200);
    expect(&server, "/", keep, HIT, "answer 3");
    // Variants too.
    let vary = "X-Fields: Cache-Control: max-age=60|Vary: Foo\r\n";
    for foo in ["1", "2"] {
        get(&server, "/v", &format!("{vary}Foo: {foo}\r\n"));
    }
    assert_eq!(server.request("DELETE", "/v", "").status, 200);
    get(&server, "/v", &format!("{vary}Foo: 1\r\n"));
    expect_soon("the variants are gone", || {
        !get(&server, "/v", "Foo: 2\r\n").status.starts_with(HIT)
    });
}

/// Many are kept, so that to find the variants among them takes its time; nobody gets one meanwhile.
#[test]
fn what_is_changed_is_forgotten_at_once() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    let origin = counting(Family::Proxy);
    let server = start(Family::Proxy, &origin, "keepalive_requests 100000;");
    let vary = "X-Fields: Cache-Control: max-age=600|Vary: Foo\r\n";
    let mut client = server.connect();
    let mut ask = |method: &str, path: &str, fields: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        client.send(head.as_bytes());
        client.response()
    };
    for n in 0..1000 {
        ask("GET", &format!("/{n}"), "X-Fields: Cache-Control: max-age=600\r\n");
    }
    let hits = (0..30)
        .filter(|_| {
            for foo in ["1", "2"] {
                ask("GET", "/v", &format!("{vary}Foo: {foo}\r\n"));
            }
            assert_eq!(ask("DELETE", "/v", "").status, 200);
            ask("GET", "/v", &format!("{vary}Foo: 1\r\n"));
            let other = ask("GET", "/v", &format!("{vary}Foo: 2\r\n"));
            other.header("Cache-Status").is_some_and(|said| said.starts_with(HIT))
        })
        .count();
    assert_eq!(hits, 0);
}

/// What a 304 says of `Vary` is true of the answer that was kept.
#[test]
fn a_304_says_what_an_answer_varies_by() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(family, &origin, "");
        let fields = "X-Fields: Cache-Control: no-cache|ETag: \"e\"\r\n";
        expect(&server, "/", fields, MISS, "answer 1");
        let now = "X-304: Cache-Control: max-age=60|Vary: Foo\r\nFoo: 1\r\n";
        assert_eq!(get(&server, "/", now).body, "answer 1", "{family:?}");
        let varies = "X-Fields: Cache-Control: max-age=60|Vary: Foo\r\n";
        for (foo, body) in [("2", "answer 3"), ("3", "answer 4"), ("2", "answer 3")] {
            let got = get(&server, "/", &format!("{varies}Foo: {foo}\r\n"));
            assert_eq!(got.body, body, "{family:?} {foo}: {}", got.status);
        }
        // And of one that varied by something else.
        let fields = "X-Fields: Cache-Control: no-cache|ETag: \"e\"|Vary: Bar\r\n";
        expect(&server, "/v", fields, MISS, "answer 5");
        assert_eq!(get(&server, "/v", now).body, "answer 5", "{family:?}");
        assert_eq!(get(&server, "/v", &format!("{varies}Foo: 2\r\n")).body, "answer 7");
    }
}

#[test]
fn stale_answers() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    let origin = counting(Family::Proxy);
    let server = start(Family::Proxy, &origin, "proxy_cache_use_stale http_500 http_503;");
    let error = "X-Status: 503 Busy\r\n";
    let keep = |path: &str, control: &str| {
        get(&server, path, &format!("X-Fields: Cache-Control: {control}|Age: 70|ETag: \"e\"\r\n"))
            .body
    };
    for (path, control, will_do) in [
        ("/a", "max-age=60", true),
        ("/b", "max-age=60, stale-if-error=100", true),
        ("/c", "max-age=60, must-revalidate, stale-if-error=100", false),
        ("/d", "max-age=60, proxy-revalidate", false),
        ("/e", "s-maxage=60", false),
        ("/f", "s-maxage=60, stale-if-error=100", true),
        ("/g", "no-cache", false),
    ] {
        let kept = keep(path, control);
        let got = server.get_with(path, error);
        assert_eq!((got.status == 200, got.text() == kept), (will_do, will_do), "{control}");
        // What a client insists on is not given up either.
        let insists = format!("{error}Cache-Control: no-cache\r\n");
        assert_eq!(server.get_with(path, &insists).status, 503, "{control}");
    }
    // 502 is not configured: the answer says so itself, or the client does.
    let error = "X-Status: 502 Bad\r\n";
    keep("/h", "max-age=60");
    assert_eq!(server.get_with("/h", error).status, 502);
    let asks = format!("{error}Cache-Control: stale-if-error=100\r\n");
    assert_eq!(server.get_with("/h", &asks).status, 200);
    keep("/i", "max-age=60, stale-if-error=100");
    assert_eq!(server.get_with("/i", error).status, 200);
    keep("/j", "max-age=60, stale-if-error=1");
    assert_eq!(server.get_with("/j", error).status, 502);
    // A stale answer is sent while it is renewed.
    let kept = keep("/k", "max-age=60, stale-while-revalidate=1000");
    let fresh = "X-Fields: Cache-Control: max-age=60\r\n";
    expect(&server, "/k", fresh, "Weir; hit; ttl=-", &kept);
    expect_soon("it is renewed", || get(&server, "/k", "").body != kept);
}

#[test]
fn variants_are_told_apart_by_what_they_mean() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    let origin = counting(Family::Proxy);
    let server = start(Family::Proxy, &origin, "");
    let vary = "X-Fields: Cache-Control: max-age=60|Vary: X-L, accept-ENCODING|Vary: X-L\r\n";
    let first = "Accept-Encoding: gzip, br;q=0.5\r\nX-L: a, b\r\n";
    expect(&server, "/", &format!("{vary}{first}"), MISS, "answer 1");
    for same in [
        "Accept-Encoding: BR; q=0.5,gzip\r\nX-L:  a, b \r\n",
        "Accept-Encoding: br;q=0.5\r\nAccept-Encoding: gzip\r\nX-L: a\r\nX-L: b\r\n",
    ] {
        expect(&server, "/", same, HIT, "answer 1");
    }
    let miss = "Weir; fwd=vary-miss; fwd-status=200; stored";
    for (n, other) in [
        "Accept-Encoding: gzip\r\nX-L: a, b\r\n",
        "Accept-Encoding: gzip, br;q=0.5\r\nX-L: b, a\r\n",
        "X-L: a, b\r\n",
        "Accept-Encoding:\r\nX-L: a, b\r\n",
        "Accept-Encoding: gzip\r\nX-L: A, b\r\n",
        "Accept-Encoding: gzip\r\nX-L: a,b\r\n",
        "Accept-Encoding: gzip\r\nX-L: \"a ,b\"\r\n",
        "Accept-Encoding: gzip\r\nX-L: \"a,b\"\r\n",
    ]
    .iter()
    .enumerate()
    {
        let body = format!("answer {}", n + 2);
        expect(&server, "/", &format!("{vary}{other}"), miss, &body);
        expect(&server, "/", other, HIT, &body);
    }
}

#[test]
fn requests_for_one_answer_are_collapsed() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    let (go, gate) = mpsc::channel();
    let gate = Mutex::new(gate);
    let origin = Family::Proxy.origin(move |asked, answer| {
        let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
        let is_new = asked.param("REQUEST_URI") == Some("/new");
        let age = if is_new { "" } else { "Age: 70\r\n" };
        let fields = "Cache-Control: max-age=60\r\n";
        match asked.param("HTTP_IF_NONE_MATCH") {
            None => answer.reply("200 OK", &format!("{fields}{age}ETag: \"e\"\r\n"), "the answer"),
            Some(_) => answer.reply("304 Not Modified", fields, ""),
        }
    });
    let server = start(Family::Proxy, &origin, "");
    go.send(()).unwrap();
    expect(&server, "/stale", "", MISS, "the answer");
    // For what is not there, and for whether what is there still holds.
    let renewed = "Weir; fwd=stale; fwd-status=304; stored";
    for (n, (path, first)) in [("/new", MISS), ("/stale", renewed)].iter().enumerate() {
        let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| client.send_get(path));
        origin.expect_requests(n + 2);
        go.send(()).unwrap();
        let answers: Vec<_> = clients.iter_mut().map(|client| client.response()).collect();
        assert!(answers.iter().all(|r| r.text() == "the answer"));
        let said: Vec<&str> = answers.iter().filter_map(|r| r.header("Cache-Status")).collect();
        assert_eq!(said.iter().filter(|s| *s == first).count(), 1, "{path} {said:?}");
        assert_eq!(said.iter().filter(|s| s.starts_with(HIT)).count(), 4, "{path} {said:?}");
        assert_eq!(origin.requests().len(), n + 2);
    }
}

#[test]
fn heads_parts_and_servers_that_are_gone() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(
            family,
            &origin,
            "%%F%%_cache_revalidate off; gzip on; gzip_types *; gzip_min_length 1;",
        );
        let fields = "X-Fields: Cache-Control: max-age=60|ETag: \"e\"|Accept-Ranges: bytes|Content-Type: text/plain\r\n";
        expect(&server, "/", fields, MISS, "answer 1");
        let part = server.get_with("/", "Range: bytes=0-2\r\n");
        assert_eq!((part.status, part.text().as_str()), (206, "ans"), "{family:?}");
        let same = server.get_with("/", "If-None-Match: \"e\"\r\n");
        assert_eq!((same.status, same.header("Age").is_some()), (304, true), "{family:?}");
        let head = server.head("/");
        assert_eq!((head.status, head.header("Content-Length")), (200, Some("8")), "{family:?}");
        let packed = server.get_with("/", "Accept-Encoding: gzip\r\n");
        assert_eq!(packed.header("Content-Encoding"), Some("gzip"), "{family:?}");
        assert!(packed.header("Cache-Status").unwrap().starts_with(HIT), "{family:?}");
        // A server that is not there is an error like any other.
        for (path, control) in [("/e", "stale-if-error=1000"), ("/m", "must-revalidate")] {
            let fields =
                format!("X-Fields: Cache-Control: max-age=60, {control}|Age: 70|ETag: \"e\"\r\n");
            get(&server, path, &fields);
        }
        drop(origin);
        let stale = server.get("/e");
        assert_eq!(
            (stale.status, stale.header("Cache-Status")),
            (200, Some("Weir; fwd=stale")),
            "{family:?}"
        );
        assert_eq!(server.get("/m").status, 502, "{family:?}");
        expect(&server, "/", "", HIT, "answer 1");
    }
}

/// Anything may come in these fields.
#[test]
fn odd_directives_do_no_harm() {
    if !is_weir() {
        return skip("nginx has no cache by the standards");
    }
    let origin = counting(Family::Proxy);
    let server = start(Family::Proxy, &origin, "");
    let long = "a=\"".repeat(500);
    for (n, odd) in [
        "\"",
        "=,=",
        ",,,",
        "max-age",
        "max-age=-1",
        "max-age=\"",
        "no-cache=\"",
        "private=",
        &long,
    ]
    .iter()
    .enumerate()
    {
        let fields = format!(
            "X-Fields: Cache-Control: {odd}|CDN-Cache-Control: {odd}\r\nCache-Control: {odd}\r\n"
        );
        for _ in 0..2 {
            assert_eq!(server.get_with(&format!("/{n}"), &fields).status, 200, "{odd}");
        }
    }
    assert!(get(&server, "/fine", "").status.starts_with(NOT_KEPT));
}
