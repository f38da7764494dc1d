//! Certificates, keys and what makes handshakes cheap.

use crate::checks::Case;
use crate::conf::TlsServer;
use crate::finding::Finding;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use weir_base::date::Civil;
use weir_tls::pem;
use weir_tls::rustls::pki_types::CertificateDer;
use weir_tls::x509::{chain::is_for_host, Cert};

const DAY_SECS: i64 = 86_400;
/// Authorities' clients renew at 30 days, or a third of the life of short ones.
const SOON_DAYS: i64 = 14;
/// Names of a server that are shown where a certificate is not for them.
const NAMES_SHOWN: usize = 3;

type Judged = io::Result<Vec<Finding>>;

/// A file of the configuration, and the servers that have it.
fn files(case: &Case<'_>, of: fn(&TlsServer) -> &[PathBuf]) -> BTreeMap<PathBuf, Vec<TlsServer>> {
    let mut all: BTreeMap<PathBuf, Vec<TlsServer>> = BTreeMap::new();
    for server in &case.conf.tls {
        for path in of(server) {
            all.entry(path.clone()).or_default().push(server.clone());
        }
    }
    all
}

fn chain(case: &Case<'_>, path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = pem::certificates(&case.system.read(path)?);
    match found.is_empty() {
        true => Err(io::Error::other("no certificate in it")),
        false => Ok(found),
    }
}

/// What cannot be read of one file, which keeps nobody from looking at the others.
fn unread(path: &Path, e: &io::Error) -> Finding {
    let why = match e.kind() {
        io::ErrorKind::PermissionDenied => "this user may not read it; root may".to_owned(),
        _ => e.to_string(),
    };
    Finding::unknown(path.display(), why)
}

fn day(secs: i64) -> String {
    let c = Civil::from_unix(secs);
    format!("{:04}-{:02}-{:02}", c.year, c.month, c.day)
}

/// Last days, the first of them first; and chains.
pub fn dates(case: &Case<'_>) -> Judged {
    let now = case.system.now_secs();
    let mut out: Vec<(i64, Finding)> = Vec::new();
    let own = files(case, |s| &s.certificates).into_keys();
    let mut all: Vec<PathBuf> = own.chain(case.conf.certificates.iter().cloned()).collect();
    all.sort();
    all.dedup();
    for path in all {
        let chain = match chain(case, &path) {
            Ok(chain) => chain,
            Err(e) => {
                out.push((i64::MAX, unread(&path, &e)));
                continue;
            }
        };
        let certs: Vec<Cert<'_>> = chain.iter().filter_map(|c| Cert::parse(c)).collect();
        let Some(leaf) = certs.first() else { continue };
        // One of the chain may end before its own.
        let last = certs.iter().map(|c| c.not_after).min().unwrap_or(leaf.not_after);
        let days = (last - now).div_euclid(DAY_SECS);
        let figure = format!("{}: until {}, {days} days", path.display(), day(last));
        let mend = "renew it, then weir -s reload";
        out.push((
            last,
            match days {
                _ if leaf.not_before > now => Finding::error(
                    format!("{figure}, from {}", day(leaf.not_before)),
                    "clients refuse it: it does not hold yet",
                    "set the clock, or the certificate of before",
                ),
                i64::MIN..0 => Finding::error(figure, "clients refuse it", mend),
                0..SOON_DAYS => Finding::warn(
                    figure,
                    "clients refuse it from then on, and nothing seems to renew it",
                    mend,
                ),
                _ => Finding::ok(figure, ""),
            },
        ));
        if certs.len() == 1 && !leaf.is_self_issued() {
            out.push((last, Finding::warn(
                format!("{}: 1 certificate", path.display()),
                "the one of the authority in between is not there: clients that do not know it refuse the chain",
                format!("cat own.crt intermediate.crt > {}", path.display()),
            )));
        }
    }
    out.sort_by_key(|(last, _)| *last);
    Ok(out.into_iter().map(|(_, f)| f).collect())
}

/// Servers whose names their certificates are not for.
pub fn names(case: &Case<'_>) -> Judged {
    let mut out = Vec::new();
    let mut count = 0;
    for server in &case.conf.tls {
        let chains: Vec<_> =
            server.certificates.iter().filter_map(|p| chain(case, p).ok()).collect();
        if chains.is_empty() {
            continue;
        }
        let is_covered = |name: &&String| {
            // A wildcard of the configuration is looked for by a name that it stands for.
            let host = match (name.strip_prefix("*."), name.strip_prefix('.')) {
                (Some(rest), _) => format!("x.{rest}"),
                (_, Some(rest)) => rest.to_owned(),
                _ => (*name).clone(),
            };
            let of = |c: &Vec<CertificateDer<'_>>| {
                Cert::parse(&c[0]).is_some_and(|leaf| is_for_host(&leaf, host.as_bytes()))
            };
            name.contains('$') || name.ends_with(".*") || chains.iter().any(of)
        };
        count += server.names.len();
        let bare: Vec<&String> = server.names.iter().filter(|n| !is_covered(n)).collect();
        if let Some(first) = bare.first() {
            let shown: Vec<&str> = bare.iter().take(NAMES_SHOWN).map(|n| n.as_str()).collect();
            let more = if bare.len() > NAMES_SHOWN { ", …" } else { "" };
            let path = &server.certificates[0];
            out.push(Finding::warn(
                format!("{}: not for {}{more}", path.display(), shown.join(", ")),
                "browsers that ask this server by such a name refuse it",
                format!("a certificate with the name (certbot --expand -d {first}), or remove it from server_name"),
            ));
        }
    }
    if out.is_empty() && count > 0 {
        out.push(Finding::ok(format!("{count} names are in their certificates"), ""));
    }
    Ok(out)
}

/// Keys that others can read.
pub fn keys(case: &Case<'_>) -> Judged {
    let mut out = Vec::new();
    let mut well = 0;
    let mut all = files(case, |s| &s.keys);
    all.append(&mut files(case, |s| &s.ticket_keys));
    for path in all.into_keys() {
        match case.system.stamp(&path) {
            Ok(stamp) if stamp.is_readable_by_all => out.push(Finding::error(
                format!("{}: everybody may read it", path.display()),
                "whoever has an account here can speak for this server",
                format!("chmod 600 {}", path.display()),
            )),
            Ok(_) => well += 1,
            Err(e) => out.push(unread(&path, &e)),
        }
    }
    if well > 0 {
        out.push(Finding::ok(format!("{well} keys are not for everybody"), ""));
    }
    Ok(out)
}

/// Whether clients that come again are spared the whole handshake, and old keys are let go of.
pub fn resumption(case: &Case<'_>) -> Judged {
    let mut out = Vec::new();
    let now = case.system.now_secs();
    for path in files(case, |s| &s.ticket_keys).into_keys() {
        match case.system.stamp(&path) {
            Err(e) => out.push(unread(&path, &e)),
            Ok(stamp) => {
                let days = (now - stamp.changed_secs).div_euclid(DAY_SECS);
                let figure = format!("{}: {days} days old", path.display());
                out.push(match days {
                    ..=1 => Finding::ok(figure, ""),
                    _ => Finding::warn(
                        figure,
                        "whoever gets the key reads all that was sent by tickets of it, past connections too",
                        format!("openssl rand 80 > {} daily, and weir -s reload", path.display()),
                    ),
                });
            }
        }
    }
    let is_without = |s: &&TlsServer| {
        let cache = s.session_cache.as_deref().unwrap_or("none");
        !s.tickets && !cache.contains("shared:") && !cache.contains("builtin")
    };
    let without = case.conf.tls.iter().filter(is_without).count();
    if without > 0 {
        out.push(Finding::warn(
            format!("{without} of {} servers resume no sessions", case.conf.tls.len()),
            "every connection costs a whole handshake, several times what a resumed one does",
            "ssl_session_cache shared:TLS:10m;  (or ssl_session_tickets on;)",
        ));
    } else if !case.conf.tls.is_empty() {
        out.push(Finding::ok(format!("{} servers resume sessions", case.conf.tls.len()), ""));
    }
    Ok(out)
}

/// Stapling that can work.
pub fn stapling(case: &Case<'_>) -> Judged {
    let staples: Vec<_> =
        case.conf.tls.iter().filter(|s| s.stapling && !s.has_staple_file).collect();
    let mut out = Vec::new();
    let lost = staples.iter().filter(|s| !s.has_resolver).count();
    if lost > 0 {
        out.push(Finding::warn(
            format!("{lost} of {} servers with ssl_stapling have no resolver", staples.len()),
            "the name of the authority's responder cannot be looked up: nothing is stapled",
            "resolver 127.0.0.53;  (or your own)",
        ));
    }
    let mut silent: Vec<String> = Vec::new();
    for path in staples.iter().flat_map(|s| &s.certificates) {
        let Ok(chain) = chain(case, path) else { continue };
        let names_one = Cert::parse(&chain[0]).is_some_and(|c| c.ocsp_responder().is_some());
        if !names_one && !silent.contains(&path.display().to_string()) {
            silent.push(path.display().to_string());
        }
    }
    if !silent.is_empty() {
        let why = "the certificate names no responder, as many authorities' no longer do: ssl_stapling does nothing";
        out.push(Finding::note(silent.join(", "), why).mend("ssl_stapling off;"));
    }
    if out.is_empty() && !staples.is_empty() {
        out.push(Finding::ok(format!("{} servers", staples.len()), ""));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{conf, Fake};
    use crate::finding::Severity::{self, Error, Note, Ok as Well, Unknown, Warn};
    use crate::system::Stamp;

    /// A certificate of its own for names, from 2026-01-01 to 2027-01-01.
    fn certificate(names: &[&str]) -> Vec<u8> {
        let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem().into_bytes()
    }

    const END_SECS: i64 = 1_798_761_600;

    fn judge(check: fn(&Case<'_>) -> Judged, text: &str, system: Fake) -> Vec<(Severity, String)> {
        let conf = conf(&format!("http {{ server {{ listen 443 ssl; {text} }} }}"));
        let found = check(&Case {
            conf: &conf,
            system: &system,
            running: None,
            receivers: Ok(&[]),
            told: Ok(None),
        })
        .unwrap();
        found.into_iter().map(|f| (f.severity, f.figure)).collect()
    }

    fn with(pem: Vec<u8>, now_secs: i64) -> Fake {
        let files = [(PathBuf::from("/c.crt"), pem)].into();
        Fake { files, now_secs, ..Fake::default() }
    }

    #[test]
    fn last_days() {
        let text = "ssl_certificate /c.crt;";
        let pem = certificate(&["a.example"]);
        for (days, severity) in
            [(20, Well), (14, Well), (13, Warn), (0, Warn), (-1, Error), (400, Error)]
        {
            let found = judge(dates, text, with(pem.clone(), END_SECS - days * DAY_SECS));
            assert_eq!(found[0].0, severity, "{days} {found:?}");
            assert_eq!(found.len(), 1, "its own authority: no chain is missed");
        }
        let found = judge(dates, text, with(pem, END_SECS - 20 * DAY_SECS));
        assert_eq!(found[0].1, "/c.crt: until 2027-01-01, 20 days");
        let shown = "proxy_ssl_certificate /c.crt;";
        let found = judge(dates, shown, with(certificate(&["a"]), END_SECS + DAY_SECS));
        assert_eq!(found[0].0, Error, "{found:?}");
        let two = "ssl_certificate /d.crt; ssl_certificate /c.crt;";
        let mut system = with(certificate(&["a"]), END_SECS - DAY_SECS);
        system.files.insert("/d.crt".into(), b"nothing".to_vec());
        let found: Vec<_> = judge(dates, two, system).into_iter().map(|f| f.0).collect();
        assert_eq!(found, [Warn, Unknown], "what ends first stands first");
    }

    #[test]
    fn names_that_a_certificate_is_not_for() {
        let of = |names: &str| {
            let pem = certificate(&["a.example", "*.b.example"]);
            judge(
                names_check(),
                &format!("server_name {names}; ssl_certificate /c.crt;"),
                with(pem, 0),
            )
        };
        assert_eq!(of("a.example x.b.example *.b.example ~^c _")[0].0, Well);
        let found = of("a.example www.a.example");
        assert_eq!(found[0], (Warn, "/c.crt: not for www.a.example".into()));
        assert_eq!(of("y.x.b.example")[0].0, Warn, "an asterisk is one label");
    }

    fn names_check() -> fn(&Case<'_>) -> Judged {
        names
    }

    #[test]
    fn keys_and_tickets() {
        let stamp = |changed_secs, is_readable_by_all| Fake {
            stamps: [(
                PathBuf::from("/k"),
                Stamp { changed_secs, is_readable_by_all, ..Stamp::default() },
            )]
            .into(),
            now_secs: 10 * DAY_SECS,
            ..Fake::default()
        };
        let text = "ssl_certificate_key /k;";
        assert_eq!(judge(keys, text, stamp(0, true))[0].0, Error);
        assert_eq!(judge(keys, text, stamp(0, false))[0].0, Well);
        assert_eq!(judge(keys, text, Fake::default())[0].0, Unknown);
        let text = "ssl_session_ticket_key /k;";
        assert_eq!(judge(resumption, text, stamp(9 * DAY_SECS, false))[0].0, Well);
        assert_eq!(judge(resumption, text, stamp(8 * DAY_SECS, false))[0].0, Warn);
        let of = |text: &str| judge(resumption, text, Fake::default())[0].0;
        assert_eq!(of(""), Well);
        assert_eq!(of("ssl_session_tickets off;"), Warn);
        assert_eq!(of("ssl_session_tickets off; ssl_session_cache shared:a:1m;"), Well);
    }

    #[test]
    fn stapling_needs_a_resolver_and_a_responder() {
        let text = "ssl_stapling on; ssl_certificate /c.crt;";
        let of = |more: &str| -> Vec<Severity> {
            let found = judge(stapling, &format!("{text}{more}"), with(certificate(&["a"]), 0));
            found.into_iter().map(|f| f.0).collect()
        };
        assert_eq!(of(""), [Warn, Note]);
        assert_eq!(of("resolver 127.0.0.1;"), [Note]);
        assert_eq!(of("ssl_stapling_file /f;"), []);
    }
}
