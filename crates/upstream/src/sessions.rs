//! Sessions with servers that are kept for being resumed, as rustls asks for them: by the server's
//! name, which may come from clients, with the chain that the server has shown and the ticket that
//! it has given, both of which may be long. What they take is counted, for a configuration and for
//! the process; names that were not asked for longest make room.
//!
//! rustls tells no size. The chain's is noted when it is verified, before the first ticket can
//! come. The ticket's is that of the session's description, written to nowhere, up to the field
//! behind the ticket: more than it takes, and never less.

use std::collections::VecDeque;
use std::fmt::{self, Debug, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_base::lru::Lru;
use weir_tls::rustls::client::{
    ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use weir_tls::rustls::pki_types::{CertificateDer, ServerName};
use weir_tls::rustls::NamedGroup;

/// Of one configuration: some forty servers with usual chains and all their tickets.
const MAX_BYTES: usize = 1024 * 1024;
/// Of the process. At its end each configuration makes room among its own.
const ALL_MAX_BYTES: usize = 32 * 1024 * 1024;
/// TLS 1.3 uses each once.
const TICKETS_MAX: usize = 8;
/// What a name or a session takes besides its text, its chain and its ticket.
const ENTRY_BYTES: usize = 512;
/// Behind the ticket in a session's description.
const BEHIND_TICKET: &str = "epoch";

static ALL_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Kept<T> {
    session: T,
    bytes: usize,
}

#[derive(Default)]
struct Server {
    group: Option<NamedGroup>,
    /// Of the longest chain that it has shown.
    chain_bytes: usize,
    tls12: Option<Kept<Tls12ClientSessionValue>>,
    tls13: VecDeque<Kept<Tls13ClientSessionValue>>,
}

impl Server {
    fn bytes(&self) -> usize {
        let tls12 = self.tls12.as_ref().map_or(0, |s| s.bytes);
        tls12 + self.tls13.iter().map(|s| s.bytes).sum::<usize>()
    }
}

#[derive(Default)]
struct Servers {
    by_name: Lru<Server>,
    bytes: usize,
}

/// The sessions of one configuration.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Servers>);

impl Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

/// Counts text up to a word.
struct Count(usize);

impl Write for Count {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text == BEHIND_TICKET {
            return Err(fmt::Error);
        }
        self.0 += text.len();
        Ok(())
    }
}

/// At least what a session's ticket takes.
fn ticket_bytes(session: &impl Debug) -> usize {
    let mut count = Count(0);
    // An error is that all has been counted.
    let _ = write!(count, "{session:?}");
    count.0
}

impl Servers {
    fn spend(&mut self, bytes: usize) {
        self.bytes += bytes;
        ALL_BYTES.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        ALL_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn fits(&self, bytes: usize) -> bool {
        let all = ALL_BYTES.load(Ordering::Relaxed);
        self.bytes + bytes <= MAX_BYTES && all.saturating_add(bytes) <= ALL_MAX_BYTES
    }

    /// Makes room; `false` when there is none to be made.
    fn make_room(&mut self, bytes: usize) -> bool {
        while !self.fits(bytes) {
            let Some(freed) = self.by_name.oldest().map(|(_, server)| server.bytes()) else {
                return false;
            };
            let name = self.by_name.remove_oldest().unwrap_or(0);
            self.give_back(freed + name_bytes(name));
        }
        true
    }

    /// A server that is known.
    fn known(&mut self, name: &ServerName<'_>) -> Option<&mut Server> {
        let n = self.by_name.touch(name.to_str().as_bytes())?;
        self.by_name.get_mut(n)
    }

    fn known_or_new(&mut self, name: &ServerName<'_>) -> Option<&mut Server> {
        let text = name.to_str();
        let n = match self.by_name.touch(text.as_bytes()) {
            Some(n) => n,
            None => {
                let bytes = name_bytes(text.len());
                if !self.make_room(bytes) {
                    return None;
                }
                self.spend(bytes);
                self.by_name.insert(text.as_bytes(), Server::default())
            }
        };
        self.by_name.get_mut(n)
    }

    /// Keeps a session of a server whose chain is known, unless there is no room.
    fn keep<T: Debug>(
        &mut self,
        name: &ServerName<'_>,
        session: T,
        put: impl FnOnce(&mut Server, Kept<T>) -> usize,
    ) {
        // One that has made room for others shows its chain again.
        let Some(chain_bytes) = self.known(name).map(|s| s.chain_bytes).filter(|n| *n > 0) else {
            return;
        };
        let bytes = chain_bytes + ticket_bytes(&session) + ENTRY_BYTES;
        if bytes > MAX_BYTES / 4 || !self.make_room(bytes) {
            return;
        }
        // It may have been the oldest itself.
        let Some(server) = self.known(name) else { return };
        let freed = put(server, Kept { session, bytes });
        self.spend(bytes);
        self.give_back(freed);
    }
}

/// Of an entry without sessions; the table holds the name twice.
fn name_bytes(len: usize) -> usize {
    2 * len + ENTRY_BYTES
}

impl Drop for Servers {
    fn drop(&mut self) {
        ALL_BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, Servers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server has shown its chain: what it gives now belongs to that.
    pub(crate) fn shown(
        &self,
        name: &ServerName<'_>,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
    ) {
        let bytes = leaf.len() + rest.iter().map(|c| c.len() + size_of_val(c)).sum::<usize>();
        if let Some(server) = self.lock().known_or_new(name) {
            server.chain_bytes = server.chain_bytes.max(bytes);
        }
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        if let Some(server) = self.lock().known_or_new(&name) {
            server.group = Some(group);
        }
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().known(name)?.group
    }

    fn set_tls12_session(&self, name: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.lock().keep(&name, session, |server, kept| {
            server.tls12.replace(kept).map_or(0, |old| old.bytes)
        });
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().known(name)?.tls12.as_ref().map(|kept| kept.session.clone())
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        let mut servers = self.lock();
        if let Some(old) = servers.known(name).and_then(|server| server.tls12.take()) {
            servers.give_back(old.bytes);
        }
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, session: Tls13ClientSessionValue) {
        self.lock().keep(&name, session, |server, kept| {
            let is_full = server.tls13.len() >= TICKETS_MAX;
            let oldest = if is_full { server.tls13.pop_front() } else { None };
            server.tls13.push_back(kept);
            oldest.map_or(0, |old| old.bytes)
        });
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut servers = self.lock();
        let kept = servers.known(name)?.tls13.pop_back()?;
        servers.give_back(kept.bytes);
        Some(kept.session)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::tls::AnyServer;
    use std::sync::Arc;
    use weir_tls::rustls::client::Resumption;
    use weir_tls::rustls::crypto::ring::default_provider;
    use weir_tls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use weir_tls::rustls::server::{NoServerSessionStorage, ProducesTickets};
    use weir_tls::rustls::{
        ClientConfig, ClientConnection, ServerConfig, ServerConnection, ALL_VERSIONS,
    };
    use weir_tls::server::algorithms;

    /// Tickets of this length.
    #[derive(Debug)]
    struct Long(usize);

    impl ProducesTickets for Long {
        fn enabled(&self) -> bool {
            true
        }

        fn lifetime(&self) -> u32 {
            600
        }

        fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
            Some(vec![7; self.0])
        }

        fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
            None
        }
    }

    /// Handshakes with servers of these names; what is kept of them.
    fn kept(version: usize, ticket_bytes: usize, names: usize) -> Arc<Sessions> {
        let own = rcgen::generate_simple_self_signed(["a".to_string()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = Arc::new(default_provider());
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[ALL_VERSIONS[version]])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        server.ticketer = Arc::new(Long(ticket_bytes));
        server.session_storage = Arc::new(NoServerSessionStorage {});
        let server = Arc::new(server);
        let sessions = Arc::new(Sessions::default());
        let any = AnyServer { algorithms: algorithms(), sessions: Some(Arc::clone(&sessions)) };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(ALL_VERSIONS)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(any))
            .with_no_client_auth();
        config.resumption = Resumption::store(Arc::<Sessions>::clone(&sessions));
        let config = Arc::new(config);
        for n in 0..names {
            shake(&config, &server, ServerName::try_from(format!("n{n}.test")).unwrap());
        }
        sessions
    }

    fn shake(config: &Arc<ClientConfig>, server: &Arc<ServerConfig>, name: ServerName<'static>) {
        let mut client = ClientConnection::new(Arc::clone(config), name).unwrap();
        let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
        let mut wire = Vec::new();
        while client.wants_write() || server.wants_write() {
            wire.clear();
            client.write_tls(&mut wire).unwrap();
            let mut rest = &wire[..];
            while !rest.is_empty() {
                server.read_tls(&mut rest).unwrap();
                server.process_new_packets().unwrap();
            }
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            let mut rest = &wire[..];
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets().unwrap();
            }
        }
    }

    fn counted(sessions: &Sessions) -> usize {
        sessions.lock().bytes
    }

    #[test]
    fn tickets_count_with_all_their_bytes_and_the_oldest_names_go_first() {
        // The versions in rustls's order.
        for (version, tickets) in [(0, 2), (1, 1)] {
            assert_eq!(ALL_VERSIONS[0].version, weir_tls::rustls::ProtocolVersion::TLSv1_3);
            let (small, large) = (kept(version, 100, 1), kept(version, 20_000, 1));
            let more = counted(&large) - counted(&small);
            assert!((19_900 * tickets..100_000 * tickets).contains(&more), "{version}: {more}");
            assert!(counted(&small) < 4000 * tickets, "{version}: {}", counted(&small));
            let many = kept(version, 20_000, 100);
            assert!(counted(&many) <= MAX_BYTES, "{version}: {}", counted(&many));
            let knows = |n: usize| {
                let name = ServerName::try_from(format!("n{n}.test")).unwrap();
                let of_13 = many.take_tls13_ticket(&name).is_some();
                of_13 || many.tls12_session(&name).is_some()
            };
            assert!(knows(99) && knows(95) && !knows(0), "{version}");
            (0..100).for_each(|n| {
                while version == 0 && knows(n) {}
                many.remove_tls12_session(&ServerName::try_from(format!("n{n}.test")).unwrap());
            });
            assert!(counted(&many) <= 100 * name_bytes(20), "{version}: {}", counted(&many));
        }
    }
}
