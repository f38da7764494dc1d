//! `…_ssl_*`: TLS to servers.

/// The rows of a family that can speak TLS; `$host` is the default of `…_ssl_name`.
macro_rules! ssl_rows {
    ($slot:ty, $prefix:literal, $host:literal) => {{
        use weir_module::{ArgsExt, Arity, Context, Directive, Row};
        use $crate::rows;
        const HSL: Context = Context::HSL;
        macro_rules! loc {
            ($field:ident, $read:expr) => {
                |cf, d| {
                    let v = $read(d)?;
                    rows::pick::<$slot>(cf).tls.$field.once(d, v)
                }
            };
        }
        const ROWS: &[Row] = &[
            Row::new(concat!($prefix, "ssl_session_reuse"), HSL, Arity::FLAG, "on", "Sessions with servers are resumed.", loc!(session_reuse, |d: &Directive| d.flag())),
            Row::new(concat!($prefix, "ssl_protocols"), HSL, Arity::ONE_MORE, "TLSv1.2 TLSv1.3", "The versions spoken with servers.", |cf, d| {
                let set = weir_core::tls::words::protocols(d)?;
                let tls = &mut rows::pick::<$slot>(cf).tls;
                tls.places.keep(weir_tls::offer::About::Protocols, d);
                let slot = &mut tls.protocols;
                let before = slot.as_option().map_or(0, |p| p.0);
                slot.set(weir_tls::offer::Protocols(before | set.0));
                Ok(())
            })
            .note("versions below TLSv1.2 are left out with a warning, and refused where they stand alone"),
            Row::new(concat!($prefix, "ssl_ciphers"), HSL, Arity::ONE, "DEFAULT", "The suites of TLS 1.2 for servers, in OpenSSL's language.", |cf, d| {
                let text = d.text(0)?.to_string();
                let tls = &mut rows::pick::<$slot>(cf).tls;
                tls.places.keep(weir_tls::offer::About::Ciphers, d);
                tls.ciphers.once(d, text)
            })
            .note("ECDHE with AES-GCM or ChaCha20; what names other suites is left out with a warning, and a string that leaves none is refused"),
            Row::new(concat!($prefix, "ssl_name"), HSL, Arity::ONE, $host, "The server's name, for SNI and verification.", |cf, d| {
                let name = Some(std::sync::Arc::new(weir_http::vars::template(cf, d, 0)?));
                rows::pick::<$slot>(cf).tls.name.once(d, name)
            }),
            Row::new(concat!($prefix, "ssl_server_name"), HSL, Arity::FLAG, "off", "The server is told the name (SNI).", loc!(server_name, |d: &Directive| d.flag())),
            Row::new(concat!($prefix, "ssl_verify"), HSL, Arity::FLAG, "off", "The server's certificate is verified.", loc!(verify, |d: &Directive| d.flag())),
            Row::new(concat!($prefix, "ssl_verify_depth"), HSL, Arity::ONE, "1", "How many certificates may stand between a server's and the trusted one.", loc!(verify_depth, |d: &Directive| d.num(0))),
            Row::new(concat!($prefix, "ssl_trusted_certificate"), HSL, Arity::ONE, "", "Certificates that servers' are verified by.", loc!(trusted_certificate, |d: &Directive| Ok::<_, weir_module::Diagnostic>(d.arg(0).to_vec()))),
            Row::new(concat!($prefix, "ssl_crl"), HSL, Arity::ONE, "", "Lists of revoked server certificates.", loc!(crl, |d: &Directive| Ok::<_, weir_module::Diagnostic>(d.arg(0).to_vec()))),
            Row::new(concat!($prefix, "ssl_certificate"), HSL, Arity::ONE, "", "The certificate that servers are shown.", |cf, d| {
                let name = Some(weir_core::tls::files::Name::of::<weir_http::Request>(cf, d, 0)?);
                rows::pick::<$slot>(cf).tls.certificate.once(d, name)
            }),
            Row::new(concat!($prefix, "ssl_certificate_key"), HSL, Arity::ONE, "", "Its key.", |cf, d| {
                let name = Some(weir_core::tls::files::Name::of::<weir_http::Request>(cf, d, 0)?);
                rows::pick::<$slot>(cf).tls.key.once(d, name)
            })
            .note("engine: and store: are refused, because rustls takes keys from files"),
            Row::new(concat!($prefix, "ssl_certificate_cache"), HSL, Arity::ONE_TO_THREE, "off", "Keeps certificates that variables name.", |cf, d| {
                let rule = weir_core::tls::files::cache_rule(d)?;
                rows::pick::<$slot>(cf).tls.cache.once(d, rule)
            }),
            Row::new(concat!($prefix, "ssl_password_file"), HSL, Arity::ONE, "", "Passwords of encrypted keys, one on a line.", |cf, d| {
                let list = weir_core::tls::files::read_passwords(cf, d)?;
                rows::pick::<$slot>(cf).tls.passwords.once(d, list)
            }),
            Row::new(concat!($prefix, "ssl_conf_command"), HSL, Arity::TWO, "", "A command of OpenSSL's configuration.", |cf, d| {
                let pair = (d.text(0)?.to_string(), d.text(1)?.to_string());
                let tls = &mut rows::pick::<$slot>(cf).tls;
                tls.places.keep(weir_tls::offer::About::Command, d);
                let list = &mut tls.commands;
                match list.as_mut() {
                    Some(all) => all.push(pair),
                    None => list.set(vec![pair]),
                }
                Ok(())
            })
            .note("Certificate, PrivateKey, CipherString, Ciphersuites, Groups, MinProtocol, MaxProtocol and some Options; others are refused"),
        ];
        ROWS
    }};
}
