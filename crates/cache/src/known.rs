//! The keys of the texts that this thread was asked for last: an MD5 costs more than all else that a
//! hit has to do with keys.

use crate::Key;
use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher};

/// Texts kept, each in the one place that its hash gives it. A power of two.
const PLACES: usize = 256;
/// Longer texts are not kept.
const TEXT_MAX_BYTES: usize = 256;

#[derive(Default)]
struct Known {
    state: foldhash::fast::RandomState,
    /// None, or all places.
    places: Vec<Option<(Key, Box<[u8]>)>>,
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// The key of a text.
pub fn key_of(text: &[u8]) -> Key {
    match text.len() {
        0..=TEXT_MAX_BYTES => KNOWN.with_borrow_mut(|known| known.key_of(text)),
        _ => Key::of(text),
    }
}

/// Lets go of what is kept.
pub fn forget() {
    KNOWN.with_borrow_mut(|known| known.places = Vec::new());
}

impl Known {
    fn key_of(&mut self, text: &[u8]) -> Key {
        let mut hasher = self.state.build_hasher();
        hasher.write(text);
        let at = hasher.finish() as usize % PLACES;
        if let Some(Some((key, known))) = self.places.get(at) {
            if **known == *text {
                return *key;
            }
        }
        self.keep(at, text)
    }

    #[cold]
    fn keep(&mut self, at: usize, text: &[u8]) -> Key {
        if self.places.is_empty() {
            self.places.resize(PLACES, None);
        }
        let key = Key::of(text);
        self.places[at] = Some((key, text.into()));
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_key_is_the_key() {
        for round in 0..3 {
            for n in 0..1000 {
                let text = "x".repeat(n % 300) + &n.to_string();
                assert_eq!(key_of(text.as_bytes()), Key::of(text.as_bytes()), "{round}");
            }
            forget();
        }
        assert_eq!(key_of(b""), Key::of(b""));
    }
}
