//! The words nginx has for errors that any directive can have.
//!
//! Whoever knows the directives gives these; scripts that watch for them find them unchanged.

use std::fmt::Display;

/// What is wrong with `alias C:\dir\;`.
pub const SWALLOWED_END: &str =
    "a backslash before a \";\" makes it part of the word: write \"/\" between names";

pub fn unknown_directive(name: impl Display) -> String {
    format!("unknown directive \"{name}\"")
}

pub fn not_allowed_here(name: impl Display) -> String {
    format!("\"{name}\" directive is not allowed here")
}

pub fn not_terminated(name: impl Display) -> String {
    format!("directive \"{name}\" is not terminated by \";\"")
}

pub fn no_opening_brace(name: impl Display) -> String {
    format!("directive \"{name}\" has no opening \"{{\"")
}

pub fn invalid_number_of_arguments(name: impl Display) -> String {
    format!("invalid number of arguments in \"{name}\" directive")
}

/// For what a directive's setter answers: `is duplicate`, `invalid value`.
pub fn directive_says(name: impl Display, what: impl Display) -> String {
    format!("\"{name}\" directive {what}")
}

pub fn invalid_parameter(text: impl Display) -> String {
    format!("invalid parameter \"{text}\"")
}

/// The error of an operating system call as nginx writes it: `2: No such file or directory`.
pub fn os_error(error: &std::io::Error) -> String {
    weir_base::system::error(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!(unknown_directive("a"), "unknown directive \"a\"");
        assert_eq!(not_allowed_here("a"), "\"a\" directive is not allowed here");
        assert_eq!(not_terminated("a"), "directive \"a\" is not terminated by \";\"");
        assert_eq!(no_opening_brace("a"), "directive \"a\" has no opening \"{\"");
        assert_eq!(
            invalid_number_of_arguments("a"),
            "invalid number of arguments in \"a\" directive"
        );
        assert_eq!(directive_says("a", "is duplicate"), "\"a\" directive is duplicate");
        assert_eq!(invalid_parameter("x"), "invalid parameter \"x\"");
    }

    #[cfg(unix)]
    #[test]
    fn operating_system() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(os_error(&error), "2: No such file or directory");
        assert_eq!(os_error(&std::io::Error::other("x")), "x");
    }
}
