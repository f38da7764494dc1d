//! `upstream { … }` as read, and the groups of a configuration that has been built.

use crate::balance::Method;
use crate::group::{Group, KeepAlive, Sticky};
use crate::health::Board;
use crate::live::{Fallback, Live};
use crate::queue;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use weir_base::addr::{Endpoint, Host};
use weir_conf::Position;
use weir_module::{slot, ArgsExt, ConfResult, ConfType, Diagnostic, Directive, Level, Val};
use weir_resolve::Resolver;
use weir_script::lookup::StrMap;

/// Checks that the servers of one upstream may have: a bit for each, beside the configuration's own.
const CHECKS_MAX: u32 = 31;

/// A `server` row, or the address of an implicit upstream.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub name: Vec<u8>,
    pub host: NamedHost,
    pub port: u16,
    pub weight: i64,
    pub max_fails: u32,
    pub fail_timeout_secs: u64,
    pub max_conns: u32,
    pub down: bool,
    pub draining: bool,
    /// What `sticky route` knows it by.
    pub route: Vec<u8>,
    pub backup: bool,
    /// By which hashes know it, in place of its name.
    pub id: Option<Vec<u8>>,
    pub slow_start_secs: u64,
    /// To be asked for again and again.
    pub resolve: bool,
    pub service: Option<String>,
    pub at: Position,
}

#[derive(Clone, Debug)]
pub(crate) enum NamedHost {
    Ip(std::net::IpAddr),
    Name(String),
    Unix(PathBuf),
}

/// An upstream as read.
pub(crate) struct Declared {
    pub name: Vec<u8>,
    port: u16,
    no_port: bool,
    pub explicit: bool,
    pub at: Position,
    pub servers: Vec<Server>,
    pub method: Option<Method>,
    pub sticky: Option<Box<dyn DeclaredSticky>>,
    /// The directive's name that it comes of.
    pub sticky_by: Option<String>,
    pub queue: Val<queue::Rule>,
    /// `ntlm`
    pub binds: bool,
    /// `dynamic_resolve`
    pub dynamic: Option<Fallback>,
    /// The file that its servers stand in: there may be none.
    pub state: Option<PathBuf>,
    pub zone: Option<Vec<u8>>,
    /// As it is given there, or where else it is named.
    pub zone_bytes: u64,
    /// The workers share what they know of its servers, without a zone too.
    pub shares: bool,
    pub resolver: Val<Arc<Resolver>>,
    pub resolver_timeout: Val<u64>,
    pub keepalive: Val<usize>,
    pub local: bool,
    pub requests: Val<u64>,
    pub time_ms: Val<u64>,
    pub timeout_ms: Val<u64>,
    /// How many checks of its servers there are.
    pub checks: u32,
}

/// `sticky` as its protocol's module has read it.
pub trait DeclaredSticky: Send + Sync {
    /// Makes what sessions use, when the configuration is built.
    ///
    /// # Errors
    ///
    /// What it needs, a zone say, is another's.
    fn build(&self, upstream: &[u8]) -> ConfResult<Sticky>;

    /// Whether servers are named by it, so that the configuration need have none.
    fn names_servers(&self) -> bool {
        false
    }
}

impl Declared {
    fn new(name: &[u8], port: u16, no_port: bool, explicit: bool, at: Position) -> Declared {
        Declared {
            name: name.to_vec(),
            port,
            no_port,
            explicit,
            at,
            servers: Vec::new(),
            method: None,
            sticky: None,
            sticky_by: None,
            queue: Val::UNSET,
            binds: false,
            dynamic: None,
            state: None,
            zone: None,
            zone_bytes: 0,
            shares: false,
            resolver: Val::UNSET,
            resolver_timeout: Val::UNSET,
            keepalive: Val::UNSET,
            local: false,
            requests: Val::UNSET,
            time_ms: Val::UNSET,
            timeout_ms: Val::UNSET,
            checks: 0,
        }
    }

    /// As it is counted: what is no block has its port, by which it differs from others.
    pub(crate) fn shown_name(&self) -> Vec<u8> {
        match self.explicit || self.port == 0 {
            true => self.name.clone(),
            false => [&self.name[..], format!(":{}", self.port).as_bytes()].concat(),
        }
    }

    pub(crate) fn has_balancer(&self) -> bool {
        self.sticky.as_ref().is_some_and(|sticky| sticky.names_servers())
    }

    /// Without the directive nginx 1.31 keeps 32 connections, each for its own location.
    pub(crate) fn keepalive(&self) -> Option<KeepAlive> {
        let max_idle = self.keepalive.as_option().copied().unwrap_or(32);
        (self.explicit && max_idle > 0).then(|| KeepAlive {
            max_idle,
            requests: self.requests.as_option().copied().unwrap_or(1000),
            time_ms: self.time_ms.as_option().copied().unwrap_or(3_600_000),
            timeout_ms: self.timeout_ms.as_option().copied().unwrap_or(60_000),
            local: self.local || !self.keepalive.is_set(),
        })
    }
}

/// Which upstream a directive names; an index into [`UpstreamMain::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamRef(usize);

impl UpstreamRef {
    /// Its place among the upstreams of its block.
    pub fn number(self) -> usize {
        self.0
    }
}

/// The upstreams of one name: a block, or addresses that differ in their ports.
struct SameName {
    first: usize,
    by_port: HashMap<u16, usize>,
}

/// All upstreams of a protocol's block.
#[derive(Default)]
pub struct UpstreamMain {
    pub(crate) declared: Vec<Declared>,
    known: StrMap<SameName>,
    current: usize,
    pub(crate) groups: Vec<Arc<Group>>,
    /// Checks of servers, by their upstreams' numbers.
    pub(crate) boards: Vec<(usize, Weak<Board>)>,
}

impl ConfType for UpstreamMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

impl UpstreamMain {
    /// The group behind a reference, once the configuration is built.
    pub fn group(&self, at: UpstreamRef) -> Option<&Group> {
        self.groups.get(at.0).map(|group| &**group)
    }

    /// The same, for who has it beyond the request at hand.
    pub(crate) fn shared(&self, at: UpstreamRef) -> Option<Arc<Group>> {
        self.groups.get(at.0).cloned()
    }

    /// Its name, whether it is a block, and whether it has a zone.
    pub fn about(&self, at: UpstreamRef) -> (&[u8], bool, bool) {
        let u = &self.declared[at.0];
        (&u.name, u.explicit, u.zone.is_some())
    }

    /// A further check of an upstream's servers; its number among those of the same, or nothing if there are
    /// as many as there may be.
    pub(crate) fn add_check(&mut self, at: UpstreamRef) -> Option<u32> {
        let u = &mut self.declared[at.0];
        u.checks += 1;
        Some(u.checks - 1).filter(|n| *n < CHECKS_MAX)
    }

    /// The upstreams whose servers change.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Arc<Live>> {
        self.groups.iter().filter_map(|group| group.as_live())
    }

    /// The group a name from a variable means: the block of that name, or the same address.
    pub fn find(&self, host: &[u8], port: u16, no_port: bool) -> Option<&Group> {
        let same = self.known.get(host)?;
        if self.declared[same.first].explicit {
            return self.group(UpstreamRef(same.first)).filter(|_| no_port || port == 0);
        }
        let without = same.by_port.get(&0).filter(|_| no_port);
        let at = without.into_iter().chain(same.by_port.get(&port)).min()?;
        self.group(UpstreamRef(*at))
    }

    /// The one that is being read, for what is built of it later.
    pub fn current_ref(&self) -> UpstreamRef {
        UpstreamRef(self.current)
    }

    /// The workers are to share what they know of the servers of the one that is being read, zone or not.
    pub fn share_state(&mut self) {
        self.current().shares = true;
    }

    /// The one that is being read.
    pub(crate) fn current(&mut self) -> &mut Declared {
        &mut self.declared[self.current]
    }

    /// The upstream that is being read has this `sticky`.
    ///
    /// # Errors
    ///
    /// It has one already.
    pub fn set_sticky(&mut self, d: &Directive, sticky: Box<dyn DeclaredSticky>) -> ConfResult {
        let declared = self.current();
        let Some(other) = declared.sticky_by.replace(d.name()) else {
            declared.sticky = Some(sticky);
            return Ok(());
        };
        if other == d.name() {
            return Err(d.error("is duplicate"));
        }
        let hint =
            format!("remove one of them: both choose a client's server; {other} stands before it");
        Err(d.error(&format!("may not be used with \"{other}\"")).hint(hint))
    }

    /// A place that passes to that upstream has this resolver (and asks it for so many milliseconds),
    /// for names that nobody else is asked for.
    pub fn offer(&self, at: UpstreamRef, resolver: &Arc<Resolver>, timeout_ms: u64) {
        if let Some(live) = self.group(at).and_then(|g| g.as_live()) {
            live.offer(resolver, timeout_ms);
        }
    }

    /// The blocks, with their names.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (&[u8], &Arc<Group>)> {
        let all = self.declared.iter().zip(&self.groups);
        all.filter(|(u, _)| u.explicit).map(|(u, group)| (&u.name[..], group))
    }

    /// The upstream that a URL names: a block, which may also follow, or an implicit one.
    ///
    /// # Errors
    ///
    /// It names the port of a block.
    pub fn add(
        &mut self,
        d: &Directive,
        url: &Endpoint,
        default_port: u16,
    ) -> ConfResult<UpstreamRef> {
        let name = url.host_text;
        let unix = matches!(url.host, Host::Unix(_));
        let port = if unix { 0 } else { url.port.unwrap_or(default_port) };
        let no_port = url.port.is_none();
        if let Some(same) = self.known.get(name) {
            let is_block = self.declared[same.first].explicit;
            if is_block && !no_port {
                return Err(may_not_have_port(d, name, port));
            }
            if is_block || port == 0 {
                return Ok(UpstreamRef(same.first));
            }
            let fitting = [0, port].into_iter().filter_map(|p| same.by_port.get(&p));
            if let Some(i) = fitting.min() {
                return Ok(UpstreamRef(*i));
            }
        }
        let mut u = Declared::new(name, port, no_port, false, d.position());
        u.servers.push(Server::implicit(name, url, port, d.position()));
        Ok(UpstreamRef(self.push(u)))
    }

    fn push(&mut self, u: Declared) -> usize {
        let at = self.declared.len();
        match self.known.get_mut(&u.name) {
            Some(same) => drop(same.by_port.entry(u.port).or_insert(at)),
            None => {
                let same = SameName { first: at, by_port: HashMap::from([(u.port, at)]) };
                // The name is new.
                let _ = self.known.insert(&u.name, same);
            }
        }
        self.declared.push(u);
        at
    }

    /// Opens an `upstream` block.
    pub(crate) fn open(&mut self, d: &Directive) -> ConfResult {
        let name = d.arg(0);
        let Some(i) = self.known.get(name).map(|same| same.first) else {
            self.current = self.push(Declared::new(name, 0, true, true, d.position()));
            return Ok(());
        };
        let u = &mut self.declared[i];
        if u.explicit {
            return Err(d.fail(format!("duplicate upstream \"{}\"", lossy(name))));
        }
        if !u.no_port {
            return Err(may_not_have_port(d, name, u.port).at(u.at));
        }
        *u = Declared::new(name, 0, true, true, d.position());
        self.current = i;
        Ok(())
    }
}

pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn may_not_have_port(d: &Directive, name: &[u8], port: u16) -> Diagnostic {
    d.fail(format!("upstream \"{}\" may not have port {port}", lossy(name)))
}

fn host_of(url: &Endpoint) -> NamedHost {
    match url.host {
        Host::V4(a) => NamedHost::Ip(a.into()),
        Host::V6(a) => NamedHost::Ip(a.into()),
        Host::Unix(path) => NamedHost::Unix(weir_runtime::paths::path(path).into_owned()),
        Host::Name(name) => NamedHost::Name(lossy(name)),
        Host::Any => NamedHost::Name(lossy(url.host_text)),
    }
}

impl Server {
    /// With what a `server` has that says nothing more.
    pub(crate) fn implicit(name: &[u8], url: &Endpoint, port: u16, at: Position) -> Server {
        Server {
            name: name.to_vec(),
            host: host_of(url),
            port,
            weight: 1,
            max_fails: 1,
            fail_timeout_secs: 10,
            max_conns: 0,
            down: false,
            draining: false,
            route: Vec::new(),
            backup: false,
            id: None,
            slow_start_secs: 0,
            resolve: false,
            service: None,
            at,
        }
    }
}
