//! What is counted of requests, by the names of servers and locations; [`crate::status_zone`] counts.

use crate::request::Request;
use std::cell::OnceCell;
use std::sync::{Arc, OnceLock};
use weir_core::counts::{self, Count, Counted, Fields, Histogram, Statuses};
use weir_core::Worker;
use weir_wire::http1::request::Version;

/// What one or several servers or locations of a name are counted in.
pub(crate) type Zones = Arc<Counted<Requests>>;

/// The versions of HTTP, as `$server_protocol` has them.
pub(crate) const VERSIONS: [&str; 5] = ["HTTP/0.9", "HTTP/1.0", "HTTP/1.1", "HTTP/2.0", "HTTP/3.0"];

/// Which of them it is; what is newer than the newest of HTTP/1 is that.
#[inline]
pub(crate) fn version_place(version: Version) -> usize {
    match version.0 {
        0..1000 => 0,
        1000 => 1,
        1001..2000 => 2,
        2000..3000 => 3,
        _ => 4,
    }
}

/// What may become of looking in a cache: `$upstream_cache_status`.
pub const CACHED: [&str; 7] =
    ["miss", "bypass", "expired", "stale", "updating", "revalidated", "hit"];

/// What of them a request's is.
pub type CachedOf = fn(&mut Request) -> Option<usize>;

static CACHED_OF: OnceLock<CachedOf> = OnceLock::new();

/// There are caches: who has them says what became of a request.
pub fn count_cached(of: CachedOf) {
    // Who says it is the same for all generations.
    let _ = CACHED_OF.set(of);
}

#[inline]
pub(crate) fn cached(r: &mut Request) -> Option<usize> {
    CACHED_OF.get().and_then(|of| of(r))
}

/// What is counted of requests.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) begun: Count,
    pub(crate) statuses: Statuses,
    /// Ended without an answer, whatever status logs show.
    pub(crate) discarded: Count,
    /// Ended without any status.
    pub(crate) nameless: Count,
    /// By what became of looking in a cache, as in [`CACHED`].
    pub(crate) cached: [Count; CACHED.len()],
    /// By the versions of HTTP in [`VERSIONS`].
    pub(crate) versions: [Count; 5],
    pub(crate) received: Count,
    pub(crate) sent: Count,
    /// Of those that were answered; connections that became tunnels aside.
    pub(crate) latency: Histogram,
    /// How long they took lately.
    pub(crate) average: Average,
}

/// A moving average, of which each time is one part in 32: as old on the average as what the last 64 have.
/// Microseconds, so many times.
#[derive(Default)]
pub(crate) struct Average(Count);

const AVERAGE_SHIFT: u32 = 5;

impl Average {
    #[inline]
    pub(crate) fn add(&self, us: u64) {
        let before = self.0.get();
        self.0.set(match before {
            // The first says what there is to be said; none is as short as nothing.
            0 => us.max(1) << AVERAGE_SHIFT,
            _ => before - (before >> AVERAGE_SHIFT) + us.max(1),
        });
    }

    pub(crate) fn us(&self) -> u64 {
        self.0.get() >> AVERAGE_SHIFT
    }
}

impl counts::Part for Requests {
    fn each(&self, fields: &mut Fields<'_>) {
        fields.count("begun", &self.begun);
        fields.statuses("responses", &self.statuses);
        fields.counts("cached", &self.cached);
        fields.counts("versions", &self.versions);
        fields.count("discarded", &self.discarded);
        fields.count("nameless", &self.nameless);
        fields.count("received", &self.received);
        fields.count("sent", &self.sent);
        fields.times("latency", &self.latency);
    }
}

/// A worker's part of a zone, looked for when something is to be counted first.
#[derive(Default)]
pub(crate) struct Part(OnceCell<Option<Arc<Requests>>>);

impl Part {
    #[inline]
    pub(crate) fn get(&self, zones: &Option<Zones>, worker: &Worker) -> Option<&Requests> {
        self.0.get_or_init(|| zones.as_ref().map(|zones| zones.part(worker.id))).as_deref()
    }
}
