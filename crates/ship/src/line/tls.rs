//! TLS towards receivers: what `ssl_…` says in a `ship` block.
//!
//! Unlike nginx towards upstream servers, who is at the other end is verified unless that is switched off: what is sent
//! has names and addresses of people in it, and passwords go before it.

use crate::conf::{draft, Draft};
use std::sync::Arc;
use weir_core::tls::files::{read_passwords, reader};
use weir_core::tls::words;
use weir_module::first::{bytes, flag, text};
use weir_module::{set, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, Val};
use weir_tls::load;
use weir_tls::offer::{About, Protocols, Words};
use weir_tls::rustls::client::Resumption;
use weir_tls::rustls::pki_types::{CertificateDer, ServerName};
use weir_tls::rustls::{ClientConfig, ClientConnection};
use weir_tls::server::algorithms;
use weir_tls::x509::chain::{self, Purpose, Trust};
use weir_tls::x509::Cert;
use weir_upstream::{AnyServer, Shown};

/// How many certificates may stand between a receiver's and the trusted one.
const DEPTH_MAX: usize = 5;

/// What was said.
#[derive(Default)]
pub struct TlsSaid {
    protocols: Val<Protocols>,
    ciphers: Val<String>,
    name: Val<String>,
    verify: Val<bool>,
    trusted: Val<Vec<u8>>,
    certificate: Val<Vec<u8>>,
    key: Val<Vec<u8>>,
    passwords: Val<Arc<Vec<Vec<u8>>>>,
}

/// The names of all rows below, for [`crate::kinds::KindOf::takes`].
pub const NAMES: [&str; 8] = [
    "ssl_protocols",
    "ssl_ciphers",
    "ssl_name",
    "ssl_verify",
    "ssl_trusted_certificate",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_password_file",
];

fn said(cf: &mut Cf) -> &mut TlsSaid {
    draft(cf).settings()
}

pub const ROWS: &[Row] = &[
    Row::new(
        "ssl_protocols",
        Context::SHIP,
        Arity::ONE_MORE,
        "TLSv1.2 TLSv1.3",
        "The versions spoken with a receiver.",
        |cf, d| {
            let set = words::protocols(d)?;
            said(cf).protocols.once(d, set)
        },
    )
    .note("versions below TLSv1.2 are left out with a warning, and refused where they stand alone"),
    Row::new(
        "ssl_ciphers",
        Context::SHIP,
        Arity::ONE,
        "DEFAULT",
        "The suites of TLS 1.2 for a receiver, in OpenSSL's language.",
        set!(said, ciphers, text),
    ),
    Row::new(
        "ssl_name",
        Context::SHIP,
        Arity::ONE,
        "the address's host",
        "The receiver's name, for SNI and verification.",
        set!(said, name, text),
    ),
    Row::new(
        "ssl_verify",
        Context::SHIP,
        Arity::FLAG,
        "on",
        "The receiver's certificate is verified.",
        set!(said, verify, flag),
    ),
    Row::new(
        "ssl_trusted_certificate",
        Context::SHIP,
        Arity::ONE,
        "",
        "Certificates that a receiver's is verified by.",
        set!(said, trusted, bytes),
    ),
    Row::new(
        "ssl_certificate",
        Context::SHIP,
        Arity::ONE,
        "",
        "The certificate that a receiver is shown.",
        set!(said, certificate, bytes),
    ),
    Row::new(
        "ssl_certificate_key",
        Context::SHIP,
        Arity::ONE,
        "",
        "Its key.",
        set!(said, key, bytes),
    )
    .note("engine: and store: are refused, because rustls takes keys from files"),
    Row::new(
        "ssl_password_file",
        Context::SHIP,
        Arity::ONE,
        "",
        "Passwords of encrypted keys, one on a line.",
        |cf, d| {
            let list = read_passwords(cf, d)?;
            said(cf).passwords.once(d, list)
        },
    ),
];

/// Refuses what nothing would come of: `ssl_…` where no address has TLS.
///
/// # Errors
///
/// There is such a directive.
pub fn check(draft: &Draft, is_used: bool) -> ConfResult {
    let children = draft.directive.children();
    match children.iter().find(|c| c.name().starts_with("ssl_")) {
        Some(child) if !is_used => {
            let mut e = child.fail(format!("\"{}\" where no address has TLS", child.name()));
            e.hint = Some("write an address with TLS, or take the directive away".into());
            Err(e)
        }
        _ => Ok(()),
    }
}

/// A certificate of an authority.
pub type Root = CertificateDer<'static>;

/// TLS as a block has it.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: Option<String>,
    trust: Option<Arc<Trust>>,
}

impl Tls {
    /// Reads the files. `protocols` are offered by ALPN.
    ///
    /// # Errors
    ///
    /// A file cannot be read, there is nothing to verify by, or the words cannot be taken.
    pub fn build(cf: &mut Cf, draft: &Draft, protocols: &[&[u8]]) -> ConfResult<Tls> {
        let none = TlsSaid::default();
        let said = draft.said::<TlsSaid>().unwrap_or(&none);
        let d = &draft.directive;
        let fail = |text: String| d.fail(text);
        let words = Words {
            protocols: said.protocols.as_option().copied().unwrap_or_default(),
            ciphers: said.ciphers.as_option().cloned().unwrap_or_else(|| "DEFAULT".into()),
            prefer_own: false,
            curves: "auto".into(),
            commands: Vec::new(),
        };
        let offer = words.resolve().map_err(words::refusal)?;
        for note in &offer.notes {
            cf.warn(place(draft, note.about).unwrap_or(d), format!("{} in \"ship\"", note.text));
        }
        let trust = match said.verify.as_option() {
            Some(false) => None,
            _ => Some(Arc::new(trust(cf, draft, said)?)),
        };
        let any = Arc::new(AnyServer::default());
        let builder = ClientConfig::builder_with_provider(offer.provider)
            .with_protocol_versions(&offer.versions)
            .map_err(|e| fail(e.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(any);
        let mut config = match (said.certificate.as_option(), said.key.as_option()) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let no: Arc<Vec<Vec<u8>>> = Arc::default();
                let passwords = said.passwords.as_option().unwrap_or(&no);
                let pair =
                    load::pair(certificate, key, passwords, &mut reader(cf)).map_err(fail)?;
                builder.with_client_cert_resolver(Arc::new(Shown(Arc::new(pair))))
            }
            (Some(_), None) => return Err(fail("no \"ssl_certificate_key\" in this block".into())),
            (None, Some(_)) => return Err(fail("no \"ssl_certificate\" in this block".into())),
        };
        // A session that was resumed shows no certificate that could be judged again.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Ok(Tls { config: Arc::new(config), name: said.name.as_option().cloned(), trust })
    }

    /// Servers are verified by these certificates of authorities; where there are none, nobody is.
    ///
    /// # Errors
    ///
    /// TLS cannot be spoken at all.
    pub fn by_roots(roots: Vec<CertificateDer<'static>>) -> Result<Tls, String> {
        let provider = Arc::new(weir_tls::rustls::crypto::ring::default_provider());
        let any = Arc::new(AnyServer::default());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(any)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        let trust = Trust { roots, crls: Vec::new(), depth: DEPTH_MAX };
        Ok(Tls { config: Arc::new(config), name: None, trust: Some(Arc::new(trust)) })
    }

    /// What verifies a server by these certificates, or by those that the system trusts, and says nothing else.
    ///
    /// # Errors
    ///
    /// The file cannot be read; or the system has none, which is about `user`.
    pub fn trusting(
        cf: &mut Cf,
        user: &Directive,
        trusted: Option<&Directive>,
        protocol: &[u8],
    ) -> ConfResult<Tls> {
        let (d, file) = match trusted {
            Some(d) => (d, d.arg(0).to_vec()),
            None => (user, system_roots(user)?),
        };
        let roots = load::trusted(&file, &mut reader(cf)).map_err(|text| d.fail(text))?;
        let words = Words {
            protocols: Protocols::default(),
            ciphers: "DEFAULT".into(),
            prefer_own: false,
            curves: "auto".into(),
            commands: Vec::new(),
        };
        let offer = words.resolve().map_err(words::refusal)?;
        let mut config = ClientConfig::builder_with_provider(offer.provider)
            .with_protocol_versions(&offer.versions)
            .map_err(|e| d.fail(e.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer::default()))
            .with_no_client_auth();
        // A session that was resumed shows no certificate that could be judged again.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![protocol.to_vec()];
        let trust = Some(Arc::new(Trust { roots, crls: Vec::new(), depth: DEPTH_MAX }));
        Ok(Tls { config: Arc::new(config), name: None, trust })
    }

    /// What receivers are verified by; `None`: they are not.
    pub fn roots(&self) -> Option<&[Root]> {
        self.trust.as_ref().map(|trust| &*trust.roots)
    }

    fn host<'a>(&'a self, host: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(host)
    }

    pub(super) fn session(&self, host: &str) -> Result<ClientConnection, String> {
        let host = self.host(host);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("\"{host}\" is no name for TLS: set one by \"ssl_name\""))?;
        ClientConnection::new(Arc::clone(&self.config), name).map_err(|e| e.to_string())
    }

    /// Judges what the receiver has shown.
    pub(super) fn judge(
        &self,
        session: &ClientConnection,
        host: &str,
        now: i64,
    ) -> Result<(), String> {
        let Some(trust) = &self.trust else { return Ok(()) };
        let shown = session.peer_certificates().unwrap_or_default();
        chain::verify(shown, trust, Purpose::Server, now, &algorithms())
            .map_err(|e| format!("certificate verify error: ({}:{})", e.number(), e.text()))?;
        let host = self.host(host);
        let leaf = shown.first().and_then(|c| Cert::parse(c));
        match leaf.is_some_and(|c| chain::is_for_host(&c, host.as_bytes())) {
            true => Ok(()),
            false => Err(format!("its certificate does not match \"{host}\"")),
        }
    }
}

/// Where distributions have the certificates that are trusted.
/// Where this system has the authorities that it trusts.
pub fn roots_of_system() -> Option<&'static str> {
    const PLACES: [&str; 5] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    PLACES.into_iter().find(|place| std::path::Path::new(place).exists())
}

fn system_roots(user: &Directive) -> ConfResult<Vec<u8>> {
    match roots_of_system() {
        Some(place) => Ok(place.as_bytes().to_vec()),
        None => {
            let e = user.fail("the system has no certificates to verify the receiver by");
            Err(e.hint("write \"trusted_certificate FILE;\"".to_owned()))
        }
    }
}

fn trust(cf: &mut Cf, draft: &Draft, said: &TlsSaid) -> ConfResult<Trust> {
    let d = &draft.directive;
    let Some(file) = said.trusted.as_option() else {
        let mut e =
            d.fail("no \"ssl_trusted_certificate\" in this block to verify the receiver by");
        e.hint = Some(
            "write \"ssl_trusted_certificate /etc/ssl/certs/ca-certificates.crt;\", or your \
             authority's file, or \"ssl_verify off;\""
                .into(),
        );
        return Err(e);
    };
    let roots = load::trusted(file, &mut reader(cf)).map_err(|text| d.fail(text))?;
    Ok(Trust { roots, crls: Vec::new(), depth: DEPTH_MAX })
}

/// The directive that a note is about.
fn place(draft: &Draft, about: About) -> Option<&weir_module::Directive> {
    let name = format!("ssl_{}", about.suffix());
    draft.directive.children().iter().find(|c| c.name() == name)
}
