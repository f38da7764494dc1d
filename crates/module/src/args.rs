//! Reading a directive's arguments with nginx's own messages.

use crate::{ConfResult, Diagnostic, Directive, Span};
use weir_base::units;

/// Argument access for setters. Arguments are numbered from 0, after the directive's name.
pub trait ArgsExt {
    fn name(&self) -> String;
    fn arg(&self, i: usize) -> &[u8];
    /// The argument as text; a value that is not UTF-8 is refused.
    fn text(&self, i: usize) -> ConfResult<&str>;
    fn arg_span(&self, i: usize) -> Span;
    /// `"NAME" directive TEXT`, nginx's form for a setter's own message.
    fn error(&self, text: &str) -> Diagnostic;
    /// A message of its own, pointing at the directive's name.
    fn fail(&self, message: impl Into<String>) -> Diagnostic;
    /// A message of its own, pointing at one argument.
    fn bad(&self, i: usize, message: impl Into<String>) -> Diagnostic;
    /// `invalid value "ARG"`, pointing at it.
    fn invalid(&self, i: usize) -> Diagnostic;
    fn flag(&self) -> ConfResult<bool>;
    fn size(&self, i: usize) -> ConfResult<u64>;
    fn offset(&self, i: usize) -> ConfResult<u64>;
    fn msec(&self, i: usize) -> ConfResult<u64>;
    fn sec(&self, i: usize) -> ConfResult<u64>;
    fn num(&self, i: usize) -> ConfResult<u64>;
    /// One of a list of words, in any letter case.
    fn choice<T: Copy>(&self, i: usize, words: &[(&str, T)]) -> ConfResult<T>;
    /// The value of an argument written `key=value`, when argument `i` has that key.
    fn keyed(&self, i: usize, key: &str) -> Option<&[u8]>;
}

impl ArgsExt for Directive {
    fn name(&self) -> String {
        self.name.to_str().into_owned()
    }

    fn arg(&self, i: usize) -> &[u8] {
        self.args.get(i).map_or(&[], |w| &w.text)
    }

    fn text(&self, i: usize) -> ConfResult<&str> {
        std::str::from_utf8(self.arg(i)).map_err(|_| self.bad(i, "the value is not UTF-8 text"))
    }

    fn arg_span(&self, i: usize) -> Span {
        self.args.get(i).map_or(self.name.span, |w| w.span)
    }

    fn error(&self, text: &str) -> Diagnostic {
        self.fail(format!("\"{}\" directive {text}", self.name.to_str()))
    }

    fn fail(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::of(self, self.name.span, message.into())
    }

    fn bad(&self, i: usize, message: impl Into<String>) -> Diagnostic {
        Diagnostic::of(self, self.arg_span(i), message.into())
    }

    fn invalid(&self, i: usize) -> Diagnostic {
        let text = format!("invalid value \"{}\"", String::from_utf8_lossy(self.arg(i)));
        self.bad(i, text).of_itself()
    }

    fn flag(&self) -> ConfResult<bool> {
        units::parse_flag(self.arg(0)).ok_or_else(|| {
            let value = String::from_utf8_lossy(self.arg(0)).into_owned();
            self.bad(
                0,
                format!(
                    "invalid value \"{value}\" in \"{}\" directive, it must be \"on\" or \"off\"",
                    self.name.to_str()
                ),
            )
            .of_itself()
        })
    }

    fn size(&self, i: usize) -> ConfResult<u64> {
        units::parse_size(self.arg(i)).ok_or_else(|| value_error(self, i, "invalid value"))
    }

    fn offset(&self, i: usize) -> ConfResult<u64> {
        units::parse_offset(self.arg(i)).ok_or_else(|| value_error(self, i, "invalid value"))
    }

    fn msec(&self, i: usize) -> ConfResult<u64> {
        units::parse_msec(self.arg(i)).ok_or_else(|| value_error(self, i, "invalid value"))
    }

    fn sec(&self, i: usize) -> ConfResult<u64> {
        units::parse_sec(self.arg(i)).ok_or_else(|| value_error(self, i, "invalid value"))
    }

    fn num(&self, i: usize) -> ConfResult<u64> {
        units::parse_int(self.arg(i)).ok_or_else(|| value_error(self, i, "invalid number"))
    }

    fn choice<T: Copy>(&self, i: usize, words: &[(&str, T)]) -> ConfResult<T> {
        let is_it = |word: &str| word.as_bytes().eq_ignore_ascii_case(self.arg(i));
        let found = words.iter().find(|(w, _)| is_it(w)).map(|(_, v)| *v);
        found.ok_or_else(|| {
            let mut e = self.invalid(i);
            let list: Vec<String> = words.iter().map(|(w, _)| format!("\"{w}\"")).collect();
            e.hint = Some(format!("it must be one of {}", list.join(", ")));
            e
        })
    }

    fn keyed(&self, i: usize, key: &str) -> Option<&[u8]> {
        self.arg(i).strip_prefix(key.as_bytes())?.strip_prefix(b"=")
    }
}

fn value_error(d: &Directive, i: usize, what: &str) -> Diagnostic {
    let mut e = d.error(what).of_itself();
    e.span = Some(d.arg_span(i));
    e
}
