//! The `http` block of a generation: servers and locations, immutable and shared, and each worker's
//! view of them.

use crate::conf::{CoreLoc, CoreSrv};
use crate::location::LocationSet;
use crate::module::{BodyFilter, Handler, HeaderFilter, Phase};
use crate::request::Request;
use std::any::Any;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::{Generation, Virtual, WorkerGen};
use weir_core::logger::ErrorLog;
use weir_module::Slots;

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
    /// What of it every protocol's servers have.
    pub base: Arc<Virtual>,
    pub core: Arc<CoreSrv>,
    /// Its outermost location, which holds what is set at server level.
    pub location: usize,
    pub named: Vec<(Vec<u8>, usize)>,
}

impl ServerConf {
    pub fn conf<T: weir_module::ConfType>(&self) -> &T {
        self.base.conf::<T>()
    }
}

pub struct Server(Arc<ServerConf>);

impl Deref for Server {
    type Target = ServerConf;
    fn deref(&self) -> &ServerConf {
        &self.0
    }
}

/// What has become of the `http` block.
pub struct HttpConf {
    pub main: Slots,
    pub servers: Vec<Arc<ServerConf>>,
    pub locations: Vec<Arc<LocationConf>>,
    pub vars: Vec<VarDef>,
}

/// A worker's view of the `http` block, counted without atomics.
pub struct Http {
    pub core: Arc<Generation>,
    pub shared: Arc<HttpConf>,
    pub servers: Vec<Rc<Server>>,
    pub locations: Vec<Rc<Location>>,
}

impl Http {
    fn new(core: Arc<Generation>, shared: Arc<HttpConf>) -> Http {
        Http {
            servers: shared.servers.iter().map(|s| Rc::new(Server(Arc::clone(s)))).collect(),
            locations: shared.locations.iter().map(|l| Rc::new(Location(Arc::clone(l)))).collect(),
            core,
            shared,
        }
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
