//! A trace for a terminal: a line for each span, with a bar at the time that it took.

use serde_json::Value;
use std::fmt::Write;

/// Of the bars.
const WIDTH: usize = 40;
/// Of what stands before them.
const NAME_WIDTH: usize = 46;

/// Makes it of a trace as JSON.
pub fn show(json: &[u8]) -> Result<String, String> {
    let told: Value = serde_json::from_slice(json).map_err(|_| "the answer is no trace")?;
    let about = |name: &str| told["request"][name].as_str().unwrap_or("");
    let mut out = String::new();
    // With the port, where the request says it.
    let host = [about("http_host"), about("host")].into_iter().find(|host| !host.is_empty());
    // A string takes what is written into it.
    let _ = writeln!(
        out,
        "{} {}://{}{} {}",
        about("request_method"),
        about("scheme"),
        plain(host.unwrap_or_default()),
        plain(about("request_uri")),
        about("server_protocol")
    );
    let duration_us = told["duration_us"].as_f64().unwrap_or(0.0);
    let _ = writeln!(
        out,
        "status {}, {} bytes, {} ms; server \"{}\", location \"{}\", worker {}",
        about("status"),
        about("bytes_sent"),
        millis(duration_us),
        plain(about("server_name")),
        plain(about("location")),
        about("worker")
    );
    for (what, names) in [
        ("TLS", &["ssl_protocol", "ssl_cipher", "ssl_session_reused"][..]),
        ("cache", &["upstream_cache_status"]),
        ("upstream", &["upstream_addr", "upstream_status"]),
    ] {
        let words: Vec<String> =
            names.iter().map(|name| word(name, about(name))).filter(|w| !w.is_empty()).collect();
        if !words.is_empty() {
            let _ = writeln!(out, "{what}: {}", words.join(" "));
        }
    }
    let spans = told["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
    let first_us = spans.iter().filter_map(|s| s["begin_us"].as_f64()).fold(0.0, f64::min);
    let _ = writeln!(
        out,
        "\n{:NAME_WIDTH$} {:>9} {:>9}  {}",
        "",
        "begin ms",
        "took ms",
        scale(first_us, duration_us)
    );
    spans.iter().for_each(|span| line(&mut out, span, first_us, duration_us));
    if let Some(left @ 1..) = told["left_out"].as_u64() {
        let _ = writeln!(out, "{left} more are left out");
    }
    Ok(out)
}

/// Of a session that was not resumed there is nothing to say.
fn word(name: &str, value: &str) -> String {
    match (name, value) {
        ("ssl_session_reused", "r") => "resumed".into(),
        ("ssl_session_reused", _) => String::new(),
        _ => plain(value),
    }
}

fn line(out: &mut String, span: &Value, first_us: f64, last_us: f64) {
    let text = |name: &str| plain(span[name].as_str().unwrap_or(""));
    let number = |name: &str| span[name].as_f64();
    let depth = span["depth"].as_u64().unwrap_or(0).min(8) as usize;
    let (begin, end) = (number("begin_us").unwrap_or(0.0), number("end_us").unwrap_or(0.0));
    let name = format!("{}{} {}", "  ".repeat(depth), text("kind"), text("name"));
    let name = match name.char_indices().nth(NAME_WIDTH) {
        Some((at, _)) => name[..at].to_string(),
        None => name,
    };
    let (begin_shown, took) = (millis(begin), millis(end - begin));
    let bar = bar(begin, end, first_us, last_us);
    let mut notes = String::new();
    for (what, name) in [
        ("queue", "queue_us"),
        ("connect", "connect_us"),
        ("sent", "sent_us"),
        ("header", "header_us"),
        ("response", "response_us"),
        ("waited", "waited_us"),
    ] {
        if let Some(us) = number(name).filter(|us| *us > 0.0) {
            let _ = write!(notes, " {what} {}", millis(us));
        }
    }
    if let Some(status) = span["status"].as_u64() {
        let _ = write!(notes, " status {status}");
    }
    let _ = writeln!(out, "{name:NAME_WIDTH$} {begin_shown:>9} {took:>9} |{bar}|{notes}");
}

fn scale(first_us: f64, last_us: f64) -> String {
    let (from, to) = (millis(first_us), millis(last_us));
    let rest = WIDTH.saturating_sub(from.len());
    format!("{from}{to:>rest$}")
}

fn bar(begin: f64, end: f64, first: f64, last: f64) -> String {
    let place = |us: f64| {
        let share = ((us - first) / (last - first).max(1.0)).clamp(0.0, 1.0);
        (share * WIDTH as f64) as usize
    };
    let from = place(begin).min(WIDTH - 1);
    let to = place(end).clamp(from + 1, WIDTH);
    format!("{}{}{}", " ".repeat(from), "#".repeat(to - from), " ".repeat(WIDTH - to))
}

fn millis(us: f64) -> String {
    format!("{:.3}", us / 1000.0)
}

/// What strangers have written: no controls, and nothing that turns or hides text.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_a_line_for_each_span() {
        let json = br#"{"request":{"request_method":"GET","scheme":"http","host":"a","http_host":"a:81","request_uri":"/\u001b[2J",
            "server_protocol":"HTTP/1.1","status":"200","bytes_sent":"7","location":"/","worker":"1",
            "server_name":"s","upstream_addr":"127.0.0.1:1"},"duration_us":1000,"left_out":2,"spans":[
            {"kind":"tls","name":"handshake","depth":0,"begin_us":-1000,"end_us":0,"waited_us":0},
            {"kind":"upstream","name":"127.0.0.1:1","depth":1,"begin_us":500,"end_us":1000,"connect_us":100,"status":200}]}"#;
        let shown = show(json).unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "GET http://a:81/?[2J HTTP/1.1");
        assert_eq!(
            lines[1],
            "status 200, 7 bytes, 1.000 ms; server \"s\", location \"/\", worker 1"
        );
        assert_eq!(lines[2], "upstream: 127.0.0.1:1");
        assert!(lines[5].starts_with("tls handshake "), "{shown}");
        assert!(lines[5].ends_with("|####################                    |"), "{shown}");
        assert!(lines[6].starts_with("  upstream 127.0.0.1:1 "), "{shown}");
        assert!(
            lines[6]
                .ends_with("|                              ##########| connect 0.100 status 200"),
            "{shown}"
        );
        assert_eq!(lines[7], "2 more are left out");
        assert!(show(b"x").is_err());
    }
}
