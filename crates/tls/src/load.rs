//! Certificates, keys, lists of trusted ones and of revoked ones, from files or from the
//! configuration itself (`data:`), with nginx's messages.

use crate::{pem, server};
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use std::io;
use std::sync::Arc;

/// How files are read: relative names start at the configuration's directory.
pub type Read<'a> = dyn FnMut(&[u8]) -> io::Result<Arc<[u8]>> + 'a;

fn shown(name: &[u8]) -> String {
    match name.starts_with(b"data:") {
        true => "data:...".to_string(),
        false => String::from_utf8_lossy(name).into_owned(),
    }
}

/// The text of a file or of the name itself; an error is the reason without the file's name.
fn text(name: &[u8], read: &mut Read<'_>) -> Result<Arc<[u8]>, String> {
    if let Some(inline) = name.strip_prefix(b"data:") {
        return Ok(inline.into());
    }
    read(name).map_err(|e| {
        let code = e.raw_os_error().unwrap_or(0);
        let why = e.to_string();
        let why = why.split(" (os error").next().unwrap_or(&why);
        format!(
            "BIO_new_file() failed (SSL: error:{:08X}:system library::{why}:calling fopen({}, r))",
            0x8000_0000u32 | code.unsigned_abs(),
            String::from_utf8_lossy(name)
        )
    })
}

pub fn certificates(
    name: &[u8],
    read: &mut Read<'_>,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let list = pem::certificates(&text(name, read)?);
    match list.is_empty() {
        true => Err("PEM_read_bio_X509_AUX() failed (SSL: error:0480006C:PEM routines::no start \
                     line:Expecting: CERTIFICATE)"
            .to_string()),
        false => Ok(list),
    }
}

/// A certificate with its chain and key.
pub fn pair(
    certificate: &[u8],
    key: &[u8],
    passwords: &[Vec<u8>],
    read: &mut Read<'_>,
) -> Result<CertifiedKey, String> {
    opened_pair(certificate, key, passwords, read).map(|(pair, _)| pair)
}

/// The same, and whether a password was needed for the key.
pub fn opened_pair(
    certificate: &[u8],
    key: &[u8],
    passwords: &[Vec<u8>],
    read: &mut Read<'_>,
) -> Result<(CertifiedKey, bool), String> {
    let chain = certificates(certificate, read)
        .map_err(|e| format!("cannot load certificate \"{}\": {e}", shown(certificate)))?;
    for (prefix, why) in [
        ("engine:", "loading \"engine:...\" certificate keys is not supported"),
        ("store:", "loading \"store:...\" certificate keys is not supported"),
    ] {
        if key.starts_with(prefix.as_bytes()) {
            return Err(format!("cannot load certificate key \"{}\": {why}", shown(key)));
        }
    }
    let key_text = text(key, read)
        .map_err(|e| format!("cannot load certificate key \"{}\": {e}", shown(key)))?;
    let opened = pem::private_key(&key_text, passwords).map_err(|e| {
        format!(
            "cannot load certificate key \"{}\": PEM_read_bio_PrivateKey() failed (SSL: {})",
            shown(key),
            e.text()
        )
    })?;
    let pair = server::certified(chain, opened.der)
        .map_err(|e| format!("SSL_CTX_use_PrivateKey(\"{}\") failed (SSL: {e})", shown(key)))?;
    Ok((pair, opened.was_encrypted))
}

/// Trusted certificates.
pub fn trusted(name: &[u8], read: &mut Read<'_>) -> Result<Vec<CertificateDer<'static>>, String> {
    certificates(name, read)
        .map_err(|e| format!("SSL_CTX_load_verify_locations(\"{}\") failed: {e}", shown(name)))
}

pub fn crls(name: &[u8], read: &mut Read<'_>) -> Result<Vec<Vec<u8>>, String> {
    let failed = |e: String| format!("cannot load CRL \"{}\": {e}", shown(name));
    let list = pem::crls(&text(name, read).map_err(failed)?);
    match list.is_empty() {
        true => Err(failed("PEM_read_bio_X509_CRL() failed (no start line)".to_string())),
        false => Ok(list),
    }
}
