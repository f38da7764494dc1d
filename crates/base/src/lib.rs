//! The pure helpers everything else uses: sizes, times, escapes, dates, addresses, bytes.
//!
//! Nothing here does I/O or reads a clock; a function is given the bytes and, where it
//! matters, the time. Grammars are nginx's, to the byte.

pub mod addr;
pub mod base64;
pub mod bytes;
pub mod copies;
pub mod crc32c;
pub mod date;
pub mod escape;
pub mod json;
pub mod line;
pub mod lru;
pub mod shown;
pub mod system;
pub mod units;
