//! The modules that OpenResty ships beside nginx's own, by the words of their public documentation. Each is a file
//! or a folder; their order is in the program's list.

pub mod array_var;
pub mod echo;
pub mod encrypted_session;
pub mod form_input;
pub mod headers_more;
pub mod set_misc;
pub mod xss;
