//! A certificate with the fresh answer of its OCSP responder (RFC 6066, section 8), fetched by
//! somebody else: here is what is kept of answers and when the next is due.
//!
//! Handshakes take what is there and never wait. What is kept outlives a reload.
//!
//! Difference from nginx: one answer for all workers, where each of nginx's asks for its own.

use ring::digest::{digest, SHA256};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use weir_runtime::clock;

/// An answer is asked for again after so long, or this before it runs out.
const RENEW_SECS: i64 = 3600;
const EARLY_SECS: i64 = 300;
/// After a failure, and between two answers that run out soon.
const PAUSE_SECS: i64 = 300;

/// Begins to fetch an answer; it ends in [`Staple::answered`] or [`Staple::failed`].
pub type Fetch = Arc<dyn Fn(Arc<Staple>) + Send + Sync>;

#[derive(Default)]
struct Kept {
    /// The pair with the answer, and until when that is good.
    stapled: Option<(Arc<CertifiedKey>, i64)>,
    due: i64,
    loading: bool,
    fetch: Option<Fetch>,
}

pub struct Staple {
    plain: Arc<CertifiedKey>,
    kept: Mutex<Kept>,
}

impl std::fmt::Debug for Staple {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staple").finish_non_exhaustive()
    }
}

impl Staple {
    pub fn new(plain: Arc<CertifiedKey>) -> Staple {
        Staple { plain, kept: Mutex::default() }
    }

    /// The one of this certificate that is in use already, if it is asked about in the same way.
    pub fn named(plain: &Arc<CertifiedKey>, how: &[u8]) -> Arc<Staple> {
        static ALL: OnceLock<Mutex<HashMap<[u8; 32], Weak<Staple>>>> = OnceLock::new();
        let mut all =
            ALL.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, s| s.strong_count() > 0);
        let mut name: Vec<u8> = plain.cert.iter().flat_map(|c| c.iter().copied()).collect();
        name.extend_from_slice(how);
        let name: [u8; 32] = digest(&SHA256, &name).as_ref().try_into().unwrap_or([0; 32]);
        if let Some(staple) = all.get(&name).and_then(Weak::upgrade) {
            return staple;
        }
        let staple = Arc::new(Staple::new(Arc::clone(plain)));
        all.insert(name, Arc::downgrade(&staple));
        staple
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How answers are fetched from now on; until the first call none is.
    pub fn fetch_by(&self, fetch: Fetch) {
        self.lock().fetch = Some(fetch);
    }

    /// The pair for a handshake; where an answer is due, it begins to be fetched.
    pub fn pair(self: &Arc<Self>) -> Arc<CertifiedKey> {
        self.pair_at(clock::wall_secs())
    }

    fn pair_at(self: &Arc<Self>, now: i64) -> Arc<CertifiedKey> {
        let mut kept = self.lock();
        let pair = match &kept.stapled {
            Some((pair, until)) if *until >= now => Arc::clone(pair),
            _ => Arc::clone(&self.plain),
        };
        if !kept.loading && kept.due < now {
            if let Some(fetch) = kept.fetch.clone() {
                kept.loading = true;
                drop(kept);
                fetch(Arc::clone(self));
            }
        }
        pair
    }

    pub fn answered(&self, answer: Vec<u8>, next_update: Option<i64>) {
        self.answered_at(answer, next_update, clock::wall_secs());
    }

    fn answered_at(&self, answer: Vec<u8>, next_update: Option<i64>, now: i64) {
        let mut pair = CertifiedKey::clone(&self.plain);
        pair.ocsp = Some(answer);
        let until = next_update.unwrap_or(i64::MAX);
        let mut kept = self.lock();
        kept.stapled = Some((Arc::new(pair), until));
        kept.due = (until - EARLY_SECS).min(now + RENEW_SECS).max(now + PAUSE_SECS);
        kept.loading = false;
    }

    /// No answer could be had: what is kept is used as long as it is good.
    pub fn failed(&self) {
        self.failed_at(clock::wall_secs());
    }

    fn failed_at(&self, now: i64) {
        let mut kept = self.lock();
        kept.due = now + PAUSE_SECS;
        kept.loading = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::PrivateKeyDer;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn pair() -> Arc<CertifiedKey> {
        let made = rcgen::generate_simple_self_signed(vec!["a".to_string()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        Arc::new(crate::server::certified(vec![made.cert.der().clone()], key).unwrap())
    }

    #[test]
    fn answers_are_renewed_and_run_out() {
        let staple = Arc::new(Staple::new(pair()));
        let asked = Arc::new(AtomicUsize::new(0));
        assert!(staple.pair_at(100).ocsp.is_none(), "nobody fetches yet");
        let count = Arc::clone(&asked);
        staple.fetch_by(Arc::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let at = |now| {
            let has = staple.pair_at(now).ocsp.is_some();
            (has, asked.load(Ordering::Relaxed))
        };
        assert_eq!((at(100), at(101)), ((false, 1), (false, 1)), "asked once at a time");
        staple.failed_at(101);
        assert_eq!((at(401), at(402)), ((false, 1), (false, 2)), "five minutes after a failure");
        staple.answered_at(vec![1], None, 402);
        assert_eq!((at(4002), at(4003)), ((true, 2), (true, 3)), "hourly");
        staple.answered_at(vec![1], Some(5000), 4003);
        assert_eq!((at(4700), at(4701)), ((true, 3), (true, 4)), "before it runs out");
        staple.failed_at(4701);
        assert_eq!((at(5000), at(5001)), ((true, 4), (false, 4)), "not longer than it is good");
    }

    #[test]
    fn what_is_in_use_is_found_by_name() {
        let pair = pair();
        let one = Staple::named(&pair, b"a");
        assert!(Arc::ptr_eq(&one, &Staple::named(&pair, b"a")));
        assert!(!Arc::ptr_eq(&one, &Staple::named(&pair, b"b")));
    }
}
