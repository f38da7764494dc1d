//! The responder's answer that goes with a server's certificate (RFC 6066, section 8): from a file,
//! or fetched and renewed on the resolver thread, where it holds up nobody.
//!
//! Differences from nginx: one answer for all workers, kept over a reload; `ssl_stapling_verify`
//! takes the certificate's own issuer for trusted, `ssl_trusted_certificate` is needed only where
//! the issuer is not in the chain.

use super::conf::SslSrv;
use super::ocsp::{ask, Responder};
use std::sync::Arc;
use weir_core::generation::{Generation, Virtual};
use weir_core::logger::{ErrorLog, LogLevel};
use weir_module::{Cf, ConfResult, Diagnostic};
use weir_resolve::Resolver;
use weir_runtime::clock;
use weir_tls::der;
use weir_tls::ocsp::{judge, question, Asked, Status};
use weir_tls::rustls::sign::CertifiedKey;
use weir_tls::server::algorithms;
use weir_tls::staple::Staple;
use weir_tls::x509::Cert;

/// The answer from the file, when there is one.
pub fn answer(cf: &mut Cf, conf: &SslSrv) -> ConfResult<Option<Vec<u8>>> {
    if !*conf.stapling || conf.stapling_file.is_empty() {
        return Ok(None);
    }
    let path = cf.full_conf_path(&conf.stapling_file);
    let shown = path.display().to_string();
    let text = cf.read_file(&path).map_err(|e| {
        let why = weir_core::os_text(&e);
        Diagnostic::emerg(format!("BIO_new_file(\"{shown}\") failed ({why})"))
    })?;
    match der::Reader(&text).sequence().is_some() {
        true => Ok(Some(text.to_vec())),
        false => Err(Diagnostic::emerg(format!("d2i_OCSP_RESPONSE_bio(\"{shown}\") failed"))),
    }
}

/// A certificate whose answer is fetched.
pub struct Fetched {
    pub staple: Arc<Staple>,
    source: Arc<Source>,
}

/// From whom it is fetched, and how it is judged.
struct Source {
    pair: Arc<CertifiedKey>,
    issuer: Vec<u8>,
    responder: Responder,
    verify: bool,
    name: String,
}

/// Finds out how to fetch; warns, as nginx does, where nothing can be stapled.
pub fn fetched(
    cf: &mut Cf,
    conf: &SslSrv,
    name: &str,
    pair: &Arc<CertifiedKey>,
    trusted: &[impl AsRef<[u8]>],
) -> Option<Fetched> {
    match prepare(conf, name, pair, trusted) {
        Ok(fetched) => Some(fetched),
        Err(why) => {
            let text = format!("\"ssl_stapling\" ignored, {why} certificate \"{name}\"");
            if !cf.warnings.iter().any(|w| w.message == text) {
                cf.warnings.push(Diagnostic::warn(text));
            }
            None
        }
    }
}

fn prepare(
    conf: &SslSrv,
    name: &str,
    pair: &Arc<CertifiedKey>,
    trusted: &[impl AsRef<[u8]>],
) -> Result<Fetched, String> {
    let no_issuer = "issuer certificate not found for";
    let leaf = pair.cert.first().and_then(|c| Cert::parse(c)).ok_or(no_issuer)?;
    let others = pair.cert[1..].iter().map(AsRef::as_ref).chain(trusted.iter().map(AsRef::as_ref));
    let mut others = others.filter_map(Cert::parse).filter(|c| c.subject == leaf.issuer);
    let issuer = others.find(|c| leaf.is_signed_by(c, &algorithms())).ok_or(no_issuer)?;
    let url = match conf.stapling_responder.as_str() {
        "" => leaf.ocsp_responder().ok_or("no OCSP responder URL in the")?,
        url => url,
    };
    let in_the = |e: String| format!("{e} in the");
    let mut responder = Responder::parse(url).map_err(in_the)?;
    responder.look_up().map_err(in_the)?;
    let verify = *conf.stapling_verify;
    let how = [issuer.whole, url.as_bytes(), &[u8::from(verify)]].concat();
    let staple = Staple::named(pair, &how);
    let issuer = issuer.whole.to_vec();
    let source = Source { pair: Arc::clone(pair), issuer, responder, verify, name: name.into() };
    Ok(Fetched { staple, source: Arc::new(source) })
}

/// The generation is about to be served: answers are fetched from now on.
pub fn start<'a>(gen: &Arc<Generation>, servers: impl Iterator<Item = &'a Arc<Virtual>>) {
    for server in servers {
        for fetched in server.conf::<SslSrv>().staples.get().into_iter().flatten() {
            let resolver = server.resolver.clone();
            let job = Arc::new(Job {
                source: Arc::clone(&fetched.source),
                resolver: resolver.map(|r| (r, server.resolver_timeout_ms)),
                log: Arc::clone(&gen.error_log),
            });
            fetched.staple.fetch_by(Arc::new(move |staple| begin(&job, staple)));
        }
    }
}

/// Belongs to the staple, and so must not hold it.
struct Job {
    source: Arc<Source>,
    resolver: Option<(Arc<Resolver>, u64)>,
    log: Arc<ErrorLog>,
}

fn begin(job: &Arc<Job>, staple: Arc<Staple>) {
    let Some(handle) = weir_resolve::client::handle() else {
        return staple.failed();
    };
    let job = Arc::clone(job);
    handle.spawn(async move {
        match job.fetch().await {
            Some((answer, next_update)) => staple.answered(answer, next_update),
            None => staple.failed(),
        }
    });
}

impl Job {
    fn log(&self, level: LogLevel, text: &str) {
        let line = format!("{text}, certificate: \"{}\"", self.source.name);
        self.log.log(level, None, line.as_bytes());
    }

    async fn fetch(&self) -> Option<(Vec<u8>, Option<i64>)> {
        let Source { pair, issuer, responder, verify, .. } = &*self.source;
        let certs: Vec<Cert<'_>> = pair.cert.iter().filter_map(|c| Cert::parse(c)).collect();
        let (cert, others) = certs.split_first()?;
        let issuer = Cert::parse(issuer)?;
        if let Some((resolver, _)) = &self.resolver {
            weir_core::resolver::log_to(resolver, &self.log);
        }
        let resolver = self.resolver.as_ref().map(|(r, ms)| (r, *ms));
        let log = |level, text: &str| self.log(level, text);
        let bytes = ask(responder, resolver, &question(cert, &issuer), &log).await?;
        let asked = Asked { cert, issuer: &issuer, others, verify_signer: *verify };
        let problem = match judge(&bytes, &asked, clock::wall_secs(), &algorithms()) {
            Ok(answer) if answer.status == Status::Good => {
                return Some((bytes, answer.next_update))
            }
            Ok(answer) => {
                format!("certificate status \"{}\" in the OCSP response", answer.status.text())
            }
            Err(e) => e.text(),
        };
        let host = &responder.host;
        let text = format!("{problem} while requesting certificate status, responder: {host}");
        self.log(LogLevel::Error, &text);
        None
    }
}
