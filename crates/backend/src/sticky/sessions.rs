//! The sessions of `sticky learn`: which server a session's name stands for. Workers share them,
//! and they live on over a reload. Only a digest of the name is kept, so that entries are alike in
//! size. Pure: the caller brings the time.

use md5::{Digest, Md5};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use weir_base::lru::Lru;
use weir_core::zones;

/// nginx's node: two tree nodes, the digest, the time and the server.
pub(super) const NODE_BYTES: usize = 144;

struct Session {
    sid: Box<[u8]>,
    last_ms: u64,
}

pub(super) struct Sessions {
    pub zone: Vec<u8>,
    /// The upstream whose sessions these are.
    pub upstream: Vec<u8>,
    most: u64,
    pub size_bytes: u64,
    /// A reload may change it.
    timeout_ms: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    sessions: Lru<Session>,
    len: u64,
}

impl Table {
    fn remove_oldest(&mut self) {
        if self.sessions.remove_oldest().is_some() {
            self.len -= 1;
        }
    }
}

impl Sessions {
    pub(super) fn new(zone: &[u8], upstream: &[u8], size_bytes: u64, timeout_ms: u64) -> Sessions {
        Sessions {
            zone: zone.to_vec(),
            upstream: upstream.to_vec(),
            most: (zones::usable_bytes(size_bytes) / zones::chunk_bytes(NODE_BYTES)).max(1),
            size_bytes,
            timeout_ms: AtomicU64::new(timeout_ms),
            table: Mutex::default(),
        }
    }

    /// How many there are, those that are too old and not yet forgotten among them.
    pub(super) fn len(&self) -> u64 {
        self.table.lock().unwrap_or_else(|e| e.into_inner()).len
    }

    pub(super) fn set_timeout(&self, timeout_ms: u64) {
        self.timeout_ms.store(timeout_ms, Ordering::Relaxed);
    }

    /// Forgets what is too old, and gives the rest.
    fn table(&self, now_ms: u64) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock().unwrap_or_else(|e| e.into_inner());
        let timeout_ms = self.timeout_ms.load(Ordering::Relaxed);
        let old = |s: &Session| s.last_ms + timeout_ms <= now_ms;
        while table.sessions.oldest().is_some_and(|(_, s)| old(s)) {
            table.remove_oldest();
        }
        table
    }

    /// The session's server; empty for none. Looking does not make it younger.
    pub(super) fn find(&self, id: &[u8], now_ms: u64) -> Vec<u8> {
        let table = self.table(now_ms);
        table.sessions.peek(&Md5::digest(id)).map_or(Vec::new(), |s| s.sid.to_vec())
    }

    /// The session is that server's from now on; answers whether another had to go for it.
    pub(super) fn keep(&self, id: &[u8], sid: &[u8], create: bool, now_ms: u64) -> bool {
        let key = Md5::digest(id);
        let mut table = self.table(now_ms);
        let known = table.sessions.touch(&key);
        if let Some(session) = known.and_then(|n| table.sessions.get_mut(n)) {
            session.last_ms = now_ms;
            if *session.sid != *sid {
                session.sid = sid.into();
            }
            return false;
        }
        if !create {
            return false;
        }
        let full = table.len >= self.most;
        if full {
            table.remove_oldest();
        }
        table.sessions.insert(&key, Session { sid: sid.into(), last_ms: now_ms });
        table.len += 1;
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_kept_moved_and_forgotten() {
        let all = Sessions::new(b"z", b"u", 1 << 20, 1000);
        all.keep(b"a", b"1", false, 10);
        assert_eq!(all.find(b"a", 10), b"");
        assert!(!all.keep(b"a", b"1", true, 10));
        assert_eq!(all.find(b"a", 900), b"1");
        all.keep(b"a", b"2", false, 900);
        assert_eq!(all.find(b"a", 1899), b"2");
        assert_eq!(all.find(b"a", 1900), b"");
    }

    #[test]
    fn the_oldest_goes_when_the_zone_is_full() {
        let all = Sessions::new(b"z", b"u", 32 * 1024, 1000);
        let most = u32::try_from(all.most).unwrap();
        assert_eq!((0..most).filter(|n| all.keep(&n.to_be_bytes(), b"1", true, 1)).count(), 0);
        assert!(all.keep(b"new", b"2", true, 2));
        assert_eq!(all.find(&0u32.to_be_bytes(), 2), b"");
        assert_eq!(all.find(&1u32.to_be_bytes(), 2), b"1");
        assert_eq!(all.find(b"new", 2), b"2");
    }
}
