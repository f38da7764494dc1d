//! The contract of a stream module: what it adds to configuration, variables and phases.

use crate::build::Build;
use crate::conf::StreamMain;
use crate::generation::StreamConf;
use crate::Session;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::block;
use weir_core::figures::Report;
use weir_core::generation::Generation;
use weir_core::{LocalFuture, Worker};
use weir_module::{ConfResult, Row, SlotVtable, Slots};

/// nginx's phases, in order, without those that are the engine's own (TLS, preread, content).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Behind a PROXY header.
    PostAccept,
    /// How many there may be.
    Preaccess,
    /// Who there may be.
    Access,
    /// The session is over.
    Log,
}

impl Phase {
    pub(crate) const COUNT: usize = 4;
}

/// What a handler decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Nothing to say: the next handler of the phase.
    Declined,
    /// Decided: go on with the next phase.
    Ok,
    /// The session ends with this status.
    Status(u16),
}

/// What a module does in a phase.
pub type Handler = fn(&mut Session) -> Flow;

/// Whether the merged configuration of a server gives a handler anything to do.
pub type Active = fn(&Slots) -> bool;

/// A handler, and the phase it is for.
pub struct PhaseHandler {
    /// Handlers of a phase are asked in the order of the modules.
    pub phase: Phase,
    /// It does not wait.
    pub handler: Handler,
    /// Whether a server keeps it.
    pub active: Active,
}

/// What the first bytes have told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// All there is to know.
    Enough,
    /// More bytes are needed.
    More,
}

/// How the first bytes are looked at.
#[derive(Clone, Copy)]
pub enum Look {
    /// Called anew with more bytes until it has seen enough, or `preread_buffer_size` or `preread_timeout` ends it.
    AtBytes(fn(&mut Session) -> Seen),
    /// It waits for what it needs itself ([`Session::peek`]), and is asked about datagrams too; an error is the
    /// status that the session ends with.
    ByItself(for<'a> fn(&'a mut Session) -> LocalFuture<'a, Result<(), u16>>),
}

/// Looks at the first bytes of a session, which may not be all that are needed.
#[derive(Clone, Copy)]
pub struct Prereader {
    /// In the order of the modules.
    pub look: Look,
    /// Whether a server keeps it; where none is kept no byte is waited for.
    pub active: Active,
}

/// What is done with a session's bytes; its future ends with the status of the session.
pub type Content = for<'a> fn(&'a mut Session) -> LocalFuture<'a, u16>;

/// One stream module: a file, a line in the list, a test file.
pub struct StreamModule {
    /// Its directives.
    pub rows: &'static [Row],
    /// What they are parsed into.
    pub slots: &'static [SlotVtable],
    /// `$…`.
    pub variables: &'static [weir_core::variables::Variable<Session>],
    /// What it does with sessions.
    pub phases: &'static [PhaseHandler],
    /// For who needs the first bytes.
    pub prereader: Option<Prereader>,
    /// After the merge: opens, resolves, makes zones. The last place that may fail.
    pub build: Option<fn(&mut Build) -> ConfResult>,
    /// The generation is about to be served by this process.
    pub start: Option<fn(&Arc<Generation>, &StreamConf)>,
    /// A worker serves by its newest generation from now on, one of so many workers.
    pub serves: Option<fn(&Rc<Worker>, usize)>,
    /// Whether connections are made from addresses that are not this machine's, which takes a right.
    pub binds_any_source: Option<fn(&StreamConf) -> bool>,
    /// For status pages.
    pub reports: &'static [Report],
}

impl block::Module for StreamModule {
    fn slots(&self) -> &'static [SlotVtable] {
        self.slots
    }

    fn build(&self) -> Option<fn(&mut Build) -> ConfResult> {
        self.build
    }
}

impl StreamModule {
    /// Adds nothing: for the fields that a module leaves out.
    pub const EMPTY: StreamModule = StreamModule {
        rows: &[],
        slots: &[],
        variables: &[],
        phases: &[],
        prereader: None,
        build: None,
        start: None,
        serves: None,
        binds_any_source: None,
        reports: &[],
    };
}

/// A generation is about to be served by this process: what modules do besides serving sessions.
pub fn start(gen: &Arc<Generation>) {
    let Some(stream) = gen.part::<StreamConf>() else { return };
    let modules = stream.main.get::<StreamMain>().modules;
    modules.iter().filter_map(|m| m.start).for_each(|start| start(gen, stream));
}

/// A worker serves by its newest generation from now on, one of so many workers.
pub fn serves(worker: &Rc<Worker>, workers: usize) {
    let gen = worker.generation();
    let Some(stream) = gen.shared.part::<StreamConf>() else { return };
    let modules = stream.main.get::<StreamMain>().modules;
    modules.iter().filter_map(|m| m.serves).for_each(|serves| serves(worker, workers));
}

/// What modules report, and by which slots.
pub fn reports(gen: &Generation) -> (Vec<Report>, Option<&Slots>) {
    let Some(stream) = gen.part::<StreamConf>() else { return (Vec::new(), None) };
    let modules = stream.main.get::<StreamMain>().modules;
    (modules.iter().flat_map(|m| m.reports.iter().copied()).collect(), Some(&stream.main))
}

/// Whether a generation makes connections from addresses that are not this machine's.
pub fn binds_any_source(gen: &Generation) -> bool {
    let Some(stream) = gen.part::<StreamConf>() else { return false };
    let modules = stream.main.get::<StreamMain>().modules;
    modules.iter().filter_map(|m| m.binds_any_source).any(|binds| binds(stream))
}
