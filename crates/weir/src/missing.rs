//! Directives that nginx, Tengine or OpenResty have and this version has not: each is refused as
//! unknown, with a hint that says so.

pub const MISSING: &[(&str, &str)] = &[];
