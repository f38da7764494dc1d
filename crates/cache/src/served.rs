//! What a worker counts of a store's answers; what the places stand for is who counts' own.

use weir_core::counts::{Count, Fields, Part};

/// Answers of one status.
#[derive(Default)]
pub struct Served {
    pub responses: Count,
    /// Of them: read from what is kept, or from servers.
    pub bytes: Count,
    /// Those that were kept.
    pub written: Count,
    pub bytes_written: Count,
}

/// By statuses.
#[derive(Default)]
pub struct ByStatus {
    pub by_status: [Served; 7],
}

impl Part for ByStatus {
    fn each(&self, fields: &mut Fields<'_>) {
        for (n, served) in self.by_status.iter().enumerate() {
            fields.count(&format!("responses{n}"), &served.responses);
            fields.count(&format!("bytes{n}"), &served.bytes);
            fields.count(&format!("written{n}"), &served.written);
            fields.count(&format!("bytes_written{n}"), &served.bytes_written);
        }
    }
}
