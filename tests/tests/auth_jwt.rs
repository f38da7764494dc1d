//! `auth_jwt`: access by tokens, keys from files and from subrequests, variables of what they say.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use weir_tests::{run_cli, Next, Origin, Server, Setup};

const KEYS: &str = include_str!("../../crates/jwt/testdata/keys.json");
const TOKENS: &str = include_str!("../../crates/jwt/testdata/tokens.tsv");

const CONF: &str = r#"events {} http { auth_jwt_claim_set $deep nested deep x; auth_jwt_header_set $key_id kid;
    auth_jwt_claim_set $is_admin role;
    map $jwt_claim_role $allowed { admin 1; } limit_req_zone $jwt_claim_sub zone=z:1m rate=1r/m;
    log_format claims "$status $jwt_claim_sub"; access_log %%DIR%%/claims.log claims;
    server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log info; default_type text/plain;
    auth_jwt "closed $arg_realm"; auth_jwt_key_file keys.json;
    location /say { echo "$jwt_claim_sub|$jwt_header_alg|$jwt_claim_aud|$jwt_claim_n|$jwt_claim_ok|$deep|$key_id|$jwt_claim_none|$jwt_payload"; }
    location /open { auth_jwt off; echo "open $jwt_claim_sub"; }
    location /switched { auth_jwt $arg_realm; echo in; }
    location /cookie { auth_jwt closed token=$cookie_token; echo "$jwt_claim_sub"; }
    location /sealed { auth_jwt_type encrypted; echo "$jwt_claim_sub $jwt_payload"; }
    location /nested { auth_jwt_type nested; echo "$jwt_claim_sub $jwt_header_alg"; }
    location /required { auth_jwt_require $allowed; auth_jwt_require $arg_more error=403; echo in; }
    location /limited { limit_req zone=z; limit_req_status 429; echo in; }
    location /rewritten { if ($jwt_claim_sub = alice) { return 204; } echo in; }
    location /circle { auth_jwt c token=$jwt_claim_token; echo in; }
    location /any { satisfy any; deny all; echo in; }
    location /either { satisfy any; allow 127.0.0.1; deny all; auth_jwt_key_file keys.json;
        if ($jwt_claim_sub = nobody) { return 204; } echo "[$jwt_claim_sub]"; }
    location /page { satisfy any; allow 127.0.0.1; auth_jwt_key_file keys.json; echo_location /part; }
    location /part { echo "part [$jwt_claim_sub]"; }
    location /later { auth_jwt_leeway 1h; echo in; }
    location /broken { auth_jwt_key_file none.json; echo in; }
    location /pipe { auth_jwt_key_file pipe; echo in; }
    location /asked { auth_jwt_key_request /_keys; echo "$jwt_claim_sub"; }
    location /kept { auth_jwt_key_request /_keys; auth_jwt_key_cache 1h; echo "$jwt_claim_sub"; }
    location /brief { auth_jwt_key_request /_slow; auth_jwt_key_cache 1ms; echo "$jwt_claim_sub"; }
    location /_slow { internal; auth_jwt off; proxy_pass http://127.0.0.1:%%UP%%; }
    location /_keys { internal; auth_jwt off; proxy_pass http://127.0.0.1:%%UP%%; }
    location /put { limit_except GET { auth_jwt put; } auth_jwt off; echo in; }
} }"#;

fn token(name: &str) -> &'static str {
    let line = TOKENS.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    line.unwrap_or_else(|| panic!("no token {name}"))
}

fn bearer(name: &str) -> String {
    format!("Authorization: Bearer {}\r\n", token(name))
}

/// The address lets in, so that nobody looks at the token: what it claims is not what a backend is told.
#[test]
fn who_is_let_in_by_something_else_claims_nothing() {
    let server = start(9);
    // {"alg":"none"}, {"sub":"admin"}
    let forged = "Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.\r\n";
    assert_eq!(server.get_with("/either", forged).text(), "[]\n");
    assert_eq!(server.get_with("/either", &bearer("ES512")).text(), "[]\n");
    assert_eq!(server.get_with("/page", forged).text(), "part []\n");
    assert_eq!(server.get_with("/page", &bearer("ES512")).text(), "part [alice]\n");
}

/// Keys that are kept are those of one host.
#[test]
fn keys_of_one_host_are_not_anothers() {
    let conf = r#"events {} http { error_log %%DIR%%/error.log info; server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
        location / { auth_jwt x; auth_jwt_key_request /_keys; auth_jwt_key_cache 1h; echo in; }
        location = /_keys { internal; auth_jwt off; try_files /$host.json =404; } } }"#;
    let none = r#"{"keys":[]}"#;
    let server = Setup::new(conf).file("a.json", KEYS).file("b.json", none).start();
    let ask = |host: &str| {
        let head = format!("GET / HTTP/1.0\r\nHost: {host}\r\n{}\r\n", bearer("ES512"));
        String::from_utf8_lossy(&server.raw(head.as_bytes()))[9..12].to_string()
    };
    assert_eq!([ask("a"), ask("b"), ask("a"), ask("b")], ["200", "401", "200", "401"]);
}

fn start(up: u16) -> Server {
    Setup::new(CONF).set("UP", up).file("keys.json", KEYS).start()
}

#[test]
fn who_has_a_token_is_let_in() {
    let server = start(9);
    let get = |path: &str, name: &str| server.get_with(path, &bearer(name));
    let said = "alice|ES512|a,b|12345678901234567890123|true|y|P-521||\n";
    assert_eq!(get("/say", "ES512").text(), said);
    for name in ["HS384", "RS256", "EdDSA", "no-kid"] {
        assert_eq!(get("/say", name).status, 200, "{name}");
    }
    for name in
        ["expired", "early", "text-exp", "stranger", "confused", "none", "crit", "dir/A256GCM"]
    {
        let answer = get("/say?realm=x", name);
        let challenge = answer.header("WWW-Authenticate");
        assert_eq!(
            (answer.status, challenge),
            (401, Some("Bearer realm=\"closed x\",error=\"invalid_token\"")),
            "{name}"
        );
    }
    server.expect_error("JWT is refused: it has expired");
    let answer = server.get("/say");
    assert_eq!(
        (answer.status, answer.header("WWW-Authenticate")),
        (401, Some("Bearer realm=\"closed \""))
    );
    assert_eq!(server.get_with("/say", "Authorization: Basic YTpi\r\n").status, 401);
    assert_eq!(get("/open", "HS256").text(), "open \n");
    assert_eq!(
        (server.get("/switched?realm=off").status, server.get("/switched?realm=on").status),
        (200, 401)
    );
    let cookie = format!("Cookie: token={}\r\n", token("HS256"));
    assert_eq!(server.get_with("/cookie", &cookie).text(), "alice\n");
    assert_eq!(get("/cookie", "HS256").status, 401);
    assert_eq!((server.get("/any").status, get("/any", "HS256").status), (401, 200));
    assert_eq!((server.get("/put").status, server.post("/put", "").status), (200, 401));
    assert_eq!((get("/later", "expired").status, get("/later", "HS256").status), (401, 200));
}

#[test]
fn encrypted_tokens() {
    let server = start(9);
    let get = |path: &str, name: &str| server.get_with(path, &bearer(name));
    let page = get("/sealed", "A192GCMKW/A128CBC-HS256");
    assert!(page.text().starts_with("alice {\"sub\": \"alice\""), "{}", page.text());
    assert_eq!(get("/nested", "nested").text(), "alice ES256\n");
    for (path, name) in [
        ("/sealed", "HS256"),
        ("/sealed", "sealed-zip"),
        ("/nested", "nested-forged"),
        ("/nested", "dir/A256GCM"),
    ] {
        assert_eq!(get(path, name).status, 401, "{path} {name}");
    }
}

#[test]
fn what_is_required() {
    let server = start(9);
    let get = |path: &str| server.get_with(path, &bearer("HS256")).status;
    assert_eq!(
        (get("/required?more=1"), get("/required?more=0"), get("/required")),
        (200, 403, 403)
    );
}

/// Limits come before access: they go by what a token says, whether it holds or not. What is logged holds.
#[test]
fn claims_before_they_are_checked() {
    let server = start(9);
    let get = |path: &str, name: &str| server.get_with(path, &bearer(name)).status;
    assert_eq!(
        (get("/limited", "HS256"), get("/limited", "HS256"), server.get("/limited").status),
        (200, 429, 401)
    );
    assert_eq!(
        (
            get("/rewritten", "HS256"),
            get("/rewritten", "stranger"),
            server.get("/rewritten").status
        ),
        (204, 204, 401)
    );
    assert_eq!(
        (get("/say", "stranger"), get("/circle", "HS256"), get("/open", "HS256")),
        (401, 401, 200)
    );
    let log = server.log_lines("claims.log", 9);
    assert_eq!(log[0], "200 alice");
    assert_eq!(log[6..], ["401 -", "401 -", "200 -"]);
}

#[test]
fn keys_of_files() {
    let server = start(9);
    let get = |path: &str| server.get_with(path, &bearer("HS256")).status;
    assert_eq!((get("/say"), get("/broken")), (200, 500));
    server.expect_error("none.json\" failed (2: No such file or directory)");
    // Another file counts from the next request on, and one that is broken lets nobody in.
    server.write("keys.json", "{\"keys\":[]}");
    assert_eq!(get("/say"), 401);
    server.write("keys.json", "{\"keys\":[");
    assert_eq!(get("/say"), 500);
    server.write("keys.json", KEYS);
    assert_eq!(get("/say"), 200);
}

/// Nobody writes to it, and nobody waits for that.
#[test]
fn a_pipe_is_no_file_of_keys() {
    let server = start(9);
    let made = std::process::Command::new("mkfifo").arg(server.dir().join("pipe")).status();
    assert!(made.unwrap().success());
    assert_eq!(server.get_with("/pipe", &bearer("HS256")).status, 500);
    server.expect_error("pipe\" failed (it is no regular file)");
}

#[test]
fn keys_that_are_asked_for() {
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = Arc::clone(&broken);
    let origin = Origin::start(move |_, to| {
        match is_broken.load(Ordering::Relaxed) {
            true => to.reply("404 Not Found", "", KEYS),
            false => to.reply("200 OK", "", KEYS),
        }
        Next::Keep
    });
    let server = start(origin.port());
    let get = |path: &str| server.get_with(path, &bearer("ES256")).status;
    assert_eq!((get("/asked"), get("/asked"), origin.requests().len()), (200, 200, 2));
    assert_eq!((get("/kept"), get("/kept"), origin.requests().len()), (200, 200, 3));
    assert_eq!((server.get("/asked").status, origin.requests().len()), (401, 3));
    broken.store(true, Ordering::Relaxed);
    assert_eq!((get("/asked"), get("/kept")), (500, 200));
    server.expect_error("the request for keys \"/_keys\" was answered with 404");
}

/// As long as there are none yet, one request asks for all that wait; a client that goes lets the next ask.
#[test]
fn one_asks_for_the_first_keys() {
    let (begin, wait) = std::sync::mpsc::channel::<bool>();
    let wait = Mutex::new(wait);
    let origin = Origin::start(move |_, to| {
        let is_there = wait.lock().unwrap().recv() == Ok(true);
        match is_there {
            true => to.reply("200 OK", "Connection: close\r\n", KEYS),
            // The server may have gone, with its client.
            false => drop(to.try_write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")),
        }
        Next::Close
    });
    let server = start(origin.port());
    let ask = || {
        let mut client = server.connect();
        client.send(format!("GET /kept HTTP/1.1\r\nHost: a\r\n{}\r\n", bearer("ES256")).as_bytes());
        client
    };
    // One worker takes requests in the order in which they come.
    let all_wait = || assert_eq!(server.get("/open").status, 200);
    let first = ask();
    origin.expect_requests(1);
    drop(first);
    let mut waiting: Vec<_> = (0..20).map(|_| ask()).collect();
    all_wait();
    // What failed did so for all who waited.
    begin.send(false).unwrap();
    begin.send(false).unwrap();
    let failed: Vec<u16> = waiting.iter_mut().map(|client| client.response().status).collect();
    assert!(failed.iter().all(|status| *status == 500), "{failed:?}");
    let before = origin.requests().len();
    assert!(before <= 2, "{before}");
    let mut waiting: Vec<_> = (0..20).map(|_| ask()).collect();
    all_wait();
    origin.expect_requests(before + 1);
    begin.send(true).unwrap();
    let found: Vec<u16> = waiting.iter_mut().map(|client| client.response().status).collect();
    assert!(found.iter().all(|status| *status == 200), "{found:?}");
    assert_eq!(origin.requests().len(), before + 1);
}

/// Where tokens are asked for and nobody has keys the test of the configuration says so.
#[test]
fn a_test_tells_that_there_are_no_keys() {
    let told = "\"auth_jwt\" has no keys";
    for (conf, times) in [
        ("auth_jwt a; auth_jwt_key_file k; location /a { auth_jwt b; }", 0),
        ("auth_jwt a; location /a { auth_jwt_key_file k; }", 0),
        ("location /a { auth_jwt off; }", 0),
        ("auth_jwt a; location /a { } location /b { }", 1),
        ("location /a { auth_jwt a; }\nlocation /b { auth_jwt b; }", 2),
    ] {
        let conf =
            format!("events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%%; {conf} }} }}");
        let said = run_cli(&["-t"], &conf);
        assert_eq!(
            (said.code, said.stderr.matches(told).count()),
            (0, times),
            "{conf}: {}",
            said.stderr
        );
    }
}

/// When its time is over one request asks for a set, and others do not wait for it.
#[test]
fn one_asks_when_the_time_is_over() {
    let (begin, wait) = std::sync::mpsc::channel::<()>();
    let (count, wait) = (AtomicUsize::new(0), Mutex::new(wait));
    let origin = Origin::start(move |_, to| {
        if count.fetch_add(1, Ordering::Relaxed) == 1 {
            let _ = wait.lock().unwrap().recv();
        }
        to.reply("200 OK", "", KEYS);
        Next::Keep
    });
    let server = start(origin.port());
    let get = || server.get_with("/brief", &bearer("ES256")).status;
    assert_eq!(get(), 200);
    // Its time, which is a millisecond.
    std::thread::sleep(std::time::Duration::from_millis(5));
    let mut late = server.connect();
    late.send(
        format!("GET /brief HTTP/1.1\r\nHost: localhost\r\n{}\r\n", bearer("ES256")).as_bytes(),
    );
    origin.expect_requests(2);
    assert_eq!((get(), get(), get(), origin.requests().len()), (200, 200, 200, 2));
    begin.send(()).unwrap();
    assert_eq!(late.response().status, 200);
}

#[test]
fn what_is_refused() {
    for (line, error) in [
        ("auth_jwt a token=b;", "\"token\" must be a variable"),
        ("auth_jwt a b;", "invalid"),
        ("auth_jwt_type opened;", "it must be one of"),
        ("auth_jwt_require error=403;", "no value is required"),
        ("auth_jwt_require $uri error=500;", "must be 401 or 403"),
        ("auth_jwt_leeway x;", "invalid"),
        ("auth_jwt_key_cache x;", "invalid"),
    ] {
        let conf =
            format!("events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%%; {line} }} }}");
        let said = run_cli(&["-t"], &conf);
        assert!(said.code == 1 && said.stderr.contains(error), "{line}: {}", said.stderr);
    }
}
