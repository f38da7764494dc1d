//! The same metrics for receivers of OTLP: names without `_total`, units, attributes for labels.

use super::families::{pairs, Families, Kind, Sample};
use super::walk;
use weir_core::counts::{began_ms, process_began_ms, Times, BOUNDS_US, BUCKETS};
use weir_core::figures::Figures;
use weir_runtime::clock;
use weir_shipping::otlp::metrics::{self, Head, Histogram, Number, Point, Value};

/// Everything that the tree has, each metric in messages of its own.
pub fn encode(tree: &Figures) -> Vec<Vec<u8>> {
    let mut families = Families::default();
    walk::walk(tree, &mut families);
    let now_ms = clock::wall_us() / 1000;
    // A sum that begins at 0 with the process begins then: a reader takes it for a fall otherwise.
    let kept = metrics::Times { began_ms: began_ms(), now_ms };
    let own = metrics::Times { began_ms: process_began_ms(), now_ms };
    let bounds = BOUNDS_US.map(|us| us as f64 / 1e6);
    let mut all = Vec::new();
    for (name, family) in families.all() {
        let samples = &family.samples;
        let counts: Vec<[u64; BUCKETS]> = samples.iter().map(|(_, s)| shown(s)).collect();
        let both = samples.iter().zip(&counts);
        let points: Vec<Point<'_>> = both
            .map(|((labels, sample), counts)| (pairs(labels), value(sample, counts, &bounds)))
            .collect();
        let kind = match family.kind {
            Kind::Counter => metrics::Kind::Sum,
            Kind::Gauge | Kind::Info => metrics::Kind::Gauge,
            Kind::Histogram => metrics::Kind::Histogram,
        };
        let head = Head { name, description: &family.help, unit: unit(name), kind };
        let times = if family.is_kept { kept } else { own };
        all.extend(metrics::metric(&head, times, &points));
    }
    all
}

fn unit(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("bytes") => "By",
        Some("seconds") => "s",
        _ => "1",
    }
}

fn shown(sample: &Sample) -> [u64; BUCKETS] {
    match sample {
        Sample::Times(times) => times.shown(),
        _ => [0; BUCKETS],
    }
}

fn value<'a>(sample: &Sample, counts: &'a [u64; BUCKETS], bounds: &'a [f64]) -> Value<'a> {
    match sample {
        Sample::Number(n) => Value::Number(Number::Whole(*n)),
        Sample::Millis(ms) => Value::Number(Number::Real(*ms as f64 / 1e3)),
        Sample::Real(x) => Value::Number(Number::Real(*x)),
        Sample::Times(times) => Value::Histogram(histogram(times, counts, bounds)),
    }
}

fn histogram<'a>(times: &Times, counts: &'a [u64], bounds: &'a [f64]) -> Histogram<'a> {
    let exemplars = (0..BUCKETS).filter_map(|n| times.exemplar(n));
    let exemplars = exemplars.map(|e| metrics::Exemplar {
        trace: e.trace,
        span: e.span,
        value: e.us as f64 / 1e6,
        wall_ms: e.wall_ms,
    });
    Histogram {
        counts,
        bounds,
        sum: times.sum_us() as f64 / 1e6,
        max: times.max_us() as f64 / 1e6,
        exemplars: exemplars.collect(),
    }
}
