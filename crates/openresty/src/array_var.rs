//! `array_split`, `array_map` and `array_join`: variables that hold lists (OpenResty's array-var).
//!
//! A list is kept in its variable's value, as the lengths and bytes of its items behind a mark; so it goes to
//! subrequests with the other variables. Text that somebody makes look so is a list like any other.

use crate::encrypted_session;
use crate::set_misc::{value_named, Value};
use weir_base::units::parse_int;
use weir_core::eval::with_scratch;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::module::HttpModule;
use weir_http::vars::{template, template_of};
use weir_http::Request;
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Directive, Row};
use weir_modules::rewrite::{self, Failed, Program, Step, CONTEXTS};
use weir_script::template::{Template, VarId};

/// What a list may take, which `array_map` can make larger than the request that it comes from.
const LIST_MAX_BYTES: usize = 1024 * 1024;
/// Begins a list.
const MARK: &[u8] = b"\0list\0";
/// Bytes of an item's length.
const LENGTH_BYTES: usize = 4;

const LIMIT: &str = "A list takes 1 MB at most; one that would be larger ends the request with 500, as what is no list does.";

const ROWS: &[Row] = &[
    Row::new(
        "array_split",
        CONTEXTS,
        Arity::TWO_MORE,
        "",
        "Splits a string at a separator (at each character, if that is empty) into a list: SEPARATOR STRING [MAX] [to=$variable].",
        set_split,
    )
    .note(LIMIT),
    Row::new(
        "array_join",
        CONTEXTS,
        Arity::TWO_THREE,
        "",
        "Joins a list to a string: SEPARATOR $list [to=$variable].",
        set_join,
    )
    .note(LIMIT),
    Row::new(
        "array_map",
        CONTEXTS,
        Arity::TWO_THREE,
        "",
        "Makes each item of a list anew, $array_it being the old one: TEXT $list [to=$variable].",
        set_map,
    )
    .note(LIMIT),
    Row::new(
        "array_map_op",
        CONTEXTS,
        Arity::TWO_THREE,
        "",
        "Makes each item of a list anew by a directive such as set_quote_sql_str: NAME $list [to=$variable].",
        set_map_op,
    )
    .note("The directive is looked for when the configuration is read, and is one of set-misc's or encrypted-session's that make a value of one string."),
];

pub const MODULE: HttpModule = HttpModule { rows: ROWS, ..HttpModule::EMPTY };

/// A list as it is kept.
#[derive(Default)]
struct Packed(Vec<u8>);

impl Packed {
    fn new() -> Packed {
        Packed(MARK.to_vec())
    }

    fn push(&mut self, item: &[u8]) -> Result<(), &'static str> {
        if self.0.len() + LENGTH_BYTES + item.len() > LIST_MAX_BYTES {
            return Err("the list is too large");
        }
        self.0.extend_from_slice(&(item.len() as u32).to_le_bytes());
        self.0.extend_from_slice(item);
        Ok(())
    }
}

/// A list of these items, or why there is none.
pub fn packed<'i>(items: impl Iterator<Item = &'i [u8]>) -> Result<Vec<u8>, &'static str> {
    let mut list = Packed::new();
    for item in items {
        list.push(item)?;
    }
    Ok(list.0)
}

/// The items of a value, if it is a list.
pub fn items(value: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = value.strip_prefix(MARK)?;
    let mut items = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() {
        let (item, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        items.push(item);
        rest = behind;
    }
    rest.is_empty().then_some(items)
}

enum Make {
    Split { separator: Template, max: Option<Template> },
    Join { separator: Template },
    Map { text: Template, item: VarId },
    MapOp(Value),
}

struct ListStep {
    name: String,
    source: Template,
    target: VarId,
    make: Make,
}

impl Step for ListStep {
    fn run(&self, at: &mut Program<'_>) -> Result<(), Failed> {
        with_scratch(|source| {
            at.eval(&self.source, source);
            let made = match &self.make {
                Make::Split { separator, max } => self.split(at, source, separator, max.as_ref()),
                Make::Join { separator } => {
                    self.items(at.r, source).and_then(|items| self.join(at, &items, separator))
                }
                Make::Map { text, item } => {
                    self.items(at.r, source).and_then(|items| self.map(at.r, &items, text, *item))
                }
                Make::MapOp(value) => {
                    self.items(at.r, source).and_then(|items| self.map_op(at.r, &items, *value))
                }
            };
            at.r.set_var(self.target, &made?);
            Ok(())
        })
    }
}

impl ListStep {
    fn fail(&self, r: &Request, why: &str) -> Failed {
        r.log(LogLevel::Error, &format!("{}: {why}", self.name));
        Failed
    }

    fn items<'v>(&self, r: &Request, value: &'v [u8]) -> Result<Vec<&'v [u8]>, Failed> {
        items(value).ok_or_else(|| self.fail(r, "invalid array variable value in the 2nd argument"))
    }

    fn split(
        &self,
        at: &mut Program<'_>,
        text: &[u8],
        separator: &Template,
        max: Option<&Template>,
    ) -> Result<Vec<u8>, Failed> {
        let mut most = usize::MAX;
        if let Some(max) = max {
            let given = evaluated(at, max);
            let given = parse_int(&given).ok_or_else(|| self.fail(at.r, "invalid max items"))?;
            most = if given == 0 { usize::MAX } else { given as usize };
        }
        let separator = evaluated(at, separator);
        packed(pieces(text, &separator, most)).map_err(|why| self.fail(at.r, why))
    }

    fn join(
        &self,
        at: &mut Program<'_>,
        items: &[&[u8]],
        separator: &Template,
    ) -> Result<Vec<u8>, Failed> {
        let separator = evaluated(at, separator);
        let length: usize = items.iter().map(|item| item.len() + separator.len()).sum();
        match length > LIST_MAX_BYTES {
            true => Err(self.fail(at.r, "the list is too large")),
            false => Ok(items.join(&separator[..])),
        }
    }

    fn map(
        &self,
        r: &mut Request,
        items: &[&[u8]],
        text: &Template,
        item_var: VarId,
    ) -> Result<Vec<u8>, Failed> {
        let mut list = Packed::new();
        for item in items {
            r.set_var(item_var, item);
            let pushed = with_scratch(|out| {
                r.eval_into(text, out);
                list.push(out)
            });
            pushed.map_err(|why| self.fail(r, why))?;
        }
        r.store_var(item_var.0 as usize, None);
        Ok(list.0)
    }

    fn map_op(&self, r: &mut Request, items: &[&[u8]], value: Value) -> Result<Vec<u8>, Failed> {
        let mut list = Packed::new();
        for item in items {
            let pushed = with_scratch(|out| value.make(r, item, out).map(|()| list.push(out)))?;
            pushed.map_err(|why| self.fail(r, why))?;
        }
        Ok(list.0)
    }
}

fn evaluated(at: &mut Program<'_>, template: &Template) -> Vec<u8> {
    let mut out = Vec::new();
    at.eval(template, &mut out);
    out
}

/// The pieces of a text between separators, the last with all that is left: `most` at most.
fn pieces<'t>(text: &'t [u8], separator: &'t [u8], most: usize) -> impl Iterator<Item = &'t [u8]> {
    let mut rest = Some(text);
    let mut count = 0;
    std::iter::from_fn(move || {
        let text = rest?;
        count += 1;
        let end = match count < most {
            false => None,
            true if separator.is_empty() => (text.len() > 1).then_some(1),
            true => memchr::memmem::find(text, separator),
        };
        rest = end.map(|end| &text[end + separator.len()..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// The variable of `to=$name` at that place, or else of the argument with the list.
fn target(cf: &mut Cf, d: &Directive, at: usize) -> ConfResult<VarId> {
    if at >= d.args.len() {
        return rewrite::variable(cf, d, 1, d.arg(1));
    }
    let Some(word) = d.arg(at).strip_prefix(b"to=").filter(|_| at + 1 == d.args.len()) else {
        let shown = String::from_utf8_lossy(d.arg(at));
        return Err(d.bad(at, format!("unexpected argument \"{shown}\", not \"to=$variable\"")));
    };
    rewrite::variable(cf, d, at, word)
}

fn append(cf: &mut Cf, d: &Directive, target: VarId, make: Make) -> ConfResult {
    let source = template(cf, d, 1)?;
    rewrite::append(cf, ListStep { name: d.name(), source, target, make });
    Ok(())
}

fn set_split(cf: &mut Cf, d: &Directive) -> ConfResult {
    let has_max = d.args.len() > 2 && !d.arg(2).starts_with(b"to=");
    let target = target(cf, d, 2 + usize::from(has_max))?;
    let separator = template(cf, d, 0)?;
    let max = if has_max { Some(template(cf, d, 2)?) } else { None };
    append(cf, d, target, Make::Split { separator, max })
}

fn set_join(cf: &mut Cf, d: &Directive) -> ConfResult {
    let target = target(cf, d, 2)?;
    let separator = template(cf, d, 0)?;
    append(cf, d, target, Make::Join { separator })
}

fn set_map(cf: &mut Cf, d: &Directive) -> ConfResult {
    let target = target(cf, d, 2)?;
    let item = rewrite::variable(cf, d, 0, b"$array_it")?;
    let text = template_of(cf, d, 0, d.arg(0))?;
    append(cf, d, target, Make::Map { text, item })
}

fn set_map_op(cf: &mut Cf, d: &Directive) -> ConfResult {
    let target = target(cf, d, 2)?;
    let value = value_named(d.arg(0)).or_else(|| encrypted_session::value_named(d.arg(0)));
    let Some(value) = value else {
        let shown = String::from_utf8_lossy(d.arg(0));
        return Err(d.bad(0, format!("\"{shown}\" is no directive that makes a value of another")));
    };
    append(cf, d, target, Make::MapOp(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, separator: &str, most: usize) -> Vec<String> {
        let pieces = pieces(text.as_bytes(), separator.as_bytes(), most);
        pieces.map(|piece| String::from_utf8_lossy(piece).into_owned()).collect()
    }

    #[test]
    fn texts_are_split() {
        let all = usize::MAX;
        assert_eq!(split("a,b,c", ",", all), ["a", "b", "c"]);
        assert_eq!(split("a,b,c", ",", 2), ["a", "b,c"]);
        assert_eq!(split("a,b,c", ",", 1), ["a,b,c"]);
        assert_eq!(split(",,", ",", all), ["", "", ""]);
        assert_eq!(split("", ",", all), [""]);
        assert_eq!(split("abc", "", all), ["a", "b", "c"]);
        assert_eq!(split("abc", "", 2), ["a", "bc"]);
        assert_eq!(split("", "", all), [""]);
        assert_eq!(split("a->b->", "->", all), ["a", "b", ""]);
    }

    #[test]
    fn lists_are_packed_and_what_is_none_is_seen() {
        let mut list = Packed::new();
        for item in [&b"a"[..], b"", b"\0list\0"] {
            assert_eq!(list.push(item), Ok(()));
        }
        assert_eq!(items(&list.0), Some(vec![&b"a"[..], b"", b"\0list\0"]));
        assert!(list.push(&vec![0; LIST_MAX_BYTES]).is_err());
        assert_eq!(items(MARK), Some(vec![]));
        for end in 0..list.0.len() {
            let whole = [MARK.len(), MARK.len() + 5, MARK.len() + 9].contains(&end);
            assert_eq!(items(&list.0[..end]).is_some(), whole, "{end}");
        }
        assert_eq!(items(b"a,b"), None);
    }
}
