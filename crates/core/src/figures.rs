//! What modules report for status pages: a tree of numbers, flags and texts, gathered when somebody asks.
//!
//! Its names and shape are those of NGINX Plus's API where that has the figure, so that the API, the
//! metrics and the dashboard show one tree. What it has besides stands beside those under names of our own.

use crate::counters::AllCounters;
use crate::counts::Times;
use crate::generation::Generation;
use std::borrow::Cow;
use weir_base::bytes::fmt_u64;
use weir_base::date::format_iso8601;
use weir_module::Slots;
use weir_runtime::clock;

/// What is served, and what its workers count.
pub struct Served<'a> {
    /// The newest.
    pub gen: &'a Generation,
    /// Of all workers.
    pub all: &'a AllCounters,
}

/// What a module reports, by the main level's slots of its block.
#[derive(Clone, Copy)]
pub struct Report {
    /// Where its figures stand: below the block's name (`server_zones`), or, with a `/` in front, at the
    /// root (`/connections`). Several reports may share a place, and parts of a path are parted by `/`.
    pub path: &'static str,
    /// Notes them; on any thread, of what all workers count.
    pub put: fn(&Served, &Slots, &mut Figures),
}

/// One of the values in the tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// A count, or a size in bytes; a time in milliseconds where the name does not say otherwise.
    Number(u64),
    /// Of the few that have a fraction.
    Real(f64),
    /// Yes or no.
    Flag(bool),
    /// A name, an address, a date as ISO 8601 has it.
    Text(String),
    /// What is known of how long something took.
    Times(Box<Times>),
    /// Further ones by their names.
    Group(Figures),
    /// Further ones without names.
    List(Vec<Figure>),
}

impl Figure {
    /// A time as NGINX Plus shows it: UTC to the millisecond, of seconds since 1970 and milliseconds.
    pub fn date(secs: i64, ms: u32) -> Figure {
        let text = format_iso8601(secs, 0);
        // `1970-09-28T12:00:00`, and what it has of its zone.
        let day_and_time = String::from_utf8_lossy(&text[..19]);
        Figure::Text(format!("{day_and_time}.{ms:03}Z"))
    }

    /// The date of a time of the monotonic clock, in milliseconds.
    pub fn date_of(mono_ms: u64) -> Figure {
        let (secs, ms) = clock::wall();
        let ago = i64::try_from((clock::now_us() / 1000).saturating_sub(mono_ms));
        let at = secs * 1000 + i64::from(ms) - ago.unwrap_or(0);
        Figure::date(at.div_euclid(1000), at.rem_euclid(1000) as u32)
    }
}

impl From<u64> for Figure {
    fn from(n: u64) -> Figure {
        Figure::Number(n)
    }
}

impl From<bool> for Figure {
    fn from(yes: bool) -> Figure {
        Figure::Flag(yes)
    }
}

impl From<&str> for Figure {
    fn from(text: &str) -> Figure {
        Figure::Text(text.to_string())
    }
}

impl From<String> for Figure {
    fn from(text: String) -> Figure {
        Figure::Text(text)
    }
}

impl From<&[u8]> for Figure {
    /// Names of the configuration are bytes: what is no UTF-8 is replaced.
    fn from(text: &[u8]) -> Figure {
        Figure::Text(String::from_utf8_lossy(text).into_owned())
    }
}

impl From<Times> for Figure {
    fn from(times: Times) -> Figure {
        Figure::Times(Box::new(times))
    }
}

impl From<Figures> for Figure {
    fn from(group: Figures) -> Figure {
        Figure::Group(group)
    }
}

/// Figures by their names, in the order in which they were noted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    members: Vec<(Cow<'static, str>, Figure)>,
}

impl Figures {
    /// Notes one; a name is noted once.
    pub fn put(&mut self, name: impl Into<Cow<'static, str>>, figure: impl Into<Figure>) {
        self.members.push((name.into(), figure.into()));
    }

    /// Notes several numbers.
    pub fn put_all(&mut self, figures: &[(&'static str, u64)]) {
        for (name, value) in figures {
            self.put(*name, *value);
        }
    }

    /// Begins a group with a name of the configuration that has none yet: among thousands nothing is searched.
    pub fn entry(&mut self, name: &[u8]) -> &mut Figures {
        let name = String::from_utf8_lossy(name).into_owned();
        self.members.push((name.into(), Figure::Group(Figures::default())));
        match self.members.last_mut() {
            Some((_, Figure::Group(group))) => group,
            _ => unreachable!("it was put there above"),
        }
    }

    /// The group of that name, begun if there is none. For names that are few.
    pub fn group(&mut self, name: &str) -> &mut Figures {
        let is_it =
            |(n, f): &(Cow<'static, str>, Figure)| n == name && matches!(f, Figure::Group(_));
        let Some(at) = self.members.iter().position(is_it) else {
            return self.entry(name.as_bytes());
        };
        match &mut self.members[at].1 {
            Figure::Group(group) => group,
            _ => unreachable!("it was found to be one"),
        }
    }

    /// What has that name.
    pub fn get(&self, name: &str) -> Option<&Figure> {
        self.members.iter().find(|(n, _)| n == name).map(|(_, f)| f)
    }

    /// A number by its name; 0 if nobody has noted it.
    pub fn number(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Figure::Number(n)) => *n,
            _ => 0,
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Figure)> {
        self.members.iter().map(|(name, figure)| (&**name, figure))
    }

    /// The same, for who needs nothing else of them.
    pub fn into_all(self) -> impl Iterator<Item = (Cow<'static, str>, Figure)> {
        self.members.into_iter()
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Has a report note its figures at its place, which is below `block` if it is not at the root.
    pub fn add(&mut self, block: &str, report: &Report, served: &Served, main: &Slots) {
        let mut at = self;
        let path = match report.path.strip_prefix('/') {
            Some(path) => path,
            None => {
                at = at.group(block);
                report.path
            }
        };
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at = at.group(part);
        }
        (report.put)(served, main, at);
    }

    /// As an object of JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (n, (name, figure)) in self.members.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            write_text(name, out);
            out.push(b':');
            figure.write_json(out);
        }
        out.push(b'}');
    }
}

impl Figure {
    /// As JSON has it. Times are an object: how many, and milliseconds for mean, percentiles and the longest.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Figure::Number(n) => fmt_u64(out, *n),
            Figure::Real(x) if x.is_finite() => out.extend_from_slice(x.to_string().as_bytes()),
            Figure::Real(_) => out.extend_from_slice(b"null"),
            Figure::Flag(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
            Figure::Text(text) => write_text(text, out),
            Figure::Times(times) => times.as_figures().write_json(out),
            Figure::Group(group) => group.write_json(out),
            Figure::List(list) => {
                out.push(b'[');
                for (n, figure) in list.iter().enumerate() {
                    if n > 0 {
                        out.push(b',');
                    }
                    figure.write_json(out);
                }
                out.push(b']');
            }
        }
    }
}

/// For who shows a part of the tree.
impl Figures {
    /// Takes out what has that name.
    pub fn take(&mut self, name: &str) -> Option<Figure> {
        let at = self.members.iter().position(|(n, _)| n == name)?;
        Some(self.members.remove(at).1)
    }

    /// Leaves what is wanted.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&str) -> bool) {
        self.members.retain(|(name, _)| is_wanted(name));
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Figure)> {
        self.members.iter_mut().map(|(name, figure)| (&**name, figure))
    }
}

/// A string of JSON, quoted.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
            c if c < ' ' => out.extend_from_slice(format!("\\u{:04x}", c as u32).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(figures: &Figures) -> String {
        let mut out = Vec::new();
        figures.write_json(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_tree_is_written_as_json() {
        let mut figures = Figures::default();
        figures.put("all", 3);
        let entry = figures.entry(b"a\"\\\n\xff");
        entry.put_all(&[("x", 1), ("y", u64::MAX)]);
        entry.put("up", true);
        figures.group("b").put("list", Figure::List(vec![1.into(), "t".into(), Figure::Real(0.5)]));
        figures.group("b").put("nan", Figure::Real(f64::NAN));
        let expected = "{\"all\":3,\"a\\\"\\\\\\u000a\u{fffd}\":{\"x\":1,\"y\":18446744073709551615,\"up\":true},\
             \"b\":{\"list\":[1,\"t\",0.5],\"nan\":null}}";
        assert_eq!(json(&figures), expected);
        assert_eq!((figures.number("all"), figures.number("none")), (3, 0));
        assert_eq!(figures.iter().count(), 3);
    }
}
