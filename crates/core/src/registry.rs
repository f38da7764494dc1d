//! Variables at load time: their names, their numbers, what defines them.

use crate::session::Session;
use crate::variables::{Getter, Named, Setter, VarArg, VarDef, Variable};
use foldhash::{HashMap, HashMapExt as _};
use std::sync::Arc;
use weir_module::{ArgsExt, Cf, Diagnostic, Directive};
use weir_script::regex::{Regex, RegexOptions};
use weir_script::template::{Template, VarId};

/// A compiled expression and the variables its named groups set.
pub type NamedRegex = (Arc<Regex>, Vec<(usize, VarId)>);

/// The variables of one protocol's block while it is read.
pub struct VarRegistry<S: 'static> {
    fixed: HashMap<&'static [u8], &'static Variable<S>>,
    prefixes: Vec<&'static Variable<S>>,
    /// By directives (`map`, `set`, named captures).
    defined: HashMap<Vec<u8>, VarDef<S>>,
    /// Names in the order of their numbers.
    names: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, VarId>,
}

/// A variable that `set` or a named capture makes has no value until then.
fn no_value<S>(_: &mut S, _: &VarArg, _: &mut Vec<u8>) -> bool {
    false
}

impl<S> Default for VarRegistry<S> {
    fn default() -> Self {
        VarRegistry {
            fixed: HashMap::new(),
            prefixes: Vec::new(),
            defined: HashMap::new(),
            names: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

impl<S> VarRegistry<S> {
    /// Adds the variables that a module brings.
    pub fn add(&mut self, variables: &'static [Variable<S>]) {
        for v in variables {
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
    pub fn define(&mut self, name: &[u8], def: VarDef<S>) -> VarId {
        let id = self.number(name);
        self.defined.insert(name.to_ascii_lowercase(), def);
        id
    }

    /// A variable that is only ever stored into. Core variables that cannot be changed refuse.
    pub(crate) fn assignable(&mut self, name: &[u8]) -> Result<VarId, String> {
        let lower = name.to_ascii_lowercase();
        let core = self.fixed.get(lower.as_slice()).filter(|v| !v.weak);
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
    pub fn settable(&mut self, name: &[u8], unset: Getter<S>) -> Result<VarId, String> {
        let lower = name.to_ascii_lowercase();
        let is_prefix = |v: &&'static Variable<S>| !v.weak && lower.starts_with(v.name.as_bytes());
        let is_prefixed = self.prefixes.iter().any(is_prefix);
        let core = self.fixed.get(lower.as_slice()).filter(|v| !v.weak);
        let known = core.is_some() || self.defined.contains_key(&lower);
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
    pub fn resolve(&mut self) -> Result<Vec<VarDef<S>>, Diagnostic> {
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
    pub fn find(&self, name: &[u8]) -> Option<Named<S>> {
        if let Some(id) = self.numbers.get(name) {
            return Some(Named::Number(*id));
        }
        if let Some(v) = self.fixed.get(name) {
            return Some(Named::Getter(v.get, VarArg::default()));
        }
        self.prefixed(name).map(|(v, arg)| Named::Getter(v.get, arg))
    }

    /// Whether code may give the variable a value: it has a setter, or is kept and nothing else.
    pub fn is_changeable(&self, name: &[u8]) -> bool {
        match self.fixed.get(name) {
            Some(v) => v.set.is_some() || v.weak && self.numbers.contains_key(name),
            None => self.numbers.contains_key(name),
        }
    }

    /// What takes a value for a variable that no number is known of.
    pub fn setter(&self, name: &[u8]) -> Option<Setter<S>> {
        self.fixed.get(name).and_then(|v| v.set)
    }

    /// The prefix variable that a name belongs to.
    fn prefixed(&self, name: &[u8]) -> Option<(&'static Variable<S>, VarArg)> {
        let hit = self.prefixes.iter().filter(|v| name.starts_with(v.name.as_bytes()));
        let v = hit.max_by_key(|v| v.name.len())?;
        Some((v, VarArg { name: name[v.name.len()..].into(), data: 0 }))
    }

    fn resolve_one(&mut self, name: &[u8]) -> Result<VarDef<S>, String> {
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

/// Compiles an argument with variables.
pub fn template<S: Session>(cf: &mut Cf, d: &Directive, i: usize) -> Result<Template, Diagnostic> {
    template_of::<S>(cf, d, i, d.arg(i))
}

/// The same of a size: one without variables must be one.
pub fn size_template<S: Session>(
    cf: &mut Cf,
    d: &Directive,
    i: usize,
) -> Result<Template, Diagnostic> {
    let size = template::<S>(cf, d, i)?;
    if size.as_constant().is_some() {
        d.size(i)?;
    }
    Ok(size)
}

/// Compiles part of an argument; errors point at the argument.
pub fn template_of<S: Session>(
    cf: &mut Cf,
    d: &Directive,
    i: usize,
    text: &[u8],
) -> Result<Template, Diagnostic> {
    let vars = S::registry(cf);
    Template::compile(text, &mut |name| Ok(vars.number(name))).map_err(|e| d.bad(i, e))
}

/// A variable named as a directive's target: `$name`.
pub fn target<S: Session>(cf: &mut Cf, d: &Directive, i: usize) -> Result<VarId, Diagnostic> {
    let Some(name) = d.arg(i).strip_prefix(b"$").filter(|n| !n.is_empty()) else {
        let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
        return Err(d.bad(i, format!("invalid variable name \"{shown}\"")));
    };
    let name = name.to_vec();
    S::registry(cf).assignable(&name).map_err(|e| d.bad(i, e))
}

/// Defines `$name` by a getter with a number of its own.
pub fn define<S: Session>(
    cf: &mut Cf,
    d: &Directive,
    i: usize,
    get: Getter<S>,
    data: usize,
    cached: bool,
) -> Result<VarId, Diagnostic> {
    let Some(name) = d.arg(i).strip_prefix(b"$").filter(|n| !n.is_empty()) else {
        let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
        return Err(d.bad(i, format!("invalid variable name \"{shown}\"")));
    };
    let name = name.to_vec();
    let arg = VarArg { name: name.as_slice().into(), data };
    Ok(S::registry(cf).define(&name, VarDef { get, set: None, arg, cached }))
}

/// Compiles a regular expression and numbers the variables of its named groups.
pub fn named_regex<S: Session>(
    cf: &mut Cf,
    d: &Directive,
    i: usize,
    pattern: &[u8],
    caseless: bool,
) -> Result<NamedRegex, Diagnostic> {
    let options = RegexOptions { caseless, ..RegexOptions::default() };
    let regex = Regex::new(pattern, options).map_err(|e| d.bad(i, e.to_string()))?;
    let names: Vec<(String, usize)> = regex.names().map(|(n, at)| (n.to_string(), at)).collect();
    let mut vars = Vec::with_capacity(names.len());
    for (name, at) in names {
        let id = S::registry(cf).assignable(name.as_bytes()).map_err(|e| d.bad(i, e))?;
        vars.push((at, id));
    }
    Ok((Arc::new(regex), vars))
}
