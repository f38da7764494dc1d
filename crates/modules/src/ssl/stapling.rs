//! The responder's answer that goes with a server's certificate (RFC 6066, section 8).
//!
//! Difference from nginx: answers come from `ssl_stapling_file` alone.

use super::conf::SslSrv;
use weir_module::{Cf, ConfResult, Diagnostic};
use weir_tls::der;
use weir_tls::rustls::sign::CertifiedKey;
use weir_tls::x509::Cert;

/// The answer from the file, when there is one.
pub fn answer(cf: &mut Cf, conf: &SslSrv) -> ConfResult<Option<Vec<u8>>> {
    if !*conf.stapling || conf.stapling_file.is_empty() {
        return Ok(None);
    }
    let path = cf.full_conf_path(&conf.stapling_file);
    let shown = path.display().to_string();
    let text = cf.read_file(&path).map_err(|e| {
        let why = weir_http::core_rows::os_text(&e);
        Diagnostic::emerg(format!("BIO_new_file(\"{shown}\") failed ({why})"))
    })?;
    match der::Reader(&text).sequence().is_some() {
        true => Ok(Some(text.to_vec())),
        false => Err(Diagnostic::emerg(format!("d2i_OCSP_RESPONSE_bio(\"{shown}\") failed"))),
    }
}

/// Warns, as nginx does, where nothing can be stapled.
pub fn warn(
    cf: &mut Cf,
    conf: &SslSrv,
    name: &str,
    pair: &CertifiedKey,
    trusted: &[impl AsRef<[u8]>],
) {
    let Some(leaf) = pair.cert.first().and_then(|c| Cert::parse(c)) else { return };
    let others = pair.cert[1..].iter().map(AsRef::as_ref).chain(trusted.iter().map(AsRef::as_ref));
    let has_issuer = others.filter_map(Cert::parse).any(|c| c.subject == leaf.issuer);
    let text = if !has_issuer {
        format!("\"ssl_stapling\" ignored, issuer certificate not found for certificate \"{name}\"")
    } else if conf.stapling_responder.is_empty() && leaf.ocsp_responder().is_none() {
        format!("\"ssl_stapling\" ignored, no OCSP responder URL in the certificate \"{name}\"")
    } else {
        format!(
            "\"ssl_stapling\" ignored for \"{name}\": Weir staples answers from ssl_stapling_file"
        )
    };
    if !cf.warnings.iter().any(|w| w.message == text) {
        cf.warnings.push(Diagnostic::warn(text));
    }
}
