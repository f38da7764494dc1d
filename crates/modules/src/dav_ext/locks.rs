//! Who has locked what: exclusive write locks (RFC 4918, section 6), in memory that all workers share.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard};
use weir_core::zones;
use weir_runtime::clock;

/// What is kept of a lock besides its texts.
const NODE_BYTES: usize = 64;

/// A lock on a file or a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lock {
    /// `urn:uuid:…`
    pub(super) token: String,
    /// The file, without a slash at its end.
    pub(super) path: Vec<u8>,
    /// The URI it was asked for by, escaped, for clients to see.
    pub(super) root: Vec<u8>,
    /// Who it was asked for by, as XML of our own making.
    pub(super) owner: Vec<u8>,
    /// What lies below is locked too.
    pub(super) infinite: bool,
    expires_ms: u64,
}

impl Lock {
    fn bytes(&self) -> u64 {
        let text = self.token.len() + self.path.len() + self.root.len() + self.owner.len();
        zones::chunk_bytes(NODE_BYTES + text)
    }

    /// Whether it holds for a file, be it for what a collection has in it.
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        self.path == path || self.infinite && is_below(path, &self.path)
    }

    /// Seconds that are left.
    pub(super) fn left_secs(&self) -> u64 {
        self.expires_ms.saturating_sub(clock::mono_ms()).div_ceil(1000)
    }
}

fn is_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| above.is_empty() || rest.first() == Some(&b'/'))
}

/// `dav_ext_lock_zone`
pub(super) struct Zone {
    usable_bytes: u64,
    keys: RandomState,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    locks: Vec<Lock>,
    used_bytes: u64,
    made: u64,
}

impl Table {
    fn keep(&mut self, mut stays: impl FnMut(&Lock) -> bool) {
        let used = &mut self.used_bytes;
        self.locks.retain(|lock| {
            let stays = stays(lock);
            if !stays {
                *used -= lock.bytes();
            }
            stays
        });
    }
}

/// Why there is no lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoLock {
    /// Another one is in its way.
    Locked,
    /// The zone has no room.
    Full,
}

impl Zone {
    pub(super) fn new(size: u64) -> Zone {
        Zone {
            usable_bytes: zones::usable_bytes(size),
            keys: RandomState::new(),
            table: Mutex::default(),
        }
    }

    /// The table without what has run out.
    fn table(&self) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock().unwrap_or_else(|e| e.into_inner());
        let now = clock::mono_ms();
        table.keep(|lock| lock.expires_ms > now);
        table
    }

    /// Locks a file for so long.
    pub(super) fn lock(
        &self,
        path: &[u8],
        root: Vec<u8>,
        owner: Vec<u8>,
        infinite: bool,
        time_ms: u64,
    ) -> Result<Lock, NoLock> {
        let mut table = self.table();
        let hinders = |l: &Lock| l.covers(path) || infinite && is_below(&l.path, path);
        if table.locks.iter().any(hinders) {
            return Err(NoLock::Locked);
        }
        table.made += 2;
        let token = self.token(table.made);
        let expires_ms = clock::mono_ms() + time_ms;
        let lock = Lock { token, path: path.to_vec(), root, owner, infinite, expires_ms };
        if table.used_bytes + lock.bytes() > self.usable_bytes {
            return Err(NoLock::Full);
        }
        table.used_bytes += lock.bytes();
        table.locks.push(lock.clone());
        Ok(lock)
    }

    /// A random UUID (RFC 9562, section 5.4).
    fn token(&self, number: u64) -> String {
        let (high, low) = (self.keys.hash_one(number), self.keys.hash_one(number + 1));
        let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff | 0x4000);
        let (d, e) = (low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
        format!("urn:uuid:{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }

    /// Gives a lock its time anew, if its token is among those.
    pub(super) fn refresh(&self, path: &[u8], tokens: &[Vec<u8>], time_ms: u64) -> Option<Lock> {
        let mut table = self.table();
        let is_it =
            |l: &&mut Lock| l.covers(path) && tokens.iter().any(|t| t == l.token.as_bytes());
        let lock = table.locks.iter_mut().find(is_it)?;
        lock.expires_ms = clock::mono_ms() + time_ms;
        Some(lock.clone())
    }

    /// Whether there was such a lock on the file.
    pub(super) fn unlock(&self, path: &[u8], token: &[u8]) -> bool {
        let mut table = self.table();
        let before = table.locks.len();
        table.keep(|l| !(l.token.as_bytes() == token && l.covers(path)));
        table.locks.len() < before
    }

    /// The lock that holds for a file.
    pub(super) fn of(&self, path: &[u8]) -> Option<Lock> {
        self.table().locks.iter().find(|l| l.covers(path)).cloned()
    }

    /// Whether a token is that of a lock on the file.
    pub(super) fn has(&self, path: &[u8], token: &[u8]) -> bool {
        self.table().locks.iter().any(|l| l.token.as_bytes() == token && l.covers(path))
    }

    /// Whether something is locked, without one of these tokens, that a change touches: the file, what lies
    /// below it, and, where it comes or goes, the collection it is in.
    pub(super) fn hinders(&self, change: &Change, tokens: &[Vec<u8>]) -> bool {
        let Change { path, whole, of } = *change;
        let touches = |l: &Lock| {
            l.covers(path) || whole && is_below(&l.path, path) || of.is_some_and(|of| l.path == of)
        };
        let is_known = |l: &Lock| tokens.iter().any(|t| t == l.token.as_bytes());
        self.table().locks.iter().any(|l| touches(l) && !is_known(l))
    }

    /// What was there is gone, and so are its locks.
    pub(super) fn forget(&self, path: &[u8]) {
        self.table().keep(|l| l.path != path && !is_below(&l.path, path));
    }
}

/// What a request changes.
#[derive(Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) path: &'a [u8],
    /// With all that lies below it.
    pub(super) whole: bool,
    /// The collection whose member it becomes or ceases to be.
    pub(super) of: Option<&'a [u8]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone() -> Zone {
        Zone::new(64 * 1024)
    }

    fn lock(zone: &Zone, path: &str, infinite: bool) -> Result<Lock, NoLock> {
        zone.lock(path.as_bytes(), b"/".to_vec(), Vec::new(), infinite, 60_000)
    }

    #[test]
    fn a_lock_is_exclusive_with_all_below_it() {
        let zone = zone();
        let held = lock(&zone, "/a/b", true).unwrap();
        for (path, infinite, ok) in [
            ("/a/b", false, false),
            ("/a/b/c", false, false),
            ("/a", true, false),
            ("/a", false, true),
            ("/a/bc", true, true),
        ] {
            assert_eq!(lock(&zone, path, infinite).is_ok(), ok, "{path} {infinite}");
        }
        assert!(zone.unlock(b"/a/b/c/d", held.token.as_bytes()));
        assert!(!zone.unlock(b"/a/b", held.token.as_bytes()));
        assert!(lock(&zone, "/a/b/c", false).is_ok());
    }

    #[test]
    fn changes_need_the_tokens_of_what_they_touch() {
        let zone = zone();
        let token = |lock: Lock| lock.token.into_bytes();
        let dir = token(lock(&zone, "/d", false).unwrap());
        let file = token(lock(&zone, "/d/e/f", false).unwrap());
        let of = |path, whole, of| Change { path, whole, of };
        let (stays, moves) = (None, Some(&b"/d"[..]));
        let hinders = |change: Change<'_>, tokens: &[&[u8]]| {
            zone.hinders(&change, &tokens.iter().map(|t| t.to_vec()).collect::<Vec<_>>())
        };
        assert!(!hinders(of(b"/d/e", false, stays), &[]));
        assert!(hinders(of(b"/d/e", false, moves), &[]));
        assert!(hinders(of(b"/d/e", true, moves), &[&dir]));
        assert!(!hinders(of(b"/d/e", true, moves), &[&dir, &file]));
        zone.forget(b"/d");
        assert!(!hinders(of(b"/d/e/f", true, Some(b"/d/e")), &[]));
    }

    #[test]
    fn a_zone_has_an_end_and_gets_its_room_back() {
        let zone = zone();
        let made = (0..10_000).map_while(|i| lock(&zone, &format!("/{i}"), false).ok()).count();
        assert!((100..1000).contains(&made), "{made}");
        assert_eq!(lock(&zone, "/x", false), Err(NoLock::Full));
        zone.forget(b"/1");
        assert!(lock(&zone, "/x", false).is_ok());
    }
}
