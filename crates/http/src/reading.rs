//! Servers and locations while they are read.

use std::collections::HashSet;
use weir_core::registry::NamedRegex;
use weir_module::Slots;

/// What kind of location it is, by its modifier.
pub enum Kind {
    Prefix,
    Exact,
    NoRegex,
    Regex(Box<NamedRegex>),
    Named,
    /// `if`, `limit_except`, and a server's outermost.
    Unnamed,
}

/// The kinds of which no two may have a name in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    Prefix,
    Exact,
    Named,
}

/// The location whose block is being read.
#[derive(Default)]
pub struct Here {
    pub name: Vec<u8>,
    pub is_named: bool,
    pub is_regex: bool,
    pub(crate) is_exact: bool,
    /// What stands inside it, as far as it has been read.
    pub children: Vec<LocBuild>,
    /// The names that locations may not have again in it.
    pub taken: HashSet<(Sort, Vec<u8>)>,
}

/// A location as read.
pub struct LocBuild {
    pub id: usize,
    pub name: Vec<u8>,
    pub kind: Kind,
    /// An `if` or `limit_except` block.
    pub unnamed: bool,
    /// What it says itself.
    pub slots: Slots,
    pub children: Vec<LocBuild>,
}

/// A server as read.
pub(crate) struct ServerBuild {
    pub(crate) srv: Slots,
    pub root: LocBuild,
}
