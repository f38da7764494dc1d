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
        match conn.read(buf, ROOM_BYTES, deadline).await {
            Ok(0) => return Err(Bad::Ended(ConnError::Io(io::ErrorKind::UnexpectedEof.into()))),
            Ok(_) => {}
            Err(e) => return Err(Bad::Ended(e)),
        }
        match proxy_protocol::parse(buf) {
            Ok(Parsed::NeedMore) => continue,
            Ok(Parsed::Header { len, client }) => {
                buf.drain(..len);
                *conn.proxied.borrow_mut() = client.map(Box::new);
                return Ok(());
            }
            Err(_) => {
                let shown = proxy_protocol::shown(buf);
                return Err(Bad::Broken([b"broken header: \"", shown, b"\""].concat()));
            }
        }
    }
}

/// What became of the header at the beginning of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It was there and is taken off.
    Yes,
    /// It is none.
    Broken,
    /// The client has gone, or was too slow.
    Ended,
}

/// As [`read`], for a session, which logs what is wrong in nginx's words.
pub async fn take<S: Session>(s: &S, buf: &mut Vec<u8>, deadline: u64) -> Taken {
    let conn = Rc::clone(s.conn());
    match read(&conn, buf, deadline).await {
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
    /// None is sent.
    #[default]
    Off,
    /// In text.
    V1,
    /// In bytes.
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
