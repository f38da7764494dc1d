//! What directives there are.

use super::parse;
use weir_module::{Arity, Context, Row, Setter};

const CONTEXTS: Context = Context::LOCATION.or(Context::LIF);

const fn row(name: &'static str, arity: Arity, doc: &'static str, set: Setter) -> Row {
    Row::new(name, CONTEXTS, arity, "", doc, set)
}

const OPTIONS: &str =
    "An option other than -n and -- is refused; write -- before a word that begins with a dash.";
const PARTS: &str = "A URI that leads out of the site ends the answer, with a line in the error log. At most 32 run at once; what follows then waits for one. Variables that are set in the main request are not there.";

pub(super) const ROWS: &[Row] = &[
    row("echo", Arity::ANY, "Puts out its arguments, with spaces between them and a line end.", parse::set_echo)
        .note(OPTIONS),
    row("echo_duplicate", Arity::TWO_MORE, "Puts out a string so many times.", parse::set_duplicate)
        .note("The count may have underscores. What is put out takes a buffer of memory, however long it is."),
    row("echo_flush", Arity::NONE, "Sends what has been put out so far.", parse::set_flush),
    row("echo_sleep", Arity::ONE_MORE, "Waits so many seconds, to the millisecond.", parse::set_sleep)
        .note("It ends when the client goes."),
    row("echo_blocking_sleep", Arity::ONE_MORE, "Waits so many seconds.", parse::set_sleep)
        .note("It is echo_sleep: the other requests of the worker go on."),
    row("echo_reset_timer", Arity::NONE, "Sets the beginning of $echo_timer_elapsed to now.", parse::set_reset_timer),
    row("echo_read_request_body", Arity::NONE, "Reads the request's body, for what follows.", parse::set_read_body),
    row("echo_request_body", Arity::NONE, "Puts out the request's body, as far as it was read.", parse::set_body),
    row("echo_location", Arity::ONE_MORE, "Puts out the answer of a location, and waits for its end: URI [ARGUMENTS].", parse::set_location)
        .note(PARTS),
    row("echo_location_async", Arity::ONE_MORE, "Puts out the answer of a location, in its place: URI [ARGUMENTS].", parse::set_location)
        .note(PARTS),
    row("echo_subrequest", Arity::TWO_MORE, "As echo_location: METHOD URI [-q ARGUMENTS] [-b BODY] [-f FILE].", parse::set_subrequest)
        .note(PARTS),
    row("echo_subrequest_async", Arity::TWO_MORE, "As echo_location_async: METHOD URI [-q ARGUMENTS] [-b BODY] [-f FILE].", parse::set_subrequest)
        .note(PARTS),
    row("echo_foreach_split", Arity::TWO_MORE, "Repeats what stands before echo_end for each piece between separators, $echo_it: SEPARATOR STRING.", parse::set_foreach)
        .note("Empty pieces are left out. A loop in a loop, and one without echo_end, are refused when the configuration is read."),
    row("echo_end", Arity::NONE, "Ends the loop that echo_foreach_split begins.", parse::set_end),
    row("echo_exec", Arity::ONE_MORE, "Goes on in another location: URI [ARGUMENTS], or a named one.", parse::set_exec)
        .note("Behind what has been put out it breaks the answer off."),
    Row::new("echo_status", CONTEXTS, Arity::ONE, "200", "The answer's status.", parse::set_status).once(),
    row("echo_before_body", Arity::ANY, "Puts out its arguments, as echo does, before the body of any answer.", parse::set_before)
        .note(OPTIONS),
    row("echo_after_body", Arity::ANY, "Puts out its arguments, as echo does, behind the body of any answer.", parse::set_after)
        .note(OPTIONS),
];
