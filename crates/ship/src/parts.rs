//! A batch in parts, for receivers that take so much at once and say when it was more.

use crate::receiver::{Entry, Outcome};
use std::time::Duration;

/// Many receivers take 4 MB of a message unless told otherwise, and a message is longer than the events in it.
pub const PART_MAX_BYTES: usize = 2 << 20;

/// What became of a part.
pub enum Part {
    Taken,
    /// So many were refused for good. Which ones is not known: the last ones stand for them.
    Refused(usize, String),
    /// It was too much at once.
    TooLarge(String),
    Later {
        why: String,
        after: Option<Duration>,
    },
}

/// Sends a batch in parts, each as it is taken; one event that is too much alone is refused.
pub fn send(entries: &[Entry<'_>], mut send: impl FnMut(&[Entry<'_>]) -> Part) -> Outcome {
    let mut most_bytes = PART_MAX_BYTES;
    let mut refused = Vec::new();
    let mut done = vec![false; entries.len()];
    let mut at = 0;
    while at < entries.len() {
        let part = first(&entries[at..], most_bytes);
        let behind = at + part.len();
        let mut refuse = |count: usize, why: &str, done: &mut [bool]| {
            let from = behind - count.min(part.len());
            done[at..from].fill(true);
            refused.extend((from..behind).map(|n| (n, why.to_owned())));
        };
        match send(part) {
            Part::Taken => done[at..behind].fill(true),
            Part::Refused(count, why) => refuse(count, &why, &mut done),
            Part::TooLarge(why) if part.len() == 1 => refuse(1, &why, &mut done),
            Part::TooLarge(_) => {
                most_bytes = bytes(part) / 2;
                continue;
            }
            Part::Later { why, after } if at == 0 => return Outcome::Later { why, after },
            Part::Later { after, .. } => {
                return Outcome::Some { done, refused, again_after: after };
            }
        }
        at = behind;
    }
    match refused.is_empty() {
        true => Outcome::All,
        false => Outcome::Some { done, refused, again_after: None },
    }
}

fn bytes(entries: &[Entry<'_>]) -> usize {
    entries.iter().map(|e| e.json.len()).sum()
}

/// The first entries that have no more bytes together; one at least.
fn first<'a, 'b>(entries: &'a [Entry<'b>], most_bytes: usize) -> &'a [Entry<'b>] {
    let mut left = most_bytes;
    let fits = |entry: &&Entry<'_>| {
        let fits = left.checked_sub(entry.json.len());
        left = fits.unwrap_or(0);
        fits.is_some()
    };
    let count = entries.iter().take_while(fits).count();
    &entries[..count.max(1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    fn texts(count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|n| format!("{n:010}").into_bytes()).collect()
    }

    #[test]
    fn what_is_too_much_goes_in_smaller_parts() {
        let mut texts = texts(50);
        texts[20] = vec![b'x'; 1000];
        let entries = fake::entries(&texts, 0);
        let mut got = Vec::new();
        let outcome = send(&entries, |part| match bytes(part) > 100 {
            true => Part::TooLarge("too large".into()),
            false => {
                got.extend(part.iter().map(|e| e.id));
                Part::Taken
            }
        });
        let Outcome::Some { done, refused, .. } = outcome else { panic!() };
        assert_eq!(refused, [(20, "too large".to_owned())]);
        assert_eq!(done.iter().filter(|d| **d).count(), 49);
        let expected: Vec<_> =
            entries.iter().enumerate().filter(|(n, _)| *n != 20).map(|(_, e)| e.id).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn what_is_done_stays_done() {
        let texts = vec![vec![b'x'; PART_MAX_BYTES / 2]; 6];
        let entries = fake::entries(&texts, 0);
        let mut parts = 0;
        let outcome = send(&entries, |part| {
            parts += 1;
            assert_eq!(part.len(), 2);
            match parts {
                1 => Part::Taken,
                2 => Part::Refused(1, "old".into()),
                _ => Part::Later { why: "down".into(), after: None },
            }
        });
        let Outcome::Some { done, refused, .. } = outcome else { panic!() };
        assert_eq!(done, [true, true, true, false, false, false]);
        assert_eq!(refused, [(3, "old".to_owned())]);
        let down = |_: &[Entry<'_>]| Part::Later { why: "down".into(), after: None };
        assert!(matches!(send(&entries, down), Outcome::Later { .. }));
        assert!(matches!(send(&entries, |_| Part::Taken), Outcome::All));
    }
}
