//! Sessions that somebody else keeps: one is handed in before a handshake, and those of the handshake are handed out
//! behind it, so that whoever keeps them may wait.

use super::{now_secs, SESSION_MAX_BYTES};
use rustls::server::StoresServerSessions;
use std::sync::{Arc, Mutex, PoisonError};

/// What a session begins with when it is handed out.
const MAGIC: &[u8; 8] = b"weir-s1\n";
const CONTEXT_BYTES: usize = 32;
/// Sessions of one handshake: more tickets than one are not given out.
const SESSIONS_MAX: usize = 4;

/// A session: its number, and what it takes to go on with it.
#[derive(Clone, Debug)]
pub struct Kept {
    pub id: Vec<u8>,
    pub session: Vec<u8>,
}

/// The sessions of one handshake.
#[derive(Debug)]
pub struct Handed {
    below: Arc<dyn StoresServerSessions>,
    context: [u8; CONTEXT_BYTES],
    timeout_secs: u64,
    found: Mutex<Option<Kept>>,
    fresh: Mutex<Vec<Kept>>,
}

impl Handed {
    /// Of a server with its own store, what its sessions are bound to, and how long they last.
    pub(crate) fn new(
        below: Arc<dyn StoresServerSessions>,
        context: [u8; CONTEXT_BYTES],
        timeout_secs: u64,
    ) -> Handed {
        Handed { below, context, timeout_secs, found: Mutex::default(), fresh: Mutex::default() }
    }

    /// Hands in the session that was handed out as `text`.
    ///
    /// # Errors
    ///
    /// It is none, is too old, or is a server's with another certificate or verification.
    pub fn hand_in(&self, id: &[u8], text: &[u8]) -> Result<(), &'static str> {
        let rest = text.strip_prefix(MAGIC).ok_or("d2i_SSL_SESSION() failed")?;
        let (context, rest) = rest.split_at_checked(CONTEXT_BYTES).ok_or("session is cut off")?;
        let (until, session) = rest.split_at_checked(8).ok_or("session is cut off")?;
        let until = u64::from_be_bytes(until.try_into().unwrap_or_default());
        if context != self.context {
            return Err("session is of a server with another certificate or verification");
        }
        if until < now_secs() {
            return Err("session is too old");
        }
        let kept = Kept { id: id.to_vec(), session: session.to_vec() };
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        Ok(())
    }

    /// Those that the handshake has made, with their numbers.
    pub fn hand_out(&self) -> Vec<Kept> {
        let fresh = std::mem::take(&mut *self.fresh.lock().unwrap_or_else(PoisonError::into_inner));
        let until = now_secs().saturating_add(self.timeout_secs).to_be_bytes();
        let whole = |kept: Kept| Kept {
            session: [&MAGIC[..], &self.context, &until, &kept.session].concat(),
            id: kept.id,
        };
        fresh.into_iter().map(whole).collect()
    }

    fn find(&self, id: &[u8]) -> Option<Vec<u8>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.as_ref().filter(|kept| kept.id == id).map(|kept| kept.session.clone())
    }
}

impl StoresServerSessions for Handed {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        self.below.put(id.clone(), session.clone());
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        if fresh.len() < SESSIONS_MAX && session.len() <= SESSION_MAX_BYTES {
            fresh.push(Kept { id, session });
        }
        true
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.find(id).or_else(|| self.below.get(id))
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.find(id).or_else(|| self.below.take(id))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(context: u8) -> Handed {
        Handed::new(Arc::new(rustls::server::NoServerSessionStorage {}), [context; 32], 10)
    }

    #[test]
    fn what_was_handed_out_is_handed_in() {
        let first = handed(1);
        assert!(first.put(b"id".to_vec(), b"session".to_vec()));
        let out = first.hand_out();
        assert_eq!((out.len(), &out[0].id[..]), (1, &b"id"[..]));
        assert!(first.hand_out().is_empty());
        let next = handed(1);
        assert_eq!(next.get(b"id"), None);
        next.hand_in(b"id", &out[0].session).unwrap();
        assert_eq!(next.get(b"id").as_deref(), Some(&b"session"[..]));
        assert_eq!(next.get(b"other"), None);
        assert!(handed(2).hand_in(b"id", &out[0].session).is_err(), "another server's");
        for end in 0..MAGIC.len() + 40 {
            assert!(next.hand_in(b"id", &out[0].session[..end]).is_err());
        }
    }
}
