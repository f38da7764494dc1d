//! What a request remembers of each backend it asked, for the `$upstream_*` variables and logs.

#[derive(Clone, Debug, Default)]
pub struct UpstreamState {
    /// Address as shown: `127.0.0.1:8080`, `unix:/path`, or the upstream's name when none was tried.
    pub peer: Vec<u8>,
    pub status: u16,
    pub connect_ms: Option<u64>,
    pub header_ms: Option<u64>,
    pub response_ms: Option<u64>,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub response_length: u64,
    /// The first of a new group after an internal redirect: shown after `" : "` instead of `", "`.
    pub new_group: bool,
}
