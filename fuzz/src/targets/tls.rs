//! What TLS takes from configurations and from peers besides the protocol itself: cipher strings,
//! PEM text with keys in it, ticket keys, certificates.

use super::Target;
use weir_tls::sessions::TicketKeys;
use weir_tls::x509::{name, Cert};
use weir_tls::{ciphers, der, ocsp, pem};

pub const CIPHERS: Target = Target {
    name: "ciphers",
    seeds: &[
        b"HIGH:!aNULL:!MD5",
        b"ECDHE+AESGCM:ECDHE-RSA-CHACHA20-POLY1305:-aECDSA:+AES256:@STRENGTH",
        b"DEFAULT@SECLEVEL=1,ALL;!kRSA",
    ],
    pieces: &[b":", b"!", b"-", b"+", b"@", b"ALL", b"AES", b"ECDHE", b" ", b",", b"\xff"],
    check: |text, _| {
        let text = String::from_utf8_lossy(text);
        let chosen = ciphers::select(&text);
        assert!(chosen.len() <= 6);
        let again: Vec<String> = chosen.iter().map(|s| ciphers::name(s.suite())).collect();
        assert_eq!(ciphers::select(&again.join(":")), chosen);
        let _ = ciphers::groups(&text);
        let _ = ciphers::select_tls13(&text);
    },
};

const LEGACY: &[u8] = b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: \
    AES-128-CBC,00112233445566778899AABBCCDDEEFF\n\nMAMCAQA=\n-----END RSA PRIVATE KEY-----\n";

pub const PEM: Target = Target {
    name: "pem",
    seeds: &[
        LEGACY,
        b"-----BEGIN CERTIFICATE-----\nMAMCAQA=\n-----END CERTIFICATE-----\n",
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAMCAQA=\n-----END ENCRYPTED PRIVATE KEY-----\n",
    ],
    pieces: &[
        b"-----",
        b"BEGIN ",
        b"END ",
        b"PRIVATE KEY",
        b"\n",
        b": ",
        b"DES-EDE3-CBC,",
        b"=",
        b"AAAA",
        b"MIIB",
        b",",
    ],
    check: |text, random| {
        let passwords = [b"one".to_vec(), random.next().to_le_bytes().to_vec()];
        let _ = pem::private_key(text, &passwords);
        for cert in pem::certificates(text) {
            assert!(Cert::parse(&cert).is_some());
        }
        pem::crls(text);
        pem::passwords(text);
        let _ = TicketKeys::of_files([text]);
    },
};

pub const CERTIFICATES: Target = Target {
    name: "certificates",
    seeds: &[
        b"\x30\x03\x02\x01\x00",
        b"\x30\x82\x00\x08\x30\x06\xa0\x03\x02\x01\x02\x05",
        b"\x30\x0f\x31\x0d\x30\x0b\x06\x03\x55\x04\x03\x0c\x04\x74\x65\x73\x74",
    ],
    pieces: &[
        b"\x30\x80",
        b"\x30\x81\x05",
        b"\x30\x84\xff\xff\xff\xff",
        b"\x06\x03\x55\x04\x03",
        b"\xa0",
        b"\x17\x0d700101000000Z",
        b"\x03\x02\x00\x01",
        b"\x05\x00",
    ],
    check: |bytes, _| {
        if let Some(cert) = Cert::parse(bytes) {
            name::rfc2253(cert.subject);
            name::legacy(cert.issuer);
            cert.signature_name();
            let _ = cert.ocsp_responder();
        }
        name::rfc2253(bytes);
        name::legacy(bytes);
        name::dotted(bytes);
        for item in der::Reader(bytes) {
            assert!(item.body.len() < item.whole.len() && item.whole.len() <= bytes.len());
            let _ = der::time(item);
        }
    },
};

/// An answer about certificate 5 of an authority without name and key, signed by nobody.
const ANSWER: &[u8] =
    b"\x30\x81\xc0\x0a\x01\x00\xa0\x81\xba\x30\x81\xb7\x06\x09\x2b\x06\x01\x05\x05\x07\x30\
    \x01\x01\x04\x81\xa9\x30\x81\xa6\x30\x81\x8d\xa2\x16\x04\x14\xda\x39\xa3\xee\x5e\x6b\
    \x4b\x0d\x32\x55\xbf\xef\x95\x60\x18\x90\xaf\xd8\x07\x09\x18\x0f\x32\x30\x32\x36\x30\
    \x31\x30\x31\x30\x30\x30\x30\x30\x30\x5a\x30\x62\x30\x60\x30\x38\x30\x07\x06\x05\x2b\
    \x0e\x03\x02\x1a\x04\x14\xda\x39\xa3\xee\x5e\x6b\x4b\x0d\x32\x55\xbf\xef\x95\x60\x18\
    \x90\xaf\xd8\x07\x09\x04\x14\xda\x39\xa3\xee\x5e\x6b\x4b\x0d\x32\x55\xbf\xef\x95\x60\
    \x18\x90\xaf\xd8\x07\x09\x02\x01\x05\x80\x00\x18\x0f\x32\x30\x32\x36\x30\x31\x30\x31\
    \x30\x30\x30\x30\x30\x30\x5a\xa0\x11\x18\x0f\x32\x30\x32\x36\x30\x31\x30\x31\x30\x30\
    \x30\x30\x30\x30\x5a\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02\x03\x02\x00\x01\
    \xa0\x04\x30\x02\x30\x00";

pub const OCSP: Target = Target {
    name: "ocsp",
    seeds: &[ANSWER, b"\x30\x03\x0a\x01\x06"],
    pieces: &[
        b"\x0a\x01\x00",
        b"\x30\x80",
        b"\x30\x84\xff\xff\xff\xff",
        b"\xa0\x11",
        b"\xa1\x00",
        b"\x80\x00",
        b"\x18\x0f20260101000000Z",
    ],
    check: |bytes, random| {
        let (mut cert, issuer) = (Cert::default(), Cert::default());
        cert.serial = b"\x05";
        let verify_signer = random.next() % 2 == 0;
        let asked = ocsp::Asked { cert: &cert, issuer: &issuer, others: &[], verify_signer };
        let judged = ocsp::judge(bytes, &asked, 1_767_225_600, &weir_tls::server::algorithms());
        assert!(judged.is_err(), "nobody has signed it");
        let _ = judged.map_err(ocsp::OcspError::text);
    },
};
