//! srcache: answers kept by subrequests, here in a memcached.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use weir_tests::{expect_soon, run_cli, skip, wait_for, Next, Origin, Server, Setup, AT_LAST};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

type Values = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// A memcached that knows `get` and `set`.
fn memcached() -> (Origin, Values) {
    let values = Values::default();
    let theirs = Arc::clone(&values);
    let origin = Origin::start_raw(move |conn, _| {
        while let Some(line) = conn.read_until(b"\r\n") {
            let line = String::from_utf8_lossy(&line).trim_end().to_string();
            let words: Vec<&str> = line.split(' ').collect();
            if words[0] == "set" {
                let Some(value) = conn.read_exactly(words[4].parse::<usize>().unwrap() + 2) else {
                    return;
                };
                let value = value[..value.len() - 2].to_vec();
                theirs.lock().unwrap().insert(words[1].to_string(), value);
                conn.write("STORED\r\n");
                continue;
            }
            let found = theirs.lock().unwrap().get(words[1]).cloned();
            if let Some(value) = found {
                conn.write(format!("VALUE {} 0 {}\r\n", words[1], value.len()));
                conn.write(value);
                conn.write("\r\n");
            }
            conn.write("END\r\n");
        }
    });
    (origin, values)
}

/// Says how often it was asked; the answer's status and fields are the client's to say.
fn counting() -> Origin {
    let count = AtomicUsize::new(0);
    Origin::start(move |request, conn| {
        let n = count.fetch_add(1, Ordering::SeqCst) + 1;
        let fields = request.header("X-Fields").unwrap_or_default();
        let fields: String = fields.split_terminator('|').map(|f| format!("{f}\r\n")).collect();
        let status = request.header("X-Status").unwrap_or("200 OK").to_string();
        conn.reply(&status, &fields, &format!("answer {n} to {}", request.text()));
        Next::Keep
    })
}

struct Site {
    server: Server,
    origin: Origin,
    values: Values,
    _memcached: Origin,
}

fn site(http: &str, location: &str) -> Site {
    let (memcached, values) = memcached();
    let origin = counting();
    let conf = format!(
        "error_log %%DIR%%/error.log warn; events {{}} http {{ upstream m {{ server %%MEMCACHED%%; keepalive 2; }} {http}
            server {{ listen 127.0.0.1:%%PORT_0%%;
                add_header X-Srcache \"$srcache_fetch_status $srcache_store_status $srcache_expire\" always;
                location / {{ set $key $uri; srcache_fetch GET /memc $key;
                    srcache_store PUT /memc key=$key&exptime=$srcache_expire; {location}
                    proxy_pass http://%%ORIGIN%%; }}
                location = /memc {{ internal; memc_connect_timeout 5s; set $memc_key $query_string;
                    if ($arg_key) {{ set $memc_key $arg_key; }} set $memc_exptime $arg_exptime; memc_pass m; }} }} }}"
    );
    let server = Setup::new(&conf)
        .set("ORIGIN", origin.address())
        .set("MEMCACHED", memcached.address())
        .start();
    Site { server, origin, values, _memcached: memcached }
}

impl Site {
    fn expect_stored(&self, count: usize) {
        expect_soon("the answer is stored", || self.values.lock().unwrap().len() == count);
    }

    /// Status of the cache and body.
    fn get(&self, path: &str, fields: &str) -> (String, String) {
        let r = self.server.get_with(path, fields);
        (r.header("X-Srcache").unwrap_or_default().to_string(), r.text())
    }
}

#[test]
fn answers_are_stored_and_fetched() {
    if !is_weir() {
        return skip("nginx is built without srcache");
    }
    let site = site("", "");
    let fields =
        "X-Fields: Content-Type: text/x|ETag: \"e\"|Set-Cookie: a=b|Cache-Control: max-age=30\r\n";
    assert_eq!(site.get("/a", fields), ("MISS STORE 30".into(), "answer 1 to ".into()));
    site.expect_stored(1);
    let stored = String::from_utf8(site.values.lock().unwrap()["/a"].clone()).unwrap();
    assert!(stored.starts_with("HTTP/1.1 200 OK\r\n") && stored.ends_with("\r\n\r\nanswer 1 to "));
    assert!(!stored.contains("Set-Cookie") && !stored.contains("X-Srcache"), "{stored}");
    let again = site.server.get("/a");
    assert_eq!((again.status, again.text().as_str()), (200, "answer 1 to "));
    assert_eq!(again.header("X-Srcache"), Some("HIT BYPASS 30"));
    assert_eq!(
        (again.header("Content-Type"), again.header("ETag")),
        (Some("text/x"), Some("\"e\""))
    );
    assert_eq!(again.content_length(), Some(12));
    assert_eq!(site.server.head("/a").content_length(), Some(12));
    assert_eq!(site.server.get_with("/a", "Range: bytes=0-5\r\n").text(), "answer");
    assert_eq!(site.server.get_with("/a", "If-None-Match: \"e\"\r\n").status, 304);
    assert_eq!(site.origin.requests().len(), 1);
    let large = "0123456789".repeat(200_000);
    let kept = format!("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{large}");
    site.values.lock().unwrap().insert("/large".to_string(), kept.into_bytes());
    assert_eq!(site.server.get("/large").text(), large);
    // Connections live on behind what was fetched.
    let mut client = site.server.connect();
    assert_eq!(client.get("/a").text(), client.get("/a").text());
}

#[test]
fn what_is_not_stored() {
    if !is_weir() {
        return skip("nginx is built without srcache");
    }
    let site = site(
        "",
        "srcache_store_skip $arg_skip; srcache_fetch_skip $arg_fetch; srcache_store_max_size 20;",
    );
    for (path, fields, status) in [
        ("/n?skip=1", "", "MISS BYPASS 60"),
        ("/n?fetch=1&skip=1", "", "BYPASS BYPASS 60"),
        ("/n", "X-Status: 404 Not Found\r\n", "MISS BYPASS 60"),
        ("/n", "X-Fields: Cache-Control: private\r\n", "MISS BYPASS 60"),
        ("/n", "X-Fields: Cache-Control: x, No-Store\r\n", "MISS BYPASS 60"),
        ("/n", "X-Fields: Cache-Control: no-cache\r\n", "MISS BYPASS 60"),
        ("/n", "X-Fields: Cache-Control: max-age=0\r\n", "MISS BYPASS 0"),
        ("/n", "X-Fields: Expires: Thu, 01 Jan 1970 00:00:01 GMT\r\n", "MISS BYPASS 0"),
        ("/n", "X-Fields: Content-Encoding: gzip\r\n", "MISS BYPASS 60"),
    ] {
        assert_eq!(site.get(path, fields).0, status, "{path} {fields}");
    }
    let post = site.server.post("/n", "body");
    assert_eq!(post.header("X-Srcache"), Some("BYPASS BYPASS 60"));
    assert_eq!(site.server.post("/n", "too much for twenty bytes").status, 200);
    // Stored at last, after all that was not.
    assert_eq!(site.get("/n", "").0, "MISS STORE 60");
    site.expect_stored(1);
    site.server.expect_error("srcache_store skipped due to response header");
}

#[test]
fn what_is_stored_when_asked_for() {
    if !is_weir() {
        return skip("nginx is built without srcache");
    }
    let site = site(
        "srcache_default_expire 5s; srcache_max_expire 20s; srcache_header_buffer_size 64;",
        "srcache_store_statuses 200 404; srcache_store_private on; srcache_store_no_store on;
         srcache_store_no_cache on; srcache_ignore_content_encoding on; srcache_store_hide_header X-Not;
         srcache_store_pass_header set-cookie; srcache_methods PUT; srcache_store_ranges on;",
    );
    for (n, (path, fields, status)) in [
        ("/1", "X-Status: 404 Not Found\r\n", "MISS STORE 5"),
        (
            "/2",
            "X-Fields: Cache-Control: private, no-store, no-cache, max-age=90\r\n",
            "MISS STORE 20",
        ),
        ("/3", "X-Fields: Content-Encoding: br\r\n", "MISS STORE 5"),
        ("/4", "X-Fields: Set-Cookie: a|X-Not: b|X-Yes: c\r\n", "MISS STORE 5"),
        (
            "/5",
            "X-Status: 206 Partial Content\r\nX-Fields: Content-Range: bytes 0-1/20\r\n",
            "MISS STORE 5",
        ),
    ]
    .iter()
    .enumerate()
    {
        assert_eq!(site.get(path, fields).0, *status, "{path}");
        site.expect_stored(n + 1);
        assert!(site.get(path, "").0.starts_with("HIT"), "{path}");
    }
    assert_eq!(site.server.get("/1").status, 404);
    let four = site.server.get("/4");
    assert_eq!((four.header("Set-Cookie"), four.header("X-Yes")), (Some("a"), Some("c")));
    assert_eq!(four.header("X-Not"), None);
    let long = format!("X-Fields: X-Long: {}\r\n", "x".repeat(64));
    assert_eq!(site.get("/6", &long).0, "MISS BYPASS 5");
    let put = b"PUT /7 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody";
    let first = site.server.exchange("PUT", put);
    assert_eq!(
        (first.header("X-Srcache"), first.text().ends_with("to body")),
        (Some("MISS STORE 5"), true)
    );
    site.expect_stored(6);
    assert_eq!(site.server.exchange("PUT", put).text(), first.text());
}

#[test]
fn requests_may_say_what_they_want() {
    if !is_weir() {
        return skip("nginx is built without srcache");
    }
    let site = site("", "srcache_request_cache_control on; srcache_response_cache_control off;");
    assert_eq!(site.get("/", "Cache-Control: no-store\r\n").0, "MISS BYPASS 60");
    assert_eq!(site.get("/", "X-Fields: Cache-Control: private\r\n").0, "MISS STORE 60");
    site.expect_stored(1);
    assert_eq!(site.get("/", "").1, "answer 2 to ");
    assert_eq!(
        site.get("/", "Pragma: no-cache\r\n"),
        ("BYPASS STORE 60".into(), "answer 3 to ".into())
    );
    expect_soon("the new answer is stored", || site.get("/", "").1 == "answer 3 to ");
}

#[test]
fn what_the_cache_has_must_be_an_answer() {
    if !is_weir() {
        return skip("nginx is built without srcache");
    }
    let site = site("", "srcache_store_max_size 100; srcache_store_skip 1;");
    let large = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(100_000));
    for (key, value) in [
        ("/text", "just text".to_string()),
        ("/cut", "HTTP/1.1 200 OK\r\nX: y".to_string()),
        ("/short", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort".to_string()),
        ("/large", large),
        ("/fine", "HTTP/1.1 299 Fine\r\n\r\nfine".to_string()),
    ] {
        site.values.lock().unwrap().insert(key.to_string(), value.into_bytes());
    }
    for path in ["/text", "/cut", "/short", "/large", "/none"] {
        assert_eq!(site.get(path, "").0, "MISS BYPASS 60", "{path}");
    }
    let fine = site.server.get("/fine");
    assert_eq!((fine.status, fine.text().as_str()), (299, "fine"));
    site.server.expect_error("no whole answer");
}

const LARGE_BYTES: usize = 15 * 1024 * 1024;

/// A server of large answers in front of a memcached that reads no value before it is told to.
fn large_answers(opened: &Arc<AtomicBool>) -> (Server, [Origin; 2]) {
    let theirs = Arc::clone(opened);
    let memcached = Origin::start_raw(move |conn, _| {
        while let Some(line) = conn.read_until(b"\r\n") {
            if line.starts_with(b"get ") {
                conn.write("END\r\n");
                continue;
            }
            wait_for(|| theirs.load(Ordering::SeqCst), AT_LAST);
            let line = String::from_utf8_lossy(&line).trim_end().to_string();
            let bytes = line.split(' ').next_back().and_then(|n| n.parse::<usize>().ok());
            if conn.read_exactly(bytes.unwrap() + 2).is_none() {
                return;
            }
            conn.write("STORED\r\n");
        }
    });
    let large = "x".repeat(LARGE_BYTES);
    let origin = Origin::start(move |request, conn| {
        if request.target().starts_with("/chunked") {
            conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            conn.write(format!("{LARGE_BYTES:x}\r\n{large}\r\n0\r\n\r\n"));
        } else {
            conn.reply("200 OK", "", &large);
        }
        Next::Keep
    });
    let conf = "worker_processes 1; events {} http {
        server { listen 127.0.0.1:%%PORT_0%%; add_header X-Store $srcache_store_status;
            location = /memc { internal; set $memc_key $arg_key; memc_pass %%MEMCACHED%%;
                client_max_body_size 100m; }
            location / { srcache_fetch GET /memc key=$uri; srcache_store PUT /memc key=$uri;
                proxy_pass http://%%ORIGIN%%; } } }";
    let server = Setup::new(conf)
        .set("ORIGIN", origin.address())
        .set("MEMCACHED", memcached.address())
        .start();
    (server, [memcached, origin])
}

/// What is under way to a memcached that reads nothing is bounded in bytes, and there once.
#[test]
fn answers_under_way_are_bounded_in_bytes() {
    if !is_weir() {
        return skip("nginx is built without srcache");
    }
    let opened = Arc::new(AtomicBool::new(false));
    let (server, _origins) = large_answers(&opened);
    let before = server.memory().unwrap_or_default();
    let statuses: Vec<String> = (0..12)
        .map(|n| {
            let got = server.get(&format!("/{n}"));
            assert_eq!(got.body.len(), LARGE_BYTES);
            got.header("X-Store").unwrap_or_default().to_string()
        })
        .collect();
    let wanted = (0..12).map(|n| if n < 4 { "STORE" } else { "BYPASS" }).collect::<Vec<_>>();
    let grown = server.memory().unwrap_or_default().saturating_sub(before);
    assert_eq!(statuses, wanted, "{grown} bytes more");
    server.expect_error("bytes of answers are under way to the cache");
    // All twelve are 180 MB; what has been freed may not be the system's yet.
    assert!(grown < 130 * 1024 * 1024, "{grown} bytes more");
    // One that does not say how long it is finds out on its way.
    assert_eq!(server.get("/chunked").body.len(), LARGE_BYTES);
    // Behind those that were stored there is room again.
    opened.store(true, Ordering::SeqCst);
    expect_soon("there is room", || server.get("/again").header("X-Store") == Some("STORE"));
}

/// So is what clients that do not read have a worker hold of answers that were found: beyond it they are made anew.
#[test]
fn answers_that_were_found_are_bounded_in_bytes() {
    if !is_weir() {
        return skip("nginx is built without srcache");
    }
    let large = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(LARGE_BYTES));
    let cache = Origin::start(move |_, conn| {
        conn.reply("200 OK", "", &large);
        Next::Keep
    });
    let conf = "worker_processes 1; events {} http { log_format f $srcache_fetch_status; access_log %%DIR%%/f.log f;
        server { listen 127.0.0.1:%%PORT_0%%; add_header X-Fetch $srcache_fetch_status;
            location = /kept { internal; proxy_pass http://%%CACHE%%; }
            location / { srcache_fetch GET /kept; echo anew; } } }";
    let server = Setup::new(conf).set("CACHE", cache.address()).start();
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    let found: Vec<bool> = clients
        .iter_mut()
        .map(|client| {
            client.send_get("/");
            let head = String::from_utf8_lossy(&client.read_until(b"\r\n\r\n")).into_owned();
            head.contains("X-Fetch: HIT")
        })
        .collect();
    assert_eq!(found, [true, true, true, true, false, false, false, false]);
    server.expect_error("more were made anew");
    drop(clients);
    expect_soon("there is room", || server.head("/").header("X-Fetch") == Some("HIT"));
}

/// Those that are still coming count as well.
#[test]
fn answers_that_are_being_collected_are_bounded_too() {
    if !is_weir() {
        return skip("nginx is built without srcache");
    }
    const CLIENTS: usize = 20;
    let (opened, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (theirs, count) = (Arc::clone(&opened), Arc::clone(&written));
    let large = "x".repeat(LARGE_BYTES);
    let origin = Origin::start(move |_, conn| {
        conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        conn.write(format!("{LARGE_BYTES:x}\r\n{large}\r\n"));
        count.fetch_add(1, Ordering::SeqCst);
        wait_for(|| theirs.load(Ordering::SeqCst), AT_LAST);
        conn.write("0\r\n\r\n");
        Next::Keep
    });
    let (memcached, _) = memcached();
    let conf = "worker_processes 1; events {} http { proxy_buffering off; proxy_read_timeout 60s;
        server { listen 127.0.0.1:%%PORT_0%%;
            location = /memc { internal; set $memc_key $arg_key; memc_pass %%MEMCACHED%%; }
            location / { srcache_store PUT /memc key=$uri; proxy_pass http://%%ORIGIN%%; } } }";
    let server = Setup::new(conf)
        .set("ORIGIN", origin.address())
        .set("MEMCACHED", memcached.address())
        .start();
    let before = server.memory().unwrap_or_default();
    let (client, all) = (&server, &written);
    let grown = std::thread::scope(|scope| {
        for n in 0..CLIENTS {
            scope.spawn(move || {
                assert_eq!(client.get(&format!("/{n}")).body.len(), LARGE_BYTES);
            });
        }
        wait_for(|| all.load(Ordering::SeqCst) == CLIENTS, AT_LAST);
        let grown = client.memory().unwrap_or_default().saturating_sub(before);
        opened.store(true, Ordering::SeqCst);
        grown
    });
    assert_eq!(written.load(Ordering::SeqCst), CLIENTS);
    // The allocator has some memory left of texts that have grown.
    assert!(grown < 170 * 1024 * 1024, "{grown} bytes more");
    server.expect_error("bytes of answers are under way to the cache");
}
