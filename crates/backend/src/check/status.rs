//! `check_status`: what was found out, as a page for people or for programs.

use super::{Check, CheckMain};
use std::fmt::Write;
use std::rc::Rc;
use weir_base::escape::{escape_html, escape_json};
use weir_http::buf::Buf;
use weir_http::module::Flow;
use weir_http::{body, special, Request};
use weir_module::{slot, ConfResult, ConfType, Level, Val};
use weir_wire::http1::request::Method;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Html,
    Csv,
    Json,
    Prometheus,
}

pub(super) const FORMATS: [(&str, Format); 4] = [
    ("html", Format::Html),
    ("csv", Format::Csv),
    ("json", Format::Json),
    ("prometheus", Format::Prometheus),
];

/// How a status page is shown where the request does not say.
#[derive(Default)]
pub(super) struct StatusLoc {
    pub(super) format: Val<Format>,
}

impl ConfType for StatusLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &StatusLoc) -> ConfResult {
        self.format.merge(&parent.format, || Format::Html);
        Ok(())
    }
}

/// One server of one upstream.
struct Line<'a> {
    index: usize,
    check: &'a Check,
    name: Box<[u8]>,
    up: bool,
    rise: u32,
    fall: u32,
}

impl Line<'_> {
    fn status(&self) -> &'static str {
        if self.up {
            "up"
        } else {
            "down"
        }
    }

    fn upstream(&self) -> String {
        String::from_utf8_lossy(self.check.board.upstream()).into_owned()
    }

    fn server(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    fn port(&self) -> u16 {
        self.check.how.port.unwrap_or(0)
    }
}

/// The page itself.
pub(super) fn handler(r: &mut Request) -> Flow {
    if !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    let asked = argument(r, b"format");
    let asked = FORMATS
        .iter()
        .find(|(name, _)| asked.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, format)| *format);
    let format = asked.unwrap_or(*r.loc().conf::<StatusLoc>().format);
    let only = match argument(r, b"status") {
        up if up.eq_ignore_ascii_case(b"up") => Some(true),
        down if down.eq_ignore_ascii_case(b"down") => Some(false),
        _ => None,
    };
    let gen = Rc::clone(r.gen());
    let lines = lines(&gen.shared.main.get::<CheckMain>().checks, only);
    let number = gen.core.number;
    let (kind, text) = match format {
        Format::Html => ("text/html", html(&lines, number)),
        Format::Csv => ("text/plain", csv(&lines)),
        Format::Json => ("application/json", json(&lines, number)),
        Format::Prometheus => ("text/plain", prometheus(&lines, number)),
    };
    r.out.status = 200;
    r.out.set_content_type(kind.as_bytes());
    r.out.content_length = Some(text.len() as u64);
    special::finish(r, Buf::mem(text.into_bytes()).and_last())
}

/// The value of a request's argument; empty for none.
fn argument<'a>(r: &'a Request, name: &[u8]) -> &'a [u8] {
    let mut all = r.args.split(|b| *b == b'&').filter_map(|arg| {
        let (key, value) = weir_base::bytes::split_once(arg, b'=')?;
        key.eq_ignore_ascii_case(name).then_some(value)
    });
    all.next().unwrap_or_default()
}

fn lines(checks: &[std::sync::Arc<Check>], only: Option<bool>) -> Vec<Line<'_>> {
    let mut all = Vec::new();
    for check in checks {
        for shown in check.board.shown() {
            let s = &shown.standing;
            let (up, rise, fall) = (s.is_up(), s.passes(), s.fails());
            all.push(Line { index: all.len(), check, name: shown.name, up, rise, fall });
        }
    }
    all.retain(|line| only.is_none_or(|up| line.up == up));
    all
}

/// As Tengine lays it out: scripts look for its cells, a line each.
fn html(lines: &[Line<'_>], generation: u64) -> String {
    let mut out = format!(
        "<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Strict//EN\n\"http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd\">\n\
         <html xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n  <title>Nginx http upstream check status</title>\n</head>\n\
         <body>\n<h1>Nginx http upstream check status</h1>\n\
         <h2>Check upstream server number: {}, generation: {generation}</h2>\n\
         <table style=\"background-color:white\" cellspacing=\"0\"        cellpadding=\"3\" border=\"1\">\n\
         \x20 <tr bgcolor=\"#C0C0C0\">\n",
        lines.len()
    );
    let titles = [
        "Index",
        "Upstream",
        "Name",
        "Status",
        "Rise counts",
        "Fall counts",
        "Check type",
        "Check port",
    ];
    titles.iter().for_each(|title| out.push_str(&format!("    <th>{title}</th>\n")));
    out.push_str("  </tr>\n");
    for l in lines {
        let color = if l.up { "" } else { " bgcolor=\"#FF0000\"" };
        out.push_str(&format!("  <tr{color}>\n"));
        for cell in [
            l.index.to_string(),
            escaped(&l.upstream()),
            escaped(&l.server()),
            l.status().to_string(),
            l.rise.to_string(),
            l.fall.to_string(),
            l.check.how.kind.name().to_string(),
            l.port().to_string(),
        ] {
            out.push_str(&format!("    <td>{cell}</td>\n"));
        }
        out.push_str("  </tr>\n");
    }
    out.push_str("</table>\n</body>\n</html>\n");
    out
}

fn escaped(text: &str) -> String {
    let mut out = Vec::new();
    escape_html(&mut out, text.as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}

fn csv(lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    for l in lines {
        let (kind, port) = (l.check.how.kind.name(), l.port());
        let (upstream, name, status) = (l.upstream(), l.server(), l.status());
        let _ = writeln!(
            out,
            "{},{upstream},{name},{status},{},{},{kind},{port}",
            l.index, l.rise, l.fall
        );
    }
    out
}

fn up_and_down(lines: &[Line<'_>]) -> (usize, usize) {
    let up = lines.iter().filter(|l| l.up).count();
    (up, lines.len() - up)
}

fn json(lines: &[Line<'_>], generation: u64) -> String {
    let (up, down) = up_and_down(lines);
    let mut out = format!(
        "{{\"servers\": {{\n  \"total\": {},\n  \"up\": {up},\n  \"down\": {down},\n  \"generation\": {generation},\n  \
         \"server\": [\n",
        lines.len()
    );
    for (n, l) in lines.iter().enumerate() {
        let comma = if n + 1 < lines.len() { "," } else { "" };
        let (kind, port) = (l.check.how.kind.name(), l.port());
        let _ = writeln!(
            out,
            "    {{\"index\": {}, \"upstream\": \"{}\", \"name\": \"{}\", \"status\": \"{}\", \"rise\": {}, \
             \"fall\": {}, \"type\": \"{kind}\", \"port\": {port}}}{comma}",
            l.index,
            quoted(&l.upstream()),
            quoted(&l.server()),
            l.status(),
            l.rise,
            l.fall
        );
    }
    out.push_str("  ]\n}}\n");
    out
}

/// What may stand between quotes, in JSON and in Prometheus' labels.
fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    escape_json(&mut out, text.as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}

fn prometheus(lines: &[Line<'_>], generation: u64) -> String {
    let (up, down) = up_and_down(lines);
    let mut out = String::new();
    for (name, help, value) in [
        ("total", "Servers that are checked", lines.len() as u64),
        ("up", "Servers that are up", up as u64),
        ("down", "Servers that are down", down as u64),
        ("generation", "The number of the configuration", generation),
    ] {
        let name = format!("nginx_upstream_count_{name}");
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    }
    for (name, help) in [("rise", "Successes in a row"), ("fall", "Failures in a row")] {
        let is_rise = name == "rise";
        let name = format!("nginx_upstream_server_{name}");
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
        for l in lines {
            let _ = writeln!(
                out,
                "{name}{{index=\"{}\",upstream=\"{}\",name=\"{}\",status=\"{}\",type=\"{}\",port=\"{}\"}} {}",
                l.index,
                quoted(&l.upstream()),
                quoted(&l.server()),
                l.status(),
                l.check.how.kind.name(),
                l.port(),
                if is_rise { l.rise } else { l.fall }
            );
        }
    }
    out
}
