//! Certificates and keys from PEM text, keys also encrypted: PKCS#8 (RFC 5958) and the older
//! `Proc-Type: 4,ENCRYPTED` form of OpenSSL.

use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use weir_base::base64;

/// One `-----BEGIN …-----` block.
struct Block {
    label: String,
    /// `Name: value` lines before the text.
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

/// The blocks of a text, in order; a damaged one ends the list.
fn blocks(text: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines().map(str::trim);
    let mut out = Vec::new();
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|l| l.strip_suffix("-----"))
        else {
            continue;
        };
        let mut block = Block { label: label.to_string(), fields: Vec::new(), body: Vec::new() };
        let mut encoded = String::new();
        let end = format!("-----END {label}-----");
        let is_whole = lines.by_ref().any(|line| {
            match line.split_once(": ") {
                _ if line == end => return true,
                Some((name, value)) => block.fields.push((name.into(), value.into())),
                None => encoded.push_str(line),
            }
            false
        });
        match base64::decode(encoded.as_bytes()).filter(|_| is_whole) {
            Some(body) => block.body = body,
            None => break,
        }
        out.push(block);
    }
    out
}

/// The certificates of a text; `TRUSTED CERTIFICATE` carries more behind the certificate.
pub fn certificates(text: &[u8]) -> Vec<CertificateDer<'static>> {
    let is_one =
        |label: &str| matches!(label, "CERTIFICATE" | "X509 CERTIFICATE" | "TRUSTED CERTIFICATE");
    let all = blocks(text).into_iter().filter(|b| is_one(&b.label));
    all.filter_map(|b| crate::x509::Cert::parse(&b.body).map(|c| c.whole.to_vec().into())).collect()
}

/// The revocation lists of a text.
pub fn crls(text: &[u8]) -> Vec<Vec<u8>> {
    let all = blocks(text).into_iter().filter(|b| b.label == "X509 CRL").map(|b| b.body);
    all.filter(|b| crate::crl::is_crl(b)).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// No key in the text.
    None,
    /// It is encrypted and no password opens it.
    Locked,
    /// It is encrypted in a way that is not known.
    Method,
}

impl KeyError {
    pub fn text(self) -> &'static str {
        match self {
            KeyError::None => "no start line:Expecting: ANY PRIVATE KEY",
            KeyError::Locked => "bad decrypt",
            KeyError::Method => "unsupported encryption",
        }
    }
}

/// A private key out of a text.
pub struct Key {
    pub der: PrivateKeyDer<'static>,
    /// A password has opened it.
    pub was_encrypted: bool,
}

/// The first private key of a text, opened with one of the passwords when it is encrypted.
pub fn private_key(text: &[u8], passwords: &[Vec<u8>]) -> Result<Key, KeyError> {
    let is_key = |b: &Block| b.label.ends_with("PRIVATE KEY");
    let block = blocks(text).into_iter().find(is_key).ok_or(KeyError::None)?;
    let encrypted = block.fields.iter().any(|(n, v)| n == "Proc-Type" && v.contains("ENCRYPTED"));
    let (der, was_encrypted) = if block.label == "ENCRYPTED PRIVATE KEY" {
        (open(passwords, |p| decrypt_pkcs8(&block.body, p))?, true)
    } else if encrypted {
        (open(passwords, |p| decrypt_legacy(&block, p))?, true)
    } else {
        (typed(&block.label, block.body), false)
    };
    Ok(Key { der, was_encrypted })
}

fn typed(label: &str, body: Vec<u8>) -> PrivateKeyDer<'static> {
    match label {
        "RSA PRIVATE KEY" => PrivatePkcs1KeyDer::from(body).into(),
        "EC PRIVATE KEY" => PrivateSec1KeyDer::from(body).into(),
        _ => PrivatePkcs8KeyDer::from(body).into(),
    }
}

/// Tries the passwords in turn.
fn open(
    passwords: &[Vec<u8>],
    with: impl Fn(&[u8]) -> Result<PrivateKeyDer<'static>, KeyError>,
) -> Result<PrivateKeyDer<'static>, KeyError> {
    let mut problem = KeyError::Locked;
    for password in passwords {
        match with(password) {
            Ok(key) => return Ok(key),
            Err(e) => problem = e,
        }
    }
    Err(problem)
}

fn decrypt_pkcs8(body: &[u8], password: &[u8]) -> Result<PrivateKeyDer<'static>, KeyError> {
    let info = pkcs8::EncryptedPrivateKeyInfoRef::try_from(body).map_err(|_| KeyError::Method)?;
    let plain = info.decrypt(password).map_err(|_| KeyError::Locked)?;
    Ok(PrivatePkcs8KeyDer::from(plain.as_bytes().to_vec()).into())
}

/// `DEK-Info: AES-256-CBC,IV`: the key is MD5 over password and the IV's first bytes, chained.
fn decrypt_legacy(block: &Block, password: &[u8]) -> Result<PrivateKeyDer<'static>, KeyError> {
    let info = block.fields.iter().find(|(n, _)| n == "DEK-Info").ok_or(KeyError::Method)?;
    let (cipher, iv) = info.1.split_once(',').ok_or(KeyError::Method)?;
    let iv = weir_base::bytes::parse_hex_bytes(iv.trim().as_bytes()).ok_or(KeyError::Method)?;
    let salt = iv.get(..8).ok_or(KeyError::Method)?;
    let plain = match cipher {
        "AES-128-CBC" => cbc_open::<aes::Aes128>(&derive(password, salt, 16), &iv, &block.body),
        "AES-192-CBC" => cbc_open::<aes::Aes192>(&derive(password, salt, 24), &iv, &block.body),
        "AES-256-CBC" => cbc_open::<aes::Aes256>(&derive(password, salt, 32), &iv, &block.body),
        "DES-EDE3-CBC" => cbc_open::<des::TdesEde3>(&derive(password, salt, 24), &iv, &block.body),
        _ => return Err(KeyError::Method),
    };
    let plain = plain.ok_or(KeyError::Locked)?;
    // A wrong password may leave right padding: what comes out must be one DER sequence.
    let is_der = crate::der::Reader(&plain).tagged(crate::der::SEQUENCE).is_some();
    match is_der {
        true => Ok(typed(&block.label, plain)),
        false => Err(KeyError::Locked),
    }
}

/// OpenSSL's `EVP_BytesToKey` with MD5 and one round.
fn derive(password: &[u8], salt: &[u8], len: usize) -> Vec<u8> {
    use md5::{Digest, Md5};
    let mut key: Vec<u8> = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    while key.len() < len {
        last = Md5::new()
            .chain_update(&last)
            .chain_update(password)
            .chain_update(salt)
            .finalize()
            .to_vec();
        key.extend_from_slice(&last);
    }
    key.truncate(len);
    key
}

fn cbc_open<C>(key: &[u8], iv: &[u8], body: &[u8]) -> Option<Vec<u8>>
where
    C: cbc::cipher::BlockCipherDecrypt + cbc::cipher::KeyInit,
{
    use cbc::cipher::{block_padding::Pkcs7, BlockModeDecrypt, KeyIvInit};
    let decryptor = cbc::Decryptor::<C>::new_from_slices(key, iv).ok()?;
    decryptor.decrypt_padded_vec::<Pkcs7>(body).ok()
}

/// The lines of a password file.
pub fn passwords(text: &[u8]) -> Vec<Vec<u8>> {
    let lines = text.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    lines.filter(|l| !l.is_empty()).map(<[u8]>::to_vec).collect()
}
