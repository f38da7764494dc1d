//! Strings with variables compiled once, regular expressions, and look-ups by name.

pub mod lookup;
pub mod regex;
pub mod template;

pub use lookup::{Conflict, HostMap, InsertError, StrMap};
pub use regex::{Captures, CompileError, MatchError, Regex, RegexOptions};
pub use template::{Env, Template, VarId};
