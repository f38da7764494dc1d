//! A session from its connection to its end.

use crate::facts::{Came, Facts};
use crate::generation::Mail;
use crate::{preauth, proxy, tls, Session};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::proxy_header::{self, Taken};
use weir_core::relay::Talk;
use weir_core::whole::{log_connected, log_end};
use weir_core::{os_text, socket_errors, ConnError, Connection, Session as _};
use weir_runtime::clock;

/// Bytes that are taken from the socket before it is closed: what is left in it would turn the end into a
/// reset, and the last words might be lost.
const LEFT_MAX_BYTES: usize = 64 * 1024;

/// Serves a connection to its end.
pub async fn serve(conn: Rc<Connection>) {
    let gen = Mail::of(&conn.generation());
    let default = conn.addr(&gen.core).default;
    let mut s = Session::new(Rc::clone(&conn), gen, default);
    log_connected(&s, &conn.addr(&s.gen().core).addr);
    conn.set_nodelay();
    // In a box: what a session needs before it has a server is gone when it has one.
    if let Some(talk) = Box::pin(begin(&mut s)).await {
        s.facts.came(Came::Proxied);
        proxy::relay(&mut s, talk).await;
    }
    s.end();
    let server = Arc::clone(s.server());
    server.logged.iter().for_each(|h| (h.handler)(&mut s));
    conn.try_read(&mut Vec::new(), LEFT_MAX_BYTES);
    conn.stream.shutdown_write();
}

/// All that comes before a client and a server talk; nothing if the session is over.
async fn begin(s: &mut Session) -> Option<Talk> {
    let conn = Rc::clone(s.conn());
    let mut buf = Vec::new();
    let timeout_ms = *s.server().core.timeout;
    if conn.addr(&s.gen().core).proxy_protocol {
        s.doing = "reading PROXY protocol";
        let deadline = clock::mono_ms() + timeout_ms;
        if Box::pin(proxy_header::take(s, &mut buf, deadline)).await != Taken::Yes {
            return None;
        }
        Facts::add(&s.facts.received, buf.len());
        let server = Arc::clone(s.server());
        server.accepted.iter().for_each(|a| (a.handler)(s));
    }
    if conn.addr(&s.gen().core).ssl {
        s.doing = "SSL handshaking";
        let read = std::mem::take(&mut buf);
        let deadline = clock::mono_ms() + timeout_ms;
        if let Err(words) = Box::pin(tls::begin(s, read, deadline)).await {
            s.facts.came(Came::TlsFailed);
            send(s, words).await.ok()?;
            return None;
        }
    }
    preauth::run(s, buf).await
}

/// The session is over: the client has gone, or takes nothing.
pub(crate) struct Over;

/// Sends to the client; what is wrong is logged.
pub(crate) async fn send(s: &Session, text: &[u8]) -> Result<(), Over> {
    let conn = s.conn();
    let timeout_ms = *s.server().core.timeout;
    let (mut at, mut deadline) = (0, 0);
    let sent = poll_fn(|cx| {
        while at < text.len() {
            match conn.stream.poll_write(cx, &[IoSlice::new(&text[at..])], false) {
                std::task::Poll::Ready(Ok(n)) => {
                    (at, deadline) = (at + n, 0);
                    Facts::add(&s.facts.sent, n);
                }
                std::task::Poll::Ready(Err(e)) => {
                    return std::task::Poll::Ready(Err(ConnError::Io(e)));
                }
                std::task::Poll::Pending => {
                    if deadline == 0 {
                        deadline = clock::mono_ms() + timeout_ms;
                    }
                    return conn.poll_write_timeout(cx, deadline);
                }
            }
        }
        std::task::Poll::Ready(Ok(()))
    })
    .await;
    sent.map_err(|e| {
        match e {
            ConnError::Timeout => log_end(s, &e),
            ConnError::Io(e) => {
                let text = format!("send() failed ({})", os_text(&e));
                s.log(socket_errors::level(&e, LogLevel::Info), &text);
            }
        }
        Over
    })
}

/// Reads more of what the client says; what is wrong is logged. The deadline is in monotonic ms.
pub(crate) async fn read(
    s: &Session,
    buf: &mut Vec<u8>,
    room: usize,
    deadline: u64,
) -> Result<(), Over> {
    match wait(s, buf, room, deadline).await {
        Ok(()) => Ok(()),
        Err(ConnError::Io(e)) if e.kind() == io::ErrorKind::UnexpectedEof => Err(Over),
        Err(e) => {
            if matches!(e, ConnError::Timeout) {
                s.facts.came(Came::TimedOut);
            }
            log_end(s, &e);
            Err(Over)
        }
    }
}

/// The same, and nothing is logged; a buffer is there only when there is something to read.
pub(crate) async fn wait(
    s: &Session,
    buf: &mut Vec<u8>,
    room: usize,
    deadline: u64,
) -> Result<(), ConnError> {
    let conn = s.conn();
    // Also for a client that never stops talking.
    if clock::mono_ms() >= deadline {
        return Err(ConnError::Timeout);
    }
    let read = poll_fn(|cx| {
        let read = conn.poll_read_lazy(cx, room, buf, |buf| buf);
        if read.is_ready() {
            return read.map_err(ConnError::Io);
        }
        conn.poll_timeout(cx, deadline).map(|()| Err(ConnError::Timeout))
    });
    match read.await? {
        0 => Err(ConnError::Io(io::ErrorKind::UnexpectedEof.into())),
        n => {
            Facts::add(&s.facts.received, n);
            Ok(())
        }
    }
}
