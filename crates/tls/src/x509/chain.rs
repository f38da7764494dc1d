//! Whether a chain of certificates leads to a trusted one (RFC 5280, section 6), with the errors
//! that OpenSSL has for it: they are what `$ssl_client_verify` shows.
//!
//! Difference from OpenSSL: a chain in which names are constrained is judged by webpki.

use super::{name, Cert};
use crate::crl::Crl;
use crate::der::Reader;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::CertificateDer;

/// More certificates than this are no chain.
const CHAIN_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainError {
    NoIssuer,
    NoCrl,
    BadSignature,
    NotYetValid,
    Expired,
    CrlExpired,
    SelfSigned,
    SelfSignedInChain,
    NoLocalIssuer,
    LeafUnverified,
    TooLong,
    Revoked,
    NotAnAuthority,
    PathTooLong,
    WrongPurpose,
    CriticalExtension,
    NameConstraints,
    HostMismatch,
    Unreadable,
}

impl ChainError {
    pub fn number(self) -> u32 {
        match self {
            ChainError::NoIssuer => 2,
            ChainError::NoCrl => 3,
            ChainError::BadSignature => 7,
            ChainError::NotYetValid => 9,
            ChainError::Expired => 10,
            ChainError::CrlExpired => 12,
            ChainError::SelfSigned => 18,
            ChainError::SelfSignedInChain => 19,
            ChainError::NoLocalIssuer => 20,
            ChainError::LeafUnverified => 21,
            ChainError::TooLong => 22,
            ChainError::Revoked => 23,
            ChainError::PathTooLong => 25,
            ChainError::WrongPurpose => 26,
            ChainError::CriticalExtension => 34,
            ChainError::NameConstraints => 47,
            ChainError::HostMismatch => 62,
            ChainError::NotAnAuthority => 79,
            ChainError::Unreadable => 1,
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            ChainError::NoIssuer => "unable to get issuer certificate",
            ChainError::NoCrl => "unable to get certificate CRL",
            ChainError::BadSignature => "certificate signature failure",
            ChainError::NotYetValid => "certificate is not yet valid",
            ChainError::Expired => "certificate has expired",
            ChainError::CrlExpired => "CRL has expired",
            ChainError::SelfSigned => "self-signed certificate",
            ChainError::SelfSignedInChain => "self-signed certificate in certificate chain",
            ChainError::NoLocalIssuer => "unable to get local issuer certificate",
            ChainError::LeafUnverified => "unable to verify the first certificate",
            ChainError::TooLong => "certificate chain too long",
            ChainError::Revoked => "certificate revoked",
            ChainError::PathTooLong => "path length constraint exceeded",
            ChainError::WrongPurpose => "unsuitable certificate purpose",
            ChainError::CriticalExtension => "unhandled critical extension",
            ChainError::NameConstraints => "permitted subtree violation",
            ChainError::HostMismatch => "hostname mismatch",
            ChainError::NotAnAuthority => "invalid CA certificate",
            ChainError::Unreadable => "unspecified certificate verification error",
        }
    }

    /// The errors that `optional_no_ca` lets pass: the issuer is not known.
    pub fn is_unknown_issuer(self) -> bool {
        matches!(
            self,
            ChainError::SelfSigned
                | ChainError::SelfSignedInChain
                | ChainError::NoLocalIssuer
                | ChainError::LeafUnverified
        )
    }
}

/// What certificates are judged by.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    pub roots: Vec<CertificateDer<'static>>,
    pub crls: Vec<Vec<u8>>,
    /// How many may stand between the leaf and the root.
    pub depth: usize,
}

/// For what a certificate is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Server = 1,
    Client = 2,
}

/// Judges a chain, the peer's own certificate first.
pub fn verify(
    chain: &[CertificateDer<'_>],
    trust: &Trust,
    purpose: Purpose,
    now: i64,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), ChainError> {
    let given = given(chain);
    let roots: Vec<Cert<'_>> = trust.roots.iter().filter_map(|c| Cert::parse(c)).collect();
    if given.is_empty() {
        return Err(ChainError::Unreadable);
    }
    let (path, built) = build(&given, &roots, trust.depth, algorithms);
    if built == Err(ChainError::TooLong) {
        return built;
    }
    // OpenSSL goes on after an error, and tells the last: a certificate of an unknown issuer that
    // has expired is an expired one, which `optional_no_ca` does not let pass.
    let mut verdict = check_use(&path, purpose).and(built);
    for (i, cert) in path.iter().enumerate().filter(|_| !trust.crls.is_empty()) {
        let issuer = path.get(i + 1).copied().unwrap_or(cert);
        let checked = check_revoked(cert, issuer, &trust.crls, now, algorithms);
        verdict = checked.and(verdict);
    }
    let is_open = built.is_err() && path.last().is_some_and(|top| !top.is_self_issued());
    if is_open && path.len() == 1 {
        verdict = Err(ChainError::LeafUnverified);
    }
    // The time of an open chain's last certificate is not looked at, unless it is the only one.
    let dated = path.len() - usize::from(is_open && path.len() > 1);
    for (i, cert) in path.iter().enumerate().take(dated).rev() {
        if path.get(i + 1).is_some_and(|issuer| !cert.is_signed_by(issuer, algorithms)) {
            verdict = Err(ChainError::BadSignature);
        }
        if now < cert.not_before {
            verdict = Err(ChainError::NotYetValid);
        }
        if now > cert.not_after {
            verdict = Err(ChainError::Expired);
        }
    }
    verdict?;
    match path.iter().any(|c| c.name_constraints) {
        true => by_webpki(chain, trust, purpose, now, algorithms),
        false => Ok(()),
    }
}

/// What a peer has shown, its own certificate first; none where that cannot be read.
fn given<'a>(chain: &'a [CertificateDer<'_>]) -> Vec<Cert<'a>> {
    let mut certs = chain.iter().take(CHAIN_MAX).map(|c| Cert::parse_whole(c));
    match certs.next().flatten() {
        Some(leaf) => std::iter::once(leaf).chain(certs.flatten()).collect(),
        None => Vec::new(),
    }
}

/// The certificates by which a chain was found good, from the leaf to a trusted one; none where it
/// is not.
pub fn path(
    chain: &[CertificateDer<'_>],
    trust: &Trust,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Vec<CertificateDer<'static>> {
    let given = given(chain);
    let roots: Vec<Cert<'_>> = trust.roots.iter().filter_map(|c| Cert::parse(c)).collect();
    if given.is_empty() {
        return Vec::new();
    }
    match build(&given, &roots, trust.depth, algorithms) {
        (path, Ok(())) => path.iter().map(|c| c.whole.to_vec().into()).collect(),
        _ => Vec::new(),
    }
}

/// From the leaf to a self-signed trusted certificate, or how far that went and why not further.
fn build<'c, 'a>(
    given: &'c [Cert<'a>],
    roots: &'c [Cert<'a>],
    depth: usize,
    algorithms: &WebPkiSupportedAlgorithms,
) -> (Vec<&'c Cert<'a>>, Result<(), ChainError>) {
    let mut path: Vec<&Cert<'a>> = vec![&given[0]];
    let mut is_trusted = false;
    let why = loop {
        let top = path[path.len() - 1];
        if let Some(same) = roots.iter().find(|r| r.whole == top.whole) {
            is_trusted = true;
            if same.is_self_issued() {
                return (path, Ok(()));
            }
        } else if top.is_self_issued() {
            break match path.len() {
                1 => ChainError::SelfSigned,
                _ => ChainError::SelfSignedInChain,
            };
        }
        let is_issuer = |c: &&Cert<'a>| c.subject == top.issuer && c.whole != top.whole;
        let signed = |c: &&Cert<'a>| is_issuer(c) && top.is_signed_by(c, algorithms);
        let found = roots.iter().find(signed).or_else(|| roots.iter().find(is_issuer));
        if found.is_none() && is_trusted {
            break ChainError::NoIssuer;
        }
        let Some(next) = found.or_else(|| given[1..].iter().find(signed)) else {
            break match path.len() {
                1 => ChainError::LeafUnverified,
                _ => ChainError::NoLocalIssuer,
            };
        };
        is_trusted |= found.is_some();
        let is_root = found.is_some() && next.is_self_issued();
        if path.len() - 1 + usize::from(!is_root) > depth || path.len() > CHAIN_MAX {
            break ChainError::TooLong;
        }
        path.push(next);
    };
    (path, Err(why))
}

fn check_use(path: &[&Cert<'_>], purpose: Purpose) -> Result<(), ChainError> {
    if !path[0].is_for(purpose as u8) {
        return Err(ChainError::WrongPurpose);
    }
    // How many that are not self-issued stand below, the leaf not counted.
    let mut below = 0u64;
    for (i, cert) in path.iter().enumerate() {
        if cert.unknown_critical {
            return Err(ChainError::CriticalExtension);
        }
        if i == 0 {
            continue;
        }
        if !cert.is_authority() {
            return Err(ChainError::NotAnAuthority);
        }
        if !cert.is_for(purpose as u8) {
            return Err(ChainError::WrongPurpose);
        }
        if matches!(cert.authority, Some((_, Some(most))) if below > most) {
            return Err(ChainError::PathTooLong);
        }
        below += u64::from(!cert.is_self_issued());
    }
    Ok(())
}

fn check_revoked(
    cert: &Cert<'_>,
    issuer: &Cert<'_>,
    crls: &[Vec<u8>],
    now: i64,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), ChainError> {
    let mut problem = ChainError::NoCrl;
    for crl in crls.iter().filter_map(|c| Crl::parse(c)).filter(|c| c.issuer == cert.issuer) {
        let signed = issuer.has_signed(crl.algorithm, crl.tbs, crl.signature, algorithms);
        if !signed {
            problem = ChainError::BadSignature;
        } else if crl.next.is_some_and(|t| now > t) {
            problem = ChainError::CrlExpired;
        } else {
            return match crl.has(cert.serial) {
                true => Err(ChainError::Revoked),
                false => Ok(()),
            };
        }
    }
    Err(problem)
}

fn by_webpki(
    chain: &[CertificateDer<'_>],
    trust: &Trust,
    purpose: Purpose,
    now: i64,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), ChainError> {
    let roots: Vec<_> =
        trust.roots.iter().filter_map(|c| webpki::anchor_from_trusted_cert(c).ok()).collect();
    let usage = match purpose {
        Purpose::Server => webpki::KeyUsage::server_auth(),
        Purpose::Client => webpki::KeyUsage::client_auth(),
    };
    let at = std::time::Duration::from_secs(u64::try_from(now).unwrap_or(0));
    let at = rustls::pki_types::UnixTime::since_unix_epoch(at);
    let leaf = webpki::EndEntityCert::try_from(&chain[0]).map_err(|_| ChainError::Unreadable)?;
    leaf.verify_for_usage(algorithms.all, &roots, &chain[1..], at, usage, None, None)
        .map(|_| ())
        .map_err(|_| ChainError::NameConstraints)
}

/// Whether a certificate was made for a host, by its alternative names, or by its common name when
/// it has none of that kind.
pub fn is_for_host(cert: &Cert<'_>, host: &[u8]) -> bool {
    let host = host.strip_suffix(b".").unwrap_or(host);
    let ip = std::str::from_utf8(host).ok().and_then(|h| h.trim_matches(['[', ']']).parse().ok());
    let mut has_names = false;
    for item in cert.alt_names.map(Reader).into_iter().flatten() {
        match (item.tag, ip) {
            (0x82, None) => {
                has_names = true;
                if matches_name(item.body, host) {
                    return true;
                }
            }
            (0x87, Some(std::net::IpAddr::V4(ip))) if item.body == ip.octets() => return true,
            (0x87, Some(std::net::IpAddr::V6(ip))) if item.body == ip.octets() => return true,
            _ => {}
        }
    }
    let common = || name::common_name(cert.subject);
    !has_names && ip.is_none() && common().is_some_and(|n| matches_name(&n, host))
}

/// `*` stands for one whole label, the first (RFC 6125, section 6.4.3).
fn matches_name(pattern: &[u8], host: &[u8]) -> bool {
    match pattern.strip_prefix(b"*.") {
        None => pattern.eq_ignore_ascii_case(host),
        Some(rest) => {
            let dot = host.iter().position(|b| *b == b'.');
            rest.contains(&b'.')
                && dot.is_some_and(|at| at > 0 && host[at + 1..].eq_ignore_ascii_case(rest))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next certificate is not taken for the peer's own where that cannot be read.
    #[test]
    fn a_leaf_that_cannot_be_read_is_no_chain() {
        let der = |bytes: &'static [u8]| CertificateDer::from(bytes);
        let leaf: &[u8] = include_bytes!("../../../../fuzz/seeds/certificate.der");
        let root: &[u8] = include_bytes!("../../../../fuzz/seeds/authority.der");
        let now = Cert::parse(leaf).unwrap().not_before;
        let trust = Trust { roots: vec![der(root)], crls: Vec::new(), depth: 1 };
        let judge = |chain: &[CertificateDer<'_>]| {
            let algorithms = crate::server::algorithms();
            let purpose = Purpose::Client;
            (
                verify(chain, &trust, purpose, now, &algorithms),
                path(chain, &trust, &algorithms).len(),
            )
        };
        assert_eq!(judge(&[der(leaf)]), (Ok(()), 2));
        for bad in [&b"\x30\0"[..], b"", &leaf[1..]] {
            let bad = CertificateDer::from(bad.to_vec());
            assert_eq!(judge(&[bad, der(leaf)]), (Err(ChainError::Unreadable), 0));
        }
        let longer = CertificateDer::from([leaf, b"x"].concat());
        assert_eq!(judge(&[longer]), (Err(ChainError::Unreadable), 0));
    }

    #[test]
    fn host_names() {
        for (pattern, host, hit) in [
            ("a.example", "A.example", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "a.b.example.com", false),
            ("*.com", "example.com", false),
        ] {
            assert_eq!(matches_name(pattern.as_bytes(), host.as_bytes()), hit, "{pattern} {host}");
        }
    }
}
