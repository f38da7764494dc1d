//! The `mail` block of a generation: its servers, immutable and shared, and each worker's view.

use crate::conf::{MailMain, MailSrv};
use crate::module::Handler;
use crate::Session;
use std::sync::Arc;
use weir_core::generation::Virtual;
use weir_core::registry::VarRegistry;
use weir_core::variables::VarDef;
use weir_core::whole::{Block, View};
use weir_module::Slots;
use weir_wire::mail::session::Settings;

/// One `server` of `mail`, merged.
pub(crate) struct ServerConf {
    /// What of it every protocol's servers have.
    pub base: Arc<Virtual>,
    pub core: Arc<MailSrv>,
    /// What sessions are made with.
    pub settings: Arc<Settings>,
    pub accepted: Vec<Handler>,
    pub logged: Vec<Handler>,
}

/// What has become of the `mail` block.
pub struct MailConf {
    pub(crate) main: Slots,
    pub(crate) servers: Vec<Arc<ServerConf>>,
    pub(crate) vars: Vec<VarDef<Session>>,
}

/// A worker's view of the `mail` block.
pub type Mail = View<MailConf>;

impl Block<Session> for MailConf {
    fn main(&self) -> &Slots {
        &self.main
    }

    fn vars(&self) -> &[VarDef<Session>] {
        &self.vars
    }

    fn registry(&self) -> &VarRegistry<Session> {
        &self.main.get::<MailMain>().vars
    }
}
