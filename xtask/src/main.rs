//! The projects tasks.
fn main() {}
