//! Questions to OCSP responders and their answers (RFC 6960), as bytes: nothing here asks anybody.
//!
//! The reader of certificates reads answers as well, so no further crate is needed for them.
//!
//! Difference from OpenSSL: an answer is the issuer's own, or that of a responder whose certificate
//! the issuer itself has signed for it (section 4.2.2.2); a root that is trusted for signing answers
//! of every authority is not known. Signatures with SHA-1 are refused.

use crate::der::{self, Item, Reader};
use crate::x509::Cert;
use ring::digest::{digest, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use rustls::crypto::WebPkiSupportedAlgorithms;

const SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];
const SHA256_ID: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
const ENUMERATED: u8 = 0x0a;
/// Clocks may differ by so much.
const SKEW_SECS: i64 = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Good,
    Revoked,
    Unknown,
}

impl Status {
    pub fn text(self) -> &'static str {
        match self {
            Status::Good => "good",
            Status::Revoked => "revoked",
            Status::Unknown => "unknown",
        }
    }
}

/// What an answer says of the certificate that was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: Status,
    /// When the next one will be there, in seconds since 1970.
    pub next_update: Option<i64>,
}

/// Why an answer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OcspError {
    Unreadable,
    Unsuccessful(u8),
    NoBasic,
    NoSigner,
    BadSignature,
    ForeignSigner,
    NotFound,
    NotYetValid,
    Expired,
}

impl OcspError {
    pub fn text(self) -> String {
        let why = match self {
            OcspError::Unreadable => return "d2i_OCSP_RESPONSE() failed".to_string(),
            OcspError::Unsuccessful(n) => {
                return format!("OCSP response not successful ({n}: {})", refusal(n))
            }
            OcspError::NoBasic => return "OCSP_response_get1_basic() failed".to_string(),
            OcspError::NotFound => {
                return "certificate status not found in the OCSP response".to_string()
            }
            OcspError::NoSigner => "OCSP_basic_verify() failed (SSL: signer certificate not found)",
            OcspError::BadSignature => "OCSP_basic_verify() failed (SSL: signature failure)",
            OcspError::ForeignSigner => "OCSP_basic_verify() failed (SSL: root ca not trusted)",
            OcspError::NotYetValid => "OCSP_check_validity() failed (SSL: status not yet valid)",
            OcspError::Expired => "OCSP_check_validity() failed (SSL: status expired)",
        };
        why.to_string()
    }
}

fn refusal(status: u8) -> &'static str {
    match status {
        1 => "malformedrequest",
        2 => "internalerror",
        3 => "trylater",
        5 => "sigrequired",
        6 => "unauthorized",
        _ => "(UNKNOWN)",
    }
}

/// One element: tag, length, content.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut out = vec![tag];
    match body.len() {
        n @ ..0x80 => out.push(n as u8),
        n @ ..0x100 => out.extend([0x81, n as u8]),
        n => out.extend([0x82, (n >> 8) as u8, n as u8]),
    }
    out.extend(body);
    out
}

fn sha1(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec()
}

/// The question about one certificate, in DER.
pub fn question(cert: &Cert<'_>, issuer: &Cert<'_>) -> Vec<u8> {
    let algorithm = element(der::SEQUENCE, &[&element(der::OID, &[SHA1]), &[5, 0]]);
    let name = element(der::OCTET_STRING, &[&sha1(cert.issuer)]);
    let key = element(der::OCTET_STRING, &[&sha1(issuer.key)]);
    let serial = element(der::INTEGER, &[cert.serial]);
    let id = element(der::SEQUENCE, &[&algorithm, &name, &key, &serial]);
    (0..4).fold(id, |inner, _| element(der::SEQUENCE, &[&inner]))
}

/// What certificates an answer is judged by.
pub struct Asked<'a> {
    pub cert: &'a Cert<'a>,
    pub issuer: &'a Cert<'a>,
    /// Others whose signature may be looked at where signers are not verified.
    pub others: &'a [Cert<'a>],
    /// The signer must be the issuer, or have its leave.
    pub verify_signer: bool,
}

/// Reads an answer and judges it.
pub fn judge(
    bytes: &[u8],
    asked: &Asked<'_>,
    now: i64,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<Answer, OcspError> {
    let basic = basic(bytes)?;
    let basic = Basic::parse(basic).ok_or(OcspError::NoBasic)?;
    let found = basic.find(asked);
    basic.check_signer(asked, now, algorithms)?;
    let single = found.ok_or(OcspError::NotFound)?;
    if single.this_update > now + SKEW_SECS {
        return Err(OcspError::NotYetValid);
    }
    let is_over = |next: i64| next < now - SKEW_SECS || next < single.this_update;
    if single.next_update.is_some_and(is_over) {
        return Err(OcspError::Expired);
    }
    Ok(Answer { status: single.status, next_update: single.next_update })
}

/// The inner answer of one that was successful.
fn basic(bytes: &[u8]) -> Result<&[u8], OcspError> {
    let mut outer = Reader(bytes).sequence().ok_or(OcspError::Unreadable)?;
    let status = outer.tagged(ENUMERATED).ok_or(OcspError::Unreadable)?;
    match status.body {
        [0] => {}
        [n] => return Err(OcspError::Unsuccessful(*n)),
        _ => return Err(OcspError::Unreadable),
    }
    let typed = outer.tagged(0xa0).and_then(|i| Reader(i.body).sequence());
    let mut typed = typed.ok_or(OcspError::NoBasic)?;
    match typed.tagged(der::OID) {
        Some(id) if id.body == BASIC => {}
        _ => return Err(OcspError::NoBasic),
    }
    typed.tagged(der::OCTET_STRING).map(|i| i.body).ok_or(OcspError::NoBasic)
}

struct Basic<'a> {
    tbs: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
    /// By name (0xa1) or by the key's digest (0xa2).
    responder: Item<'a>,
    singles: Reader<'a>,
    certs: Reader<'a>,
}

struct Single {
    status: Status,
    this_update: i64,
    next_update: Option<i64>,
}

impl<'a> Basic<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Basic<'a>> {
        let mut parts = Reader(bytes).sequence()?;
        let tbs = parts.tagged(der::SEQUENCE)?;
        let algorithm = parts.tagged(der::SEQUENCE)?.body;
        let signature = der::bits(parts.tagged(der::BIT_STRING)?)?;
        let certs = parts.tagged(0xa0).and_then(|i| Reader(i.body).sequence());
        let mut r = Reader(tbs.body);
        r.tagged(0xa0);
        let responder = r.tagged(0xa1).or_else(|| r.tagged(0xa2))?;
        der::time(r.tagged(der::GENERALIZED_TIME)?)?;
        let singles = r.sequence()?;
        let certs = certs.unwrap_or(Reader(&[]));
        Some(Basic { tbs: tbs.whole, algorithm, signature, responder, singles, certs })
    }

    /// It says that it is this one's.
    fn is_of(&self, cert: &Cert<'_>) -> bool {
        match self.responder.tag {
            0xa1 => self.responder.body == cert.subject,
            _ => Reader(self.responder.body)
                .tagged(der::OCTET_STRING)
                .is_some_and(|key| key.body == sha1(cert.key)),
        }
    }

    fn check_signer(
        &self,
        asked: &Asked<'_>,
        now: i64,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), OcspError> {
        let own: Vec<Cert<'_>> =
            self.certs.clone().filter_map(|item| Cert::parse(item.whole)).collect();
        let mut problem = OcspError::NoSigner;
        let all = std::iter::once(asked.issuer).chain(&own).chain(asked.others);
        for signer in all.filter(|c| self.is_of(c)) {
            if !signer.has_signed(self.algorithm, self.tbs, self.signature, algorithms) {
                problem = OcspError::BadSignature;
                continue;
            }
            let is_issuer = signer.spki == asked.issuer.spki;
            let has_leave = || {
                signer.signs_answers()
                    && (signer.not_before..=signer.not_after).contains(&now)
                    && signer.issuer == asked.issuer.subject
                    && signer.is_signed_by(asked.issuer, algorithms)
            };
            if !asked.verify_signer || is_issuer || has_leave() {
                return Ok(());
            }
            problem = OcspError::ForeignSigner;
        }
        Err(problem)
    }

    fn find(&self, asked: &Asked<'_>) -> Option<Single> {
        self.singles.clone().find_map(|item| single(Reader(item.body), asked))
    }
}

/// One certificate's part of an answer, if it is the one that was asked about.
fn single(mut r: Reader<'_>, asked: &Asked<'_>) -> Option<Single> {
    let mut id = r.sequence()?;
    let algorithm = match id.sequence()?.tagged(der::OID)?.body {
        SHA1 => &SHA1_FOR_LEGACY_USE_ONLY,
        SHA256_ID => &SHA256,
        _ => return None,
    };
    let is = |item: Item<'_>, of: &[u8]| item.body == digest(algorithm, of).as_ref();
    if !is(id.tagged(der::OCTET_STRING)?, asked.cert.issuer)
        || !is(id.tagged(der::OCTET_STRING)?, asked.issuer.key)
        || id.tagged(der::INTEGER)?.body != asked.cert.serial
    {
        return None;
    }
    let status = match r.item()?.tag {
        0x80 => Status::Good,
        0xa1 => Status::Revoked,
        0x82 => Status::Unknown,
        _ => return None,
    };
    let this_update = der::time(r.tagged(der::GENERALIZED_TIME)?)?;
    let next_update = match r.tagged(0xa0) {
        Some(next) => Some(der::time(Reader(next.body).tagged(der::GENERALIZED_TIME)?)?),
        None => None,
    };
    Some(Single { status, this_update, next_update })
}

#[cfg(test)]
mod tests;
