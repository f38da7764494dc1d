//! The `stream` block of a generation: its servers, immutable and shared, and each worker's view.

use crate::conf::{StreamMain, StreamSrv};
use crate::module::{Content, Handler, Phase, Prereader};
use crate::status_zone::Zone;
use crate::Session;
use std::sync::Arc;
use weir_core::generation::Virtual;
use weir_core::registry::VarRegistry;
use weir_core::variables::VarDef;
use weir_core::whole::{Block, View};
use weir_module::{ConfType, Slots};

/// One `server` of `stream`, merged.
pub(crate) struct ServerConf {
    /// What of it every protocol's servers have.
    pub base: Arc<Virtual>,
    pub core: Arc<StreamSrv>,
    /// What each phase has to do here.
    pub phases: [Vec<Handler>; Phase::COUNT],
    /// What looks at the first bytes.
    pub(crate) prereaders: Vec<Prereader>,
    pub content: Option<Content>,
    pub(crate) zone: Option<Zone>,
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

/// A worker's view of the `stream` block.
pub type Stream = View<StreamConf>;

impl Block<Session> for StreamConf {
    fn main(&self) -> &Slots {
        &self.main
    }

    fn vars(&self) -> &[VarDef<Session>] {
        &self.vars
    }

    fn registry(&self) -> &VarRegistry<Session> {
        &self.main.get::<StreamMain>().vars
    }
}
