//! The tree of figures as a viewer is sent it: once the names, each with the number of its value, and from
//! then on the values that have changed.
//!
//! Times are told as they were since the last look: percentiles since the start would hardly move.

use super::history::write_numbers;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
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
    /// Written when they are others than before, which is seldom.
    names: Arc<[u8]>,
    /// Of the names: another one, and viewers need them anew.
    pub shape: u64,
    values: Vec<Leaf>,
    /// All that was timed until then, in the values' order.
    times: Vec<Times>,
}

impl Flat {
    /// What is new since another look is told of times, if that had the same names.
    pub(super) fn new(tree: Figures, before: Option<&Flat>) -> Flat {
        let mut hash = DefaultHasher::new();
        hash_group(&tree, &mut hash);
        let shape = hash.finish();
        let before = before.filter(|b| b.shape == shape);
        let names = match before {
            Some(before) => Arc::clone(&before.names),
            None => {
                let mut names = Names::default();
                names.group(&tree);
                names.text.into()
            }
        };
        let mut flat = Flat { names, shape, ..Flat::default() };
        if let Some(before) = before {
            flat.values.reserve(before.values.len());
            flat.times.reserve(before.times.len());
        }
        flat.group(tree);
        let mut n = 0;
        for leaf in &mut flat.values {
            let Leaf::Times(told) = leaf else { continue };
            *told = new_times(&flat.times[n], before.and_then(|b| b.times.get(n)));
            n += 1;
        }
        flat
    }

    fn group(&mut self, group: Figures) {
        for (name, figure) in group.into_all() {
            if !LEFT_OUT.contains(&&*name) {
                self.figure(figure);
            }
        }
    }

    fn figure(&mut self, figure: Figure) {
        let leaf = match figure {
            Figure::Group(group) => return self.group(group),
            Figure::List(list) => {
                return list.into_iter().for_each(|figure| self.figure(figure));
            }
            Figure::Number(n) => Leaf::Number(n),
            Figure::Real(x) => Leaf::Real(x),
            Figure::Flag(yes) => Leaf::Flag(yes),
            Figure::Text(text) => Leaf::Text(text),
            Figure::Times(times) => {
                self.times.push(*times);
                Leaf::Times([0; 5])
            }
        };
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

    /// `event: second`: between two looks only what the history has noted, and what has happened.
    pub(super) fn second(now_ms: u64, second: &[u8], news: &[u8]) -> Vec<u8> {
        let mut out = b"event: second\ndata: {\"t\":".to_vec();
        fmt_u64(&mut out, now_ms);
        out.extend_from_slice(b",\"v\":[");
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

/// What has come since it stood as `before`.
fn new_times(all: &Times, before: Option<&Times>) -> [u64; 5] {
    if before == Some(all) {
        return [0; 5];
    }
    let fresh = match before {
        Some(before) => all.since(before),
        None => all.clone(),
    };
    let at = |share| fresh.percentile_us(share);
    [fresh.count(), at(0.5), at(0.95), at(0.99), at(1.0)]
}

fn shown(group: &Figures) -> impl Iterator<Item = (&str, &Figure)> {
    group.iter().filter(|(name, _)| !LEFT_OUT.contains(name))
}

fn hash_group(group: &Figures, hash: &mut DefaultHasher) {
    for (name, figure) in shown(group) {
        name.hash(hash);
        hash_figure(figure, hash);
    }
    hash.write_u8(0);
}

fn hash_figure(figure: &Figure, hash: &mut DefaultHasher) {
    match figure {
        Figure::Group(group) => {
            hash.write_u8(1);
            hash_group(group, hash);
        }
        Figure::List(list) => {
            hash.write_usize(list.len());
            list.iter().for_each(|figure| hash_figure(figure, hash));
        }
        Figure::Times(_) => hash.write_u8(2),
        _ => {}
    }
}

/// The tree in JSON, with the number of each value in its place.
#[derive(Default)]
struct Names {
    text: Vec<u8>,
    next: u64,
}

impl Names {
    fn group(&mut self, group: &Figures) {
        self.text.push(b'{');
        for (n, (name, figure)) in shown(group).enumerate() {
            if n > 0 {
                self.text.push(b',');
            }
            write_text(name, &mut self.text);
            self.text.push(b':');
            self.figure(figure);
        }
        self.text.push(b'}');
    }

    fn figure(&mut self, figure: &Figure) {
        match figure {
            Figure::Group(group) => self.group(group),
            Figure::List(list) => {
                self.text.push(b'[');
                for (n, figure) in list.iter().enumerate() {
                    if n > 0 {
                        self.text.push(b',');
                    }
                    self.figure(figure);
                }
                self.text.push(b']');
            }
            _ => {
                fmt_u64(&mut self.text, self.next);
                self.next += 1;
            }
        }
    }
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
        let first = Flat::new(tree(1, true), None);
        let text = String::from_utf8(first.all(5, b"null", b"[]")).unwrap();
        let expected = "event: all\ndata: {\"t\":5,\"names\":{\"http\":{\"a\\\"</script>\":{\"requests\":0,\"up\":1}}},\
                        \"v\":[1,true],\"row\":null}\n\n";
        assert_eq!(text, expected);
        let second = Flat::new(tree(3, true), Some(&first));
        assert_eq!(first.shape, second.shape);
        let text = String::from_utf8(second.changes(&first, 6, b"[6]", b"[{}]")).unwrap();
        assert_eq!(text, "event: tick\ndata: {\"t\":6,\"v\":[0,3],\"row\":[6],\"news\":[{}]}\n\n");
        let same = second.changes(&second, 7, b"null", b"[]");
        assert_eq!(same, b"event: tick\ndata: {\"t\":7,\"v\":[],\"row\":null}\n\n");
        let mut other = tree(3, true);
        other.group("http").entry(b"b").put("requests", 0);
        assert_ne!(Flat::new(other, None).shape, first.shape);
    }
}
