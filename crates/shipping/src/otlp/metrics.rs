//! Figures as metrics (`ExportMetricsServiceRequest`): sums and histograms that are cumulative, and gauges.
//!
//! A metric is written as the field that it is of its scope, so that a queue may have metrics one by one, and a request is
//! metrics one behind the other.

use super::logs::envelope;
use super::proto::Message;

/// The tag of a scope's metric: what begins so in a queue is one, and no JSON.
pub const FIRST_BYTE: u8 = 2 << 3 | 2;
/// A metric with more points than fit in so many bytes is told in several parts.
const PART_BYTES: usize = 48 * 1024;
const CUMULATIVE: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Sum,
    Gauge,
    Histogram,
}

#[derive(Clone, Copy, Debug)]
pub enum Number {
    Whole(u64),
    Real(f64),
}

/// How often and how long, in seconds.
#[derive(Clone, Debug)]
pub struct Histogram<'a> {
    /// One more than bounds.
    pub counts: &'a [u64],
    pub bounds: &'a [f64],
    pub sum: f64,
    pub max: f64,
    pub exemplars: Vec<Exemplar>,
}

#[derive(Clone, Copy, Debug)]
pub struct Exemplar {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub value: f64,
    pub wall_ms: u64,
}

pub enum Value<'a> {
    Number(Number),
    Histogram(Histogram<'a>),
}

/// The times of all points, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub began_ms: u64,
    pub now_ms: u64,
}

/// What a metric is called.
pub struct Head<'a> {
    pub name: &'a str,
    pub description: &'a str,
    pub unit: &'a str,
    pub kind: Kind,
}

/// Attributes of a point, and what it is.
pub type Point<'a> = (Vec<(String, String)>, Value<'a>);

fn nanos(ms: u64) -> u64 {
    ms * 1_000_000
}

/// A metric, in as many parts as it takes.
pub fn metric(head: &Head<'_>, times: Times, points: &[Point<'_>]) -> Vec<Vec<u8>> {
    let (mut parts, mut data) = (Vec::new(), Vec::new());
    for (n, point) in points.iter().enumerate() {
        Message::new(&mut data).message(1, |m| write(point, times, m));
        if data.len() >= PART_BYTES || n + 1 == points.len() {
            parts.push(part(head, &data));
            data.clear();
        }
    }
    parts
}

fn part(head: &Head<'_>, points: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(points.len() + 128);
    Message::new(&mut out).message(2, |metric| {
        metric.text(1, head.name);
        metric.text(2, head.description);
        metric.text(3, head.unit);
        let field = match head.kind {
            Kind::Gauge => 5,
            Kind::Sum => 7,
            Kind::Histogram => 9,
        };
        metric.message(field, |data| {
            data.raw(points);
            if head.kind != Kind::Gauge {
                data.number(2, CUMULATIVE);
            }
            if head.kind == Kind::Sum {
                data.number(3, 1);
            }
        });
    });
    out
}

fn write((attributes, value): &Point<'_>, times: Times, m: &mut Message<'_>) {
    m.fixed64(2, nanos(times.began_ms));
    m.fixed64(3, nanos(times.now_ms));
    match value {
        Value::Number(number) => {
            match number {
                Number::Real(real) => m.fixed64(4, real.to_bits()),
                Number::Whole(whole) => m.fixed64(6, *whole),
            }
            pairs(7, attributes, m);
        }
        Value::Histogram(h) => {
            m.fixed64(4, h.counts.iter().sum());
            m.fixed64(5, h.sum.to_bits());
            m.bytes(6, &h.counts.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>());
            m.bytes(7, &h.bounds.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
            h.exemplars.iter().for_each(|e| m.message(8, |m| e.write(m)));
            pairs(9, attributes, m);
            if h.max > 0.0 {
                m.fixed64(12, h.max.to_bits());
            }
        }
    }
}

fn pairs(field: u32, attributes: &[(String, String)], m: &mut Message<'_>) {
    for (name, value) in attributes {
        m.message(field, |pair| {
            pair.text(1, name);
            pair.message(2, |v| v.text(1, value));
        });
    }
}

impl Exemplar {
    fn write(&self, m: &mut Message<'_>) {
        m.fixed64(2, nanos(self.wall_ms));
        m.fixed64(3, self.value.to_bits());
        m.bytes(4, &self.span);
        m.bytes(5, &self.trace);
    }
}

/// A request with metrics as [`metric`] has written them.
pub fn request<'a>(
    metrics: impl Iterator<Item = &'a [u8]>,
    attributes: &[(String, String)],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * 1024);
    envelope(&mut out, attributes, |scope| metrics.for_each(|metric| scope.raw(metric)));
    out
}

#[cfg(test)]
mod tests {
    use super::super::proto::found::{bytes, number};
    use super::*;

    const TIMES: Times = Times { began_ms: 1, now_ms: 3 };

    fn head(kind: Kind) -> Head<'static> {
        Head { name: "n", description: "d", unit: "s", kind }
    }

    #[test]
    fn sums_are_monotonic_and_cumulative() {
        let points = [(vec![("a".into(), "b".into())], Value::Number(Number::Whole(7)))];
        let parts = metric(&head(Kind::Sum), TIMES, &points);
        assert_eq!((parts.len(), parts[0][0]), (1, FIRST_BYTE));
        let message = request(parts.iter().map(Vec::as_slice), &[]);
        let scope = bytes(bytes(&message, 1)[0], 2)[0];
        let metric = bytes(scope, 2)[0];
        assert_eq!((bytes(metric, 1)[0], bytes(metric, 3)[0]), (&b"n"[..], &b"s"[..]));
        let sum = bytes(metric, 7)[0];
        assert_eq!((number(sum, 2), number(sum, 3)), (Some(2), Some(1)));
        let point = bytes(sum, 1)[0];
        let seen = (number(point, 2), number(point, 3), number(point, 6));
        assert_eq!(seen, (Some(1_000_000), Some(3_000_000), Some(7)));
        assert_eq!(bytes(bytes(point, 7)[0], 1)[0], b"a");
    }

    #[test]
    fn histograms_have_bounds_and_exemplars() {
        let exemplar = Exemplar { trace: [1; 16], span: [2; 8], value: 0.5, wall_ms: 2 };
        let h = Histogram {
            counts: &[1, 2],
            bounds: &[0.25],
            sum: 1.5,
            max: 0.75,
            exemplars: vec![exemplar],
        };
        let parts = metric(&head(Kind::Histogram), TIMES, &[(vec![], Value::Histogram(h))]);
        let histogram = bytes(bytes(&parts[0], 2)[0], 9)[0];
        assert_eq!((number(histogram, 2), number(histogram, 3)), (Some(2), None));
        let point = bytes(histogram, 1)[0];
        assert_eq!((number(point, 4), number(point, 5)), (Some(3), Some(1.5f64.to_bits())));
        assert_eq!(bytes(point, 6)[0], [1u64.to_le_bytes(), 2u64.to_le_bytes()].concat());
        assert_eq!(bytes(point, 7)[0], 0.25f64.to_le_bytes());
        assert_eq!(bytes(bytes(point, 8)[0], 5), [&[1; 16][..]]);
    }

    #[test]
    fn what_is_long_is_told_in_parts() {
        let point = |n: usize| {
            (vec![("a".into(), "x".repeat(100))], Value::Number(Number::Whole(n as u64)))
        };
        let points: Vec<Point<'_>> = (0..2000).map(point).collect();
        let parts = metric(&head(Kind::Gauge), TIMES, &points);
        assert!(parts.len() > 3 && parts.iter().all(|part| part.len() < 60 * 1024));
        let gauges = parts.iter().map(|part| bytes(bytes(bytes(part, 2)[0], 5)[0], 1).len());
        assert_eq!(gauges.sum::<usize>(), 2000);
        assert!(metric(&head(Kind::Gauge), TIMES, &[]).is_empty());
    }
}
