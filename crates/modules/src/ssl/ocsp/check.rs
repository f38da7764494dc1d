//! Whether a client's certificates have been revoked, asked after the handshake and before its
//! first request; the connection's `client_header_timeout` ends the wait.

use super::{ask, Cache, Mode, Responder};
use crate::ssl::conf::SslSrv;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::Virtual;
use weir_core::logger::LogLevel;
use weir_core::Connection;
use weir_core::LocalFuture;
use weir_runtime::clock;
use weir_tls::ocsp::{judge, question, Asked, Status};
use weir_tls::rustls::pki_types::CertificateDer;
use weir_tls::server::algorithms;
use weir_tls::x509::Cert;

/// Asks about the certificates of a path that was found good; the error is for the client.
pub fn check(
    conn: &Rc<Connection>,
    server: &Arc<Virtual>,
    path: Vec<CertificateDer<'static>>,
) -> LocalFuture<'static, Result<(), &'static str>> {
    let one = Check { conn: Rc::clone(conn), server: Arc::clone(server) };
    Box::pin(async move { one.all(&path).await })
}

struct Check {
    conn: Rc<Connection>,
    server: Arc<Virtual>,
}

impl Check {
    async fn all(&self, path: &[CertificateDer<'static>]) -> Result<(), &'static str> {
        let certs: Vec<Cert<'_>> = path.iter().filter_map(|c| Cert::parse(c)).collect();
        let most = match *self.server.conf::<SslSrv>().ocsp {
            Mode::Off => 0,
            Mode::Leaf => 1,
            Mode::On => usize::MAX,
        };
        // The root, whom nobody issued, is not asked about.
        for pair in certs.windows(2).take(most) {
            match self.status(&pair[0], &pair[1]).await {
                Some(Status::Good) => {}
                Some(Status::Revoked) => return Err("certificate revoked"),
                Some(Status::Unknown) => return Err("certificate status unknown"),
                None => return Err("certificate status request failed"),
            }
        }
        Ok(())
    }

    fn log(&self, level: LogLevel, text: &str) {
        self.conn.log(level, text.as_bytes());
    }

    /// From the cache or from the responder; nothing after an error.
    async fn status(&self, cert: &Cert<'_>, issuer: &Cert<'_>) -> Option<Status> {
        let conf = self.server.conf::<SslSrv>();
        let own;
        let responder = match conf.client_responder.get().and_then(Option::as_ref) {
            Some(responder) => responder,
            None => {
                own = self.responder_of(cert)?;
                &own
            }
        };
        let cache = (*conf.ocsp_cache).as_ref();
        let kept = cache.and_then(|c| Some((c, Cache::key(cert, issuer)?)));
        if let Some(status) = kept.as_ref().and_then(|(c, k)| c.get(k, clock::wall_secs())) {
            return Some(status);
        }
        let resolver = self.server.resolver.as_ref();
        if let Some(resolver) = resolver {
            weir_core::resolver::log_to(resolver, &self.server.error_log);
        }
        let resolver = resolver.map(|r| (r, self.server.resolver_timeout_ms));
        let log = |level, text: &str| self.log(level, text);
        let bytes = ask(responder, resolver, &question(cert, issuer), &log).await?;
        let now = clock::wall_secs();
        let asked = Asked { cert, issuer, others: &[], verify_signer: true };
        match judge(&bytes, &asked, now, &algorithms()) {
            Ok(answer) => {
                if let Some((cache, key)) = kept {
                    cache.put(key, &answer, now);
                }
                Some(answer.status)
            }
            Err(e) => {
                let text = e.text();
                let host = &responder.host;
                let while_ = "while requesting certificate status, responder";
                self.log(LogLevel::Error, &format!("{text} {while_}: {host}"));
                None
            }
        }
    }

    /// The one that the certificate names.
    fn responder_of(&self, cert: &Cert<'_>) -> Option<Responder> {
        let Some(url) = cert.ocsp_responder() else {
            self.log(LogLevel::Error, "no OCSP responder URL in certificate");
            return None;
        };
        match Responder::parse(url) {
            Ok(responder) => Some(responder),
            Err(e) => {
                self.log(LogLevel::Error, &format!("{e} in certificate"));
                None
            }
        }
    }
}
