//! Encryption (RFC 7518, sections 4 and 5). Keys for RSA-OAEP are not taken: no library in Rust opens them
//! in a time that tells nothing of the key.

use aes::cipher::{BlockModeDecrypt, KeyIvInit};
use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::aes::{Aes128, Aes192, Aes256};
use aes_gcm::AesGcm;
use cbc::cipher::block_padding::Pkcs7;
use cbc::Decryptor;
use ring::hmac;
use serde_json::{Map, Value};
use subtle::ConstantTimeEq;

use crate::keys::Material;
use crate::token;

const GCM_IV_BYTES: usize = 12;
const GCM_TAG_BYTES: usize = 16;
const CBC_IV_BYTES: usize = 16;

/// The text and what guards it.
pub struct Sealed<'t> {
    pub enc: &'t str,
    /// The header as it was written.
    pub said: &'t [u8],
    pub iv: &'t [u8],
    pub text: &'t [u8],
    pub tag: &'t [u8],
}

impl Sealed<'_> {
    pub fn check(&self) -> Result<(), String> {
        let (iv, tag) = match self.key_bytes() {
            0 => return Err(format!("its encryption \"{}\" is not known", self.enc)),
            bytes if self.is_cbc() => (CBC_IV_BYTES, bytes / 2),
            _ => (GCM_IV_BYTES, GCM_TAG_BYTES),
        };
        match self.iv.len() == iv && self.tag.len() == tag {
            true => Ok(()),
            false => Err("its parts are of a wrong length".into()),
        }
    }

    fn is_cbc(&self) -> bool {
        self.enc.contains("CBC")
    }

    /// How long its key is; 0 when it is not known.
    pub fn key_bytes(&self) -> usize {
        match self.enc {
            "A128GCM" => 16,
            "A192GCM" => 24,
            "A256GCM" | "A128CBC-HS256" => 32,
            "A192CBC-HS384" => 48,
            "A256CBC-HS512" => 64,
            _ => 0,
        }
    }

    pub fn open(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.is_cbc() {
            true => self.open_cbc(key),
            false => open_gcm(key, self.iv, self.said, &[self.text, self.tag].concat()),
        }
    }

    /// AES in CBC behind an HMAC: the check sum first (RFC 7518, section 5.2.2.2).
    fn open_cbc(&self, key: &[u8]) -> Option<Vec<u8>> {
        let half = key.len() / 2;
        let mac = match half {
            16 => hmac::HMAC_SHA256,
            24 => hmac::HMAC_SHA384,
            _ => hmac::HMAC_SHA512,
        };
        let (mac_key, key) = key.split_at(half);
        let mut sum = hmac::Context::with_key(&hmac::Key::new(mac, mac_key));
        sum.update(self.said);
        sum.update(self.iv);
        sum.update(self.text);
        sum.update(&(8 * self.said.len() as u64).to_be_bytes());
        let sum = sum.sign();
        let expected = sum.as_ref().get(..half)?;
        if !bool::from(expected.ct_eq(self.tag)) {
            return None;
        }
        let mut text = self.text.to_vec();
        let plain = match half {
            16 => Decryptor::<aes::Aes128>::new_from_slices(key, self.iv)
                .ok()?
                .decrypt_padded::<Pkcs7>(&mut text),
            24 => Decryptor::<aes::Aes192>::new_from_slices(key, self.iv)
                .ok()?
                .decrypt_padded::<Pkcs7>(&mut text),
            _ => Decryptor::<aes::Aes256>::new_from_slices(key, self.iv)
                .ok()?
                .decrypt_padded::<Pkcs7>(&mut text),
        };
        Some(plain.ok()?.to_vec())
    }
}

/// `sealed` has its tag behind it.
fn open_gcm(key: &[u8], iv: &[u8], said: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let iv: [u8; GCM_IV_BYTES] = iv.try_into().ok()?;
    let payload = Payload { msg: sealed, aad: said };
    let nonce = iv.into();
    match key.len() {
        16 => AesGcm::<Aes128, aes_gcm::aead::consts::U12>::new_from_slice(key)
            .ok()?
            .decrypt(&nonce, payload),
        24 => AesGcm::<Aes192, aes_gcm::aead::consts::U12>::new_from_slice(key)
            .ok()?
            .decrypt(&nonce, payload),
        32 => AesGcm::<Aes256, aes_gcm::aead::consts::U12>::new_from_slice(key)
            .ok()?
            .decrypt(&nonce, payload),
        _ => return None,
    }
    .ok()
}

/// The key of a text, as it is sent with it.
pub enum Wrapped<'t> {
    /// It is not sent: the key is the one that both have.
    Direct,
    /// By a key of so many bytes (RFC 3394).
    Aes(usize, &'t [u8]),
    /// By a key of so many bytes, in GCM.
    Gcm { key_bytes: usize, iv: Vec<u8>, sealed: Vec<u8> },
}

impl<'t> Wrapped<'t> {
    pub fn new(
        alg: &str,
        header: &Map<String, Value>,
        key: &'t [u8],
    ) -> Result<Wrapped<'t>, String> {
        let bytes = match alg.get(..4) {
            Some("A128") => 16,
            Some("A192") => 24,
            _ => 32,
        };
        match alg {
            "dir" if key.is_empty() => Ok(Wrapped::Direct),
            "dir" => Err("it has a key where there is none".into()),
            "A128KW" | "A192KW" | "A256KW" => Ok(Wrapped::Aes(bytes, key)),
            "A128GCMKW" | "A192GCMKW" | "A256GCMKW" => {
                let part = |name: &str| {
                    let text = header.get(name).and_then(Value::as_str);
                    let part = text.and_then(|text| token::decode(text.as_bytes()));
                    part.ok_or_else(|| format!("its header has no \"{name}\""))
                };
                let (iv, tag) = (part("iv")?, part("tag")?);
                if tag.len() != GCM_TAG_BYTES {
                    return Err("its parts are of a wrong length".into());
                }
                Ok(Wrapped::Gcm { key_bytes: bytes, iv, sealed: [key, &tag].concat() })
            }
            _ => Err(format!("its key's algorithm \"{alg}\" is not known")),
        }
    }

    /// The key of the text, of that length; `None` when this is not the one that it was wrapped by.
    pub fn open(&self, by: &Material, key_bytes: usize) -> Option<Vec<u8>> {
        let Material::Secret(by) = by else { return None };
        let key = match self {
            Wrapped::Direct => by.clone(),
            Wrapped::Aes(bytes, wrapped) => unwrap_aes(by, wrapped, *bytes)?,
            Wrapped::Gcm { key_bytes: bytes, iv, sealed } if by.len() == *bytes => {
                open_gcm(by, iv, b"", sealed)?
            }
            Wrapped::Gcm { .. } => return None,
        };
        (key.len() == key_bytes).then_some(key)
    }
}

fn unwrap_aes(by: &[u8], wrapped: &[u8], bytes: usize) -> Option<Vec<u8>> {
    if by.len() != bytes
        || wrapped.len() < 24
        || wrapped.len() > 72
        || !wrapped.len().is_multiple_of(8)
    {
        return None;
    }
    let mut key = vec![0; wrapped.len() - 8];
    let opened = match bytes {
        16 => aes_kw::KwAes128::new_from_slice(by).ok()?.unwrap_key(wrapped, &mut key).is_ok(),
        24 => aes_kw::KwAes192::new_from_slice(by).ok()?.unwrap_key(wrapped, &mut key).is_ok(),
        _ => aes_kw::KwAes256::new_from_slice(by).ok()?.unwrap_key(wrapped, &mut key).is_ok(),
    };
    opened.then_some(key)
}
