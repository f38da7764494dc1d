//! Sessions that clients may resume: kept in a zone that all workers share and that lives on over
//! a reload, or sealed into tickets (RFC 5077; RFC 8446, section 4.6.1).
//!
//! Difference from nginx: tickets are sealed with an AEAD, so those of nginx's own making with the
//! same key file are not read, and the other way round.

use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey, AES_256_GCM, NONCE_LEN};
use ring::digest::{digest, SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use weir_runtime::clock;

mod handed;
mod zone;

pub use handed::{Handed, Kept};
pub use zone::{Store, Zone};

/// A larger session is not kept, nor sealed: in it is the chain that a client has shown. (nginx
/// keeps sessions up to 4k, with the client's own certificate alone.)
const SESSION_MAX_BYTES: usize = 16 * 1024;
const NAME_BYTES: usize = 16;
/// What is sealed is filled up to a multiple of this.
const PAD_BYTES: usize = 128;

fn now_secs() -> u64 {
    clock::wall_secs() as u64
}

struct TicketKey {
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
}

impl TicketKey {
    fn new(name: [u8; NAME_BYTES], material: &[u8]) -> Option<TicketKey> {
        let key = UnboundKey::new(&AES_256_GCM, digest(&SHA256, material).as_ref()).ok()?;
        Some(TicketKey { name, key: LessSafeKey::new(key) })
    }
}

/// Keys that tickets are sealed with: the first seals, all open. Without key files they are made
/// here, and a new one takes the place of the last when that has been in use for a session's life.
#[derive(Default)]
pub struct TicketKeys {
    fixed: Vec<TicketKey>,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    at_secs: u64,
    keys: VecDeque<Arc<TicketKey>>,
}

/// Keys that are made here and can still open: the one in use and the one before.
const MADE_KEYS: usize = 2;

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ticket keys", self.fixed.len())
    }
}

fn random_key() -> Option<TicketKey> {
    let (mut name, mut material) = ([0; NAME_BYTES], [0; 32]);
    let random = SystemRandom::new();
    random.fill(&mut name).ok()?;
    random.fill(&mut material).ok()?;
    TicketKey::new(name, &material)
}

impl TicketKeys {
    /// Keys from the contents of key files, each 48 or 80 bytes; an error is a wrong length's place.
    pub fn of_files<'a>(files: impl IntoIterator<Item = &'a [u8]>) -> Result<TicketKeys, usize> {
        let read = |(i, text): (usize, &[u8])| {
            let name = text.get(..NAME_BYTES).and_then(|n| n.try_into().ok()).ok_or(i)?;
            match text.len() {
                48 | 80 => TicketKey::new(name, &text[NAME_BYTES..]).ok_or(i),
                _ => Err(i),
            }
        };
        let fixed = files.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(TicketKeys { fixed, made: Mutex::default() })
    }

    /// Runs `f` with the key that seals.
    fn with_first<T>(&self, life_secs: u64, f: impl FnOnce(&TicketKey) -> Option<T>) -> Option<T> {
        if let Some(key) = self.fixed.first() {
            return f(key);
        }
        let now = now_secs();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.keys.is_empty() || now.saturating_sub(made.at_secs) >= life_secs {
            made.keys.push_front(Arc::new(random_key()?));
            made.keys.truncate(MADE_KEYS);
            made.at_secs = now;
        }
        let key = made.keys.front().map(Arc::clone)?;
        drop(made);
        f(&key)
    }

    /// Runs `f` with the key of a name.
    fn with_named<T>(&self, name: &[u8], f: impl FnOnce(&TicketKey) -> Option<T>) -> Option<T> {
        if let Some(key) = self.fixed.iter().find(|k| k.name == name) {
            return f(key);
        }
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let key = made.keys.iter().find(|k| k.name == name).map(Arc::clone)?;
        drop(made);
        f(&key)
    }
}

/// Makes and opens the tickets of one server.
#[derive(Debug)]
pub struct Tickets {
    pub keys: Arc<TicketKeys>,
    pub context: [u8; 32],
    pub timeout_secs: u64,
}

impl Tickets {
    /// What is sealed besides: whose it is and by which key.
    fn bound(&self, key: &TicketKey) -> Vec<u8> {
        [&key.name[..], &self.context].concat()
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.timeout_secs).unwrap_or(u32::MAX)
    }

    /// Key name, nonce, and sealed: when it was made, the session's length, the session.
    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        if plain.len() > SESSION_MAX_BYTES {
            return None;
        }
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = now_secs().to_be_bytes().to_vec();
        sealed.extend_from_slice(&u32::try_from(plain.len()).ok()?.to_be_bytes());
        sealed.extend_from_slice(plain);
        // The length tells nothing of the names in it.
        sealed.resize(sealed.len().next_multiple_of(PAD_BYTES), 0);
        self.keys.with_first(self.timeout_secs.max(1), |key| {
            let bound = Aad::from(self.bound(key));
            let nonce_used = Nonce::assume_unique_for_key(nonce);
            key.key.seal_in_place_append_tag(nonce_used, bound, &mut sealed).ok()?;
            Some([&key.name[..], &nonce, &sealed].concat())
        })
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let plain = self.keys.with_named(name, |key| {
            let bound = Aad::from(self.bound(key));
            key.key.open_in_place(nonce, bound, &mut sealed).ok().map(|p| p.to_vec())
        })?;
        let (made, rest) = plain.split_at_checked(8)?;
        let (len, session) = rest.split_at_checked(4)?;
        let len = u32::from_be_bytes(len.try_into().ok()?);
        let session = session.get(..usize::try_from(len).ok()?)?;
        let made = u64::from_be_bytes(made.try_into().ok()?);
        let is_fresh = now_secs().saturating_sub(made) <= self.timeout_secs;
        is_fresh.then(|| session.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(keys: TicketKeys, context: u8) -> Tickets {
        Tickets { keys: Arc::new(keys), context: [context; 32], timeout_secs: 10 }
    }

    #[test]
    fn tickets_open_with_any_key_of_the_files_and_for_their_server_alone() {
        let (old, new) = ([1u8; 48], [2u8; 80]);
        let before = tickets(TicketKeys::of_files([&old[..]]).unwrap(), 0);
        let rotated = tickets(TicketKeys::of_files([&new[..], &old[..]]).unwrap(), 0);
        let other = tickets(TicketKeys::of_files([&new[..], &old[..]]).unwrap(), 9);
        let ticket = before.encrypt(b"session").unwrap();
        assert_eq!(rotated.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert!(before.decrypt(&rotated.encrypt(b"x").unwrap()).is_none());
        assert!(other.decrypt(&ticket).is_none());
        for end in 0..ticket.len() {
            assert!(rotated.decrypt(&ticket[..end]).is_none());
        }
        assert_eq!(TicketKeys::of_files([&old[..], &[0; 47][..]]).map(|_| ()), Err(1));
    }

    #[test]
    fn what_is_too_large_is_not_sealed() {
        let tickets = tickets(TicketKeys::default(), 0);
        let largest = vec![1; SESSION_MAX_BYTES];
        let ticket = tickets.encrypt(&largest).unwrap();
        assert_eq!(tickets.decrypt(&ticket), Some(largest));
        assert!(tickets.encrypt(&[1; SESSION_MAX_BYTES + 1]).is_none());
    }
}
