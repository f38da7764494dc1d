//! `$ssl_*`

use sha1::{Digest, Sha1};
use std::marker::PhantomData;
use std::rc::Rc;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_base::{base64, bytes};
use weir_core::session::{Part, Session};
use weir_core::tls::client::{self, Shown};
use weir_core::tls::Secure;
use weir_core::variables::{VarArg, Variable};
use weir_runtime::clock;
use weir_tls::ciphers;
use weir_tls::rustls::{CommonState, HandshakeKind, ProtocolVersion};
use weir_tls::x509::{name, Cert};

macro_rules! var {
    ($name:literal, $get:expr) => {
        Variable::new($name, |r: &mut S, _: &VarArg, out| {
            let get: fn(&mut S, &mut Vec<u8>) -> Option<()> = $get;
            let before = out.len();
            get(r, out).is_some() && out.len() > before
        })
    };
}

/// Of the session.
macro_rules! of_session {
    ($name:literal, $get:expr) => {
        var!($name, |r, out| {
            let get: fn(&CommonState, &mut Vec<u8>) -> Option<()> = $get;
            let conn = Rc::clone(r.conn());
            conn.stream.tls()?.with(|tls| get(tls, out))
        })
    };
}

/// Of what the client offered.
macro_rules! of_hello {
    ($name:literal, $get:expr) => {
        var!($name, |r, out| {
            let get: fn(&Secure) -> String = $get;
            out.extend_from_slice(get(r.conn().secure.get()?).as_bytes());
            Some(())
        })
    };
}

/// Of the client's certificate.
macro_rules! of_client {
    ($name:literal, $get:expr) => {
        var!($name, |r, out| {
            let get: fn(&Cert<'_>, &mut Vec<u8>) = $get;
            with_certificate(r, |cert| get(cert, out))
        })
    };
}

/// How long the handshake took.
fn seconds(hello: &Secure) -> String {
    let ms = hello.handshake_ms.get();
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// The variables of sessions `S`.
pub struct Of<S>(PhantomData<S>);

impl<S: Session> Of<S> {
    pub const VARIABLES: &'static [Variable<S>] = &[
        of_session!("ssl_protocol", |tls, out| {
            out.extend_from_slice(match tls.protocol_version()? {
                ProtocolVersion::TLSv1_3 => b"TLSv1.3",
                _ => b"TLSv1.2",
            });
            Some(())
        }),
        of_session!("ssl_cipher", |tls, out| {
            let suite = tls.negotiated_cipher_suite()?.suite();
            out.extend_from_slice(ciphers::name(suite).as_bytes());
            Some(())
        }),
        of_hello!("ssl_ciphers", |hello| {
            hello.ciphers().map(ciphers::name).collect::<Vec<_>>().join(":")
        }),
        of_session!("ssl_curve", |tls, out| {
            let group = tls.negotiated_key_exchange_group()?.name();
            out.extend_from_slice(ciphers::group_name(group).as_bytes());
            Some(())
        }),
        of_hello!("ssl_curves", |hello| {
            hello.groups().map(ciphers::group_name).collect::<Vec<_>>().join(":")
        }),
        // rustls does not tell which scheme it signed with.
        var!("ssl_sigalg", |_, _| None),
        of_hello!("ssl_sigalgs", |hello| {
            let code = |s| format!("0x{:04x}", u16::from(s));
            hello.schemes().map(code).collect::<Vec<_>>().join(":")
        }),
        var!("ssl_session_id", |r, out| {
            bytes::push_hex(out, &r.conn().stream.tls()?.id()?);
            Some(())
        }),
        of_session!("ssl_session_reused", |tls, out| {
            let reused = matches!(tls.handshake_kind(), Some(HandshakeKind::Resumed));
            out.push(if reused { b'r' } else { b'.' });
            Some(())
        }),
        var!("ssl_server_name", |r, out| {
            out.extend_from_slice(r.conn().secure.get()?.name.as_deref()?);
            Some(())
        }),
        // Tengine's, whose oldest has lost a letter.
        of_hello!("ssl_handshake_time", seconds).weak(),
        of_hello!("ssl_handshakd_time", seconds).weak(),
        of_hello!("ssl_handshake_time_msec", |hello| hello.handshake_ms.get().to_string()).weak(),
        of_session!("ssl_alpn_protocol", |tls, out| {
            out.extend_from_slice(tls.alpn_protocol()?);
            Some(())
        }),
        // There is no Encrypted Client Hello.
        var!("ssl_ech_status", |_, _| None),
        var!("ssl_ech_outer_server_name", |_, _| None),
        of_client!("ssl_client_cert", |cert, out| {
            out.extend_from_slice(pem(cert).trim_end().replace('\n', "\n\t").as_bytes());
        }),
        of_client!("ssl_client_raw_cert", |cert, out| out.extend_from_slice(pem(cert).as_bytes())),
        of_client!("ssl_client_escaped_cert", |cert, out| {
            escape_uri(out, pem(cert).as_bytes(), EscapeKind::UriComponent);
        }),
        of_client!("ssl_client_s_dn", |cert, out| out.extend(name::rfc2253(cert.subject))),
        of_client!("ssl_client_i_dn", |cert, out| out.extend(name::rfc2253(cert.issuer))),
        of_client!("ssl_client_serial", |cert, out| out.extend(name::serial(cert.serial))),
        of_client!("ssl_client_fingerprint", |cert, out| {
            bytes::push_hex(out, &Sha1::digest(cert.whole));
        }),
        var!("ssl_client_verify", verify::<S>),
        of_client!("ssl_client_v_start", |cert, out| out
            .extend(shown_time(cert.not_before).into_bytes())),
        of_client!("ssl_client_v_end", |cert, out| out
            .extend(shown_time(cert.not_after).into_bytes())),
        of_client!("ssl_client_v_remain", |cert, out| {
            let days = (cert.not_after - clock::wall_secs()).max(0) / 86400;
            bytes::fmt_i64(out, days);
        }),
        of_client!("ssl_client_sigalg", |cert, out| out.extend(cert.signature_name().into_bytes())),
    ];

    /// Those that requests alone have.
    pub const OF_REQUESTS: &'static [Variable<S>] = &[
        var!("ssl_early_data", |r, out| {
            let conn = Rc::clone(r.conn());
            if conn.stream.tls().is_some_and(weir_tls::Session::is_early) {
                out.push(b'1');
            }
            Some(())
        }),
        of_client!("ssl_client_s_dn_legacy", |cert, out| out.extend(name::legacy(cert.subject))),
        of_client!("ssl_client_i_dn_legacy", |cert, out| out.extend(name::legacy(cert.issuer))),
    ];
}

/// Only what was shown to a server that asks for it: what another has made of it is its own affair.
fn with_certificate<S: Session>(r: &S, f: impl FnOnce(&Cert<'_>)) -> Option<()> {
    if !client::is_asked(r.conn(), r.part().core(), r.base()) {
        return None;
    }
    r.conn().stream.tls()?.with(|tls| {
        let cert = tls.peer_certificates()?.first().and_then(|c| Cert::parse(c))?;
        f(&cert);
        Some(())
    })
}

fn verify<S: Session>(r: &mut S, out: &mut Vec<u8>) -> Option<()> {
    r.conn().stream.tls()?;
    match client::shown(r.conn(), r.part().core(), r.base()) {
        Shown::Nothing => out.extend_from_slice(b"NONE"),
        Shown::Good => out.extend_from_slice(b"SUCCESS"),
        Shown::Bad(why) => {
            out.extend_from_slice(b"FAILED:");
            out.extend_from_slice(why.as_bytes());
        }
    }
    Some(())
}

/// A certificate as PEM text (RFC 7468).
fn pem(cert: &Cert<'_>) -> String {
    let mut encoded = Vec::new();
    base64::encode(&mut encoded, cert.whole);
    let encoded = String::from_utf8_lossy(&encoded).into_owned();
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// `Nov 21 05:04:51 2026 GMT`
fn shown_time(secs: i64) -> String {
    // "Sat, 21 Nov 2026 05:04:51 GMT"
    let http = weir_base::date::http_time(secs);
    let text = String::from_utf8_lossy(&http).into_owned();
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        [_, day, month, year, time, zone] => {
            format!("{month} {:>2} {time} {year} {zone}", day.trim_start_matches('0'))
        }
        _ => text,
    }
}
