//! An OCSP responder that says what a test wants it to.

use crate::{Next, Origin};
use rcgen::{KeyPair, SigningKey};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_base::escape::{unescape_uri, Unescape};
use weir_base::{base64, date};

/// With whose key answers are signed.
pub struct Signer {
    pub cert: Vec<u8>,
    pub key: KeyPair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    Good,
    Revoked,
    Unknown,
    /// Good, until an hour ago.
    Expired,
    /// Good, of a certificate nobody asked about.
    Another,
    /// Good, with a signature that is somebody else's.
    Forged,
    /// The answer is a refusal.
    Unauthorized,
    NotFound,
    /// The connection stays open and nothing is said.
    Nothing,
}

/// A responder that runs until dropped.
pub struct Responder {
    origin: Origin,
    says: Arc<Mutex<Says>>,
}

impl Responder {
    pub fn start(signer: Signer) -> Responder {
        let says = Arc::new(Mutex::new(Says::Good));
        let say = Arc::clone(&says);
        let origin = Origin::start(move |request, conn| {
            let mut path = Vec::new();
            unescape_uri(&mut path, request.target().as_bytes(), Unescape::Uri);
            let encoded = path.strip_prefix(b"/ask/").or(path.strip_prefix(b"/"));
            let question = encoded.and_then(base64::decode).unwrap_or_default();
            let says = *say.lock().unwrap();
            match says {
                Says::Nothing => {
                    conn.wait_closed();
                }
                Says::NotFound => conn.reply("404 Not Found", "", ""),
                _ => {
                    conn.write(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/ocsp-response\r\n\r\n",
                    );
                    conn.write(answer(&signer, says, &question));
                }
            }
            Next::Close
        });
        Responder { origin, says }
    }

    pub fn says(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    pub fn port(&self) -> u16 {
        self.origin.port()
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.origin.address())
    }

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        self.origin.requests().len()
    }

    /// The head of the last question.
    #[track_caller]
    pub fn last_head(&self) -> String {
        self.origin.last_request().head
    }
}

/// One DER element.
pub(crate) fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
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

/// The first element of some bytes: tag and length, its content, what follows.
fn take(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (len, head) = match *bytes.get(1)? {
        0x81 => (usize::from(*bytes.get(2)?), 3),
        0x82 => (usize::from(*bytes.get(2)?) << 8 | usize::from(*bytes.get(3)?), 4),
        n => (usize::from(n), 2),
    };
    let whole = bytes.get(..head + len)?;
    Some((whole, &whole[head..], &bytes[head + len..]))
}

/// The subject of a certificate of version 3.
fn subject(cert: &[u8]) -> Option<&[u8]> {
    let (_, body, _) = take(cert)?;
    let (_, mut rest, _) = take(body)?;
    // Version, number, algorithm, issuer, validity.
    for _ in 0..5 {
        rest = take(rest)?.2;
    }
    take(rest).map(|(whole, ..)| whole)
}

/// A time from now on, as a GeneralizedTime.
fn time(secs_from_now: i64) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    // "Sat, 21 Nov 2026 05:04:51 GMT"
    let text = String::from_utf8(date::http_time(now + secs_from_now).to_vec()).unwrap();
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = months.find(&text[8..11]).unwrap() / 3 + 1;
    let clock = text[17..25].replace(':', "");
    let text = format!("{}{month:02}{}{clock}Z", &text[12..16], &text[5..7]);
    der(0x18, &[text.as_bytes()])
}

fn answer(signer: &Signer, says: Says, question: &[u8]) -> Vec<u8> {
    if says == Says::Unauthorized {
        return vec![0x30, 3, 0x0a, 1, 6];
    }
    // The certificate's id is in four sequences.
    let mut id = question;
    for _ in 0..4 {
        id = take(id).map_or(&[], |(_, body, _)| body);
    }
    let mut id = id.to_vec();
    if let (Says::Another, Some(last)) = (says, id.last_mut()) {
        *last ^= 1;
    }
    let status = match says {
        Says::Revoked => der(0xa1, &[&time(-7200)]),
        Says::Unknown => der(0x82, &[]),
        _ => der(0x80, &[]),
    };
    let end = time(if says == Says::Expired { -3600 } else { 3600 });
    let single = der(0x30, &[&id, &status, &time(-7200), &der(0xa0, &[&end])]);
    let responder = der(0xa1, &[subject(&signer.cert).unwrap()]);
    let tbs = der(0x30, &[&responder, &time(-7200), &der(0x30, &[&single])]);
    let mut signed = signer.key.sign(&tbs).unwrap();
    if let (Says::Forged, Some(last)) = (says, signed.last_mut()) {
        *last ^= 1;
    }
    // ecdsa-with-SHA256
    let algorithm = der(0x30, &[&der(6, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]])]);
    let certs = der(0xa0, &[&der(0x30, &[&signer.cert])]);
    let basic = der(0x30, &[&tbs, &algorithm, &der(3, &[&[0], &signed]), &certs]);
    let kind = der(6, &[&[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1]]);
    let bytes = der(0x30, &[&kind, &der(4, &[&basic])]);
    der(0x30, &[&[0x0a, 1, 0], &der(0xa0, &[&bytes])])
}
