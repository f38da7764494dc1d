//! `…_ssl_*`: TLS to servers.

use crate::conf::BackendConf;
use crate::rows::pick;
use crate::table::Rows;
use std::sync::Arc;
use weir_core::tls::files::{cache_rule, read_passwords, Name};
use weir_core::tls::words;
use weir_http::vars::template;
use weir_http::Request;
use weir_module::{ArgsExt, Arity, Context, Diagnostic, Directive, Row};
use weir_tls::offer::{About, Protocols};

const HSL: Context = Context::HSL;

macro_rules! loc {
    ($field:ident, $read:expr) => {
        |cf, d| {
            let v = $read(d)?;
            pick::<T>(cf).tls.$field.once(d, v)
        }
    };
}

impl<T: BackendConf> Rows<T> {
    /// For a family that can speak TLS.
    pub(crate) const SSL: &'static [Row] = &[
        Row::new(name!("ssl_session_reuse"), HSL, Arity::FLAG, "on", "Sessions with servers are resumed.", loc!(session_reuse, |d: &Directive| d.flag())),
        Row::new(name!("ssl_protocols"), HSL, Arity::ONE_MORE, "TLSv1.2 TLSv1.3", "The versions spoken with servers.", |cf, d| {
            let set = words::protocols(d)?;
            let tls = &mut pick::<T>(cf).tls;
            tls.places.keep(About::Protocols, d);
            let slot = &mut tls.protocols;
            let before = slot.as_option().map_or(0, |p| p.0);
            slot.set(Protocols(before | set.0));
            Ok(())
        })
        .note("versions below TLSv1.2 are left out with a warning, and refused where they stand alone"),
        Row::new(name!("ssl_ciphers"), HSL, Arity::ONE, "DEFAULT", "The suites of TLS 1.2 for servers, in OpenSSL's language.", |cf, d| {
            let text = d.text(0)?.to_string();
            let tls = &mut pick::<T>(cf).tls;
            tls.places.keep(About::Ciphers, d);
            tls.ciphers.once(d, text)
        })
        .note("ECDHE with AES-GCM or ChaCha20; what names other suites is left out with a warning, and a string that leaves none is refused"),
        Row::new(name!("ssl_name"), HSL, Arity::ONE, T::TLS_NAME, "The server's name, for SNI and verification.", |cf, d| {
            let name = Some(Arc::new(template(cf, d, 0)?));
            pick::<T>(cf).tls.name.once(d, name)
        }),
        Row::new(name!("ssl_server_name"), HSL, Arity::FLAG, "off", "The server is told the name (SNI).", loc!(server_name, |d: &Directive| d.flag())),
        Row::new(name!("ssl_verify"), HSL, Arity::FLAG, "off", "The server's certificate is verified.", loc!(verify, |d: &Directive| d.flag())),
        Row::new(name!("ssl_verify_depth"), HSL, Arity::ONE, "1", "How many certificates may stand between a server's and the trusted one.", loc!(verify_depth, |d: &Directive| d.num(0))),
        Row::new(name!("ssl_trusted_certificate"), HSL, Arity::ONE, "", "Certificates that servers' are verified by.", loc!(trusted_certificate, |d: &Directive| Ok::<_, Diagnostic>(d.arg(0).to_vec()))),
        Row::new(name!("ssl_crl"), HSL, Arity::ONE, "", "Lists of revoked server certificates.", loc!(crl, |d: &Directive| Ok::<_, Diagnostic>(d.arg(0).to_vec()))),
        Row::new(name!("ssl_certificate"), HSL, Arity::ONE, "", "The certificate that servers are shown.", |cf, d| {
            let name = Some(Name::of::<Request>(cf, d, 0)?);
            pick::<T>(cf).tls.certificate.once(d, name)
        }),
        Row::new(name!("ssl_certificate_key"), HSL, Arity::ONE, "", "Its key.", |cf, d| {
            let name = Some(Name::of::<Request>(cf, d, 0)?);
            pick::<T>(cf).tls.key.once(d, name)
        })
        .note("engine: and store: are refused, because rustls takes keys from files"),
        Row::new(name!("ssl_certificate_cache"), HSL, Arity::ONE_TO_THREE, "off", "Keeps certificates that variables name.", |cf, d| {
            let rule = cache_rule(d)?;
            pick::<T>(cf).tls.cache.once(d, rule)
        }),
        Row::new(name!("ssl_password_file"), HSL, Arity::ONE, "", "Passwords of encrypted keys, one on a line.", |cf, d| {
            let list = read_passwords(cf, d)?;
            pick::<T>(cf).tls.passwords.once(d, list)
        }),
        Row::new(name!("ssl_conf_command"), HSL, Arity::TWO, "", "A command of OpenSSL's configuration.", |cf, d| {
            let pair = (d.text(0)?.to_string(), d.text(1)?.to_string());
            let tls = &mut pick::<T>(cf).tls;
            tls.places.keep(About::Command, d);
            let list = &mut tls.commands;
            match list.as_mut() {
                Some(all) => all.push(pair),
                None => list.set(vec![pair]),
            }
            Ok(())
        })
        .note("Certificate, PrivateKey, CipherString, Ciphersuites, Groups, MinProtocol, MaxProtocol and some Options; others are refused"),
    ];
}
