//! Servers that stand in a `state` file, over a reload: those in memory are newer than what a configuration has read of
//! the file, and requests of the configuration before may still change them. The newer upstream takes them over with
//! their numbers when it is made and once more when it begins to serve; from then on it is changed instead of the older
//! one. Both have one `SharedFile`, which knows what those in memory were read from or written to.
//!
//! What somebody else has written meanwhile, another process or by hand, counts (`core::shared_file`): it is taken over as the
//! file has it. Behind each server stands
//! its number there, as a comment, so that a number means the same server whichever process is asked.

use super::editing::{Editable, SERVERS_MAX};
use super::hosts::Named;
use super::{Current, Entry, Live, ALL};
use crate::asks::Asks;
use crate::balance::is_ring_too_large;
use crate::conf::{NamedHost, Server};
use crate::names;
use crate::peers::{Peer, PeerAddr};
use crate::rows::read_server;
use crate::state_file::servers;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, Weak};
use weir_core::shared_file::{Kept, SharedFile};
use weir_module::{ConfResult, Diagnostic, Directive};

/// The longest file that is read while the process serves: more than all servers take that there may be.
const TEXT_MAX_BYTES: u64 = 4 << 20;
/// What stands before a server's number, behind it in its line.
pub(super) const ID: &str = "; # id=";
/// What stands before the number that the next new server gets.
pub(super) const NEXT: &str = "# next=";

pub(crate) struct StateFile {
    pub file: Arc<SharedFile>,
    /// A `server` of its protocol.
    pub reads: fn(&Directive) -> ConfResult<Server>,
}

/// Its servers, and the names that some come from.
type All = (Vec<Entry>, Vec<Named>);

impl StateFile {
    /// Nothing is read.
    pub(crate) fn new<S: Asks>(path: PathBuf) -> StateFile {
        StateFile { file: SharedFile::new(path, TEXT_MAX_BYTES), reads: read_server::<S> }
    }

    fn is_at_the_place_of(&self, other: &StateFile) -> bool {
        self.file.path() == other.file.path()
    }
}

impl Live {
    /// Its servers and the next number, if they stand in the same file; otherwise the number alone, so that none means
    /// another server than before.
    pub(super) fn kept_for(&self, state: &mut StateFile) -> (Option<All>, u64) {
        let current = self.lock();
        let known = self.state.as_ref().filter(|own| own.is_at_the_place_of(state));
        let all = known.map(|own| {
            state.file = Arc::clone(&own.file);
            (current.entries.clone(), current.hosts.clone())
        });
        (all, current.next_id)
    }

    /// It begins to serve: what has changed since it was made is taken over, and what changes comes here.
    pub(super) fn succeeds(self: &Arc<Self>) {
        let Some(state) = &self.state else { return };
        let before = {
            let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
            let own = all.iter().position(|l| std::ptr::eq(l.as_ptr(), Arc::as_ptr(self)));
            let older = all.iter().take(own.unwrap_or(0)).rev().filter_map(Weak::upgrade);
            let is_it = |l: &Arc<Live>| {
                l.state.as_ref().is_some_and(|own| own.is_at_the_place_of(state))
                    && super::zone_of(&l.plan) == super::zone_of(&self.plan)
            };
            older.filter(is_it).find(|l| l.lock().successor.is_none())
        };
        let Some(before) = before else { return };
        // The older one first, here and nowhere else both.
        let mut older = before.lock();
        let mut current = self.lock();
        current.next_id = current.next_id.max(older.next_id);
        current.hosts.clone_from(&older.hosts);
        self.publish(&mut current, older.entries.clone());
        older.successor = Some(Arc::clone(self));
    }
}

impl Kept for Live {
    fn file(&self) -> Option<Arc<SharedFile>> {
        self.state.as_ref().map(|state| Arc::clone(&state.file))
    }

    fn take(&self, text: &[u8]) -> Result<(), String> {
        let Some(state) = &self.state else { return Ok(()) };
        let servers = servers(text).and_then(|all| all.iter().map(state.reads).collect());
        let servers: Vec<Server> = servers.map_err(|e: Diagnostic| e.message)?;
        self.may_have(&servers)?;
        let (numbers, next_id) = numbers(&String::from_utf8_lossy(text));
        Editable::on_newest_of(self, |newest, current| {
            current.next_id = current.next_id.max(next_id);
            let numbers = (numbers.len() == servers.len()).then_some(&numbers[..]);
            newest.take_servers(current, &servers, numbers);
        });
        Ok(())
    }

    fn text(&self) -> Vec<u8> {
        Editable::on_newest_of(self, |newest, current| newest.lines(current).into_bytes())
    }
}

impl Live {
    /// What the directive would say of them when the configuration is read.
    fn may_have(&self, servers: &[Server]) -> Result<(), String> {
        if servers.len() > SERVERS_MAX {
            return Err(format!("it has more than {SERVERS_MAX} servers"));
        }
        let method = &self.plan.method;
        for (is_there, refuses, name) in [
            (servers.iter().any(|s| s.backup), method.refuses_backup(), "backup"),
            (
                servers.iter().any(|s| s.slow_start_secs > 0),
                method.refuses_slow_start(),
                "slow_start",
            ),
        ] {
            if is_there && refuses {
                return Err(format!("balancing method does not support parameter \"{name}\""));
            }
        }
        let peers: Vec<Peer> =
            servers.iter().filter(|s| !s.backup).filter_map(fixed).map(|(peer, _)| peer).collect();
        match is_ring_too_large(method, peers.iter()) {
            true => Err("its servers have too much weight".to_string()),
            false => Ok(()),
        }
    }

    /// Puts the servers of the file in the place of those there are; by `numbers`, or else by what they are.
    fn take_servers(&self, current: &mut Current, servers: &[Server], numbers: Option<&[u64]>) {
        let (children, mut before): (Vec<Entry>, Vec<Entry>) =
            current.entries.iter().cloned().partition(|e| e.host.is_some());
        let mut hosts_before = current.hosts.clone();
        let (mut entries, mut hosts, mut named) = (Vec::new(), Vec::new(), Vec::new());
        for (at, s) in servers.iter().enumerate() {
            let wanted = numbers.map(|n| n[at]);
            if let Some((peer, backup)) = fixed(s) {
                let same = |e: &Entry| match wanted {
                    Some(id) => e.id == id,
                    None => e.peer == peer && e.backup == backup,
                };
                let known = before.iter().position(same).map(|at| before.remove(at).id);
                let id = current.number(known.or(wanted));
                entries.push(Entry { id, peer, backup, host: None });
            } else if let Some(host) = self.host_of(s) {
                let same =
                    |n: &Named| n.host.same_name(&host) && wanted.is_none_or(|id| n.id == id);
                // A number that was given when the configuration was read is not yet the file's.
                let same_name = |n: &Named| n.host.same_name(&host);
                let known = hosts_before.iter().position(same);
                let known = known.or_else(|| hosts_before.iter().position(same_name));
                let known = known.map(|at| hosts_before.remove(at));
                let until_ms = known.as_ref().map_or(0, |n| n.until_ms);
                let known = known.map(|n| n.id);
                let id = current.number(wanted.or(known));
                for e in children.iter().filter(|e| known.is_some() && e.host == known) {
                    named.push(Entry {
                        peer: host.inherited(&e.peer),
                        host: Some(id),
                        ..e.clone()
                    });
                }
                hosts.push(Named { id, host: Arc::new(host), until_ms });
            }
        }
        for mut entry in named {
            let is_taken =
                |id| entries.iter().any(|e: &Entry| e.id == id) || hosts.iter().any(|n| n.id == id);
            if is_taken(entry.id) {
                entry.id = current.number(None);
            }
            entries.push(entry);
        }
        let before = std::mem::replace(&mut current.hosts, hosts);
        let hosts = &current.hosts;
        // A number that is another name's now is asked for anew.
        let is_same = |n: &Named| hosts.iter().any(|h| h.id == n.id && h.host.same_name(&n.host));
        before.iter().filter(|n| !is_same(n)).for_each(|n| drop(current.watches.remove(&n.id)));
        self.watch(current);
        self.put(current, entries);
    }

    /// Puts these in the place of those there are.
    fn put(&self, current: &mut Current, entries: Vec<Entry>) {
        if entries == current.entries {
            return;
        }
        let before = std::mem::take(&mut current.entries);
        self.publish(current, entries.clone());
        for new in &entries {
            let old = before.iter().find(|old| old.id == new.id && old.peer != new.peer);
            if let Some(old) = old {
                current.settle(new.id, &new.peer, old.peer.addr != new.peer.addr);
            }
        }
    }
}

impl Current {
    /// That number, or the next one.
    fn number(&mut self, wanted: Option<u64>) -> u64 {
        let id = wanted.unwrap_or(self.next_id);
        self.next_id = self.next_id.max(id + 1);
        id
    }
}

/// A server that comes from no name.
fn fixed(s: &Server) -> Option<(Peer, bool)> {
    let addr = match &s.host {
        NamedHost::Ip(ip) => PeerAddr::Ip(SocketAddr::new(*ip, s.port)),
        NamedHost::Unix(path) => PeerAddr::Unix(path.clone()),
        NamedHost::Name(_) => return None,
    };
    Some((names::peer(s, addr), s.backup))
}

/// The numbers that stand in a file, and the next one: none in one that is written by hand.
fn numbers(text: &str) -> (Vec<u64>, u64) {
    let after = |line: &str, mark| line.rsplit_once(mark).and_then(|(_, n)| n.parse().ok());
    let (mut ids, mut next) = (Vec::new(), 0);
    for line in text.lines() {
        ids.extend(after(line, ID).filter(|id: &u64| *id < u64::MAX));
        next = after(line, NEXT).filter(|_| line.starts_with(NEXT)).unwrap_or(next);
    }
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() < ids.len() {
        ids.clear();
    }
    (ids, next)
}
