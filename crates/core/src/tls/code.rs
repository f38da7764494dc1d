//! Handshakes that code has a say in: what it sees of one, and what it may change.
//!
//! The code runs between the hello and the session's beginning, where it may wait: the hello is kept and a session
//! is begun with it when everything is known. Certificates are not asked of code for a session that goes on with an
//! earlier one, which is known by beginning it: nothing has left by then.

use super::client::Clients;
use super::{
    refuse, wait_for_code, with_certificates, Failure, Tls, INTERNAL_ERROR, PROTOCOL_VERSION,
};
use crate::connection::Connection;
use crate::generation::WorkerGen;
use crate::LocalFuture;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use weir_tls::judge::Judge;
use weir_tls::offer::Protocols;
use weir_tls::rustls::pki_types::CertificateDer;
use weir_tls::rustls::ServerConfig;
use weir_tls::server::{Certificates, Changes};
use weir_tls::sessions::{Handed, Kept};
use weir_tls::{Incoming, Session};
use weir_wire::hello::{message, Hello};

/// When code runs, as bits.
pub mod moment {
    /// The hello is there.
    pub const HELLO: u8 = 1;
    /// The client wants to go on with a session that the server itself does not know.
    pub const FETCH: u8 = 1 << 1;
    /// Certificates are to be chosen.
    pub const CERTIFICATE: u8 = 1 << 2;
    /// There is a session that may be gone on with.
    pub const STORE: u8 = 1 << 3;
}

/// Runs the code of a server (its number) at one of the moments; `false` ends the handshake.
pub type Says =
    fn(&Rc<Connection>, &Rc<WorkerGen>, usize, u8, &Rc<Shake>) -> LocalFuture<'static, bool>;

/// A server's code.
#[derive(Clone, Copy)]
pub struct Code {
    /// Those at which there is some.
    pub moments: u8,
    /// Runs it.
    pub says: Says,
}

/// One handshake, as code sees it.
pub struct Shake {
    hello: Vec<u8>,
    /// In place of the server's.
    pub certificates: RefCell<Option<Arc<Certificates>>>,
    /// Of the server's versions, these.
    pub protocols: Cell<Option<Protocols>>,
    /// A certificate is asked of the client: by the names of whom, and how it is judged.
    pub asks: RefCell<Option<(Vec<CertificateDer<'static>>, Judge)>>,
    /// What is known of sessions, where code keeps them.
    pub sessions: OnceCell<Arc<Handed>>,
    /// The one that is to be stored.
    pub kept: RefCell<Option<Kept>>,
    /// A responder's answer to go with the certificate.
    pub staple: RefCell<Option<Vec<u8>>>,
    /// Of the code's own.
    pub own: RefCell<Option<Box<dyn Any>>>,
    /// TLS 1.3 will be spoken.
    pub is_tls13: Cell<bool>,
}

impl Shake {
    /// Of a client that has sent these records.
    pub(super) fn of(records: &[u8]) -> Shake {
        Shake {
            hello: message(records).unwrap_or_default(),
            certificates: RefCell::default(),
            protocols: Cell::default(),
            asks: RefCell::default(),
            sessions: OnceCell::new(),
            kept: RefCell::default(),
            staple: RefCell::default(),
            own: RefCell::default(),
            is_tls13: Cell::default(),
        }
    }

    /// What the client has said.
    pub fn hello(&self) -> Option<Hello<'_>> {
        Hello::parse(&self.hello)
    }

    /// What is another's in this handshake.
    pub(super) fn changes(&self) -> Changes {
        Changes {
            certificates: self.certificates.borrow().as_ref().map(|c| Arc::clone(c) as _),
            protocols: self.protocols.get(),
            sessions: self.sessions.get().map(|s| Arc::clone(s) as _),
            staple: self.staple.borrow().clone(),
            asks: self.asks.borrow().as_ref().map(|(names, _)| names.clone()),
        }
    }
}

/// A handshake whose server is known.
pub(super) struct Begun<'a> {
    pub conn: &'a Rc<Connection>,
    pub gen: &'a Rc<WorkerGen>,
    /// The number of the server whose TLS it is.
    pub number: usize,
    /// Of the one that has been asked for, which may have none of its own.
    pub asked: usize,
    pub tls: &'a Tls,
    pub http2: bool,
    pub deadline: u64,
}

impl Begun<'_> {
    /// Runs the server's code at a moment, no longer than the handshake may take.
    async fn say(&self, code: Code, moment: u8, shake: &Rc<Shake>) -> Result<bool, Failure> {
        let says = (code.says)(self.conn, self.gen, self.asked, moment, shake);
        wait_for_code(self.conn, says, self.deadline).await
    }

    /// What is offered, as far as code has said by now.
    async fn config(&self, shake: &Shake) -> Result<Arc<ServerConfig>, Failure> {
        let (conn, server) = (self.conn, &self.tls.server);
        let config = match server.changed(self.http2, shake.changes()) {
            Ok(config) => config,
            Err(why) => {
                refuse(conn, &PROTOCOL_VERSION);
                return Err(format!("SSL_do_handshake() failed (SSL: {why})").into());
            }
        };
        let names_files = shake.certificates.borrow().is_none();
        match self.tls.find.filter(|_| names_files) {
            None => Ok(config),
            Some(find) => {
                let found = find(conn, self.gen, self.number);
                Ok(with_certificates(conn, found, &config, self.deadline).await?)
            }
        }
    }

    /// Runs all code that comes before the session, and begins it.
    pub(super) async fn session(
        &self,
        code: Option<Code>,
        shake: &Rc<Shake>,
        incoming: Incoming,
    ) -> Result<Session, Failure> {
        let server = &self.tls.server;
        let has = |moment: u8| code.filter(|c| c.moments & moment != 0);
        let hello = shake.hello();
        let is_tls13 = hello.is_some_and(|h| h.has_tls13());
        shake.is_tls13.set(is_tls13 && server.has_tls13(shake.protocols.get()));
        if has(moment::FETCH | moment::STORE).is_some() {
            let _ = shake.sessions.set(Arc::new(server.handed()));
        }
        let is_kept = hello.is_some_and(|h| !h.session_id.is_empty() && !h.has_ticket());
        if let Some(code) = has(moment::FETCH).filter(|_| is_kept) {
            // Without a session the handshake is a whole one.
            self.say(code, moment::FETCH, shake).await?;
        }
        if let Some(code) = has(moment::CERTIFICATE) {
            if hello.is_some_and(|h| h.wants_session()) {
                let config = self.config(shake).await?;
                let session = weir_tls::begin(incoming.again(), config, server.record)?;
                if session.resumes() {
                    return Ok(session);
                }
            }
            if !self.say(code, moment::CERTIFICATE, shake).await? {
                refuse(self.conn, &INTERNAL_ERROR);
                return Err(super::CERTIFICATE_FAILED.to_string().into());
            }
        }
        let config = self.config(shake).await?;
        let session = weir_tls::begin(incoming, config, server.record)?;
        if let (Some((_, judge)), Some(secure)) = (shake.asks.take(), self.conn.secure.get()) {
            let clients = Clients { judge, check: None };
            let _ = secure.clients.set((self.gen.shared.number, self.asked, clients));
        }
        Ok(session)
    }

    /// Hands out what may be gone on with.
    pub(super) async fn store(&self, code: Option<Code>, shake: &Rc<Shake>) -> Result<(), Failure> {
        let Some(code) = code.filter(|c| c.moments & moment::STORE != 0) else { return Ok(()) };
        let fresh = shake.sessions.get().map(|s| s.hand_out()).unwrap_or_default();
        for kept in fresh {
            shake.kept.replace(Some(kept));
            // What is not stored is not gone on with.
            self.say(code, moment::STORE, shake).await?;
        }
        Ok(())
    }
}

/// Runs the code that a hello has at the address's default server, if there is any; what it has seen.
pub(super) async fn hear(
    conn: &Rc<Connection>,
    gen: &Rc<WorkerGen>,
    number: usize,
    incoming: &Incoming,
    deadline: u64,
) -> Result<Option<Rc<Shake>>, Failure> {
    let code = conn.server(&gen.shared, number).code;
    let Some(code) = code.filter(|c| c.moments & moment::HELLO != 0) else { return Ok(None) };
    let shake = Rc::new(Shake::of(incoming.said()));
    let says = (code.says)(conn, gen, number, moment::HELLO, &shake);
    if !wait_for_code(conn, says, deadline).await? {
        refuse(conn, &INTERNAL_ERROR);
        return Err(super::CALLBACK_FAILED.to_string().into());
    }
    Ok(Some(shake))
}
