//! Look-ups by name, built once and asked for every request: without allocation and without
//! regard to ASCII case.

mod host;
mod table;

pub use host::{Conflict, HostMap, InsertError};
pub use table::StrMap;
