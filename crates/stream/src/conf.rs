//! The core module's configuration: what the engine itself reads. Rows are in `core_rows`.

use crate::module::{Content, StreamModule};
use crate::Session;
use weir_core::registry::VarRegistry;
use weir_module::{merge_values, slot, ConfResult, ConfType, Level, Levels, Val};

/// The block as it was read, kept beside the others until all is built.
#[derive(Default)]
pub(crate) struct StreamBlock {
    pub levels: Option<Levels>,
}

impl ConfType for StreamBlock {
    const LEVEL: Level = Level::Global;
    slot!();
}

/// `stream` level.
#[derive(Default)]
pub(crate) struct StreamMain {
    pub vars: VarRegistry<Session>,
    pub modules: &'static [&'static StreamModule],
}

impl ConfType for StreamMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// `server` level.
#[derive(Default)]
pub struct StreamSrv {
    pub(crate) proxy_protocol_timeout: Val<u64>,
    pub(crate) tcp_nodelay: Val<bool>,
    pub(crate) preread_buffer_size: Val<u64>,
    pub(crate) preread_timeout: Val<u64>,
    /// What is done with the bytes of a session.
    pub(crate) content: Option<Content>,
}

impl StreamSrv {
    /// The server has what is done with the bytes of its sessions; who says so last is heard.
    pub fn set_content(&mut self, content: Content) {
        self.content = Some(content);
    }
}

impl ConfType for StreamSrv {
    const LEVEL: Level = Level::Server;
    slot!();

    fn merge(&mut self, parent: &StreamSrv) -> ConfResult {
        merge_values!(self, parent;
            proxy_protocol_timeout = 30_000,
            tcp_nodelay = true,
            preread_buffer_size = 16 * 1024,
            preread_timeout = 30_000,
        );
        Ok(())
    }
}
