//! The nginx.conf language, whole: words, directives, blocks, `include`, and errors that point.
//!
//! The crate knows how a configuration is written and no directive by name but `include`.
//! Text stays bytes throughout, because configurations carry Latin-1 and worse.
//!
//! * [`parse`] and [`parse_command_line`] turn files into a tree of [`Directive`]s;
//!   [`parse_partial`] also gives what came before an error, so that a caller who checks
//!   it first reports errors in the order nginx finds them.
//! * [`Sources`] keeps everything that was read. It prints as `nginx -T` does ([`dump`]), and
//!   packs into one buffer, from which [`BundleLoader`] parses again without a file system.
//! * [`Diagnostic`] renders nginx's own line first, then the place in the text.

mod bundle;
mod diagnostic;
mod format;
mod glob;
mod lex;
mod loader;
pub mod messages;
mod parse;
mod raw;
mod source;
mod suggest;
mod tree;

#[cfg(test)]
mod tests;

pub use bundle::BundleError;
pub use diagnostic::{Diagnostic, Level};
pub use format::format;
pub use glob::glob;
pub use loader::{BundleLoader, Loader};
pub use parse::{
    full_name, parse, parse_command_line, parse_partial, parse_statements, Options, Parsed,
    MAX_BLOCK_DEPTH, MAX_INCLUDES, MAX_INCLUDE_DEPTH,
};
pub use source::{dump, Attached, FileId, Globbed, Position, SourceFile, Sources, Span};
pub use suggest::suggest;
pub use tree::{Body, Directive, Word};
