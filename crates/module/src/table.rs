//! Tables of rows: those that several families of directives share are named by a family's prefix, and
//! a module has one table of all of its rows.

use crate::Row;

/// The longest name of a directive.
const NAME_MAX_BYTES: usize = 64;

/// A name made of a family's prefix and what stands behind it.
pub struct RowName {
    bytes: [u8; NAME_MAX_BYTES],
    len: usize,
}

impl RowName {
    pub const fn new(prefix: &str, suffix: &str) -> RowName {
        let (prefix, suffix) = (prefix.as_bytes(), suffix.as_bytes());
        let mut name = RowName { bytes: [0; NAME_MAX_BYTES], len: prefix.len() + suffix.len() };
        let mut i = 0;
        while i < name.len {
            let own = i < prefix.len();
            name.bytes[i] = if own { prefix[i] } else { suffix[i - prefix.len()] };
            i += 1;
        }
        name
    }

    pub const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => panic!("a name is made of two texts"),
        }
    }
}

/// The name of a directive of the family `T`.
#[macro_export]
macro_rules! name {
    ($suffix:literal) => {
        (const { &$crate::RowName::new(T::PREFIX, $suffix) }).as_str()
    };
}

/// Several lists of rows as one.
#[macro_export]
macro_rules! joined_rows {
    ($($part:expr),* $(,)?) => {{
        const PARTS: &[&[$crate::Row]] = &[$($part),*];
        const ALL: [$crate::Row; $crate::total_rows(PARTS)] = $crate::joined_rows(PARTS);
        &ALL
    }};
}

/// How many rows there are in all.
pub const fn total_rows(parts: &[&[Row]]) -> usize {
    let (mut sum, mut i) = (0, 0);
    while i < parts.len() {
        sum += parts[i].len();
        i += 1;
    }
    sum
}

/// One list of them; `N` is their [`total`], and the first part is not empty.
pub const fn joined_rows<const N: usize>(parts: &[&[Row]]) -> [Row; N] {
    let mut all = [parts[0][0]; N];
    let (mut at, mut i) = (0, 0);
    while i < parts.len() {
        let mut k = 0;
        while k < parts[i].len() {
            all[at] = parts[i][k];
            at += 1;
            k += 1;
        }
        i += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arity, Context};

    const fn row(name: &'static str) -> Row {
        Row::new(name, Context::HTTP, Arity::ONE, "", "", |_, _| Ok(()))
    }

    #[test]
    fn names_have_a_prefix() {
        assert_eq!(RowName::new("proxy_", "bind").as_str(), "proxy_bind");
    }

    #[test]
    fn tables_are_joined_in_order() {
        const ONE: &[Row] = &[row("a"), row("b")];
        const OTHER: &[Row] = &[row("c")];
        let all: &[Row] = joined_rows!(ONE, &[], OTHER);
        let names: Vec<&str> = all.iter().map(|r| r.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}
