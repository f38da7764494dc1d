//! Sessions kept by the server. Every byte of one is counted, the certificates in it too, and the
//! oldest make room for the newest.

use super::{now_secs, TicketKeys, SESSION_MAX_BYTES};
use rustls::server::StoresServerSessions;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// What the tables and the allocator take for a session besides its own bytes.
const ENTRY_BYTES: usize = 200;
/// The smallest zone still has room for a few.
const ZONE_MIN_BYTES: usize = 8 * 1024;

#[derive(Debug)]
struct Session {
    until_secs: u64,
    /// Its place in the order of coming.
    number: u64,
    value: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Kept {
    sessions: HashMap<Arc<[u8]>, Session>,
    order: BTreeMap<u64, Arc<[u8]>>,
    last: u64,
    bytes: usize,
    /// How many there are, by the power of two that has room for one.
    sizes: [u64; SIZES],
}

/// Powers of two up to the largest session.
const SIZES: usize = 16;

fn size(cost: usize) -> usize {
    (cost.next_power_of_two().ilog2() as usize).min(SIZES - 1)
}

fn cost(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + ENTRY_BYTES
}

impl Kept {
    fn remove(&mut self, key: &[u8]) -> Option<Session> {
        let session = self.sessions.remove(key)?;
        self.order.remove(&session.number);
        let cost = cost(key, &session.value);
        self.bytes -= cost;
        self.sizes[size(cost)] -= 1;
        Some(session)
    }

    fn put(&mut self, key: Vec<u8>, until_secs: u64, value: &[u8], most: usize) -> bool {
        let cost = cost(&key, value);
        if value.len() > SESSION_MAX_BYTES || cost > most {
            return false;
        }
        self.remove(&key);
        while self.bytes + cost > most {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.remove(&oldest);
        }
        self.last += 1;
        self.bytes += cost;
        self.sizes[size(cost)] += 1;
        let key: Arc<[u8]> = key.into();
        self.order.insert(self.last, Arc::clone(&key));
        self.sessions.insert(key, Session { until_secs, number: self.last, value: value.into() });
        true
    }
}

/// Sessions shared by the servers that name the zone.
#[derive(Debug)]
pub struct Zone {
    max_bytes: usize,
    kept: Mutex<Kept>,
    /// Of the tickets of servers that have no key file.
    keys: Arc<TicketKeys>,
}

impl Zone {
    pub fn new(bytes: u64) -> Zone {
        let max_bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(ZONE_MIN_BYTES);
        Zone { max_bytes, kept: Mutex::default(), keys: Arc::default() }
    }

    /// The zone of a name and size: the one that is in use, when there is one.
    pub fn named(name: &[u8], bytes: u64) -> Arc<Zone> {
        type Named = HashMap<(Vec<u8>, u64), Weak<Zone>>;
        static ZONES: OnceLock<Mutex<Named>> = OnceLock::new();
        let zones = ZONES.get_or_init(Mutex::default);
        let mut zones = zones.lock().unwrap_or_else(PoisonError::into_inner);
        zones.retain(|_, z| z.strong_count() > 0);
        let key = (name.to_vec(), bytes);
        if let Some(zone) = zones.get(&key).and_then(Weak::upgrade) {
            return zone;
        }
        let zone = Arc::new(Zone::new(bytes));
        zones.insert(key, Arc::downgrade(&zone));
        zone
    }

    /// Ticket keys that live as long as the zone.
    pub fn keys(&self) -> Arc<TicketKeys> {
        Arc::clone(&self.keys)
    }

    /// How many sessions there are for which so many bytes are enough, and half of them are not.
    pub fn sizes(&self) -> impl Iterator<Item = (usize, u64)> {
        let sizes = self.lock().sizes;
        sizes.into_iter().enumerate().map(|(log2, n)| (1 << log2, n)).filter(|(_, n)| *n > 0)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One server's view of a zone: sessions of servers with other certificates are not its own.
#[derive(Debug)]
pub struct Store {
    pub zone: Arc<Zone>,
    pub context: [u8; 32],
    pub timeout_secs: u64,
}

impl Store {
    fn key(&self, id: &[u8]) -> Vec<u8> {
        [&self.context[..], id].concat()
    }
}

impl StoresServerSessions for Store {
    fn put(&self, id: Vec<u8>, value: Vec<u8>) -> bool {
        let until_secs = now_secs() + self.timeout_secs;
        self.zone.lock().put(self.key(&id), until_secs, &value, self.zone.max_bytes)
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        let key = self.key(id);
        let mut kept = self.zone.lock();
        let session = kept.sessions.get(&key[..])?;
        if session.until_secs < now_secs() {
            kept.remove(&key);
            return None;
        }
        Some(session.value.to_vec())
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        let session = self.zone.lock().remove(&self.key(id))?;
        (session.until_secs >= now_secs()).then(|| session.value.into())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(bytes: u64) -> Store {
        Store { zone: Arc::new(Zone::new(bytes)), context: [0; 32], timeout_secs: 10 }
    }

    fn counted(store: &Store) -> usize {
        let kept = store.zone.lock();
        assert_eq!(kept.order.len(), kept.sessions.len());
        kept.sessions.iter().map(|(k, s)| cost(k, &s.value)).sum()
    }

    #[test]
    fn a_zone_is_found_again_by_name_and_size() {
        let zone = Zone::named(b"a", 32768);
        assert!(Arc::ptr_eq(&zone, &Zone::named(b"a", 32768)));
        assert!(!Arc::ptr_eq(&zone, &Zone::named(b"a", 65536)));
    }

    #[test]
    fn every_byte_counts_and_the_oldest_go_first() {
        let store = store(64 * 1024);
        for n in 0..250u8 {
            assert!(store.put(vec![n], vec![n; 100 * (1 + usize::from(n) % 40)]));
            let bytes = counted(&store);
            assert_eq!(bytes, store.zone.lock().bytes);
            let sessions = store.zone.lock().sessions.len() as u64;
            assert_eq!(store.zone.sizes().map(|(_, n)| n).sum::<u64>(), sessions);
            assert!(bytes <= 64 * 1024, "{bytes}");
        }
        assert!(store.get(&[0]).is_none());
        assert_eq!(store.take(&[249]), Some(vec![249; 1000]));
        assert!(store.get(&[249]).is_none());
        assert!(store.put(vec![248], vec![1]));
        assert_eq!(store.get(&[248]), Some(vec![1]));
        assert_eq!(counted(&store), store.zone.lock().bytes);
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let small = store(0);
        assert!(!small.put(vec![1], vec![0; ZONE_MIN_BYTES]));
        let store = store(1 << 20);
        assert!(!store.put(vec![1], vec![0; SESSION_MAX_BYTES + 1]));
        assert!(store.put(vec![1], vec![0; SESSION_MAX_BYTES]));
    }
}
