//! Variables at load time: their names, their numbers, what defines them.

use crate::conf::CoreMain;
use crate::generation::VarDef;
use crate::module::{Getter, HttpModule, VarArg, Variable};
use std::collections::HashMap;
use weir_module::{ArgsExt, Cf, Diagnostic, Directive};
use weir_script::template::{Template, VarId};

/// A definition that a directive makes (`map`, `set`, named captures).
pub type Definition = VarDef;

/// A variable found by its name.
pub(crate) enum Named {
    Number(VarId),
    Getter(Getter, VarArg),
}

#[derive(Default)]
pub struct VarRegistry {
    fixed: HashMap<&'static [u8], &'static Variable>,
    prefixes: Vec<&'static Variable>,
    defined: HashMap<Vec<u8>, Definition>,
    /// Names in the order of their numbers.
    names: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, VarId>,
}

/// A variable that `set` or a named capture makes has no value until then.
fn no_value(_: &mut crate::request::Request, _: &VarArg, _: &mut Vec<u8>) -> bool {
    false
}

impl VarRegistry {
    pub fn add_modules(&mut self, modules: &[&'static HttpModule]) {
        for v in modules.iter().flat_map(|m| m.variables.iter()) {
            match v.prefix {
                true => self.prefixes.push(v),
                false => drop(self.fixed.insert(v.name.as_bytes(), v)),
            }
        }
    }

    /// The number of a variable; the same name has the same number everywhere.
    pub fn number(&mut self, name: &[u8]) -> VarId {
        let name = name.to_ascii_lowercase();
        if let Some(id) = self.numbers.get(&name) {
            return *id;
        }
        let id = VarId(self.names.len() as u32);
        self.names.push(name.clone());
        self.numbers.insert(name, id);
        id
    }

    /// Defines a variable; a later definition of the same name replaces the earlier.
    pub fn define(&mut self, name: &[u8], def: Definition) -> VarId {
        let id = self.number(name);
        self.defined.insert(name.to_ascii_lowercase(), def);
        id
    }

    /// A variable that is only ever stored into. Core variables that cannot be changed refuse.
    pub fn assignable(&mut self, name: &[u8]) -> Result<VarId, String> {
        let lower = name.to_ascii_lowercase();
        let core = self.fixed.get(lower.as_slice());
        if core.is_some_and(|v| v.set.is_none()) {
            let shown = String::from_utf8_lossy(name);
            return Err(format!("the duplicate \"{shown}\" variable"));
        }
        if core.is_none() && !self.defined.contains_key(&lower) {
            let def = VarDef { get: no_value, set: None, arg: VarArg::default(), cached: false };
            return Ok(self.define(name, def));
        }
        Ok(self.number(name))
    }

    /// A variable that `set` stores into; `unset` answers while nothing is stored. A prefix
    /// variable of that name keeps its own value until then.
    pub fn settable(&mut self, name: &[u8], unset: Getter) -> Result<VarId, String> {
        let lower = name.to_ascii_lowercase();
        let is_prefixed = self.prefixes.iter().any(|v| lower.starts_with(v.name.as_bytes()));
        let known = self.fixed.contains_key(lower.as_slice()) || self.defined.contains_key(&lower);
        if known || is_prefixed {
            return if is_prefixed && !known {
                Ok(self.number(name))
            } else {
                self.assignable(name)
            };
        }
        let arg = VarArg { name: lower.as_slice().into(), data: 0 };
        Ok(self.define(name, VarDef { get: unset, set: None, arg, cached: false }))
    }

    /// The finished table, or the first name that nothing defines.
    pub fn resolve(&mut self) -> Result<Vec<VarDef>, Diagnostic> {
        let names = std::mem::take(&mut self.names);
        let known: Vec<Vec<u8>> = self.defined.keys().cloned().collect();
        let all = names.iter().map(|n| {
            self.resolve_one(n).map_err(|text| Diagnostic {
                hint: self.nearest(n, &known),
                ..Diagnostic::emerg(text)
            })
        });
        all.collect()
    }

    /// The name that may have been meant.
    fn nearest(&self, name: &[u8], defined: &[Vec<u8>]) -> Option<String> {
        let known = defined.iter().map(Vec::as_slice).chain(self.fixed.keys().copied());
        let known: Vec<&str> = known.filter_map(|n| std::str::from_utf8(n).ok()).collect();
        let near = weir_conf::suggest(&String::from_utf8_lossy(name), known)?;
        Some(format!("did you mean \"${near}\"?"))
    }

    /// A variable that a request asks for by its name (SSI), whether the configuration has named it
    /// or not.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Named> {
        if let Some(id) = self.numbers.get(name) {
            return Some(Named::Number(*id));
        }
        if let Some(v) = self.fixed.get(name) {
            return Some(Named::Getter(v.get, VarArg::default()));
        }
        self.prefixed(name).map(|(v, arg)| Named::Getter(v.get, arg))
    }

    /// The prefix variable that a name belongs to.
    fn prefixed(&self, name: &[u8]) -> Option<(&'static Variable, VarArg)> {
        let hit = self.prefixes.iter().filter(|v| name.starts_with(v.name.as_bytes()));
        let v = hit.max_by_key(|v| v.name.len())?;
        Some((v, VarArg { name: name[v.name.len()..].into(), data: 0 }))
    }

    fn resolve_one(&mut self, name: &[u8]) -> Result<VarDef, String> {
        if let Some(def) = self.defined.remove(name) {
            return Ok(def);
        }
        if let Some(v) = self.fixed.get(name) {
            return Ok(VarDef { get: v.get, set: v.set, arg: VarArg::default(), cached: v.cached });
        }
        if let Some((v, arg)) = self.prefixed(name) {
            return Ok(VarDef { get: v.get, set: v.set, arg, cached: v.cached });
        }
        Err(format!("unknown \"{}\" variable", String::from_utf8_lossy(name)))
    }
}

/// The registry of the `http` block being read.
pub fn registry(cf: &mut Cf) -> &mut VarRegistry {
    &mut cf.get::<CoreMain>().vars
}

/// Compiles an argument with variables.
pub fn template(cf: &mut Cf, d: &Directive, i: usize) -> Result<Template, Diagnostic> {
    template_of(cf, d, i, d.arg(i))
}

/// Compiles part of an argument; errors point at the argument.
pub fn template_of(
    cf: &mut Cf,
    d: &Directive,
    i: usize,
    text: &[u8],
) -> Result<Template, Diagnostic> {
    let vars = registry(cf);
    Template::compile(text, &mut |name| Ok(vars.number(name))).map_err(|e| d.bad(i, e))
}

/// A variable named as a directive's target: `$name`.
pub fn target(cf: &mut Cf, d: &Directive, i: usize) -> Result<VarId, Diagnostic> {
    let Some(name) = d.arg(i).strip_prefix(b"$").filter(|n| !n.is_empty()) else {
        let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
        return Err(d.bad(i, format!("invalid variable name \"{shown}\"")));
    };
    let name = name.to_vec();
    registry(cf).assignable(&name).map_err(|e| d.bad(i, e))
}

/// Defines `$name` by a getter with a number of its own.
pub fn define(
    cf: &mut Cf,
    d: &Directive,
    i: usize,
    get: Getter,
    data: usize,
    cached: bool,
) -> Result<VarId, Diagnostic> {
    let Some(name) = d.arg(i).strip_prefix(b"$").filter(|n| !n.is_empty()) else {
        let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
        return Err(d.bad(i, format!("invalid variable name \"{shown}\"")));
    };
    let name = name.to_vec();
    let arg = VarArg { name: name.as_slice().into(), data };
    Ok(registry(cf).define(&name, VarDef { get, set: None, arg, cached }))
}
