//! What code says of a handshake with a client, and asks about it.

use crate::crossing::{Answer, Args};
use crate::machine::{code, items, OpRow, State};
use crate::run::context::{ANY, SSL_CERT, SSL_FETCH, SSL_HELLO, SSL_STORE};
use crate::ssl::Moment;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::tls::code::Shake;
use weir_core::Connection;
use weir_tls::judge::Judge;
use weir_tls::offer::Protocols;
use weir_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use weir_tls::rustls::sign::{CertifiedKey, SigningKey};
use weir_tls::rustls::ProtocolVersion;
use weir_tls::server::{signing_key, Certificates};
use weir_tls::x509::chain::Trust;
use weir_tls::x509::Cert;
use weir_tls::{der, pem};
use weir_wire::hello::{is_grease, SUPPORTED_VERSIONS};

const CHOOSES: u32 = SSL_CERT | SSL_HELLO;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("ssl_cert", ANY, set_certificate),
    OpRow::any("ssl_key", ANY, set_key),
    OpRow::any("ssl_clear", ANY, clear),
    OpRow::any("ssl_staple", ANY, staple),
    OpRow::any("ssl_pem", ANY, from_pem),
    OpRow::any("ssl_about", ANY, about),
    OpRow::any("ssl_verify", ANY, verify_client),
    OpRow::any("ssl_hello", SSL_HELLO, hello),
    OpRow::any("ssl_protocols", SSL_HELLO, protocols),
    OpRow::any("ssl_session", SSL_FETCH | SSL_STORE, session),
    OpRow::any("ssl_session_set", SSL_FETCH, set_session),
];

/// Depth of chains where code says none, as OpenSSL's.
const DEPTH: usize = 100;
/// Certificates and keys of one handshake, so that a loop in code does not fill the memory.
const PAIRS_MAX: usize = 16;

/// What the code of a handshake has chosen by now.
#[derive(Default)]
pub(super) struct Chosen {
    chains: Vec<Vec<CertificateDer<'static>>>,
    keys: Vec<Arc<dyn SigningKey>>,
}

impl Chosen {
    /// A chain in DER, in place of the one whose key is of the same kind.
    pub(super) fn add_chain(&mut self, der: &[u8]) -> Result<(), &'static str> {
        let chain = chain_of(der).ok_or("d2i_X509_bio() failed")?;
        let kind = |chain: &[CertificateDer<'_>]| {
            let leaf = Cert::parse(chain.first()?)?;
            algorithm(leaf.spki).map(<[u8]>::to_vec)
        };
        let own = kind(&chain);
        self.chains.retain(|other| kind(other) != own);
        if self.chains.len() >= PAIRS_MAX {
            return Err("SSL_use_certificate() failed");
        }
        self.chains.push(chain);
        Ok(())
    }

    /// A private key in DER, likewise; of another certificate it is refused.
    pub(super) fn add_key(&mut self, der: &[u8]) -> Result<(), &'static str> {
        let key = PrivateKeyDer::try_from(der.to_vec());
        let key = key.map_err(|_| "d2i_PrivateKey_bio() failed")?;
        let key = signing_key(&key).ok_or("SSL_use_PrivateKey() failed")?;
        let own = key.algorithm();
        let is_other = self.chains.iter().filter_map(|c| Cert::parse(c.first()?)).any(|c| {
            let of = key.public_key();
            let kind = of.as_ref().and_then(|of| algorithm(of));
            kind.is_some() && algorithm(c.spki) == kind && !is_of(&key, c.spki)
        });
        if is_other {
            return Err("SSL_use_PrivateKey() failed");
        }
        self.keys.retain(|other| other.algorithm() != own);
        self.keys.push(key);
        Ok(())
    }

    /// Chains that have a key, with it.
    pub(super) fn pairs(&self) -> Vec<Arc<CertifiedKey>> {
        let pair = |chain: &Vec<CertificateDer<'static>>| {
            let spki = Cert::parse(chain.first()?)?.spki;
            let key = self.keys.iter().find(|key| is_of(key, spki))?;
            Some(Arc::new(CertifiedKey::new(chain.clone(), Arc::clone(key))))
        };
        self.chains.iter().filter_map(pair).collect()
    }

    /// Those are offered.
    fn offer(&self, shake: &Shake) {
        let offered = self.pairs().into_iter().map(Into::into).collect();
        shake.certificates.replace(Some(Arc::new(Certificates(offered))));
    }
}

fn is_of(key: &Arc<dyn SigningKey>, spki: &[u8]) -> bool {
    key.public_key().is_some_and(|of| of.as_ref() == spki)
}

/// The algorithm that a SubjectPublicKeyInfo begins with.
fn algorithm(spki: &[u8]) -> Option<&[u8]> {
    Some(der::Reader(spki).sequence()?.sequence()?.tagged(der::OID)?.body)
}

/// The handshake that the code runs in.
fn moment(state: &State<'_>) -> Option<Rc<Moment>> {
    state.run.moment.as_ref().map(Rc::clone)
}

/// What is not to be had without one: an error of the code's, or a word.
fn no_moment(state: &State<'_>, answer: &mut Answer) -> i32 {
    match state.r.is_some() || state.s.is_some() {
        true => answer.fail("bad request"),
        false => code::NO_REQUEST,
    }
}

/// What the code has chosen, put to use once `change` has been made.
fn choose(
    state: &State<'_>,
    answer: &mut Answer,
    change: impl FnOnce(&mut Chosen) -> Result<(), &'static str>,
) -> i32 {
    let at = match moment(state) {
        Some(at) if state.run.context & CHOOSES != 0 => at,
        _ => return no_moment(state, answer),
    };
    let mut own = at.shake.own.borrow_mut();
    let own = own.get_or_insert_with(|| Box::<Chosen>::default());
    let Some(chosen) = own.downcast_mut::<Chosen>() else { return answer.fail("bad ssl conn") };
    match change(chosen) {
        Ok(()) => {
            chosen.offer(&at.shake);
            code::TRUE
        }
        Err(why) => answer.fail(why),
    }
}

/// The certificates of a text, one behind the other.
pub(super) fn chain_of(mut text: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let mut chain = Vec::new();
    while !text.is_empty() {
        let one = Cert::parse(text)?.whole;
        chain.push(CertificateDer::from(one.to_vec()));
        text = &text[one.len()..];
    }
    (!chain.is_empty()).then_some(chain)
}

/// `a`: a chain in DER, the server's own certificate first.
fn set_certificate(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    choose(state, answer, |chosen| chosen.add_chain(args.a))
}

/// `a`: a private key in DER.
fn set_key(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    choose(state, answer, |chosen| chosen.add_key(args.a))
}

fn clear(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    choose(state, answer, |chosen| {
        *chosen = Chosen::default();
        Ok(())
    })
}

/// `a`: the responder's answer that goes with the certificate.
fn staple(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(at) = moment(state) else { return no_moment(state, answer) };
    if state.run.context & CHOOSES == 0 {
        return answer.fail("bad request");
    }
    if at.shake.hello().is_none_or(|h| h.extension(STATUS_REQUEST).is_none()) {
        // Nobody has asked for it.
        return code::FALSE;
    }
    at.shake.staple.replace(Some(args.a.to_vec()));
    code::TRUE
}

/// The extension that asks for an OCSP response (RFC 6066, section 8).
const STATUS_REQUEST: u16 = 5;

/// `i`: a certificate (0) or a key (1) in PEM, or the same in DER (2, 3); `a`: its text, `b`: the key's password.
fn from_pem(_: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if args.i >= 2 {
        return match args.i {
            2 if chain_of(args.a).is_none() => answer.fail("d2i_X509_bio() failed"),
            3 if PrivateKeyDer::try_from(args.a).is_err() => {
                answer.fail("d2i_PrivateKey_bio() failed")
            }
            _ => answer.text(args.a),
        };
    }
    if args.i == 0 {
        let chain = pem::certificates(args.a);
        if chain.is_empty() {
            return answer.fail("PEM_read_bio_X509_AUX() failed");
        }
        chain.iter().for_each(|c| answer.text.extend_from_slice(c));
        return code::TEXT;
    }
    match pem::private_key(args.a, &[args.b.to_vec()]) {
        Ok(key) => answer.text(key.der.secret_der()),
        Err(_) => answer.fail("PEM_read_bio_PrivateKey() failed"),
    }
}

/// The connection that the code works for.
fn conn(state: &State<'_>) -> Option<Rc<Connection>> {
    match (&state.r, &state.s, moment(state)) {
        (Some(r), ..) => Some(Rc::clone(r.conn())),
        (None, Some(s), _) => Some(Rc::clone(s.conn())),
        (None, None, Some(at)) => Some(Rc::clone(&at.conn)),
        (None, None, None) => None,
    }
}

/// `i` says what is asked.
fn about(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(conn) = conn(state) else { return code::NO_REQUEST };
    let Some(secure) = conn.secure.get() else { return answer.fail("bad request") };
    match args.i {
        0 => match &secure.name {
            Some(name) => answer.text(name),
            None => code::NIL,
        },
        1 => match conn.local_addr() {
            Some(addr) => answer.number(f64::from(addr.port())),
            None => answer.fail("unix domain has no port"),
        },
        2 => match conn.local_addr() {
            Some(addr) => raw_addr(addr, answer),
            None => raw_path(&conn, answer),
        },
        3 => match conn.client_addr() {
            Some(addr) => raw_addr(addr, answer),
            None => {
                answer.list().text(b"").text(b"unix");
                code::LIST
            }
        },
        4 => version(state, &conn, answer),
        5 => {
            match moment(state).as_ref().and_then(|at| at.shake.hello().map(|h| h.random.to_vec()))
            {
                Some(random) => answer.text(&random),
                None => answer.fail("the hello of a request's connection is not kept"),
            }
        }
        _ => shared_suites(&conn, args.x != 0.0, answer),
    }
}

fn raw_addr(addr: SocketAddr, answer: &mut Answer) -> i32 {
    match addr.ip().to_canonical() {
        std::net::IpAddr::V4(ip) => answer.list().text(&ip.octets()).text(b"inet"),
        std::net::IpAddr::V6(ip) => answer.list().text(&ip.octets()).text(b"inet6"),
    };
    code::LIST
}

/// A socket's path.
fn raw_path(conn: &Connection, answer: &mut Answer) -> i32 {
    let (gen, listen) = conn.came_by();
    let shown = gen.shared.listens.get(listen).map(|l| l.addr.to_string()).unwrap_or_default();
    let path = shown.strip_prefix("unix:").unwrap_or(&shown);
    answer.list().text(path.as_bytes()).text(b"unix");
    code::LIST
}

/// The version that is spoken, or will be.
fn version(state: &State<'_>, conn: &Connection, answer: &mut Answer) -> i32 {
    if let Some(tls) = conn.stream.tls() {
        let version = tls.with(|tls| tls.protocol_version());
        return answer.number(f64::from(version.map_or(0, u16::from)));
    }
    let Some(at) = moment(state) else { return answer.fail("bad ssl conn") };
    let is_tls13 = match state.run.context {
        SSL_HELLO => at.shake.hello().is_some_and(|h| h.has_tls13()),
        _ => at.shake.is_tls13.get(),
    };
    let version = if is_tls13 { ProtocolVersion::TLSv1_3 } else { ProtocolVersion::TLSv1_2 };
    answer.number(f64::from(u16::from(version)))
}

/// The server's suites that the client has as well.
fn shared_suites(conn: &Connection, filters: bool, answer: &mut Answer) -> i32 {
    let Some(secure) = conn.secure.get() else { return answer.fail("bad ssl conn") };
    let offered: Vec<u16> = secure.ciphers().map(u16::from).collect();
    let gen = conn.generation();
    let number = match secure.server(&gen.shared, conn.addr(&gen.shared)) {
        Ok(found) => found.unwrap_or_else(|| conn.default_server(&gen.shared)),
        Err(e) => return answer.fail(e.to_string()),
    };
    let server = conn.server(&gen.shared, number);
    let fallback = conn.server(&gen.shared, conn.default_server(&gen.shared));
    let Some(tls) = server.tls.as_ref().or(fallback.tls.as_ref()) else {
        return answer.fail("bad ssl conn");
    };
    let mut list = answer.list();
    for suite in tls.server.suites().filter(|s| offered.contains(s)) {
        if !(filters && is_grease(suite)) {
            list.number(f64::from(suite));
        }
    }
    code::LIST
}

/// `a`: names of those who may have signed the client's certificate, `b`: who is trusted besides; both packed.
/// `x`: the depth, or less than 0.
fn verify_client(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let at = match moment(state) {
        Some(at) if state.run.context & CHOOSES != 0 => at,
        Some(_) => return answer.fail("API disabled in the current context"),
        None => return no_moment(state, answer),
    };
    let chains =
        |text: &[u8]| items(text).into_iter().filter_map(chain_of).flatten().collect::<Vec<_>>();
    let (names, others) = (chains(args.a), chains(args.b));
    let depth = if args.x < 0.0 { DEPTH } else { args.x as usize };
    let roots = names.iter().chain(&others).cloned().collect();
    let judge = Judge::new(Trust { roots, depth, ..Trust::default() }, b"");
    at.shake.asks.replace(Some((names, judge)));
    code::TRUE
}

/// `i` says what is asked of the hello; `x`: the number of an extension.
fn hello(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(at) = moment(state) else { return code::NO_REQUEST };
    let Some(hello) = at.shake.hello() else { return answer.fail("bad ssl conn") };
    match args.i {
        0 => match at.conn.secure.get().and_then(|s| s.name.as_deref()) {
            Some(name) => answer.text(name),
            None => code::NIL,
        },
        1 => match hello.extension(args.x as u16) {
            Some(text) => answer.text(text),
            None => code::NIL,
        },
        2 => numbers(hello.extensions().map(|e| e.0), answer),
        3 => numbers(hello.suites(), answer),
        _ => {
            let versions = hello.extension(SUPPORTED_VERSIONS).and_then(|v| v.get(1..));
            let Some(versions) = versions else { return code::NIL };
            numbers(versions.chunks_exact(2).map(|v| u16::from_be_bytes([v[0], v[1]])), answer)
        }
    }
}

/// Without those that stand for nothing.
fn numbers(all: impl Iterator<Item = u16>, answer: &mut Answer) -> i32 {
    let mut list = answer.list();
    for number in all.filter(|n| !is_grease(*n)) {
        list.number(f64::from(number));
    }
    code::LIST
}

/// `a`: the names of versions, packed.
fn protocols(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(at) = moment(state) else { return code::NO_REQUEST };
    let mut bits = 0;
    for name in items(args.a) {
        match std::str::from_utf8(name).ok().and_then(Protocols::bit) {
            Some(bit) => bits |= bit,
            None => return answer.fail("invalid protocols failed"),
        }
    }
    at.shake.protocols.set(Some(Protocols(bits)));
    code::TRUE
}

/// `i`: the session (0) or its number (1).
fn session(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(at) = moment(state) else { return code::NO_REQUEST };
    if state.run.context == SSL_FETCH {
        let id = at.shake.hello().map(|h| h.session_id.to_vec()).unwrap_or_default();
        return match args.i {
            1 => answer.text(&id),
            _ => answer.fail("bad session in lua context"),
        };
    }
    let kept = at.shake.kept.borrow();
    match (&*kept, args.i) {
        (Some(kept), 1) => answer.text(&kept.id),
        (Some(kept), _) => answer.text(&kept.session),
        (None, _) => answer.fail("bad session in lua context"),
    }
}

/// `a`: what [`session`] has told of one.
fn set_session(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(at) = moment(state) else { return code::NO_REQUEST };
    let Some(sessions) = at.shake.sessions.get() else { return answer.fail("bad lua context") };
    let id = at.shake.hello().map(|h| h.session_id.to_vec()).unwrap_or_default();
    match sessions.hand_in(&id, args.a) {
        Ok(()) => code::TRUE,
        Err(why) => answer.fail(format!("failed to de-serialize session: {why}")),
    }
}
