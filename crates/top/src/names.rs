//! Names and texts that servers tell, made fit for a terminal.

use weir_analytics::shown;

/// Longer ones are cut.
const MAX_CHARS: usize = 400;

/// Without anything that moves a cursor, turns the direction of writing or is not to be seen.
pub fn visible(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", shown::visible(&text.as_bytes()[..at])),
        None => shown::visible(text.as_bytes()),
    }
}
