//! What `proxy_connect` is told at a place of the configuration.

use crate::bits::next;
use crate::conf::{BackendConf, BackendLoc, Words};
use crate::families::tunnel;
use crate::family::{Family, Ways};
use crate::target::Schemes;
use std::sync::Arc;
use weir_module::{slot, ConfResult, ConfType, Level, Val};
use weir_script::template::Template;
use weir_wire::http1::response::Start;

#[derive(Default)]
pub(crate) struct ConnectLoc {
    pub(super) backend: BackendLoc,
    pub(super) on: Val<bool>,
    /// From and to which port.
    pub(super) ports: Val<Arc<Vec<(u64, u64)>>>,
    pub(super) address: Val<Option<Arc<Template>>>,
    pub(super) response: Val<Option<Arc<Template>>>,
    /// `$host` and `$request_port`, which the client asks for.
    pub(super) asked_for: Option<Arc<(Template, Template)>>,
}

impl BackendConf for ConnectLoc {
    const FAMILY: &'static Family = &FAMILY;
    const PREFIX: &'static str = "proxy_connect_";
    const NEXT: &'static Words = &[];

    fn backend(&self) -> &BackendLoc {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut BackendLoc {
        &mut self.backend
    }
}

/// HTTPS and news over TLS.
const PORTS: [(u64, u64); 2] = [(443, 443), (563, 563)];

impl ConfType for ConnectLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &ConnectLoc) -> ConfResult {
        self.backend.merge(&parent.backend, &FAMILY)?;
        self.backend.own_body = true;
        self.backend.next_upstream.set(next::OFF);
        self.on.merge(&parent.on, || false);
        self.ports.merge(&parent.ports, || Arc::new(PORTS.to_vec()));
        self.address.merge(&parent.address, || None);
        self.response.merge(&parent.response, || None);
        if self.asked_for.is_none() {
            self.asked_for.clone_from(&parent.asked_for);
        }
        Ok(())
    }
}

pub(super) static FAMILY: Family = Family {
    name: "proxy_connect",
    ssl: "",
    schemes: Schemes { plain: "", tls: None, required: false, ports: (0, 0), uri: false },
    hidden: &[],
    buffers: false,
    write: tunnel::write,
    start: Start::Either,
    key: None,
    ways: Ways::PLAIN,
};
