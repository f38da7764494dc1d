//! Names that servers come from.

use super::{Fallback, Live};
use crate::conf::{NamedHost, Server};
use crate::names;
use crate::peers::{self, Peer, PeerAddr};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::AbortHandle;
use weir_resolve::Target;

/// A name that servers come from.
#[derive(Clone, PartialEq)]
pub(crate) struct Host {
    pub name: String,
    pub service: Option<String>,
    pub port: u16,
    /// What is common to its servers.
    pub template: Peer,
    /// What `sticky` knows them by; each by its address without it.
    pub route: Vec<u8>,
    pub backup: bool,
    /// `resolve`: asked for as long as the configuration lives. Otherwise it was not found at
    /// first, and what has once been found stays.
    pub resolve: bool,
    /// `dynamic_resolve`: what becomes of its servers while nobody finds it.
    pub fallback: Option<Fallback>,
    /// It was put while the server runs: what an answer may make of it has a bound.
    pub is_put: bool,
}

/// The same in an upstream: with its number, which is one of those of servers.
#[derive(Clone)]
pub(super) struct Named {
    pub id: u64,
    pub host: Arc<Host>,
    /// When it is to be asked for.
    pub until_ms: u64,
}

/// Asking for a name, which ends when this is dropped.
pub(super) struct Watch(pub AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Host {
    pub(super) fn same_name(&self, other: &Host) -> bool {
        self.name == other.name && self.service == other.service
    }

    /// As a configuration has it.
    pub(super) fn text(&self) -> String {
        match self.service {
            Some(_) => self.name.clone(),
            None => format!("{}:{}", self.name, self.port),
        }
    }

    /// The servers an answer means, and whether each is a backup: RFC 2782's later priorities are.
    pub(super) fn servers(&self, found: &[Target]) -> Vec<(Peer, bool)> {
        let first = found.iter().map(|t| t.priority).min().unwrap_or(0);
        let wanted = found.iter().filter(|t| !self.backup || t.priority == first);
        wanted.map(|t| (self.server(t), self.backup || t.priority != first)).collect()
    }

    fn server(&self, t: &Target) -> Peer {
        let (port, server, weight) = match self.service {
            None => (self.port, self.template.server.clone(), self.template.weight),
            Some(_) => (t.port, t.name.as_bytes().into(), i64::from(t.weight)),
        };
        let weight = if self.template.weight != 1 { self.template.weight } else { weight };
        self.at(SocketAddr::new(t.ip, port), server, weight)
    }

    fn at(&self, addr: SocketAddr, server: Box<[u8]>, weight: i64) -> Peer {
        let addr = PeerAddr::Ip(addr);
        let name: Box<[u8]> = addr.text().into();
        let sid = peers::sid(&self.route, &name);
        Peer { addr, name, sid, server, weight, ..self.template.clone() }
    }

    /// A server of the same host as it was set before.
    pub(super) fn inherited(&self, old: &Peer) -> Peer {
        match (&old.addr, &self.service) {
            (PeerAddr::Ip(a), None) => {
                let addr = SocketAddr::new(a.ip(), self.port);
                self.at(addr, self.template.server.clone(), self.template.weight)
            }
            (PeerAddr::Ip(a), Some(_)) => {
                let own = self.template.weight;
                let weight = if own != 1 { own } else { old.weight };
                self.at(*a, old.server.clone(), weight)
            }
            (PeerAddr::Unix(_), _) => old.clone(),
        }
    }
}

impl Live {
    /// The name that a server of a file or of a request is, if it is one.
    pub(super) fn host_of(&self, s: &Server) -> Option<Host> {
        let NamedHost::Name(name) = &s.host else { return None };
        let host = Host { is_put: true, ..names::host(s, name) };
        match self.fallback.filter(|_| !s.resolve) {
            Some(fallback) => Some(Host { resolve: true, fallback: Some(fallback), ..host }),
            None => Some(host),
        }
    }
}
