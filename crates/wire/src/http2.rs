//! HTTP/2 (RFC 9113) without sockets and clocks: frames in, events out, frames written.
//!
//! [`receive::Receiver`] turns the peer's bytes into events and answers what needs no judgement
//! (PING, windows of the connection); [`client::Client`] is the side that asks. [`frame`] writes frames, [`hpack`] does header blocks,
//! [`flow`] keeps a stream's windows, [`budget`] the patience with a peer that only costs, and
//! [`priority`] the order in which streams are served.
//!
//! Error codes and limits are those of nginx 1.31, except where RFC 9113 demands otherwise.

pub mod budget;
pub mod client;
pub mod flow;
pub mod frame;
pub mod hpack;
pub mod huffman;
pub mod priority;
pub mod receive;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    pub const NO_ERROR: ErrorCode = ErrorCode(0);
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(1);
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(2);
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(3);
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(5);
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(6);
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(7);
    pub const CANCEL: ErrorCode = ErrorCode(8);
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(9);
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(11);
}

/// Why the connection ends: the code of its GOAWAY, and the log's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: ErrorCode,
    pub text: &'static str,
}

impl Fault {
    pub const fn new(code: ErrorCode, text: &'static str) -> Fault {
        Fault { code, text }
    }
}

/// A window is never larger.
pub const WINDOW_MAX_BYTES: u32 = 0x7fff_ffff;
/// A window before anything is said about it.
pub const WINDOW_DEFAULT_BYTES: u32 = 65_535;
/// A frame's payload before anything is said about it, and at most.
pub const FRAME_DEFAULT_BYTES: u32 = 16_384;
pub const FRAME_MAX_BYTES: u32 = (1 << 24) - 1;
/// A frame's payload that is taken from a client (SETTINGS_MAX_FRAME_SIZE). nginx allows what the
/// length field can say; nobody sends such frames, and this much is looked at before it is judged.
pub const FRAME_TAKEN_MAX_BYTES: u32 = 1 << 20;

#[cfg(test)]
mod tests;
