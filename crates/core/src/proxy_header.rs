//! The PROXY protocol's header, by which a proxy in front tells whose connection it is.

use crate::{ConnError, Connection};
use std::io;
use weir_wire::proxy_protocol::{self, Parsed};

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
