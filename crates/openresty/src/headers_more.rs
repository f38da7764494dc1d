//! `more_set_headers` and its kin: fields of the answer and of the request are set and taken away, also those that
//! the server makes itself (OpenResty's headers-more).
//!
//! Directives of outer levels run before a location's own. Those of the answer run in a header filter, ahead of
//! `add_header`; those of the request at the end of the rewrite phase.

mod input;
mod output;
mod parse;

use std::sync::Arc;
use weir_http::module::{Filter, HttpModule, Phase, PhaseHandler, Reach};
use weir_module::{slot, Arity, ConfResult, ConfType, Context, Level, Row, SlotVtable};
use weir_script::template::Template;

/// One directive.
struct Command {
    fields: Vec<Field>,
    /// Of the answer, or of the request; empty for any.
    types: Vec<Vec<u8>>,
    /// Empty for any.
    statuses: Vec<u16>,
    /// Only fields that are there are given the value.
    replace: bool,
}

struct Field {
    /// Without the `*` that stands for any end.
    name: Vec<u8>,
    wildcard: bool,
    /// An empty value takes the field away.
    value: Template,
    /// The field is added, whatever there is.
    append: bool,
}

impl Field {
    fn is_named(&self, name: &[u8]) -> bool {
        match self.wildcard {
            true => weir_base::bytes::starts_with_ignore_case(name, &self.name),
            false => name.eq_ignore_ascii_case(&self.name),
        }
    }
}

type Commands = Vec<Arc<Command>>;

#[derive(Default)]
struct MoreLoc {
    output: Commands,
    input: Commands,
}

impl ConfType for MoreLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &MoreLoc) -> ConfResult {
        self.output.splice(..0, parent.output.iter().cloned());
        self.input.splice(..0, parent.input.iter().cloned());
        Ok(())
    }
}

const CONTEXTS: Context = Context::HSL.or(Context::LIF);

const ROWS: &[Row] = &[
    Row::new(
        "more_set_headers",
        CONTEXTS,
        Arity::ONE_MORE,
        "",
        "Sets fields of the answer, whatever its status: -s and -t name statuses and types, -a adds beside those there are.",
        |cf, d| parse::read(cf, d, parse::Kind::SetOutput),
    )
    .note("Line ends that a variable brings along become spaces, with a line in the error log. A Content-Length other than the answer's ends the connection behind it."),
    Row::new(
        "more_clear_headers",
        CONTEXTS,
        Arity::ONE_MORE,
        "",
        "Takes fields out of the answer; a * at a name's end stands for any end.",
        |cf, d| parse::read(cf, d, parse::Kind::ClearOutput),
    )
    .note("It runs before expires and add_header, whose fields are sent; OpenResty leaves out an Expires that was cleared before."),
    Row::new(
        "more_set_input_headers",
        CONTEXTS,
        Arity::ONE_MORE,
        "",
        "Sets fields of the request, for all that looks at them later: -t names its types, -r replaces only those there are.",
        |cf, d| parse::read(cf, d, parse::Kind::SetInput),
    )
    .note("Content-Length is shown and the body stays as long as it is. A Host that is none is answered with 400. What a subrequest is given its main request does not see."),
    Row::new(
        "more_clear_input_headers",
        CONTEXTS,
        Arity::ONE_MORE,
        "",
        "Takes fields out of the request; a * at a name's end stands for any end.",
        |cf, d| parse::read(cf, d, parse::Kind::ClearInput),
    )
    .note("With its Content-Length the request loses a body that has not been read; what comes of it is thrown away."),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<MoreLoc>()],
    phases: &[PhaseHandler {
        phase: Phase::Rewrite,
        handler: input::handler,
        active: |slots| !slots.get::<MoreLoc>().input.is_empty(),
    }],
    filter: Some(Filter {
        header: Some(output::header),
        body: None,
        active: |slots| !slots.get::<MoreLoc>().output.is_empty(),
        reach: Reach::Every,
    }),
    ..HttpModule::EMPTY
};
