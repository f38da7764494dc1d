//! What a socket of Lua's reads and writes: a connection of its own, or the client's.

use std::ops::Deref;
use std::rc::Rc;
use weir_core::Connection;
use weir_tls::Channel;

/// A connection, held as long as somebody uses it.
#[derive(Clone)]
pub(crate) enum Line {
    Own(Rc<Channel>),
    /// The request's (`ngx.req.socket(true)`).
    Client(Rc<Connection>),
    /// A session's of `stream`, whose bytes are counted, and whether its end is its going (`lua_check_client_abort`).
    Session(Rc<Connection>, bool),
}

impl Line {
    /// What code is told when nothing more will come.
    pub(crate) fn end(&self) -> &'static str {
        match self {
            Line::Session(_, true) => "client aborted",
            _ => "closed",
        }
    }

    /// So many bytes were read.
    pub(crate) fn count(&self, bytes: usize) {
        if let Line::Session(conn, _) = self {
            conn.bytes_in.set(conn.bytes_in.get() + bytes as u64);
        }
    }

    /// So many were written past the connection's queue.
    pub(crate) fn count_sent(&self, bytes: usize) {
        if let Line::Client(conn) = self {
            conn.bytes_out.set(conn.bytes_out.get() + bytes as u64);
        }
    }
}

impl Deref for Line {
    type Target = Channel;

    fn deref(&self) -> &Channel {
        match self {
            Line::Own(channel) => channel,
            Line::Client(conn) | Line::Session(conn, _) => &conn.stream,
        }
    }
}

impl From<Channel> for Line {
    fn from(channel: Channel) -> Line {
        Line::Own(Rc::new(channel))
    }
}
