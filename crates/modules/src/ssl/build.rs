//! From what the servers say to what they offer: files are read, words resolved, all of it checked.

use super::certs;
use super::conf::{Builtin, SslMain, SslSrv};
use super::ocsp::{check, Mode, Responder};
use super::sessions::Secured;
use super::stapling::{self, Fetched};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weir_conf::Position;
use weir_core::listen::Listen;
use weir_core::tls::client::{CheckStatus, Clients};
use weir_core::tls::files::reader;
use weir_core::tls::words::refusal;
use weir_core::tls::Tls;
use weir_module::{Cf, ConfResult, Diagnostic, Slots};
use weir_runtime::listen::ListenAddr;
use weir_runtime::paths;
use weir_tls::judge::Judge;
use weir_tls::load;
use weir_tls::offer::{About, Note, Offer, Words};
use weir_tls::rustls::pki_types::CertificateDer;
use weir_tls::rustls::sign::CertifiedKey;
use weir_tls::server::{Offered, Server, Settings, VerifyClient};
use weir_tls::sessions::{TicketKeys, Zone};
use weir_tls::x509::chain::Trust;

/// What a cached session may take on the average, with what a client shows, so that a number of
/// them makes a size.
const SESSION_BYTES: u64 = 2048;

/// What is to be written, in messages.
const CERTIFICATE: &str = "ssl_certificate FILE;";
const KEY: &str = "ssl_certificate_key FILE;";

/// Pairs that several servers have, loaded once.
type Pairs = HashMap<(Vec<u8>, Vec<u8>), Arc<CertifiedKey>>;

/// What a server offers: its directives, and the protocols that clients may choose from.
type Offering = (*const SslSrv, Option<Vec<Vec<u8>>>);

fn emerg(text: impl Into<String>) -> Diagnostic {
    Diagnostic::emerg(text.into())
}

pub fn build<S: Secured>(cf: &mut Cf, main: &mut Slots, servers: &mut [Slots]) -> ConfResult {
    main.get_mut::<SslMain>().prefix = cf.conf_prefix.clone();
    let mut pairs = Pairs::new();
    let secure = secure_addresses::<S>(servers);
    // Servers that say nothing of their own on TLS have one slot, and what is made of it, together.
    let mut made: HashMap<Offering, Option<Tls>> = HashMap::new();
    for slots in servers.iter_mut() {
        let conf = slots.get::<SslSrv>();
        let at = S::reached(slots).at;
        let within = |e: Diagnostic| e.within(at);
        let offering = (std::ptr::from_ref(conf), S::alpn(slots));
        let tls = match made.get(&offering) {
            _ if !S::has_tls(slots) => None,
            Some(tls) => tls.clone(),
            None => {
                let mut staples = Vec::new();
                let alpn = offering.1.clone();
                check_keys(conf, S::needs_tls(slots)).map_err(within)?;
                let tls = server::<S>(cf, conf, alpn, &mut pairs, &mut staples).map_err(within)?;
                // Set here alone.
                let _ = conf.staples.set(staples);
                made.insert(offering, tls.clone());
                tls
            }
        };
        if let (None, Some((directive, at))) = (&tls, S::needs_tls(slots)) {
            return Err(no_certificate(&format!("\"{directive}\""), at));
        }
        let clients = match S::has_tls(slots) {
            true => clients::<S>(cf, slots, &secure).map_err(within)?,
            false => None,
        };
        if conf.client_responder.get().is_none() {
            let _ = conf.client_responder.set(client_responder(conf).map_err(within)?);
        }
        let verify = *conf.verify;
        let handshake_timeout_ms = S::handshake_timeout(slots);
        let base = S::base_of(slots);
        base.handshake_timeout_ms = handshake_timeout_ms;
        base.tls = tls;
        base.verify_client = verify;
        base.clients = clients;
    }
    check_listens::<S>(servers)
}

/// The addresses where TLS is listened for.
fn secure_addresses<S: Secured>(servers: &[Slots]) -> HashSet<ListenAddr> {
    let all = servers.iter().flat_map(|s| &S::reached(s).listens);
    all.filter(|l| l.ssl).map(|l| l.addr.clone()).collect()
}

/// How clients' certificates are judged. A server without certificates of its own, for which the
/// default server does the handshake, judges by what it says itself, if it says whom to trust.
fn clients<S: Secured>(
    cf: &mut Cf,
    slots: &Slots,
    secure: &HashSet<ListenAddr>,
) -> ConfResult<Option<Clients>> {
    let conf = slots.get::<SslSrv>();
    let is_alone = !conf.certificates.is_empty() || *conf.reject_handshake;
    let names_authorities =
        !conf.client_certificate.is_empty() || !conf.trusted_certificate.is_empty();
    let listens = &S::reached(slots).listens;
    let is_reached = listens.iter().any(|l| secure.contains(&l.addr));
    if *conf.verify == VerifyClient::Off || !(is_alone || is_reached && names_authorities) {
        return Ok(None);
    }
    let (_, trust) = trust(cf, conf)?;
    let asks = *conf.ocsp != Mode::Off;
    let status = match asks {
        true => format!("{:?} {}", *conf.ocsp, *conf.ocsp_responder),
        false => String::new(),
    };
    let check = asks.then_some(check::check as CheckStatus);
    Ok(Some(Clients { judge: Judge::new(trust, status.as_bytes()), check }))
}

fn client_responder(conf: &SslSrv) -> ConfResult<Option<Responder>> {
    if *conf.ocsp == Mode::Off || conf.ocsp_responder.is_empty() {
        return Ok(None);
    }
    let in_the = |e: String| emerg(format!("{e} in \"ssl_ocsp_responder\""));
    let mut responder = Responder::parse(&conf.ocsp_responder).map_err(in_the)?;
    responder.look_up().map_err(in_the)?;
    Ok(Some(responder))
}

fn server<S: Secured>(
    cf: &mut Cf,
    conf: &SslSrv,
    alpn: Option<Vec<Vec<u8>>>,
    pairs: &mut Pairs,
    staples: &mut Vec<Fetched>,
) -> ConfResult<Option<Tls>> {
    if conf.certificates.is_empty() && !*conf.reject_handshake {
        return Ok(None);
    }
    let offer = offer(cf, conf)?;
    let has_variables =
        conf.certificates.iter().chain(conf.keys.iter()).any(|n| n.template.is_some());
    let (hints, trust) = trust(cf, conf)?;
    let certificates = match has_variables {
        true => Vec::new(),
        false => certificates(cf, conf, &offer, &trust, pairs, staples)?,
    };
    if !conf.dhparam.is_empty() {
        let path = cf.full_conf_path(&conf.dhparam);
        cf.read_file(&path).map_err(|e| {
            let why = weir_core::os_text(&e);
            emerg(format!("BIO_new_file(\"{}\") failed ({why})", path.display()))
        })?;
        let note = Note { about: About::Dhparam, text: "not used: clients take ECDHE".to_string() };
        cf.warnings.push(conf.places.warning("ssl", &note));
    }
    let settings = Settings {
        provider: offer.provider,
        versions: offer.versions,
        names: conf.certificates.iter().map(|n| n.text.clone()).collect(),
        certificates,
        prefer_own_ciphers: offer.prefer_own,
        record: *conf.buffer_size as usize,
        verify: *conf.verify,
        hints,
        trust,
        zone: zone(conf),
        tickets: offer.tickets.unwrap_or(*conf.session_tickets),
        ticket_keys: ticket_keys(cf, conf)?,
        session_timeout_secs: *conf.session_timeout,
        early_data: *conf.early_data,
        alpn,
        reject: *conf.reject_handshake,
        compress_certificates: *conf.compression,
    };
    let server = Arc::new(Server::new(settings).map_err(emerg)?);
    Ok(Some(Tls {
        server,
        find: has_variables.then_some(certs::find::<S> as weir_core::tls::FindCertificates),
    }))
}

fn offer(cf: &mut Cf, conf: &SslSrv) -> ConfResult<Offer> {
    let words = Words {
        protocols: *conf.protocols,
        ciphers: String::clone(&conf.ciphers),
        prefer_own: *conf.prefer_server_ciphers,
        curves: String::clone(&conf.curve),
        commands: Vec::clone(&conf.commands),
    };
    let offer = words.resolve().map_err(refusal)?;
    cf.warnings.extend(offer.notes.iter().map(|n| conf.places.warning("ssl", n)));
    Ok(offer)
}

fn full(cf: &Cf, name: &[u8]) -> Vec<u8> {
    match [&b"data:"[..], b"engine:", b"store:"].iter().any(|p| name.starts_with(p)) {
        true => name.to_vec(),
        false => paths::bytes(&cf.full_conf_path(name)).to_vec(),
    }
}

fn certificates(
    cf: &mut Cf,
    conf: &SslSrv,
    offer: &Offer,
    trust: &Trust,
    pairs: &mut Pairs,
    staples: &mut Vec<Fetched>,
) -> ConfResult<Vec<Offered>> {
    let stapled = stapling::answer(cf, conf)?;
    let mut names: Vec<(Vec<u8>, Vec<u8>)> = conf
        .certificates
        .iter()
        .zip(conf.keys.iter())
        .map(|(c, k)| (full(cf, &c.text), full(cf, &k.text)))
        .collect();
    if let (Some(certificate), Some(key)) = (&offer.certificate, &offer.key) {
        names = vec![(full(cf, certificate.as_bytes()), full(cf, key.as_bytes()))];
    }
    let mut out: Vec<Offered> = Vec::new();
    for name in names {
        let pair = match pairs.get(&name) {
            Some(pair) => Arc::clone(pair),
            None => {
                let pair = load::pair(&name.0, &name.1, &conf.passwords, &mut reader(cf));
                let pair = Arc::new(pair.map_err(emerg)?);
                pairs.insert(name.clone(), Arc::clone(&pair));
                pair
            }
        };
        let pair = match &stapled {
            None => pair,
            Some(answer) => {
                let mut own = CertifiedKey::clone(&pair);
                own.ocsp = Some(answer.clone());
                Arc::new(own)
            }
        };
        let fetched = match *conf.stapling && stapled.is_none() {
            true => {
                let name = String::from_utf8_lossy(&name.0);
                stapling::fetched(cf, conf, &name, &pair, &trust.roots)
            }
            false => None,
        };
        // The last of a kind is the one, as with OpenSSL.
        out.retain(|c| c.pair.key.algorithm() != pair.key.algorithm());
        out.push(Offered { pair, staple: fetched.as_ref().map(|f| Arc::clone(&f.staple)) });
        staples.extend(fetched);
    }
    Ok(out)
}

/// Whom certificates are asked of, and whom they are judged by.
fn trust(cf: &mut Cf, conf: &SslSrv) -> ConfResult<(Vec<CertificateDer<'static>>, Trust)> {
    let mut trust = Trust { depth: *conf.verify_depth as usize, ..Trust::default() };
    let mut hints = Vec::new();
    let asks = *conf.verify != VerifyClient::Off;
    if *conf.ocsp != Mode::Off && *conf.verify == VerifyClient::OptionalNoCa {
        let text = "\"ssl_ocsp\" is incompatible with \"ssl_verify_client optional_no_ca\"";
        return Err(emerg(text));
    }
    if asks
        && *conf.verify != VerifyClient::OptionalNoCa
        && conf.client_certificate.is_empty()
        && conf.trusted_certificate.is_empty()
    {
        let text = "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client";
        let hint = "add ssl_client_certificate FILE; with the authorities of clients";
        return Err(emerg(text).hint(hint.to_string()));
    }
    if asks && !conf.client_certificate.is_empty() {
        let name = full(cf, &conf.client_certificate);
        hints = load::trusted(&name, &mut reader(cf)).map_err(emerg)?;
        trust.roots.extend(hints.iter().cloned());
    }
    if !conf.trusted_certificate.is_empty() {
        let name = full(cf, &conf.trusted_certificate);
        trust.roots.extend(load::trusted(&name, &mut reader(cf)).map_err(emerg)?);
    }
    if !conf.crl.is_empty() {
        let name = full(cf, &conf.crl);
        trust.crls = load::crls(&name, &mut reader(cf)).map_err(emerg)?;
    }
    Ok((hints, trust))
}

fn zone(conf: &SslSrv) -> Option<Arc<Zone>> {
    match (&*conf.zone, *conf.builtin) {
        (Some(zone), _) => Some(Arc::clone(zone)),
        (None, Builtin::Sessions(n)) => Some(Arc::new(Zone::new(n.saturating_mul(SESSION_BYTES)))),
        (None, _) => None,
    }
}

fn ticket_keys(cf: &mut Cf, conf: &SslSrv) -> ConfResult<Option<Arc<TicketKeys>>> {
    if conf.ticket_keys.is_empty() {
        // Kept with the zone, so that tickets outlive a reload.
        return Ok(conf.zone.as_ref().map(|z| z.keys()));
    }
    let mut texts = Vec::new();
    for name in conf.ticket_keys.iter() {
        let path = cf.full_conf_path(name);
        texts.push(cf.read_file(&path).map_err(|e| {
            let why = weir_core::os_text(&e);
            emerg(format!("open() \"{}\" failed ({why})", path.display()))
        })?);
    }
    let keys = TicketKeys::of_files(texts.iter().map(|t| &t[..])).map_err(|i| {
        let shown = cf.full_conf_path(&conf.ticket_keys[i]).display().to_string();
        emerg(format!("\"{shown}\" must be 48 or 80 bytes"))
    })?;
    Ok(Some(Arc::new(keys)))
}

/// Each certificate has a key. Of mail's servers nginx names what needs it.
fn check_keys(conf: &SslSrv, needs: Option<(&str, Option<Position>)>) -> ConfResult {
    let Some(last) = conf.certificates.last() else { return Ok(()) };
    if conf.keys.len() >= conf.certificates.len() {
        return Ok(());
    }
    let certificate = format!("certificate \"{}\"", String::from_utf8_lossy(&last.text));
    let (what, at) = match needs {
        None => (certificate, None),
        Some((directive, at)) if conf.keys.is_empty() => {
            (format!("the \"{directive}\" directive"), at)
        }
        Some((directive, at)) => (format!("{certificate} and the \"{directive}\" directive"), at),
    };
    let e = emerg(format!("no \"ssl_certificate_key\" is defined for {what}"));
    let e = e.hint(format!("add {KEY}"));
    Err(match at {
        Some(at) => e.at(at),
        None => e,
    })
}

fn no_certificate(directive: &str, at: Option<Position>) -> Diagnostic {
    let hint = format!("add {CERTIFICATE} {KEY}");
    let text = format!("no \"ssl_certificate\" is defined for the {directive} directive");
    let e = emerg(text).hint(hint);
    match at {
        Some(at) => e.at(at),
        None => e,
    }
}

/// Where TLS is listened for, there is a certificate.
fn check_listens<S: Secured>(servers: &[Slots]) -> ConfResult {
    let mut by_addr: HashMap<&ListenAddr, Vec<(usize, &Listen)>> = HashMap::new();
    let (mut secure, mut seen) = (Vec::new(), HashSet::new());
    for (i, s) in servers.iter().enumerate() {
        for l in &S::reached(s).listens {
            by_addr.entry(&l.addr).or_default().push((i, l));
            secure.extend((l.ssl && seen.insert(&l.addr)).then_some(&l.addr));
        }
    }
    for addr in secure {
        let here = by_addr.get(addr).map(Vec::as_slice).unwrap_or_default();
        let default = here.iter().find(|(_, l)| l.default_server).or(here.first());
        let Some((default, _)) = default else { continue };
        let conf = servers[*default].get::<SslSrv>();
        if !conf.certificates.is_empty() {
            continue;
        }
        let missing = match *conf.reject_handshake {
            false => Some(*default),
            true => here.iter().map(|(i, _)| *i).find(|i| {
                let conf = servers[*i].get::<SslSrv>();
                conf.certificates.is_empty() && !*conf.reject_handshake
            }),
        };
        if let Some(at) = missing {
            return Err(no_certificate("\"listen ... ssl\"", S::reached(&servers[at]).at));
        }
    }
    Ok(())
}
