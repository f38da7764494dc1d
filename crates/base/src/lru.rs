//! A table that knows which of its entries was used least recently.

use std::collections::HashMap;

const NONE: u32 = u32::MAX;

struct Node<V> {
    key: Box<[u8]>,
    value: V,
    newer: u32,
    older: u32,
}

/// Entries have numbers, which stay true until the entry is removed.
pub struct Lru<V> {
    numbers: HashMap<Box<[u8]>, u32>,
    nodes: Vec<Option<Node<V>>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl<V> Default for Lru<V> {
    fn default() -> Self {
        Lru {
            numbers: HashMap::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }
}

impl<V> Lru<V> {
    /// Finds an entry and makes it the newest.
    pub fn touch(&mut self, key: &[u8]) -> Option<u32> {
        let n = *self.numbers.get(key)?;
        if self.newest != n {
            self.unlink(n);
            self.link(n);
        }
        Some(n)
    }

    /// Finds an entry and leaves its age.
    pub fn peek(&self, key: &[u8]) -> Option<&V> {
        let n = *self.numbers.get(key)?;
        self.nodes.get(n as usize)?.as_ref().map(|node| &node.value)
    }

    /// The key must be new.
    pub fn insert(&mut self, key: &[u8], value: V) -> u32 {
        let node = Node { key: key.into(), value, newer: NONE, older: NONE };
        let n = match self.free.pop() {
            Some(n) => n,
            None => {
                self.nodes.push(None);
                (self.nodes.len() - 1) as u32
            }
        };
        self.numbers.insert(node.key.clone(), n);
        self.nodes[n as usize] = Some(node);
        self.link(n);
        n
    }

    pub fn get_mut(&mut self, n: u32) -> Option<&mut V> {
        self.nodes.get_mut(n as usize)?.as_mut().map(|node| &mut node.value)
    }

    pub fn oldest(&self) -> Option<(&[u8], &V)> {
        let node = self.nodes.get(self.oldest as usize)?.as_ref()?;
        Some((&node.key, &node.value))
    }

    /// Removes the least recently used entry; answers the length of its key.
    pub fn remove_oldest(&mut self) -> Option<usize> {
        let n = self.oldest;
        self.nodes.get(n as usize)?;
        self.unlink(n);
        let node = self.nodes[n as usize].take()?;
        self.numbers.remove(&node.key);
        self.free.push(n);
        Some(node.key.len())
    }

    fn node(&mut self, n: u32) -> Option<&mut Node<V>> {
        self.nodes.get_mut(n as usize).and_then(Option::as_mut)
    }

    fn unlink(&mut self, n: u32) {
        let Some(node) = self.node(n) else { return };
        let (newer, older) = (node.newer, node.older);
        match self.node(newer) {
            Some(node) => node.older = older,
            None => self.newest = older,
        }
        match self.node(older) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link(&mut self, n: u32) {
        let second = self.newest;
        if let Some(node) = self.node(n) {
            (node.newer, node.older) = (NONE, second);
        }
        match self.node(second) {
            Some(node) => node.newer = n,
            None => self.oldest = n,
        }
        self.newest = n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order() {
        let mut lru = Lru::default();
        for (i, key) in [b"a", b"b", b"c"].iter().enumerate() {
            lru.insert(*key, i);
        }
        assert_eq!(lru.oldest(), Some((&b"a"[..], &0)));
        assert_eq!((lru.peek(b"a"), lru.peek(b"z")), (Some(&0), None));
        let a = lru.touch(b"a").unwrap();
        *lru.get_mut(a).unwrap() = 7;
        assert_eq!(lru.oldest(), Some((&b"b"[..], &1)));
        assert_eq!(lru.remove_oldest(), Some(1));
        assert_eq!(lru.touch(b"b"), None);
        lru.insert(b"dd", 3);
        assert!(lru.touch(b"c").is_some());
        assert_eq!(lru.remove_oldest(), Some(1));
        assert_eq!(lru.remove_oldest(), Some(2));
        assert_eq!(lru.oldest(), Some((&b"c"[..], &2)));
        assert_eq!(lru.remove_oldest(), Some(1));
        assert_eq!((lru.remove_oldest(), lru.oldest()), (None, None));
        lru.insert(b"e", 9);
        assert_eq!(lru.oldest(), Some((&b"e"[..], &9)));
    }
}
