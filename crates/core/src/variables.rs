//! Variables as modules define them, over the session that has their values.

use weir_script::template::VarId;

/// A variable's value is appended to the buffer; `false` means it has none ("not found").
pub type Getter<S> = fn(&mut S, &VarArg, &mut Vec<u8>) -> bool;
/// Stores into a variable that is more than its kept value.
pub type Setter<S> = fn(&mut S, &VarArg, &[u8]);

/// What a getter is called with: the rest of a prefix variable's name, and a number of its own.
#[derive(Clone, Default, Debug)]
pub struct VarArg {
    pub name: Box<[u8]>,
    pub data: usize,
}

/// A variable that a module brings.
pub struct Variable<S> {
    /// A name, or a prefix that ends in `_` when `prefix` is set (`arg_`, `http_`).
    pub name: &'static str,
    pub prefix: bool,
    pub get: Getter<S>,
    pub set: Option<Setter<S>>,
    /// Evaluated once per session and kept.
    pub cached: bool,
}

impl<S> Variable<S> {
    pub const fn new(name: &'static str, get: Getter<S>) -> Variable<S> {
        Variable { name, prefix: false, get, set: None, cached: false }
    }

    pub const fn prefixed(name: &'static str, get: Getter<S>) -> Variable<S> {
        Variable { name, prefix: true, get, set: None, cached: false }
    }

    pub const fn cached(mut self) -> Variable<S> {
        self.cached = true;
        self
    }

    pub const fn settable(mut self, set: Setter<S>) -> Variable<S> {
        self.set = Some(set);
        self
    }
}

/// A variable as resolved at load.
pub struct VarDef<S> {
    pub get: Getter<S>,
    pub set: Option<Setter<S>>,
    pub arg: VarArg,
    pub cached: bool,
}

/// A variable found by its name.
pub enum Named<S> {
    Number(VarId),
    Getter(Getter<S>, VarArg),
}
