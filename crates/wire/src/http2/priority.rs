//! Which stream goes first. Extensible priorities (RFC 9218): eight urgencies, and whether a
//! response is of use in parts. And RFC 7540's tree of dependencies, for clients that still tell
//! them: as nginx reads it, a stream's depth decides, and of equals its share.

use super::receive::Dependency;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 goes first.
    pub urgency: u8,
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Priority { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// The value of `Priority` or of a PRIORITY_UPDATE: a structured dictionary of which two
    /// members are known; what cannot be read leaves the default.
    pub fn parse(value: &[u8]) -> Priority {
        let mut p = Priority::default();
        for member in value.split(|b| *b == b',') {
            let member = member.split(|b| *b == b';').next().unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', n @ b'0'..=b'7'] => p.urgency = n - b'0',
                b"i" | b"i=?1" => p.incremental = true,
                b"i=?0" => p.incremental = false,
                _ => {}
            }
        }
        p
    }
}

/// Streams the tree remembers; the oldest are forgotten.
const NODES_MAX: usize = 64;
/// Nobody looks further up the tree, so that a deep one costs no more than a flat one.
const DEPTH_MAX: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Node {
    id: u32,
    /// 0 for the root.
    parent: u32,
    weight: u16,
}

/// Who depends on whom.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    /// Nobody has told any dependency.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn set(&mut self, id: u32, d: Dependency) {
        let old = self.find(id).map_or(0, |n| n.parent);
        // One that comes to depend on its own dependant takes that one's place.
        if self.is_above(id, d.on) {
            if let Some(on) = self.nodes.iter_mut().find(|n| n.id == d.on) {
                on.parent = old;
            }
        }
        let parent = if self.find(d.on).is_some() { d.on } else { 0 };
        if d.exclusive {
            let siblings = self.nodes.iter_mut().filter(|n| n.parent == parent && n.id != id);
            siblings.for_each(|n| n.parent = id);
        }
        match self.nodes.iter_mut().find(|n| n.id == id) {
            Some(n) => (n.parent, n.weight) = (parent, d.weight),
            None => self.nodes.push(Node { id, parent, weight: d.weight }),
        }
        if self.nodes.len() > NODES_MAX {
            let gone = self.nodes.remove(0);
            let orphans = self.nodes.iter_mut().filter(|n| n.parent == gone.id);
            orphans.for_each(|n| n.parent = gone.parent);
        }
    }

    fn find(&self, id: u32) -> Option<&Node> {
        self.nodes.iter().find(|n| n.id == id)
    }

    /// The nodes from one up to the root.
    fn path(&self, id: u32) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.find(id), |n| self.find(n.parent)).take(DEPTH_MAX)
    }

    fn is_above(&self, id: u32, below: u32) -> bool {
        self.path(below).any(|n| n.id == id)
    }

    /// A stream's depth and share.
    pub fn rank(&self, id: u32) -> (u32, f32) {
        match self.find(id) {
            None => (1, DEFAULT_SHARE),
            Some(_) => self.path(id).fold((0, 1.0), |(depth, share), n| {
                (depth + 1, share * f32::from(n.weight) / 256.0)
            }),
        }
    }
}

/// That of a stream nothing was told of.
pub const DEFAULT_SHARE: f32 = 16.0 / 256.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree() {
        let on = |on, weight, exclusive| Dependency { on, exclusive, weight };
        let mut t = Tree::default();
        t.set(1, on(0, 256, false));
        t.set(3, on(1, 128, false));
        t.set(5, on(3, 256, false));
        assert_eq!((t.rank(5), t.rank(9)), ((3, 0.5), (1, DEFAULT_SHARE)));
        // 1 below its own grandchild: 5 moves up.
        t.set(1, on(5, 256, false));
        assert_eq!((t.rank(5).0, t.rank(1).0, t.rank(3).0), (1, 2, 3));
        t.set(7, on(5, 16, true));
        assert_eq!((t.rank(7).0, t.rank(1).0), (2, 3));
        for id in 0..1000 {
            t.set(2 * id + 11, on(2 * id + 9, 1, id % 3 == 0));
            t.set(2 * id + 9, on(2 * id + 11, 1, id % 5 == 0));
            assert!(t.nodes.len() <= NODES_MAX && t.rank(2 * id + 11).0 <= DEPTH_MAX as u32);
        }
    }

    #[test]
    fn values() {
        for (text, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=5, i", 5, true),
            ("i=?0, u=7", 7, false),
            ("u=9,i;x=1", 3, true),
            ("u=-1, x, i=?1", 3, true),
        ] {
            let expected = Priority { urgency, incremental };
            assert_eq!(Priority::parse(text.as_bytes()), expected, "{text}");
        }
    }
}
