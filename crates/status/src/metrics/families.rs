//! Metrics by their names, with all samples of a name together, and the text that they become.

use std::collections::BTreeMap;
use std::fmt::Write;
use weir_core::counts::Times;

/// Up to how many microseconds a sample is counted, for the `le` of histograms.
const BOUNDS_US: [(u64, &str); 14] = [
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1.0"),
    (2_500_000, "2.5"),
    (5_000_000, "5.0"),
    (10_000_000, "10.0"),
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
pub(super) enum Sample {
    Number(u64),
    /// Milliseconds, shown in seconds.
    Millis(u64),
    Real(f64),
    Times(Box<Times>),
}

/// Names and values, as they are written: escaped already.
pub(super) type Labels = String;

struct Family {
    kind: Kind,
    help: String,
    samples: Vec<(Labels, Sample)>,
}

/// All of them, by their names without `_total`.
#[derive(Default)]
pub(super) struct Families(BTreeMap<String, Family>);

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
    out
}

impl Families {
    /// Notes a sample; `at` is where its figure stands in the tree.
    pub(super) fn add(&mut self, name: &str, kind: Kind, at: &str, labels: &str, sample: Sample) {
        let fresh = || Family { kind, help: at.to_string(), samples: Vec::new() };
        let family = self.0.entry(name.to_string()).or_insert_with(fresh);
        // One name, one kind: what a table has wrong is left out, not shown wrong.
        if family.kind == kind {
            family.samples.push((labels.to_string(), sample));
        }
    }

    /// As text; `is_open`: as OpenMetrics wants it.
    pub(super) fn text(&self, is_open: bool) -> Vec<u8> {
        let mut out = String::new();
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
            // Writing into a String cannot fail.
            let _ = write!(out, "# HELP {shown} {}\n# TYPE {shown} {kind}\n", family.help);
            for (labels, value) in &family.samples {
                write_sample(&mut out, &sample, labels, value);
            }
        }
        if is_open {
            out.push_str("# EOF\n");
        }
        out.into_bytes()
    }
}

fn write_sample(out: &mut String, name: &str, labels: &str, sample: &Sample) {
    let shown = |labels: &str| match labels {
        "" => String::new(),
        labels => format!("{{{labels}}}"),
    };
    let labels_shown = shown(labels);
    let _ = match sample {
        Sample::Number(n) => writeln!(out, "{name}{labels_shown} {n}"),
        Sample::Millis(ms) => writeln!(out, "{name}{labels_shown} {}", *ms as f64 / 1e3),
        Sample::Real(x) => writeln!(out, "{name}{labels_shown} {x}"),
        Sample::Times(times) => {
            for (us, bound) in BOUNDS_US {
                let labels = shown(&with(labels, "le", bound));
                let _ = writeln!(out, "{name}_bucket{labels} {}", times.up_to_us(us));
            }
            let (count, sum) = (times.count(), times.sum_us() as f64 / 1e6);
            let labels = shown(&with(labels, "le", "+Inf"));
            let _ = writeln!(out, "{name}_bucket{labels} {count}");
            writeln!(out, "{name}_sum{labels_shown} {sum}\n{name}_count{labels_shown} {count}")
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_as_they_should_be() {
        let mut families = Families::default();
        families.add("a", Kind::Counter, "at", "", Sample::Number(1));
        families.add("a", Kind::Counter, "at", &with("", "x", "q\"\\\n\u{e9}"), Sample::Number(2));
        families.add("a", Kind::Gauge, "at", "", Sample::Number(3));
        families.add("b", Kind::Gauge, "at", "", Sample::Millis(1500));
        families.add("c", Kind::Info, "at", &with("", "v", "1"), Sample::Number(1));
        let plain = String::from_utf8(families.text(false)).unwrap();
        assert_eq!(
            plain,
            "# HELP a_total at\n# TYPE a_total counter\na_total 1\na_total{x=\"q\\\"\\\\\\n\u{e9}\"} 2\n\
             # HELP b at\n# TYPE b gauge\nb 1.5\n# HELP c_info at\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n"
        );
        let open = String::from_utf8(families.text(true)).unwrap();
        assert!(open.contains("# TYPE a counter\na_total 1\n"), "{open}");
        assert!(open.contains("# TYPE c info\nc_info{v=\"1\"} 1\n") && open.ends_with("# EOF\n"));
    }
}
