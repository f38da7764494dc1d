//! The way to servers that a server block has, for those who ask servers themselves.

use super::connect::{alpn, socket_options};
use super::{datagrams, Pass, ProxySrv};
use crate::Session;
use std::io;
use std::sync::Arc;
use weir_core::Worker;
use weir_module::Slots;
use weir_runtime::net::Stream;
use weir_upstream::{
    error_text, Link, LinkError, PeerAddr, SecureError, SocketOptions, UpstreamRef, Wanted,
};

/// The upstream that a server's sessions go to, where no variable says it.
pub(crate) fn upstream_of(slots: &Slots) -> Option<UpstreamRef> {
    match &slots.get::<ProxySrv>().pass {
        Some(Pass::Fixed(upstream)) => Some(*upstream),
        _ => None,
    }
}

/// How a server block connects.
pub(crate) struct Way {
    options: SocketOptions,
    tls: Option<Wanted>,
    connect_timeout_ms: u64,
    /// The PROXY protocol's header, where sessions begin with one.
    header: Vec<u8>,
    /// The most that is read at once.
    pub(crate) buffer_size: usize,
}

impl Way {
    /// That of a session's server block, to the upstream of that name.
    pub(crate) fn of(s: &mut Session, upstream: &[u8]) -> Way {
        let server = Arc::clone(s.server());
        let conf = server.conf::<ProxySrv>();
        let options = socket_options(s, conf);
        let mut tls = if *conf.ssl { conf.tls.wanted(s, upstream) } else { None };
        if let Some(wanted) = &mut tls {
            wanted.alpn = alpn(s, conf);
        }
        let mut header = Vec::new();
        conf.proxy_protocol.write(s, &mut header);
        let buffer_size = *conf.buffer_size as usize;
        Way { options, tls, connect_timeout_ms: *conf.connect_timeout, header, buffer_size }
    }

    /// Connects, with TLS where sessions have it.
    ///
    /// # Errors
    ///
    /// There is no connection, or no TLS on it, in time.
    pub(crate) async fn connect(
        &self,
        addr: &PeerAddr,
        worker: &Worker,
    ) -> Result<Box<Link>, LinkError> {
        let timeout_ms = self.connect_timeout_ms;
        let mut link = Link::connect(addr, &self.options, timeout_ms, worker).await?;
        if !self.header.is_empty() && !link.send_at_once(&self.header) {
            let text = "could not send PROXY protocol header at once".to_string();
            return Err(LinkError::Protocol(text));
        }
        let Some(wanted) = &self.tls else { return Ok(link) };
        match link.secure(wanted, timeout_ms).await {
            Ok(()) => Ok(link),
            Err(SecureError::Timeout) => Err(LinkError::Timeout),
            Err(
                SecureError::Refused(text)
                | SecureError::Unverified(_, text)
                | SecureError::Certificate(text),
            ) => Err(LinkError::Protocol(text)),
            Err(SecureError::Tls(weir_tls::TlsError::Io(e))) => {
                let text = format!("SSL_do_handshake() failed {}", error_text(&e));
                Err(LinkError::Protocol(text))
            }
            Err(SecureError::Tls(e)) => {
                Err(LinkError::Protocol(format!("SSL_do_handshake() failed (SSL: {e})")))
            }
        }
    }

    /// A socket for datagrams.
    ///
    /// # Errors
    ///
    /// The system has none.
    pub(crate) fn connect_udp(&self, addr: &PeerAddr, worker: &Worker) -> io::Result<Stream> {
        datagrams::connect(addr, &self.options, worker)
    }
}
