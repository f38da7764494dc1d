//! pprof's format (github.com/google/pprof, proto/profile.proto): the few messages of it that are written here.

use crate::recorder::Profile;
use flate2::write::GzEncoder;
use flate2::Compression;
use std::collections::HashMap;
use std::io::Write;
use std::time::UNIX_EPOCH;

const NANOS: u64 = 1_000_000_000;

/// A message as it is written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn packed(&mut self, field: u64, values: impl Iterator<Item = u64>) {
        let mut inner = Message::default();
        values.for_each(|v| inner.varint(v));
        self.bytes(field, &inner.0);
    }
}

/// Texts by their numbers; the first is empty.
struct Texts<'a> {
    all: Vec<&'a str>,
    places: HashMap<&'a str, u64>,
}

impl<'a> Texts<'a> {
    fn place(&mut self, text: &'a str) -> u64 {
        *self.places.entry(text).or_insert_with(|| {
            self.all.push(text);
            self.all.len() as u64 - 1
        })
    }
}

/// `type` and `unit` of values.
fn value_type(texts: &mut Texts<'_>, kind: &'static str, unit: &'static str) -> Vec<u8> {
    let mut m = Message::default();
    m.number(1, texts.place(kind));
    m.number(2, texts.place(unit));
    m.0
}

pub fn encode(profile: &Profile) -> Vec<u8> {
    let period = NANOS / u64::from(profile.frequency_hz.max(1));
    let mut texts = Texts { all: vec![""], places: [("", 0)].into() };
    let mut out = Message::default();
    out.bytes(1, &value_type(&mut texts, "samples", "count"));
    out.bytes(1, &value_type(&mut texts, "cpu", "nanoseconds"));
    let mut locations: HashMap<u64, u64> = HashMap::new();
    let mut order = Vec::new();
    let workers: Vec<String> = (0..=profile.counts.iter().map(|c| c.0 .0).max().unwrap_or(0))
        .map(|n| format!("worker {n}"))
        .collect();
    for ((worker, stack), count) in &profile.counts {
        let ids = stack.iter().map(|at| {
            *locations.entry(*at).or_insert_with(|| {
                order.push(*at);
                order.len() as u64
            })
        });
        let ids: Vec<u64> = ids.collect();
        let mut sample = Message::default();
        sample.packed(1, ids.into_iter());
        sample.packed(2, [*count, count.saturating_mul(period)].into_iter());
        let mut label = Message::default();
        label.number(1, texts.place("thread"));
        label.number(2, texts.place(&workers[*worker]));
        sample.bytes(3, &label.0);
        out.bytes(2, &sample.0);
    }
    mappings(profile, &mut texts, &mut out);
    code(profile, &order, &mut texts, &mut out);
    let kind = value_type(&mut texts, "cpu", "nanoseconds");
    texts.all.iter().for_each(|t| out.bytes(6, t.as_bytes()));
    let began = profile.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    out.number(9, began.as_nanos() as u64);
    out.number(10, profile.took.as_nanos() as u64);
    out.bytes(11, &kind);
    out.number(12, period);
    out.0
}

/// The files that the code is of.
fn mappings<'a>(profile: &'a Profile, texts: &mut Texts<'a>, out: &mut Message) {
    for (n, mapping) in profile.images.mappings().enumerate() {
        let mut m = Message::default();
        m.number(1, n as u64 + 1);
        m.number(2, mapping.start);
        m.number(3, mapping.end);
        m.number(4, mapping.offset);
        m.number(5, texts.place(&mapping.path));
        m.number(7, 1);
        out.bytes(3, &m.0);
    }
}

/// Addresses and the functions they are in.
fn code<'a>(profile: &'a Profile, order: &[u64], texts: &mut Texts<'a>, out: &mut Message) {
    let mut functions: HashMap<&str, u64> = HashMap::new();
    for (n, at) in order.iter().enumerate() {
        let name = profile.names.get(at).map_or("?", String::as_str);
        let next = functions.len() as u64 + 1;
        let function = *functions.entry(name).or_insert(next);
        if function == next {
            let mut f = Message::default();
            f.number(1, function);
            f.number(2, texts.place(name));
            f.number(3, texts.place(name));
            out.bytes(5, &f.0);
        }
        let mut line = Message::default();
        line.number(1, function);
        let mut location = Message::default();
        location.number(1, n as u64 + 1);
        location.number(2, profile.images.place(*at).map_or(0, |p| p as u64 + 1));
        location.number(3, *at);
        location.bytes(4, &line.0);
        out.bytes(4, &location.0);
    }
}

pub fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    // Memory takes all.
    let _ = gzip.write_all(bytes);
    gzip.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_as_protobuf_has_them() {
        let mut m = Message::default();
        m.number(1, 150);
        m.number(2, 0);
        m.bytes(2, b"testing");
        m.packed(4, [3, 270, 86942].into_iter());
        let expected = b"\x08\x96\x01\x12\x07testing\x22\x06\x03\x8e\x02\x9e\xa7\x05";
        assert_eq!(m.0, expected);
    }
}
