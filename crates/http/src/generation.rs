//! A generation: one loaded configuration, immutable and shared, and each worker's view of it.

use crate::conf::{CoreLoc, CoreSrv};
use crate::location::LocationSet;
use crate::module::{BodyFilter, Handler, HeaderFilter, Phase};
use crate::request::Request;
use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::logger::ErrorLog;
use weir_module::Slots;
use weir_runtime::listen::{ListenAddr, ListenOptions};
use weir_script::lookup::HostMap;
use weir_script::regex::Regex;
use weir_script::template::VarId;

pub type VarDef = weir_core::variables::VarDef<Request>;

/// One `location` (or a server's or `if`'s unnamed one), merged.
pub struct LocationConf {
    pub id: usize,
    /// As written, without modifiers; empty for unnamed ones.
    pub name: Vec<u8>,
    pub slots: Slots,
    pub core: Arc<CoreLoc>,
    pub phases: [Vec<Handler>; Phase::COUNT],
    pub header_filters: Vec<HeaderFilter>,
    pub body_filters: Vec<BodyFilter>,
    /// Those that a subrequest's answer passes through here.
    pub part_header_filters: Vec<HeaderFilter>,
    pub part_body_filters: Vec<BodyFilter>,
    /// Behind how many body filters the output of subrequests joins that of the main request.
    pub postpone_at: usize,
    /// All of them act only on responses that their header filters chose.
    pub body_on_demand: bool,
    pub nested: LocationSet,
    /// `location @name`.
    pub named: bool,
    pub exact: bool,
    /// `^~`
    pub no_regex: bool,
    /// Where `limit_except` sends the other methods.
    pub limit_except: Option<(u32, usize)>,
    pub error_log: Arc<ErrorLog>,
}

impl LocationConf {
    /// A module's configuration here.
    pub fn conf<T: weir_module::ConfType>(&self) -> &T {
        self.slots.get::<T>()
    }
}

/// A worker's handle on a location: a plain reference count around the shared one.
pub struct Location(Arc<LocationConf>);

impl Deref for Location {
    type Target = LocationConf;
    fn deref(&self) -> &LocationConf {
        &self.0
    }
}

pub struct ServerConf {
    pub id: usize,
    pub slots: Slots,
    pub core: Arc<CoreSrv>,
    /// Its outermost location, which holds what is set at server level.
    pub location: usize,
    pub named: Vec<(Vec<u8>, usize)>,
}

impl ServerConf {
    pub fn conf<T: weir_module::ConfType>(&self) -> &T {
        self.slots.get::<T>()
    }
}

pub struct Server(Arc<ServerConf>);

impl Deref for Server {
    type Target = ServerConf;
    fn deref(&self) -> &ServerConf {
        &self.0
    }
}

/// An expression, what it leads to, and the variables its named groups set.
pub type RegexTarget = (Arc<Regex>, usize, Vec<(usize, VarId)>);

/// The servers that share one address, by name.
pub struct AddrConf {
    /// The address as configured; a wildcard socket serves several.
    pub addr: ListenAddr,
    pub default: usize,
    pub names: HostMap<usize>,
    pub regexes: Vec<RegexTarget>,
    pub proxy_protocol: bool,
    pub ssl: bool,
    /// `listen … http2`: every server here speaks it.
    pub http2: bool,
    /// A connection may begin with HTTP/2's preface.
    pub preface: bool,
}

/// One socket to listen on, and the addresses it stands for.
pub struct ListenConf {
    pub addr: ListenAddr,
    pub options: ListenOptions,
    /// The first is the socket's own address (the wildcard, when there are several); the others
    /// are in order.
    pub addrs: Vec<AddrConf>,
}

impl ListenConf {
    /// Which of its addresses a connection came to.
    pub fn choose(&self, local: impl FnOnce() -> Option<SocketAddr>) -> &AddrConf {
        if self.addrs.len() > 1 {
            if let Some(local) = local() {
                let wanted = ListenAddr::Ip(local);
                let others = &self.addrs[1..];
                if let Ok(at) = others.binary_search_by(|a| a.addr.cmp(&wanted)) {
                    return &others[at];
                }
            }
        }
        &self.addrs[0]
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
    pub fn new(all: Vec<ListenConf>) -> Listens {
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
    pub number: u64,
    pub main: Slots,
    pub global: Slots,
    pub servers: Vec<Arc<ServerConf>>,
    pub locations: Vec<Arc<LocationConf>>,
    pub listens: Listens,
    pub vars: Vec<VarDef>,
    pub error_log: Arc<ErrorLog>,
}

/// A worker's view of a generation, counted without atomics.
pub struct WorkerGen {
    pub shared: Arc<Generation>,
    pub servers: Vec<Rc<Server>>,
    pub locations: Vec<Rc<Location>>,
}

impl WorkerGen {
    pub fn new(shared: Arc<Generation>) -> WorkerGen {
        WorkerGen {
            servers: shared.servers.iter().map(|s| Rc::new(Server(Arc::clone(s)))).collect(),
            locations: shared.locations.iter().map(|l| Rc::new(Location(Arc::clone(l)))).collect(),
            shared,
        }
    }
}
