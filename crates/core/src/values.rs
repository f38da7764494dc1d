//! The values of one session's variables, and what its last regular expression has captured.

use crate::unknown::{Certainty, Unknown};
use weir_script::regex::Captures;

#[derive(Clone, Copy, Default)]
pub(crate) enum Slot {
    #[default]
    Empty,
    Missing,
    /// Made while a match was given up: whoever asks for it fails by it again.
    Unknown,
    Value {
        start: u32,
        len: u32,
    },
    /// As `Value`, and a default in it stands in for what could not be told.
    Guess {
        start: u32,
        len: u32,
    },
}

/// What the last regular expression that matched has captured.
#[derive(Default)]
pub struct CaptureSet {
    /// What was looked at; the captures are parts of it.
    pub subject: Vec<u8>,
    /// Where they are in `subject`.
    pub captures: Captures,
    /// Storage for a match that may fail, so that the last success is kept.
    pub(crate) spare: Captures,
}

impl CaptureSet {
    /// A group's text, 0 for the whole match; `None` if it took no part.
    pub fn get(&self, n: usize) -> Option<&[u8]> {
        self.subject.get(self.captures.range(n)?)
    }

    /// Takes over what another session's has captured.
    pub fn copy_from(&mut self, other: &CaptureSet) {
        self.subject.clone_from(&other.subject);
        self.captures.clone_from(&other.captures);
    }
}

/// The values that a session has kept, by the variables' numbers; its memory is used again.
#[derive(Default)]
pub struct Values {
    slots: Vec<Slot>,
    arena: Vec<u8>,
    /// For `$1` to `$9`.
    pub captures: CaptureSet,
    /// Whether a match was given up, and what for.
    pub unknown: Unknown,
    /// A variable was evaluated: text that it brought along may be anywhere.
    pub is_computed: bool,
}

impl Values {
    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.arena.clear();
        self.captures.captures.clear();
        self.unknown.clear();
        self.is_computed = false;
    }

    /// Gives back room for more than there is.
    pub fn shrink(&mut self) {
        self.slots.shrink_to_fit();
        self.arena.shrink_to_fit();
        self.captures.subject.shrink_to_fit();
    }

    /// Takes over the values that another session's has.
    pub fn copy_from(&mut self, other: &Values) {
        self.slots.clone_from(&other.slots);
        self.arena.clone_from(&other.arena);
    }

    /// How much memory is kept, as far as a client or a server decides on it.
    pub fn kept_bytes(&self) -> usize {
        self.arena.capacity() + self.captures.subject.capacity()
    }

    /// Forgets one, so that the next use evaluates it again.
    pub(crate) fn flush(&mut self, n: usize) {
        if let Some(slot) = self.slots.get_mut(n) {
            *slot = Slot::Empty;
        }
    }

    #[inline]
    pub(crate) fn get(&self, n: usize) -> Slot {
        self.slots.get(n).copied().unwrap_or_default()
    }

    pub(crate) fn text(&self, start: u32, len: u32) -> &[u8] {
        &self.arena[start as usize..(start + len) as usize]
    }

    /// Keeps what a getter has made, unless that could not be told.
    pub(crate) fn keep(&mut self, n: usize, value: Option<&[u8]>, certainty: Certainty) {
        let slot = match (certainty, value) {
            (Certainty::Sure, None) => Slot::Missing,
            (Certainty::Sure, Some(value)) => {
                let (start, len) = self.store(value);
                Slot::Value { start, len }
            }
            (Certainty::Guess, Some(value)) => {
                let (start, len) = self.store(value);
                Slot::Guess { start, len }
            }
            _ => return,
        };
        self.set(n, slot);
    }

    pub(crate) fn set(&mut self, n: usize, slot: Slot) {
        if self.slots.len() <= n {
            self.slots.resize(n + 1, Slot::Empty);
        }
        self.slots[n] = slot;
    }

    /// Where and how long the copy of a value is.
    pub(crate) fn store(&mut self, value: &[u8]) -> (u32, u32) {
        let start = self.arena.len() as u32;
        self.arena.extend_from_slice(value);
        (start, value.len() as u32)
    }
}
