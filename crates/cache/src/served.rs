//! What a worker counts of a store's answers; what the places stand for is who counts' own.

use weir_core::counts::Count;

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
