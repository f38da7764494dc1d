//! What modules report for a status page: numbers and their names, gathered when somebody asks.

use crate::worker::Worker;
use weir_base::bytes::fmt_u64;
use weir_module::Slots;

/// What a module reports, by the main level's slots of its block.
#[derive(Clone, Copy)]
pub struct Report {
    /// What its numbers are about.
    pub group: &'static str,
    /// Notes them.
    pub put: fn(&Worker, &Slots, &mut Figures),
}

/// One of several things of a kind (a zone, a server), and its numbers by their names.
struct Entry {
    name: Vec<u8>,
    figures: Vec<(&'static str, u64)>,
}

/// Numbers of one group.
#[derive(Default)]
pub struct Figures {
    /// Of the group itself.
    own: Vec<(&'static str, u64)>,
    entries: Vec<Entry>,
}

impl Figures {
    /// Of a report, by the main level's slots of its block.
    pub fn of(report: &Report, worker: &Worker, main: &Slots) -> Figures {
        let mut figures = Figures::default();
        (report.put)(worker, main, &mut figures);
        figures
    }

    /// Notes numbers of the group itself.
    pub fn put(&mut self, figures: &[(&'static str, u64)]) {
        self.own.extend_from_slice(figures);
    }

    /// Notes those of one of its things.
    pub fn put_entry(&mut self, name: &[u8], figures: &[(&'static str, u64)]) {
        self.entries.push(Entry { name: name.to_vec(), figures: figures.to_vec() });
    }

    /// A number of the group itself; 0 if nobody has noted it.
    pub fn get(&self, name: &str) -> u64 {
        self.own.iter().find(|(n, _)| *n == name).map_or(0, |(_, value)| *value)
    }

    /// As an object of JSON, things by their names within.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut first = true;
        write_all(&self.own, &mut first, out);
        for entry in &self.entries {
            separate(&mut first, out);
            write_name(&entry.name, out);
            out.push(b'{');
            write_all(&entry.figures, &mut true, out);
            out.push(b'}');
        }
        out.push(b'}');
    }
}

fn separate(first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::take(first) {
        out.push(b',');
    }
}

fn write_all(figures: &[(&'static str, u64)], first: &mut bool, out: &mut Vec<u8>) {
    for (name, value) in figures {
        separate(first, out);
        write_name(name.as_bytes(), out);
        fmt_u64(out, *value);
    }
}

/// A member's name and the colon. Names of the configuration are bytes: what is no UTF-8 is replaced.
fn write_name(name: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for c in String::from_utf8_lossy(name).chars() {
        match c {
            '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
            c if c < ' ' => out.extend_from_slice(format!("\\u{:04x}", c as u32).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.extend_from_slice(b"\":");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        let mut figures = Figures::default();
        figures.put(&[("all", 3)]);
        figures.put_entry(b"a\"\\\n\xff", &[("x", 1), ("y", u64::MAX)]);
        figures.put_entry(b"b", &[]);
        let mut out = Vec::new();
        figures.write_json(&mut out);
        let expected =
            "{\"all\":3,\"a\\\"\\\\\\u000a\u{fffd}\":{\"x\":1,\"y\":18446744073709551615},\"b\":{}}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!((figures.get("all"), figures.get("none")), (3, 0));
    }
}
