//! What a `server` says about its TLS.

use super::ocsp::{Cache, Mode, Responder};
use super::stapling::Fetched;
use std::sync::{Arc, OnceLock};
use weir_core::tls::files::{CacheRule, Loaded, Name};
use weir_core::tls::words::Places;
use weir_module::{merge_values, slot, ConfResult, ConfType, Level, Val};
use weir_tls::offer::Protocols;
use weir_tls::server::VerifyClient;
use weir_tls::sessions::Zone;

/// nginx's default.
pub const DEFAULT_CIPHERS: &str = "HIGH:!aNULL:!MD5";

/// `ssl_session_cache`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Builtin {
    /// Nothing is kept, and clients are not told.
    #[default]
    None,
    Off,
    /// So many sessions of each worker; kept for all of them together here.
    Sessions(u64),
}

#[derive(Default)]
pub struct SslSrv {
    pub places: Places,
    pub certificates: Val<Vec<Name>>,
    pub keys: Val<Vec<Name>>,
    pub passwords: Val<Arc<Vec<Vec<u8>>>>,
    pub cache: Val<Option<CacheRule>>,
    pub protocols: Val<Protocols>,
    pub ciphers: Val<String>,
    pub prefer_server_ciphers: Val<bool>,
    pub curve: Val<String>,
    pub dhparam: Val<Vec<u8>>,
    pub commands: Val<Vec<(String, String)>>,
    pub buffer_size: Val<u64>,
    pub verify: Val<VerifyClient>,
    pub verify_depth: Val<u64>,
    pub client_certificate: Val<Vec<u8>>,
    pub trusted_certificate: Val<Vec<u8>>,
    pub crl: Val<Vec<u8>>,
    pub builtin: Val<Builtin>,
    pub zone: Val<Option<Arc<Zone>>>,
    pub session_timeout: Val<u64>,
    pub session_tickets: Val<bool>,
    pub ticket_keys: Val<Vec<Vec<u8>>>,
    pub early_data: Val<bool>,
    /// Of `stream`: the protocols that clients may choose from, and the longest time for a handshake.
    pub alpn: Val<Vec<Vec<u8>>>,
    pub handshake_timeout: Val<u64>,
    pub reject_handshake: Val<bool>,
    pub compression: Val<bool>,
    pub ocsp: Val<Mode>,
    pub ocsp_responder: Val<String>,
    pub ocsp_cache: Val<Option<Arc<Cache>>>,
    pub stapling: Val<bool>,
    pub stapling_file: Val<Vec<u8>>,
    pub stapling_responder: Val<String>,
    pub stapling_verify: Val<bool>,
    /// The responder of `ocsp_responder`.
    pub client_responder: OnceLock<Option<Responder>>,
    /// What is fetched for this server's certificates.
    pub staples: OnceLock<Vec<Fetched>>,
    /// Certificates that handshakes have loaded by names with variables.
    pub loaded: Arc<Loaded>,
}

impl ConfType for SslSrv {
    const LEVEL: Level = Level::Server;
    slot!();

    fn merge(&mut self, parent: &SslSrv) -> ConfResult {
        self.places.merge(&parent.places);
        merge_values!(self, parent;
            certificates = Vec::new(),
            keys = Vec::new(),
            passwords = Arc::default(),
            cache = None,
            protocols = Protocols::default(),
            ciphers = DEFAULT_CIPHERS.to_string(),
            prefer_server_ciphers = false,
            curve = "auto".to_string(),
            dhparam = Vec::new(),
            commands = Vec::new(),
            buffer_size = 16384,
            verify = VerifyClient::Off,
            verify_depth = 1,
            client_certificate = Vec::new(),
            trusted_certificate = Vec::new(),
            crl = Vec::new(),
            builtin = Builtin::None,
            zone = None,
            session_timeout = 300,
            session_tickets = true,
            ticket_keys = Vec::new(),
            early_data = false,
            alpn = Vec::new(),
            handshake_timeout = 60_000,
            reject_handshake = false,
            compression = false,
            ocsp = Mode::Off,
            ocsp_responder = String::new(),
            ocsp_cache = None,
            stapling = false,
            stapling_file = Vec::new(),
            stapling_responder = String::new(),
            stapling_verify = false,
        );
        Ok(())
    }
}

/// `http` or `stream` level: where relative names start, and the zones of sessions with their sizes.
#[derive(Default)]
pub struct SslMain {
    pub prefix: std::path::PathBuf,
    pub zones: std::collections::BTreeMap<String, (u64, Arc<Zone>)>,
}

impl ConfType for SslMain {
    const LEVEL: Level = Level::Main;
    slot!();
}
