//! Arguments of directives, read leniently: a configuration that is wrong has been refused before, with words.

use weir_base::units;
use weir_conf::Directive;

/// The first argument as text.
pub fn first(d: &Directive) -> Option<String> {
    d.word(0).map(|w| w.to_str().into_owned())
}

/// The first argument as a number.
pub fn number(d: &Directive) -> Option<u64> {
    units::parse_int(d.word(0)?.as_bytes())
}

/// Whether it says `on`.
pub fn is_on(d: &Directive) -> bool {
    d.word(0).is_some_and(|w| units::parse_flag(w.as_bytes()) == Some(true))
}

/// The value of a parameter `NAME=VALUE`.
pub fn parameter<'a>(d: &'a Directive, name: &str) -> Option<&'a [u8]> {
    d.args.iter().find_map(|w| w.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The size in `zone=NAME:SIZE`, or in a bare `NAME:SIZE`.
pub fn zone(value: &[u8]) -> Option<(String, u64)> {
    let mut parts = value.split(|b| *b == b':');
    let name = String::from_utf8_lossy(parts.next()?).into_owned();
    Some((name, units::parse_size(parts.next()?)?))
}
