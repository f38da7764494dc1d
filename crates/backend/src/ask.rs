//! How a request is to be written.

use crate::target::Target;

/// The length that a request's body has on its way to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    None,
    Known(u64),
    Chunked,
}

/// How a request is to be written.
pub(crate) struct Ask<'a> {
    pub(crate) target: &'a Target<'a>,
    pub(crate) length: BodyLength,
    /// The answer may be kept.
    pub(crate) cached: bool,
    /// The client's HEAD goes out as GET, so that the whole answer can be kept.
    pub(crate) as_get: bool,
}
