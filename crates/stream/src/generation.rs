//! The `stream` block of a generation: its servers, immutable and shared, and each worker's view.

use crate::conf::StreamSrv;
use crate::module::{Content, Handler, Phase, Prereader};
use crate::Session;
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::{Generation, Virtual, WorkerGen};
use weir_core::variables::VarDef;
use weir_module::{ConfType, Slots};

/// One `server` of `stream`, merged.
pub(crate) struct ServerConf {
    pub id: usize,
    /// What of it every protocol's servers have.
    pub base: Arc<Virtual>,
    pub core: Arc<StreamSrv>,
    /// What each phase has to do here.
    pub phases: [Vec<Handler>; Phase::COUNT],
    /// What looks at the first bytes.
    pub(crate) prereaders: Vec<Prereader>,
    pub content: Option<Content>,
}

impl ServerConf {
    /// A module's configuration here.
    pub(crate) fn conf<T: ConfType>(&self) -> &T {
        self.base.conf::<T>()
    }
}

/// What has become of the `stream` block.
pub struct StreamConf {
    /// The slots of the main level, for those who start what stands there.
    pub main: Slots,
    pub(crate) servers: Vec<Arc<ServerConf>>,
    pub(crate) vars: Vec<VarDef<Session>>,
}

impl StreamConf {
    /// What core has of each server.
    pub fn bases(&self) -> impl Iterator<Item = &Arc<Virtual>> {
        self.servers.iter().map(|s| &s.base)
    }
}

/// A worker's view of the `stream` block, counted without atomics.
pub struct Stream {
    pub(crate) core: Arc<Generation>,
    pub(crate) shared: Arc<StreamConf>,
}

impl Stream {
    /// The view of the `stream` block that a connection's generation has.
    pub fn of(gen: &WorkerGen) -> Rc<Stream> {
        gen.view().expect("a connection of stream's belongs to a generation with stream")
    }
}

/// What core makes of [`StreamConf`] for a worker.
pub(crate) fn view(core: &Arc<Generation>, shared: &Arc<dyn Any + Send + Sync>) -> Rc<dyn Any> {
    let shared = Arc::clone(shared).downcast().expect("it is what was given with this function");
    Rc::new(Stream { core: Arc::clone(core), shared })
}
