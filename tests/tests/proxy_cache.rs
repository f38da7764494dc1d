//! `proxy_cache`: what HTTP has of its own, and answers that are on their way. What every family of
//! backends does is in `families_cache`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use weir_tests::{Next, Origin, Server, Setup, PATIENCE};

/// Says how often it was asked.
fn counting() -> Origin {
    let count = Arc::new(AtomicUsize::new(0));
    Origin::start(move |_, conn| {
        let n = count.fetch_add(1, Ordering::SeqCst) + 1;
        conn.reply("200 OK", "", &format!("answer {n}"));
        Next::Keep
    })
}

fn start(origin: &Origin, http: &str, location: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ proxy_cache_path %%DIR%%/cache levels=1:2 keys_zone=c:1m; {http}
            server {{ listen 127.0.0.1:%%PORT_0%%; add_header X-Status $upstream_cache_status;
                location / {{ proxy_pass http://%%ORIGIN%%; proxy_cache c; {location} }} }} }}"
    );
    Setup::new(&conf).set("ORIGIN", origin.address()).start()
}

/// Status of the cache and body of an answer.
fn get(server: &Server, path: &str, fields: &str) -> (String, String) {
    let r = server.get_with(path, fields);
    (r.header("X-Status").unwrap_or_default().to_string(), r.text())
}

#[track_caller]
fn expect(got: (String, String), status: &str, body: &str) {
    assert_eq!((got.0.as_str(), got.1.as_str()), (status, body));
}

#[test]
fn ranges_and_heads_come_from_the_whole() {
    let origin = counting();
    let server = start(&origin, "", "proxy_cache_valid 1m; proxy_force_ranges on;");
    let head = server.head("/");
    assert_eq!((head.status, head.text().as_str()), (200, ""));
    assert!(origin.only_request().head.starts_with("GET / "));
    expect(get(&server, "/", "Range: bytes=0-2\r\n"), "HIT", "ans");
    let several = server.get_with("/", "Range: bytes=0-0,2-2\r\n");
    let kind = several.header("Content-Type").unwrap_or_default();
    assert!(several.status == 206 && kind.starts_with("multipart/byteranges"), "{kind}");
}

/// nginx takes any 304 for a renewal, also that of a client whose copy is newer than what is kept.
#[test]
fn a_304_for_the_client_renews_nothing() {
    let origin = Origin::start(|request, conn| {
        match request.header("If-None-Match") {
            Some("\"new\"") => {
                conn.write("HTTP/1.1 304 Not Modified\r\nX-Accel-Expires: 60\r\n\r\n")
            }
            None if request.header("X-Fields").is_some() => {
                conn.reply("200 OK", "ETag: \"old\"\r\nX-Accel-Expires: @60\r\n", "old");
            }
            _ => conn.reply("200 OK", "ETag: \"new\"\r\nX-Accel-Expires: 60\r\n", "new"),
        }
        Next::Keep
    });
    let conf = "proxy_cache_revalidate on; proxy_cache_valid any 1m;
        proxy_set_header If-None-Match $http_if_none_match;";
    let server = start(&origin, "", conf);
    for path in ["/a", "/b"] {
        expect(get(&server, path, "X-Fields: 1\r\n"), "MISS", "old");
        let response = server.get_with(path, "If-None-Match: \"new\"\r\n");
        assert_eq!((response.status, response.text().as_str()), (304, ""));
        expect(get(&server, path, ""), "EXPIRED", "new");
        expect(get(&server, path, ""), "HIT", "new");
    }
    let response = server.get_with("/c", "If-None-Match: \"new\"\r\n");
    assert_eq!(response.status, 304);
    expect(get(&server, "/c", ""), "MISS", "new");
}

/// A server that says 304 without having been asked for one has not confirmed anything.
#[test]
fn a_304_to_no_condition_renews_nothing() {
    let count = Arc::new(AtomicUsize::new(0));
    let origin = Origin::start(move |_, conn| {
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => conn.reply("200 OK", "X-Accel-Expires: @60\r\n", "old"),
            1 => conn.write("HTTP/1.1 304 Not Modified\r\n\r\n"),
            _ => conn.reply("200 OK", "X-Accel-Expires: 60\r\n", "new"),
        }
        Next::Keep
    });
    let server = start(&origin, "", "proxy_cache_revalidate on;");
    expect(get(&server, "/", ""), "MISS", "old");
    assert_eq!(server.get("/").status, 304);
    expect(get(&server, "/", ""), "EXPIRED", "new");
}

/// What is expired is open still for who has asked, in case it is to be sent after all.
#[test]
fn large_answers_are_replaced() {
    let count = Arc::new(AtomicUsize::new(0));
    let origin = Origin::start(move |_, conn| {
        let (expires, sign) = match count.fetch_add(1, Ordering::SeqCst) {
            0 => ("@60", "a"),
            _ => ("60", "b"),
        };
        conn.reply("200 OK", &format!("X-Accel-Expires: {expires}\r\n"), &sign.repeat(300_000));
        Next::Keep
    });
    let server = start(&origin, "", "");
    for (status, sign) in [("MISS", "a"), ("EXPIRED", "b"), ("HIT", "b")] {
        let (got, text) = get(&server, "/", "");
        assert!(got == status && text == sign.repeat(300_000), "{got}, not {status}: {sign}");
    }
}

/// An origin that says how often it was asked, and sends the rest of an answer once it is told to.
fn gated() -> (Origin, mpsc::Sender<()>) {
    let (go, gate) = mpsc::channel();
    let gate = Mutex::new(gate);
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |request, conn| {
        let n = count.fetch_add(1, Ordering::SeqCst) + 1;
        let vary = if request.target().starts_with("/v") { "Vary: Foo\r\n" } else { "" };
        conn.write(format!("HTTP/1.1 200 OK\r\n{vary}Content-Length: 8\r\n\r\n"));
        conn.write("answer");
        let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
        conn.write(format!(" {n}"));
        Next::Keep
    });
    (origin, go)
}

#[test]
fn a_purge_reaches_an_answer_that_is_on_its_way() {
    let (origin, go) = gated();
    let server = start(
        &origin,
        "map $request_method $purge { PURGE 1; default 0; }",
        "proxy_cache_valid 1m; proxy_cache_key $uri; proxy_cache_purge $purge;",
    );
    let purge = |path: &str| server.request("PURGE", path, "").status;
    for (turn, (path, purged)) in [("/a", "/a"), ("/b/1", "/b/*"), ("/v", "/v")].iter().enumerate()
    {
        let mut client = server.connect();
        client.send_get(path);
        origin.expect_requests(2 * turn + 1);
        assert_eq!((purge("/other"), purge(purged)), (404, 204), "{path}");
        go.send(()).unwrap();
        assert_eq!(client.response().text(), format!("answer {}", 2 * turn + 1));
        go.send(()).unwrap();
        let fresh = format!("answer {}", 2 * turn + 2);
        expect(get(&server, path, ""), "MISS", &fresh);
        expect(get(&server, path, ""), "HIT", &fresh);
    }
}

#[test]
fn who_waited_for_a_purged_answer_gets_a_fresh_one() {
    let (origin, go) = gated();
    let server = start(
        &origin,
        "map $request_method $purge { PURGE 1; default 0; }",
        "proxy_cache_valid 1m; proxy_cache_key $uri; proxy_cache_purge $purge; proxy_cache_lock on;",
    );
    let mut first = server.connect();
    first.send_get("/");
    origin.expect_requests(1);
    assert_eq!(server.request("PURGE", "/", "").status, 204);
    let mut second = server.connect();
    second.send_get("/");
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!(first.response().text(), "answer 1");
    assert_eq!(second.response().text(), "answer 2");
    expect(get(&server, "/", ""), "HIT", "answer 2");
}

/// As nginx's documentation has it for several disks.
#[test]
fn answers_are_spread_over_several_paths() {
    let origin = counting();
    let conf = "events {} http { proxy_cache_path %%DIR%%/one keys_zone=one:1m; proxy_cache_path %%DIR%%/two keys_zone=two:1m;
        split_clients $request_uri $zone { 50% one; * two; }
        server { listen 127.0.0.1:%%PORT_0%%; add_header X-Status $upstream_cache_status;
            location / { proxy_pass http://%%ORIGIN%%; proxy_cache $zone; proxy_cache_valid 1m; } } }";
    let server = Setup::new(conf).set("ORIGIN", origin.address()).start();
    let paths: Vec<String> = (0..40).map(|n| format!("/{n}")).collect();
    for status in ["MISS", "HIT"] {
        assert!(paths.iter().all(|path| get(&server, path, "").0 == status), "{status}");
    }
    let files =
        ["one", "two"].map(|dir| std::fs::read_dir(server.dir().join(dir)).unwrap().count());
    assert!(files[0] > 0 && files[1] > 0 && files[0] + files[1] == 40, "{files:?}");
}

/// As nginx, which asks when the header has been made: what header filters have set is heard.
#[test]
fn whether_it_is_kept_is_asked_behind_header_filters() {
    let origin = counting();
    let server = start(
        &origin,
        "map $sent_http_x_private $private { default 0; yes 1; }",
        "proxy_cache_valid 1m; set $no 0; proxy_no_cache $no $private;
         header_filter_by_lua_block { if ngx.var.arg_no then ngx.var.no = 1 end ngx.header['X-Private'] = ngx.var.arg_private }",
    );
    expect(get(&server, "/?no=1", ""), "MISS", "answer 1");
    expect(get(&server, "/?no=1", ""), "MISS", "answer 2");
    expect(get(&server, "/?private=yes", ""), "MISS", "answer 3");
    expect(get(&server, "/?private=yes", ""), "MISS", "answer 4");
    expect(get(&server, "/", ""), "MISS", "answer 5");
    expect(get(&server, "/", ""), "HIT", "answer 5");
}

/// An answer that came without a length has none either when it is kept.
#[test]
fn what_came_in_chunks_leaves_in_chunks() {
    let origin = Origin::start(|_, conn| {
        conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nanswer\r\n0\r\n\r\n");
        Next::Keep
    });
    let server = start(&origin, "", "proxy_cache_valid 1m;");
    for status in ["MISS", "HIT"] {
        let r = server.get("/");
        assert_eq!((r.header("X-Status"), r.text().as_str()), (Some(status), "answer"));
        let framing = (r.header("Content-Length"), r.header("Transfer-Encoding"));
        assert_eq!(framing, (None, Some("chunked")), "{status}");
    }
    let old = server.raw(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let old = String::from_utf8_lossy(&old).into_owned();
    assert!(old.contains("Connection: close") && old.ends_with("\r\n\r\nanswer"), "{old}");
}
