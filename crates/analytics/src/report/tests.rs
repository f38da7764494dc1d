use super::*;
use crate::format::Format;

const LINES: &str = r#"192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 100 "-" "Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0"
192.0.2.1 - - [10/Oct/2026:13:55:37 +0000] "GET /a.css HTTP/1.1" 200 50 "http://own.example/" "Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0"
192.0.2.1 - - [10/Oct/2026:14:00:00 +0000] "GET /missing%20one HTTP/2.0" 404 10 "https://search.example/x" "Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0"
192.0.2.1 - - [11/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 100 "-" "Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0"
203.0.113.9 - - [11/Oct/2026:13:55:36 +0000] "HEAD / HTTP/1.1" 200 0 "-" "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
198.51.100.1 - - [11/Oct/2026:14:55:36 +0000] "GET /.env HTTP/1.1" 403 5 "-" "Mozilla/5.0 (Windows NT 10.0) Chrome/120.0 Safari/537.36"
198.51.100.2 - - [11/Oct/2026:14:55:36 +0000] "GET /page HTTP/1.1" 200 5000 "http://own.example/" "Mozilla/5.0 (Windows NT 10.0) Chrome/120.0 Safari/537.36"
broken
"#;

fn options() -> Options {
    Options { site: b"own.example".to_vec(), ..Options::new(Limits::offline(1), Seed::new(3)) }
}

fn read(lines: &str, options: &Options) -> Report {
    let mut report = Report::new(options.clone());
    let mut scanner = Format::given(b"combined").unwrap().scanner();
    for line in lines.lines() {
        match scanner.scan(line.as_bytes()) {
            Some(Ok(event)) => report.add(&event),
            Some(Err(why)) => report.add_invalid(why),
            None => {}
        }
    }
    report
}

fn rows(report: &Report, id: &str) -> Vec<(String, u64, u64)> {
    let panels = report.panels(10);
    let panel = panels.into_iter().find(|p| p.id == id);
    let rows = panel.map(|p| p.rows).unwrap_or_default();
    rows.into_iter().map(|r| (r.name, r.hits, r.visitors.unwrap_or(0))).collect()
}

fn row_of(name: &str, hits: u64, visitors: u64) -> (String, u64, u64) {
    (name.to_owned(), hits, visitors)
}

#[test]
fn what_counts_as_what() {
    let report = read(LINES, &options());
    let all = report.summary();
    assert_eq!((all.valid, all.invalid, all.bytes), (7, 1, 5265));
    // 192.0.2.1 on two days, the robot, the last; not who only met a 403.
    assert_eq!((all.visitors, all.visitors_error), (4, 0.0));
    assert_eq!((all.files.0, all.statics.0, all.missing.0, all.referrers.0), (4, 1, 1, 2));
    assert_eq!((&*all.first, &*all.last), ("2026-10-10 13:55:36", "2026-10-11 14:55:36"));
    assert_eq!(all.reasons, [("another form than the format's", 1)]);
    assert_eq!(rows(&report, "visitors"), [row_of("2026-10-10", 3, 1), row_of("2026-10-11", 4, 3)]);
    let requests =
        [row_of("/", 2, 2), row_of("/", 1, 1), row_of("/.env", 1, 0), row_of("/page", 1, 1)];
    assert_eq!(rows(&report, "requests"), requests);
    assert_eq!(rows(&report, "static_requests"), [row_of("/a.css", 1, 1)]);
    assert_eq!(rows(&report, "not_found"), [row_of("/missing one", 1, 0)]);
    assert_eq!(rows(&report, "entries"), [row_of("/", 2, 0)]);
    assert_eq!(rows(&report, "heaviest")[0], row_of("/page", 1, 1));
    assert_eq!(rows(&report, "hosts")[0], row_of("192.0.2.1", 4, 2));
    assert_eq!(
        rows(&report, "referring_sites"),
        [row_of("own.example", 2, 2), row_of("search.example", 1, 0)]
    );
    assert_eq!(rows(&report, "browsers")[0], row_of("Firefox", 4, 2));
    assert_eq!(rows(&report, "browser_versions")[0].0, "Firefox 121");
    assert_eq!(rows(&report, "systems")[0], row_of("Linux", 4, 2));
    assert_eq!(rows(&report, "bots"), [row_of("Googlebot", 1, 1)]);
    assert_eq!(rows(&report, "bot_kinds"), [row_of("search engines", 1, 1)]);
    assert_eq!(
        rows(&report, "liars"),
        [
            row_of("198.51.100.1 says it is a browser, and looks for holes", 1, 0),
            row_of("203.0.113.9 says it is Googlebot", 1, 1),
        ]
    );
    assert_eq!(rows(&report, "status_codes")[0], row_of("200", 5, 4));
    assert_eq!(rows(&report, "methods"), [row_of("GET", 6, 3), row_of("HEAD", 1, 1)]);
    assert_eq!(rows(&report, "protocols"), [row_of("HTTP/1.1", 6, 4), row_of("HTTP/2", 1, 0)]);
    assert_eq!(rows(&report, "hours").len(), 24);
    assert_eq!(rows(&report, "hours")[13], row_of("13:00", 4, 3));
    assert!(rows(&report, "countries").is_empty() && rows(&report, "slowest").is_empty());
}

#[test]
fn parts_merge_to_the_whole() {
    let lines: String = (0..3000)
        .map(|n| {
            let (a, b) = (n % 251, n % 7);
            format!(
                "192.0.{b}.{a} - - [{:02}/Oct/2026:13:55:36 +0000] \"GET /{} HTTP/1.1\" {} {n} \"http://r{b}/\" \"curl/{b}\"\n",
                n % 28 + 1,
                n % 97,
                if n % 11 == 0 { 404 } else { 200 },
            )
        })
        .collect();
    let whole = read(&lines, &options());
    let mut parts = Report::new(options());
    let all: Vec<&str> = lines.lines().collect();
    for part in all.chunks(700) {
        parts.merge(read(&part.join("\n"), &options()));
    }
    assert_eq!(format!("{:?}", whole.summary()), format!("{:?}", parts.summary()));
    let shown = |r: &Report| format!("{:?}", r.panels(50));
    assert_eq!(shown(&whole), shown(&parts));
}

#[test]
fn times_that_were_asked_for() {
    let mut wanted = options();
    wanted.from = crate::format::time::given(b"2026-10-10T14:00", false);
    wanted.to = crate::format::time::given(b"2026-10-11 13:59", true);
    let report = read(LINES, &wanted);
    let all = report.summary();
    assert_eq!((all.valid, all.invalid, all.outside), (3, 1, 4));
}

#[test]
fn addresses_can_be_kept_out() {
    let shortened = Options { privacy: Privacy::Shortened, ..options() };
    let report = read(LINES, &shortened);
    assert_eq!(rows(&report, "hosts")[0], row_of("192.0.2.0/24", 4, 2));
    assert_eq!(report.summary().visitors, 4, "visitors are told apart all the same");
    let hashed = Privacy::Hashed(crate::privacy::Secret::new(&[1; 32]));
    let report = read(LINES, &Options { privacy: hashed, ..options() });
    let text = format!("{:?}", report.panels(100));
    assert!(!text.contains("192.0.2") && !text.contains("198.51"), "{text}");
    assert_eq!(rows(&report, "hosts").len(), 5, "one name a day");
}

#[test]
fn bytes_are_bounded_whatever_is_sent() {
    let limits = Limits::live();
    let mut report = Report::new(Options::new(limits, Seed::new(1)));
    let mut scanner = Format::given(b"vcombined").unwrap().scanner();
    let mut most = 0;
    for n in 0..60_000_u32 {
        let name = format!("{n:0200}");
        let line = format!(
            "h{n}:80 10.{}.{}.{} - - [{:02}/{}/20{:02}:13:55:36 +0000] \"GET /{name} HTTP/1.1\" 200 {n} \"http://{name}/{n}\" \"{name}bot\"",
            n >> 16, n >> 8 & 255, n & 255, n % 28 + 1, ["Jan", "Jul"][n as usize % 2], n % 100,
        );
        match scanner.scan(line.as_bytes()) {
            Some(Ok(event)) => report.add(&event),
            other => panic!("{line}: {:?}", other.map(|r| r.err())),
        }
        if n % 500 == 0 {
            most = most.max(report.heap_bytes());
        }
    }
    assert!(most < 16 << 20, "{most}");
    assert_eq!(report.summary().valid, 60_000);
}
