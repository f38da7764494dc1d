//! A session with a server that whoever has begun it keeps, to go on with it later: one object for each handshake,
//! and no names.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_tls::rustls::client::{
    ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use weir_tls::rustls::pki_types::ServerName;
use weir_tls::rustls::NamedGroup;

/// TLS 1.3 uses each once.
const TICKETS_MAX: usize = 4;

#[derive(Default)]
struct Kept {
    tls12: Option<Tls12ClientSessionValue>,
    tls13: VecDeque<Tls13ClientSessionValue>,
}

/// What a handshake may be gone on with, and what it goes on with itself.
#[derive(Default)]
pub struct HandedSession {
    /// While the handshake lasts.
    earlier: Mutex<Option<Arc<HandedSession>>>,
    kept: Mutex<Kept>,
}

impl HandedSession {
    /// Of a handshake that goes on with an earlier session, if there is one.
    pub fn new(earlier: Option<Arc<HandedSession>>) -> Arc<HandedSession> {
        Arc::new(HandedSession { earlier: Mutex::new(earlier), kept: Mutex::default() })
    }

    /// The handshake is over: what it began with is let go of, but for what it has brought nothing in place of.
    pub fn end(&self) {
        let earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(earlier) = earlier else { return };
        let mut kept = self.lock();
        if kept.tls12.is_none() && kept.tls13.is_empty() {
            kept.tls12 = earlier.lock().tls12.clone();
        }
    }

    fn earlier(&self) -> Option<Arc<HandedSession>> {
        let earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        earlier.as_ref().map(Arc::clone)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for HandedSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandedSession")
    }
}

impl ClientSessionStore for HandedSession {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.lock().tls12 = Some(session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let earlier = self.earlier()?;
        let found = earlier.lock().tls12.clone();
        found
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        if let Some(earlier) = self.earlier() {
            earlier.lock().tls12 = None;
        }
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, session: Tls13ClientSessionValue) {
        let mut kept = self.lock();
        if kept.tls13.len() == TICKETS_MAX {
            kept.tls13.pop_front();
        }
        kept.tls13.push_back(session);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let earlier = self.earlier()?;
        let found = earlier.lock().tls13.pop_back();
        found
    }
}
