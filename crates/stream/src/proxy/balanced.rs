//! Servers that code of a module chooses (`balancer_by_lua`): it is asked before each try.

use super::ProxySrv;
use crate::serve::ERROR;
use crate::Session;
use std::net::SocketAddr;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::Session as _;
use weir_upstream::balancer::{Balancer, Balancing, Last, Verdict};
use weir_upstream::{Choice, Key, Lease, Peer, WorkerGroup};

const NO_PEER: &str = "lua balancer: no peer set";

/// One session's way through an upstream that has code.
pub(super) struct Balanced {
    choose: fn(&mut Session, u32, &mut Balancing) -> Verdict,
    code: u32,
    balancing: Balancing,
}

/// What has come of asking the code.
pub(super) enum Answer {
    /// Nothing, if no server is left.
    Server(Option<Lease>),
    /// The session ends with that status.
    Status(u16),
    /// The next server is to be asked.
    Next,
}

impl Balanced {
    /// Nothing where no code chooses.
    #[inline]
    pub(super) fn of(group: &WorkerGroup, conf: &ProxySrv, choice: &mut Choice) -> Option<Self> {
        let balancer = group.sticky::<Balancer<Session>>()?;
        // Where the configuration has no server the code names one.
        choice.tries = choice.tries.max(1);
        let balancing = Balancing { tries_max: *conf.next_upstream_tries, ..Balancing::default() };
        Some(Balanced { choose: balancer.choose, code: balancer.code, balancing })
    }

    /// Asks the code for a server.
    #[cold]
    pub(super) fn choose(
        &mut self,
        s: &mut Session,
        group: &Rc<WorkerGroup>,
        choice: &mut Choice,
        key: &mut Key,
    ) -> Answer {
        self.balancing.begin(choice.tries);
        match (self.choose)(s, self.code, &mut self.balancing) {
            Verdict::Status(status) => return Answer::Status(status),
            Verdict::NoServer => return Answer::Server(None),
            Verdict::Next => {
                // No server is given back, so that nothing else would count it.
                choice.tries = choice.tries.saturating_sub(1);
                return Answer::Next;
            }
            Verdict::Choose => {}
        }
        Answer::Server(match self.balancing.server.take() {
            Some((addr, host)) => {
                choice.tries = choice.tries.saturating_add(self.balancing.more_tries);
                let (server, host) = (Peer::new(addr, b""), host.unwrap_or_default());
                let group = group.named(server, &host, None, 0, &s.conn().worker);
                group.pick(&mut Choice::default(), &mut Key::default())
            }
            None if !group.has_servers() => {
                s.log(LogLevel::Error, NO_PEER);
                return Answer::Status(ERROR);
            }
            None => group.pick(choice, key),
        })
    }

    /// Gives a server back that could not be reached; whether it is now disabled.
    pub(super) fn give_back(
        &mut self,
        lease: Lease,
        group: &Rc<WorkerGroup>,
        choice: &mut Choice,
        failed: bool,
    ) -> bool {
        self.balancing.last = Some((if failed { Last::Failed } else { Last::Next }, 0));
        if Rc::ptr_eq(lease.group(), group) {
            return lease.release(choice, failed);
        }
        choice.tries = choice.tries.saturating_sub(1);
        lease.end(failed)
    }

    /// How long a connection may take to be made, in milliseconds, if code has said so.
    pub(super) fn connect_ms(&self) -> Option<u64> {
        self.balancing.waits_ms[0]
    }

    /// How long both sides may be quiet, likewise.
    pub(super) fn quiet_ms(&self) -> Option<u64> {
        let [_, send, read] = self.balancing.waits_ms;
        send.max(read)
    }

    /// Where connections come from, likewise.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.balancing.local
    }
}
