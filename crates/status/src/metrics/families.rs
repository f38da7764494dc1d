//! Metrics by their names, with all samples of a name together, and the text that they become.

use super::{help, walk};
use std::collections::BTreeMap;
use std::io::Write;
use std::rc::Rc;
use weir_base::bytes::{fmt_u64, push_hex};
use weir_core::counts::{Exemplar, Times, BUCKETS};

/// The bounds of buckets in seconds, for the `le` of histograms.
const BOUNDS: [&str; BUCKETS] = [
    "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0",
    "2.5", "5.0", "10.0", "+Inf",
];

/// What kind of metric it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Only grows; its samples end in `_total`.
    Counter,
    Gauge,
    Histogram,
    /// What something is called, in labels; its samples end in `_info`.
    Info,
}

#[derive(Debug)]
pub(super) enum Sample<'a> {
    Number(u64),
    /// Milliseconds, shown in seconds.
    Millis(u64),
    Real(f64),
    Times(&'a Times),
}

/// Names and values, as they are written: escaped already. All figures of a thing have the same.
pub(super) type Labels = Rc<str>;

pub(super) struct Family<'a> {
    pub kind: Kind,
    pub help: String,
    pub samples: Vec<(Labels, Sample<'a>)>,
    /// It goes on in the process after this one.
    pub is_kept: bool,
}

/// All of them, by their names without `_total`.
#[derive(Default)]
pub(super) struct Families<'a>(BTreeMap<String, Family<'a>>);

/// A label behind others.
pub(super) fn with(labels: &str, name: &str, value: &str) -> Labels {
    let mut out = String::with_capacity(labels.len() + name.len() + value.len() + 4);
    out.push_str(labels);
    if !labels.is_empty() {
        out.push(',');
    }
    out.push_str(name);
    out.push_str("=\"");
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out.into()
}

/// The labels one by one, as they were before.
pub(super) fn pairs(labels: &str) -> Vec<(String, String)> {
    let (mut all, mut rest) = (Vec::new(), labels);
    while let Some((name, behind)) = rest.split_once("=\"") {
        let (mut value, mut chars) = (String::new(), behind.char_indices());
        let mut end = behind.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    other => value.extend(other.map(|(_, c)| c)),
                },
                c => value.push(c),
            }
        }
        all.push((name.to_owned(), value));
        rest = behind[end..].trim_start_matches(',');
    }
    all
}

impl<'a> Families<'a> {
    /// With their names.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Family<'a>)> {
        self.0.iter().map(|(name, family)| (&name[..], family))
    }

    /// Notes a sample; `at` is where its figure stands in the tree.
    pub(super) fn add(
        &mut self,
        name: &str,
        kind: Kind,
        at: &str,
        labels: &Labels,
        sample: Sample<'a>,
    ) {
        let family = match self.0.get_mut(name) {
            Some(family) => family,
            None => {
                let (help, is_kept) = (help::of(name, at), walk::is_kept(at));
                let fresh = Family { kind, help, samples: Vec::new(), is_kept };
                self.0.entry(name.to_string()).or_insert(fresh)
            }
        };
        // One name, one kind: what a table has wrong is left out, not shown wrong.
        if family.kind == kind {
            family.samples.push((Rc::clone(labels), sample));
        }
    }

    /// As text; `is_open`: as OpenMetrics wants it.
    pub(super) fn text(&self, is_open: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, family) in &self.0 {
            let sample = match family.kind {
                Kind::Counter => format!("{name}_total"),
                Kind::Info => format!("{name}_info"),
                Kind::Gauge | Kind::Histogram => name.clone(),
            };
            let (shown, kind) = match (family.kind, is_open) {
                (Kind::Counter, true) => (name, "counter"),
                (Kind::Counter, false) => (&sample, "counter"),
                (Kind::Info, true) => (name, "info"),
                (Kind::Info, false) => (&sample, "gauge"),
                (Kind::Gauge, _) => (name, "gauge"),
                (Kind::Histogram, _) => (name, "histogram"),
            };
            // Writing into memory cannot fail.
            let _ = write!(out, "# HELP {shown} {}\n# TYPE {shown} {kind}\n", family.help);
            for (labels, value) in &family.samples {
                write_sample(&mut out, &sample, labels, value, is_open);
            }
        }
        if is_open {
            out.extend_from_slice(b"# EOF\n");
        }
        out
    }
}

/// Thousands of lines, of which each is as many pushes as it has parts.
fn write_sample(out: &mut Vec<u8>, name: &str, labels: &str, sample: &Sample, is_open: bool) {
    let times = match sample {
        Sample::Times(times) => times,
        _ => {
            write_name(out, &[name], &[labels]);
            // Writing into memory cannot fail.
            let _ = match sample {
                Sample::Number(n) => {
                    fmt_u64(out, *n);
                    Ok(())
                }
                Sample::Millis(ms) => write!(out, "{}", *ms as f64 / 1e3),
                Sample::Real(x) => write!(out, "{x}"),
                Sample::Times(_) => Ok(()),
            };
            return out.push(b'\n');
        }
    };
    let mut count = 0;
    let comma = if labels.is_empty() { "" } else { "," };
    for (n, (bound, more)) in BOUNDS.into_iter().zip(times.shown()).enumerate() {
        count += more;
        write_name(out, &[name, "_bucket"], &[labels, comma, "le=\"", bound, "\""]);
        fmt_u64(out, count);
        if let Some(exemplar) = times.exemplar(n).filter(|_| is_open) {
            out.extend_from_slice(shown_exemplar(exemplar).as_bytes());
        }
        out.push(b'\n');
    }
    write_name(out, &[name, "_sum"], &[labels]);
    let _ = writeln!(out, "{}", times.sum_us() as f64 / 1e6);
    write_name(out, &[name, "_count"], &[labels]);
    fmt_u64(out, count);
    out.push(b'\n');
}

/// With its labels, if it has any, and a space.
fn write_name(out: &mut Vec<u8>, name: &[&str], labels: &[&str]) {
    let mut put = |parts: &[&str]| parts.iter().for_each(|p| out.extend_from_slice(p.as_bytes()));
    put(name);
    if labels.iter().any(|part| !part.is_empty()) {
        put(&["{"]);
        put(labels);
        put(&["}"]);
    }
    put(&[" "]);
}

/// As OpenMetrics has it behind a sample: whose trace, how long it took, and when it ended.
fn shown_exemplar(e: &Exemplar) -> String {
    let hex = |id: &[u8]| {
        let mut text = Vec::new();
        push_hex(&mut text, id);
        String::from_utf8_lossy(&text).into_owned()
    };
    let (took, ended) = (e.us as f64 / 1e6, e.wall_ms as f64 / 1e3);
    format!(" # {{trace_id=\"{}\",span_id=\"{}\"}} {took} {ended}", hex(&e.trace), hex(&e.span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_what_they_were() {
        let labels = with(&with("", "a", "q\"\\\n,b=\"\u{e9}"), "c", "");
        let found = pairs(&labels);
        let expected = [("a", "q\"\\\n,b=\"\u{e9}"), ("c", "")];
        assert_eq!(found, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
        assert!(pairs("").is_empty());
    }

    #[test]
    fn both_formats_are_as_they_should_be() {
        let mut families = Families::default();
        let none: Labels = "".into();
        families.add("a", Kind::Counter, "at", &none, Sample::Number(1));
        families.add("a", Kind::Counter, "at", &with("", "x", "q\"\\\n\u{e9}"), Sample::Number(2));
        families.add("a", Kind::Gauge, "at", &none, Sample::Number(3));
        families.add("b", Kind::Gauge, "at", &none, Sample::Millis(1500));
        families.add("c", Kind::Info, "at", &with("", "v", "1"), Sample::Number(1));
        let plain = String::from_utf8(families.text(false)).unwrap();
        assert_eq!(
            plain,
            "# HELP a_total A (at)\n# TYPE a_total counter\na_total 1\na_total{x=\"q\\\"\\\\\\n\u{e9}\"} 2\n\
             # HELP b B (at)\n# TYPE b gauge\nb 1.5\n# HELP c_info C (at)\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n"
        );
        let open = String::from_utf8(families.text(true)).unwrap();
        assert!(open.contains("# TYPE a counter\na_total 1\n"), "{open}");
        assert!(open.contains("# TYPE c info\nc_info{v=\"1\"} 1\n") && open.ends_with("# EOF\n"));
    }
}
