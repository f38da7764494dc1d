//! `ssl_ocsp_cache`: what responders said of clients' certificates, for all workers, until the
//! answers run out. It outlives a reload.

use sha1::{Digest, Sha1};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use weir_tls::ocsp::{Answer, Status};
use weir_tls::x509::Cert;

/// What an entry takes of a zone: nginx's node with its key, in a slab's slot.
const ENTRY_BYTES: u64 = 256;
/// An answer without an end is kept for so long.
const ENDLESS_SECS: i64 = 3600;
/// A longer serial number is against RFC 5280, and is asked about each time.
const SERIAL_MAX_BYTES: usize = 21;

/// Issuer's name and key, and the number the issuer gave.
pub type Key = Vec<u8>;

#[derive(Default)]
struct Kept {
    answers: HashMap<Key, (Status, i64)>,
    order: VecDeque<Key>,
}

pub struct Cache {
    most: usize,
    kept: Mutex<Kept>,
}

impl Cache {
    pub fn new(bytes: u64) -> Cache {
        let most = usize::try_from(bytes / ENTRY_BYTES).unwrap_or(usize::MAX);
        Cache { most: most.max(1), kept: Mutex::default() }
    }

    /// The one of a name and size: that in use, when there is one.
    pub fn named(name: &[u8], bytes: u64) -> Arc<Cache> {
        type Named = HashMap<(Vec<u8>, u64), Weak<Cache>>;
        static CACHES: OnceLock<Mutex<Named>> = OnceLock::new();
        let caches = CACHES.get_or_init(Mutex::default);
        let mut caches = caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|_, c| c.strong_count() > 0);
        let key = (name.to_vec(), bytes);
        if let Some(cache) = caches.get(&key).and_then(Weak::upgrade) {
            return cache;
        }
        let cache = Arc::new(Cache::new(bytes));
        caches.insert(key, Arc::downgrade(&cache));
        cache
    }

    pub fn key(cert: &Cert<'_>, issuer: &Cert<'_>) -> Option<Key> {
        let mut key = Sha1::digest(issuer.subject).to_vec();
        key.extend_from_slice(&Sha1::digest(issuer.spki));
        key.extend_from_slice(cert.serial);
        (cert.serial.len() <= SERIAL_MAX_BYTES).then_some(key)
    }

    pub fn get(&self, key: &Key, now: i64) -> Option<Status> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // What has run out is replaced by the answer that is asked for now.
        kept.answers.get(key).filter(|(_, until)| *until > now).map(|(status, _)| *status)
    }

    pub fn put(&self, key: Key, answer: &Answer, now: i64) {
        let until = answer.next_update.unwrap_or(now + ENDLESS_SECS);
        if until < now {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.answers.insert(key.clone(), (answer.status, until)).is_some() {
            return;
        }
        kept.order.push_back(key);
        while kept.order.len() > self.most {
            let oldest = kept.order.pop_front();
            oldest.and_then(|key| kept.answers.remove(&key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_run_out_and_give_way() {
        let cache = Cache::new(2 * ENTRY_BYTES);
        let said = |status, next_update| Answer { status, next_update };
        cache.put(vec![1], &said(Status::Good, Some(100)), 50);
        assert_eq!(cache.get(&vec![1], 99), Some(Status::Good));
        assert_eq!(cache.get(&vec![1], 100), None);
        cache.put(vec![1], &said(Status::Revoked, None), 100);
        assert_eq!(cache.get(&vec![1], 3699), Some(Status::Revoked));
        assert_eq!(cache.get(&vec![1], 3700), None);
        cache.put(vec![2], &said(Status::Good, Some(40)), 50);
        assert_eq!(cache.get(&vec![2], 30), None, "too late already");
        cache.put(vec![2], &said(Status::Good, None), 50);
        cache.put(vec![3], &said(Status::Good, None), 50);
        let at = |n| cache.get(&vec![n], 60).is_some();
        assert_eq!([at(1), at(2), at(3)], [false, true, true], "the oldest has gone");
    }
}
