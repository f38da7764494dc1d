//! What is counted of requests, by the names of servers and locations; [`crate::status_zone`] counts.

use std::cell::OnceCell;
use std::sync::Arc;
use weir_core::counts::{self, Count, Counted, Fields, Histogram, Statuses};
use weir_core::Worker;

/// What one or several servers or locations of a name are counted in.
pub(crate) type Zones = Arc<Counted<Requests>>;

/// What is counted of requests.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) begun: Count,
    pub(crate) statuses: Statuses,
    /// Ended without an answer.
    pub(crate) discarded: Count,
    pub(crate) received: Count,
    pub(crate) sent: Count,
    /// Of those that were answered; connections that became tunnels aside.
    pub(crate) latency: Histogram,
}

impl counts::Part for Requests {
    fn each(&self, fields: &mut Fields<'_>) {
        // Those that are answered now end with the process.
        fields.as_if("begun", &self.begun, self.statuses.total() + self.discarded.get());
        fields.statuses("responses", &self.statuses);
        fields.count("discarded", &self.discarded);
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
