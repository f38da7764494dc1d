//! `rewrite`, `if`, `set`, `return`, `break` (nginx's `ngx_http_rewrite_module`).
//!
//! Directives become operations of one small program per server and location, which runs in the
//! server-rewrite and rewrite phases. As in nginx a program is not inherited, and an `if` block's
//! operations belong to the program around it; in a location the block is also an unnamed
//! location that is entered when the condition holds.
//!
//! Difference from nginx: a regular expression that reaches its match limit ends the request with
//! 500, as every matching error does there; the limit itself is lower.

mod compile;
mod run;
mod step;

pub use run::Failed;
pub use step::{append, variable, Program, Step, Wants, CONTEXTS};

use weir_http::module::{HttpModule, Phase, PhaseHandler};
use weir_module::{
    merge_values, slot, Arity, ConfResult, ConfType, Context, Level, Row, RowBody, SlotVtable,
    Slots, Val,
};

use crate::util::SharedBytes;
use weir_core::registry::NamedRegex;
use weir_script::template::{Template, VarId};

/// One step of a program.
pub(crate) enum Op {
    Set(VarId, Template),
    /// When the condition does not hold the program goes on at `next`.
    If {
        cond: Cond,
        /// The unnamed location to enter; none for an `if` in a server.
        location: Option<usize>,
        next: usize,
    },
    Rewrite(Box<Rewrite>),
    Return(Box<Return>),
    Break,
    /// Another module's.
    Other(Box<dyn Step>),
}

pub(crate) enum Cond {
    True(VarId),
    Equal {
        var: VarId,
        value: Template,
        negated: bool,
    },
    /// Of numbers; what is none is in no order.
    Order {
        var: VarId,
        value: Template,
        holds: fn(&u64, &u64) -> bool,
    },
    Match {
        var: VarId,
        regex: NamedRegex,
        negated: bool,
    },
    File {
        path: Template,
        test: FileTest,
        negated: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileTest {
    Plain,
    Directory,
    Exists,
    Executable,
}

pub(crate) struct Rewrite {
    regex: NamedRegex,
    /// The new path; for a redirect the whole target.
    path: Template,
    /// What follows the first `?` of a replacement that stays inside.
    args: Option<Template>,
    /// A redirect's target has a `?`.
    has_args: bool,
    /// The request's own arguments are appended.
    add_args: bool,
    redirect: Option<u16>,
    break_cycle: bool,
    /// The program ends when the expression has matched.
    last: bool,
}

pub(crate) struct Return {
    status: u16,
    text: Text,
}

enum Text {
    None,
    Constant(SharedBytes),
    Computed(Template),
}

/// `http` level: the program that an `if` block being read belongs to.
#[derive(Default)]
pub(crate) struct RewriteMain {
    open: Option<Vec<Op>>,
}

impl ConfType for RewriteMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

#[derive(Default)]
pub(crate) struct RewriteLoc {
    ops: Vec<Op>,
    /// An `if` block's location: its parent's handlers stay in their places.
    inside_if: bool,
    /// Of which requests its steps look at the body.
    wants_body: Option<step::Wants>,
    log: Val<bool>,
    warn: Val<bool>,
}

impl ConfType for RewriteLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &RewriteLoc) -> ConfResult {
        merge_values!(self, parent; log = false, warn = true);
        self.wants_body = self.ops.iter().find_map(|op| match op {
            Op::Other(step) => step.wants_body(),
            _ => None,
        });
        Ok(())
    }
}

const IN_PROGRAM: Context = Context::SERVER.or(Context::SIF).or(Context::LOCATION).or(Context::LIF);
const SETTINGS: Context = Context::HTTP.or(IN_PROGRAM);

const ROWS: &[Row] = &[
    Row::new(
        "rewrite",
        IN_PROGRAM,
        Arity::TWO_THREE,
        "",
        "Changes the URI, or redirects, when an expression matches.",
        compile::set_rewrite,
    ),
    Row::new(
        "return",
        IN_PROGRAM,
        Arity::ONE_TWO,
        "",
        "Ends the request with a status, a text or a redirect.",
        compile::set_return,
    )
    .note("Line ends that a variable brings along into Location are encoded (also by rewrite and error_page), with a line in the error log; nginx sends them."),
    Row::new(
        "break",
        IN_PROGRAM,
        Arity::NONE,
        "",
        "Ends the rewriting of this phase.",
        compile::set_break,
    ),
    Row {
        name: "if",
        contexts: Context::SERVER.or(Context::LOCATION),
        arity: Arity::ONE_MORE,
        body: RowBody::Block,
        default: "",
        doc: "A block that holds only when its condition does.",
        note: "Numbers are compared by <, >, <= and >=, too, as in Tengine: whole ones that are not negative; of anything else \
               no comparison holds.",
        is_once: false,
        set: compile::set_if,
    },
    Row::new("set", IN_PROGRAM, Arity::TWO, "", "Gives a variable a value.", compile::set_set),
    Row::new(
        "rewrite_log",
        SETTINGS,
        Arity::FLAG,
        "off",
        "Logs what expressions matched at the level notice.",
        compile::set_log,
    ),
    Row::new(
        "uninitialized_variable_warn",
        SETTINGS,
        Arity::FLAG,
        "on",
        "Warns about variables that are used before they are set.",
        compile::set_warn,
    ),
];

fn active(slots: &Slots) -> bool {
    let conf = slots.get::<RewriteLoc>();
    !conf.ops.is_empty() || conf.inside_if
}

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<RewriteMain>(), SlotVtable::of::<RewriteLoc>()],
    phases: &[
        PhaseHandler { phase: Phase::ServerRewrite, handler: run::server, active },
        PhaseHandler { phase: Phase::Rewrite, handler: run::location, active },
    ],
    ..HttpModule::EMPTY
};
