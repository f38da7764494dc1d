//! Certificates, keys, lists of trusted ones and of revoked ones, from files or from the
//! configuration itself (`data:`), with nginx's messages.

use crate::pem::{self, Key, KeyError};
use crate::server;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
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
        let why = weir_base::system::words(&e);
        let Some(code) = e.raw_os_error() else { return why };
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

const STORE: &[u8] = b"store:";

/// A key's text. Of OpenSSL's stores there is the file: `store:file:/path`, whose content may be
/// DER as well.
fn key_text(key: &[u8], read: &mut Read<'_>) -> Result<Arc<[u8]>, String> {
    if key.starts_with(b"engine:") {
        return Err("loading \"engine:...\" certificate keys is not supported".to_string());
    }
    let Some(uri) = key.strip_prefix(STORE) else { return text(key, read) };
    let path =
        uri.strip_prefix(b"file:").ok_or("of all stores \"store:file:...\" alone is supported")?;
    let local = path.strip_prefix(b"//localhost").or(path.strip_prefix(b"//")).unwrap_or(path);
    match local.starts_with(b"/") {
        true => text(local, read),
        false => Err("\"store:file:...\" needs an absolute path".to_string()),
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
    let cannot = |e: String| format!("cannot load certificate key \"{}\": {e}", shown(key));
    let key_text = key_text(key, read).map_err(cannot)?;
    let opened = pem::private_key(&key_text, passwords);
    let in_der = || PrivateKeyDer::try_from(key_text.to_vec()).ok();
    let opened = match opened {
        Err(KeyError::None) if key.starts_with(STORE) => match in_der() {
            Some(der) => Ok(Key { der, was_encrypted: false }),
            None => Err(KeyError::None),
        },
        opened => opened,
    };
    let opened = opened.map_err(|e| {
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
