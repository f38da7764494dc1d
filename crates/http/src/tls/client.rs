//! Clients' certificates, and whether requests may be served because of them.
//!
//! Invariant: a certificate is judged by the server that answers, whichever the handshake was done
//! with. A hello without a name, or with an unknown one, is answered by the default server, a name
//! in the request chooses another after that, and a reload changes what either of them trusts; so
//! the verdicts of a connection are kept by what they were found with.
//!
//! Difference from nginx: there the default server's verdict, and its OCSP responder's, hold for
//! all servers of the address.

use super::late;
use crate::conn::Connection;
use crate::generation::{Server, WorkerGen};
use crate::request::Request;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use weir_core::logger::LogLevel;
use weir_core::LocalFuture;
use weir_core::Session;
use weir_runtime::clock;
use weir_tls::judge::{Judge, Mark};
use weir_tls::rustls::pki_types::CertificateDer;
use weir_tls::rustls::Connection as TlsConn;
use weir_tls::server::VerifyClient;
use weir_tls::x509::chain::ChainError;

/// Verdicts kept for one connection.
const VERDICTS_MAX: usize = 8;

/// Asks whether certificates that were found good have been revoked; the error is why not to serve.
pub type CheckStatus = fn(
    &Rc<Connection>,
    &Rc<WorkerGen>,
    &Rc<Server>,
    Vec<CertificateDer<'static>>,
) -> LocalFuture<'static, Result<(), &'static str>>;

/// How a server judges its clients' certificates.
pub struct Clients {
    pub judge: Judge,
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
    Nothing,
    Good,
    Bad(&'static str),
}

/// Why a request must not be served on its connection.
pub enum Objection {
    None,
    /// A status to answer with.
    Status(u16),
    /// It has yet to be asked about.
    Unasked,
}

fn peer_certificates(tls: &TlsConn) -> Option<&[CertificateDer<'static>]> {
    tls.peer_certificates().filter(|c| !c.is_empty())
}

/// Whose judgement holds for a server: its own, or the default server's if it has no TLS at all.
fn judging(conn: &Connection, gen: &Rc<WorkerGen>, server: &Rc<Server>) -> Option<Rc<Server>> {
    if server.core.clients.is_some() {
        return Some(Rc::clone(server));
    }
    let addr = gen.shared.listens[conn.listen.get()].choose(|| conn.local_addr());
    Some(&gen.servers[addr.default]).filter(|s| s.core.clients.is_some()).map(Rc::clone)
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
    gen: &Rc<WorkerGen>,
    server: &Rc<Server>,
    deadline: u64,
) -> bool {
    if server.core.verify_client == VerifyClient::Off {
        return true;
    }
    let Some(server) = judging(conn, gen, server) else { return true };
    match verdict(conn, server.core.clients.as_ref()) {
        Some(Verdict { status: None, .. }) => ask(conn, gen, &server, deadline).await,
        _ => true,
    }
}

/// Waits for what is found out about the certificate; `false` when that took too long.
async fn ask(
    conn: &Rc<Connection>,
    gen: &Rc<WorkerGen>,
    server: &Rc<Server>,
    deadline: u64,
) -> bool {
    let Some(clients) = &server.core.clients else { return true };
    let (Some(check), Some(secure)) = (clients.check, conn.secure.get()) else { return true };
    let path = conn
        .stream
        .tls()
        .and_then(|s| s.with(|tls| peer_certificates(tls).map(|shown| clients.judge.path(shown))));
    let mut asking = check(conn, gen, server, path.unwrap_or_default());
    let checked = poll_fn(|cx| match asking.as_mut().poll(cx) {
        Poll::Pending => conn.poll_timeout(cx, deadline).map(|()| None),
        Poll::Ready(checked) => Poll::Ready(Some(checked)),
    })
    .await;
    let Some(status) = checked else { return false };
    secure.verdicts.put(clients.judge.mark(), Verdict { chain: Ok(()), status: Some(status) });
    true
}

/// Whether a request must not be served on its connection.
#[cold]
pub fn objection(r: &mut Request) -> Objection {
    let conn = Rc::clone(r.conn());
    let Some(secure) = conn.secure.get() else {
        r.log(LogLevel::Info, "client sent plain HTTP request to HTTPS port");
        return Objection::Status(497);
    };
    let verify = r.server().core.verify_client;
    if verify == VerifyClient::Off {
        return Objection::None;
    }
    if secure.is_found.get() && secure.name.as_deref() != Some(&r.host) && !r.host.is_empty() {
        let text = "client attempted to request the server name different from the one that was \
                    negotiated";
        r.log(LogLevel::Info, text);
        // The page is one of the server that was negotiated.
        r.set_server(conn.default_server_of(&Rc::clone(r.gen())));
        return Objection::Status(421);
    }
    let server = judging(&conn, r.gen(), r.server());
    let verdict = verdict(&conn, server.as_ref().and_then(|s| s.core.clients.as_ref()));
    let refused = |why: String| format!("client SSL certificate verify error: {why}");
    match verdict.map(|v| (v.chain, v.status)) {
        Some((Err(e), _)) if verify != VerifyClient::OptionalNoCa || !e.is_unknown_issuer() => {
            r.log(LogLevel::Info, &refused(format!("({}:{})", e.number(), e.text())));
            Objection::Status(495)
        }
        None if verify == VerifyClient::On => {
            r.log(LogLevel::Info, "client sent no required SSL certificate");
            Objection::Status(496)
        }
        Some((_, None)) => Objection::Unasked,
        Some((_, Some(Err(why)))) => {
            r.log(LogLevel::Info, &refused(why.to_string()));
            Objection::Status(495)
        }
        _ => Objection::None,
    }
}

/// Asks about the certificate on behalf of a server that the handshake was not done with, and says
/// then whether the request may be served.
pub async fn objection_after_asking(r: &mut Request) -> Option<u16> {
    let conn = Rc::clone(r.conn());
    let gen = Rc::clone(r.gen());
    let server = judging(&conn, &gen, r.server())?;
    let deadline = clock::mono_ms() + *r.server().core.client_header_timeout;
    if !ask(&conn, &gen, &server, deadline).await {
        r.log(LogLevel::Info, &late());
        return Some(408);
    }
    match objection(r) {
        Objection::None => None,
        Objection::Status(status) => Some(status),
        Objection::Unasked => Some(495),
    }
}

/// What the client has shown to the server of this request: nothing to one that does not ask.
pub fn shown(r: &Request) -> Shown {
    let conn = r.conn();
    if r.server().core.verify_client == VerifyClient::Off {
        return Shown::Nothing;
    }
    let server = judging(conn, r.gen(), r.server());
    match verdict(conn, server.as_ref().and_then(|s| s.core.clients.as_ref())) {
        None => Shown::Nothing,
        Some(Verdict { chain: Err(e), .. }) => Shown::Bad(e.text()),
        Some(Verdict { status: Some(Ok(())), .. }) => Shown::Good,
        Some(Verdict { status: Some(Err(why)), .. }) => Shown::Bad(why),
        Some(Verdict { status: None, .. }) => Shown::Bad("certificate status unknown"),
    }
}
