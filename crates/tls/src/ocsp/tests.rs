//! Answers made by hand: right ones, and each thing that can be wrong with one.

use super::*;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SigningKey,
};

/// 2026-01-01, and some time after it.
const BEGIN: i64 = 1_767_225_600;
const NOW: i64 = BEGIN + 3600;

struct Made {
    der: Vec<u8>,
    key: KeyPair,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_string()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(4711.into());
    params
}

fn authority(name: &str) -> (Made, Issuer<'static, KeyPair>) {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let der = params.self_signed(&key).unwrap().der().to_vec();
    let copy = KeyPair::try_from(key.serialize_der()).unwrap();
    (Made { der, key: copy }, Issuer::new(params, key))
}

fn issued(name: &str, by: &Issuer<'static, KeyPair>, signs: bool) -> Made {
    let mut params = params(name);
    if signs {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
    }
    let key = KeyPair::generate().unwrap();
    Made { der: params.signed_by(&key, by).unwrap().der().to_vec(), key }
}

struct Wanted<'a> {
    status: &'a [u8],
    begin: &'a [u8],
    end: &'a [u8],
    signer: &'a Made,
    with_cert: bool,
}

impl Wanted<'_> {
    fn make(&self, question: &[u8]) -> Vec<u8> {
        // The certificate's id is five sequences deep.
        let id = (0..4).fold(Reader(question), |mut r, _| r.sequence().unwrap()).0;
        let time = |text: &[u8]| element(der::GENERALIZED_TIME, &[text]);
        let end = match self.end.is_empty() {
            true => Vec::new(),
            false => element(0xa0, &[&time(self.end)]),
        };
        let single = element(der::SEQUENCE, &[id, self.status, &time(self.begin), &end]);
        let signer = Cert::parse(&self.signer.der).unwrap();
        let responder = element(0xa1, &[signer.subject]);
        let list = element(der::SEQUENCE, &[&single]);
        let tbs = element(der::SEQUENCE, &[&responder, &time(b"20260101000000Z"), &list]);
        let signature = self.signer.key.sign(&tbs).unwrap();
        // ecdsa-with-SHA256
        let oid = element(der::OID, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
        let algorithm = element(der::SEQUENCE, &[&oid]);
        let signature = element(der::BIT_STRING, &[&[0], &signature]);
        let certs = match self.with_cert {
            true => element(0xa0, &[&element(der::SEQUENCE, &[&self.signer.der])]),
            false => Vec::new(),
        };
        let basic = element(der::SEQUENCE, &[&tbs, &algorithm, &signature, &certs]);
        let (id, basic) = (element(der::OID, &[BASIC]), element(der::OCTET_STRING, &[&basic]));
        let bytes = element(0xa0, &[&element(der::SEQUENCE, &[&id, &basic])]);
        element(der::SEQUENCE, &[&[ENUMERATED, 1, 0], &bytes])
    }
}

struct World {
    root: Made,
    leaf: Made,
    helper: Made,
    intruder: Made,
    stranger: Made,
}

impl World {
    fn new() -> World {
        let (root, issuer) = authority("root");
        let (stranger, _) = authority("stranger");
        let (helper, intruder) =
            (issued("helper", &issuer, true), issued("intruder", &issuer, false));
        World { leaf: issued("leaf", &issuer, false), root, helper, intruder, stranger }
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            status: &[0x80, 0],
            begin: b"20260101000000Z",
            end: b"20260102000000Z",
            signer: &self.root,
            with_cert: false,
        }
    }

    fn question(&self) -> Vec<u8> {
        let (leaf, root) =
            (Cert::parse(&self.leaf.der).unwrap(), Cert::parse(&self.root.der).unwrap());
        question(&leaf, &root)
    }

    fn judge(&self, answer: &[u8], now: i64, verify_signer: bool) -> Result<Answer, OcspError> {
        let (cert, issuer) =
            (Cert::parse(&self.leaf.der).unwrap(), Cert::parse(&self.root.der).unwrap());
        let asked = Asked { cert: &cert, issuer: &issuer, others: &[], verify_signer };
        judge(answer, &asked, now, &crate::server::algorithms())
    }

    fn of(&self, wanted: &Wanted<'_>) -> Result<Answer, OcspError> {
        self.judge(&wanted.make(&self.question()), NOW, true)
    }
}

#[test]
fn states_and_times() {
    let world = World::new();
    let good = Answer { status: Status::Good, next_update: Some(BEGIN + 86400) };
    assert_eq!(world.of(&world.wanted()), Ok(good));
    let at = element(der::GENERALIZED_TIME, &[b"20251231000000Z"]);
    let revoked = element(0xa1, &[&at]);
    let revoked = Wanted { status: &revoked, ..world.wanted() };
    assert_eq!(world.of(&revoked).unwrap().status, Status::Revoked);
    let unknown = Wanted { status: &[0x82, 0], ..world.wanted() };
    assert_eq!(world.of(&unknown).unwrap().status, Status::Unknown);
    let endless = Wanted { end: b"", ..world.wanted() };
    assert_eq!(world.of(&endless).unwrap().next_update, None);
    let early = Wanted { begin: b"20260101020000Z", ..world.wanted() };
    assert_eq!(world.of(&early), Err(OcspError::NotYetValid));
    let late = Wanted { end: b"20260101005400Z", ..world.wanted() };
    assert_eq!(world.of(&late), Err(OcspError::Expired));
}

#[test]
fn signers() {
    let world = World::new();
    let by = |signer| Wanted { signer, with_cert: true, ..world.wanted() };
    assert!(world.of(&by(&world.helper)).is_ok(), "with the issuer's leave");
    assert_eq!(world.of(&by(&world.intruder)), Err(OcspError::ForeignSigner));
    assert_eq!(world.of(&by(&world.stranger)), Err(OcspError::ForeignSigner));
    let unnamed = Wanted { signer: &world.helper, ..world.wanted() };
    assert_eq!(world.of(&unnamed), Err(OcspError::NoSigner));
    let foreign = by(&world.stranger).make(&world.question());
    assert!(world.judge(&foreign, NOW, false).is_ok(), "where signers are not verified");
}

#[test]
fn other_answers() {
    let world = World::new();
    let (stranger, root) =
        (Cert::parse(&world.stranger.der).unwrap(), Cert::parse(&world.root.der).unwrap());
    let other = world.wanted().make(&question(&stranger, &root));
    assert_eq!(world.judge(&other, NOW, true), Err(OcspError::NotFound));
    let refused = world.judge(&[0x30, 3, ENUMERATED, 1, 6], NOW, true);
    assert_eq!(refused, Err(OcspError::Unsuccessful(6)));
    assert_eq!(world.judge(b"<html>", NOW, true), Err(OcspError::Unreadable));
    assert_eq!(world.judge(&[0x30, 3, ENUMERATED, 1, 0], NOW, true), Err(OcspError::NoBasic));
}

/// Whatever is changed in an answer, it is never another answer.
#[test]
fn damage() {
    let world = World::new();
    let whole = world.wanted().make(&world.question());
    let good = world.judge(&whole, NOW, true).unwrap();
    for cut in 0..whole.len() {
        assert!(world.judge(&whole[..cut], NOW, true).is_err(), "cut at {cut}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x15;
        let judged = world.judge(&changed, NOW, true);
        assert!(judged.is_err() || judged == Ok(good), "changed at {at}: {judged:?}");
    }
}
