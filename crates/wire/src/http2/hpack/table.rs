//! The dynamic table: the newest entry has the lowest index, the oldest leave when it is full.

use std::collections::VecDeque;

/// What an entry costs besides its text (RFC 7541 section 4.1).
const ENTRY_OVERHEAD_BYTES: usize = 32;

struct Entry {
    /// Name and value in one piece.
    text: Box<[u8]>,
    name_len: usize,
}

pub struct Table {
    entries: VecDeque<Entry>,
    size: usize,
    max: usize,
    /// What this side allows the other to use.
    limit: usize,
}

impl Table {
    pub fn new(limit: usize) -> Table {
        Table { entries: VecDeque::new(), size: 0, max: limit, limit }
    }

    /// The entry, counted from 0.
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let e = self.entries.get(index)?;
        e.text.split_at_checked(e.name_len)
    }

    pub fn insert(&mut self, name: &[u8], value: &[u8]) {
        let cost = name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        self.evict_to(self.max.saturating_sub(cost));
        if cost > self.max {
            return;
        }
        let text = [name, value].concat().into_boxed_slice();
        self.entries.push_front(Entry { text, name_len: name.len() });
        self.size += cost;
    }

    /// `false`: more than was allowed.
    pub fn resize(&mut self, max: usize) -> bool {
        if max > self.limit {
            return false;
        }
        self.max = max;
        self.evict_to(max);
        true
    }

    fn evict_to(&mut self, room: usize) {
        while self.size > room {
            let Some(e) = self.entries.pop_back() else { break };
            self.size -= e.text.len() + ENTRY_OVERHEAD_BYTES;
        }
    }

    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.size
    }
}
