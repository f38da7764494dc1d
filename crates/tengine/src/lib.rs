//! The HTTP modules that Tengine has beside nginx's own, by the words of its public documentation. Each is a file or
//! a folder; their order is in the program's list.

pub mod concat;
pub mod footer;
pub mod req_status;
pub mod request_time;
pub mod response_time;
pub mod server_info;
pub mod sysguard;
pub mod trim;
pub mod upstream_times;
pub mod user_agent;
pub mod variables;

/// What reads bytes from outside and knows nothing but them, so that it can be tried with any.
pub mod readers {
    pub use crate::trim::trimmed;
    pub use crate::user_agent::version_behind;
}
