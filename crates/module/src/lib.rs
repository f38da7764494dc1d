//! The contract between the configuration and the modules: directive rows, contexts, typed
//! slots, merging. It knows no protocol; `http` (and later `stream` and `mail`) build on it.

mod args;
mod cf;
pub mod first;
mod heirs;
mod layout;
mod row;
mod slot;
mod table;
mod val;

pub use args::ArgsExt;
pub use cf::{Cf, Levels, Mode, RowTable};
pub use heirs::Heirs;
pub use layout::Layout;
pub use row::{Arity, Context, Row, RowBody, Setter};
pub use slot::{distinct, merged, AnyConf, ConfType, Level, MergeFn, SlotKey, SlotVtable, Slots};
pub use table::{joined_rows, total_rows, RowName};
pub use val::Val;

pub use weir_conf::{Body, Diagnostic, Directive, Span, Word};

/// What a setter or a build step answers.
pub type ConfResult<T = ()> = Result<T, Diagnostic>;
