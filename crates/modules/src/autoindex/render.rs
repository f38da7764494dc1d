//! The listing as text, byte for byte as nginx writes it.

use super::Entry;
use weir_base::bytes::fmt_u64;
use weir_base::date::{self, Civil};
use weir_base::escape::{escape_html, escape_json, escape_uri, EscapeKind};

/// The width of the column of names, in characters.
const NAME_CHARS: usize = 50;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

pub struct HtmlStyle {
    /// Names are UTF-8: their characters are counted, not their bytes.
    pub is_utf8: bool,
    /// Added to times, for the server's time zone.
    pub offset_secs: i64,
    pub exact_size: bool,
}

pub fn html(uri: &[u8], entries: &[Entry], style: &HtmlStyle) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + 2 * uri.len() + entries.len() * 160);
    out.extend_from_slice(b"<html>\r\n<head><title>Index of ");
    escape_html(&mut out, uri);
    out.extend_from_slice(b"</title></head>\r\n<body>\r\n<h1>Index of ");
    escape_html(&mut out, uri);
    out.extend_from_slice(b"</h1><hr><pre><a href=\"../\">../</a>\r\n");
    entries.iter().for_each(|e| html_line(&mut out, e, style));
    out.extend_from_slice(b"</pre><hr></body>\r\n</html>\r\n");
    out
}

fn html_line(out: &mut Vec<u8>, e: &Entry, style: &HtmlStyle) {
    out.extend_from_slice(b"<a href=\"");
    escape_uri(out, &e.name, EscapeKind::UriComponent);
    if e.kind.is_dir() {
        out.push(b'/');
    }
    out.extend_from_slice(b"\">");
    let mut width = chars(&e.name, style.is_utf8);
    if width > NAME_CHARS {
        let shown = first_chars(&e.name, NAME_CHARS - 3, style.is_utf8);
        escape_html(out, shown);
        out.extend_from_slice(b"..&gt;</a>");
        width = NAME_CHARS;
    } else {
        escape_html(out, &e.name);
        if e.kind.is_dir() && width < NAME_CHARS {
            out.push(b'/');
            width += 1;
        }
        out.extend_from_slice(b"</a>");
    }
    out.resize(out.len() + NAME_CHARS - width + 1, b' ');
    let t = Civil::from_unix(e.mtime + style.offset_secs);
    let month = MONTHS[(t.month as usize - 1) % 12];
    let time = format!("{:02}-{month}-{} {:02}:{:02} ", t.day, t.year, t.hour, t.min);
    out.extend_from_slice(time.as_bytes());
    out.extend_from_slice(size(e, style.exact_size).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn size(e: &Entry, exact: bool) -> String {
    const K: u64 = 1024;
    let rounded = |unit: u64| (e.size + unit / 2) / unit;
    match e.size {
        _ if e.kind.is_dir() => format!("{:>width$}", "-", width = if exact { 19 } else { 7 }),
        n if exact => format!("{n:>19}"),
        n if n >= K * K * K => format!("{:>6}G", rounded(K * K * K)),
        n if n >= K * K => format!("{:>6}M", rounded(K * K)),
        n if n > 9999 => format!("{:>6}K", rounded(K)),
        n => format!(" {n:>6}"),
    }
}

/// Characters of a name; one that is not UTF-8 counts by its bytes.
fn chars(name: &[u8], is_utf8: bool) -> usize {
    match std::str::from_utf8(name) {
        Ok(text) if is_utf8 => text.chars().count(),
        _ => name.len(),
    }
}

fn first_chars(name: &[u8], n: usize, is_utf8: bool) -> &[u8] {
    match std::str::from_utf8(name) {
        Ok(text) if is_utf8 => {
            let end = text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
            &name[..end]
        }
        _ => &name[..n.min(name.len())],
    }
}

fn kind(e: &Entry) -> &'static [u8] {
    match e.kind {
        k if k.is_dir() => b"directory",
        k if k.is_file() => b"file",
        _ => b"other",
    }
}

pub fn json(entries: &[Entry], callback: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + entries.len() * 128);
    if let Some(name) = callback {
        // The comment keeps the answer from being taken for something else by its first bytes.
        out.extend_from_slice(b"/* callback */\r\n");
        out.extend_from_slice(name);
        out.push(b'(');
    }
    out.push(b'[');
    for (i, e) in entries.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"\r\n{ \"name\":\"");
        escape_json(&mut out, &e.name);
        out.extend_from_slice(b"\", \"type\":\"");
        out.extend_from_slice(kind(e));
        out.extend_from_slice(b"\", \"mtime\":\"");
        out.extend_from_slice(&date::http_time(e.mtime));
        out.push(b'"');
        if e.kind.is_file() {
            out.extend_from_slice(b", \"size\":");
            fmt_u64(&mut out, e.size);
        }
        out.extend_from_slice(b" }");
    }
    out.extend_from_slice(b"\r\n]");
    if callback.is_some() {
        out.extend_from_slice(b");");
    }
    out
}

pub fn xml(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + entries.len() * 128);
    out.extend_from_slice(b"<?xml version=\"1.0\"?>\r\n<list>\r\n");
    for e in entries {
        let t = Civil::from_unix(e.mtime);
        out.push(b'<');
        out.extend_from_slice(kind(e));
        let time = format!(
            " mtime=\"{:4}-{:02}-{:02}T{:02}:{:02}:{:02}Z\"",
            t.year, t.month, t.day, t.hour, t.min, t.sec
        );
        out.extend_from_slice(time.as_bytes());
        if e.kind.is_file() {
            out.extend_from_slice(format!(" size=\"{}\"", e.size).as_bytes());
        }
        out.push(b'>');
        escape_html(&mut out, &e.name);
        out.extend_from_slice(b"</");
        out.extend_from_slice(kind(e));
        out.extend_from_slice(b">\r\n");
    }
    out.extend_from_slice(b"</list>\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, size: u64, dir: bool) -> Entry {
        let path = if dir { "/" } else { "/proc/self/status" };
        let kind = std::fs::metadata(path).unwrap().file_type();
        Entry { name: name.into(), kind, is_link: false, mtime: 0, size }
    }

    #[test]
    fn sizes() {
        for (n, text) in [
            (0, "      0"),
            (9999, "   9999"),
            (10240, "    10K"),
            (10752, "    11K"),
            (1024 * 1024, "     1M"),
            (3 << 29, "     2G"),
        ] {
            assert_eq!(size(&entry("f", n, false), false), text);
        }
        assert_eq!(size(&entry("f", 5, false), true), "                  5");
        assert_eq!(size(&entry("d", 5, true), false), "      -");
    }

    #[test]
    fn lines() {
        let style = HtmlStyle { is_utf8: true, offset_secs: 3600, exact_size: false };
        let line = |name: &str, dir| {
            let mut out = Vec::new();
            html_line(&mut out, &entry(name, 1, dir), &style);
            String::from_utf8(out).unwrap()
        };
        let pad = " ".repeat(48);
        assert_eq!(
            line("d", true),
            format!("<a href=\"d/\">d/</a>{pad} 01-Jan-1970 01:00       -\r\n")
        );
        let long = line(&"ф".repeat(51), false);
        assert!(long.contains(&format!(">{}..&gt;</a> 01-Jan", "ф".repeat(47))), "{long}");
        assert!(line(&"x".repeat(50), true).contains(&format!("{}</a> ", "x".repeat(50))));
    }

    #[test]
    fn formats() {
        let list = [entry("a\"", 3, false)];
        let text = String::from_utf8(json(&list, Some(b"f"))).unwrap();
        assert_eq!(
            text,
            "/* callback */\r\nf([\r\n{ \"name\":\"a\\\"\", \"type\":\"file\", \
             \"mtime\":\"Thu, 01 Jan 1970 00:00:00 GMT\", \"size\":3 }\r\n]);"
        );
        assert_eq!(json(&[], None), b"[\r\n]");
        let text = String::from_utf8(xml(&list)).unwrap();
        assert!(text.contains("<file mtime=\"1970-01-01T00:00:00Z\" size=\"3\">a&quot;</file>"));
    }
}
