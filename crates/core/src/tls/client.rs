//! Clients' certificates, and whether requests may be served because of them.
//!
//! Invariant: a certificate is judged by the server that answers, whichever the handshake was done
//! with. A hello without a name, or with an unknown one, is answered by the default server, a name
//! in the request chooses another after that, and a reload changes what either of them trusts; so
//! the verdicts of a connection are kept by what they were found with.
//!
//! Difference from nginx: there the default server's verdict, and its OCSP responder's, hold for
//! all servers of the address.

use crate::connection::Connection;
use crate::counts::Unverified;
use crate::generation::{Generation, Virtual};
use crate::LocalFuture;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use weir_runtime::clock;
use weir_tls::judge::{Judge, Mark};
use weir_tls::rustls::pki_types::CertificateDer;
use weir_tls::rustls::CommonState;
use weir_tls::server::VerifyClient;
use weir_tls::x509::chain::ChainError;

/// Verdicts kept for one connection.
const VERDICTS_MAX: usize = 8;

/// Asks whether certificates that were found good have been revoked; the error is why not to serve.
pub type CheckStatus = fn(
    &Rc<Connection>,
    &Arc<Virtual>,
    Vec<CertificateDer<'static>>,
) -> LocalFuture<'static, Result<(), &'static str>>;

/// How a server judges its clients' certificates.
pub struct Clients {
    /// Whom it trusts, how deep, and what was revoked.
    pub judge: Judge,
    /// `ssl_ocsp`.
    pub check: Option<CheckStatus>,
}

/// What is known of the client's certificate.
#[derive(Clone, Copy)]
struct Verdict {
    chain: Result<(), ChainError>,
    /// Whether it was revoked, once that has been asked.
    status: Option<Result<(), &'static str>>,
}

/// The verdicts on a connection's certificate, the oldest first.
#[derive(Default)]
pub(super) struct Verdicts(RefCell<Vec<(Mark, Verdict)>>);

impl Verdicts {
    fn get(&self, mark: &Mark) -> Option<Verdict> {
        self.0.borrow().iter().find(|(m, _)| m == mark).map(|(_, v)| *v)
    }

    fn put(&self, mark: &Mark, verdict: Verdict) {
        let mut all = self.0.borrow_mut();
        all.retain(|(m, _)| m != mark);
        if all.len() >= VERDICTS_MAX {
            all.remove(0);
        }
        all.push((*mark, verdict));
    }
}

/// What a client has shown, in the eyes of the server that answers.
pub enum Shown {
    /// No certificate, or no TLS.
    Nothing,
    /// Trusted and, where that is asked, not revoked.
    Good,
    /// With the reason that `$ssl_client_verify` shows.
    Bad(&'static str),
}

/// What a server thinks of the certificate that a client has shown, or has not.
enum Opinion {
    /// None was shown.
    Missing,
    /// Its path is not trusted.
    Untrusted(ChainError),
    /// Its path is trusted, and whether it was revoked has yet to be asked.
    Unasked,
    /// It was revoked, or that could not be found out.
    Revoked(&'static str),
    /// It may be served.
    Good,
}

fn peer_certificates(tls: &CommonState) -> Option<&[CertificateDer<'static>]> {
    tls.peer_certificates().filter(|c| !c.is_empty())
}

/// How code has the client judged for a server: for the one alone that the handshake was done for.
fn of_code<'c>(
    conn: &'c Connection,
    gen: &Generation,
    server: &Arc<Virtual>,
) -> Option<&'c Clients> {
    let (number, id, clients) = conn.secure.get()?.clients.get()?;
    let is_it = *number == gen.number && Arc::ptr_eq(conn.server(gen, *id), server);
    is_it.then_some(clients)
}

/// By what a server judges its clients: by what code has said before anything else.
fn clients_of<'c>(
    conn: &'c Connection,
    gen: &'c Generation,
    server: &'c Arc<Virtual>,
) -> Option<&'c Clients> {
    of_code(conn, gen, server).or_else(|| judging(conn, gen, server)?.clients.as_ref())
}

/// Whether a server asks its clients for a certificate, or code has done so for it.
pub fn is_asked(conn: &Connection, gen: &Generation, server: &Arc<Virtual>) -> bool {
    server.verify_client != VerifyClient::Off || of_code(conn, gen, server).is_some()
}

/// Whose judgement holds for a server: its own, or the default server's if it has no TLS at all.
fn judging<'g>(
    conn: &Connection,
    gen: &'g Generation,
    server: &'g Arc<Virtual>,
) -> Option<&'g Arc<Virtual>> {
    if server.clients.is_some() {
        return Some(server);
    }
    let default = conn.addr(gen).default;
    Some(conn.server(gen, default)).filter(|s| s.clients.is_some())
}

/// What is thought of the certificate; nothing if there is none.
fn verdict(conn: &Connection, clients: Option<&Clients>) -> Option<Verdict> {
    let secure = conn.secure.get()?;
    let judge = clients.map(|c| &c.judge);
    if let Some(known) = judge.and_then(|j| secure.verdicts.get(j.mark())) {
        return Some(known);
    }
    let chain = conn.stream.tls()?.with(|tls| {
        let shown = peer_certificates(tls)?;
        // Nobody is trusted where nobody is named.
        let unknown = Err(ChainError::NoLocalIssuer);
        Some(judge.map_or(unknown, |j| j.verdict(shown, clock::wall_secs())))
    })?;
    let is_asked = chain.is_ok() && clients.is_some_and(|c| c.check.is_some());
    let verdict = Verdict { chain, status: (!is_asked).then_some(Ok(())) };
    if let Some(judge) = judge {
        secure.verdicts.put(judge.mark(), verdict);
    }
    Some(verdict)
}

/// Judges what the client has shown to the server that its hello asked for; `false` when there was
/// no time left to ask about it.
pub(super) async fn judge(
    conn: &Rc<Connection>,
    gen: &Generation,
    server: &Arc<Virtual>,
    deadline: u64,
) -> bool {
    if server.verify_client == VerifyClient::Off {
        return true;
    }
    let Some(server) = judging(conn, gen, server) else { return true };
    match verdict(conn, server.clients.as_ref()) {
        Some(Verdict { status: None, .. }) => ask(conn, server, deadline).await,
        _ => true,
    }
}

/// Waits for what is found out about the certificate; `false` when that took too long.
async fn ask(conn: &Rc<Connection>, server: &Arc<Virtual>, deadline: u64) -> bool {
    let Some(clients) = &server.clients else { return true };
    let (Some(check), Some(secure)) = (clients.check, conn.secure.get()) else { return true };
    let path = conn
        .stream
        .tls()
        .and_then(|s| s.with(|tls| peer_certificates(tls).map(|shown| clients.judge.path(shown))));
    let mut asking = check(conn, server, path.unwrap_or_default());
    let checked = poll_fn(|cx| match asking.as_mut().poll(cx) {
        Poll::Pending => conn.poll_timeout(cx, deadline).map(|()| None),
        Poll::Ready(checked) => Poll::Ready(Some(checked)),
    })
    .await;
    let Some(status) = checked else { return false };
    secure.verdicts.put(clients.judge.mark(), Verdict { chain: Ok(()), status: Some(status) });
    true
}

/// What the server that answers thinks of the client's certificate.
fn opinion(conn: &Connection, gen: &Generation, server: &Arc<Virtual>) -> Opinion {
    match verdict(conn, clients_of(conn, gen, server)) {
        None => Opinion::Missing,
        Some(Verdict { chain: Err(e), .. }) => Opinion::Untrusted(e),
        Some(Verdict { status: None, .. }) => Opinion::Unasked,
        Some(Verdict { status: Some(Err(why)), .. }) => Opinion::Revoked(why),
        Some(Verdict { status: Some(Ok(())), .. }) => Opinion::Good,
    }
}

/// Why a client is not served that a server asks for a certificate.
pub enum Refusal {
    /// It is not good.
    Bad(String),
    /// There is none.
    Missing,
    /// Whether it was revoked has yet to be asked.
    Unasked,
}

impl Refusal {
    /// In nginx's words.
    pub fn text(&self) -> String {
        match self {
            Refusal::Bad(why) => format!("client SSL certificate verify error: {why}"),
            Refusal::Missing => "client sent no required SSL certificate".to_string(),
            Refusal::Unasked => "client SSL certificate status is not known yet".to_string(),
        }
    }
}

/// Why the client's certificate is not taken, if it is not: for the figures.
pub(super) fn unverified(
    conn: &Connection,
    gen: &Generation,
    server: &Arc<Virtual>,
) -> Option<Unverified> {
    if server.verify_client == VerifyClient::Off {
        return None;
    }
    let is_asked = server.verify_client == VerifyClient::On;
    match opinion(conn, gen, server) {
        Opinion::Untrusted(e) => Some(Unverified::of_number(e.number())),
        Opinion::Missing if is_asked => Some(Unverified::NoCert),
        Opinion::Revoked(_) => Some(Unverified::Revoked),
        Opinion::Missing | Opinion::Unasked | Opinion::Good => None,
    }
}

/// Whether the server that answers refuses the client, by what it thinks of its certificate.
pub fn refusal(conn: &Connection, gen: &Generation, server: &Arc<Virtual>) -> Option<Refusal> {
    let verify = server.verify_client;
    if verify == VerifyClient::Off {
        return None;
    }
    match opinion(conn, gen, server) {
        Opinion::Untrusted(e) if verify != VerifyClient::OptionalNoCa || !e.is_unknown_issuer() => {
            Some(Refusal::Bad(format!("({}:{})", e.number(), e.text())))
        }
        Opinion::Missing if verify == VerifyClient::On => Some(Refusal::Missing),
        Opinion::Revoked(why) => Some(Refusal::Bad(why.to_string())),
        Opinion::Unasked => Some(Refusal::Unasked),
        Opinion::Untrusted(_) | Opinion::Missing | Opinion::Good => None,
    }
}

/// Asks about the certificate on behalf of a server that the handshake was not done with; `false`
/// when there was no time left.
pub async fn ask_for(
    conn: &Rc<Connection>,
    gen: &Generation,
    server: &Arc<Virtual>,
    deadline: u64,
) -> bool {
    match judging(conn, gen, server) {
        Some(judging) => ask(conn, judging, deadline).await,
        None => true,
    }
}

/// What the client has shown to a server: nothing to one that does not ask.
pub fn shown(conn: &Connection, gen: &Generation, server: &Arc<Virtual>) -> Shown {
    if !is_asked(conn, gen, server) {
        return Shown::Nothing;
    }
    match opinion(conn, gen, server) {
        Opinion::Missing => Shown::Nothing,
        Opinion::Untrusted(e) => Shown::Bad(e.text()),
        Opinion::Good => Shown::Good,
        Opinion::Revoked(why) => Shown::Bad(why),
        Opinion::Unasked => Shown::Bad("certificate status unknown"),
    }
}
