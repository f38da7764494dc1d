//! TLS towards servers as a configuration says it, the same for every module that has `NAME_ssl_…`
//! directives; the module keeps an [`Outgoing`] in its slot and calls these.

use crate::tls::{ClientTls, Settings, Wanted};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use weir_base::bytes;
use weir_base::copies::Copies;
use weir_core::logger::{self, LogFile};
use weir_core::tls::files::{reader, value, CacheRule, Loaded, Name, Sought};
use weir_core::tls::words::{refusal, Places};
use weir_core::Session;
use weir_module::{merge_values, Cf, ConfResult, Diagnostic, Mode, Val};
use weir_script::template::Template;
use weir_tls::load;
use weir_tls::offer::{Protocols, Words};
use weir_tls::rustls::KeyLog;
use weir_tls::x509::chain::Trust;

/// The directives' values at one level.
#[derive(Default)]
#[allow(missing_docs)] // Each is the directive of its name.
pub struct Outgoing {
    pub places: Places,
    pub session_reuse: Val<bool>,
    pub protocols: Val<Protocols>,
    pub ciphers: Val<String>,
    pub name: Val<Option<Arc<Template>>>,
    pub server_name: Val<bool>,
    pub verify: Val<bool>,
    pub verify_depth: Val<u64>,
    pub trusted_certificate: Val<Vec<u8>>,
    pub crl: Val<Vec<u8>>,
    pub certificate: Val<Option<Name>>,
    pub key: Val<Option<Name>>,
    pub cache: Val<Option<CacheRule>>,
    pub passwords: Val<Arc<Vec<Vec<u8>>>>,
    pub commands: Val<Vec<(String, String)>>,
    pub key_log: Val<Option<PathBuf>>,
    loaded: Arc<Loaded>,
    /// Made when the configuration is built, where it is used.
    made: OnceLock<Made>,
}

struct Made {
    tls: Copies<ClientTls>,
    /// The directory of the main configuration file.
    prefix: PathBuf,
}

impl Outgoing {
    /// Fills what this level left unset.
    pub fn merge(&mut self, parent: &Outgoing) {
        self.places.merge(&parent.places);
        merge_values!(self, parent;
            session_reuse = true,
            protocols = Protocols::default(),
            ciphers = "DEFAULT".to_string(),
            name = None,
            server_name = false,
            verify = false,
            verify_depth = 1,
            trusted_certificate = Vec::new(),
            crl = Vec::new(),
            certificate = None,
            key = None,
            cache = None,
            passwords = Arc::default(),
            commands = Vec::new(),
            key_log = None,
        );
    }

    /// Without what is said already: a server that is verified has to show a certificate that is trusted.
    fn own_commands(&self) -> Vec<(String, String)> {
        let is_said = |(name, value): &&(String, String)| {
            let is_mode = name.eq_ignore_ascii_case("VerifyMode");
            *self.verify && is_mode && value.eq_ignore_ascii_case("Peer")
        };
        self.commands.iter().filter(|c| !is_said(c)).cloned().collect()
    }

    fn pair(&self) -> Option<(&Name, &Name)> {
        let certificate = self.certificate.as_ref().filter(|n| !n.text.is_empty())?;
        Some((certificate, self.key.as_ref()?))
    }

    /// Reads the files and makes what connections begin with. `what` is the directives' prefix; with
    /// `h2` HTTP/2 alone is offered, by ALPN.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or the words cannot be taken.
    pub fn build(&self, cf: &mut Cf, what: &str, h2: bool) -> ConfResult {
        let fail = |text: String| Diagnostic::emerg(text);
        let words = Words {
            protocols: *self.protocols,
            ciphers: String::clone(&self.ciphers),
            prefer_own: false,
            curves: "auto".to_string(),
            commands: self.own_commands(),
        };
        let offer = words.resolve().map_err(refusal)?;
        cf.warnings.extend(offer.notes.iter().map(|n| self.places.warning(what, n)));
        let certificate = self.certificate.as_ref().filter(|n| !n.text.is_empty());
        if certificate.is_some() && self.key.is_none() {
            let shown = certificate.map(|n| String::from_utf8_lossy(&n.text).into_owned());
            let shown = shown.unwrap_or_default();
            let text =
                format!("no \"{what}_certificate_key\" is defined for certificate \"{shown}\"");
            let hint = format!("add {what}_certificate_key FILE;");
            return Err(fail(text).hint(hint));
        }
        let named = match (&offer.certificate, &offer.key) {
            (Some(c), Some(k)) => Some((c.clone().into_bytes(), k.clone().into_bytes())),
            _ => self
                .pair()
                .filter(|(c, k)| c.template.is_none() && k.template.is_none())
                .map(|(c, k)| (c.text.clone(), k.text.clone())),
        };
        let certificate = match named {
            None => None,
            Some((c, k)) => {
                Some(Arc::new(load::pair(&c, &k, &self.passwords, &mut reader(cf)).map_err(fail)?))
            }
        };
        let mut trust = Trust { depth: *self.verify_depth as usize, ..Trust::default() };
        if *self.verify {
            if self.trusted_certificate.is_empty() {
                let text = format!("no {what}_trusted_certificate for {what}_verify");
                let hint =
                    format!("add {what}_trusted_certificate FILE; with the authorities of servers");
                return Err(fail(text).hint(hint));
            }
            trust.roots =
                load::trusted(&self.trusted_certificate, &mut reader(cf)).map_err(fail)?;
            if !self.crl.is_empty() {
                trust.crls = load::crls(&self.crl, &mut reader(cf)).map_err(fail)?;
            }
        }
        let key_log = match &*self.key_log {
            None => None,
            Some(path) => Some(KeyFile::open(cf.mode, path)?),
        };
        let settings = Settings {
            provider: offer.provider,
            versions: offer.versions,
            certificate,
            verify: *self.verify,
            trust,
            session_reuse: *self.session_reuse,
            server_name: *self.server_name,
            key_log,
            h2,
        };
        let made = Made {
            tls: Copies::new(ClientTls::new(settings).map_err(fail)?),
            prefix: cf.conf_prefix.clone(),
        };
        // Only this function sets it.
        let _ = self.made.set(made);
        Ok(())
    }

    /// What this request's connection wants; `host` is the server's name unless the configuration
    /// gives another. Nothing, where no build step has made it.
    pub fn wanted<S: Session>(&self, r: &mut S, host: &[u8]) -> Option<Wanted> {
        let Made { tls, prefix } = self.made.get()?;
        let tls = tls.get();
        let name = match &*self.name {
            Some(template) => r.eval(template),
            None => host.to_vec(),
        };
        let name = without_port(&name).to_vec();
        let varying = self.pair().filter(|(c, k)| c.template.is_some() || k.template.is_some());
        let own = varying.map(|(c, k)| Sought {
            names: (value(r, c), value(r, k)),
            passwords: Arc::clone(&self.passwords),
            rule: *self.cache,
            prefix: prefix.clone(),
            loaded: Arc::clone(&self.loaded),
        });
        Some(Wanted::new(tls, name, own))
    }
}

impl Outgoing {
    /// As [`Outgoing::wanted`], of a server whose name code has chosen; an empty one is not sent.
    pub fn wanted_for(&self, name: &[u8]) -> Option<Wanted> {
        Some(Wanted::new(self.made.get()?.tls.get(), name.to_vec(), None))
    }

    /// Whether the certificate that servers are shown depends on the request.
    pub fn varies(&self) -> bool {
        self.pair().is_some_and(|(c, k)| c.template.is_some() || k.template.is_some())
    }
}

/// A name may come with a port, as `$proxy_host` does.
fn without_port(name: &[u8]) -> &[u8] {
    let from = name.iter().position(|b| *b == b']').unwrap_or(0);
    match name[from..].iter().position(|b| *b == b':') {
        Some(at) => &name[..from + at],
        None => name,
    }
}

/// Keys in the form that traffic analysers read (`NSS key log`): a log as all others are, opened
/// and handed on by the master, and opened again when they are.
struct KeyFile(Arc<LogFile>);

impl KeyFile {
    fn open(mode: Mode, path: &std::path::Path) -> ConfResult<Arc<dyn KeyLog>> {
        match logger::log_file_for(mode, path) {
            Ok(file) => Ok(Arc::new(KeyFile(file))),
            Err(e) => {
                let why = weir_core::os_text(&e);
                Err(Diagnostic::emerg(format!("open() \"{}\" failed ({why})", path.display())))
            }
        }
    }
}

impl std::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyFile")
    }
}

impl KeyLog for KeyFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = label.as_bytes().to_vec();
        for part in [client_random, secret] {
            line.push(b' ');
            bytes::push_hex(&mut line, part);
        }
        line.push(b'\n');
        // A log that cannot be written is no reason to stop serving.
        let _ = self.0.write(&line);
    }
}
