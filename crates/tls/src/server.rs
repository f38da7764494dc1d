//! What one `server` offers to TLS clients, made once from its configuration.

use crate::offer::Protocols;
use crate::session_id::Ids;
use crate::sessions::{Handed, Store, TicketKeys, Tickets, Zone};
use crate::staple::Staple;
use crate::x509::chain::Trust;
use crate::x509::Cert;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, StoresServerSessions};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, ProtocolVersion, ServerConfig,
    SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
};
use std::sync::Arc;

/// `ssl_verify_client`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VerifyClient {
    #[default]
    Off,
    On,
    Optional,
    OptionalNoCa,
}

/// The algorithms certificates and handshakes are verified with.
pub fn algorithms() -> WebPkiSupportedAlgorithms {
    rustls::crypto::ring::default_provider().signature_verification_algorithms
}

/// The provider with other suites and curves.
pub fn provider(
    suites: Vec<SupportedCipherSuite>,
    groups: Vec<&'static dyn SupportedKxGroup>,
) -> Arc<CryptoProvider> {
    let base = rustls::crypto::ring::default_provider();
    Arc::new(CryptoProvider { cipher_suites: suites, kx_groups: groups, ..base })
}

/// A private key that can sign, if it is of a kind that is known.
pub fn signing_key(key: &PrivateKeyDer<'_>) -> Option<Arc<dyn SigningKey>> {
    rustls::crypto::ring::sign::any_supported_type(key).ok()
}

/// A certificate chain with its key, or what is wrong with them.
pub fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, String> {
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|e| e.to_string())?;
    let spki = key.public_key();
    let leaf = chain.first().and_then(|c| Cert::parse(c)).ok_or("no certificate")?;
    if spki.is_some_and(|s| s.as_ref() != leaf.spki) {
        return Err("key values mismatch".to_string());
    }
    Ok(CertifiedKey::new(chain, key))
}

/// A certificate with its key, and where the responder's answer to go with it is kept.
#[derive(Clone, Debug)]
pub struct Offered {
    pub pair: Arc<CertifiedKey>,
    pub staple: Option<Arc<Staple>>,
}

impl From<Arc<CertifiedKey>> for Offered {
    fn from(pair: Arc<CertifiedKey>) -> Offered {
        Offered { pair, staple: None }
    }
}

impl Offered {
    fn shown(&self) -> Arc<CertifiedKey> {
        self.staple.as_ref().map_or_else(|| Arc::clone(&self.pair), Staple::pair)
    }
}

/// Chooses among certificates of several kinds by what the client can verify.
#[derive(Debug)]
pub struct Certificates(pub Vec<Offered>);

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if let [one] = &self.0[..] {
            return Some(one.shown());
        }
        let of = |scheme: &SignatureScheme| {
            self.0.iter().find(|c| c.pair.key.choose_scheme(&[*scheme]).is_some())
        };
        hello.signature_schemes().iter().find_map(of).or(self.0.first()).map(Offered::shown)
    }
}

/// Everything that makes a server's TLS.
pub struct Settings {
    pub provider: Arc<CryptoProvider>,
    pub versions: Vec<&'static SupportedProtocolVersion>,
    pub certificates: Vec<Offered>,
    /// What they are called in the configuration; with variables that is all there is of them.
    pub names: Vec<Vec<u8>>,
    pub prefer_own_ciphers: bool,
    pub record: usize,
    pub verify: VerifyClient,
    /// Whom certificates are asked of, by name.
    pub hints: Vec<CertificateDer<'static>>,
    pub trust: Trust,
    pub zone: Option<Arc<Zone>>,
    pub tickets: bool,
    pub ticket_keys: Option<Arc<TicketKeys>>,
    pub session_timeout_secs: u64,
    pub early_data: bool,
    /// The protocols that clients may choose from (ALPN), the first one first; HTTP's without a list.
    pub alpn: Option<Vec<Vec<u8>>>,
    pub reject: bool,
    pub compress_certificates: bool,
}

/// A server's TLS, ready to accept.
#[derive(Debug)]
pub struct Server {
    /// With and without `h2` among the protocols.
    pub http1: Arc<ServerConfig>,
    pub http2: Arc<ServerConfig>,
    pub record: usize,
    pub reject: bool,
    provider: Arc<CryptoProvider>,
    versions: Vec<&'static SupportedProtocolVersion>,
    asks: bool,
    hints: Vec<DistinguishedName>,
    context: [u8; 32],
    session_timeout_secs: u64,
}

/// What is another's in one handshake than what its server offers.
#[derive(Default)]
pub struct Changes {
    pub certificates: Option<Arc<dyn ResolvesServerCert>>,
    /// Of the server's versions, these.
    pub protocols: Option<Protocols>,
    pub sessions: Option<Arc<dyn StoresServerSessions>>,
    /// A responder's answer to go with the certificate.
    pub staple: Option<Vec<u8>>,
    /// A certificate is asked of the client, by the names of those who may have signed it.
    pub asks: Option<Vec<CertificateDer<'static>>>,
}

/// Early data is accepted up to this.
const EARLY_DATA_MAX_BYTES: u32 = 16384;

impl Server {
    pub fn new(s: Settings) -> Result<Server, String> {
        let context = s.context();
        let hints = names(&s.hints);
        let asks = s.verify != VerifyClient::Off;
        let certificates = Arc::new(Certificates(s.certificates));
        let mut config =
            begun(&s.provider, &s.versions, asks.then_some(hints.clone()), certificates)?;
        config.ignore_client_order = s.prefer_own_ciphers;
        config.key_log = Arc::new(Ids);
        config.max_fragment_size = Some(s.record.clamp(32, crate::RECORD_MAX_BYTES) + 5);
        config.session_storage = match &s.zone {
            Some(zone) => Arc::new(Store {
                zone: Arc::clone(zone),
                context,
                timeout_secs: s.session_timeout_secs,
            }),
            None => Arc::new(rustls::server::NoServerSessionStorage {}),
        };
        // Early data is for sessions that the server itself remembers, so that none is used twice.
        if s.early_data {
            config.max_early_data_size = EARLY_DATA_MAX_BYTES;
            config.send_half_rtt_data = true;
        } else if s.tickets {
            let keys = s.ticket_keys.unwrap_or_default();
            config.ticketer =
                Arc::new(Tickets { keys, context, timeout_secs: s.session_timeout_secs });
        }
        // Only ever this way: a client's compressed certificate would be memory that it decides on.
        config.cert_decompressors = Vec::new();
        if !s.compress_certificates {
            config.cert_compressors = Vec::new();
        }
        let is_http = s.alpn.is_none();
        config.alpn_protocols = s.alpn.unwrap_or_else(|| {
            [&b"http/1.1"[..], b"http/1.0", b"http/0.9"].map(<[u8]>::to_vec).into()
        });
        let mut http2 = config.clone();
        if is_http {
            http2.alpn_protocols.insert(0, b"h2".to_vec());
        }
        Ok(Server {
            http1: Arc::new(config),
            http2: Arc::new(http2),
            record: s.record,
            reject: s.reject,
            provider: s.provider,
            versions: s.versions,
            asks,
            hints,
            context,
            session_timeout_secs: s.session_timeout_secs,
        })
    }

    /// The suites that it speaks, by their numbers.
    pub fn suites(&self) -> impl Iterator<Item = u16> + '_ {
        self.provider.cipher_suites.iter().map(|s| s.suite().into())
    }

    /// Sessions of one handshake that somebody else keeps besides.
    pub fn handed(&self) -> Handed {
        let below = Arc::clone(&self.http1.session_storage);
        Handed::new(below, self.context, self.session_timeout_secs)
    }

    /// Whether it speaks TLS 1.3, of those protocols if there are any.
    pub fn has_tls13(&self, protocols: Option<Protocols>) -> bool {
        let is_it = |v: &&&'static SupportedProtocolVersion| {
            v.version == ProtocolVersion::TLSv1_3 && protocols.is_none_or(|p| p.has(v))
        };
        self.versions.iter().any(|v| is_it(&v))
    }

    /// What is offered in one handshake that differs from the others.
    ///
    /// # Errors
    ///
    /// None of the server's versions is left.
    pub fn changed(&self, http2: bool, changes: Changes) -> Result<Arc<ServerConfig>, String> {
        let usual = if http2 { &self.http2 } else { &self.http1 };
        let certificates = changes.certificates.unwrap_or_else(|| Arc::clone(&usual.cert_resolver));
        let mut own = match (changes.protocols, changes.asks) {
            (None, None) => ServerConfig::clone(usual),
            (protocols, asks) => {
                let is_left =
                    |v: &&&'static SupportedProtocolVersion| protocols.is_none_or(|p| p.has(v));
                let versions: Vec<_> = self.versions.iter().filter(is_left).copied().collect();
                if versions.is_empty() {
                    return Err("no protocols available".to_string());
                }
                let own_hints = || self.asks.then(|| self.hints.clone());
                let hints = asks.map_or_else(own_hints, |asks| Some(names(&asks)));
                let fresh =
                    begun(&self.provider, &versions, hints, Arc::clone(&usual.cert_resolver))?;
                like(fresh, usual)
            }
        };
        own.cert_resolver = match changes.staple {
            None => certificates,
            Some(answer) => Arc::new(Stapled { certificates, answer }),
        };
        if let Some(sessions) = changes.sessions {
            own.session_storage = sessions;
        }
        Ok(Arc::new(own))
    }
}

/// Certificates with a responder's answer.
#[derive(Debug)]
struct Stapled {
    certificates: Arc<dyn ResolvesServerCert>,
    answer: Vec<u8>,
}

impl ResolvesServerCert for Stapled {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut pair = CertifiedKey::clone(&*self.certificates.resolve(hello)?);
        pair.ocsp = Some(self.answer.clone());
        Some(Arc::new(pair))
    }
}

/// The names of certificates, each once.
fn names(certificates: &[CertificateDer<'_>]) -> Vec<DistinguishedName> {
    let mut names: Vec<DistinguishedName> = Vec::new();
    for cert in certificates.iter().filter_map(|c| Cert::parse(c)) {
        if names.iter().all(|h| h.as_ref() != cert.subject) {
            names.push(cert.subject.to_vec().into());
        }
    }
    names
}

/// A configuration that asks clients for certificates if there are `hints`.
fn begun(
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    hints: Option<Vec<DistinguishedName>>,
    certificates: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, String> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)
        .map_err(|e| e.to_string())?;
    let builder = match hints {
        None => builder.with_no_client_auth(),
        Some(hints) => builder.with_client_cert_verifier(Arc::new(AnyClient {
            hints,
            asks: true,
            algorithms: provider.signature_verification_algorithms,
        })),
    };
    Ok(builder.with_cert_resolver(certificates))
}

/// A configuration with what another has, as far as that is not what it begins with.
fn like(mut own: ServerConfig, other: &ServerConfig) -> ServerConfig {
    own.ignore_client_order = other.ignore_client_order;
    own.max_fragment_size = other.max_fragment_size;
    own.session_storage = Arc::clone(&other.session_storage);
    own.ticketer = Arc::clone(&other.ticketer);
    own.alpn_protocols.clone_from(&other.alpn_protocols);
    own.key_log = Arc::clone(&other.key_log);
    own.max_early_data_size = other.max_early_data_size;
    own.send_half_rtt_data = other.send_half_rtt_data;
    own.cert_compressors.clone_from(&other.cert_compressors);
    own.cert_decompressors.clone_from(&other.cert_decompressors);
    own
}

impl Settings {
    /// What sessions are bound to: they are resumed where certificate and verification are the same.
    fn context(&self) -> [u8; 32] {
        let mut all = ring::digest::Context::new(&ring::digest::SHA256);
        all.update(&[self.verify as u8]);
        // Those of HTTP are its own.
        all.update(if self.alpn.is_some() { b"stream" } else { b"" });
        if self.certificates.is_empty() {
            self.names.iter().for_each(|n| all.update(n));
        }
        let own = self.certificates.iter().filter_map(|c| c.pair.cert.first());
        for cert in own.chain(&self.hints).chain(&self.trust.roots) {
            all.update(cert);
        }
        all.finish().as_ref().try_into().unwrap_or([0; 32])
    }
}

/// Asks for a certificate and takes any whose key the client has; it is judged after the handshake,
/// because nginx answers a bad one with a page.
#[derive(Debug)]
struct AnyClient {
    hints: Vec<DistinguishedName>,
    asks: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AnyClient {
    fn offer_client_auth(&self) -> bool {
        self.asks
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
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

/// Whether a handshake was signed with a certificate's key.
pub fn signature(
    cert: &CertificateDer<'_>,
    message: &[u8],
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
    is_tls13: bool,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let parsed = Cert::parse_whole(cert).ok_or(CertificateError::BadEncoding)?;
    match parsed.has_signed_handshake(message, signed, algorithms, is_tls13) {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(CertificateError::BadSignature.into()),
    }
}
