use super::*;
use crate::report::{Limits, Options, Report};
use crate::sketch::Seed;

/// Of one line with everything that may be bad for somebody.
fn hostile(then: impl Fn(Shown<'_>) -> String) -> String {
    let uri = "/<script>alert(1)</script>\"'&\x1b[2J\u{202e}";
    let line = format!(
        "=cmd|x 192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] \"GET {uri} HTTP/1.1\" 200 5 \"=HYPERLINK(1)//<b>\" \"<img src=x>bot\""
    );
    let mut scanner = crate::format::Format::given(b"$host $remote_addr - - [$time_local] \"GET $request_uri HTTP/1.1\" $status $bytes_sent \"$http_referer\" \"$http_user_agent\"").unwrap().scanner();
    let mut report = Report::new(Options::new(Limits::live(), Seed::new(1)));
    report.add(&scanner.scan(line.as_bytes()).unwrap().unwrap());
    let (summary, panels) = (report.summary(), report.panels(10));
    then(Shown { sources: &["<log>\"".to_owned()], summary: &summary, panels: &panels })
}

#[test]
fn a_page_has_no_tags_of_strangers() {
    let page = hostile(|shown| html(&shown));
    for part in [
        "<script", "<img", "<b>a", "<log", "\x1b", "\u{202e}", "http:", "https:", "url(", "@import",
    ] {
        assert!(!page.contains(part), "{part}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("\\x1b[2J\\u{202e}"));
    // Tags that are opened have only these names.
    for tag in page.split('<').skip(1) {
        let name: String = tag.chars().take_while(|c| !" >\n".contains(*c)).collect();
        let name = name.trim_start_matches('/').to_owned();
        let known = "!doctype html head meta title style body h1 h2 div b p details summary span table tr th td small svg rect";
        assert!(known.split(' ').any(|k| k == name.trim_end_matches('/')), "{name}");
    }
}

#[test]
fn a_table_has_no_formulas() {
    let table = hostile(|shown| csv(&shown));
    for line in table.lines().skip(1) {
        for cell in line.split(',') {
            let cell = cell.trim_matches('"');
            assert!(!cell.starts_with(['=', '+', '-', '@']), "{line}");
        }
    }
    assert!(table.contains("\"'=cmd|x\"") && table.contains("\"'=HYPERLINK(1)//<b>\""), "{table}");
    assert!(table.contains("\"\"'&"), "quotes are doubled");
}

#[test]
fn a_terminal_gets_lines_alone() {
    let text = hostile(|shown| terminal(&shown, 80));
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    assert!(text.contains("Valid requests       1\n"), "{text}");
}

#[test]
fn json_is_json() {
    let text = hostile(|shown| json(&shown));
    assert!(text.contains(r#""valid_requests":1,"#) && text.ends_with("}\n"));
    assert!(text.contains(r#""name":"/<script>alert(1)</script>\"'&\\x1b[2J\\u{202e}""#), "{text}");
    assert_eq!(text.matches('\n').count(), 1);
    let (mut depth, mut is_text, mut is_escaped) = (0, false, false);
    for c in text.trim_end().chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            '{' | '[' if !is_text => depth += 1,
            '}' | ']' if !is_text => depth -= 1,
            _ => {}
        }
    }
    assert_eq!((depth, is_text), (0, false));
}

#[test]
fn figures() {
    assert_eq!(
        (bytes(999), bytes(1000), bytes(999_999), bytes(u64::MAX)),
        ("999 B".into(), "1.0 kB".into(), "1.0 MB".into(), "18.4 EB".into())
    );
    assert_eq!(
        (time(5), time(1500), time(2_000_000)),
        ("5 µs".into(), "1.5 ms".into(), "2.00 s".into())
    );
    assert_eq!((about((5, 0.0)), about((5, 0.0163))), ("5".into(), "5 (±1.6 %)".into()));
}
