//! Strings with variables compiled once, regular expressions, look-ups by name, and the commands in
//! documents (SSI).

pub mod lookup;
pub mod mmdb;
pub mod regex;
pub mod ssi;
pub mod template;

pub use lookup::{Conflict, HostMap, InsertError, StrMap};
pub use regex::{Captures, CompileError, MatchError, Regex, RegexOptions};
pub use template::{Env, Template, VarId};
