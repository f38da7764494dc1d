//! A client that begins a handshake: its hello is read before a configuration is chosen for it, as
//! the name it asks for decides on certificate, protocols and client verification.

use crate::session::{Session, TlsError};
use rustls::server::{Accepted, Acceptor, UnbufferedServerConnection};
use rustls::{Error, PeerIncompatible, ServerConfig};
use std::io::IoSlice;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use weir_runtime::net::Stream;

/// Ciphertext asked of the socket for a hello.
const HELLO_ROOM_BYTES: usize = 4096;

#[derive(Default)]
pub struct Incoming {
    acceptor: Acceptor,
    /// All that the client has said: the session begins with it again.
    said: Vec<u8>,
}

impl Incoming {
    /// Takes in bytes that were read before TLS was expected.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), TlsError> {
        self.said.extend_from_slice(bytes);
        while !bytes.is_empty() {
            if self.acceptor.read_tls(&mut bytes).map_err(TlsError::Io)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Waits for the whole hello.
    pub fn poll_hello(
        &mut self,
        socket: &Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Accepted, TlsError>> {
        let mut buf = Vec::new();
        loop {
            match self.acceptor.accept() {
                Ok(Some(accepted)) => return Poll::Ready(Ok(accepted)),
                Ok(None) => {}
                Err((e, alert)) => {
                    if is_too_old(&e, &self.said) {
                        let _ = socket.try_write(&[IoSlice::new(&PROTOCOL_VERSION)], false);
                        let e = Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered);
                        return Poll::Ready(Err(TlsError::Tls(e)));
                    }
                    refuse(socket, alert);
                    return Poll::Ready(Err(TlsError::Tls(e)));
                }
            }
            buf.clear();
            let n = ready!(socket.poll_read(cx, &mut buf, HELLO_ROOM_BYTES));
            if n.map_err(TlsError::Io)? == 0 {
                return Poll::Ready(Err(TlsError::Closed));
            }
            self.feed(&buf)?;
        }
    }
}

/// A fatal alert, as clients of versions before 1.2 read it.
const PROTOCOL_VERSION: [u8; 7] = [21, 3, 1, 0, 2, 2, 70];

/// Whether the client has no version from 1.2 on. rustls misses its signature algorithms first, which there are only
/// since then; `said` begins with a record (5 bytes), a message (4) and the version.
fn is_too_old(e: &Error, said: &[u8]) -> bool {
    let is_unsigned = matches!(
        e,
        Error::PeerIncompatible(PeerIncompatible::SignatureAlgorithmsExtensionRequired)
    );
    is_unsigned && said.get(9..11).is_some_and(|version| *version < [3, 3][..])
}

/// Sends the alert that says why, as far as the socket takes it.
pub fn refuse(socket: &Stream, mut alert: rustls::server::AcceptedAlert) {
    let mut text = Vec::new();
    // Writing into a Vec cannot fail.
    if alert.write_all(&mut text).is_ok() {
        let _ = socket.try_write(&[IoSlice::new(&text)], false);
    }
}

impl Incoming {
    /// The records that the client has sent.
    pub fn said(&self) -> &[u8] {
        &self.said
    }

    /// The same client again, for a session that may be given up.
    pub fn again(&self) -> Incoming {
        Incoming { acceptor: Acceptor::default(), said: self.said.clone() }
    }
}

/// Begins a session with the configuration that was chosen for a hello.
///
/// # Errors
///
/// The configuration is none for any session.
pub fn begin(
    incoming: Incoming,
    config: Arc<ServerConfig>,
    record: usize,
) -> Result<Session, TlsError> {
    let conn = UnbufferedServerConnection::new(config).map_err(TlsError::Tls)?;
    Ok(Session::server(conn, incoming.said, record))
}
