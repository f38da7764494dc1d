//! Steps of programs that other modules bring: they run in order with `set`, `if` and `rewrite`.

use super::compile;
use super::run::{self, Failed};
use super::{Op, IN_PROGRAM};
use weir_http::Request;
use weir_module::{Cf, ConfResult, Context, Directive};
use weir_script::template::{Template, VarId};

/// Where directives that are steps may stand.
pub const CONTEXTS: Context = IN_PROGRAM;

/// Whether a step looks at a request's body.
pub type Wants = fn(&Request) -> bool;

/// A step of a program.
pub trait Step: Send + Sync {
    /// Of which requests it looks at the body, which is read before the program runs. Steps that do so agree on it.
    fn wants_body(&self) -> Option<Wants> {
        None
    }

    /// Does it, without waiting.
    ///
    /// # Errors
    ///
    /// The request ends with 500; the step has logged why.
    fn run(&self, at: &mut Program<'_>) -> Result<(), Failed>;
}

/// The program that runs, as its steps see it.
pub struct Program<'a> {
    /// The request that it runs for.
    pub r: &'a mut Request,
    pub(super) quote: bool,
}

impl Program<'_> {
    /// Appends what a string comes to, with captures as `set` has them.
    pub fn eval(&mut self, template: &Template, out: &mut Vec<u8>) {
        run::eval(self.r, template, self.quote, out);
    }
}

/// Appends a step to the program of the level that is being read.
pub fn append(cf: &mut Cf, step: impl Step + 'static) {
    compile::push(cf, Op::Other(Box::new(step)));
}

/// The variable (`$name`) that a word of argument `at` names for a step to set.
///
/// # Errors
///
/// It is no variable's name, or that of one which cannot be set.
pub fn variable(cf: &mut Cf, d: &Directive, at: usize, word: &[u8]) -> ConfResult<VarId> {
    compile::settable(cf, d, at, word)
}
