//! Figures that begin anew (`DELETE`): what was counted until then is kept, and taken off when they are shown. Nothing
//! that counts is touched, so that nothing is lost by it, and what adds up over time (metrics) never goes back.

mod kept;

pub(super) use kept::keep;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_core::figures::{Figure, Figures};

/// So many things at most begin anew; the table is emptied of those that are gone before it is full.
const MAX: usize = 10_000;

/// What tells how it is now, and not how often something was: it is shown as it is.
const OF_NOW: &[&str] = &[
    "active",
    "busy_ms",
    "idle",
    "current",
    "processing",
    "reading",
    "writing",
    "waiting",
    "used",
    "free",
    "size",
    "max_size",
    "id",
    "weight",
    "effective_weight",
    "max_conns",
    "max_fails",
    "fail_timeout",
    "request_time",
    "keepalive",
    "zombies",
    "header_time",
    "response_time",
    "connect_time",
    "first_byte_time",
    "generation",
    "pid",
    "ppid",
    "pages",
    "size_bytes",
    "used_bytes",
    "entries",
    "entries_max",
    "memory_bytes",
    "memory_bytes_max",
];

/// By the path in the tree, how it stood.
static BEFORE: Mutex<BTreeMap<Vec<String>, Figure>> = Mutex::new(BTreeMap::new());

fn table() -> MutexGuard<'static, BTreeMap<Vec<String>, Figure>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find<'a>(tree: &'a Figures, path: &[String]) -> Option<&'a Figure> {
    let (first, rest) = path.split_first()?;
    find_in(tree.get(first)?, rest)
}

fn find_in<'a>(figure: &'a Figure, path: &[String]) -> Option<&'a Figure> {
    let Some((first, rest)) = path.split_first() else { return Some(figure) };
    match figure {
        Figure::Group(group) => find_in(group.get(first)?, rest),
        Figure::List(list) => find_in(list.iter().find(|one| has_id(one, first))?, rest),
        _ => None,
    }
}

fn find_mut<'a>(figure: &'a mut Figure, path: &[String]) -> Option<&'a mut Figure> {
    let Some((first, rest)) = path.split_first() else { return Some(figure) };
    match figure {
        Figure::Group(group) => {
            let (_, inner) = group.iter_mut().find(|(name, _)| name == first)?;
            find_mut(inner, rest)
        }
        Figure::List(list) => find_mut(list.iter_mut().find(|one| has_id(one, first))?, rest),
        _ => None,
    }
}

fn id(figure: &Figure) -> Option<u64> {
    match figure {
        Figure::Group(group) => group.get("id").map(|_| group.number("id")),
        _ => None,
    }
}

fn has_id(figure: &Figure, name: &str) -> bool {
    id(figure).is_some_and(|id| name.parse() == Ok(id))
}

/// What stands at that path of the tree is counted from now on.
pub(crate) fn begin_anew(tree: &Figures, path: Vec<String>) {
    let Some(now) = find(tree, &path) else { return };
    let mut before = table();
    if before.len() >= MAX {
        let beside = path.len() - 1;
        before.retain(|p, _| !p.starts_with(&path[..beside]) || find(tree, p).is_some());
    }
    if before.len() < MAX || before.contains_key(&path) {
        // What began anew below begins here.
        before.retain(|p, _| !p.starts_with(&path));
        before.insert(path, now.clone());
    }
}

/// Takes off what was counted before.
pub(crate) fn apply(tree: &mut Figures) {
    let before = table();
    for (path, before) in before.iter() {
        let Some((first, rest)) = path.split_first() else { continue };
        let top = tree.iter_mut().find(|(name, _)| name == first);
        if let Some(now) = top.and_then(|(_, figure)| find_mut(figure, rest)) {
            take_off(now, before);
        }
    }
}

fn take_off(now: &mut Figure, before: &Figure) {
    match (now, before) {
        (Figure::Number(now), Figure::Number(before)) => {
            *now = now.checked_sub(*before).unwrap_or(*now)
        }
        (Figure::Times(now), Figure::Times(before)) => **now = now.since(before),
        (Figure::Group(now), Figure::Group(before)) => {
            for (name, figure) in now.iter_mut().filter(|(name, _)| !OF_NOW.contains(name)) {
                if let Some(before) = before.get(name) {
                    take_off(figure, before);
                }
            }
        }
        (Figure::List(now), Figure::List(before)) => {
            for figure in now {
                let same = before.iter().find(|b| id(b).is_some() && id(b) == id(figure));
                if let Some(before) = same {
                    take_off(figure, before);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(requests: u64, active: u64) -> Figures {
        let mut tree = Figures::default();
        let zone = tree.group("http").group("test_zones").entry(b"a");
        zone.put_all(&[("requests", requests), ("active", active)]);
        let mut peer = Figures::default();
        peer.put_all(&[("id", 7), ("fails", requests)]);
        zone.put("peers", Figure::List(vec![peer.into()]));
        tree
    }

    #[test]
    fn what_was_counted_before_is_taken_off_and_what_is_now_is_not() {
        let path = || ["http", "test_zones", "a"].map(str::to_string).to_vec();
        begin_anew(&tree(10, 3), path());
        let mut now = tree(12, 2);
        apply(&mut now);
        let mut shown = Vec::new();
        now.write_json(&mut shown);
        assert_eq!(
            String::from_utf8_lossy(&shown),
            "{\"http\":{\"test_zones\":{\"a\":{\"requests\":2,\"active\":2,\"peers\":[{\"id\":7,\"fails\":2}]}}}}"
        );
        // It began at nothing itself.
        let mut fresh = tree(4, 1);
        apply(&mut fresh);
        assert_eq!(fresh, tree(4, 1));
        begin_anew(&Figures::default(), path());
        assert!(find(&tree(1, 1), &path()).is_some());
    }
}
