//! The tree of figures as a viewer is sent it: once the names, each with the number of its value, and from
//! then on the values that have changed.
//!
//! Times are told as they were since the last look: percentiles since the start would hardly move.

use super::history::write_numbers;
use std::hash::{DefaultHasher, Hash, Hasher};
use weir_base::bytes::fmt_u64;
use weir_core::counts::Times;
use weir_core::figures::{write_text, Figure, Figures};

/// Groups that nobody plots: statuses by their codes come and go, and the API has them.
const LEFT_OUT: [&str; 1] = ["codes"];

/// A value as it is compared and written.
#[derive(Clone, Debug, PartialEq)]
enum Leaf {
    Number(u64),
    Real(f64),
    Flag(bool),
    Text(String),
    /// How many, and microseconds: median, 95, 99 of a hundred, the longest.
    Times([u64; 5]),
}

/// The values of one look, in the order of their names.
#[derive(Debug, Default)]
pub(super) struct Flat {
    names: Vec<u8>,
    /// Of the names: another one, and viewers need them anew.
    pub shape: u64,
    values: Vec<Leaf>,
    /// All that was timed until then, in the values' order.
    times: Vec<Times>,
}

impl Flat {
    /// What is new since another look is told of times, if that had the same names.
    pub(super) fn new(tree: &Figures, before: Option<&Flat>) -> Flat {
        let mut names = Names { text: Vec::new(), hash: DefaultHasher::new() };
        let mut flat = Flat::default();
        flat.group(tree, &mut names);
        flat.names = names.text;
        flat.shape = names.hash.finish();
        let before = before.filter(|b| b.shape == flat.shape).map(|b| &b.times);
        let mut n = 0;
        for leaf in &mut flat.values {
            let Leaf::Times(told) = leaf else { continue };
            let all = &flat.times[n];
            let fresh = match before.and_then(|b| b.get(n)) {
                Some(before) => all.since(before),
                None => all.clone(),
            };
            let at = |share| fresh.percentile_us(share);
            *told = [fresh.count(), at(0.5), at(0.95), at(0.99), at(1.0)];
            n += 1;
        }
        flat
    }

    fn group(&mut self, group: &Figures, names: &mut Names) {
        names.text.push(b'{');
        let mut first = true;
        for (name, figure) in group.iter().filter(|(name, _)| !LEFT_OUT.contains(name)) {
            if !std::mem::take(&mut first) {
                names.text.push(b',');
            }
            name.hash(&mut names.hash);
            write_text(name, &mut names.text);
            names.text.push(b':');
            self.figure(figure, names);
        }
        names.hash.write_u8(0);
        names.text.push(b'}');
    }

    fn figure(&mut self, figure: &Figure, names: &mut Names) {
        let leaf = match figure {
            Figure::Group(group) => return self.group(group, names),
            Figure::List(list) => {
                names.text.push(b'[');
                for (n, figure) in list.iter().enumerate() {
                    if n > 0 {
                        names.text.push(b',');
                    }
                    self.figure(figure, names);
                }
                names.hash.write_usize(list.len());
                return names.text.push(b']');
            }
            Figure::Number(n) => Leaf::Number(*n),
            Figure::Real(x) => Leaf::Real(*x),
            Figure::Flag(yes) => Leaf::Flag(*yes),
            Figure::Text(text) => Leaf::Text(text.clone()),
            Figure::Times(times) => {
                self.times.push((**times).clone());
                Leaf::Times([0; 5])
            }
        };
        fmt_u64(&mut names.text, self.values.len() as u64);
        self.values.push(leaf);
    }

    /// `event: all`: names and values.
    ///
    /// `second` is what the history has noted last, in JSON; `news` a list of what has happened.
    pub(super) fn all(&self, now_ms: u64, second: &[u8], news: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.names.len() + 8 * self.values.len() + 64);
        out.extend_from_slice(b"event: all\ndata: {\"t\":");
        fmt_u64(&mut out, now_ms);
        out.extend_from_slice(b",\"names\":");
        out.extend_from_slice(&self.names);
        out.extend_from_slice(b",\"v\":[");
        for (n, leaf) in self.values.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            leaf.write(&mut out);
        }
        end(&mut out, second, news);
        out
    }

    /// `event: tick`: what has changed, each value behind its number.
    pub(super) fn changes(
        &self,
        before: &Flat,
        now_ms: u64,
        second: &[u8],
        news: &[u8],
    ) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(b"event: tick\ndata: {\"t\":");
        fmt_u64(&mut out, now_ms);
        out.extend_from_slice(b",\"v\":[");
        let mut first = true;
        for (n, (leaf, old)) in self.values.iter().zip(&before.values).enumerate() {
            if leaf == old {
                continue;
            }
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            fmt_u64(&mut out, n as u64);
            out.push(b',');
            leaf.write(&mut out);
        }
        end(&mut out, second, news);
        out
    }
}

fn end(out: &mut Vec<u8>, second: &[u8], news: &[u8]) {
    out.extend_from_slice(b"],\"row\":");
    out.extend_from_slice(second);
    if news != b"[]" {
        out.extend_from_slice(b",\"news\":");
        out.extend_from_slice(news);
    }
    out.extend_from_slice(b"}\n\n");
}

struct Names {
    text: Vec<u8>,
    hash: DefaultHasher,
}

impl Leaf {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Leaf::Number(n) => fmt_u64(out, *n),
            Leaf::Real(x) if x.is_finite() => out.extend_from_slice(x.to_string().as_bytes()),
            Leaf::Real(_) => out.extend_from_slice(b"null"),
            Leaf::Flag(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
            Leaf::Text(text) => write_text(text, out),
            Leaf::Times(told) => write_numbers(told, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(requests: u64, up: bool) -> Figures {
        let mut tree = Figures::default();
        let zone = tree.group("http").entry(b"a\"</script>");
        zone.put("requests", requests);
        zone.group("codes").put("200", 7);
        zone.put("up", up);
        tree
    }

    #[test]
    fn names_once_and_changes_from_then_on() {
        let first = Flat::new(&tree(1, true), None);
        let text = String::from_utf8(first.all(5, b"null", b"[]")).unwrap();
        let expected = "event: all\ndata: {\"t\":5,\"names\":{\"http\":{\"a\\\"</script>\":{\"requests\":0,\"up\":1}}},\
                        \"v\":[1,true],\"row\":null}\n\n";
        assert_eq!(text, expected);
        let second = Flat::new(&tree(3, true), Some(&first));
        assert_eq!(first.shape, second.shape);
        let text = String::from_utf8(second.changes(&first, 6, b"[6]", b"[{}]")).unwrap();
        assert_eq!(text, "event: tick\ndata: {\"t\":6,\"v\":[0,3],\"row\":[6],\"news\":[{}]}\n\n");
        let same = second.changes(&second, 7, b"null", b"[]");
        assert_eq!(same, b"event: tick\ndata: {\"t\":7,\"v\":[],\"row\":null}\n\n");
        let mut other = tree(3, true);
        other.group("http").entry(b"b").put("requests", 0);
        assert_ne!(Flat::new(&other, None).shape, first.shape);
    }
}
