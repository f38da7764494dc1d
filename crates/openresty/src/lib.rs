//! The modules that OpenResty ships beside nginx's own, by the words of their public documentation. Each is a file
//! or a folder; their order is in the program's list.

pub mod array_var;
pub mod echo;
pub mod encrypted_session;
pub mod form_input;
pub mod headers_more;
pub mod set_misc;
pub mod srcache;
pub mod xss;

/// What reads bytes from outside and knows nothing but them, so that it can be tried with any.
pub mod readers {
    pub use crate::array_var::{items, packed};
    pub use crate::encrypted_session::{open, seal};
    pub use crate::form_input::values;
    pub use crate::set_misc::base32::{decode, encode, Alphabet};
    pub use crate::set_misc::quote::{json, pgsql, sql};
    pub use crate::set_misc::values::{escape, unescape};
    pub use crate::xss::is_function;
}
