//! TLS on a client's connection: the first bytes are looked at, the name in the hello chooses the
//! server, the handshake runs to its end; and what of it matters to each request.
//!
//! Difference from nginx: `$ssl_session_id` is made from the session's keys, because rustls tells
//! no other number of it.

pub mod client;
pub mod code;
pub mod counted;
pub mod files;
pub mod openssl;
mod reading;
pub mod words;

use crate::connection::Connection;
use crate::counters::Counters;
use crate::generation::{AddrConf, Generation, WorkerGen};
use crate::logger::LogLevel;
use crate::LocalFuture;
use client::{Clients, Verdicts};
use code::{moment, Begun, Shake};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use weir_runtime::clock;
use weir_script::regex::MatchError;
use weir_tls::rustls::server::ClientHello;
use weir_tls::rustls::{CipherSuite, NamedGroup, ServerConfig, SignatureScheme};
use weir_tls::server::{Certificates, Server as ServerTls};
use weir_tls::{Incoming, TlsError};
use weir_wire::http1::framing::validate_host;

/// Bytes asked of the socket before it is known what they are.
const FIRST_ROOM_BYTES: usize = 4096;
/// A TLS record with the fatal alert `unrecognized_name` (RFC 8446, section 6).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
/// The same with `internal_error`.
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];
/// The same with `protocol_version`.
const PROTOCOL_VERSION: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];
/// What the log says where the hello decides, and where a certificate is not found.
const CALLBACK_FAILED: &str =
    "SSL_do_handshake() failed (SSL: error:0A0000EA:SSL routines::callback failed)";
const CERTIFICATE_FAILED: &str =
    "SSL_do_handshake() failed (SSL: error:0A000179:SSL routines::cert cb error)";

/// Finds the certificates of one handshake with a server (its number), where variables name them.
pub type FindCertificates = fn(&Rc<Connection>, &Rc<WorkerGen>, usize) -> Found;

/// The certificates of one handshake; nothing, if the client is to be refused.
pub enum Found {
    /// They are there.
    Now(Option<Arc<Certificates>>),
    /// They are waited for, no longer than the handshake may take and the client is there.
    Later(LocalFuture<'static, Option<Arc<Certificates>>>),
}

/// A server's TLS as the connections use it.
#[derive(Clone)]
pub struct Tls {
    /// Protocols, suites, certificates without variables.
    pub server: Arc<ServerTls>,
    /// `None`: `server` has them all.
    pub find: Option<FindCertificates>,
}

/// What is known of a connection's TLS besides rustls' own.
#[derive(Default)]
pub struct Secure {
    /// The name the client asked for.
    pub name: Option<Box<[u8]>>,
    /// A server has that name: its generation's number, the address it was looked for at (a
    /// connection may be passed on to another), and its own number.
    found: Cell<Option<(u64, *const AddrConf, usize)>>,
    /// A server has the name that the client asked for.
    pub is_found: Cell<bool>,
    /// It is another socket's clients that asked: a session has handed the connection on.
    is_elsewhere: Cell<bool>,
    verdicts: Verdicts,
    /// How code has the client's certificate judged, for a server of a generation.
    clients: OnceCell<(u64, usize, Clients)>,
    /// What code has noted of it, for what it does later.
    pub notes: RefCell<Option<Box<dyn Any>>>,
    /// Offered in the hello: suites, groups and signatures, by their numbers. They are kept for as long as
    /// the connection, and the numbers are half as long as what they stand for.
    offers: Box<[u16]>,
    /// Where in it the groups begin, and the signatures.
    begins: [u16; 2],
    /// How long the handshake took, from its first bytes on.
    pub handshake_ms: Cell<u32>,
}

/// The host that a TLS client's name stands for, as in a request: in lower case, without a port or the dot
/// of the root; nothing if it is none.
pub fn host_name(name: &[u8]) -> Option<Vec<u8>> {
    let valid = validate_host(name).ok()?;
    Some(name.get(..valid.name_len)?.to_ascii_lowercase())
}

impl Secure {
    fn of(hello: &ClientHello<'_>) -> Secure {
        let suites = hello.cipher_suites().iter().map(|s| u16::from(*s));
        let groups = hello.named_groups().unwrap_or_default().iter().map(|g| u16::from(*g));
        let schemes = hello.signature_schemes().iter().map(|s| u16::from(*s));
        // A hello has 64 KB at most.
        let begins = [suites.len() as u16, (suites.len() + groups.len()) as u16];
        Secure {
            name: hello.server_name().map(|n| n.as_bytes().into()),
            offers: suites.chain(groups).chain(schemes).collect(),
            begins,
            ..Secure::default()
        }
    }

    /// The name that servers are looked for by, if it is one.
    pub fn host(&self) -> Option<Vec<u8>> {
        self.name.as_deref().and_then(host_name)
    }

    /// Its name chooses no server any more: the connection is for another socket now.
    pub(crate) fn leave(&self) {
        self.is_elsewhere.set(true);
        self.is_found.set(false);
    }

    /// The suites that the client offers, by its preference: `$ssl_ciphers`.
    pub fn ciphers(&self) -> impl Iterator<Item = CipherSuite> + '_ {
        self.offered(0, self.begins[0].into()).map(CipherSuite::from)
    }

    /// The same of groups: `$ssl_curves`.
    pub fn groups(&self) -> impl Iterator<Item = NamedGroup> + '_ {
        self.offered(self.begins[0].into(), self.begins[1].into()).map(NamedGroup::from)
    }

    /// The same of signatures: `$ssl_sigalgs`.
    pub fn schemes(&self) -> impl Iterator<Item = SignatureScheme> + '_ {
        self.offered(self.begins[1].into(), self.offers.len()).map(SignatureScheme::from)
    }

    fn offered(&self, from: usize, to: usize) -> impl Iterator<Item = u16> + '_ {
        self.offers.get(from..to).unwrap_or_default().iter().copied()
    }

    /// The server that has the name the client asked for.
    pub fn server(&self, gen: &Generation, addr: &AddrConf) -> Result<Option<usize>, MatchError> {
        if self.name.is_none() || self.is_elsewhere.get() {
            return Ok(None);
        }
        let here = |(number, at, _): &(u64, *const AddrConf, usize)| {
            *number == gen.number && std::ptr::eq(*at, addr)
        };
        if let Some((_, _, id)) = self.found.get().filter(here) {
            return Ok(Some(id));
        }
        let Some(name) = self.host() else { return Ok(None) };
        let id = addr.server_of(&name)?;
        if let Some(id) = id {
            self.found.set(Some((gen.number, addr, id)));
        }
        Ok(id)
    }
}

/// Makes a connection ready for requests: on a TLS address the handshake is done, unless the client
/// speaks plain HTTP. Answers what was read beyond; `None` when there is nothing to serve.
pub async fn accept(conn: &Rc<Connection>, leftover: Vec<u8>) -> Option<Vec<u8>> {
    let gen = conn.generation();
    let addr = conn.addr(&gen.shared);
    if !addr.ssl {
        return Some(leftover);
    }
    conn.tls_port.set(true);
    // It was handed on by a server that has done the handshake.
    if conn.stream.is_tls() {
        return Some(leftover);
    }
    let default = conn.server(&gen.shared, addr.default);
    let deadline = conn.start_ms + default.handshake_timeout_ms;
    let mut first = leftover;
    if first.is_empty() && !read_first(conn, &mut first, deadline).await {
        return None;
    }
    if !is_hello(&first) {
        return Some(first);
    }
    if default.tcp_nodelay {
        conn.set_nodelay();
    }
    match shake_hands(conn, &gen, addr, &first, deadline).await {
        Ok(()) => Some(Vec::new()),
        Err(text) => {
            conn.log(LogLevel::Info, format!("{text}{WHILE}").as_bytes());
            None
        }
    }
}

/// A handshake record, or what an old client sends (RFC 5246, appendix E.2).
fn is_hello(first: &[u8]) -> bool {
    first[0] == 0x16 || first[0] & 0x80 != 0
}

/// Does the handshake, on whatever address, for a protocol that has no answer to plain bytes; the deadline is
/// in monotonic ms.
///
/// # Errors
///
/// There is no session, in words for the log, if there is anything to say.
pub async fn secure(
    conn: &Rc<Connection>,
    leftover: Vec<u8>,
    deadline: u64,
) -> Result<(), Option<String>> {
    let gen = conn.generation();
    let addr = conn.addr(&gen.shared);
    conn.tls_port.set(true);
    let mut first = leftover;
    if first.is_empty() && !read_first(conn, &mut first, deadline).await {
        return Err(None);
    }
    if !is_hello(&first) {
        return Err(Some(format!(
            "SSL_do_handshake() failed (SSL: {})",
            openssl::no_hello(&first)
        )));
    }
    shake_hands(conn, &gen, addr, &first, deadline).await.map_err(Some)
}

/// Does the handshake and counts it; an error is in words for the log.
async fn shake_hands(
    conn: &Rc<Connection>,
    gen: &Rc<WorkerGen>,
    addr: &AddrConf,
    first: &[u8],
    deadline: u64,
) -> Result<(), String> {
    let begun_us = clock::mono_us();
    // Its state is large, and a client may say nothing for long before it begins.
    let done = Box::pin(handshake(conn, gen, addr, first, deadline)).await;
    counted::handshake(conn, gen, addr, &done, begun_us);
    done.map_err(|failure| failure.text)
}

/// Why there is no session.
struct Failure {
    /// For the log.
    text: String,
    why: Option<TlsError>,
}

impl From<TlsError> for Failure {
    fn from(e: TlsError) -> Failure {
        Failure { text: failed(&e), why: Some(e) }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure { text, why: None }
    }
}

/// Waits for the first bytes; `false` when there are none.
async fn read_first(conn: &Rc<Connection>, first: &mut Vec<u8>, deadline: u64) -> bool {
    let mut waiting = false;
    let got = poll_fn(|cx| {
        let read = conn.poll_read(cx, first, FIRST_ROOM_BYTES, deadline);
        if read.is_pending() {
            // It was made for what might be there.
            *first = Vec::new();
        }
        if read.is_pending() && !waiting {
            waiting = true;
            conn.waiting.set(true);
            Counters::add(&conn.worker.counters.waiting, 1);
        }
        read
    })
    .await;
    if waiting {
        conn.waiting.set(false);
        Counters::add(&conn.worker.counters.waiting, -1);
    }
    matches!(got, Ok(1..))
}

async fn handshake(
    conn: &Rc<Connection>,
    gen: &Rc<WorkerGen>,
    addr: &AddrConf,
    first: &[u8],
    deadline: u64,
) -> Result<(), Failure> {
    let start_ms = clock::mono_ms();
    let mut incoming = Incoming::default();
    incoming.feed(first)?;
    let socket = conn.stream.socket();
    let accepted = poll_fn(|cx| match incoming.poll_hello(socket, cx) {
        Poll::Pending => conn.poll_timeout(cx, deadline).map(|()| Err(late_here())),
        Poll::Ready(done) => Poll::Ready(done.map_err(Failure::from)),
    })
    .await?;
    let secure = conn.secure.get_or_init(|| Box::new(Secure::of(&accepted.client_hello())));
    drop(accepted);
    let shake = code::hear(conn, gen, addr.default, &incoming, deadline).await?;
    let id = secure.server(&gen.shared, addr).map_err(|e| Failure::from(e.to_string()))?;
    secure.is_found.set(id.is_some());
    // A server without certificates of its own is served with the default server's.
    let chosen = conn.server(&gen.shared, id.unwrap_or(addr.default));
    let number = match chosen.tls {
        Some(_) => id.unwrap_or(addr.default),
        None => addr.default,
    };
    let tls = conn.server(&gen.shared, number).tls.as_ref();
    let tls = tls.filter(|t| !t.server.reject);
    let Some(tls) = tls else {
        refuse(conn, &UNRECOGNIZED_NAME);
        return Err(CALLBACK_FAILED.to_string().into());
    };
    let http2 = addr.http2 || chosen.http2;
    let config = match http2 {
        true => &tls.server.http2,
        false => &tls.server.http1,
    };
    let code = conn.server(&gen.shared, number).code.filter(|c| c.moments & !moment::HELLO != 0);
    let asked = id.unwrap_or(addr.default);
    let begun = Begun { conn, gen, number, asked, tls, http2, deadline };
    let shake = shake.or_else(|| code.map(|_| Rc::new(Shake::of(incoming.said()))));
    let session = match (&shake, tls.find) {
        (Some(shake), _) => begun.session(code, shake, incoming).await?,
        (None, None) => weir_tls::begin(incoming, Arc::clone(config), tls.server.record)?,
        (None, Some(find)) => {
            let config = with_certificates(conn, find(conn, gen, number), config, deadline).await?;
            weir_tls::begin(incoming, config, tls.server.record)?
        }
    };
    conn.stream.start(session);
    poll_fn(|cx| match conn.stream.poll_handshake(cx) {
        Poll::Pending => conn.poll_timeout(cx, deadline).map(|()| Err(late_here())),
        Poll::Ready(done) => Poll::Ready(done.map_err(Failure::from)),
    })
    .await?;
    if let Some(shake) = &shake {
        begun.store(code, shake).await?;
    }
    if let Some(secure) = conn.secure.get() {
        let took_ms = clock::mono_ms().saturating_sub(start_ms);
        secure.handshake_ms.set(u32::try_from(took_ms).unwrap_or(u32::MAX));
    }
    match client::judge(conn, &gen.shared, chosen, deadline).await {
        true => Ok(()),
        false => Err(late_here()),
    }
}

fn late_here() -> Failure {
    LATE.to_string().into()
}

/// What a server offers, with the certificates of this one handshake.
async fn with_certificates(
    conn: &Connection,
    found: Found,
    config: &ServerConfig,
    deadline: u64,
) -> Result<Arc<ServerConfig>, String> {
    let certificates = match found {
        Found::Now(certificates) => certificates,
        Found::Later(finding) => wait_for(conn, finding, deadline).await?,
    };
    let Some(certificates) = certificates else {
        refuse(conn, &INTERNAL_ERROR);
        return Err(CERTIFICATE_FAILED.to_string());
    };
    let mut own = ServerConfig::clone(config);
    own.cert_resolver = certificates;
    Ok(Arc::new(own))
}

/// What is being found, unless time has passed or the client has gone.
async fn wait_for<T>(
    conn: &Connection,
    mut finding: LocalFuture<'static, T>,
    deadline: u64,
) -> Result<T, String> {
    let mut watching = true;
    poll_fn(|cx| {
        if let Poll::Ready(found) = finding.as_mut().poll(cx) {
            return Poll::Ready(Ok(found));
        }
        if conn.poll_gone(cx, &mut watching) {
            return Poll::Ready(Err(failed(&TlsError::Closed)));
        }
        conn.poll_timeout(cx, deadline).map(|()| {
            conn.log(LogLevel::Error, format!("{NO_CERTIFICATE}{WHILE}").as_bytes());
            Err(LATE.to_string())
        })
    })
    .await
}

/// What code says, unless time has passed. It goes on if the client has gone, as what it does may be for others.
async fn wait_for_code(
    conn: &Connection,
    mut saying: LocalFuture<'static, bool>,
    deadline: u64,
) -> Result<bool, Failure> {
    poll_fn(|cx| match saying.as_mut().poll(cx) {
        Poll::Ready(said) => Poll::Ready(Ok(said)),
        Poll::Pending => conn.poll_timeout(cx, deadline).map(|()| Err(late_here())),
    })
    .await
}

fn refuse(conn: &Connection, alert: &[u8]) {
    // The connection ends whether the alert arrives or not.
    let _ = conn.stream.socket().try_write(&[IoSlice::new(alert)], false);
}

/// What is being done, behind the words of a failed handshake.
const WHILE: &str = " while SSL handshaking";
/// The server's fault, which is why it has a line of its own.
const NO_CERTIFICATE: &str = "the certificate was not read within the time of the handshake";
const LATE: &str = "client timed out (110: Connection timed out)";

/// What the log says of a handshake whose time has passed.
pub fn late() -> String {
    format!("{LATE}{WHILE}")
}

fn failed(e: &TlsError) -> String {
    match e {
        TlsError::Closed => "peer closed connection in SSL handshake".to_string(),
        TlsError::Io(e) => format!("SSL_do_handshake() failed ({})", crate::os_text(e)),
        TlsError::Tls(text) => match openssl::words(text) {
            Some(words) => format!("SSL_do_handshake() failed (SSL: {words})"),
            None => format!("SSL_do_handshake() failed (SSL: {text})"),
        },
    }
}
