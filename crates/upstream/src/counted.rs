//! What is counted of upstreams and their servers; `figures` shows it.
//!
//! It is known in the process by block, upstream and address, so that a reload counts on. Each worker counts
//! into parts of its own ([`Parts`]), which its group keeps at hand; a server's is made when it is first asked.

use crate::peers::{PeerId, Peers};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use weir_core::counts::{Count, Counted, Fields, Handshakes, Histogram, Part, Statuses};
use weir_core::timing::UpstreamState;

/// What speaks another protocol from then on has no end of an answer.
const SWITCHING_PROTOCOLS: u16 = 101;

/// An average that forgets: each time moves it by a sixteenth of the difference. By one thread.
#[derive(Default)]
pub(crate) struct Average(Count);

impl Average {
    #[inline]
    fn add(&self, us: u64) {
        let before = self.0.get();
        self.0.set(match before {
            // The first says what there is to be said; none is as short as nothing.
            0 => us.max(1) << 4,
            _ => before - (before >> 4) + us.max(1),
        });
    }

    pub(crate) fn us(&self) -> u64 {
        self.0.get() >> 4
    }
}

/// What a worker counts of a server.
#[derive(Default)]
pub(crate) struct Tries {
    pub(crate) begun: Count,
    pub(crate) ended: Count,
    pub(crate) statuses: Statuses,
    pub(crate) received: Count,
    pub(crate) sent: Count,
    /// Tries that failed by the server's fault.
    pub(crate) fails: Count,
    /// How often it was counted out for that.
    pub(crate) unavail: Count,
    /// When it was chosen last, in microseconds of the monotonic clock; 0 for never.
    pub(crate) selected_us: Count,
    /// Of connections that were made, with TLS.
    pub(crate) connect: Histogram,
    /// Of tries whose answer came whole with its head: they are in neither of the next.
    pub(crate) both: Histogram,
    pub(crate) header: Histogram,
    pub(crate) response: Histogram,
    /// Moving averages of the two, in sixteenths of a microsecond.
    pub(crate) header_average: Average,
    pub(crate) response_average: Average,
    pub(crate) handshakes: OnceLock<Box<Handshakes>>,
    /// Since when this worker has counted it out, in milliseconds of the monotonic clock, and for how long it
    /// had before; where workers share what they know of servers, that has it.
    pub(crate) down_since_ms: Count,
    pub(crate) downtime_ms: Count,
}

impl Tries {
    /// What became of a try.
    #[inline]
    pub(crate) fn count(&self, state: &UpstreamState) {
        self.received.add(state.bytes_received);
        self.sent.add(state.bytes_sent);
        let Some(header_us) = state.header_us else { return };
        if state.status != 0 {
            self.statuses.add(state.status);
        }
        if state.response_us == Some(header_us) && state.status != SWITCHING_PROTOCOLS {
            self.header_average.add(header_us);
            self.response_average.add(header_us);
            return self.both.add(header_us);
        }
        self.header_average.add(header_us);
        self.header.add(header_us);
        if let Some(us) = state.response_us.filter(|_| state.status != SWITCHING_PROTOCOLS) {
            self.response_average.add(us);
            self.response.add(us);
        }
    }

    /// It is counted out by this worker since then, or (0) is not any more, after so long.
    #[cold]
    pub(crate) fn turned(&self, down_since_ms: u64, after_ms: u64) {
        self.down_since_ms.set(down_since_ms);
        self.downtime_ms.add(after_ms);
    }
}

impl Part for Tries {
    fn each(&self, fields: &mut Fields<'_>) {
        fields.count("begun", &self.begun);
        fields.count("ended", &self.ended);
        fields.statuses("responses", &self.statuses);
        fields.count("received", &self.received);
        fields.count("sent", &self.sent);
        fields.count("fails", &self.fails);
        fields.count("unavail", &self.unavail);
        fields.times("connect", &self.connect);
        fields.times("both", &self.both);
        fields.times("header", &self.header);
        fields.times("response", &self.response);
        match fields {
            Fields::Read(_) => self.handshakes.get().into_iter().for_each(|all| all.each(fields)),
            Fields::Add(known) if known.has("handshakes") => {
                self.handshakes.get_or_init(Box::default).each(fields);
            }
            Fields::Add(_) => {}
        }
    }
}

/// What a worker counts of an upstream.
#[derive(Default)]
pub(crate) struct Uses {
    /// Connections that wait for a session now.
    pub(crate) idle: Count,
    /// Sessions that came into the `queue`, and that have left it.
    pub(crate) queued: Count,
    pub(crate) left: Count,
    /// Those that it had no room for.
    pub(crate) overflows: Count,
    /// How long they waited, with a server for them in the end or without.
    pub(crate) waited: Histogram,
}

impl Part for Uses {
    fn each(&self, fields: &mut Fields<'_>) {
        fields.count("queued", &self.queued);
        fields.count("left", &self.left);
        fields.count("overflows", &self.overflows);
        fields.times("waited", &self.waited);
    }
}

/// Of an upstream in one of its shapes.
pub(crate) struct Counts {
    pub(crate) uses: Arc<Counted<Uses>>,
    servers: [Vec<Arc<Counted<Tries>>>; 2],
}

impl Counts {
    /// What is counted in that block (its bits tell it from others) under that name, of those servers.
    pub(crate) fn new(block: u32, upstream: &[u8], peers: &Peers) -> Counts {
        let name = |rest: &[u8], n: u32| {
            let numbers = [block.to_be_bytes(), (upstream.len() as u32).to_be_bytes()];
            [numbers.as_flattened(), upstream, &n.to_be_bytes(), rest].concat()
        };
        // Servers may be there several times: each is another one.
        let mut seen = HashMap::<&[u8], u32>::new();
        let servers = [false, true].map(|backup| {
            let each = peers.list(backup).peers.iter().map(|peer| {
                let n = seen.entry(&peer.name).and_modify(|n| *n += 1).or_default();
                Counted::named("server of an upstream", &name(&peer.name, *n))
            });
            each.collect()
        });
        Counts { uses: Counted::named("upstream", &name(b"", 0)), servers }
    }

    pub(crate) fn server(&self, at: PeerId) -> Option<&Arc<Counted<Tries>>> {
        self.servers[usize::from(at.backup)].get(at.index)
    }
}

/// A worker's part of a server. What the worker knew of it has gone with the configuration before.
fn begin(counted: &Counted<Tries>, worker: usize) -> Arc<Tries> {
    let tries = counted.part(worker);
    tries.down_since_ms.reset();
    tries
}

/// A worker's parts of an upstream.
#[derive(Default)]
pub(crate) struct Parts {
    worker: usize,
    counts: Option<Arc<Counts>>,
    uses: Arc<Uses>,
    /// That of the only server, where there is no other.
    only: Option<Arc<Tries>>,
    servers: [Box<[OnceCell<Arc<Tries>>]>; 2],
}

impl Parts {
    pub(crate) fn new(counts: &Arc<Counts>, worker: usize) -> Parts {
        let cells = |n: usize| (0..n).map(|_| OnceCell::new()).collect();
        let is_alone = counts.servers[0].len() == 1 && counts.servers[1].is_empty();
        let only = counts.servers[0].first().filter(|_| is_alone);
        Parts {
            only: only.map(|counted| begin(counted, worker)),
            worker,
            counts: Some(Arc::clone(counts)),
            uses: counts.uses.part(worker),
            servers: [cells(counts.servers[0].len()), cells(counts.servers[1].len())],
        }
    }

    /// Of a server; nothing where nothing is counted, as for an address of one request.
    #[inline(always)]
    pub(crate) fn server(&self, at: PeerId) -> Option<&Tries> {
        if let Some(only) = &self.only {
            return Some(only);
        }
        let cell = self.servers[usize::from(at.backup)].get(at.index)?;
        Some(match cell.get() {
            Some(tries) => tries,
            None => self.find(cell, at)?,
        })
    }

    #[cold]
    fn find<'a>(&self, cell: &'a OnceCell<Arc<Tries>>, at: PeerId) -> Option<&'a Tries> {
        let counted = self.counts.as_ref()?.server(at)?;
        Some(cell.get_or_init(|| begin(counted, self.worker)))
    }

    #[inline]
    pub(crate) fn uses(&self) -> &Arc<Uses> {
        &self.uses
    }
}
