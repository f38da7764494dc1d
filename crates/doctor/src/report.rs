//! The report: for people, and as JSON for programs.

use crate::checks::Judgement;
use crate::finding::Severity;
use std::fmt::Write;
use weir_base::escape::escape_json;

/// 0: nothing to mend; 1: warnings; 2: errors.
pub fn exit_status(all: &[Judgement]) -> u8 {
    match worst(all) {
        Severity::Error => 2,
        Severity::Warn => 1,
        _ => 0,
    }
}

fn worst(all: &[Judgement]) -> Severity {
    all.iter().map(|j| j.finding.severity).max().unwrap_or(Severity::Ok)
}

fn count(all: &[Judgement], severity: Severity) -> usize {
    all.iter().filter(|j| j.finding.severity == severity).count()
}

/// As a terminal shows it.
fn colour(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "\x1b[32m",
        Severity::Note => "\x1b[36m",
        Severity::Unknown => "\x1b[2m",
        Severity::Warn => "\x1b[33m",
        Severity::Error => "\x1b[1;31m",
    }
}

/// Lines under headings: severity, check and figure; below it why it matters and what mends it.
pub fn text(all: &[Judgement], title: &str, is_coloured: bool) -> String {
    const INDENT: &str = "           ";
    let mut out = format!("{title}\n");
    let mut area = "";
    for j in all {
        if j.area != area {
            area = j.area;
            let _ = write!(out, "\n{area}\n");
        }
        let f = &j.finding;
        let (on, off) = match is_coloured {
            true => (colour(f.severity), "\x1b[0m"),
            false => ("", ""),
        };
        let _ =
            writeln!(out, "  {on}{:<8}{off} {}: {}", f.severity.name(), j.check, plain(&f.figure));
        if !f.why.is_empty() {
            let _ = writeln!(out, "{INDENT}{}", plain(&f.why));
        }
        if !f.mend.is_empty() {
            let _ = writeln!(out, "{INDENT}mend: {}", plain(&f.mend));
        }
    }
    let counted =
        [Severity::Error, Severity::Warn, Severity::Note, Severity::Unknown, Severity::Ok];
    let counts = counted.map(|s| format!("{} {}", count(all, s), s.name()));
    let _ = write!(out, "\n{}\n", counts.join(", "));
    out
}

/// Paths and names are bytes of others: a terminal gets no controls of theirs.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// One object: `status`, the numbers of findings, and the findings.
pub fn json(all: &[Judgement], configuration: &str) -> String {
    let mut out = String::from("{\"configuration\":");
    quote(&mut out, configuration);
    let _ = write!(out, ",\"status\":{},\"counts\":{{", exit_status(all));
    let counted =
        [Severity::Error, Severity::Warn, Severity::Note, Severity::Unknown, Severity::Ok];
    let counts = counted.map(|s| format!("\"{}\":{}", s.name(), count(all, s)));
    let _ = write!(out, "{}}},\"findings\":[", counts.join(","));
    for (i, j) in all.iter().enumerate() {
        let f = &j.finding;
        out.push_str(if i == 0 { "\n" } else { ",\n" });
        let fields = [
            ("area", j.area),
            ("check", j.check),
            ("severity", f.severity.name()),
            ("figure", &f.figure),
            ("why", &f.why),
            ("mend", &f.mend),
        ];
        for (n, (name, value)) in fields.into_iter().enumerate() {
            let _ = write!(out, "{}\"{name}\":", if n == 0 { '{' } else { ',' });
            quote(&mut out, value);
        }
        out.push('}');
    }
    out.push_str("\n]}\n");
    out
}

fn quote(out: &mut String, text: &str) {
    let mut bytes = Vec::new();
    escape_json(&mut bytes, text.as_bytes());
    let _ = write!(out, "\"{}\"", String::from_utf8_lossy(&bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Finding;

    fn judged(finding: Finding) -> Judgement {
        Judgement { area: "disks", check: "space", finding }
    }

    #[test]
    fn lines_and_status() {
        let ok = judged(Finding::ok("5", ""));
        let unknown = judged(Finding::unknown("x", "not on this system"));
        assert_eq!(exit_status(&[ok.clone(), unknown.clone()]), 0);
        let warn = judged(Finding::warn("1 %\x1b[0m", "it fills", "rm \"x\""));
        assert_eq!(exit_status(&[warn.clone(), ok.clone()]), 1);
        let error = judged(Finding::error("0", "full", "df"));
        let all = [ok, warn, error, unknown];
        assert_eq!(exit_status(&all), 2);
        let shown = text(&all, "weir doctor", false);
        assert!(
            shown.contains("\ndisks\n  ok       space: 5\n  warning  space: 1 %?[0m\n"),
            "{shown}"
        );
        assert!(shown.contains("           mend: rm \"x\"\n"), "{shown}");
        assert!(shown.ends_with("\n1 error, 1 warning, 0 note, 1 unknown, 1 ok\n"), "{shown}");
        assert!(text(&all, "", true).contains("\x1b[1;31merror"));
        let json = json(&all, "/etc/a\"b");
        assert!(json.contains("\"configuration\":\"/etc/a\\\"b\",\"status\":2"), "{json}");
        assert!(json.contains("\"mend\":\"rm \\\"x\\\"\"}"), "{json}");
    }
}
