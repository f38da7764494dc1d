//! What began anew, over the end of a process: it goes the way of the figures that it is taken off (`core::counts`). A field's
//! name says which thing began anew and which of its numbers it is, in hexadecimal digits.

use super::{has_id, table, MAX, OF_NOW};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use weir_core::counts::{self, Keeps, Known};
use weir_core::figures::{Figure, Figures};

/// Between the parts of a path.
const BETWEEN: char = '\x1f';
/// Behind a field with the buckets of times, and with their sum.
const TIMES: &str = ".t";
const SUM: &str = ".s";

struct Since;

/// From now on it is kept.
pub(in crate::api) fn keep() {
    static SINCE: OnceLock<Arc<Since>> = OnceLock::new();
    counts::keep("api begun anew", SINCE.get_or_init(|| Arc::new(Since)));
}

impl Keeps for Since {
    fn read(&self, out: &mut String) {
        for (path, figure) in table().iter() {
            let root = format!("f{}-", hex(&path.join(&BETWEEN.to_string())));
            leaves(figure, &mut Vec::new(), &mut |steps, figure| {
                let name = format!("{root}{}", hex(&steps.join(&BETWEEN.to_string())));
                // Writing into a String cannot fail.
                let _ = match figure {
                    Figure::Number(n) => writeln!(out, "{name} 0 {n}"),
                    Figure::Times(times) => {
                        times.filled().for_each(|(bucket, n)| {
                            let _ = writeln!(out, "{name}{TIMES} {bucket} {n}");
                        });
                        writeln!(out, "{name}{SUM} 0 {}", times.sum_us())
                    }
                    _ => Ok(()),
                };
            });
        }
    }

    fn add(&self, known: &Known) {
        let mut before = table();
        for (field, numbers) in known.fields() {
            let bare = field.strip_suffix(TIMES).or(field.strip_suffix(SUM)).unwrap_or(field);
            let Some((root, steps)) = bare.strip_prefix('f').and_then(|f| f.split_once('-')) else {
                continue;
            };
            let (Some(root), Some(steps)) = (unhex(root), unhex(steps)) else { continue };
            let root: Vec<String> = root.split(BETWEEN).map(str::to_string).collect();
            let steps: Vec<&str> = steps.split(BETWEEN).collect();
            if before.len() >= MAX && !before.contains_key(&root) {
                continue;
            }
            for (place, n) in numbers {
                let leaf = match &field[bare.len()..] {
                    TIMES => Leaf::Bucket(place, n),
                    SUM => Leaf::Sum(n),
                    _ => Leaf::Number(n),
                };
                let whole = before.entry(root.clone()).or_insert_with(|| fresh(&steps, &leaf));
                insert(whole, &steps, &leaf);
            }
        }
    }
}

/// Every number, with the way to it.
fn leaves(figure: &Figure, steps: &mut Vec<String>, f: &mut dyn FnMut(&[String], &Figure)) {
    match figure {
        Figure::Group(group) => {
            for (name, inner) in group.iter().filter(|(name, _)| !OF_NOW.contains(name)) {
                steps.push(format!("k{name}"));
                leaves(inner, steps, f);
                steps.pop();
            }
        }
        Figure::List(list) => {
            for inner in list {
                let Some(id) = super::id(inner) else { continue };
                steps.push(format!("i{id}"));
                leaves(inner, steps, f);
                steps.pop();
            }
        }
        Figure::Number(_) | Figure::Times(_) => f(steps, figure),
        _ => {}
    }
}

enum Leaf {
    Number(u64),
    Bucket(u32, u64),
    Sum(u64),
}

/// What such a way begins in.
fn fresh(steps: &[&str], leaf: &Leaf) -> Figure {
    match (steps.first().and_then(|step| step.chars().next()), leaf) {
        (Some('i'), _) => Figure::List(Vec::new()),
        (Some(_), _) => Figure::Group(Figures::default()),
        (None, Leaf::Number(_)) => Figure::Number(0),
        (None, _) => Figure::Times(Box::default()),
    }
}

fn insert(figure: &mut Figure, steps: &[&str], leaf: &Leaf) {
    let Some((step, rest)) = steps.split_first() else { return add(figure, leaf) };
    let (Some(kind), Some(name)) = (step.get(..1), step.get(1..)) else { return };
    match (figure, kind) {
        (Figure::Group(group), "k") => {
            if group.get(name).is_none() {
                group.put(name.to_string(), fresh(rest, leaf));
            }
            let inner = group.iter_mut().find(|(n, _)| *n == name);
            inner.into_iter().for_each(|(_, inner)| insert(inner, rest, leaf));
        }
        (Figure::List(list), "i") => {
            if !list.iter().any(|one| has_id(one, name)) {
                let mut one = Figures::default();
                one.put("id", name.parse::<u64>().unwrap_or_default());
                list.push(one.into());
            }
            let inner = list.iter_mut().find(|one| has_id(one, name));
            inner.into_iter().for_each(|inner| insert(inner, rest, leaf));
        }
        _ => {}
    }
}

fn add(figure: &mut Figure, leaf: &Leaf) {
    match (figure, leaf) {
        (Figure::Number(now), Leaf::Number(n)) => *now = now.saturating_add(*n),
        (Figure::Times(times), Leaf::Bucket(bucket, n)) => times.add_many(*bucket, *n),
        (Figure::Times(times), Leaf::Sum(us)) => times.add_sum(*us),
        _ => {}
    }
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

fn unhex(text: &str) -> Option<String> {
    let digit = |b: u8| (b as char).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [a, b] => Some((digit(*a)? * 16 + digit(*b)?) as u8),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_finds_its_way_back() {
        let mut group = Figures::default();
        group.put("requests", 5u64);
        group.put("active", 7u64);
        let mut peer = Figures::default();
        peer.put_all(&[("id", 3), ("fails", 2)]);
        group.put("peers", Figure::List(vec![peer.into()]));
        let mut again = None;
        leaves(&group.into(), &mut Vec::new(), &mut |steps, figure| {
            let Figure::Number(n) = figure else { panic!("it is no number") };
            let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
            let leaf = Leaf::Number(*n);
            insert(again.get_or_insert_with(|| fresh(&steps, &leaf)), &steps, &leaf);
        });
        let (mut shown, again) = (Vec::new(), again.unwrap());
        again.write_json(&mut shown);
        let expected = "{\"requests\":5,\"peers\":[{\"id\":3,\"fails\":2}]}";
        assert_eq!(String::from_utf8_lossy(&shown), expected);
        assert_eq!(unhex(&hex("a\x1fb é")).as_deref(), Some("a\x1fb é"));
    }
}
