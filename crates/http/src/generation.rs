//! The `http` block of a generation: servers and locations, immutable and shared, and each worker's
//! view of them.

use crate::conf::{CoreLoc, CoreSrv};
use crate::counted::{Part, Zones};
use crate::location::set::LocationSet;
use crate::plan::Plan;
use crate::request::Request;
use std::any::Any;
use std::cell::OnceCell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::{Generation, Virtual, WorkerGen};
use weir_core::logger::ErrorLog;
use weir_module::Slots;

/// Of requests.
pub type VarDef = weir_core::variables::VarDef<Request>;

/// One `location` (or a server's or `if`'s unnamed one), merged.
pub struct LocationConf {
    /// Its place in [`HttpConf::locations`].
    pub id: usize,
    /// As written, without modifiers; empty for unnamed ones.
    pub name: Vec<u8>,
    /// Those it has itself, and those it has inherited.
    pub slots: Slots,
    /// Out of `slots`.
    pub core: Arc<CoreLoc>,
    /// Its handlers and filters.
    pub plan: Arc<Plan>,
    pub(crate) nested: LocationSet,
    /// `location @name`.
    pub named: bool,
    /// `=`
    pub exact: bool,
    /// `^~`
    pub(crate) no_regex: bool,
    /// Where `limit_except` sends the other methods.
    pub limit_except: Option<(u32, usize)>,
    /// Out of `core`.
    pub error_log: Arc<ErrorLog>,
    pub(crate) zones: Option<Zones>,
}

impl LocationConf {
    /// A module's configuration here.
    pub fn conf<T: weir_module::ConfType>(&self) -> &T {
        self.slots.get::<T>()
    }
}

/// A worker's handle on a location: a plain reference count around the shared one, and beside it what
/// every request asks for.
pub struct Location {
    conf: Arc<LocationConf>,
    /// The location's.
    pub plan: Arc<Plan>,
    /// The location's.
    pub core: Arc<CoreLoc>,
    pub(crate) part: Part,
}

impl Location {
    fn new(conf: &Arc<LocationConf>) -> Location {
        Location {
            conf: Arc::clone(conf),
            plan: Arc::clone(&conf.plan),
            core: Arc::clone(&conf.core),
            part: Part::default(),
        }
    }
}

impl Deref for Location {
    type Target = LocationConf;
    fn deref(&self) -> &LocationConf {
        &self.conf
    }
}

/// One `server` of `http`, merged.
pub struct ServerConf {
    /// Its place in [`HttpConf::servers`].
    pub id: usize,
    /// What of it every protocol's servers have.
    pub base: Arc<Virtual>,
    /// Out of its slots.
    pub core: Arc<CoreSrv>,
    /// Its outermost location, which holds what is set at server level.
    pub location: usize,
    /// `@name` and the location's number.
    pub named: Vec<(Vec<u8>, usize)>,
    pub(crate) zones: Option<Zones>,
}

impl ServerConf {
    /// A module's configuration of the server level.
    pub fn conf<T: weir_module::ConfType>(&self) -> &T {
        self.base.conf::<T>()
    }
}

/// A worker's handle on a server: a plain reference count around the shared one, and what the worker counts of it.
pub struct Server {
    conf: Arc<ServerConf>,
    pub(crate) part: Part,
}

impl Deref for Server {
    type Target = ServerConf;
    fn deref(&self) -> &ServerConf {
        &self.conf
    }
}

/// What has become of the `http` block.
pub struct HttpConf {
    /// The main level's.
    pub main: Slots,
    /// By their numbers.
    pub servers: Vec<Arc<ServerConf>>,
    /// By their numbers, those of all servers.
    pub locations: Vec<Arc<LocationConf>>,
    /// By their numbers.
    pub vars: Vec<VarDef>,
}

/// A worker's view of the `http` block, counted without atomics. Its handles are made when they are first
/// asked for: of many servers most are asked for by few.
pub struct Http {
    /// What every protocol has of it.
    pub core: Arc<Generation>,
    /// What all workers have of it.
    pub shared: Arc<HttpConf>,
    servers: Box<[OnceCell<Rc<Server>>]>,
    locations: Box<[OnceCell<Rc<Location>>]>,
}

impl Http {
    fn new(core: Arc<Generation>, shared: Arc<HttpConf>) -> Http {
        Http {
            servers: shared.servers.iter().map(|_| OnceCell::new()).collect(),
            locations: shared.locations.iter().map(|_| OnceCell::new()).collect(),
            core,
            shared,
        }
    }

    /// By its number.
    #[inline]
    pub fn server(&self, id: usize) -> &Rc<Server> {
        self.servers[id].get_or_init(|| {
            let conf = Arc::clone(&self.shared.servers[id]);
            Rc::new(Server { conf, part: Part::default() })
        })
    }

    /// By its number.
    #[inline]
    pub fn location(&self, id: usize) -> &Rc<Location> {
        self.locations[id].get_or_init(|| Rc::new(Location::new(&self.shared.locations[id])))
    }

    /// The view of the `http` block that a connection's generation has.
    #[inline]
    pub fn of(gen: &WorkerGen) -> Rc<Http> {
        gen.view().expect("a connection of http's belongs to a generation with http")
    }
}

/// What core makes of [`HttpConf`] for a worker.
pub(crate) fn view(core: &Arc<Generation>, shared: &Arc<dyn Any + Send + Sync>) -> Rc<dyn Any> {
    let shared = Arc::clone(shared).downcast().expect("it is what was given with this function");
    Rc::new(Http::new(Arc::clone(core), shared))
}
