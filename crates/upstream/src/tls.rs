//! TLS towards servers, for every module that talks to one: what is offered, made once from a
//! location's configuration, and how what the server shows is judged.
//!
//! As in nginx nothing is verified unless the configuration says so, and then after the handshake.

use crate::handed::HandedSession;
use crate::sessions::Sessions;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use weir_base::copies::Own;
use weir_core::counts::Unverified;
use weir_core::tls::files::{Names, Sought};
use weir_runtime::clock;
use weir_tls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use weir_tls::rustls::client::{ResolvesClientCert, Resumption, UnbufferedClientConnection};
use weir_tls::rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use weir_tls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use weir_tls::rustls::sign::CertifiedKey;
use weir_tls::rustls::{
    self, ClientConfig, DigitallySignedStruct, KeyLog, SignatureScheme, SupportedProtocolVersion,
};
use weir_tls::server::{algorithms, signature};
use weir_tls::x509::chain::{self, Purpose, Trust};
use weir_tls::x509::Cert;
use weir_tls::{Session, RECORD_MAX_BYTES};

/// What a configuration says.
pub struct Settings {
    /// With the ciphers that are offered.
    pub provider: Arc<CryptoProvider>,
    /// That are offered.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// Shown to servers that ask for one.
    pub certificate: Option<Arc<CertifiedKey>>,
    /// The server's certificate is judged.
    pub verify: bool,
    /// By what.
    pub trust: Trust,
    /// Sessions are resumed.
    pub session_reuse: bool,
    /// The name is sent (SNI).
    pub server_name: bool,
    /// Where the sessions' secrets are written.
    pub key_log: Option<Arc<dyn KeyLog>>,
    /// HTTP/2 is offered, by ALPN.
    pub h2: bool,
}

/// The TLS of a location's connections to servers.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// Never another's, as an address would be that was given back at a reload.
    number: u64,
    versions: Vec<u16>,
    config: Arc<ClientConfig>,
    verify: bool,
    trust: Arc<Trust>,
}

/// One request's side of it.
#[derive(Clone)]
pub struct Wanted {
    /// Its location's, this thread's copy.
    pub tls: Arc<Own<ClientTls>>,
    /// The server's name, without a port.
    pub name: Vec<u8>,
    /// A certificate of this request's own, read for each connection that is made.
    pub own: Option<Arc<Sought>>,
    /// Connections are used again only by requests that want the same.
    pub mark: u64,
    /// What is offered by ALPN, where that is the session's own choice.
    pub alpn: Vec<Vec<u8>>,
}

/// What a server is shown that asks for a certificate.
#[derive(Clone, Debug, Default)]
pub enum Show {
    /// What the configuration says.
    #[default]
    Usual,
    /// Nothing.
    Nothing,
    /// This. No earlier session is gone on with: it may have been another's.
    This(Arc<CertifiedKey>),
}

/// Shows nothing.
#[derive(Debug)]
struct Nobody;

impl ResolvesClientCert for Nobody {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// What is one session's own.
#[derive(Default)]
pub struct Chosen {
    /// What the server is shown.
    pub show: Show,
    /// Sessions are kept there, and nowhere else.
    pub handed: Option<Arc<HandedSession>>,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Shows one certificate to whoever asks for one.
#[derive(Debug)]
pub struct Shown(pub Arc<CertifiedKey>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes).map(|_| Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ClientTls {
    /// Makes it of what a configuration says.
    ///
    /// # Errors
    ///
    /// The versions and ciphers do not go together.
    pub fn new(s: Settings) -> Result<ClientTls, String> {
        let sessions = s.session_reuse.then(|| Arc::new(Sessions::default()));
        let builder = ClientConfig::builder_with_provider(s.provider)
            .with_protocol_versions(&s.versions)
            .map_err(|e| e.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer {
                algorithms: algorithms(),
                sessions: sessions.clone(),
            }));
        let mut config = match s.certificate {
            Some(pair) => builder.with_client_cert_resolver(Arc::new(Shown(pair))),
            None => builder.with_no_client_auth(),
        };
        config.enable_sni = s.server_name;
        // As nginx: no compressed certificates towards servers, in neither direction.
        config.cert_compressors = Vec::new();
        config.cert_decompressors = Vec::new();
        config.resumption = match sessions {
            Some(sessions) => Resumption::store(sessions),
            None => Resumption::disabled(),
        };
        if let Some(log) = s.key_log {
            config.key_log = log;
        }
        if s.h2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Ok(ClientTls {
            number,
            versions: s.versions.iter().map(|v| v.version.into()).collect(),
            config: Arc::new(config),
            verify: s.verify,
            trust: Arc::new(s.trust),
        })
    }
}

/// What tells apart whose connections may be used by whom: the configuration, the name that is
/// asked for, and the request's own certificate and key. Never 0, which is a plain connection's.
/// The hash is keyed, because names may come from clients.
fn mark(number: u64, name: &[u8], files: Option<&Names>) -> u64 {
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    KEYS.get_or_init(RandomState::new).hash_one((number, name, files)) | 1
}

impl Wanted {
    /// `own` is a certificate of this request's own, which is none if its name is empty.
    pub fn new(tls: Arc<Own<ClientTls>>, name: Vec<u8>, own: Option<Sought>) -> Wanted {
        let mark = mark(tls.number, &name, own.as_ref().map(|o| &o.names));
        let own = own.filter(|o| !o.names.0.is_empty()).map(Arc::new);
        Wanted { tls, name, own, mark, alpn: Vec::new() }
    }

    /// A session that is to begin, with what was read of the request's own certificate.
    pub fn session(&self, certificate: Option<Arc<CertifiedKey>>) -> Result<Session, String> {
        let show = certificate.map_or(Show::Usual, Show::This);
        self.session_of(Chosen { show, handed: None })
    }

    /// The same with what code has chosen.
    pub fn session_of(&self, chosen: Chosen) -> Result<Session, String> {
        let mut config = Arc::clone(&self.tls.config);
        let text = String::from_utf8_lossy(&self.name).into_owned();
        let name = ServerName::try_from(text.trim_matches(['[', ']']).to_string());
        let name = match name {
            Ok(name) => name,
            // No name that could be sent; the address stands in for it.
            Err(_) => {
                let mut quiet = ClientConfig::clone(&config);
                quiet.enable_sni = false;
                quiet.resumption = Resumption::disabled();
                config = Arc::new(quiet);
                ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into())
            }
        };
        if !self.alpn.is_empty() {
            let mut own = ClientConfig::clone(&config);
            own.alpn_protocols.clone_from(&self.alpn);
            config = Arc::new(own);
        }
        if let Some(handed) = chosen.handed {
            let mut own = ClientConfig::clone(&config);
            own.resumption = Resumption::store(handed);
            config = Arc::new(own);
        }
        let resolver: Option<Arc<dyn ResolvesClientCert>> = match chosen.show {
            Show::Usual => None,
            Show::Nothing => Some(Arc::new(Nobody)),
            Show::This(pair) => Some(Arc::new(Shown(pair))),
        };
        if let Some(resolver) = resolver {
            let mut own = ClientConfig::clone(&config);
            own.client_auth_cert_resolver = resolver;
            own.resumption = Resumption::disabled();
            config = Arc::new(own);
        }
        let conn = UnbufferedClientConnection::new(config, name).map_err(|e| e.to_string())?;
        Ok(Session::client(conn, RECORD_MAX_BYTES))
    }

    /// Judges what the server has shown, in nginx's words.
    pub fn judge(&self, session: &Session) -> Result<(), (Unverified, String)> {
        if !self.tls.verify {
            return Ok(());
        }
        let now = clock::wall_secs();
        session.with(|tls| {
            let chain = tls.peer_certificates().unwrap_or_default();
            let verdict =
                chain::verify(chain, &self.tls.trust, Purpose::Server, now, &algorithms());
            verdict.map_err(|e| {
                let (number, text) = (e.number(), e.text());
                let line = format!("upstream SSL certificate verify error: ({number}:{text})");
                (Unverified::of_number(number), line)
            })?;
            self.is_named(chain)
        })
    }

    /// The same of the name alone, where others judge the rest.
    pub fn judge_name(&self, session: &Session) -> Result<(), (Unverified, String)> {
        match self.tls.verify {
            true => session.with(|tls| self.is_named(tls.peer_certificates().unwrap_or_default())),
            false => Ok(()),
        }
    }

    fn is_named(&self, chain: &[CertificateDer<'_>]) -> Result<(), (Unverified, String)> {
        let leaf = chain.first().and_then(|c| Cert::parse(c));
        match leaf.is_some_and(|c| chain::is_for_host(&c, &self.name)) {
            true => Ok(()),
            false => {
                let shown = String::from_utf8_lossy(&self.name);
                let line = format!("upstream SSL certificate does not match \"{shown}\"");
                Err((Unverified::OtherHost, line))
            }
        }
    }

    /// Whether its certificate is verified.
    pub fn verifies(&self) -> bool {
        self.tls.verify
    }

    /// The version that is spoken, where there is one alone.
    pub fn version(&self) -> Option<u16> {
        match self.tls.versions[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// A mark of a connection that is for nobody else.
    pub fn mark_of_none() -> u64 {
        mark(NUMBERS.fetch_add(1, Ordering::Relaxed), b"", None)
    }
}

/// Takes any certificate whose key the server has: it is judged after the handshake.
#[derive(Debug)]
pub struct AnyServer {
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
    pub(crate) sessions: Option<Arc<Sessions>>,
}

/// Without sessions that are kept.
impl Default for AnyServer {
    fn default() -> AnyServer {
        AnyServer { algorithms: algorithms(), sessions: None }
    }
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(sessions) = &self.sessions {
            sessions.shown(name, leaf, rest);
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        signature(cert, message, signed, &self.algorithms, false)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        signature(cert, message, signed, &self.algorithms, true)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Arc<Own<ClientTls>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let settings = Settings {
            provider,
            versions: rustls::ALL_VERSIONS.to_vec(),
            certificate: None,
            verify: false,
            trust: Trust::default(),
            session_reuse: true,
            server_name: true,
            key_log: None,
            h2: false,
        };
        weir_base::copies::Copies::new(ClientTls::new(settings).unwrap()).get()
    }

    /// A configuration that comes after another has gone may lie where that one lay.
    #[test]
    fn marks_are_never_another_configurations() {
        let name = || b"a.test".to_vec();
        let mark = |tls: Arc<Own<ClientTls>>| Wanted::new(tls, name(), None).mark;
        let marks: std::collections::HashSet<u64> = (0..64).map(|_| mark(made())).collect();
        assert_eq!(marks.len(), 64);
        let one = made();
        let own = |c: &[u8], k: &[u8]| Sought {
            names: (c.to_vec(), k.to_vec()),
            passwords: Arc::default(),
            rule: None,
            prefix: std::path::PathBuf::new(),
            loaded: Arc::default(),
        };
        let with = |own| Wanted::new(Arc::clone(&one), name(), own).mark;
        assert_eq!(mark(Arc::clone(&one)), with(None));
        assert_ne!(with(Some(own(b"c", b"k"))), with(None));
        assert_ne!(with(Some(own(b"c", b"k"))), with(Some(own(b"ck", b""))));
        assert_ne!(Wanted::new(Arc::clone(&one), b"b.test".to_vec(), None).mark, with(None));
    }
}
