//! The cache's directives, the same in every family of backends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use weir_tests::cgi::Asked;
use weir_tests::family::{Family, FAMILIES};
use weir_tests::{expect_soon, Origin, Server, PATIENCE};

/// Says how often it was asked; the answer's fields are the client's `X-Fields`.
fn counting(family: Family) -> Origin {
    let count = AtomicUsize::new(0);
    family.origin(move |asked, answer| {
        let n = count.fetch_add(1, Ordering::SeqCst) + 1;
        answer.reply("200 OK", &fields(asked), &format!("answer {n}"));
    })
}

fn fields(asked: &Asked) -> String {
    let fields = asked.param("HTTP_X_FIELDS").unwrap_or_default();
    fields.split_terminator('|').map(|field| format!("{field}\r\n")).collect()
}

fn start(family: Family, origin: &Origin, location: &str) -> Server {
    start_with(family, origin, "", location)
}

fn start_with(family: Family, origin: &Origin, http: &str, location: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ {http} %%F%%_cache_path %%DIR%%/cache levels=1:2 keys_zone=c:1m;
            server {{ listen 127.0.0.1:%%PORT_0%%; add_header X-Status $upstream_cache_status;
                location / {{ %%F%%_pass %%TO%%; %%PARAMS%% %%F%%_cache c; %%F%%_cache_key $uri; {location} }} }} }}"
    );
    family.setup(&conf, origin).start()
}

/// Status of the cache and body of an answer.
fn get(server: &Server, path: &str, fields: &str) -> (String, String) {
    let r = server.get_with(path, fields);
    (r.header("X-Status").unwrap_or_default().to_string(), r.text())
}

#[track_caller]
fn expect(family: Family, got: (String, String), status: &str, body: &str) {
    assert_eq!((got.0.as_str(), got.1.as_str()), (status, body), "{family:?}");
}

#[test]
fn keys_and_what_passes_by() {
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(
            family,
            &origin,
            "%%F%%_cache_valid 1m; %%F%%_cache_bypass $arg_b; %%F%%_no_cache $arg_n; %%F%%_cache_methods POST;",
        );
        let expect = |got, status, body| expect(family, got, status, body);
        expect(get(&server, "/a", ""), "MISS", "answer 1");
        expect(get(&server, "/a", ""), "HIT", "answer 1");
        expect(get(&server, "/a?b=1", ""), "BYPASS", "answer 2");
        expect(get(&server, "/a", ""), "HIT", "answer 2");
        expect(get(&server, "/n?n=1", ""), "MISS", "answer 3");
        expect(get(&server, "/n", ""), "MISS", "answer 4");
        assert_eq!(server.post("/p", "x").text(), "answer 5", "{family:?}");
        assert_eq!(server.post("/p", "x").text(), "answer 5", "{family:?}");
    }
}

#[test]
fn only_what_is_asked_for_often_is_kept() {
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(family, &origin, "%%F%%_cache_valid 1m; %%F%%_cache_min_uses 3;");
        for n in 1..=3 {
            expect(family, get(&server, "/", ""), "MISS", &format!("answer {n}"));
        }
        expect(family, get(&server, "/", ""), "HIT", "answer 3");
    }
}

#[test]
fn ranges_come_from_the_whole_up_to_an_offset() {
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(
            family,
            &origin,
            "%%F%%_cache_valid 1m; %%F%%_cache_max_range_offset 100; %%F%%_force_ranges on;
             %%F%%_pass_request_headers on;",
        );
        expect(family, get(&server, "/", "Range: bytes=0-2\r\n"), "MISS", "ans");
        expect(family, get(&server, "/", "Range: bytes=7-\r\n"), "HIT", "1");
        // Behind the offset the range is passed on, and nothing is kept.
        get(&server, "/far", "Range: bytes=200-\r\n");
        assert_eq!(get(&server, "/far", "").0, "MISS", "{family:?}");
    }
}

#[test]
fn a_stale_answer_is_confirmed_by_the_server() {
    for family in FAMILIES {
        let origin = family.origin(|asked, answer| match asked.param("HTTP_IF_NONE_MATCH") {
            Some("\"e\"") => answer.reply("304 Not Modified", "X-Accel-Expires: 60\r\n", ""),
            _ => answer.reply("200 OK", "ETag: \"e\"\r\nX-Accel-Expires: @60\r\n", "body"),
        });
        let server = start(family, &origin, "%%F%%_cache_revalidate on;");
        expect(family, get(&server, "/", ""), "MISS", "body");
        expect(family, get(&server, "/", ""), "REVALIDATED", "body");
        expect(family, get(&server, "/", ""), "HIT", "body");
    }
}

#[test]
fn stale_answers_when_the_server_fails() {
    for family in FAMILIES {
        let asked = AtomicUsize::new(0);
        let origin = family.origin(move |_, answer| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => answer.reply("200 OK", "X-Accel-Expires: @60\r\n", "good"),
            _ => answer.reply("500 No", "", "bad"),
        });
        let server = start(family, &origin, "%%F%%_cache_use_stale http_500;");
        expect(family, get(&server, "/", ""), "MISS", "good");
        expect(family, get(&server, "/", ""), "STALE", "good");
    }
}

#[test]
fn a_background_update_renews_behind_the_answer() {
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(
            family,
            &origin,
            "%%F%%_cache_use_stale updating; %%F%%_cache_background_update on; %%F%%_cache_valid 1m;",
        );
        get(&server, "/", "X-Fields: X-Accel-Expires: @60\r\n");
        expect(family, get(&server, "/", ""), "STALE", "answer 1");
        expect_soon("the renewed answer", || get(&server, "/", "").1 == "answer 2");
        expect(family, get(&server, "/", ""), "HIT", "answer 2");
    }
}

/// Answers one request after each word that comes through the channel.
fn gated(family: Family) -> (Origin, mpsc::Sender<()>, Arc<AtomicUsize>) {
    let (go, gate) = mpsc::channel::<()>();
    let (gate, asked) = (Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let origin = family.origin(move |_, answer| {
        count.fetch_add(1, Ordering::SeqCst);
        let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
        answer.reply("200 OK", "", "filled");
    });
    (origin, go, asked)
}

#[test]
fn one_request_fills_and_the_others_wait() {
    for family in FAMILIES {
        let (origin, go, asked) = gated(family);
        let server = start(
            family,
            &origin,
            "%%F%%_cache_valid 1m; %%F%%_cache_lock on; %%F%%_cache_lock_age 60s; %%F%%_cache_lock_timeout 60s;",
        );
        let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| client.send_get("/"));
        expect_soon("the request at the origin", || asked.load(Ordering::SeqCst) == 1);
        go.send(()).unwrap();
        clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "filled"));
        assert_eq!(asked.load(Ordering::SeqCst), 1, "{family:?}");
    }
}

#[test]
fn those_who_wait_for_a_fill_wait_only_so_long() {
    for family in FAMILIES {
        for (limit, statuses) in [("timeout", ["MISS", "MISS"]), ("age", ["MISS", "MISS"])] {
            let (origin, go, asked) = gated(family);
            let conf = format!(
                "%%F%%_cache_valid 1m; %%F%%_cache_lock on; %%F%%_cache_lock_{limit} 100ms;"
            );
            let server = start(family, &origin, &conf);
            let mut clients = [server.connect(), server.connect()];
            clients.iter_mut().for_each(|client| client.send_get("/"));
            expect_soon("the second request as well", || asked.load(Ordering::SeqCst) == 2);
            go.send(()).unwrap();
            go.send(()).unwrap();
            let answers = clients.map(|mut client| client.response());
            let seen = answers.each_ref().map(|r| r.header("X-Status").unwrap_or_default());
            assert_eq!(seen, statuses, "{family:?} {limit}");
        }
    }
}

#[test]
fn entries_are_purged() {
    for family in FAMILIES {
        let origin = counting(family);
        let server = start_with(
            family,
            &origin,
            "map $request_method $purge { PURGE 1; default 0; }",
            "%%F%%_cache_valid 1m; %%F%%_cache_purge $purge;",
        );
        let purge = |path: &str| server.request("PURGE", path, "").status;
        let expect = |got, status, body| expect(family, got, status, body);
        expect(get(&server, "/", ""), "MISS", "answer 1");
        assert_eq!(purge("/"), 204, "{family:?}");
        expect(get(&server, "/", ""), "MISS", "answer 2");
        for path in ["/a/1", "/a/2", "/b"] {
            get(&server, path, "");
        }
        assert_eq!((purge("/a/1"), purge("/a/1")), (204, 404), "{family:?}");
        assert_eq!(get(&server, "/a/1", "").0, "MISS", "{family:?}");
        assert_eq!(purge("/a/*"), 204, "{family:?}");
        for (path, status) in [("/a/1", "MISS"), ("/a/2", "MISS"), ("/b", "HIT")] {
            assert_eq!(get(&server, path, "").0, status, "{family:?} {path}");
        }
        let foos = ["1", "2"].map(|foo| format!("X-Fields: Vary: Foo\r\nFoo: {foo}\r\n"));
        foos.iter().for_each(|fields| drop(get(&server, "/v", fields)));
        assert_eq!(purge("/v"), 204, "{family:?}");
        for fields in &foos {
            assert_eq!(get(&server, "/v", fields).0, "MISS", "{family:?}");
        }
    }
}

#[test]
fn what_the_answer_says_counts() {
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(family, &origin, "%%F%%_cache_valid 1m;");
        let said = ["Cache-Control: no-cache", "Set-Cookie: a=b", "Vary: *", "X-Accel-Expires: 0"];
        for (i, fields) in said.iter().enumerate() {
            let path = format!("/{i}");
            get(&server, &path, &format!("X-Fields: {fields}\r\n"));
            assert_eq!(get(&server, &path, "").0, "MISS", "{family:?} {fields}");
        }
        get(&server, "/old", "X-Fields: X-Accel-Expires: @60\r\n");
        assert_eq!(get(&server, "/old", "").0, "EXPIRED", "{family:?}");
    }
}

#[test]
fn variants() {
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(family, &origin, "%%F%%_cache_valid 1m;");
        let vary = "X-Fields: Vary: Foo\r\n";
        for (i, foo) in ["1", "2"].iter().enumerate() {
            let got = get(&server, "/", &format!("{vary}Foo: {foo}\r\n"));
            expect(family, got, "MISS", &format!("answer {}", i + 1));
        }
        expect(family, get(&server, "/", "Foo: 1\r\n"), "HIT", "answer 1");
        expect(family, get(&server, "/", "Foo: 2\r\n"), "HIT", "answer 2");
    }
}

#[test]
fn stored_as_plain_files() {
    use std::os::unix::fs::PermissionsExt;
    for family in FAMILIES {
        let origin = counting(family);
        let conf = "events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / {
            %%F%%_pass %%TO%%; %%PARAMS%%
            %%F%%_store %%DIR%%/kept$uri; %%F%%_store_access user:rw group:r; } } }";
        let server = family.setup(conf, &origin).start();
        assert_eq!(server.get("/x/y").text(), "answer 1", "{family:?}");
        assert_eq!(server.read("kept/x/y"), "answer 1", "{family:?}");
        let file = std::fs::metadata(server.dir().join("kept/x/y")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o640, "{family:?}");
    }
}

#[test]
fn what_the_answer_says_may_be_ignored() {
    for family in FAMILIES {
        let origin = counting(family);
        let server = start(
            family,
            &origin,
            "%%F%%_cache_valid 1m; %%F%%_ignore_headers Cache-Control Set-Cookie;",
        );
        get(&server, "/", "X-Fields: Cache-Control: no-store|Set-Cookie: a=b|\r\n");
        expect(family, get(&server, "/", ""), "HIT", "answer 1");
        get(&server, "/x", "X-Fields: X-Accel-Expires: 0|\r\n");
        expect(family, get(&server, "/x", ""), "MISS", "answer 3");
    }
}
