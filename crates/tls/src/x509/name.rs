//! Names and numbers of certificates as OpenSSL prints them.

use crate::der::{self, Item, Reader};

const SHORT: &[(&[u8], &str)] = &[
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 13], "description"),
    (&[0x55, 4, 41], "name"),
    (&[0x55, 4, 42], "GN"),
    (&[0x55, 4, 43], "initials"),
    (&[0x55, 4, 44], "generationQualifier"),
    (&[0x55, 4, 46], "dnQualifier"),
    (&[0x55, 4, 65], "pseudonym"),
    (&[0x55, 4, 97], "organizationIdentifier"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
    (&[9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
];

const SIGNATURES: &[(&[u8], &str)] = &[
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], "RSA-SHA1"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10], "RSASSA-PSS"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], "RSA-SHA256"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12], "RSA-SHA384"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13], "RSA-SHA512"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], "ecdsa-with-SHA256"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], "ecdsa-with-SHA384"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4], "ecdsa-with-SHA512"),
    (&[0x2b, 0x65, 0x70], "ED25519"),
];

/// `1.2.840`
pub fn dotted(oid: &[u8]) -> String {
    let mut numbers: Vec<u64> = Vec::new();
    let mut n = 0u64;
    for b in oid {
        n = n << 7 | u64::from(b & 0x7f);
        if b & 0x80 != 0 {
            continue;
        }
        if numbers.is_empty() {
            let first = (n / 40).min(2);
            numbers.extend([first, n - first * 40]);
        } else {
            numbers.push(n);
        }
        n = 0;
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

fn known(list: &[(&[u8], &str)], oid: &[u8]) -> Option<String> {
    list.iter().find(|(o, _)| *o == oid).map(|(_, n)| (*n).to_string())
}

/// A signature algorithm's long name.
pub fn signature(oid: &[u8]) -> String {
    known(SIGNATURES, oid).unwrap_or_else(|| dotted(oid))
}

/// The values of a name, set by set.
fn sets(name: &[u8]) -> Vec<Vec<(String, Item<'_>)>> {
    let mut r = Reader(name);
    let mut out = Vec::new();
    for set in r.sequence().into_iter().flatten() {
        let mut values = Vec::new();
        for pair in Reader(set.body) {
            let mut r = Reader(pair.body);
            if let (Some(oid), Some(value)) = (r.tagged(der::OID), r.item()) {
                values.push((known(SHORT, oid.body).unwrap_or_else(|| dotted(oid.body)), value));
            }
        }
        out.push(values);
    }
    out
}

/// A value as UTF-8.
fn text(value: &Item<'_>) -> Vec<u8> {
    match value.tag {
        // BMPString and UniversalString
        0x1e => {
            let units = value.body.chunks_exact(2).map(|c| u16::from_be_bytes([c[0], c[1]]));
            char::decode_utf16(units).map(|c| c.unwrap_or('\u{fffd}')).collect::<String>().into()
        }
        // T61String and ISO646String are shown byte by byte.
        0x14 => value.body.iter().map(|b| char::from(*b)).collect::<String>().into(),
        _ => value.body.to_vec(),
    }
}

/// RFC 2253: the last first, `CN=a,O=b`.
pub fn rfc2253(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, set) in sets(name).iter().rev().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        for (j, (key, value)) in set.iter().enumerate() {
            if j > 0 {
                out.push(b'+');
            }
            out.extend_from_slice(key.as_bytes());
            out.push(b'=');
            escape(&text(value), &mut out);
        }
    }
    out
}

fn escape(value: &[u8], out: &mut Vec<u8>) {
    let last = value.len().saturating_sub(1);
    for (i, b) in value.iter().enumerate() {
        match b {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => out.extend_from_slice(&[b'\\', *b]),
            b'#' if i == 0 => out.extend_from_slice(b"\\#"),
            b' ' if i == 0 || i == last => out.extend_from_slice(b"\\ "),
            0..=0x1f | 0x7f.. => out.extend_from_slice(format!("\\{b:02X}").as_bytes()),
            _ => out.push(*b),
        }
    }
}

/// The older form: `/O=b/CN=a`.
pub fn legacy(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in sets(name).iter().flatten() {
        out.push(b'/');
        out.extend_from_slice(key.as_bytes());
        out.push(b'=');
        for b in value.body {
            match b {
                b' '..=b'~' => out.push(*b),
                _ => out.extend_from_slice(format!("\\x{b:02X}").as_bytes()),
            }
        }
    }
    out
}

/// The first common name.
pub fn common_name(name: &[u8]) -> Option<Vec<u8>> {
    let all = sets(name);
    all.iter().flatten().find(|(key, _)| key == "CN").map(|(_, value)| text(value))
}

/// A serial number in hexadecimal.
pub fn serial(bytes: &[u8]) -> Vec<u8> {
    let at = bytes.iter().position(|b| *b != 0).unwrap_or(bytes.len());
    match &bytes[at..] {
        [] => b"00".to_vec(),
        rest => rest.iter().flat_map(|b| format!("{b:02X}").into_bytes()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_openssl_prints_them() {
        let der = [
            0x30, 0x1c, 0x31, 9, 0x30, 7, 6, 3, 0x55, 4, 6, 0x13, 0, 0x31, 0x0f, 0x30, 0x0d, 6, 3,
            0x55, 4, 3, 0x0c, 6, b'a', b',', b' ', 0xc3, 0xa9, b'z',
        ];
        assert_eq!(rfc2253(&der), b"CN=a\\, \\C3\\A9z,C=");
        assert_eq!(legacy(&der), b"/C=/CN=a, \\xC3\\xA9z");
        assert_eq!(common_name(&der).unwrap(), "a, éz".as_bytes());
        assert_eq!(rfc2253(&[0x30, 9]), b"");
    }

    #[test]
    fn numbers() {
        assert_eq!(dotted(&[0x2a, 0x86, 0x48, 0xce, 0x3d]), "1.2.840.10045");
        assert_eq!(serial(&[0, 0x0a, 0xff]), b"0AFF");
        assert_eq!(serial(&[0]), b"00");
        assert_eq!(signature(&[0x2b, 0x65, 0x70]), "ED25519");
    }
}
