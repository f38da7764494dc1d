//! What a session remembers of the servers it asked, for the `$upstream_*` variables and logs.

use std::rc::Rc;

/// One server that was asked.
#[derive(Clone, Debug)]
pub struct UpstreamState {
    /// Address as shown: `127.0.0.1:8080`, `unix:/path`, or the upstream's name when none was tried.
    pub peer: Rc<[u8]>,
    /// That of its answer; 0 for none, and where answers have none.
    pub status: u16,
    /// Monotonic microseconds when it was turned to; 0 where nobody notes it.
    pub begun_us: u64,
    /// Microseconds until all was sent; noted only where a variable shows it.
    pub sent_us: Option<u64>,
    /// The same until there was a connection.
    pub connect_us: Option<u64>,
    /// The same until the answer's head, or its first byte where there are no heads.
    pub header_us: Option<u64>,
    /// The same until all was over.
    pub response_us: Option<u64>,
    /// With the head, TLS not counted.
    pub bytes_sent: u64,
    /// As `bytes_sent`, the other way.
    pub bytes_received: u64,
    /// Of the bytes received, those of the answer's body.
    pub response_length: u64,
    /// Milliseconds that it had waited in the upstream's `queue` before; 0 for who did not.
    pub queue_ms: u32,
    /// The first of a new group after an internal redirect: shown after `" : "` instead of `", "`.
    pub new_group: bool,
}

impl UpstreamState {
    /// One that is about to be asked.
    pub fn new(peer: Rc<[u8]>, new_group: bool) -> UpstreamState {
        UpstreamState {
            peer,
            status: 0,
            begun_us: 0,
            sent_us: None,
            connect_us: None,
            header_us: None,
            response_us: None,
            bytes_sent: 0,
            bytes_received: 0,
            response_length: 0,
            queue_ms: 0,
            new_group,
        }
    }
}
