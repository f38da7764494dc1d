//! `…_cache_standard`: parts of answers, kept and combined (RFC 9111, sections 3.3 and 3.4).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use weir_tests::family::{Family, FAMILIES};
use weir_tests::{expect_soon, run_cli, skip, Origin, Response, Server, Signal, PATIENCE};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

const LEN: usize = 100_000;

/// No two representations have the same byte anywhere.
fn body(etag: &str) -> String {
    let seed: usize = etag.bytes().map(usize::from).sum();
    (0..LEN).map(|i| char::from(b'a' + ((i / 7 + i + seed) % 26) as u8)).collect()
}

/// The bytes that a range is about, as its server reads it.
fn read_range(value: &str) -> Option<(usize, usize)> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let last_byte = last.parse::<usize>().map_or(LEN, |n| (n + 1).min(LEN));
    match first.parse::<usize>() {
        Ok(first) => (first < last_byte).then_some((first, last_byte)),
        Err(_) => Some((LEN - last.parse::<usize>().ok()?, LEN)),
    }
}

/// Gives ranges. What its answers say is the client's to say: `X-Etag`; `X-Fields` in place of what it says else;
/// `X-Cut`, after how many bytes they end; `X-Wait`, that it waits for a word then.
fn ranged(family: Family) -> (Origin, std::sync::mpsc::Sender<()>, impl Fn() -> usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let asked_for = Arc::clone(&count);
    let (go, gate) = std::sync::mpsc::channel();
    let gate = Mutex::new(gate);
    let origin = family.origin(move |asked, answer| {
        asked_for.fetch_add(1, Ordering::SeqCst);
        let etag = asked.param("HTTP_X_ETAG").unwrap_or("\"e\"");
        let fields = asked.param("HTTP_X_FIELDS").unwrap_or("Cache-Control: max-age=60");
        let mut fields: String = fields.split('|').map(|f| format!("{f}\r\n")).collect();
        if !etag.is_empty() {
            fields.push_str(&format!("ETag: {etag}\r\n"));
        }
        fields.push_str("Accept-Ranges: bytes\r\n");
        let text = body(etag.trim_start_matches("W/"));
        let theirs = asked.param("HTTP_IF_RANGE").is_none_or(|v| v == etag);
        let range = asked.param("HTTP_RANGE").filter(|v| theirs && v.starts_with("bytes="));
        let (status, from, to) = match range.map(read_range) {
            None => ("200 OK", 0, LEN),
            Some(Some((from, to))) => ("206 Partial Content", from, to),
            Some(None) => {
                return answer.reply(
                    "416 Range Not Satisfiable",
                    "Cache-Control: max-age=60\r\n",
                    "",
                )
            }
        };
        if status.starts_with("206") && !fields.contains("Content-Range") {
            fields.push_str(&format!("Content-Range: bytes {from}-{}/{LEN}\r\n", to - 1));
        }
        answer.begin(status, &fields, to - from);
        let cut = asked.param("HTTP_X_CUT").map_or(to - from, |n| n.parse().unwrap());
        answer.piece(&text[from..from + cut]);
        if asked.param("HTTP_X_WAIT").is_some() {
            let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
        }
        match cut == to - from {
            true => answer.end(),
            false if asked.param("HTTP_X_WAIT").is_some() => {
                answer.piece(&text[from + cut..to]);
                answer.end();
            }
            false => {}
        }
    });
    (origin, go, move || count.load(Ordering::SeqCst))
}

fn conf(path: &str, location: &str) -> String {
    let bound = match location.contains("max_range_offset") {
        true => "",
        false => "%%F%%_cache_max_range_offset 0;",
    };
    format!(
        "master_process off; events {{}} http {{ %%F%%_cache_path {path} levels=1:2 keys_zone=c:1m;
            server {{ listen 127.0.0.1:%%PORT_0%%;
                location / {{ %%F%%_pass %%TO%%; %%PARAMS%% %%F%%_cache c; %%F%%_cache_key $uri;
                    %%F%%_cache_standard on; {bound} {location} }}
                location /off/ {{ rewrite ^/off(/.*) $1 break; %%F%%_pass %%TO%%; %%PARAMS%% %%F%%_cache c;
                    %%F%%_cache_key $uri; }} }} }}"
    )
}

fn start(family: Family, origin: &Origin, location: &str) -> Server {
    family.setup(&conf("%%DIR%%/cache", location), origin).start()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let each = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flatten().flat_map(|e| each(e.path())).collect()
}

fn get(server: &Server, path: &str, range: &str, fields: &str) -> Response {
    server.get_with(path, &format!("Range: bytes={range}\r\n{fields}"))
}

/// Asks for a range; what is said of it must begin so, and the bytes must be these of that representation.
#[track_caller]
fn expect_of(etag: &str, server: &Server, path: &str, range: &str, fields: &str, said: &str) {
    let r = get(server, path, range, fields);
    let status = r.header("Cache-Status").unwrap_or_default();
    assert!(status.starts_with(said), "{path} {range} {fields}: {status} instead of {said}");
    let (from, to) = read_range(&format!("bytes={range}")).unwrap();
    assert_eq!(r.status, 206, "{range}: {r:?}");
    let place = format!("bytes {from}-{}/{LEN}", to - 1);
    assert_eq!(r.all("Content-Range"), [place.as_str()], "{range}");
    assert_eq!(r.content_length(), Some(to - from));
    assert!(r.text() == body(etag)[from..to], "{path} {range}: other bytes");
}

#[track_caller]
fn expect(server: &Server, path: &str, range: &str, said: &str) {
    expect_of("\"e\"", server, path, range, "", said);
}

#[track_caller]
fn expect_whole(server: &Server, path: &str, fields: &str, said: &str) {
    let r = server.get_with(path, fields);
    let status = r.header("Cache-Status").unwrap_or_default();
    assert!(status.starts_with(said), "{path} {fields}: {status} instead of {said}");
    assert_eq!((r.status, r.content_length()), (200, Some(LEN)), "{path}");
    assert_eq!((r.header("Content-Range"), r.all("Content-Length").len()), (None, 1));
    assert!(r.text() == body("\"e\""), "{path}: other bytes");
}

const MISS: &str = "Weir; fwd=uri-miss; fwd-status=206; stored";
const MORE: &str = "Weir; fwd=partial; fwd-status=206; stored";
const NOT_KEPT: &str = "Weir; fwd=uri-miss; fwd-status=206";
const PASSED: &str = "Weir; fwd=partial; fwd-status=206";
const HIT: &str = "Weir; hit; ttl=";

#[test]
fn parts_are_kept_and_combined() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    for family in FAMILIES {
        let (origin, _go, asked) = ranged(family);
        let server = start(family, &origin, "");
        expect(&server, "/", "0-99", MISS);
        expect(&server, "/", "0-99", HIT);
        expect(&server, "/", "10-19", HIT);
        expect(&server, "/", "50-149", MORE);
        expect(&server, "/", "20-140", HIT);
        expect(&server, "/", "-1000", MORE);
        expect(&server, "/", "99990-", HIT);
        expect(&server, "/", "40000-49999", MORE);
        // Across a hole.
        expect(&server, "/", "100-45000", MORE);
        expect(&server, "/", "0-49999", HIT);
        assert_eq!(asked(), 5, "{family:?}");
        // The last that was missing.
        expect(&server, "/", "50000-98999", MORE);
        expect_whole(&server, "/", "", HIT);
        let whole = server.get("/");
        assert_eq!(whole.header("ETag"), Some("\"e\""), "{family:?}");
        expect(&server, "/", "49000-99999", HIT);
        let several = get(&server, "/", "0-0,99999-99999", "");
        assert_eq!(several.status, 206, "{family:?}");
        assert!(several.header("Content-Type").unwrap().starts_with("multipart/byteranges"));
        assert_eq!(asked(), 6, "{family:?}");
        let files = files(&server.dir().join("cache"));
        assert_eq!(files.len(), 1, "{family:?} {files:?}");
        // All of it in one part.
        expect(&server, "/all", "0-99999", MISS);
        expect_whole(&server, "/all", "", HIT);
        // A range behind the end is no answer to be kept.
        assert_eq!(get(&server, "/end", "100000-", "").status, 416, "{family:?}");
        expect(&server, "/end", "5-6", MISS);
        assert_eq!(get(&server, "/end", "100000-", "").status, 416, "{family:?}");
        expect(&server, "/end", "5-6", HIT);
    }
}

#[test]
fn parts_of_two_answers_are_never_combined() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    let (origin, _go, _) = ranged(Family::Proxy);
    let server = start(Family::Proxy, &origin, "");
    let other = "X-Etag: \"f\"\r\n";
    expect(&server, "/", "0-49999", MISS);
    expect_of("\"f\"", &server, "/", "50000-", other, MORE);
    // What was there first is gone.
    expect_of("\"f\"", &server, "/", "60000-", "", HIT);
    expect_of("\"f\"", &server, "/", "0-49999", other, MORE);
    let whole = server.get("/");
    assert!(whole.header("Cache-Status").unwrap().starts_with(HIT));
    assert!(whole.text() == body("\"f\""));
    // The same name of another length.
    let longer = "X-Fields: Cache-Control: max-age=60|Content-Range: bytes 10-19/200000\r\n";
    expect(&server, "/l", "0-9", MISS);
    let r = get(&server, "/l", "10-19", longer);
    assert_eq!((r.status, r.header("Content-Range")), (206, Some("bytes 10-19/200000")));
    let r = get(&server, "/l", "0-9", "");
    assert!(r.header("Cache-Status").unwrap().starts_with(MORE), "{r:?}");
}

#[test]
fn what_is_not_kept_as_a_part() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    let (origin, _go, _) = ranged(Family::Proxy);
    let server = start(Family::Proxy, &origin, "");
    let old = "Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT|Date: Thu, 01 Jan 1970";
    for (n, (fields, is_kept)) in [
        ("X-Etag: \"e\"", true),
        ("X-Etag: W/\"e\"", false),
        ("X-Etag:", false),
        ("X-Etag: e", false),
        (&format!("X-Etag: \"{}\"", "x".repeat(200)), false),
        (&format!("X-Etag:\r\nX-Fields: Expires: Thu, 01 Jan 2099 00:00:00 GMT|{old} 00:01:00 GMT"), true),
        (&format!("X-Etag:\r\nX-Fields: Expires: Thu, 01 Jan 2099 00:00:00 GMT|{old} 00:00:59 GMT"), false),
        (&format!("X-Etag: W/\"e\"\r\nX-Fields: Expires: Thu, 01 Jan 2099 00:00:00 GMT|{old} 00:01:00 GMT"), false),
        ("X-Fields: Cache-Control: no-store", false),
        ("X-Fields: Cache-Control: max-age=60|Set-Cookie: a", false),
        ("X-Fields: Cache-Control: max-age=60|Content-Range: bytes 10-19/*", false),
        ("X-Fields: Cache-Control: max-age=60|Content-Range: bytes 10-18/100000", false),
        ("X-Fields: Cache-Control: max-age=60|Content-Range: bytes 10-19/19", false),
        ("X-Fields: Cache-Control: max-age=60|Content-Range: bytes 10-19/9223372036854775807", false),
        ("X-Fields: Cache-Control: max-age=60|Content-Range: bytes 10-19/100000|Content-Range: bytes 0-9/100000", false),
        ("X-Fields: Cache-Control: max-age=60|Content-Range: bytes 9223372036854775000-9223372036854775009/9223372036854775800", false),
        ("Cache-Control: no-store", false),
        ("Authorization: x", false),
        ("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT", false),
        ("If-None-Match: \"z\"", false),
    ]
    .iter()
    .enumerate()
    {
        let path = format!("/{n}");
        let first = get(&server, &path, "10-19", &format!("{fields}\r\n"));
        assert_eq!(first.status, 206, "{fields}");
        let said = first.header("Cache-Status").unwrap();
        assert_eq!(said.ends_with("; stored"), *is_kept && said == MISS, "{fields}: {said}");
        let again = get(&server, &path, "10-19", "");
        let said = again.header("Cache-Status").unwrap();
        assert_eq!(said.starts_with(HIT), *is_kept, "{fields}: {said}");
    }
    // Several ranges, and other units.
    for range in ["0-1,5-6", "0-"] {
        assert!(get(&server, "/several", range, "").status >= 200);
    }
    let odd = server.get_with("/odd", "Range: lines=0-1\r\n");
    assert_eq!(odd.status, 200);
}

#[test]
fn what_needs_more_than_is_kept() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    let (origin, _go, asked) = ranged(Family::Proxy);
    let server = start(Family::Proxy, &origin, "");
    expect(&server, "/", "0-99", MISS);
    // HEAD, conditions and several ranges are none of it.
    assert_eq!(get(&server, "/", "0-9,20-29", "").header("Cache-Status"), Some(PASSED));
    assert_eq!(
        get(&server, "/", "0-9", "If-Match: \"e\"\r\n").header("Cache-Status"),
        Some(PASSED)
    );
    assert_eq!(asked(), 3);
    let mine = "If-Range: \"e\"\r\n";
    expect_of("\"e\"", &server, "/", "0-9", mine, HIT);
    let only = "Cache-Control: only-if-cached\r\n";
    expect_of("\"e\"", &server, "/", "0-9", only, HIT);
    assert_eq!(get(&server, "/", "0-100", only).status, 504);
    expect_of(
        "\"e\"",
        &server,
        "/",
        "0-9",
        "Cache-Control: no-cache\r\n",
        "Weir; fwd=request; fwd-status=206; stored",
    );
    assert_eq!(asked(), 4);
    // Another representation is wanted: all of the one that there is.
    let r = get(&server, "/", "0-9", "If-Range: \"other\"\r\n");
    assert_eq!((r.status, r.body.len()), (200, LEN), "{:?}", r.header("Cache-Status"));
    assert_eq!(r.header("Cache-Status"), Some("Weir; fwd=partial; fwd-status=200; stored"));
    expect_whole(&server, "/", "", HIT);
    // All of it, where parts are kept.
    expect(&server, "/w", "0-99", MISS);
    assert_eq!(server.head("/w").content_length(), Some(LEN));
    expect_whole(&server, "/w", "", HIT);
    expect(&server, "/v", "0-99", MISS);
    expect_whole(&server, "/v", "", "Weir; fwd=uri-miss; fwd-status=200; stored");
    expect_whole(&server, "/v", "", HIT);
    // By nginx's rules a part is nothing.
    expect(&server, "/n", "0-99", MISS);
    let r = server.get("/off/n");
    assert!(r.status == 200 && r.text() == body("\"e\""));
    expect_whole(&server, "/n", "", HIT);
}

#[test]
fn stale_parts_are_asked_for_again() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    let (origin, _go, _) = ranged(Family::Proxy);
    let server = start(Family::Proxy, &origin, "");
    let stale = "X-Fields: Cache-Control: max-age=60|Age: 100\r\n";
    expect_of("\"e\"", &server, "/", "0-99", stale, MISS);
    expect_of("\"e\"", &server, "/", "0-9", stale, "Weir; fwd=stale; fwd-status=206; stored");
    // A part that is fresh says that the others are still good.
    expect(&server, "/", "100-199", MORE);
    expect(&server, "/", "0-199", HIT);
    // What varies.
    let vary =
        |foo: &str| format!("X-Fields: Cache-Control: max-age=60|Vary: Foo\r\nFoo: {foo}\r\n");
    expect_of("\"e\"", &server, "/v", "0-9", &vary("1"), MISS);
    expect_of("\"e\"", &server, "/v", "5-9", &vary("1"), HIT);
    expect_of(
        "\"e\"",
        &server,
        "/v",
        "0-9",
        &vary("2"),
        "Weir; fwd=vary-miss; fwd-status=206; stored",
    );
    expect_of("\"e\"", &server, "/v", "0-9", &vary("2"), HIT);
    expect_of("\"e\"", &server, "/v", "10-19", &vary("1"), MORE);
    expect_of("\"e\"", &server, "/v", "0-19", &vary("1"), HIT);
}

#[test]
fn as_ever_where_ranges_are_not_too_late() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    let (origin, _go, asked) = ranged(Family::Proxy);
    let server = start(Family::Proxy, &origin, "proxy_cache_max_range_offset 1k;");
    // All is asked for, and cut.
    expect(&server, "/", "1000-1099", "Weir; fwd=uri-miss; fwd-status=200; stored");
    expect_whole(&server, "/", "", HIT);
    assert_eq!(asked(), 1);
    expect(&server, "/late", "1024-1099", MISS);
    // Where parts are kept others are too.
    expect(&server, "/late", "0-9", MORE);
    expect(&server, "/late", "1030-1040", HIT);
}

/// Ranges that the configuration asks for are kept as what they are, under keys of their own.
#[test]
fn ranges_of_the_configuration() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    for family in [Family::Proxy, Family::Uwsgi] {
        let (origin, _go, asked) = ranged(family);
        let range = match family {
            Family::Proxy => "proxy_set_header Range $slice_range;",
            _ => "%%F%%_param HTTP_RANGE $slice_range;",
        };
        let conf = format!(
            "events {{}} http {{ %%F%%_cache_path %%DIR%%/cache levels=1:2 keys_zone=c:1m;
                server {{ listen 127.0.0.1:%%PORT_0%%;
                    location / {{ slice 30000; %%F%%_pass %%TO%%; %%PARAMS%% {range} %%F%%_cache c;
                        %%F%%_cache_key $uri$slice_range; %%F%%_cache_standard on; }} }} }}"
        );
        let server = family.setup(&conf, &origin).start();
        for _ in 0..2 {
            let r = server.get("/");
            assert!(r.status == 200 && r.text() == body("\"e\""), "{family:?} {}", r.status);
            let part = get(&server, "/", "29990-30009", "");
            assert_eq!((part.status, part.text().as_str()), (206, &body("\"e\"")[29990..30010]));
            assert_eq!(asked(), 4, "{family:?}");
        }
    }
}

#[test]
fn an_answer_that_is_cut_off_is_gone_on_with() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    for family in [Family::Proxy, Family::Scgi] {
        let (origin, _go, asked) = ranged(family);
        let server = start(family, &origin, "");
        let cut = |path: &str, fields: &str| {
            let client = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Cut: 90000\r\n{fields}\r\n");
            server.raw(client.as_bytes())
        };
        cut("/", "");
        expect(&server, "/", "0-89999", HIT);
        expect(&server, "/", "90000-", MORE);
        expect_whole(&server, "/", "", HIT);
        assert_eq!(asked(), 2, "{family:?}");
        // As long as its head says, whatever is added to that.
        let long = "X-Fields: Cache-Control: max-age=60|X-Long: a\r\n";
        expect_whole(&server, "/whole", long, "Weir; fwd=uri-miss; fwd-status=200; stored");
        expect_whole(&server, "/whole", "", HIT);
        // What has no strong validator is not.
        cut("/weak", "X-Etag: W/\"e\"\r\n");
        assert_eq!(get(&server, "/weak", "0-9", "").header("Cache-Status"), Some(MISS));
        // A part that is cut off is kept as far as it goes.
        let _ = server.raw(b"GET /part HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Cut: 100\r\nRange: bytes=1000-1999\r\n\r\n");
        expect(&server, "/part", "1000-1099", HIT);
        expect(&server, "/part", "1000-1100", MORE);
    }
}

#[test]
fn a_kill_leaves_what_was_there() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    let (origin, go, _) = ranged(Family::Proxy);
    let dir = std::env::temp_dir().join(format!("weir-parts-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let conf = conf(&dir.display().to_string(), "");
    let mut server = Family::Proxy.setup(&conf, &origin).start();
    expect(&server, "/", "0-999", MISS);
    let file = files(&dir).remove(0);
    let len = || file.metadata().map_or(0, |m| m.len());
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=1000-99999\r\nX-Cut: 90000\r\nX-Wait: 1\r\n\r\n");
    expect_soon("most of the part is written", || len() > 80_000);
    // Another one meanwhile is passed on, and what is there is there.
    expect(&server, "/", "0-999", HIT);
    expect(&server, "/", "0-1000", PASSED);
    server.signal(Signal::Kill);
    server.wait_exit();
    let _ = go.send(());
    let server = Family::Proxy.setup(&conf, &origin).start();
    expect(&server, "/", "0-999", HIT);
    expect(&server, "/", "1000-1000", MORE);
    expect(&server, "/", "0-1001", MORE);
    expect(&server, "/", "1001-99999", MORE);
    expect_whole(&server, "/", "", HIT);
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn purges_reach_parts() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    let (origin, go, asked) = ranged(Family::Proxy);
    let server = start(Family::Proxy, &origin, "proxy_cache_purge PURGE from all;");
    let purge = |path: &str| server.request("PURGE", path, "").status;
    expect(&server, "/a/1", "0-9", MISS);
    assert_eq!(purge("/a/1"), 200);
    expect(&server, "/a/1", "0-9", MISS);
    assert_eq!(purge("/a/*"), 200);
    expect(&server, "/a/1", "0-9", MISS);
    // A purge while a part is on its way.
    let mut client = server.connect();
    let before = asked();
    client.send(
        b"GET /a/1 HTTP/1.1\r\nHost: a\r\nRange: bytes=10-19\r\nX-Cut: 5\r\nX-Wait: 1\r\n\r\n",
    );
    expect_soon("it is asked for", || asked() == before + 1);
    assert_eq!(purge("/a/1"), 200);
    go.send(()).unwrap();
    assert_eq!(client.response().status, 206);
    expect(&server, "/a/1", "10-19", MISS);
}

#[test]
fn there_are_so_many_parts_at_most() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    let (origin, _go, _) = ranged(Family::Proxy);
    let server = start(Family::Proxy, &origin, "");
    for n in 0..32 {
        let said = if n == 0 { MISS } else { MORE };
        expect(&server, "/", &format!("{0}-{0}", n * 1000), said);
    }
    expect(&server, "/", "50000-50000", PASSED);
    assert!(!get(&server, "/", "50000-50000", "")
        .header("Cache-Status")
        .unwrap()
        .contains("stored"));
    expect(&server, "/", "0-31000", MORE);
    expect(&server, "/", "50000-50000", MORE);
    assert!(NOT_KEPT.len() < MISS.len());
}

/// Who plays a film asks for all of it from somewhere, and goes.
#[test]
fn a_part_ends_with_its_client() {
    if !is_weir() {
        return skip("nginx keeps no parts");
    }
    let gone = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&gone);
    let origin = Family::Proxy.origin(move |asked, answer| {
        let fields = format!(
            "Cache-Control: max-age=60\r\nETag: \"e\"\r\nContent-Range: bytes 1000-{}/{LEN}\r\n",
            LEN - 1
        );
        assert_eq!(asked.param("HTTP_RANGE"), Some("bytes=1000-"));
        answer.begin("206 Partial Content", &fields, LEN - 1000);
        answer.piece(&body("\"e\"")[1000..50_000]);
        told.fetch_add(usize::from(answer.wait_closed()), Ordering::SeqCst);
    });
    let server = start(Family::Proxy, &origin, "");
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=1000-\r\n\r\n");
    client.read_until(b"\r\n\r\n");
    assert!(client.read_exactly(49_000).is_some());
    drop(client);
    expect_soon("its server is left alone", || gone.load(Ordering::SeqCst) == 1);
    expect(&server, "/", "1000-49999", HIT);
}
