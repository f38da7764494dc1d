//! Servers that are put, changed and taken away while the process serves (NGINX Plus's API). An upstream with a `zone` is
//! live for that. With `state FILE` its servers stand in the file from then on; without it a reload has those of the
//! configuration again, as there.
//!
//! A name is a server of its own, which is not asked; those that it is found to be have it as their parent, and are as it is.

use super::hosts::{Host, Named};
use super::kept_over::{ID, NEXT};
use super::{Current, Entry, Live};
use crate::asks::Asks;
use crate::balance::is_ring_too_large;
use crate::conf::{lossy, NamedHost, Server, UpstreamMain};
use crate::names;
use crate::peers::{sid, Peer, PeerAddr, OFF_BY_CONF};
use crate::rows::read_server;
use crate::state_file::statements;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use weir_core::shared_file::{Kept, SharedFile};

/// More servers an upstream does not get.
pub(super) const SERVERS_MAX: usize = 1000;

/// A server of an upstream, as it is set.
#[derive(Clone, Debug)]
pub struct Set {
    /// Its number in the upstream.
    pub id: u64,
    /// Where it is; of a name, what its servers have in common, and the name.
    pub peer: Peer,
    /// It is asked when no other can be.
    pub backup: bool,
    /// What `sticky route` knows it by; empty where that is the address.
    pub route: Vec<u8>,
    /// The name it comes from, by which it is set, and the number of that.
    pub host: Option<(String, u64)>,
    /// Of a name that is asked for by a service.
    pub service: Option<String>,
}

/// What is to be different; what is `None` stays, or is as usual.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// An address or a name, and perhaps a port.
    pub server: Option<String>,
    /// By which a name is asked for.
    pub service: Option<String>,
    /// From 1.
    pub weight: Option<u32>,
    /// 0 for any number.
    pub max_conns: Option<u32>,
    /// 0 for never.
    pub max_fails: Option<u32>,
    /// Seconds.
    pub fail_timeout: Option<u64>,
    /// Seconds.
    pub slow_start: Option<u64>,
    /// For `sticky route`.
    pub route: Option<String>,
    /// Of a new one.
    pub backup: Option<bool>,
    /// It is not to be asked.
    pub down: Option<bool>,
    /// Only clients that it has already are to ask it.
    pub drain: Option<bool>,
}

/// Why nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no such upstream.
    NoUpstream,
    /// It has no `zone`.
    Static,
    /// It has no server of that number.
    NoServer,
    /// The server comes from a name, or is one that is to be another.
    Immutable,
    /// The balancing has no backups.
    NoBackup,
    /// The balancing has no `slow_start`.
    NoSlowStart,
    /// It is no address; in words.
    Address(String),
    /// A name, which nobody asks for.
    Name(String),
    /// It is no service.
    Service,
    /// The route is too long, or has what no route has.
    Route,
    /// There are as many as there may be.
    Full,
}

/// An upstream whose servers may be changed.
#[derive(Clone)]
pub struct Editable(Arc<Live>);

impl UpstreamMain {
    /// The upstream of that name, to look at its servers or to change them.
    ///
    /// # Errors
    ///
    /// There is none, or its servers do not change.
    pub fn editable(&self, name: &[u8]) -> Result<Editable, Fault> {
        let found = self.declared.iter().position(|u| u.explicit && u.name == name);
        let at = found.ok_or(Fault::NoUpstream)?;
        let live = self.groups[at].as_live().filter(|_| self.declared[at].zone.is_some());
        live.map(|live| Editable(Arc::clone(live))).ok_or(Fault::Static)
    }
}

/// What `sticky route` knows a server by, where that is not made of its address.
fn route(peer: &Peer) -> Vec<u8> {
    match &peer.sid {
        own if **own == *sid(b"", &peer.name) => Vec::new(),
        own => own.to_vec(),
    }
}

impl Current {
    /// What is remembered of a server follows how it is set now; `moved`: it has another address.
    pub(super) fn settle(&self, id: u64, peer: &Peer, moved: bool) {
        self.shape.with_zone(|state| {
            let Some(tie) = &self.shape.tie else { return };
            for backup in [false, true] {
                let at = tie.ids[usize::from(backup)].iter().position(|i| *i == id);
                if let Some(state) = at.and_then(|at| state.list(backup).get_mut(at)) {
                    state.effective_weight = peer.weight;
                    if moved {
                        // What another one has failed at is not this one's.
                        state.fails = 0;
                    }
                    state.off = match peer.down {
                        true => state.off | OFF_BY_CONF,
                        false => state.off & !OFF_BY_CONF,
                    };
                }
            }
        });
    }
}

impl Editable {
    /// Works on the newest configuration's upstream, which stays that until it is done.
    fn on_newest<T>(&self, f: impl FnOnce(&Editable, &mut Current) -> T) -> T {
        let mut newest = self.clone();
        loop {
            let live = Arc::clone(&newest.0);
            let mut current = live.lock();
            match &current.successor {
                Some(next) => newest = Editable(Arc::clone(next)),
                None => return f(&newest, &mut current),
            }
        }
    }

    /// The same from whichever is at hand.
    pub(super) fn on_newest_of<T>(live: &Live, f: impl FnOnce(&Live, &mut Current) -> T) -> T {
        let mut current = live.lock();
        match current.successor.clone() {
            None => f(live, &mut current),
            Some(next) => {
                drop(current);
                Editable(next).on_newest(|newest, current| f(&newest.0, current))
            }
        }
    }

    /// Its servers, in the order of their numbers.
    pub fn servers(&self) -> Vec<Set> {
        self.on_newest(|newest, current| newest.sets(current))
    }

    fn sets(&self, current: &Current) -> Vec<Set> {
        let addresses = current.entries.iter().map(|e| set(current, e));
        let mut all: Vec<Set> = addresses.chain(current.hosts.iter().map(set_of_name)).collect();
        all.sort_by_key(|s| s.id);
        all
    }

    /// One of them.
    ///
    /// # Errors
    ///
    /// It has none of that number.
    pub fn server(&self, id: u64) -> Result<Set, Fault> {
        self.servers().into_iter().find(|s| s.id == id).ok_or(Fault::NoServer)
    }

    /// Puts a further one.
    ///
    /// # Errors
    ///
    /// It cannot be used as it is said, or there are too many.
    pub fn add<S: Asks>(&self, change: &Change) -> Result<Set, Fault> {
        self.on_newest(|newest, current| newest.add_to::<S>(current, change))
    }

    fn add_to<S: Asks>(&self, current: &mut Current, change: &Change) -> Result<Set, Fault> {
        if current.entries.len() + current.hosts.len() >= SERVERS_MAX {
            return Err(Fault::Full);
        }
        let said = said::<S>(change)?;
        let backup = change.backup.unwrap_or(false);
        if backup && self.0.plan.method.refuses_backup() {
            return Err(Fault::NoBackup);
        }
        let id = current.next_id;
        if let Some(host) = self.0.host_of(&said) {
            let host = self.changed_host(Host { backup, ..host }, change)?;
            if !self.0.resolves {
                return Err(Fault::Name(host.name));
            }
            self.fits_with(current.entries.iter(), &host)?;
            let named = Named { id, host: Arc::new(Host { resolve: true, ..host }), until_ms: 0 };
            let set = set_of_name(&named);
            current.next_id += 1;
            current.hosts.push(named);
            self.0.watch(current);
            return Ok(set);
        }
        let addr = address(&said)?;
        let server = names::peer(&said, addr.clone()).server;
        let mut peer = Peer { sid: sid(b"", &addr.text()), ..Peer::new(addr, &server) };
        self.change_peer(&mut peer, &[], change)?;
        current.next_id += 1;
        let mut entries = current.entries.clone();
        entries.push(Entry { id, peer, backup, host: None });
        self.fits(&entries)?;
        self.0.publish(current, entries);
        let set = current.entries.iter().find(|e| e.id == id).map(|e| set(current, e));
        set.ok_or(Fault::NoServer)
    }

    /// Changes one. What is known of it stays, unless it gets another address.
    ///
    /// # Errors
    ///
    /// There is none of that number, it comes from a name, or it cannot be as it is said.
    pub fn change<S: Asks>(&self, id: u64, change: &Change) -> Result<Set, Fault> {
        self.on_newest(|newest, current| newest.change_in::<S>(current, id, change))
    }

    fn change_in<S: Asks>(
        &self,
        current: &mut Current,
        id: u64,
        change: &Change,
    ) -> Result<Set, Fault> {
        if let Some(at) = current.hosts.iter().position(|n| n.id == id) {
            return self.change_name::<S>(current, at, change);
        }
        let mut entries = current.entries.clone();
        let entry = entries.iter_mut().find(|e| e.id == id).ok_or(Fault::NoServer)?;
        if entry.host.is_some() || change.service.is_some() {
            return Err(Fault::Immutable);
        }
        let (route, before) = (route(&entry.peer), entry.peer.addr.clone());
        if change.server.is_some() {
            let said = said::<S>(change)?;
            let addr = address(&said)?;
            if addr != entry.peer.addr {
                let (name, server) = (addr.text().into(), names::peer(&said, addr.clone()).server);
                entry.peer = Peer { addr, name, server, ..entry.peer.clone() };
                entry.peer.sid = sid(&route, &entry.peer.name);
            }
        }
        self.change_peer(&mut entry.peer, &route, change)?;
        let (peer, changed) = (entry.peer.clone(), set(current, entry));
        self.fits(&entries)?;
        self.0.publish(current, entries);
        current.settle(id, &peer, peer.addr != before);
        Ok(changed)
    }

    /// Changes a name, and with it the servers that come from it.
    fn change_name<S: Asks>(
        &self,
        current: &mut Current,
        at: usize,
        change: &Change,
    ) -> Result<Set, Fault> {
        let named = current.hosts[at].clone();
        let own = &named.host;
        if change.server.is_some() || change.service.is_some() {
            let server = change.server.clone().or_else(|| Some(own.text()));
            let service = change.service.clone().or_else(|| own.service.clone());
            let said = said::<S>(&Change { server, service, ..Change::default() })?;
            let is_it = |h: Host| h.same_name(own) && h.text() == own.text();
            if !self.0.host_of(&said).is_some_and(is_it) {
                return Err(Fault::Immutable);
            }
        }
        let host = Arc::new(self.changed_host(Host::clone(own), change)?);
        let mut entries = current.entries.clone();
        for entry in entries.iter_mut().filter(|e| e.host == Some(named.id)) {
            entry.peer = host.inherited(&entry.peer);
        }
        self.fits(&entries)?;
        self.fits_with(entries.iter().filter(|e| e.host != Some(named.id)), &host)?;
        current.hosts[at].host = host;
        let set = set_of_name(&current.hosts[at]);
        self.0.publish(current, entries);
        let own = current.entries.iter().filter(|e| e.host == Some(named.id));
        own.for_each(|e| current.settle(e.id, &e.peer, false));
        Ok(set)
    }

    fn changed_host(&self, mut host: Host, change: &Change) -> Result<Host, Fault> {
        self.change_peer(&mut host.template, &host.route, change)?;
        if let Some(route) = &change.route {
            host.route = route.as_bytes().to_vec();
        }
        Ok(host)
    }

    /// Takes one away; answers those that are left. Who is asking it goes on.
    ///
    /// # Errors
    ///
    /// There is none of that number, or it comes from a name.
    pub fn remove(&self, id: u64) -> Result<Vec<Set>, Fault> {
        self.on_newest(|newest, current| {
            if current.hosts.iter().any(|n| n.id == id) {
                current.hosts.retain(|n| n.id != id);
                newest.0.watch(current);
            } else {
                let entry = current.entries.iter().find(|e| e.id == id).ok_or(Fault::NoServer)?;
                if entry.host.is_some() {
                    return Err(Fault::Immutable);
                }
            }
            let stays = |e: &&Entry| e.id != id && e.host != Some(id);
            let entries = current.entries.iter().filter(stays).cloned().collect();
            newest.0.publish(current, entries);
            Ok(newest.sets(current))
        })
    }

    /// Whether there is room for a server of a name, of which there may be none yet.
    fn fits_with<'a>(
        &self,
        entries: impl Iterator<Item = &'a Entry>,
        host: &'a Host,
    ) -> Result<(), Fault> {
        let peers = entries.filter(|e| !e.backup).map(|e| &e.peer);
        let own = Some(&host.template).filter(|_| !host.backup);
        match is_ring_too_large(&self.0.plan.method, peers.chain(own)) {
            true => Err(Fault::Full),
            false => Ok(()),
        }
    }

    fn fits(&self, entries: &[Entry]) -> Result<(), Fault> {
        let peers = entries.iter().filter(|e| !e.backup).map(|e| &e.peer);
        match is_ring_too_large(&self.0.plan.method, peers) {
            true => Err(Fault::Full),
            false => Ok(()),
        }
    }

    fn change_peer(&self, peer: &mut Peer, route: &[u8], change: &Change) -> Result<(), Fault> {
        if change.slow_start.is_some_and(|s| s > 0) && self.0.plan.method.refuses_slow_start() {
            return Err(Fault::NoSlowStart);
        }
        peer.weight = change.weight.map_or(peer.weight, i64::from);
        peer.max_conns = change.max_conns.unwrap_or(peer.max_conns);
        peer.max_fails = change.max_fails.unwrap_or(peer.max_fails);
        peer.fail_timeout_secs = change.fail_timeout.unwrap_or(peer.fail_timeout_secs);
        peer.slow_start_secs = change.slow_start.unwrap_or(peer.slow_start_secs);
        if let Some(drain) = change.drain {
            (peer.down, peer.draining) = (drain, drain);
        }
        if let Some(down) = change.down {
            // As in the configuration, the later of the two counts.
            let drains = change.drain == Some(true);
            (peer.down, peer.draining) = (down || drains, drains);
        }
        let route = change.route.as_ref().map_or(route, |r| r.as_bytes());
        if route.len() > crate::peers::SID_MAX_BYTES || !is_word(route) {
            return Err(Fault::Route);
        }
        peer.sid = sid(route, &peer.name);
        Ok(())
    }
}

impl Kept for Editable {
    fn file(&self) -> Option<Arc<SharedFile>> {
        self.on_newest(|newest, _| newest.0.file())
    }

    fn take(&self, text: &[u8]) -> Result<(), String> {
        self.0.take(text)
    }

    fn text(&self) -> Vec<u8> {
        self.0.text()
    }
}

impl Live {
    /// What the file has.
    pub(super) fn lines(&self, current: &Current) -> String {
        let mut out = String::new();
        for e in current.entries.iter().filter(|e| e.host.is_none()) {
            let route = route(&e.peer);
            let text = lossy(&e.peer.addr.text());
            line(&mut out, &text, &e.peer, &lossy(&route), e.backup, "");
            // Writing into a String cannot fail.
            let _ = writeln!(out, "{ID}{}", e.id);
        }
        for Named { id, host, .. } in &current.hosts {
            let mut more = if host.resolve { " resolve".to_string() } else { String::new() };
            if let Some(service) = &host.service {
                more += &format!(" service={service}");
            }
            line(&mut out, &host.text(), &host.template, &lossy(&host.route), host.backup, &more);
            // Writing into a String cannot fail.
            let _ = writeln!(out, "{ID}{id}");
        }
        if current.next_id > 0 {
            let _ = writeln!(out, "{NEXT}{}", current.next_id);
        }
        out
    }
}

/// A server as it stands in a file.
fn line(out: &mut String, server: &str, p: &Peer, route: &str, backup: bool, more: &str) {
    // Writing into a String cannot fail.
    let _ = write!(out, "server {server}{more}");
    for (name, value, usual) in [
        ("weight", p.weight.unsigned_abs(), 1),
        ("max_conns", p.max_conns.into(), 0),
        ("max_fails", p.max_fails.into(), 1),
    ] {
        if value != usual {
            let _ = write!(out, " {name}={value}");
        }
    }
    for (name, secs, usual) in
        [("fail_timeout", p.fail_timeout_secs, 10), ("slow_start", p.slow_start_secs, 0)]
    {
        if secs != usual {
            let _ = write!(out, " {name}={secs}s");
        }
    }
    if !route.is_empty() {
        let _ = write!(out, " route={route}");
    }
    let flags = [(backup, " backup"), (p.down && !p.draining, " down"), (p.draining, " drain")];
    flags.iter().filter(|(on, _)| *on).for_each(|(_, word)| out.push_str(word));
}

/// Whether a text stands for itself in a configuration.
fn is_word(text: &[u8]) -> bool {
    text.iter().all(|b| b.is_ascii_graphic() && !b";{}\"'\\$#".contains(b))
}

fn set(current: &Current, e: &Entry) -> Set {
    let parent = e.host.and_then(|id| current.hosts.iter().find(|n| n.id == id));
    let host = parent.map(|n| (n.host.name.clone(), n.id));
    let (peer, route) = (e.peer.clone(), route(&e.peer));
    Set { id: e.id, peer, backup: e.backup, route, host, service: None }
}

fn set_of_name(named: &Named) -> Set {
    let host = &named.host;
    let peer = Peer { name: host.text().into_bytes().into(), ..host.template.clone() };
    let (route, service) = (host.route.clone(), host.service.clone());
    Set { id: named.id, peer, backup: host.backup, route, host: None, service }
}

/// Longer names and services there are not.
const TEXT_MAX_BYTES: usize = 255;

/// A server as a request says it.
fn said<S: Asks>(change: &Change) -> Result<Server, Fault> {
    let wrong = |text: String| Fault::Address(text);
    let text = change.server.as_deref().unwrap_or_default();
    let is_one =
        |text: &str| !text.is_empty() && text.len() <= TEXT_MAX_BYTES && is_word(text.as_bytes());
    if !is_one(text) {
        return Err(wrong(format!("\"{text}\" is no address")));
    }
    let more = match change.service.as_deref() {
        None => String::new(),
        Some(service) if is_one(service) => format!(" resolve service={service}"),
        Some(_) => return Err(Fault::Service),
    };
    let directives =
        statements(format!("server {text}{more};").as_bytes()).map_err(|e| wrong(e.message))?;
    let [d] = &directives[..] else { return Err(wrong(format!("\"{text}\" is no address"))) };
    read_server::<S>(d).map_err(|e| wrong(e.message))
}

fn address(s: &Server) -> Result<PeerAddr, Fault> {
    match &s.host {
        NamedHost::Ip(ip) => Ok(PeerAddr::Ip(SocketAddr::new(*ip, s.port))),
        NamedHost::Unix(path) => Ok(PeerAddr::Unix(path.clone())),
        NamedHost::Name(_) => Err(Fault::Immutable),
    }
}
