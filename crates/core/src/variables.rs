//! Variables as modules define them, over the session that has their values.

use weir_script::template::VarId;

/// A variable's value is appended to the buffer; `false` means it has none ("not found").
pub type Getter<S> = fn(&mut S, &VarArg, &mut Vec<u8>) -> bool;
/// Stores into a variable that is more than its kept value.
pub type Setter<S> = fn(&mut S, &VarArg, &[u8]);

/// What a getter is called with: the rest of a prefix variable's name, and a number of its own.
#[derive(Clone, Default, Debug)]
pub struct VarArg {
    /// `x` of `$arg_x`; empty for a variable without a prefix.
    pub name: Box<[u8]>,
    /// The module's own, such as a number in its configuration.
    pub data: usize,
}

/// A variable that a module brings.
pub struct Variable<S> {
    /// A name, or a prefix that ends in `_` when `prefix` is set (`arg_`, `http_`).
    pub name: &'static str,
    /// It stands for all names that begin so.
    pub prefix: bool,
    /// Asked when the value is used, not before.
    pub get: Getter<S>,
    /// `None`: `set` and captures replace the kept value.
    pub set: Option<Setter<S>>,
    /// Evaluated once per session and kept.
    pub cached: bool,
    /// A directive that defines the name, or sets it, is taken as if there were no such variable.
    pub weak: bool,
}

impl<S> Variable<S> {
    /// Evaluated at each use, by no setter.
    pub const fn new(name: &'static str, get: Getter<S>) -> Variable<S> {
        Variable { name, prefix: false, get, set: None, cached: false, weak: false }
    }

    /// As [`Variable::new`], for all names that begin with `name`.
    pub const fn prefixed(name: &'static str, get: Getter<S>) -> Variable<S> {
        Variable { name, prefix: true, get, set: None, cached: false, weak: false }
    }

    /// Has it evaluated once: its value must not change, or its cost is worth it.
    pub const fn cached(mut self) -> Variable<S> {
        self.cached = true;
        self
    }

    /// Has it give way to one that the configuration makes: nginx does not know it.
    pub const fn weak(mut self) -> Variable<S> {
        self.weak = true;
        self
    }

    /// Has `set` called where the configuration assigns to it.
    pub const fn settable(mut self, set: Setter<S>) -> Variable<S> {
        self.set = Some(set);
        self
    }
}

/// A variable as resolved at load.
pub struct VarDef<S> {
    /// The module's.
    pub get: Getter<S>,
    /// The module's, if it has one.
    pub set: Option<Setter<S>>,
    /// For both.
    pub arg: VarArg,
    /// Evaluated once per session and kept.
    pub cached: bool,
}

/// A variable found by its name.
pub enum Named<S> {
    /// The configuration names it: it has a place among the kept values.
    Number(VarId),
    /// It does not, and is evaluated for who asks now.
    Getter(Getter<S>, VarArg),
}
