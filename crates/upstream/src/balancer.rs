//! Servers that code of a module chooses, in the place of a method and beside it: the code is asked before each try,
//! and either names a server of its own or leaves the choice to the configuration.
//!
//! A server that was named is a group of one, which the worker keeps as long as connections to it wait
//! ([`WorkerGroup::named`]), so that it is asked, given back and connected to like any other.

use crate::conf::DeclaredSticky;
use crate::group::Sticky;
use crate::peers::PeerAddr;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::Arc;
use weir_module::ConfResult;

/// What code has made of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server that it has named, or those of the configuration where it has named none.
    Choose,
    /// The request is answered with this status.
    Status(u16),
    /// No server is there.
    NoServer,
    /// The next one is to be asked.
    Next,
}

/// What became of the server that was named last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// It was not there, or failed.
    Failed,
    /// Its answer was such that another one is asked.
    Next,
}

/// How connections to a named server are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    /// How long one may wait, in milliseconds; 0 for as long as it likes.
    pub timeout_ms: u64,
    /// How many requests it may serve; 0 for any number.
    pub requests: u64,
}

/// One request's way through the servers, as code sees it.
#[derive(Debug, Default)]
pub struct Balancing {
    /// The server that was named, and the name that its connections and TLS are for, if that was said.
    pub server: Option<(PeerAddr, Option<Vec<u8>>)>,
    /// How connections to it are kept; nothing for by the configuration.
    pub kept: Option<Kept>,
    /// Where connections come from.
    pub local: Option<SocketAddr>,
    /// Milliseconds to connect, to send and to read; they stay for the tries that follow.
    pub waits_ms: [Option<u64>; 3],
    /// How many more tries there are to be.
    pub more_tries: u32,
    /// How many there are left without them.
    pub tries: u32,
    /// Tries that have begun, this one among them.
    pub begun: u32,
    /// How many there may be at most; 0 for any number.
    pub tries_max: u64,
    /// What became of the one before, and its status.
    pub last: Option<(Last, u16)>,
    /// The request is to be written anew.
    pub rewrite: bool,
    /// Whether the server is to be spoken to with TLS, where it is not as the configuration says.
    pub tls: Option<bool>,
}

impl Balancing {
    /// Another try begins: what was said for the one before is said again or not at all.
    pub fn begin(&mut self, tries: u32) {
        self.server = None;
        self.kept = None;
        self.more_tries = 0;
        self.rewrite = false;
        self.tries = tries;
        self.begun += 1;
    }
}

/// An upstream's code: the number that its module knows it by, and how it is run for a session.
pub struct Balancer<R> {
    /// Runs the code of that number.
    pub choose: fn(&mut R, u32, &mut Balancing) -> Verdict,
    /// The code.
    pub code: u32,
    /// How many connections to a server that it names are kept (`balancer_keepalive`, which may follow).
    pub idle_max: Arc<AtomicUsize>,
}

impl<R: 'static> DeclaredSticky for Balancer<R> {
    fn build(&self, _: &[u8]) -> ConfResult<Sticky> {
        let idle_max = Arc::clone(&self.idle_max);
        Ok(Arc::new(Balancer { choose: self.choose, code: self.code, idle_max }))
    }

    fn names_servers(&self) -> bool {
        true
    }
}
