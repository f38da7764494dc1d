//! What a `server` says about its TLS.

use super::ocsp::{Cache, Mode, Responder};
use super::stapling::Fetched;
use std::sync::Arc;
use weir_conf::{Position, Span};
use weir_module::{
    merge_values, slot, ArgsExt, Cf, ConfResult, ConfType, Diagnostic, Directive, Level, Val,
};
use weir_script::template::Template;
use weir_tls::offer::{About, Note, Protocols};
use weir_tls::server::VerifyClient;
use weir_tls::sessions::Zone;

/// nginx's default.
pub const DEFAULT_CIPHERS: &str = "HIGH:!aNULL:!MD5";

/// A file's name, and the same compiled when it has variables.
#[derive(Clone)]
pub struct Name {
    pub text: Vec<u8>,
    pub template: Option<Arc<Template>>,
}

impl Name {
    pub fn of(cf: &mut Cf, d: &Directive, i: usize) -> ConfResult<Name> {
        let text = d.arg(i).to_vec();
        // What stands in the configuration itself is taken as it is.
        let template = match text.contains(&b'$') {
            true => Some(Arc::new(weir_http::vars::template(cf, d, i)?)),
            false => None,
        };
        Ok(Name { text, template })
    }
}

/// `ssl_certificate_cache`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRule {
    pub max: usize,
    pub inactive_secs: u64,
    pub valid_secs: u64,
}

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

/// Where the directives stand that may be taken in part; a value is inherited with its place.
#[derive(Clone, Copy, Default)]
pub struct Places([Option<(Position, Span)>; About::COUNT]);

impl Places {
    /// The first of several that say something together is the one.
    pub fn keep(&mut self, about: About, d: &Directive) {
        self.0[about as usize].get_or_insert((d.position(), d.name.span));
    }

    pub fn merge(&mut self, parent: &Places) {
        for (own, outer) in self.0.iter_mut().zip(parent.0) {
            *own = own.or(outer);
        }
    }

    /// A warning of the directive `PREFIX_…`, at its place.
    pub fn warning(&self, prefix: &str, note: &Note) -> Diagnostic {
        let text = format!("\"{prefix}_{}\": {}", note.about.suffix(), note.text);
        let w = Diagnostic::warn(text);
        match self.0[note.about as usize] {
            Some((at, span)) => w.at(at).point(span),
            None => w,
        }
    }
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
    pub dhparam: Val<String>,
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
    pub client_responder: Option<Responder>,
    /// What is fetched for this server's certificates.
    pub staples: Vec<Fetched>,
    /// Certificates that handshakes have loaded by names with variables.
    pub loaded: Arc<super::certs::Loaded>,
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
            dhparam = String::new(),
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

/// The passwords of a file, one on a line.
pub fn read_passwords(cf: &mut Cf, d: &Directive) -> ConfResult<Arc<Vec<Vec<u8>>>> {
    let path = cf.full_conf_path(d.arg(0));
    let text = cf.read_file(&path).map_err(|e| {
        let why = weir_core::os_text(&e);
        d.bad(0, format!("open() \"{}\" failed ({why})", path.display()))
    })?;
    Ok(Arc::new(weir_tls::pem::passwords(&text)))
}

/// `http` level: where relative names start.
#[derive(Default)]
pub struct SslMain {
    pub prefix: std::path::PathBuf,
}

impl ConfType for SslMain {
    const LEVEL: Level = Level::Main;
    slot!();
}
