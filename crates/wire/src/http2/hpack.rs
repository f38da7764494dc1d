//! HPACK (RFC 7541): header fields as indices and literals, with a table per direction.

mod decode;
mod encode;
mod static_table;
mod table;

pub use decode::{Decoder, Field, Fields, HpackError, HpackLimits};
pub use encode::{
    literal, literal_known, literal_lower, request_line, status, text_known, Known, EMPTY_TABLE,
};

#[cfg(test)]
mod tests;
