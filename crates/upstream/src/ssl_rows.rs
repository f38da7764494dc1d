//! `…_ssl_*`: the directives of TLS to servers, written once for all that have them.

use crate::outgoing::Outgoing;
use std::marker::PhantomData;
use std::sync::Arc;
use weir_core::registry::template;
use weir_core::tls::files::{cache_rule, read_passwords, Name};
use weir_core::tls::words;
use weir_core::Session;
use weir_module::first::{bytes, flag, num};
use weir_module::{name, set, ArgsExt, Arity, Cf, Context, Row};
use weir_tls::offer::{About, Protocols};

/// A family of directives that can speak TLS to servers.
pub trait Secures: 'static {
    /// Whose variables names may have.
    type Session: Session;
    /// What the directives' names begin with: `proxy_`.
    const PREFIX: &'static str;
    /// Where they stand.
    const LEVELS: Context;
    /// The name of a server without `…_ssl_name`, as the documentation says it.
    const TLS_NAME: &'static str;
    /// The values of the level being read.
    fn outgoing(cf: &mut Cf) -> &mut Outgoing;
}

/// The rows of such a family.
pub struct SslRows<T>(PhantomData<T>);

impl<T: Secures> SslRows<T> {
    /// All of them.
    pub const ROWS: &'static [Row] = &[
        Row::new(name!("ssl_session_reuse"), T::LEVELS, Arity::FLAG, "on", "Sessions with servers are resumed.", set!(T::outgoing, session_reuse, flag)),
        Row::new(name!("ssl_protocols"), T::LEVELS, Arity::ONE_MORE, "TLSv1.2 TLSv1.3", "The versions spoken with servers.", |cf, d| {
            let set = words::protocols(d)?;
            let tls = T::outgoing(cf);
            tls.places.keep(About::Protocols, d);
            let slot = &mut tls.protocols;
            let before = slot.as_option().map_or(0, |p| p.0);
            slot.set(Protocols(before | set.0));
            Ok(())
        })
        .note("versions below TLSv1.2 are left out with a warning, and refused where they stand alone"),
        Row::new(name!("ssl_ciphers"), T::LEVELS, Arity::ONE, "DEFAULT", "The suites of TLS 1.2 for servers, in OpenSSL's language.", |cf, d| {
            let text = d.text(0)?.to_string();
            let tls = T::outgoing(cf);
            tls.places.keep(About::Ciphers, d);
            tls.ciphers.once(d, text)
        })
        .note("ECDHE with AES-GCM or ChaCha20; what names other suites is left out with a warning, and a string that leaves none is refused"),
        Row::new(name!("ssl_name"), T::LEVELS, Arity::ONE, T::TLS_NAME, "The server's name, for SNI and verification.", |cf, d| {
            let name = Some(Arc::new(template::<T::Session>(cf, d, 0)?));
            T::outgoing(cf).name.once(d, name)
        }),
        Row::new(name!("ssl_server_name"), T::LEVELS, Arity::FLAG, "off", "The server is told the name (SNI).", set!(T::outgoing, server_name, flag)),
        Row::new(name!("ssl_verify"), T::LEVELS, Arity::FLAG, "off", "The server's certificate is verified.", set!(T::outgoing, verify, flag)),
        Row::new(name!("ssl_verify_depth"), T::LEVELS, Arity::ONE, "1", "How many certificates may stand between a server's and the trusted one.", set!(T::outgoing, verify_depth, num)),
        Row::new(name!("ssl_trusted_certificate"), T::LEVELS, Arity::ONE, "", "Certificates that servers' are verified by.", set!(T::outgoing, trusted_certificate, bytes)),
        Row::new(name!("ssl_crl"), T::LEVELS, Arity::ONE, "", "Lists of revoked server certificates.", set!(T::outgoing, crl, bytes)),
        Row::new(name!("ssl_certificate"), T::LEVELS, Arity::ONE, "", "The certificate that servers are shown.", |cf, d| {
            let name = Some(Name::of::<T::Session>(cf, d, 0)?);
            T::outgoing(cf).certificate.once(d, name)
        })
        .note("a file whose name has variables, and that of its key, has 1 MB at most"),
        Row::new(name!("ssl_certificate_key"), T::LEVELS, Arity::ONE, "", "Its key.", |cf, d| {
            let name = Some(Name::of::<T::Session>(cf, d, 0)?);
            T::outgoing(cf).key.once(d, name)
        })
        .note("engine: and store: are refused, because rustls takes keys from files"),
        Row::new(name!("ssl_certificate_cache"), T::LEVELS, Arity::ONE_TO_THREE, "off", "Keeps certificates that variables name.", |cf, d| {
            let rule = cache_rule(d)?;
            T::outgoing(cf).cache.once(d, rule)
        }),
        Row::new(name!("ssl_password_file"), T::LEVELS, Arity::ONE, "", "Passwords of encrypted keys, one on a line.", |cf, d| {
            let list = read_passwords(cf, d)?;
            T::outgoing(cf).passwords.once(d, list)
        }),
        Row::new(name!("ssl_conf_command"), T::LEVELS, Arity::TWO, "", "A command of OpenSSL's configuration.", |cf, d| {
            let pair = (d.text(0)?.to_string(), d.text(1)?.to_string());
            let tls = T::outgoing(cf);
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
