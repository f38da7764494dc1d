//! Access logs: whatever a line holds, it is a request or it is none; what a format takes apart is of the line; and
//! what is shown moves nothing.

use super::Target;
use crate::random::Random;
use weir_analytics::format::{detect, Escape, Format, NAMED};
use weir_analytics::render::{csv, html, json, terminal, Shown};
use weir_analytics::report::{Limits, Options, Report};
use weir_analytics::sketch::Seed;

pub const LINES: Target = Target {
    name: "access logs",
    seeds: &[
        b"10.0.0.1 - bob [10/Oct/2026:13:55:36 +0000] \"GET /a%20b?c HTTP/1.1\" 200 2326 \"http://x/y\" \"curl/8.5\"\n",
        b"h:80 ::1 - - [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/2.0\" 404 5 \"-\" \"Googlebot/2.1 (+http://x)\"\n",
        b"{\"ts\":1791640536.5,\"request\":{\"remote_ip\":\"10.0.0.1\",\"method\":\"GET\",\"uri\":\"/\\u00e9\",\
          \"headers\":{\"User-Agent\":[\"a\\\"b\"]}},\"status\":200,\"size\":5,\"duration\":0.1}\n",
        b"#Fields: date time c-ip cs-method cs-uri-stem sc-status time-taken\n2026-10-10 13:55:36 10.0.0.1 GET / 200 5\n",
        b"https 2026-10-10T13:55:36.1Z lb 10.0.0.1:5 10.1.0.1:80 0 0.25 0 200 200 0 5 \"GET http://h/ HTTP/1.1\" \"a\" -\n",
    ],
    pieces: &[
        b"\"", b"\\\"", b"\\", b"\n", b"\r\n", b" - ", b"[", b"] \"", b"{", b"}", b"[[[[", b"\\ud83d\\ude00",
        b"\\u", b"%", b"%00", b"\0", b"\xff", b"\x1b[2J", b"10/Oct/2026:13:55:36", b"1e999", b"99999999999999999999",
        b"<script>", b"=1+1", b"\xe2\x80\xae", b"//", b"::", b"unix:", b"-",
    ],
    check: lines,
};

pub const FORMATS: Target = Target {
    name: "formats of access logs",
    seeds: &[
        b"$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent",
        b"{\"t\":\"$time_iso8601\",\"a\":\"${remote_addr}\",\"u\":\"$request_uri\"}",
        b"%v:%p %h %l %u %t \\\"%r\\\" %>s %O \\\"%{Referer}i\\\" \\\"%{User-Agent}i\\\" %{us}T",
    ],
    pieces: &[
        b"$", b"${", b"}", b"%", b"%{", b"%%", b"$msec", b"$args", b"\\t", b" ", b"\"", b"%{sec}t",
    ],
    check: formats,
};

fn is_still(text: &str) -> bool {
    !text.chars().any(|c| (c.is_control() && c != '\n' && c != '\r') || c == '\u{202e}')
}

fn lines(buf: &[u8], random: &mut Random) {
    let named = NAMED[random.below(NAMED.len())];
    let named = Format::given(named.as_bytes()).expect("it is one of the names");
    let found = detect(buf);
    let mut whole = Report::new(Options::new(Limits::live(), Seed::new(1)));
    let mut parts = [whole.clone(), whole.clone()];
    let mut count = 0;
    for format in found.iter().chain([&named]) {
        let mut scanner = format.scanner();
        for (n, line) in buf.split(|b| *b == b'\n').enumerate() {
            match scanner.scan(line) {
                Some(Ok(event)) => {
                    assert!(event.status == 0 || (100..600).contains(&event.status));
                    assert!(event.time.second < 86_400);
                    assert!(event.agent.len() <= line.len() && event.referrer.len() <= line.len());
                    whole.add(&event);
                    parts[n % 2].add(&event);
                    count += 1;
                }
                Some(Err(why)) => whole.add_invalid(why),
                None => {}
            }
        }
    }
    assert_eq!(whole.summary().valid, count);
    let [mut merged, other] = parts;
    merged.merge(other);
    assert_eq!(format!("{:?}", merged.panels(9)), format!("{:?}", whole.panels(9)));
    let (summary, panels) = (whole.summary(), whole.panels(9));
    let shown = Shown { sources: &[], summary: &summary, panels: &panels };
    assert!([csv(&shown), html(&shown), json(&shown), terminal(&shown, 80)]
        .iter()
        .all(|t| is_still(t)));
}

fn formats(buf: &[u8], random: &mut Random) {
    let escape = [Escape::Default, Escape::Json, Escape::None][random.below(3)];
    for format in [Format::given(buf), Format::nginx(buf, escape)].into_iter().flatten() {
        let mut scanner = format.scanner();
        for line in LINES.seeds.iter().copied().chain([buf]) {
            let _ = scanner.scan(line);
        }
    }
}
