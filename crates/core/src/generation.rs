//! A generation: one loaded configuration, immutable and shared, and each worker's view of it.
//!
//! What every protocol has is here: its number, the slots of the main context, the sockets, the log.
//! What a protocol makes of its own block is a [`PartConf`] beside the others; nothing here knows
//! what is in it.

use crate::counts::{Near, OfTls};
use crate::logger::ErrorLog;
use crate::tls::client::Clients;
use crate::tls::code::Code;
use crate::tls::Tls;
use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use weir_module::{ConfType, Slots, Span};
use weir_resolve::Resolver;
use weir_runtime::clock;
use weir_runtime::listen::{ListenAddr, ListenOptions};
use weir_script::lookup::HostMap;
use weir_script::regex::{MatchError, Regex};
use weir_script::template::VarId;
use weir_tls::server::VerifyClient;

/// A `server` block as far as accepting a connection is concerned, whatever its protocol.
#[derive(Default)]
pub struct Virtual {
    /// Its merged slots of the server level.
    pub slots: Slots,
    /// What TLS clients are offered.
    pub tls: Option<Tls>,
    /// Code that has a say in their handshakes.
    pub code: Option<Code>,
    /// `ssl_verify_client`.
    pub verify_client: VerifyClient,
    /// What clients' certificates are judged by; nothing for a server that is not verifying, or
    /// that leaves all of TLS to the default one.
    pub clients: Option<Clients>,
    /// For the handshake and all that comes before the first request.
    pub handshake_timeout_ms: u64,
    /// It speaks HTTP/2 on addresses with TLS.
    pub http2: bool,
    /// The directive; without it small pieces wait for what follows.
    pub tcp_nodelay: bool,
    /// For what happens before there is a request.
    pub error_log: Arc<ErrorLog>,
    /// For OCSP responders, and for names that are known only with a session.
    pub resolver: Option<Arc<Resolver>>,
    /// For a name as a whole, all tries and aliases.
    pub resolver_timeout_ms: u64,
    /// Its handshakes are counted there.
    pub handshakes: Option<Arc<Near<OfTls>>>,
}

impl Virtual {
    /// A module's configuration here.
    pub fn conf<T: ConfType>(&self) -> &T {
        self.slots.get::<T>()
    }
}

/// What a protocol has made of its block, as all workers share it.
pub type Shared = Arc<dyn Any + Send + Sync>;

/// Makes a worker's own view of it.
pub type View = fn(&Arc<Generation>, &Shared) -> Rc<dyn Any>;

/// What one protocol has made of its block.
pub struct PartConf {
    /// The name of its block.
    pub protocol: &'static str,
    /// Its servers, by their numbers.
    pub servers: Vec<Arc<Virtual>>,
    /// Its servers' merged configuration and whatever else it needs, as a type of its own.
    pub shared: Shared,
    /// Makes a worker's own view of `shared`.
    pub view: View,
}

/// An expression, what it leads to, and the variables its named groups set.
pub type RegexTarget = (Arc<Regex>, usize, Vec<(usize, VarId)>);

/// The servers that share one address, by name.
pub struct AddrConf {
    /// The address as configured; a wildcard socket serves several.
    pub addr: ListenAddr,
    /// The number of its default server.
    pub default: usize,
    /// Servers by names, exact and with `*`.
    pub names: HostMap<usize>,
    /// In the order of the configuration: the first that matches.
    pub regexes: Vec<RegexTarget>,
    /// Connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Connections begin with a TLS hello.
    pub ssl: bool,
    /// `listen … http2`: every server here speaks it.
    pub http2: bool,
    /// A connection may begin with HTTP/2's preface.
    pub preface: bool,
}

impl AddrConf {
    /// The server that has a name, by whatever kind of name.
    ///
    /// # Errors
    ///
    /// An expression could not tell whether the name is its.
    pub fn server_of(&self, name: &[u8]) -> Result<Option<usize>, MatchError> {
        if let Some(id) = self.names.get(name) {
            return Ok(Some(*id));
        }
        for (regex, id, _) in &self.regexes {
            if regex.is_match(name)? {
                return Ok(Some(*id));
            }
        }
        Ok(None)
    }
}

/// How the bytes of a connection to an address are to be understood. A connection stays with how that was
/// when it came, for TLS and PROXY headers stand at its beginning only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    /// The name of the block that serves it.
    pub protocol: Cow<'static, str>,
    /// As [`AddrConf::ssl`].
    pub ssl: bool,
    /// As [`AddrConf::proxy_protocol`].
    pub proxy_protocol: bool,
}

/// One socket to listen on, and the addresses it stands for.
pub struct ListenConf {
    /// Where the socket is bound.
    pub addr: ListenAddr,
    /// Of the socket itself, from the one `listen` that has them.
    pub options: ListenOptions,
    /// The first is the socket's own address (the wildcard, when there are several); the others
    /// are in order.
    pub addrs: Vec<AddrConf>,
    /// Which of the generation's parts serves it.
    pub part: usize,
    /// Where the address stands in the text.
    pub span: Span,
}

impl ListenConf {
    /// Whether two of the same port (or path) cannot be open at once.
    fn clashes_with(&self, other: &ListenConf) -> bool {
        let is_part = self.addr.is_wildcard() || other.addr.is_wildcard();
        let may_share = self.options.reuseport && other.options.reuseport;
        self.addr == other.addr || is_part && !self.addr.is_udp() && !may_share
    }

    /// Which of its addresses a connection came to.
    #[inline]
    pub fn choose(&self, local: impl FnOnce() -> Option<SocketAddr>) -> &AddrConf {
        match &self.addrs[..] {
            [one] => one,
            _ => self.choose_of_many(local()),
        }
    }

    #[inline(never)]
    fn choose_of_many(&self, local: Option<SocketAddr>) -> &AddrConf {
        let (first, others) = (&self.addrs[0], &self.addrs[1..]);
        let Some(local) = local else { return first };
        let wanted = self.addr.with(local);
        let found = others.binary_search_by(|a| a.addr.cmp(&wanted));
        found.map_or(first, |at| &others[at])
    }
}

/// The sockets of a generation; some have thousands.
#[derive(Default)]
pub struct Listens {
    all: Vec<ListenConf>,
    /// Places in `all`, in the order of their addresses.
    by_addr: Vec<usize>,
}

impl Listens {
    fn new(all: Vec<ListenConf>) -> Listens {
        let mut by_addr: Vec<usize> = (0..all.len()).collect();
        by_addr.sort_by(|a, b| all[*a].addr.cmp(&all[*b].addr));
        Listens { all, by_addr }
    }

    /// Where the socket of that address is.
    pub fn place(&self, addr: &ListenAddr) -> Option<usize> {
        let found = self.by_addr.binary_search_by(|at| self.all[*at].addr.cmp(addr));
        found.ok().map(|i| self.by_addr[i])
    }
}

impl Deref for Listens {
    type Target = [ListenConf];
    fn deref(&self) -> &[ListenConf] {
        &self.all
    }
}

/// One loaded configuration.
pub struct Generation {
    /// From 1, one more for each that was put in force, whichever process serves by it.
    pub number: u64,
    /// The slots of the main context.
    pub global: Slots,
    /// All that the parts listen on.
    pub listens: Listens,
    /// The main context's.
    pub error_log: Arc<ErrorLog>,
    /// When: seconds since 1970, and milliseconds.
    pub loaded: (i64, u32),
    /// Code wants a privileged agent, with so many connections at the most.
    pub agent: OnceLock<usize>,
    parts: Vec<PartConf>,
}

impl Generation {
    /// Joins what the protocols have made of their blocks.
    pub fn new(
        number: u64,
        global: Slots,
        error_log: Arc<ErrorLog>,
        made: Vec<(PartConf, Vec<ListenConf>)>,
    ) -> Generation {
        let mut listens = Vec::new();
        let mut parts = Vec::new();
        for (part, sockets) in made {
            let at = parts.len();
            listens.extend(sockets.into_iter().map(|l| ListenConf { part: at, ..l }));
            parts.push(part);
        }
        let (listens, loaded) = (Listens::new(listens), clock::wall());
        let agent = OnceLock::new();
        Generation { number, global, listens, error_log, loaded, agent, parts }
    }

    /// A protocol's part, by what it is.
    pub fn part<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.parts.iter().find_map(|p| p.shared.downcast_ref())
    }

    /// The protocol of a socket's clients: the name of its block.
    pub fn protocol(&self, listen: usize) -> &'static str {
        self.protocol_of(&self.listens[listen])
    }

    /// The same.
    pub fn protocol_of(&self, listen: &ListenConf) -> &'static str {
        self.parts[listen.part].protocol
    }

    /// Two sockets of different protocols of which the system has room for one; the first is that which
    /// stands first in the text.
    pub fn clash(&self) -> Option<[&ListenConf; 2]> {
        if self.parts.len() < 2 {
            return None;
        }
        let mut by_port: HashMap<ListenAddr, Vec<&ListenConf>> = HashMap::new();
        for l in self.listens.iter() {
            let beside = by_port.entry(l.addr.wildcard()).or_default();
            if let Some(other) = beside.iter().find(|o| o.part != l.part && o.clashes_with(l)) {
                let at = |l: &ListenConf| (l.span.file, l.span.start);
                return Some(if at(other) <= at(l) { [other, l] } else { [l, other] });
            }
            beside.push(l);
        }
        None
    }

    /// What a connection meets that comes by a socket; `local` is the address that it came to.
    pub fn door(&self, listen: usize, local: impl FnOnce() -> Option<SocketAddr>) -> Door {
        let addr = self.listens[listen].choose(local);
        Door {
            protocol: self.protocol(listen).into(),
            ssl: addr.ssl,
            proxy_protocol: addr.proxy_protocol,
        }
    }

    /// The socket of an address, if connections to `local` meet the same there; nothing otherwise.
    pub fn same_door(
        &self,
        addr: &ListenAddr,
        door: &Door,
        local: impl FnOnce() -> Option<SocketAddr>,
    ) -> Option<usize> {
        self.listens.place(addr).filter(|at| self.door(*at, local) == *door)
    }

    /// The servers of the protocol that a socket belongs to.
    pub fn servers(&self, listen: &ListenConf) -> &[Arc<Virtual>] {
        &self.parts[listen.part].servers
    }
}

/// A worker's view of a generation, counted without atomics.
pub struct WorkerGen {
    /// What all workers have of it.
    pub shared: Arc<Generation>,
    views: Vec<Rc<dyn Any>>,
}

impl WorkerGen {
    /// Makes each protocol's view.
    pub fn new(shared: Arc<Generation>) -> WorkerGen {
        let views = shared.parts.iter().map(|p| (p.view)(&shared, &p.shared)).collect();
        WorkerGen { shared, views }
    }

    /// The view of a protocol's part, by what it is.
    #[inline]
    pub fn view<T: Any>(&self) -> Option<Rc<T>> {
        self.views.iter().find_map(|v| Rc::clone(v).downcast().ok())
    }
}
