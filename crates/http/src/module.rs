//! The contract of an HTTP module: what it adds to configuration, variables, phases and filters.

use crate::conf::{CoreLoc, CoreMain, Satisfy};
use crate::generation::HttpConf;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::figures::Report;
use weir_core::generation::Generation;
use weir_core::variables::Named;
use weir_core::worker::AtWorker;
use weir_core::Worker;
use weir_module::{slot, Cf, ConfResult, ConfType, Level, Row, SlotVtable, Slots};

pub use crate::flow::{
    Active, BodyFilter, Filter, FilterError, FilterResult, Flow, Getter, Handler, HeaderFilter,
    Next, Phase, PhaseHandler, Reach, Resume, VarArg, VarSetter, Variable, WaitFn,
};

/// What a module's build step works on: everything merged.
///
/// Slots are shared by all locations and servers in which they are the same, so that what a build step
/// makes of one is put into it by a `OnceLock` (see [`weir_module::distinct`]). `CoreSrv` alone is each server's own.
pub struct Build<'a> {
    /// For paths, files that are read, warnings, and whether this is a test.
    pub cf: &'a mut Cf,
    /// The `http` block's own location level, which others have inherited from.
    pub outer: &'a Slots,
    /// The main level's slots.
    pub main: &'a mut Slots,
    /// Each server's own slots and those it has inherited.
    pub servers: &'a mut [Slots],
    /// Those of all servers' locations, by their numbers.
    pub locations: &'a [Slots],
}

impl Build<'_> {
    /// Whether the configuration names that variable anywhere.
    pub fn names_variable(&self, name: &str) -> bool {
        let vars = &self.main.get::<CoreMain>().vars;
        matches!(vars.find(name.as_bytes()), Some(Named::Number(_)))
    }
}

/// One HTTP module: a file, a line in the list, a test file.
pub struct HttpModule {
    /// Its directives.
    pub rows: &'static [Row],
    /// What they are parsed into.
    pub slots: &'static [SlotVtable],
    /// `$…`.
    pub variables: &'static [Variable],
    /// What it does with requests.
    pub phases: &'static [PhaseHandler],
    /// Of a module that decides who may: whether it lets strangers in even so, as `allow all` does.
    pub lets_in: Option<Active>,
    /// What it does with responses.
    pub filter: Option<Filter>,
    /// Its body filter leaves a response alone in which its header filter put no context.
    pub body_on_demand: bool,
    /// Before the block is merged; may look at the main level's slots.
    pub prepare: Option<fn(&mut Cf) -> ConfResult>,
    /// After the merge: opens, resolves, makes zones. The last place that may fail.
    pub build: Option<fn(&mut Build) -> ConfResult>,
    /// The generation is about to be served by this process.
    pub start: Option<fn(&Arc<Generation>, &HttpConf)>,
    /// A worker serves by its newest generation from now on, one of so many workers.
    pub serves: Option<fn(&Rc<Worker>, usize)>,
    /// The directories that the workers' user writes to.
    pub dirs: Option<fn(&HttpConf) -> Vec<PathBuf>>,
    /// What it does with workers.
    pub at_worker: AtWorker,
    /// For status pages.
    pub reports: &'static [Report],
    /// Whether connections are made from addresses that are not this machine's, which takes a right.
    pub binds_any_source: Option<fn(&HttpConf) -> bool>,
}

impl HttpModule {
    /// Adds nothing: for the fields that a module leaves out.
    pub const EMPTY: HttpModule = HttpModule {
        rows: &[],
        slots: &[],
        variables: &[],
        phases: &[],
        lets_in: None,
        filter: None,
        body_on_demand: false,
        prepare: None,
        build: None,
        start: None,
        serves: None,
        dirs: None,
        at_worker: AtWorker::NOTHING,
        reports: &[],
        binds_any_source: None,
    };
}

/// The modules of the block, in their order.
#[derive(Default)]
pub(crate) struct Modules(pub &'static [&'static HttpModule]);

impl ConfType for Modules {
    const LEVEL: Level = Level::Main;
    slot!();
}

fn modules(http: &HttpConf) -> &'static [&'static HttpModule] {
    http.main.get::<Modules>().0
}

/// A generation is about to be served by this process: what modules do besides answering requests.
pub fn start(gen: &Arc<Generation>) {
    let Some(http) = gen.part::<HttpConf>() else { return };
    modules(http).iter().filter_map(|m| m.start).for_each(|start| start(gen, http));
}

/// A worker serves by its newest generation from now on, one of so many workers.
pub fn serves(worker: &Rc<Worker>, workers: usize) {
    let gen = worker.generation();
    let Some(http) = gen.shared.part::<HttpConf>() else { return };
    modules(http).iter().filter_map(|m| m.serves).for_each(|serves| serves(worker, workers));
}

/// The directories of a generation that the workers' user writes to.
pub fn dirs(gen: &Generation) -> Vec<PathBuf> {
    let Some(http) = gen.part::<HttpConf>() else { return Vec::new() };
    let mut dirs: Vec<_> =
        modules(http).iter().filter_map(|m| m.dirs).flat_map(|dirs| dirs(http)).collect();
    dirs.sort();
    dirs.dedup();
    dirs
}

/// What modules report, and by which slots.
pub fn reports(gen: &Generation) -> (Vec<Report>, Option<&Slots>) {
    match gen.part::<HttpConf>() {
        Some(http) => (
            modules(http).iter().flat_map(|m| m.reports.iter().copied()).collect(),
            Some(&http.main),
        ),
        None => (Vec::new(), None),
    }
}

/// Whether strangers are kept out of a location, by what the modules of the block with that main level say.
pub fn keeps_strangers_out(main: &Slots, location: &Slots) -> bool {
    let decides = |m: &&&HttpModule| {
        m.phases.iter().any(|h| h.phase == Phase::Access && (h.active)(location))
    };
    let mut deciding = main.get::<Modules>().0.iter().filter(decides).peekable();
    let keeps_out = |m: &&HttpModule| m.lets_in.is_none_or(|lets_in| !lets_in(location));
    match *location.get::<CoreLoc>().satisfy {
        // Who lets somebody in does so for all.
        Satisfy::Any => deciding.peek().is_some() && deciding.all(keeps_out),
        Satisfy::All => deciding.any(keeps_out),
    }
}

/// Whether a generation makes connections from addresses that are not this machine's.
pub fn binds_any_source(gen: &Generation) -> bool {
    let Some(http) = gen.part::<HttpConf>() else { return false };
    modules(http).iter().filter_map(|m| m.binds_any_source).any(|binds| binds(http))
}
