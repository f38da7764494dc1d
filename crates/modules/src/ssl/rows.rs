//! The directives.

use super::conf::{Builtin, SslMain, SslSrv};
use super::ocsp::{Cache, Mode};
use super::sessions::Secured;
use std::marker::PhantomData;
use std::sync::Arc;
use weir_base::units;
use weir_core::tls::files::{cache_rule, read_passwords};
use weir_core::tls::words::protocols;
use weir_core::zones;
use weir_module::first::{bytes, flag, msec, num, sec, size, text};
use weir_module::{set, ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, Val};
use weir_tls::offer::{About, Protocols};
use weir_tls::server::VerifyClient;
use weir_tls::sessions::Zone;

const HS: Context = Context::HS;
const SS: Context = Context::SS;
/// nginx's least size of a shared zone: eight pages.
const ZONE_MIN_BYTES: u64 = 8 * 4096;

/// The slot for what may be taken in part, and its place with it.
fn placed<'a>(cf: &'a mut Cf, d: &Directive, about: About) -> &'a mut SslSrv {
    let slot = cf.get::<SslSrv>();
    slot.places.keep(about, d);
    slot
}

/// The directives of servers whose sessions are `S`.
pub struct Rows<S>(PhantomData<S>);

impl<S: Secured> Rows<S> {
    pub const ROWS: &'static [Row] = &[
    Row::new("ssl_certificate", S::SERVERS, Arity::ONE, "", "The file with a server's certificate and its chain; once for each kind of key.", |cf, d| {
        let name = S::name(cf, d, 0)?;
        push(&mut cf.get::<SslSrv>().certificates, name)
    })
    .note("a file whose name has variables, and that of its key, has 1 MB at most"),
    Row::new("ssl_certificate_key", S::SERVERS, Arity::ONE, "", "The file with the certificate's key.", |cf, d| {
        let name = S::name(cf, d, 0)?;
        push(&mut cf.get::<SslSrv>().keys, name)
    })
    .note("of stores, store:file: is read; engine: and other stores are refused, because rustls takes keys from files; RSA keys have 2048 bits or more"),
    Row::new("ssl_password_file", S::SERVERS, Arity::ONE, "", "Passwords of encrypted keys, one on a line.", |cf, d| {
        let list = read_passwords(cf, d)?;
        cf.get::<SslSrv>().passwords.once(d, list)
    }),
    Row::new("ssl_certificate_compression", S::SERVERS, Arity::FLAG, "off", "Compresses certificates for TLS 1.3 clients that can read them so.", set!(Cf::get::<SslSrv>, compression, flag))
        .note("zlib alone, where OpenSSL may have been built with brotli and zstd too"),
    Row::new("ssl_dhparam", S::SERVERS, Arity::ONE, "", "Parameters of DHE key exchange.", |cf, d| {
        let value = bytes(d)?;
        placed(cf, d, About::Dhparam).dhparam.once(d, value)
    })
        .note("the file must be there and is not used, with a warning: rustls has no DHE, clients take ECDHE"),
    Row::new("ssl_ecdh_curve", S::SERVERS, Arity::ONE, "auto", "The curves of ECDHE key exchange.", |cf, d| {
        let value = text(d)?;
        placed(cf, d, About::Curves).curve.once(d, value)
    })
        .note("X25519, prime256v1 and secp384r1; others in the list (secp521r1, X448, secp256k1) are left out with a warning, and a client that has none but those is refused in its handshake"),
    Row::new("ssl_protocols", S::SERVERS, Arity::ONE_MORE, "TLSv1.2 TLSv1.3", "The versions that are spoken.", set_protocols)
        .note("versions below TLSv1.2 are left out with a warning, and refused where they stand alone"),
    Row::new("ssl_ciphers", S::SERVERS, Arity::ONE, "HIGH:!aNULL:!MD5", "The suites of TLS 1.2, in OpenSSL's language.", |cf, d| {
        let value = text(d)?;
        placed(cf, d, About::Ciphers).ciphers.once(d, value)
    })
        .note("ECDHE with AES-GCM or ChaCha20; what names other suites is left out with a warning, and a string that leaves none is refused; a client of TLS 1.2 with other suites only (RSA or DHE key exchange, CBC) fails its handshake"),
    Row::new("ssl_verify_client", S::SERVERS, Arity::ONE, "off", "Whether clients must, or may, show a certificate.", set!(Cf::get::<SslSrv>, verify, |d| {
        d.choice(0, &[
            ("off", VerifyClient::Off),
            ("on", VerifyClient::On),
            ("optional", VerifyClient::Optional),
            ("optional_no_ca", VerifyClient::OptionalNoCa),
        ])
    }))
    .note("a certificate is judged by the server that answers, also where the handshake was the default server's or done before a reload; one that does not verify is told of none; a chain of more than 64k is refused in the handshake (OpenSSL: 100k)"),
    Row::new("ssl_verify_depth", S::SERVERS, Arity::ONE, "1", "How many certificates may stand between a client's and the trusted one.", set!(Cf::get::<SslSrv>, verify_depth, num)),
    Row::new("ssl_client_certificate", S::SERVERS, Arity::ONE, "", "Trusted certificates, whose names are sent to clients.", set!(Cf::get::<SslSrv>, client_certificate, bytes)),
    Row::new("ssl_trusted_certificate", S::SERVERS, Arity::ONE, "", "Trusted certificates, whose names are not sent.", set!(Cf::get::<SslSrv>, trusted_certificate, bytes)),
    Row::new("ssl_prefer_server_ciphers", S::SERVERS, Arity::FLAG, "off", "The server's order of suites counts, not the client's.", set!(Cf::get::<SslSrv>, prefer_server_ciphers, flag)),
    Row::new("ssl_session_cache", S::SERVERS, Arity::ONE_TWO, "none", "Where sessions are kept for being resumed.", set_session_cache::<S>)
        .note("builtin caches are shared by the workers, which are threads of one process, and have 2k for each session; a session with the chain a client has shown is kept whole, up to 16k (nginx: 4k, with the client's own certificate)"),
    Row::new("ssl_session_tickets", S::SERVERS, Arity::FLAG, "on", "Sessions are given to clients, sealed.", set!(Cf::get::<SslSrv>, session_tickets, flag)),
    Row::new("ssl_session_ticket_key", S::SERVERS, Arity::ONE, "", "A file with a key for tickets, 48 or 80 bytes; the first seals, all open.", |cf, d| {
        push(&mut cf.get::<SslSrv>().ticket_keys, d.arg(0).to_vec())
    })
    .note("tickets are sealed with an AEAD: nginx and Weir do not read each other's; a session of more than 16k, with the chain a client has shown, is not sealed"),
    Row::new("ssl_session_timeout", S::SERVERS, Arity::ONE, "5m", "For how long sessions can be resumed.", set!(Cf::get::<SslSrv>, session_timeout, sec)),
    Row::new("ssl_crl", S::SERVERS, Arity::ONE, "", "Lists of revoked client certificates.", set!(Cf::get::<SslSrv>, crl, bytes)),
    Row::new("ssl_conf_command", S::SERVERS, Arity::TWO, "", "A command of OpenSSL's configuration.", |cf, d| {
        let pair = (d.text(0)?.to_string(), d.text(1)?.to_string());
        let slot = cf.get::<SslSrv>();
        slot.places.keep(About::Command, d);
        push(&mut slot.commands, pair)
    })
    .note("Certificate, PrivateKey, CipherString, Ciphersuites, Groups, MinProtocol, MaxProtocol and some Options; others are refused"),
    ];

    /// Those that `mail` has not.
    pub const MORE: &'static [Row] = &[
    Row::new("ssl_certificate_cache", S::SERVERS, Arity::ONE_TO_THREE, "off", "Keeps certificates that variables name.", set_cache),
    Row::new("ssl_ech_file", S::SERVERS, Arity::ONE, "", "Keys of Encrypted Client Hello.", |_, d| {
        refuse(d, "Weir has no Encrypted Client Hello; remove the directive: clients then send the name in clear")
    })
    .note("refused: rustls does not serve it"),
    Row::new("ssl_ocsp", S::SERVERS, Arity::ONE, "off", "Asks responders about client certificates: the whole chain, or the leaf alone.", set!(Cf::get::<SslSrv>, ocsp, |d| {
        d.choice(0, &[("off", Mode::Off), ("on", Mode::On), ("leaf", Mode::Leaf)])
    }))
    .note("answers are the issuer's own or of a responder the issuer has signed for it; signatures with SHA-1 are refused"),
    Row::new("ssl_ocsp_responder", S::SERVERS, Arity::ONE, "", "The responder that is asked, in place of those the certificates name.", set!(Cf::get::<SslSrv>, ocsp_responder, text)),
    Row::new("ssl_ocsp_cache", S::SERVERS, Arity::ONE, "off", "Keeps what responders said of client certificates.", set_ocsp_cache::<S>),
    Row::new("ssl_stapling", S::SERVERS, Arity::FLAG, "off", "The server's certificate comes with a fresh answer of its OCSP responder.", set!(Cf::get::<SslSrv>, stapling, flag))
        .note("one answer for all workers, kept over a reload"),
    Row::new("ssl_stapling_file", S::SERVERS, Arity::ONE, "", "A file with the responder's answer, in DER.", set!(Cf::get::<SslSrv>, stapling_file, bytes)),
    Row::new("ssl_stapling_responder", S::SERVERS, Arity::ONE, "", "The responder, in place of the one the certificate names.", set!(Cf::get::<SslSrv>, stapling_responder, text)),
    Row::new("ssl_stapling_verify", S::SERVERS, Arity::FLAG, "off", "Answers of the responder are verified.", set!(Cf::get::<SslSrv>, stapling_verify, flag))
        .note("the certificate's own issuer is trusted; ssl_trusted_certificate is needed only where it is not in the chain"),
    Row::new("ssl_reject_handshake", S::SERVERS, Arity::FLAG, "off", "Handshakes that choose this server are refused.", set!(Cf::get::<SslSrv>, reject_handshake, flag)),
];
}

/// Those that only `http` has.
pub const OF_HTTP: &[Row] = &[
    Row::new("ssl_buffer_size", HS, Arity::ONE, "16k", "The most data in one record.", set!(Cf::get::<SslSrv>, buffer_size, size))
        .note("above 16k it is 16k, the most that a record may have"),
    Row::new("ssl_early_data", HS, Arity::FLAG, "off", "Requests in a TLS 1.3 client's first flight.", set!(Cf::get::<SslSrv>, early_data, flag))
        .note("needs ssl_session_cache: sessions are then remembered by the server, so that none is used twice"),
];

/// Those that only `stream` has.
pub const OF_STREAM: &[Row] = &[
    Row::new(
        "ssl_handshake_timeout",
        SS,
        Arity::ONE,
        "60s",
        "Longest time for a handshake.",
        set!(Cf::get::<SslSrv>, handshake_timeout, msec),
    ),
    Row::new(
        "ssl_alpn",
        SS,
        Arity::ONE_MORE,
        "",
        "The protocols that clients may choose from, the first one first.",
        set_alpn,
    ),
];

/// nginx's words for a name that ALPN has no room for.
fn set_alpn(cf: &mut Cf, d: &Directive) -> ConfResult {
    if cf.get::<SslSrv>().alpn.is_set() {
        return Err(d.error("is duplicate"));
    }
    let names: Vec<Vec<u8>> = d.args.iter().map(|w| w.text.to_vec()).collect();
    if names.iter().any(|n| n.len() > 255) {
        return Err(d.error("protocol too long"));
    }
    cf.get::<SslSrv>().alpn.set(names);
    Ok(())
}

fn push<T>(list: &mut Val<Vec<T>>, item: T) -> ConfResult {
    match list.as_mut() {
        Some(all) => all.push(item),
        None => list.set(vec![item]),
    }
    Ok(())
}

fn refuse(d: &Directive, hint: &str) -> ConfResult {
    let mut e = d.error("is not supported on this platform");
    e.hint = Some(hint.to_string());
    Err(e)
}

fn set_protocols(cf: &mut Cf, d: &Directive) -> ConfResult {
    let set = protocols(d)?;
    let slot = cf.get::<SslSrv>();
    slot.places.keep(About::Protocols, d);
    let slot = &mut slot.protocols;
    // nginx adds up what several say.
    let before = slot.as_option().map_or(0, |p| p.0);
    slot.set(Protocols(before | set.0));
    Ok(())
}

fn set_cache(cf: &mut Cf, d: &Directive) -> ConfResult {
    let rule = cache_rule(d)?;
    cf.get::<SslSrv>().cache.once(d, rule)
}

fn set_session_cache<S: Secured>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let (mut builtin, mut zone) = (None, None);
    for i in 0..d.args.len() {
        let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
        let bad = || d.bad(i, format!("invalid session cache \"{shown}\""));
        let parts: Vec<&str> = shown.splitn(3, ':').collect();
        match parts[..] {
            ["off"] => builtin = Some(Builtin::Off),
            ["none"] => builtin = Some(Builtin::None),
            ["builtin"] => builtin = Some(Builtin::Sessions(20480)),
            ["builtin", n] => {
                let n = units::parse_int(n.as_bytes()).ok_or_else(bad)?;
                builtin = Some(Builtin::Sessions(n));
            }
            ["shared", name, size] if !name.is_empty() => {
                let size = units::parse_size(size.as_bytes()).ok_or_else(bad)?;
                if size < ZONE_MIN_BYTES {
                    return Err(d.bad(i, format!("session cache \"{shown}\" is too small")));
                }
                zones::declare(cf, d, i, name.as_bytes(), S::ZONES.0, size)?;
                let made = Zone::named(name.as_bytes(), size);
                let known = (size, Arc::clone(&made));
                cf.get::<SslMain>().zones.insert(name.to_string(), known);
                zone = Some(made);
            }
            _ => return Err(bad()),
        }
    }
    let slot = cf.get::<SslSrv>();
    slot.builtin.set(builtin.unwrap_or_default());
    slot.zone.set(zone.map(|z: Arc<Zone>| z));
    Ok(())
}

/// `off` or `shared:NAME:SIZE`.
fn set_ocsp_cache<S: Secured>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
    let bad = || d.bad(0, format!("invalid OCSP cache \"{shown}\""));
    let parts: Vec<&str> = shown.splitn(3, ':').collect();
    let cache = match parts[..] {
        ["off"] => None,
        ["shared", name, size] if !name.is_empty() => {
            let size = units::parse_size(size.as_bytes()).ok_or_else(bad)?;
            if size < ZONE_MIN_BYTES {
                return Err(d.bad(0, format!("OCSP cache \"{shown}\" is too small")));
            }
            zones::declare(cf, d, 0, name.as_bytes(), S::ZONES.1, size)?;
            Some(Cache::named(name.as_bytes(), size))
        }
        _ => return Err(bad()),
    };
    cf.get::<SslSrv>().ocsp_cache.once(d, cache)
}
