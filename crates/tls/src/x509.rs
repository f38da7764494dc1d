//! Certificates as `$ssl_client_*`, the chain check and the stapling need them (RFC 5280). Version
//! 1 certificates are read too: home-made authorities still issue them.

pub mod chain;
pub mod name;

use crate::der::{self, Item, Reader};
use rustls::crypto::WebPkiSupportedAlgorithms;

const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
const ALT_NAME: &[u8] = &[0x55, 0x1d, 17];
const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 30];
const CERTIFICATE_POLICIES: &[u8] = &[0x55, 0x1d, 32];
const AUTHORITY_INFO: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 1];
const OCSP: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1];

/// What a certificate says, borrowed from its bytes.
#[derive(Clone, Debug, Default)]
pub struct Cert<'a> {
    pub whole: &'a [u8],
    tbs: &'a [u8],
    pub version: u8,
    /// The integer's bytes, as they are encoded.
    pub serial: &'a [u8],
    pub issuer: &'a [u8],
    pub subject: &'a [u8],
    pub not_before: i64,
    pub not_after: i64,
    /// SubjectPublicKeyInfo as it is.
    pub spki: &'a [u8],
    key_algorithm: &'a [u8],
    pub key: &'a [u8],
    signature_algorithm: &'a [u8],
    signature: &'a [u8],
    /// Whether it is an authority's, and how many more may stand below it.
    pub authority: Option<(bool, Option<u64>)>,
    key_usage: Option<u8>,
    purposes: Option<&'a [u8]>,
    pub alt_names: Option<&'a [u8]>,
    authority_info: Option<&'a [u8]>,
    name_constraints: bool,
    unknown_critical: bool,
}

impl<'a> Cert<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Cert<'a>> {
        let mut outer = Reader(bytes);
        let whole = outer.tagged(der::SEQUENCE)?;
        let mut parts = Reader(whole.body);
        let tbs = parts.tagged(der::SEQUENCE)?;
        let signature_algorithm = parts.tagged(der::SEQUENCE)?.body;
        let signature = der::bits(parts.item()?)?;
        let mut cert = Cert {
            whole: whole.whole,
            tbs: tbs.whole,
            signature_algorithm,
            signature,
            ..Cert::default()
        };
        cert.read_tbs(Reader(tbs.body))?;
        Some(cert)
    }

    /// As [`Cert::parse`], of bytes that are the certificate and nothing else.
    pub fn parse_whole(bytes: &'a [u8]) -> Option<Cert<'a>> {
        Cert::parse(bytes).filter(|cert| cert.whole.len() == bytes.len())
    }

    fn read_tbs(&mut self, mut r: Reader<'a>) -> Option<()> {
        self.version = match r.tagged(0xa0) {
            Some(v) => Reader(v.body).tagged(der::INTEGER)?.body.last()?.checked_add(1)?,
            None => 1,
        };
        self.serial = r.tagged(der::INTEGER)?.body;
        r.tagged(der::SEQUENCE)?;
        self.issuer = r.tagged(der::SEQUENCE)?.whole;
        let mut validity = r.sequence()?;
        self.not_before = der::time(validity.item()?)?;
        self.not_after = der::time(validity.item()?)?;
        self.subject = r.tagged(der::SEQUENCE)?.whole;
        let spki = r.tagged(der::SEQUENCE)?;
        self.spki = spki.whole;
        let mut key = Reader(spki.body);
        self.key_algorithm = key.tagged(der::SEQUENCE)?.body;
        self.key = der::bits(key.item()?)?;
        for rest in r {
            if rest.tag == 0xa3 {
                for extension in Reader(rest.body).sequence()? {
                    self.read_extension(Reader(extension.body))?;
                }
            }
        }
        Some(())
    }

    fn read_extension(&mut self, mut r: Reader<'a>) -> Option<()> {
        let id = r.tagged(der::OID)?.body;
        let critical = r.tagged(der::BOOLEAN).is_some_and(|b| b.body != [0]);
        let value = r.tagged(der::OCTET_STRING)?.body;
        let mut inner = Reader(value);
        match id {
            BASIC_CONSTRAINTS => {
                let mut fields = inner.sequence()?;
                let is_ca = fields.tagged(der::BOOLEAN).is_some_and(|b| b.body != [0]);
                let most = fields.tagged(der::INTEGER);
                let most =
                    most.map(|i| i.body.iter().take(8).fold(0, |n, b| n << 8 | u64::from(*b)));
                self.authority = Some((is_ca, most));
            }
            KEY_USAGE => self.key_usage = Some(*inner.tagged(der::BIT_STRING)?.body.get(1)?),
            EXTENDED_KEY_USAGE => self.purposes = Some(inner.tagged(der::SEQUENCE)?.body),
            ALT_NAME => self.alt_names = Some(inner.tagged(der::SEQUENCE)?.body),
            AUTHORITY_INFO => self.authority_info = Some(inner.tagged(der::SEQUENCE)?.body),
            NAME_CONSTRAINTS => self.name_constraints = true,
            CERTIFICATE_POLICIES => {}
            _ => self.unknown_critical |= critical,
        }
        Some(())
    }

    /// Its issuer is itself, by name.
    pub fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// Whether its signature was made with another's key.
    pub fn is_signed_by(&self, issuer: &Cert<'_>, algorithms: &WebPkiSupportedAlgorithms) -> bool {
        issuer.has_signed(self.signature_algorithm, self.tbs, self.signature, algorithms)
    }

    /// Whether its key made a signature.
    pub(crate) fn has_signed(
        &self,
        algorithm: &[u8],
        message: &[u8],
        signature: &[u8],
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> bool {
        algorithms.all.iter().any(|a| {
            a.signature_alg_id().as_ref() == algorithm
                && a.public_key_alg_id().as_ref() == self.key_algorithm
                && a.verify_signature(self.key, message, signature).is_ok()
        })
    }

    /// Whether it made a signature of the handshake.
    pub fn has_signed_handshake(
        &self,
        message: &[u8],
        signed: &rustls::DigitallySignedStruct,
        algorithms: &WebPkiSupportedAlgorithms,
        is_tls13: bool,
    ) -> bool {
        let found = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        // With TLS 1.3 the scheme fixes the curve, and the first is the one.
        let most = if is_tls13 { 1 } else { usize::MAX };
        found.is_some_and(|(_, list)| {
            list.iter().take(most).any(|a| {
                a.public_key_alg_id().as_ref() == self.key_algorithm
                    && a.verify_signature(self.key, message, signed.signature()).is_ok()
            })
        })
    }

    /// May sign others.
    fn is_authority(&self) -> bool {
        let may_sign = self.key_usage.is_none_or(|u| u & 0x04 != 0);
        let is_ca = match self.authority {
            Some((is_ca, _)) => is_ca,
            None => self.key_usage.is_some() || self.version == 1 && self.is_self_issued(),
        };
        is_ca && may_sign
    }

    /// May be used for a purpose: the last byte of the purpose's number (1 server, 2 client).
    fn is_for(&self, purpose: u8) -> bool {
        let wanted = [0x2b, 6, 1, 5, 5, 7, 3, purpose];
        const ANY: &[u8] = &[0x55, 0x1d, 37, 0];
        self.purposes.is_none_or(|p| Reader(p).any(|i| i.body == wanted || i.body == ANY))
    }

    /// May sign answers of its issuer's OCSP responder; that is never to be guessed.
    pub fn signs_answers(&self) -> bool {
        const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];
        self.purposes.is_some_and(|p| Reader(p).any(|i| i.body == OCSP_SIGNING))
    }

    /// The address of the responder that knows whether it was revoked.
    pub fn ocsp_responder(&self) -> Option<&'a str> {
        for entry in Reader(self.authority_info?) {
            let mut r = Reader(entry.body);
            if r.tagged(der::OID)?.body == OCSP {
                return r.tagged(0x86).and_then(|i: Item| std::str::from_utf8(i.body).ok());
            }
        }
        None
    }

    pub fn signature_name(&self) -> String {
        Reader(self.signature_algorithm).item().map_or(String::new(), |i| name::signature(i.body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: &[u8] = include_bytes!("../../../fuzz/seeds/certificate.der");

    #[test]
    fn what_stands_in_a_certificate() {
        let cert = Cert::parse(LEAF).unwrap();
        assert_eq!((cert.version, cert.serial), (3, &[5][..]));
        assert_eq!(cert.ocsp_responder(), Some("http://o.example/"));
        assert!(chain::is_for_host(&cert, b"x.b.example"));
    }

    #[test]
    fn a_version_that_cannot_be_is_no_certificate() {
        let version = LEAF.windows(5).position(|w| w == [0xa0, 3, 2, 1, 2]).unwrap() + 4;
        let mut bytes = LEAF.to_vec();
        bytes[version] = 0xff;
        assert!(Cert::parse(&bytes).is_none());
    }

    #[test]
    fn nothing_may_stand_behind_a_certificate_of_a_peer() {
        let more = [LEAF, &[0]].concat();
        assert!(Cert::parse_whole(LEAF).is_some());
        assert!(Cert::parse(&more).is_some() && Cert::parse_whole(&more).is_none());
    }
}
