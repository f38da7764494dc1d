//! `set_escape_uri`, `set_md5` and their kin: variables that are made of others (OpenResty's set-misc).
//!
//! Each directive is a step of the rewrite program and runs in order with `set`, `if` and `rewrite`.

pub(crate) mod base32;
mod lists;
pub(crate) mod quote;
mod rows;
mod several;
pub(crate) mod values;

pub(crate) use values::{value_named, Value};

use weir_http::lent::Lent;

use base32::Alphabet;
use lists::Lists;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;
use weir_core::eval::with_scratch;
use weir_core::Session;
use weir_http::module::HttpModule;
use weir_http::vars::template;
use weir_module::{
    merge_values, slot, ArgsExt, Cf, ConfResult, ConfType, Directive, Level, SlotVtable, Val,
};
use weir_modules::rewrite::{self, Failed, Program, Step};
use weir_script::template::{Template, VarId};

#[derive(Default)]
struct MiscMain {
    lists: Lists,
}

impl ConfType for MiscMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

#[derive(Default)]
struct MiscLoc {
    padding: Val<bool>,
    alphabet: Val<Arc<Alphabet>>,
    /// What `set_rotate` has come to in this location. Its steps have it; nothing is inherited.
    rotated: Option<Arc<AtomicU64>>,
}

impl ConfType for MiscLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &MiscLoc) -> ConfResult {
        merge_values!(self, parent; padding = true, alphabet = Arc::default());
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: rows::ROWS,
    slots: &[SlotVtable::of::<MiscMain>(), SlotVtable::of::<MiscLoc>()],
    build: Some(|b| {
        b.main.get_mut::<Lent>().make_value = values::by_name;
        Ok(())
    }),
    ..HttpModule::EMPTY
};

/// A variable becomes what is made of one string.
struct One {
    target: VarId,
    source: Template,
    value: Value,
}

impl Step for One {
    fn run(&self, at: &mut Program<'_>) -> Result<(), Failed> {
        with_scratch(|source| {
            at.eval(&self.source, source);
            with_scratch(|out| {
                self.value.make(at.r, source, out)?;
                at.r.set_var(self.target, out);
                Ok(())
            })
        })
    }
}

fn set_one(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.name();
    let value = value_named(name.as_bytes()).ok_or_else(|| d.fail("has no function"))?;
    append_one(cf, d, value)
}

/// Directives `NAME $target [SOURCE]`: without a source it is the target itself.
pub(crate) fn append_one(cf: &mut Cf, d: &Directive, value: Value) -> ConfResult {
    let target = rewrite::variable(cf, d, 0, d.arg(0))?;
    let source = template(cf, d, d.args.len() - 1)?;
    rewrite::append(cf, One { target, source, value });
    Ok(())
}
