//! What the operating system says of an error.

use std::io;

/// `No such file or directory`: its words alone. Windows ends them with a stop, which nginx takes away.
pub fn words(e: &io::Error) -> String {
    let text = e.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    words.trim_end_matches(['\r', '\n', '.']).to_owned()
}

/// `2: No such file or directory`, as nginx shows it.
pub fn error(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(code) => format!("{code}: {}", words(e)),
        None => words(e),
    }
}
