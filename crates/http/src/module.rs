//! The contract of an HTTP module: what it adds to configuration, variables, phases and filters.

use crate::buf::Chain;
use crate::build::Build;
use crate::conf::CoreMain;
use crate::generation::HttpConf;
use crate::request::Request;
use std::path::PathBuf;
use std::sync::Arc;
use weir_core::generation::Generation;
use weir_core::LocalFuture;
use weir_module::{Cf, ConfResult, Row, SlotVtable, Slots};

/// nginx's phases, in order. Find-config, post-rewrite and post-access are the engine's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    PostRead,
    ServerRewrite,
    Rewrite,
    Preaccess,
    Access,
    Precontent,
    Content,
    Log,
}

impl Phase {
    pub const COUNT: usize = 8;
}

/// The part of a handler that waits.
pub type WaitFn = for<'a> fn(&'a mut Request) -> LocalFuture<'a, Flow>;

/// What a handler decided.
pub enum Flow {
    /// Nothing to say: the next handler of the phase.
    Declined,
    /// Decided: go on with the next phase; from a content handler, the response is complete.
    Ok,
    /// Answer with this status: nginx's finalisation, `error_page` included.
    Status(u16),
    /// Go on in this function, which may wait.
    Wait(WaitFn),
    /// The URI changed: find the server's rewrite rules and the location again.
    Redirect,
    /// A named location was entered: go on at its rewrite phase.
    Named,
    /// Close the connection without an answer (444, client gone, half-sent response).
    Close,
}

pub type Handler = fn(&mut Request) -> Flow;

/// Whether the merged configuration of a location gives a handler or filter anything to do.
pub type Active = fn(&Slots) -> bool;

pub struct PhaseHandler {
    pub phase: Phase,
    pub handler: Handler,
    pub active: Active,
}

/// What can go wrong while output is filtered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilterError {
    /// Answer with this status instead; only before the header is sent.
    Status(u16),
    /// The response cannot be completed: close the connection.
    Broken,
}

pub type FilterResult = Result<(), FilterError>;

/// The filters behind the one that is running.
#[derive(Clone, Copy)]
pub struct Next(pub(crate) usize);

pub type HeaderFilter = fn(&mut Request, Next) -> FilterResult;
pub type BodyFilter = fn(&mut Request, Chain, Next) -> FilterResult;

/// Which answers a filter sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Each, a subrequest's too, before they are put together.
    Part,
    /// The main request's own, before those of its subrequests are put into it.
    Main,
    /// The whole, put together. These filters come last in the list.
    Whole,
}

/// A module's place in the filter chains. Filters run in the order of the module list.
pub struct Filter {
    pub header: Option<HeaderFilter>,
    pub body: Option<BodyFilter>,
    pub active: Active,
    pub reach: Reach,
}

pub use weir_core::variables::VarArg;
pub type Getter = weir_core::variables::Getter<Request>;
pub type VarSetter = weir_core::variables::Setter<Request>;
pub type Variable = weir_core::variables::Variable<Request>;

/// One HTTP module: a file, a line in the list, a test file.
pub struct HttpModule {
    pub name: &'static str,
    pub rows: &'static [Row],
    pub slots: &'static [SlotVtable],
    pub variables: &'static [Variable],
    pub phases: &'static [PhaseHandler],
    pub filter: Option<Filter>,
    /// Its body filter leaves a response alone in which its header filter put no context.
    pub body_on_demand: bool,
    /// Before the block is merged; may look at the main level's slots.
    pub prepare: Option<fn(&mut Cf) -> ConfResult>,
    /// After the merge: opens, resolves, makes zones. The last place that may fail.
    pub build: Option<fn(&mut Build) -> ConfResult>,
    /// The generation is about to be served by this process.
    pub start: Option<fn(&Arc<Generation>, &HttpConf)>,
    /// The directories that the workers' user writes to.
    pub dirs: Option<fn(&HttpConf) -> Vec<PathBuf>>,
    /// Whether connections are made from addresses that are not this machine's, which takes a right.
    pub binds_any_source: Option<fn(&HttpConf) -> bool>,
}

impl HttpModule {
    pub const EMPTY: HttpModule = HttpModule {
        name: "",
        rows: &[],
        slots: &[],
        variables: &[],
        phases: &[],
        filter: None,
        body_on_demand: false,
        prepare: None,
        build: None,
        start: None,
        dirs: None,
        binds_any_source: None,
    };
}

fn modules(http: &HttpConf) -> &'static [&'static HttpModule] {
    http.main.get::<CoreMain>().modules
}

/// A generation is about to be served by this process: what modules do besides answering requests.
pub fn start(gen: &Arc<Generation>) {
    let Some(http) = gen.part::<HttpConf>() else { return };
    modules(http).iter().filter_map(|m| m.start).for_each(|start| start(gen, http));
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

/// Whether a generation makes connections from addresses that are not this machine's.
pub fn binds_any_source(gen: &Generation) -> bool {
    let Some(http) = gen.part::<HttpConf>() else { return false };
    modules(http).iter().filter_map(|m| m.binds_any_source).any(|binds| binds(http))
}
