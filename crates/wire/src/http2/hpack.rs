//! HPACK (RFC 7541): header fields as indices and literals, with a table per direction.

mod decode;
mod encode;
mod static_table;
mod table;

pub use decode::{Decoder, Field, Fields, HpackError, HpackLimits};
pub use encode::{
    begin_table_size, literal, literal_known, literal_lower, status, text_known, Known,
};

#[cfg(test)]
mod tests;
