//! Purges as ngx_cache_purge has them: by method, in a location of their own, of everything.

use std::sync::atomic::{AtomicUsize, Ordering};
use weir_tests::family::{Family, FAMILIES};
use weir_tests::{expect_soon, run_cli, skip, Origin, Server, Signal};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

fn counting(family: Family) -> Origin {
    let count = AtomicUsize::new(0);
    family.origin(move |asked, answer| {
        let n = count.fetch_add(1, Ordering::SeqCst) + 1;
        let vary = asked.param("HTTP_FOO").map_or("", |_| "Vary: Foo\r\n");
        answer.reply("200 OK", vary, &format!("answer {n}"));
    })
}

/// A cached location with `purge`, and whatever else the server has.
fn start(family: Family, origin: &Origin, http: &str, purge: &str, server: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ {http} %%F%%_cache_path %%DIR%%/cache levels=1:2 keys_zone=c:1m{paced};
            server {{ listen 127.0.0.1:%%PORT_0%%; add_header X-Status $upstream_cache_status; {server}
                location / {{ %%F%%_pass %%TO%%; %%PARAMS%% %%F%%_cache c; %%F%%_cache_key $uri;
                    %%F%%_cache_valid 1m; {purge} }} }} }}",
        paced = if http.contains("# paced") { " purger=on purger_files=1 purger_sleep=10s purger_threshold=1s" } else { "" },
    );
    family.setup(&conf, origin).start()
}

fn status(server: &Server, path: &str) -> String {
    server.get(path).header("X-Status").unwrap_or_default().to_string()
}

#[test]
fn a_method_purges_a_key_or_all_that_begin_so() {
    if !is_weir() {
        return skip("nginx is built without ngx_cache_purge");
    }
    for family in FAMILIES {
        let origin = counting(family);
        let conf = "%%F%%_cache_purge on from 10.0.0.0/8 127.0.0.1;";
        let server = start(family, &origin, "", conf, "");
        let purge = |path: &str| server.request("PURGE", path, "");
        assert_eq!(purge("/a/1").status, 412, "{family:?}");
        for path in ["/a/1", "/a/2", "/b"] {
            assert_eq!(
                (status(&server, path), status(&server, path)),
                ("MISS".into(), "HIT".into())
            );
        }
        let page = purge("/a/1");
        assert_eq!((page.status, page.header("Content-Type")), (200, Some("text/html")));
        assert!(page.text().contains("Key: /a/1<"), "{}", page.text());
        assert_eq!(
            (status(&server, "/a/1"), status(&server, "/a/2")),
            ("MISS".into(), "HIT".into())
        );
        assert_eq!((purge("/a/*").status, purge("/a/*").status), (200, 412), "{family:?}");
        for (path, wanted) in [("/a/1", "MISS"), ("/a/2", "MISS"), ("/b", "HIT")] {
            assert_eq!(status(&server, path), wanted, "{family:?} {path}");
        }
        // Variants go with their key.
        for foo in ["1", "2"] {
            server.get_with("/v", &format!("Foo: {foo}\r\n"));
        }
        assert_eq!(purge("/v").status, 200);
        let again = server.get_with("/v", "Foo: 2\r\n");
        assert_eq!(again.header("X-Status"), Some("MISS"));
    }
}

#[test]
fn who_may_not_purge_is_told_so() {
    if !is_weir() {
        return skip("nginx is built without ngx_cache_purge");
    }
    for family in FAMILIES {
        let origin = counting(family);
        let conf = "%%F%%_cache_purge DELETE purge_all from 10.0.0.0/8 ::1;";
        let server = start(family, &origin, "", conf, "");
        status(&server, "/");
        assert_eq!(server.request("DELETE", "/", "").status, 403, "{family:?}");
        assert_eq!(status(&server, "/"), "HIT");
        // Another method is passed on.
        let passed = server.request("PURGE", "/", "");
        assert_eq!((passed.status, passed.text().as_str()), (200, "answer 2"), "{family:?}");
        assert_eq!(status(&server, "/"), "HIT");
    }
}

#[test]
fn all_is_purged() {
    if !is_weir() {
        return skip("nginx is built without ngx_cache_purge");
    }
    let family = Family::Proxy;
    let origin = counting(family);
    let server = start(family, &origin, "", "proxy_cache_purge PURGE purge_all from all;", "");
    let paths: Vec<String> = (0..50).map(|n| format!("/{n}")).collect();
    paths.iter().for_each(|path| drop(status(&server, path)));
    assert_eq!(server.request("PURGE", "/whatever", "").status, 200);
    assert!(paths.iter().all(|path| status(&server, path) == "MISS"));
}

#[test]
fn a_location_of_its_own_purges_its_key() {
    if !is_weir() {
        return skip("nginx is built without ngx_cache_purge");
    }
    for family in FAMILIES {
        let origin = counting(family);
        let own = "location ~ /purge(/.*) { %%F%%_cache_purge c $1; }
            location ~ /json(/.*) { cache_purge_response_type json; %%F%%_cache_purge c $1; }
            location ~ /xml(/.*) { cache_purge_response_type xml; %%F%%_cache_purge c $1; }
            location ~ /text(/.*) { cache_purge_response_type text; %%F%%_cache_purge c $1; }";
        let http = "cache_purge_legacy_status off; cache_purge_vary_aware on;";
        let server = start(family, &origin, http, "", own);
        for (at, kind, text) in [
            ("/purge", "text/html", "Key: /a\"<"),
            ("/json", "application/json", "{\"Key\": \"/a\\\"\", \"Status\": \"purged\"}"),
            ("/xml", "text/xml", "<Key>/a&quot;</Key>"),
            ("/text", "text/plain", "Key: /a\"\nStatus: purged\n"),
        ] {
            assert_eq!(status(&server, "/a%22"), "MISS", "{family:?}");
            let page = server.get(&format!("{at}/a%22"));
            assert_eq!((page.status, page.header("Content-Type")), (200, Some(kind)));
            let text = if kind == "text/html" { text.replace('"', "&quot;") } else { text.into() };
            assert!(page.text().contains(&text), "{}", page.text());
            assert_eq!(server.get(&format!("{at}/a%22")).status, 404);
        }
        status(&server, "/d/1");
        assert_eq!(server.get("/text/d/*").status, 200);
        assert_eq!(status(&server, "/d/1"), "MISS");
    }
}

/// What a wildcard is about is gone at once, however slowly its files go.
#[test]
fn a_purger_takes_its_time() {
    if !is_weir() {
        return skip("nginx is built without ngx_cache_purge");
    }
    let family = Family::Proxy;
    let origin = counting(family);
    let http = "# paced\nmap $request_method $purge { PURGE 1; }";
    let server = start(family, &origin, http, "proxy_cache_purge $purge;", "");
    let paths: Vec<String> = (0..20).map(|n| format!("/a/{n}")).collect();
    let files = || {
        let of = |dir: std::path::PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
        let first = of(server.dir().join("cache")).flat_map(|d| of(d.path()));
        first.flat_map(|d| of(d.path())).count()
    };
    paths.iter().for_each(|path| drop(status(&server, path)));
    status(&server, "/b");
    expect_soon("all is stored", || files() == 21);
    assert_eq!(server.request("PURGE", "/a/*", "").status, 204);
    assert_eq!(status(&server, "/b"), "HIT");
    assert!(files() > 10, "the files go slowly");
    for path in &paths {
        assert_eq!(status(&server, path), "MISS", "{path}");
    }
}

#[test]
fn what_is_no_purge_is_refused() {
    if !is_weir() {
        return skip("nginx is built without ngx_cache_purge");
    }
    for (server, location, why) in [
        ("", "proxy_cache_purge PURGE form 127.0.0.1;", "expected \"from\""),
        ("", "proxy_cache_purge PURGE from;", "no address follows"),
        ("", "proxy_cache_purge PURGE from 300.0.0.1;", "invalid parameter \"300.0.0.1\""),
        ("", "proxy_cache_purge PURGE; proxy_cache_purge PURGE;", "is duplicate"),
        ("", "proxy_cache c; proxy_cache_purge c $uri;", "is incompatible with \"proxy_cache\""),
        (
            "",
            "proxy_pass http://a; proxy_cache_purge c $uri;",
            "is incompatible with \"proxy_pass\"",
        ),
        ("", "proxy_cache_purge other $uri;", "zone \"other\" is unknown"),
        ("proxy_cache_purge c $uri;", "", "separate location syntax"),
        ("", "cache_purge_response_type yaml;", "invalid value"),
    ] {
        let conf = format!(
            "events {{}} http {{ proxy_cache_path %%DIR%%/c keys_zone=c:1m; upstream a {{ server 127.0.0.1; }}
                server {{ {server} location / {{ {location} }} }} }}"
        );
        let out = run_cli(&["-t"], &conf);
        assert!(out.code != 0 && out.stderr.contains(why), "{location}: {}", out.stderr);
    }
}

/// What was answered holds, whatever becomes of the process.
#[test]
fn a_purge_that_takes_its_time_outlives_a_kill() {
    if !is_weir() {
        return skip("nginx is built without ngx_cache_purge");
    }
    let origin = counting(Family::Proxy);
    let dir = std::env::temp_dir().join(format!("weir-purges-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let start = |pace: &str| {
        let conf = format!(
            "master_process off; events {{}} http {{ proxy_cache_path {} levels=1:2 keys_zone=c:1m purger=on {pace};
                server {{ listen 127.0.0.1:%%PORT_0%%; add_header X-Status $upstream_cache_status;
                    location / {{ proxy_pass http://%%ORIGIN%%; proxy_cache c; proxy_cache_key $uri;
                        proxy_cache_valid 1m; proxy_cache_purge PURGE from all; }} }} }}",
            dir.display()
        );
        Family::Proxy.setup(&conf, &origin).start()
    };
    let slow = "purger_files=1 purger_sleep=60s purger_threshold=60s";
    let mut server = start(slow);
    for path in ["/a/1", "/a/2", "/a/3", "/b"] {
        assert_eq!(status(&server, path), "MISS");
    }
    assert_eq!(server.request("PURGE", "/a/*", "").status, 200);
    server.signal(Signal::Kill);
    server.wait_exit();
    let mut server = start(slow);
    assert_eq!(status(&server, "/b"), "HIT");
    assert_eq!((status(&server, "/a/1"), status(&server, "/a/1")), ("MISS".into(), "HIT".into()));
    server.signal(Signal::Kill);
    server.wait_exit();
    let purges = || std::fs::read_dir(dir.join("purges")).map_or(0, |d| d.count());
    assert_eq!(purges(), 1, "it is not done");
    let server = start("purger_sleep=1ms");
    expect_soon("it is done", || purges() == 0);
    assert_eq!((status(&server, "/a/1"), status(&server, "/b")), ("HIT".into(), "HIT".into()));
    assert_eq!((status(&server, "/a/2"), status(&server, "/a/3")), ("MISS".into(), "MISS".into()));
    let _ = std::fs::remove_dir_all(&dir);
}
