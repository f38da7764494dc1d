//! `proxy_ssl_*`: TLS to the servers that `proxy_pass https://…` names.

use super::conf::ProxyLoc;
use crate::ssl::{cache_rule, protocols, read_passwords, Name};
use std::sync::Arc;
use weir_module::{ArgsExt, Arity, Context, Directive, Row};
use weir_tls::offer::Protocols;

const HSL: Context = Context::HSL;

macro_rules! loc {
    ($field:ident, $read:expr) => {
        |cf, d| {
            let v = $read(d)?;
            cf.get::<ProxyLoc>().tls.$field.once(d, v)
        }
    };
}

fn flag(d: &Directive) -> weir_module::ConfResult<bool> {
    d.flag()
}

pub const ROWS: &[Row] = &[
    Row::new("proxy_ssl_session_reuse", HSL, Arity::FLAG, "on", "Sessions with servers are resumed.", loc!(session_reuse, flag)),
    Row::new("proxy_ssl_protocols", HSL, Arity::ONE_MORE, "TLSv1.2 TLSv1.3", "The versions spoken with servers.", |cf, d| {
        let set = protocols(d)?;
        let slot = &mut cf.get::<ProxyLoc>().tls.protocols;
        let before = slot.as_option().map_or(0, |p| p.0);
        slot.set(Protocols(before | set.0));
        Ok(())
    })
    .note("versions below TLSv1.2 are left out with a warning, and refused where they stand alone"),
    Row::new("proxy_ssl_ciphers", HSL, Arity::ONE, "DEFAULT", "The suites of TLS 1.2 for servers, in OpenSSL's language.", |cf, d| {
        let text = d.text(0)?.to_string();
        cf.get::<ProxyLoc>().tls.ciphers.once(d, text)
    })
    .note("ECDHE with AES-GCM or ChaCha20; other suites match nothing, and a string that leaves none is refused"),
    Row::new("proxy_ssl_name", HSL, Arity::ONE, "$proxy_host", "The server's name, for SNI and verification.", |cf, d| {
        let name = Some(Arc::new(weir_http::vars::template(cf, d, 0)?));
        cf.get::<ProxyLoc>().tls.name.once(d, name)
    }),
    Row::new("proxy_ssl_server_name", HSL, Arity::FLAG, "off", "The server is told the name (SNI).", loc!(server_name, flag)),
    Row::new("proxy_ssl_verify", HSL, Arity::FLAG, "off", "The server's certificate is verified.", loc!(verify, flag)),
    Row::new("proxy_ssl_verify_depth", HSL, Arity::ONE, "1", "How many certificates may stand between a server's and the trusted one.", loc!(verify_depth, |d: &Directive| d.num(0))),
    Row::new("proxy_ssl_trusted_certificate", HSL, Arity::ONE, "", "Certificates that servers' are verified by.", loc!(trusted_certificate, |d: &Directive| Ok::<_, weir_module::Diagnostic>(d.arg(0).to_vec()))),
    Row::new("proxy_ssl_crl", HSL, Arity::ONE, "", "Lists of revoked server certificates.", loc!(crl, |d: &Directive| Ok::<_, weir_module::Diagnostic>(d.arg(0).to_vec()))),
    Row::new("proxy_ssl_certificate", HSL, Arity::ONE, "", "The certificate that servers are shown.", |cf, d| {
        let name = Some(Name::of(cf, d, 0)?);
        cf.get::<ProxyLoc>().tls.certificate.once(d, name)
    }),
    Row::new("proxy_ssl_certificate_key", HSL, Arity::ONE, "", "Its key.", |cf, d| {
        let name = Some(Name::of(cf, d, 0)?);
        cf.get::<ProxyLoc>().tls.key.once(d, name)
    })
    .note("engine: and store: are refused, because rustls takes keys from files"),
    Row::new("proxy_ssl_certificate_cache", HSL, Arity::ONE_TO_THREE, "off", "Keeps certificates that variables name.", |cf, d| {
        let rule = cache_rule(d)?;
        cf.get::<ProxyLoc>().tls.cache.once(d, rule)
    }),
    Row::new("proxy_ssl_password_file", HSL, Arity::ONE, "", "Passwords of encrypted keys, one on a line.", |cf, d| {
        let list = read_passwords(cf, d)?;
        cf.get::<ProxyLoc>().tls.passwords.once(d, list)
    }),
    Row::new("proxy_ssl_conf_command", HSL, Arity::TWO, "", "A command of OpenSSL's configuration.", |cf, d| {
        let pair = (d.text(0)?.to_string(), d.text(1)?.to_string());
        let list = &mut cf.get::<ProxyLoc>().tls.commands;
        match list.as_mut() {
            Some(all) => all.push(pair),
            None => list.set(vec![pair]),
        }
        Ok(())
    })
    .note("Certificate, PrivateKey, CipherString, Ciphersuites, Groups, MinProtocol, MaxProtocol and some Options; others are refused"),
    Row::new("proxy_ssl_key_log", HSL, Arity::ONE, "", "Writes the keys of sessions with servers to a file, for analysing traffic.", |cf, d| {
        let path = Some(cf.full_path(d.arg(0)));
        cf.get::<ProxyLoc>().tls.key_log.once(d, path)
    }),
];
