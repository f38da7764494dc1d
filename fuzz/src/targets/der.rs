//! DER and what is made of it: certificates and revocation lists, whole ones with a part changed.
//! Whatever webpki, which is stricter, takes for a list is one, and revokes no less.

use super::Target;
use crate::random::Random;
use weir_base::date::http_time;
use weir_tls::crl::{is_crl, Crl};
use weir_tls::der::{self, Item, Reader};
use weir_tls::x509::chain::is_for_host;
use weir_tls::x509::{name, Cert};

const PIECES: &[&[u8]] = &[
    b"\x30\x80",
    b"\x30\x00",
    b"\x30\x81\x05",
    b"\x30\x84\xff\xff\xff\xff",
    b"\xa0\x03\x02\x01\xff",
    b"\x02\x01\x05",
    b"\x02\x02\x01\x00",
    b"\x17\x0d700101000000Z",
    b"\x18\x0f20240229120001Z",
    b"0230",
    b"99Z",
    b"\x03\x02\x00\x01",
    b"\x05\x00",
    b"*.",
];

const SEEDS: &[&[u8]] = &[
    include_bytes!("../../seeds/authority.der"),
    include_bytes!("../../seeds/certificate.der"),
    include_bytes!("../../seeds/revoked.der"),
    b"\x30\x06\x17\x0d700101000000Z",
    b"\x18\x0f20240229120001Z\x17\x0d491231235959Z",
];

pub const TARGET: Target = Target { name: "der", seeds: SEEDS, pieces: PIECES, check };

fn check(bytes: &[u8], random: &mut Random) {
    elements(bytes);
    all_that_reads_it(bytes, random);
    let seed = random.pick(SEEDS);
    all_that_reads_it(&reshaped(seed, PIECES, random), random);
}

fn all_that_reads_it(bytes: &[u8], random: &mut Random) {
    certificate(bytes, random);
    revoked(bytes, random);
}

/// Elements stand one behind the other, and times are those that they say.
fn elements(bytes: &[u8]) {
    let mut reader = Reader(bytes);
    let mut at = 0;
    while let Some(item) = reader.item() {
        assert_eq!(item.whole, &bytes[at..at + item.whole.len()]);
        assert!(item.whole.ends_with(item.body) && item.whole.len() >= item.body.len() + 2);
        at += item.whole.len();
        assert_eq!(Reader(&element(item.tag, item.body)).item().map(|i| i.body), Some(item.body));
        time(item);
    }
    assert_eq!(reader.0, &bytes[at..]);
    for tag in [der::UTC_TIME, der::GENERALIZED_TIME] {
        time(Item { tag, body: bytes, whole: bytes });
    }
}

fn element(tag: u8, body: &[u8]) -> Vec<u8> {
    let len = body.len();
    let mut out = match len {
        0..=0x7f => vec![tag, len as u8],
        _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
    };
    out.extend_from_slice(body);
    out
}

fn time(item: Item<'_>) {
    let Some(secs) = der::time(item) else { return };
    // Days are the same 400 years later, and dates of HTTP begin in 1970.
    const CYCLE_SECS: i64 = 146_097 * 86_400;
    let cycles = if secs < 0 { 5 } else { 0 };
    // "Mon, 28 Sep 1970 06:00:00 GMT"
    let text = http_time(secs + cycles * CYCLE_SECS);
    let text = std::str::from_utf8(&text).expect("a date is text");
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun"];
    let more = ["Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().chain(&more).position(|m| *m == &text[8..11]).expect("a month") + 1;
    let year = text[12..16].parse::<i64>().expect("a year") - cycles * 400;
    let (day, clock) = (&text[5..7], text[17..25].replace(':', ""));
    let wanted = format!("{year:04}{month:02}{day}{clock}Z");
    let century = if item.tag == der::UTC_TIME { 2 } else { 0 };
    assert_eq!(item.body, &wanted.as_bytes()[century..]);
    assert!(century == 0 || (1950..2050).contains(&year));
}

/// The same elements, now and then with another content or one more; lengths are right again.
fn reshaped(bytes: &[u8], pieces: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let mut reader = Reader(bytes);
    let mut out = Vec::new();
    while let Some(item) = reader.item() {
        let body = match item.tag & 0x20 != 0 {
            true => reshaped(item.body, pieces, random),
            false => item.body.to_vec(),
        };
        match random.below(80) {
            0 => {}
            1 => out.extend(element(item.tag, random.pick(pieces))),
            2 => out.extend(element(item.tag, &random.mutate(&[&body], pieces))),
            3 => out.extend([random.pick(pieces), &element(item.tag, &body)].concat()),
            4 => out.extend(element(item.tag ^ 1 << random.below(8), &body)),
            _ => out.extend(element(item.tag, &body)),
        }
    }
    out.extend_from_slice(reader.0);
    out
}

fn certificate(bytes: &[u8], random: &mut Random) {
    let Some(cert) = Cert::parse(bytes) else {
        assert!(Cert::parse_whole(bytes).is_none());
        return;
    };
    assert!(bytes.starts_with(cert.whole));
    assert!(Cert::parse(&bytes[..random.below(cert.whole.len())]).is_none(), "cut");
    assert_eq!(Cert::parse_whole(bytes).is_some(), cert.whole.len() == bytes.len());
    let within = |p: &[u8]| p.is_empty() || cert.whole.windows(p.len()).any(|w| w == p);
    assert!([cert.issuer, cert.subject, cert.spki, cert.key].into_iter().all(within));
    // A name is shown in one line, whatever stands in it.
    for shown in [name::rfc2253(cert.subject), name::legacy(cert.issuer)] {
        assert!(shown.iter().all(|b| (b' '..=b'~').contains(b)), "{}", shown.escape_ascii());
    }
    for host in [&b"a.example"[..], b"x.b.example", b"[::1]", b"127.0.0.1", b"*", b"", b"."] {
        is_for_host(&cert, host);
    }
    let other = Cert::parse(SEEDS[0]).expect("a seed");
    let algorithms = weir_tls::server::algorithms();
    assert!(!other.is_signed_by(&cert, &algorithms) || cert.key == other.key);
    cert.signature_name();
    cert.signs_answers();
    let _ = cert.ocsp_responder();
}

fn revoked(bytes: &[u8], random: &mut Random) {
    let strict = webpki::BorrowedCertRevocationList::from_der(bytes);
    if !is_crl(bytes) {
        return;
    }
    let crl = Crl::parse(bytes).expect("a list");
    assert!(crl.next.is_none_or(|t| (-62_167_219_200..253_402_300_800).contains(&t)));
    assert!(Crl::parse(&bytes[..random.below(bytes.len())]).is_none_or(|c| c.issuer == crl.issuer));
    let Ok(strict) = strict else { return };
    for entry in &strict {
        let Ok(entry) = entry else { break };
        // Zeros in front of a number are not part of webpki's.
        let padded = [&[0], entry.serial_number].concat();
        assert!(crl.has(entry.serial_number) || crl.has(&padded), "{:?}", entry.serial_number);
    }
}
