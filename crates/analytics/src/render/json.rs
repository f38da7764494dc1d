//! JSON: one object in one line.

use super::Shown;
use crate::report::{Panel, Row};
use std::fmt::Write;
use weir_base::escape::escape_json;

fn text(out: &mut String, text: &str) {
    let mut escaped = Vec::with_capacity(text.len());
    escape_json(&mut escaped, text.as_bytes());
    out.push('"');
    out.push_str(&String::from_utf8_lossy(&escaped));
    out.push('"');
}

fn list<T>(out: &mut String, items: &[T], mut item: impl FnMut(&mut String, &T)) {
    for (n, one) in items.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        item(out, one);
    }
}

pub fn json(shown: &Shown<'_>) -> String {
    let s = shown.summary;
    let mut out = String::from("{\"sources\":[");
    list(&mut out, shown.sources, |out, name| text(out, name));
    let _ = write!(
        out,
        "],\"summary\":{{\"total_requests\":{},\"valid_requests\":{},\"failed_requests\":{},\
         \"outside_requests\":{},\"bytes\":{},\"unique_visitors\":{},\"unique_files\":{},\
         \"unique_static_files\":{},\"unique_not_found\":{},\"unique_referrers\":{}",
        s.valid + s.invalid,
        s.valid,
        s.invalid,
        s.outside,
        s.bytes,
        s.visitors,
        s.files.0,
        s.statics.0,
        s.missing.0,
        s.referrers.0,
    );
    let _ = write!(
        out,
        ",\"standard_errors\":{{\"unique_visitors\":{:.4},\"unique_files\":{:.4},\
         \"unique_static_files\":{:.4},\"unique_not_found\":{:.4},\"unique_referrers\":{:.4}}}",
        s.visitors_error, s.files.1, s.statics.1, s.missing.1, s.referrers.1,
    );
    out.push_str(",\"failed_by_reason\":{");
    list(&mut out, &s.reasons, |out, (why, n)| {
        text(out, why);
        let _ = write!(out, ":{n}");
    });
    out.push_str("},\"first\":");
    text(&mut out, &s.first);
    out.push_str(",\"last\":");
    text(&mut out, &s.last);
    if let Some(t) = &s.times {
        let _ = write!(
            out,
            ",\"time_us\":{{\"count\":{},\"mean\":{},\"median\":{},\"p90\":{},\"p99\":{},\"longest\":{}}}",
            t.count, t.mean, t.median, t.p90, t.p99, t.most
        );
    }
    out.push_str("},\"panels\":{");
    list(&mut out, shown.panels, panel);
    out.push_str("}}\n");
    out
}

fn panel(out: &mut String, panel: &Panel) {
    text(out, panel.id);
    out.push_str(":{\"title\":");
    text(out, panel.title);
    let _ = write!(
        out,
        ",\"total\":{},\"total_standard_error\":{:.4},\"unlisted_at_most\":{},\
         \"visitors_standard_error\":{:.4},\"rows\":[",
        panel.total.0, panel.total.1, panel.floor, panel.visitors_error
    );
    list(out, &panel.rows, row);
    out.push_str("]}");
}

fn row(out: &mut String, row: &Row) {
    out.push_str("{\"name\":");
    text(out, &row.name);
    if !row.note.is_empty() {
        out.push_str(",\"note\":");
        text(out, &row.note);
    }
    if let Some((method, protocol)) = row.asked {
        let _ = write!(out, ",\"method\":\"{method}\",\"protocol\":\"{protocol}\"");
    }
    let _ = write!(
        out,
        ",\"hits\":{},\"bytes\":{},\"may_have_more\":{}",
        row.hits, row.bytes, row.error
    );
    if let Some(visitors) = row.visitors {
        let _ = write!(out, ",\"visitors\":{visitors}");
    }
    if let Some(us) = row.mean_us {
        let _ = write!(out, ",\"mean_us\":{us}");
    }
    if let Some(us) = row.longest_us {
        let _ = write!(out, ",\"longest_us\":{us}");
    }
    out.push('}');
}
