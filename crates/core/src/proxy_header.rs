//! The PROXY protocol's header, by which a proxy in front tells whose connection it is.

use crate::logger::LogLevel;
use crate::whole::log_end;
use crate::{ClientAddr, ConnError, Connection, Session};
use std::io;
use std::rc::Rc;
use weir_module::{ArgsExt, ConfResult, Directive};
use weir_wire::proxy_protocol::{self, Parsed, Transport};

/// Bytes asked of the socket at once.
const ROOM_BYTES: usize = 4096;

/// Why there is none.
pub enum Bad {
    /// What to log of bytes that are none.
    Broken(Vec<u8>),
    /// The client has gone, or was too slow.
    Ended(ConnError),
}

/// Reads the header and takes it off; what came behind it stays in `buf`. `deadline` is in monotonic
/// ms.
///
/// # Errors
///
/// Those bytes are none, or the client has not sent them in time.
pub async fn read(conn: &Connection, buf: &mut Vec<u8>, deadline: u64) -> Result<(), Bad> {
    loop {
        some(conn.read(buf, ROOM_BYTES, deadline).await)?;
        if let Some(len) = header_in(conn, buf)? {
            buf.drain(..len);
            return Ok(());
        }
    }
}

/// Whether anything came.
fn some(got: Result<usize, ConnError>) -> Result<(), Bad> {
    match got {
        Ok(0) => Err(Bad::Ended(ConnError::Io(io::ErrorKind::UnexpectedEof.into()))),
        Ok(_) => Ok(()),
        Err(e) => Err(Bad::Ended(e)),
    }
}

/// Its length, once all of it is there; the connection knows whose it is then.
fn header_in(conn: &Connection, bytes: &[u8]) -> Result<Option<usize>, Bad> {
    match proxy_protocol::parse(bytes) {
        Ok(Parsed::NeedMore) => Ok(None),
        Ok(Parsed::Header { len, client }) => {
            *conn.proxied.borrow_mut() = client.map(Box::new);
            Ok(Some(len))
        }
        Err(_) => {
            let shown = proxy_protocol::shown(bytes);
            Err(Bad::Broken([b"broken header: \"", shown, b"\""].concat()))
        }
    }
}

/// What became of the header at the beginning of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It is known whose connection it is.
    Yes,
    /// It is none.
    Broken,
    /// The client has gone, or was too slow.
    Ended,
}

/// Takes the header out of the socket, and not a byte more: what follows may be for another, who begins with
/// the socket. With TLS, where nothing can be seen before it is taken, what follows stays in `buf`.
async fn take_off(conn: &Connection, buf: &mut Vec<u8>, deadline: u64) -> Result<(), Bad> {
    if conn.stream.is_tls() {
        return read(conn, buf, deadline).await;
    }
    let mut seen = Vec::new();
    let len = loop {
        let room = seen.len() + ROOM_BYTES;
        some(conn.peek(&mut seen, room, deadline).await)?;
        if let Some(len) = header_in(conn, &seen)? {
            break len;
        }
    };
    seen.clear();
    while seen.len() < len {
        let left = len - seen.len();
        some(conn.read(&mut seen, left, deadline).await)?;
    }
    Ok(())
}

/// As [`read`], for a session, which logs what is wrong in nginx's words; only with TLS anything is left in
/// `buf`.
pub async fn take<S: Session>(s: &S, buf: &mut Vec<u8>, deadline: u64) -> Taken {
    let conn = Rc::clone(s.conn());
    match take_off(&conn, buf, deadline).await {
        Ok(()) => Taken::Yes,
        Err(Bad::Broken(text)) => {
            s.log_bytes(LogLevel::Error, &text);
            Taken::Broken
        }
        // nginx takes an end for a header that is broken.
        Err(Bad::Ended(ConnError::Io(e))) if e.kind() == io::ErrorKind::UnexpectedEof => {
            s.log(LogLevel::Error, "broken header: \"\"");
            Taken::Broken
        }
        Err(Bad::Ended(e)) => {
            log_end(s, &e);
            Taken::Ended
        }
    }
}

/// The version of the header that servers are sent: `proxy_protocol`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Sent {
    #[default]
    /// None.
    Off,
    /// In text.
    V1,
    /// In binary.
    V2,
}

impl Sent {
    /// `on` and `v2`, which is what newer versions of nginx know.
    pub fn parse(d: &Directive) -> ConfResult<Sent> {
        d.choice(0, &[("off", Sent::Off), ("on", Sent::V1), ("v2", Sent::V2)])
    }

    /// Appends the header: whose connection it is, as the session sees it, and where that came to.
    pub fn write<S: Session>(self, s: &S, out: &mut Vec<u8>) {
        let client = match s.client() {
            ClientAddr::Ip(addr) => Some(addr),
            ClientAddr::Unix => None,
        };
        let addresses = client.zip(s.conn().local_addr());
        match self {
            Sent::Off => {}
            Sent::V1 => proxy_protocol::write_v1(addresses, out),
            Sent::V2 => {
                let transport = match s.conn().is_udp() {
                    true => Transport::Datagram,
                    false => Transport::Stream,
                };
                // Without TLS' facts it fits.
                let _ = proxy_protocol::write_v2(addresses, transport, None, out);
            }
        }
    }
}
