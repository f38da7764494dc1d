//! One page that asks nobody for anything: no scripts, no fonts, no pictures, which its policy says too. All texts
//! are escaped, and none stands in a tag.

use super::{about, bytes, caveat, facts, time, Shown};
use crate::report::{Panel, Row};
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--bar:#2a78d6aa}\
body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:1rem auto;padding:0 1rem}\
h1{font-size:1.3rem}h2{font-size:1.05rem;margin:0}\
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(10rem,1fr));gap:.6rem}\
.facts div{border:1px solid var(--line);border-radius:.4rem;padding:.4rem .6rem}\
.facts b{display:block;font-size:1.1rem;overflow-wrap:anywhere}\
details{border-top:1px solid var(--line);padding:.6rem 0}summary{cursor:pointer}\
summary h2{display:inline}summary span,p{opacity:.7;font-size:.9rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{padding:.15rem .5rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}\
th:last-child,td:last-child{text-align:left;width:100%;white-space:normal;overflow-wrap:anywhere}\
td svg{display:block;height:.3rem;width:100%}td small{opacity:.7}rect{fill:var(--bar)}\
.hours{width:100%;height:7rem}";

fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    weir_base::escape::escape_html(&mut out, text.as_bytes());
    String::from_utf8_lossy(&out).into_owned()
}

pub fn html(shown: &Shown<'_>) -> String {
    let title = escaped(&shown.sources.join(", "));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<div class=\"facts\">\n"
    );
    for (what, how_much) in facts(shown.summary) {
        let _ = writeln!(out, "<div>{what}<b>{}</b></div>", escaped(&how_much));
    }
    out.push_str("</div>\n");
    for (why, n) in &shown.summary.reasons {
        let _ = writeln!(out, "<p>{n} lines: {}</p>", escaped(why));
    }
    shown.panels.iter().for_each(|one| panel(&mut out, one));
    out.push_str("</body>\n</html>\n");
    out
}

fn panel(out: &mut String, panel: &Panel) {
    let _ = write!(
        out,
        "<details open id=\"{}\"><summary><h2>{}</h2> <span>{}",
        panel.id,
        escaped(panel.title),
        escaped(panel.about)
    );
    if panel.total.0 > panel.rows.len() as u64 {
        let _ = write!(out, ", {} of {}", panel.rows.len(), escaped(&about(panel.total)));
    }
    out.push_str("</span></summary>\n");
    if let Some(text) = caveat(panel) {
        let _ = writeln!(out, "<p>{}</p>", escaped(&text));
    }
    if panel.id == "hours" {
        hours(out, &panel.rows);
    }
    let is_timed = panel.rows.iter().any(|row| row.longest_us.is_some());
    out.push_str("<div class=\"wide\"><table><tr>");
    let is_counted = panel.id != "slowest";
    if is_counted {
        out.push_str("<th>requests<th>visitors<th>sent");
    }
    if is_timed {
        out.push_str("<th>mean<th>longest");
    }
    out.push_str("<th></tr>\n");
    let most = panel.rows.iter().map(|r| r.hits).max().unwrap_or(0).max(1);
    for row in &panel.rows {
        one(out, row, most, is_counted, is_timed);
    }
    out.push_str("</table></div></details>\n");
}

fn one(out: &mut String, row: &Row, most: u64, is_counted: bool, is_timed: bool) {
    out.push_str("<tr>");
    if is_counted {
        let more = if row.error > 0 { "+" } else { "" };
        let visitors = row.visitors.map_or_else(String::new, |n| n.to_string());
        let _ = write!(out, "<td>{}{more}<td>{visitors}<td>{}", row.hits, bytes(row.bytes));
    }
    if is_timed {
        let shown = |us: Option<u64>| us.map_or_else(String::new, time);
        let _ = write!(out, "<td>{}<td>{}", shown(row.mean_us), shown(row.longest_us));
    }
    let _ = write!(out, "<td>{}", escaped(&row.name));
    if !row.note.is_empty() {
        let _ = write!(out, " <small>{}</small>", escaped(&row.note));
    }
    if is_counted {
        let part = row.hits as f64 * 100.0 / most as f64;
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\"><rect width=\"{part:.1}\" height=\"1\"/></svg>"
        );
    }
    out.push_str("</tr>\n");
}

fn hours(out: &mut String, rows: &[Row]) {
    let most = rows.iter().map(|r| r.hits).max().unwrap_or(0).max(1);
    out.push_str("<svg class=\"hours\" viewBox=\"0 0 240 100\" preserveAspectRatio=\"none\">");
    for (n, row) in rows.iter().enumerate() {
        let high = row.hits as f64 * 100.0 / most as f64;
        let _ = write!(
            out,
            "<rect x=\"{}\" y=\"{:.1}\" width=\"8\" height=\"{high:.1}\"><title>{} {}</title></rect>",
            n * 10 + 1,
            100.0 - high,
            row.name,
            row.hits
        );
    }
    out.push_str("</svg>\n");
}
