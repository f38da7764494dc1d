//! How a request is to be written.

use crate::target::Target;

/// The length that a request's body has on its way to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    None,
    Known(u64),
    Chunked,
}

/// How a request is to be written.
pub struct Ask<'a> {
    pub target: &'a Target,
    pub length: BodyLength,
    /// The answer may be kept.
    pub cached: bool,
    /// The client's HEAD goes out as GET, so that the whole answer can be kept.
    pub as_get: bool,
}
