//! The contract of a mail module: what it adds to configuration, variables and sessions.

use crate::Session;
use weir_core::block::{self, Build};
use weir_core::variables::Variable;
use weir_module::{ConfResult, Row, SlotVtable, Slots};

/// Whether the merged configuration of a server gives a handler anything to do.
pub type Active = fn(&Slots) -> bool;

/// What is done with a session at one of its moments.
#[derive(Clone, Copy)]
pub struct Handler {
    /// Is called with the session.
    pub handler: fn(&mut Session),
    /// Whether it is.
    pub active: Active,
}

/// One mail module: a file, a line in the list, a test file.
pub struct MailModule {
    /// Its directives.
    pub rows: &'static [Row],
    /// What it keeps of the configuration.
    pub slots: &'static [SlotVtable],
    /// No directive of `mail` has strings with variables: the engine itself asks for some by their names.
    pub variables: &'static [Variable<Session>],
    /// What it does with a session once its client is known, before anything is said.
    pub accepted: Option<Handler>,
    /// What it does with one that is over.
    pub logged: Option<Handler>,
    /// After the merge: opens, resolves, makes zones. The last place that may fail.
    pub build: Option<fn(&mut Build) -> ConfResult>,
}

impl block::Module for MailModule {
    fn slots(&self) -> &'static [SlotVtable] {
        self.slots
    }

    fn build(&self) -> Option<fn(&mut Build) -> ConfResult> {
        self.build
    }
}

impl MailModule {
    /// Nothing of all that.
    pub const EMPTY: MailModule = MailModule {
        rows: &[],
        slots: &[],
        variables: &[],
        accepted: None,
        logged: None,
        build: None,
    };
}
