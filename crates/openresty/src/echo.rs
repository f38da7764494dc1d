//! `echo` and its kin: answers that the configuration says, pauses, subrequests in order (OpenResty's echo).
//!
//! The directives of a location are one small program, which runs as its content handler. Its output goes no
//! further ahead of the client than a buffer, a pause ends when the client goes, and parts are bounded as a
//! page's are.

mod around;
mod parse;
mod parts;
mod rows;
mod run;
mod vars;

use std::sync::Arc;
use weir_http::module::{Build, Filter, HttpModule, Reach};
use weir_module::{
    merge_values, slot, ConfResult, ConfType, Diagnostic, Level, SlotVtable, Slots, Val,
};
use weir_script::template::Template;

/// Strings that are put out with spaces between them.
struct Line {
    words: Vec<Template>,
    /// A line end stands behind them.
    ends: bool,
}

/// A subrequest.
struct Ask {
    /// As it was written, for the log.
    name: String,
    method: Option<Template>,
    uri: Template,
    args: Option<Template>,
    body: Option<AskBody>,
    /// What follows waits for its end.
    waits: bool,
}

enum AskBody {
    Text(Template),
    /// A file's path, and where a relative one begins.
    File(Template, Vec<u8>),
}

/// One directive.
enum Command {
    Echo(Line),
    /// So often, without a line end.
    Duplicate(Template, Template),
    Flush,
    /// In seconds.
    Sleep(Template),
    ResetTimer,
    ReadBody,
    Body,
    Ask(Box<Ask>),
    /// A separator, and what it separates.
    Foreach(Template, Template),
    End,
    Exec(Template, Option<Template>),
}

#[derive(Default)]
struct Program {
    commands: Vec<Command>,
    /// Of a loop that has no end yet.
    is_open: bool,
}

impl Program {
    /// It needs neither time nor the request's body.
    fn is_plain(&self) -> bool {
        self.commands.iter().all(|c| matches!(c, Command::Echo(_)))
    }

    fn reads_body(&self) -> bool {
        self.commands.iter().any(|c| matches!(c, Command::ReadBody | Command::Ask(_)))
    }
}

type Lines = Option<Arc<Vec<Line>>>;

#[derive(Default)]
struct EchoLoc {
    program: Option<Arc<Program>>,
    before: Lines,
    after: Lines,
    status: Val<u16>,
}

impl ConfType for EchoLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &EchoLoc) -> ConfResult {
        merge_values!(self, parent; status = 200);
        self.program = self.program.take().or_else(|| parent.program.clone());
        self.before = self.before.take().or_else(|| parent.before.clone());
        self.after = self.after.take().or_else(|| parent.after.clone());
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: rows::ROWS,
    slots: &[SlotVtable::of::<EchoLoc>()],
    variables: vars::VARIABLES,
    filter: Some(Filter {
        header: Some(around::header),
        body: Some(around::body),
        active: surrounds,
        reach: Reach::Part,
    }),
    body_on_demand: true,
    build: Some(check),
    ..HttpModule::EMPTY
};

fn surrounds(slots: &Slots) -> bool {
    let conf = slots.get::<EchoLoc>();
    conf.before.is_some() || conf.after.is_some()
}

fn check(b: &mut Build) -> ConfResult {
    let is_open =
        |slots: &Slots| slots.get::<EchoLoc>().program.as_ref().is_some_and(|p| p.is_open);
    match b.locations.iter().any(is_open) {
        true => Err(Diagnostic::emerg("\"echo_foreach_split\" without \"echo_end\"".to_owned())),
        false => Ok(()),
    }
}
