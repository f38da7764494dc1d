//! What is known of a session for who logs it.

use std::cell::Cell;
use std::rc::Rc;
use weir_core::relay::{Passed, CLIENT, SERVER};
use weir_core::timing::UpstreamState;
use weir_runtime::clock;

/// What has become of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Came {
    /// It ended before there was anything to decide on.
    #[default]
    Ended,
    /// The client talked with its server.
    Proxied,
    /// The client was let in nowhere, by the last answer that it had.
    Refused,
    /// Who was to say where it goes, or the server itself, did not answer as it should.
    Failed,
    /// No handshake, or not with that certificate.
    TlsFailed,
    /// The client let its time run out.
    TimedOut,
}

impl Came {
    /// As logs show it.
    pub fn name(self) -> &'static str {
        match self {
            Came::Ended => "ended",
            Came::Proxied => "proxied",
            Came::Refused => "refused",
            Came::Failed => "failed",
            Came::TlsFailed => "tls_failed",
            Came::TimedOut => "timed_out",
        }
    }
}

/// What is counted, and what it came to.
pub(crate) struct Facts {
    pub begun_us: u64,
    pub came: Cell<Came>,
    /// Bytes from the client and to it.
    pub received: Cell<u64>,
    pub sent: Cell<u64>,
    pub upstream: Option<Box<UpstreamState>>,
}

impl Facts {
    pub(crate) fn new() -> Facts {
        Facts {
            begun_us: clock::mono_us(),
            came: Cell::default(),
            received: Cell::new(0),
            sent: Cell::new(0),
            upstream: None,
        }
    }

    pub(crate) fn came(&self, to: Came) {
        self.came.set(to);
    }

    pub(crate) fn add(count: &Cell<u64>, bytes: usize) {
        count.set(count.get() + bytes as u64);
    }

    /// A server is turned to.
    pub(crate) fn turns_to(&mut self, peer: &str) {
        let begun_us = clock::mono_us();
        let peer: Rc<[u8]> = peer.as_bytes().into();
        self.upstream =
            Some(Box::new(UpstreamState { begun_us, ..UpstreamState::new(peer, false) }));
    }

    pub(crate) fn connected(&mut self) {
        if let Some(state) = &mut self.upstream {
            state.connect_us = Some(clock::mono_us().saturating_sub(state.begun_us));
        }
    }

    /// Client and server have talked.
    pub(crate) fn passed(&mut self, passed: &Passed) {
        self.received.set(self.received.get() + passed.received[CLIENT]);
        self.sent.set(self.sent.get() + passed.sent[SERVER]);
        if let Some(state) = &mut self.upstream {
            state.bytes_received = passed.received[SERVER];
            state.bytes_sent = passed.sent[CLIENT];
            state.response_us = Some(clock::mono_us().saturating_sub(state.begun_us));
        }
    }
}
