//! SHA-256 as policies and lists of files have it.

use sha2::{Digest, Sha256};

pub fn sha256_hex(text: &[u8]) -> String {
    Sha256::digest(text).iter().map(|b| format!("{b:02x}")).collect()
}

pub fn sha256_base64(text: &[u8]) -> String {
    let mut out = Vec::new();
    weir_base::base64::encode(&mut out, &Sha256::digest(text));
    String::from_utf8_lossy(&out).into_owned()
}
