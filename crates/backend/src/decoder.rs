//! What the engine does with a link's decoder: what a server has to say besides its answer is logged,
//! and may be the end of it.

use crate::family::Family;
use crate::fault::Fault;
use crate::link::decoder::{Aside, Decoder};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::Request;

/// Logs what a server said besides its answer, and gives it back with how many bytes of the answer
/// came before it.
pub(crate) fn log_aside(r: &Request, family: &Family, decoder: &mut Decoder, doing: &str) -> Aside {
    if let Some((grave, text)) = decoder.wrapping.take_note() {
        let level = if grave { LogLevel::Error } else { LogLevel::Info };
        r.log(level, &format!("{text} while {doing}"));
    }
    let aside = decoder.wrapping.take_aside();
    if let Some(ways) = &family.ways.aside {
        aside.iter().for_each(|(_, text)| (ways.log)(r, text, doing));
    }
    aside
}

/// Whether what was said before the end of the head makes the answer invalid.
pub(crate) fn judge_aside(
    r: &Request,
    family: &Family,
    aside: &Aside,
    head_len: usize,
) -> Result<(), Fault> {
    let Some(ways) = &family.ways.aside else { return Ok(()) };
    let caught = aside.iter().any(|(at, text)| *at < head_len && (ways.is_fatal)(r, text));
    match caught {
        true => Err(Fault::Invalid),
        false => Ok(()),
    }
}
