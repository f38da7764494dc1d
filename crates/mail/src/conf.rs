//! The core module's configuration: what the engine itself reads. Rows are in `core_rows` and
//! `protocol_rows`.

use crate::module::MailModule;
use crate::Session;
use std::collections::HashSet;
use weir_conf::Position;
use weir_core::registry::VarRegistry;
use weir_module::{merge_values, slot, ConfResult, ConfType, Level, Levels, Val};
use weir_runtime::listen::ListenAddr;
use weir_wire::mail::session::Settings;
use weir_wire::mail::{AuthMethods, Protocol, StartTls};

/// The block as it was read, kept beside the others until all is built.
#[derive(Default)]
pub(crate) struct MailBlock {
    pub levels: Option<Levels>,
}

impl ConfType for MailBlock {
    const LEVEL: Level = Level::Global;
    slot!();
}

/// `mail` level.
#[derive(Default)]
pub(crate) struct MailMain {
    pub vars: VarRegistry<Session>,
    pub modules: &'static [&'static MailModule],
    /// Of all servers, while they are read: no two have the same.
    pub listened: HashSet<ListenAddr>,
}

impl ConfType for MailMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// What the directives of one protocol say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offer {
    pub methods: Option<AuthMethods>,
    /// None: the usual ones.
    pub capabilities: Vec<Vec<u8>>,
    pub client_buffer: Val<u64>,
}

impl Offer {
    fn merge(&mut self, parent: &Offer) {
        self.methods = self.methods.or(parent.methods);
        if self.capabilities.is_empty() {
            self.capabilities.clone_from(&parent.capabilities);
        }
        self.client_buffer.merge(&parent.client_buffer, || PAGE_BYTES);
    }
}

/// nginx's default for buffers: a page.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// `server` level.
#[derive(Default)]
pub struct MailSrv {
    /// Of a server alone: `protocol`, or the port that it listens on first.
    pub protocol: Option<Protocol>,
    pub(crate) server_name: Val<Vec<u8>>,
    /// `timeout`, in milliseconds: for handshakes too.
    pub timeout: Val<u64>,
    pub(crate) max_errors: Val<u64>,
    /// `starttls`
    pub starttls: Val<StartTls>,
    /// Where `starttls` stands, for what is found when all is read.
    pub starttls_at: Option<Position>,
    /// By protocol.
    pub(crate) offers: [Offer; 3],
    pub(crate) greeting_delay: Val<u64>,
}

impl ConfType for MailSrv {
    const LEVEL: Level = Level::Server;
    slot!();

    fn merge(&mut self, parent: &MailSrv) -> ConfResult {
        self.starttls_at = self.starttls_at.or(parent.starttls_at);
        merge_values!(self, parent;
            server_name = Vec::new(),
            timeout = 60_000,
            max_errors = 5,
            starttls = StartTls::Off,
            greeting_delay = 0,
        );
        for (own, outer) in self.offers.iter_mut().zip(&parent.offers) {
            own.merge(outer);
        }
        Ok(())
    }
}

impl MailSrv {
    /// What sessions of a server that speaks `protocol` are made with.
    pub(crate) fn settings(&self, protocol: Protocol) -> Settings {
        let offer = &self.offers[protocol as usize];
        let name = match self.server_name.as_slice() {
            [] => weir_runtime::process::hostname().into_bytes(),
            name => name.to_vec(),
        };
        let given: Vec<&[u8]> = offer.capabilities.iter().map(Vec::as_slice).collect();
        let given = (!given.is_empty()).then_some(given.as_slice());
        let usual = Settings::new(protocol, &name, offer.methods, given);
        let command_max_bytes = match protocol {
            Protocol::Pop3 => usual.command_max_bytes,
            Protocol::Imap | Protocol::Smtp => *offer.client_buffer as usize,
        };
        Settings {
            starttls: *self.starttls,
            max_errors: u32::try_from(*self.max_errors).unwrap_or(u32::MAX),
            command_max_bytes,
            ..usual
        }
    }
}
