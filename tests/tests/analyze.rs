//! `weir analyze`.

use flate2::write::GzEncoder;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use weir_tests::mmdb::{self, Value};
use weir_tests::{binary, expect_soon, signal, tools, Setup, Signal};

const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0";

/// A directory with logs in it.
struct Place(Setup);

impl Place {
    fn new() -> Place {
        Place(Setup::new(""))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.dir().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.arg("analyze").args(args).current_dir(self.0.dir());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// What a run says that succeeds.
    fn said(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What one says that fails.
    fn complaint(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

fn line(address: &str, uri: &str, status: u16, referrer: &str) -> String {
    format!(
        "{address} - - [10/Oct/2026:13:55:36 +0000] \"GET {uri} HTTP/1.1\" {status} 100 \"{referrer}\" \"{FIREFOX}\"\n"
    )
}

/// Five requests of three visitors, and two lines that are none.
fn log() -> String {
    [
        line("192.0.2.1", "/", 200, "-"),
        line("192.0.2.1", "/a.css", 200, "https://www.example.com/"),
        line("192.0.2.2", "/a%20b?c", 200, "https://search.example/x"),
        line("2001:db8::1", "/", 301, "-"),
        line("192.0.2.3", "/none", 404, "-"),
        "broken\n".to_owned(),
        "\n# a comment\n".to_owned(),
        line("somebody", "/", 200, "-"),
    ]
    .concat()
}

const SUMMARY: &str = "\"total_requests\":7,\"valid_requests\":5,\"failed_requests\":2,\"outside_requests\":0,\
\"bytes\":500,\"unique_visitors\":3,\"unique_files\":2,\"unique_static_files\":1,\"unique_not_found\":1,\
\"unique_referrers\":2";

/// A panel's part of the JSON.
fn panel<'a>(json: &'a str, id: &str) -> &'a str {
    let from =
        json.find(&format!("\"{id}\":{{\"title\"")).unwrap_or_else(|| panic!("{id}: {json}"));
    &json[from..from + json[from..].find("]}").unwrap()]
}

#[test]
fn a_log_is_counted() {
    let place = Place::new();
    place.write("a.log", log());
    let json = place.said(&["--output", "json", "a.log"]);
    assert!(json.contains(SUMMARY), "{json}");
    for (id, row) in [
        ("visitors", "\"name\":\"2026-10-10\",\"hits\":5,\"bytes\":500,\"may_have_more\":0,\"visitors\":3"),
        ("requests", "\"name\":\"/\",\"note\":\"GET HTTP/1.1\",\"method\":\"GET\",\"protocol\":\"HTTP/1.1\",\"hits\":2"),
        ("requests", "\"name\":\"/a b?c\""),
        ("static_requests", "\"name\":\"/a.css\""),
        ("not_found", "\"name\":\"/none\",\"note\":\"GET HTTP/1.1\",\"method\":\"GET\",\"protocol\":\"HTTP/1.1\",\"hits\":1,\"bytes\":100,\"may_have_more\":0,\"visitors\":0"),
        ("hosts", "\"name\":\"192.0.2.1\",\"hits\":2"),
        ("hosts", "\"name\":\"2001:db8::1\""),
        ("referring_sites", "\"name\":\"search.example\""),
        ("browsers", "\"name\":\"Firefox\",\"hits\":5"),
        ("systems", "\"name\":\"Linux\",\"hits\":5"),
        ("status_codes", "\"name\":\"301\",\"hits\":1"),
        ("hours", "\"name\":\"13:00\",\"hits\":5"),
        ("entries", "\"name\":\"/\",\"hits\":2"),
    ] {
        assert!(panel(&json, id).contains(row), "{id}: {row}: {}", panel(&json, id));
    }
    let text = place.said(&["a.log"]);
    assert!(text.contains("Valid requests       5\n") && text.contains("Status codes"), "{text}");
    assert!(place.said(&["--output=csv", "a.log"]).contains("\r\nsummary,\"unique_visitors\",,3,"));
    assert_eq!(place.said(&["--output", "html", "--write", "a.html", "a.log"]), "");
    assert!(fs::read_to_string(place.path("a.html")).unwrap().starts_with("<!doctype html>"));
}

#[test]
fn what_is_compressed_or_piped_is_the_same() {
    let place = Place::new();
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(log().as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let mut zstd = vec![0; 10_000];
    let n = zstd_safe::compress(&mut zstd[..], log().as_bytes(), 1).unwrap();
    place.write("a.gz", &gzip);
    // Several in one, as logs are put together.
    place.write("b.gz", [&gzip[..], &gzip].concat());
    place.write("a.zst", &zstd[..n]);
    place.write("b.zst", [&zstd[..n], &zstd[..n]].concat());
    for threads in ["1", "3"] {
        for name in ["a.gz", "a.zst"] {
            let json = place.said(&["--output", "json", "--threads", threads, name]);
            assert!(json.contains(SUMMARY), "{name}: {json}");
        }
        let json = place.said(&[
            "--output",
            "json",
            "--threads",
            threads,
            "a.gz",
            "b.gz",
            "a.zst",
            "b.zst",
        ]);
        assert!(
            json.contains("\"valid_requests\":30,") && json.contains("\"unique_visitors\":3,"),
            "{json}"
        );
    }
    for bytes in [gzip, log().into_bytes()] {
        let mut child = place.command(&["--output", "json", "-"]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains(SUMMARY));
    }
}

#[test]
fn what_is_cut_off_is_said() {
    let place = Place::new();
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    (0..20_000).for_each(|n| {
        gzip.write_all(line("192.0.2.1", &format!("/{n}"), 200, "-").as_bytes()).unwrap()
    });
    let gzip = gzip.finish().unwrap();
    place.write("a.gz", &gzip[..gzip.len() / 2]);
    let long: Vec<u8> = (0..20_000)
        .flat_map(|n| line("192.0.2.1", &format!("/{n}"), 200, "-").into_bytes())
        .collect();
    let mut zstd = vec![0; long.len()];
    let n = zstd_safe::compress(&mut zstd[..], &long, 1).unwrap();
    place.write("a.zst", &zstd[..n - 5]);
    for name in ["a.gz", "a.zst"] {
        let output = place.run(&["--output", "json", name]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(name) && said.contains("not counted"), "{said}");
        let json = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(json.contains("\"summary\""), "what was there is shown: {json}");
    }
}

/// As gzip(1): zeros behind the end are nothing, and what was whole before a bad end is there.
#[test]
fn lines_before_a_bad_end_are_counted() {
    let place = Place::new();
    let packed = |lines: usize| {
        let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let uris = (0..lines).map(|n| line("192.0.2.1", &format!("/{n}"), 200, "-"));
        uris.for_each(|one| gzip.write_all(one.as_bytes()).unwrap());
        gzip.finish().unwrap()
    };
    for lines in [1000, 10_000] {
        let gzip = packed(lines);
        let wanted = format!("\"valid_requests\":{lines},\"failed_requests\":0,");
        place.write("a.gz", [&gzip[..], &[0; 512]].concat());
        assert!(place.said(&["--output", "json", "a.gz"]).contains(&wanted));
        place.write("a.gz", [&gzip[..], &[0; 512], &gzip].concat());
        let twice = format!("\"valid_requests\":{},", 2 * lines);
        assert!(place.said(&["--output", "json", "a.gz"]).contains(&twice));
        let mut wrong = gzip.clone();
        let crc = wrong.len() - 8;
        wrong[crc] ^= 1;
        for bytes in [[&gzip[..], b"garbage behind it"].concat(), wrong] {
            place.write("a.gz", bytes);
            let output = place.run(&["--output", "json", "a.gz"]);
            assert_eq!(output.status.code(), Some(1));
            assert!(String::from_utf8_lossy(&output.stdout).contains(&wanted));
            assert!(String::from_utf8_lossy(&output.stderr).contains("not counted"));
        }
        place.write("a.gz", &gzip[..gzip.len() - 50]);
        let output = place.run(&["--output", "json", "a.gz"]);
        assert_eq!(output.status.code(), Some(1));
        let json = String::from_utf8(output.stdout).unwrap();
        let at = json.find("\"valid_requests\":").unwrap() + 17;
        let digits: String = json[at..].chars().take_while(char::is_ascii_digit).collect();
        let counted = digits.parse::<usize>().unwrap();
        assert!((lines - 200..lines).contains(&counted), "{counted} of {lines}");
    }
}

/// A picture that somebody else's page shows does not make that the site's own name.
#[test]
fn the_own_name_is_taken_from_who_asked_for_the_page() {
    let place = Place::new();
    let forum = "https://forum.example/thread";
    let mut text: String =
        (0..5).map(|n| line(&format!("192.0.2.{n}"), "/landing", 200, forum)).collect();
    text += &line("192.0.2.9", "/other", 200, "https://search.example/");
    text += &line("192.0.2.7", "/logo.png", 200, forum);
    place.write("a.log", &text);
    let output = place.run(&["--output", "json", "a.log"]);
    let json = String::from_utf8(output.stdout).unwrap();
    assert!(panel(&json, "entries").contains("\"name\":\"/landing\",\"hits\":5"), "{json}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    text += &line("192.0.2.9", "/a.css", 200, "https://shop.example/other");
    text += &line("192.0.2.9", "/next", 200, "https://shop.example/other");
    place.write("a.log", &text);
    let output = place.run(&["--output", "json", "a.log"]);
    let json = String::from_utf8(output.stdout).unwrap();
    assert!(panel(&json, "entries").contains("\"name\":\"/landing\",\"hits\":5"), "{json}");
    assert!(!panel(&json, "entries").contains("/next"), "{json}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("\"shop.example\" is taken") && said.contains("--site"), "{said}");
}

#[test]
fn threads_do_not_matter() {
    let place = Place::new();
    // More than two parts of a file.
    let filler = "x".repeat(900);
    let mut text = String::new();
    for n in 0..36_000_u32 {
        let uri = format!("/{}?{filler}", n % 50);
        text.push_str(&line(&format!("192.0.2.{}", n % 100), &uri, 200, "-"));
    }
    place.write("a.log", text.trim_end());
    let json = |threads| place.said(&["--output", "json", "--threads", threads, "a.log"]);
    let one = json("1");
    assert!(one.contains("\"valid_requests\":36000,\"failed_requests\":0,"), "{one:.400}");
    assert!(one.contains("\"unique_visitors\":100,\"unique_files\":50,"), "{one:.400}");
    assert_eq!(one, json("2"));
    assert_eq!(one, json("5"));
}

#[test]
fn lines_that_are_odd() {
    let place = Place::new();
    let good = line("192.0.2.1", "/", 200, "-");
    let text = [
        good.as_bytes(),
        good.trim_end().as_bytes(),
        b"\r\n",
        b"\0\0\0\n\xff\xfe\n\n\n",
        &vec![b'x'; 700_000],
        b"\n",
        good.replace("/ HTTP", &format!("/{} HTTP", "y".repeat(100_000))).as_bytes(),
        good.trim_end().as_bytes(),
    ]
    .concat();
    place.write("a.log", text);
    let json = place.said(&["--output", "json", "a.log"]);
    assert!(json.contains("\"valid_requests\":3,\"failed_requests\":4,"), "{json}");
    assert!(json.contains("\"longer than a line may be\":2"), "{json}");
    place.write("empty.log", "");
    assert!(place.said(&["--output", "json", "empty.log"]).contains("\"total_requests\":0,"));
}

#[test]
fn strangers_write_nothing_but_text() {
    let place = Place::new();
    let mut text = line("192.0.2.1", "/<script>alert(1)</script>&'", 200, "=HYPERLINK(1)//a");
    text.push_str(&line(
        "192.0.2.1",
        "/\x1b[2J\x07%1b%0a\u{202e}",
        404,
        "@SUM(1)//<img src=x onerror=y>",
    ));
    place.write("a.log", text);
    let html = place.said(&["--output", "html", "a.log"]);
    assert!(
        !html.contains("<script") && !html.contains("<img") && html.contains("&lt;script&gt;"),
        "{html}"
    );
    assert!(
        html.contains("default-src 'none'") && !html.contains("src=\"") && !html.contains("href=")
    );
    for kind in ["html", "terminal", "csv", "json"] {
        let said = place.said(&["--output", kind, "a.log"]);
        let is_bad = |c: char| (c.is_control() && c != '\n' && c != '\r') || c == '\u{202e}';
        assert!(!said.contains(is_bad), "{kind}: {said}");
    }
    let csv = place.said(&["--output", "csv", "a.log"]);
    assert!(csv.contains("\"'=HYPERLINK(1)//a\"") && csv.contains("\"'@SUM(1)//"), "{csv}");
}

/// A run that follows, and its reports, one in each line.
struct Follower {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Follower {
    fn start(place: &Place, args: &[&str]) -> Follower {
        let mut command = place.command(&["--follow", "--every", "0.05", "--output", "json"]);
        let mut child = command.args(args).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Follower { child, lines }
    }

    /// Reads reports until one says so; none may say more.
    fn until(&mut self, valid: u32) {
        let wanted = format!("\"valid_requests\":{valid},");
        loop {
            let line = self.lines.next().expect("a report").unwrap();
            let at = line.find("\"valid_requests\":").unwrap() + "\"valid_requests\":".len();
            let digits: String = line[at..].chars().take_while(char::is_ascii_digit).collect();
            assert!(digits.parse::<u32>().unwrap() <= valid, "{digits} and not {valid}");
            if line.contains(&wanted) {
                return;
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_log_is_followed_over_its_rotation() {
    let place = Place::new();
    let one = line("192.0.2.1", "/", 200, "-");
    let (start, end) = one.split_at(30);
    place.write("a.log", format!("{one}{start}"));
    let mut follower = Follower::start(&place, &["a.log"]);
    follower.until(1);
    let mut old = OpenOptions::new().append(true).open(place.path("a.log")).unwrap();
    old.write_all(end.as_bytes()).unwrap();
    follower.until(2);
    fs::rename(place.path("a.log"), place.path("a.log.1")).unwrap();
    // Who writes does not know yet, and may stop in the middle of a line.
    old.write_all(one.as_bytes()).unwrap();
    old.write_all(start.as_bytes()).unwrap();
    follower.until(3);
    old.write_all(end.as_bytes()).unwrap();
    place.write("a.log", one.repeat(2));
    follower.until(6);
    // Copied away, and cut.
    place.write("a.log", &one);
    follower.until(7);
}

#[test]
fn what_is_no_browser_is_told_apart() {
    let place = Place::new();
    let agents = [
        "FooBot/1.0",
        "Mozilla/5.0 (compatible; bingbot/2.0)",
        "okhttp/4.12",
        "Mozilla/5.0",
        "-",
        "x",
    ];
    let said = |agent: &str| line("192.0.2.1", "/", 200, "-").replace(FIREFOX, agent);
    place.write("a.log", agents.map(said).concat());
    let json = place.said(&["--output", "json", "a.log"]);
    let browsers = panel(&json, "browsers");
    for name in ["Crawlers", "Others", "Unknown"] {
        assert!(browsers.contains(&format!("\"name\":\"{name}\",\"hits\":2,")), "{browsers}");
    }
    assert_eq!(browsers.matches("\"name\"").count(), 3, "{browsers}");
}

/// Whether a process has SIGTERM blocked, which it then waits for.
fn listens(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    blocked.is_some_and(|mask| mask & 1 << 14 != 0)
}

/// ctrl-C and SIGTERM end reading, and what was read is told.
#[test]
fn an_interrupt_ends_with_what_was_read() {
    let place = Place::new();
    let mut command = place.command(&["--output", "json", "-"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let one = line("192.0.2.1", "/", 200, "-");
    input.write_all(one.repeat(3).as_bytes()).unwrap();
    let pid = child.id();
    expect_soon("that it listens", || listens(pid));
    signal(pid, Signal::Term);
    let output = child.wait_with_output().unwrap();
    let (said, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("\"valid_requests\":3,"), "{said}");
    assert!(
        errors.contains("standard input: interrupted; what is behind is not counted"),
        "{errors}"
    );
    assert_eq!(output.status.code(), Some(1));

    place.write("a.log", &one);
    let mut follower = Follower::start(&place, &["a.log"]);
    follower.until(1);
    signal(follower.child.id(), Signal::Term);
    assert!(follower.child.wait().unwrap().success());
}

#[test]
fn estimates_are_the_same_whenever_a_log_is_read() {
    let place = Place::new();
    let mut text = String::new();
    for n in 0..30_000_u32 {
        let address = format!("10.{}.{}.{}", n % 3, n % 200, n / 200);
        text.push_str(&line(&address, &format!("/{}", n % 7), 200, "-"));
    }
    place.write("a.log", &text);
    let json = |threads| place.said(&["--output", "json", "--threads", threads, "a.log"]);
    let first = json("1");
    // More visitors of a URL than are counted one by one.
    assert!(first == json("1"));
    for id in ["visitors", "requests", "browsers"] {
        assert_eq!(panel(&first, id), panel(&json("2"), id));
    }
}

#[test]
fn an_empty_log_is_followed() {
    let place = Place::new();
    place.write("a.log", "");
    let mut follower = Follower::start(&place, &["a.log"]);
    follower.until(0);
    place.write("a.log", line("192.0.2.1", "/", 200, "-"));
    follower.until(1);
}

#[test]
fn formats_of_a_configuration() {
    let place = Place::new();
    let conf = r#"
        events {}
        http {
            log_format plain '$remote_addr|$time_iso8601|'
                             '$request|$status|$request_time';
            log_format data escape=json '{"when":"$msec","who":"$remote_addr","what":"$request","took":$request_time}';
            server {
                access_log logs/shop.log plain buffer=64k;
                location /api { access_log logs/api.log data; }
                location /x { access_log logs/x.log; }
                location /lua { content_by_lua_block { ngx.say('it"s }') -- }
                } }
            }
        }
    "#;
    place.write("nginx.conf", conf);
    let plain = "192.0.2.1|2026-10-10T13:55:36+00:00|GET /slow HTTP/1.1|200|1.500\n";
    let data = "{\"when\":\"1791640536.000\",\"who\":\"192.0.2.1\",\"what\":\"GET /slow HTTP/1.1\",\"took\":1.500}\n";
    place.write("shop.log.1", plain);
    place.write("api.log", data);
    place.write("x.log", line("192.0.2.1", "/slow", 200, "-"));
    place.write("other.log", plain);
    for name in ["shop.log.1", "api.log", "x.log"] {
        let json = place.said(&["--conf", "nginx.conf", "--output", "json", name]);
        assert!(json.contains("\"valid_requests\":1,\"failed_requests\":0,"), "{name}: {json}");
        assert!(panel(&json, "requests").contains("\"name\":\"/slow\""));
        if name != "x.log" {
            assert!(panel(&json, "slowest").contains("\"longest_us\":1500000"), "{json}");
        }
    }
    let json =
        place.said(&["--conf", "nginx.conf", "--log", "plain", "--output", "json", "other.log"]);
    assert!(json.contains("\"valid_requests\":1,"), "{json}");
    // One that no access_log writes tells itself, beside others that one does.
    place.write("own.log", line("192.0.2.1", "/slow", 200, "-"));
    let json = place.said(&["--conf", "nginx.conf", "--output", "json", "own.log", "shop.log.1"]);
    assert!(json.contains("\"valid_requests\":2,\"failed_requests\":0,"), "{json}");
    let said = place.complaint(&["--conf", "nginx.conf", "other.log"]);
    assert!(said.contains("--log") && said.contains("plain, data"), "{said}");
    let said = place.complaint(&["--conf", "nginx.conf", "--log", "nosuch", "other.log"]);
    assert!(said.contains("no log_format \"nosuch\""), "{said}");
    place.write("broken.conf", "events {");
    let said = place.complaint(&["--conf", "broken.conf", "other.log"]);
    assert!(said.contains("broken.conf:1"), "{said}");
    let text = "$remote_addr|$time_iso8601|$request|$status|$request_time";
    assert!(place.said(&["--format", text, "other.log"]).contains("Time, longest"));
    assert!(place.complaint(&["other.log"]).contains("--format"));
}

#[test]
fn addresses_are_kept_out() {
    let place = Place::new();
    place.write("a.log", log());
    let shortened = place.said(&["--anonymize", "shorten", "--output", "json", "a.log"]);
    assert!(shortened.contains(SUMMARY), "{shortened}");
    assert!(
        panel(&shortened, "hosts").contains("\"name\":\"192.0.2.0/24\",\"hits\":4"),
        "{shortened}"
    );
    for kind in ["json", "csv", "html", "terminal"] {
        let said = place.said(&["--anonymize", "hash", "--output", kind, "a.log"]);
        assert!(!said.contains("192.0.2.") && !said.contains("2001:db8"), "{said}");
    }
    let twice = [(); 2].map(|()| place.said(&["--anonymize", "hash", "--output", "json", "a.log"]));
    assert_ne!(
        panel(&twice[0], "hosts"),
        panel(&twice[1], "hosts"),
        "the secret ends with the run"
    );
}

#[test]
fn countries_networks_and_who_lies() {
    let place = Place::new();
    let country =
        |code| Value::Map(vec![("country", Value::Map(vec![("iso_code", Value::Text(code))]))]);
    let network = |number, name| {
        Value::Map(vec![
            ("autonomous_system_number", Value::Number(number)),
            ("autonomous_system_organization", Value::Text(name)),
        ])
    };
    place.write(
        "c.mmdb",
        mmdb::file("C", 1, &[("192.0.2.0/24", country("SE")), ("198.51.100.0/24", country("NO"))]),
    );
    place.write(
        "n.mmdb",
        mmdb::file(
            "N",
            1,
            &[
                ("192.0.2.0/24", network(64_500, "Example <b>")),
                ("198.51.100.0/24", network(15_169, "Google")),
            ],
        ),
    );
    let bot = |address: &str| {
        line(address, "/", 200, "-").replace(FIREFOX, "Mozilla/5.0 (compatible; Googlebot/2.1)")
    };
    let text =
        [bot("192.0.2.1"), bot("198.51.100.1"), line("203.0.113.1", "/.env", 404, "-")].concat();
    place.write("a.log", text);
    let json = place.said(&["--geoip", "c.mmdb", "--geoip", "n.mmdb", "--output", "json", "a.log"]);
    let countries = panel(&json, "countries");
    assert!(
        countries.contains("\"SE\"") && countries.contains("\"NO\"") && countries.contains("\"-\""),
        "{countries}"
    );
    assert!(panel(&json, "networks").contains("\"AS64500 Example <b>\""), "{json}");
    let liars = panel(&json, "liars");
    assert!(
        liars.contains("192.0.2.1 says it is Googlebot") && !liars.contains("198.51"),
        "{liars}"
    );
    assert!(liars.contains("203.0.113.1 says it is a browser"), "{liars}");
    let without = place.said(&["--output", "json", "a.log"]);
    assert!(panel(&without, "liars").contains("198.51.100.1 says it is Googlebot"), "{without}");
    assert!(!without.contains("\"countries\""));
    place.write("bad.mmdb", "nothing");
    assert!(place.complaint(&["--geoip", "bad.mmdb", "a.log"]).contains("no MaxMind DB file"));
}

#[test]
fn a_part_of_the_time() {
    let place = Place::new();
    let at = |day: &str| line("192.0.2.1", "/", 200, "-").replace("10/Oct/2026:13:55", day);
    let text = ["09/Oct/2026:23:59", "10/Oct/2026:00:00", "10/Oct/2026:13:00", "11/Oct/2026:00:00"]
        .map(at);
    place.write("a.log", text.concat());
    let json = place.said(&[
        "--from",
        "2026-10-10",
        "--to",
        "2026-10-10T13:00",
        "--output",
        "json",
        "a.log",
    ]);
    assert!(
        json.contains("\"valid_requests\":2,\"failed_requests\":0,\"outside_requests\":2,"),
        "{json}"
    );
}

#[test]
fn mistakes_are_said() {
    let place = Place::new();
    place.write("a.log", log());
    for (args, why) in [
        (&["--nosuch", "a.log"][..], "there is no option \"--nosuch\""),
        (&["nosuch.log"], "nosuch.log"),
        (&["."], "directory"),
        (&["--follow", "--output", "html", "a.log"], "--write"),
        (&["--write", "no/such/dir", "a.log"], "no/such/dir"),
        (&["--format", "$host", "a.log"], "client's address"),
    ] {
        let said = place.complaint(args);
        assert!(said.starts_with("weir analyze: ") && said.contains(why), "{args:?}: {said}");
    }
    let help = place.said(&["--help"]);
    assert!(help.contains("--anonymize HOW") && help.contains("vcombined"), "{help}");
    let progress = place.run(&["--progress", "a.log"]);
    assert!(String::from_utf8_lossy(&progress.stderr).contains("100.0 %"));
}

#[test]
fn goaccess_counts_the_same() {
    let Some(goaccess) = tools::need("goaccess") else { return };
    let place = Place::new();
    let mut text = log();
    for n in 0..3000_u32 {
        let uri = ["/", "/b.css", "/c.css?x", "/p%41ge", "/d.woff2", "/caf%C3%A9"][n as usize % 6];
        let status = [200, 200, 304, 404, 403, 500, 301][n as usize % 7];
        let day = format!("{:02}/Oct/2026", n % 5 + 1);
        let mut one =
            line(&format!("192.0.2.{}", n % 90), uri, status, "-").replace("10/Oct/2026", &day);
        match n % 13 {
            0 => one = one.replace("GET ", "POST "),
            1 => one = one.replace("HTTP/1.1", "HTTP/2.0"),
            2 => one = one.replace(&format!("GET {uri} HTTP/1.1"), "\\x16\\x03\\x01"),
            3 => one = one.replace(" HTTP/1.1\"", "\""),
            4 => one = one.replace(FIREFOX, "-"),
            5 => one = one.replace("192.0.2", "192.0.300"),
            6 => one = one.replace(&format!("GET {uri} HTTP/1.1"), ""),
            _ => {}
        }
        text.push_str(&one);
    }
    place.write("a.log", text);
    let args = [
        "-f",
        "a.log",
        "--log-format=COMBINED",
        "--no-global-config",
        "--http-method=yes",
        "--http-protocol=yes",
        "--static-file=.css",
        "--static-file=.woff2",
        "--no-progress",
        "-o",
        "g.json",
    ];
    let done = goaccess.command().args(args).current_dir(place.0.dir()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let theirs = fs::read_to_string(place.path("g.json")).unwrap();
    let ours = place.said(&["--output", "json", "a.log"]);
    let number = |json: &str, name: &str| -> u64 {
        let at =
            json.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {json:.500}"));
        let digits =
            json[at + name.len() + 3..].trim_start().chars().take_while(char::is_ascii_digit);
        digits.collect::<String>().parse().unwrap()
    };
    for name in [
        "total_requests",
        "valid_requests",
        "failed_requests",
        "unique_visitors",
        "unique_files",
        "unique_not_found",
        "unique_static_files",
    ] {
        assert_eq!(number(&ours, name), number(&theirs, name), "{name}");
    }
    assert_eq!(number(&ours, "bytes"), number(&theirs, "bandwidth"));
}
