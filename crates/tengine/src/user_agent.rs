//! `user_agent` (Tengine's `ngx_http_user_agent_module`): a variable whose value depends on a name in `User-Agent` and
//! the version behind it.
//!
//! Names are looked for from the end of the field, because there the most telling ones stand.

use std::rc::Rc;
use std::sync::Arc;
use weir_core::variables::VarArg;
use weir_http::module::HttpModule;
use weir_http::vars::define;
use weir_http::Request;
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable,
};
use weir_wire::http1::names::HeaderId;

/// What the first part of a version counts; each further part counts [`PART`] times less.
const FIRST_PART: u64 = 1_000_000_000_000;
const PART: u64 = 10_000;
/// Bytes between a name and its version.
const GAP_MAX_BYTES: usize = 8;

#[derive(Default)]
struct AgentMain {
    tables: Vec<Arc<Table>>,
}

impl ConfType for AgentMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

#[derive(Default)]
struct Table {
    keywords: Vec<Keyword>,
    default: Option<Box<[u8]>>,
}

struct Keyword {
    name: Box<[u8]>,
    /// Others are looked for still; it counts if there are none.
    greedy: bool,
    /// Values by the least and the greatest version.
    values: Vec<(u64, u64, Box<[u8]>)>,
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[Row::block(
        "user_agent",
        Context::HTTP,
        Arity::ONE,
        "A variable whose value depends on a name in User-Agent and the version behind it.",
        set_table,
    )],
    slots: &[SlotVtable::of::<AgentMain>()],
    ..HttpModule::EMPTY
};

fn set_table(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut table = Table::default();
    for entry in d.children() {
        table.read(entry)?;
    }
    if table.default.is_none() {
        return Err(d.fail("no default value"));
    }
    let tables = &mut cf.get::<AgentMain>().tables;
    let number = tables.len();
    tables.push(Arc::new(table));
    define(cf, d, 0, value, number, true).map(|_| ())
}

impl Table {
    fn read(&mut self, entry: &Directive) -> ConfResult {
        let name = entry.name.as_bytes();
        if entry.is_block() {
            return Err(entry.fail("unexpected \"{\""));
        }
        match (name, entry.args.len()) {
            (_, 0) => Err(entry.fail("invalid first parameter")),
            (b"default", 1) if self.default.is_some() => {
                Err(entry.fail("\"default\" directive is duplicate"))
            }
            (b"default", 1) => {
                self.default = Some(entry.arg(0).into());
                Ok(())
            }
            (b"greedy", 1) => {
                self.keyword(entry.arg(0)).greedy = true;
                Ok(())
            }
            (_, 1) => self.add(entry, (0, u64::MAX), entry.arg(0)),
            (_, 2) => {
                let range = range(entry.arg(0)).ok_or_else(|| entry.bad(0, "invalid version"))?;
                self.add(entry, range, entry.arg(1))
            }
            _ => Err(entry.fail("too many args")),
        }
    }

    fn add(&mut self, entry: &Directive, (least, most): (u64, u64), value: &[u8]) -> ConfResult {
        let keyword = self.keyword(entry.name.as_bytes());
        if keyword.values.iter().any(|(low, high, _)| least <= *high && *low <= most) {
            return Err(entry.fail("interval covered"));
        }
        keyword.values.push((least, most, value.into()));
        Ok(())
    }

    fn keyword(&mut self, name: &[u8]) -> &mut Keyword {
        let known = self.keywords.iter().position(|k| *k.name == *name);
        let at = known.unwrap_or_else(|| {
            let (greedy, values) = (false, Vec::new());
            self.keywords.push(Keyword { name: name.into(), greedy, values });
            self.keywords.len() - 1
        });
        &mut self.keywords[at]
    }

    /// The keyword that counts, and where it ends.
    fn find(&self, agent: &[u8]) -> Option<(&Keyword, usize)> {
        let (mut found, mut end) = (None, agent.len());
        for at in (0..agent.len()).rev() {
            let rest = &agent[at..end];
            let here = self.keywords.iter().filter(|k| rest.starts_with(&k.name));
            let Some(keyword) = here.max_by_key(|k| k.name.len()) else { continue };
            found = Some((keyword, at + keyword.name.len()));
            if !keyword.greedy {
                break;
            }
            end = at;
        }
        found
    }

    fn value(&self, agent: &[u8]) -> Option<&[u8]> {
        let (keyword, end) = self.find(agent)?;
        let version = version_behind(&agent[end..]);
        let mut values = keyword.values.iter();
        values.find(|(low, high, _)| (*low..=*high).contains(&version)).map(|(.., v)| &**v)
    }
}

/// The version that follows a name, as a number.
pub fn version_behind(text: &[u8]) -> u64 {
    let is_end = |b: &u8| b.is_ascii_digit() || matches!(b, b';' | b'(' | b')');
    let gap = text.iter().take(GAP_MAX_BYTES).position(is_end);
    version(text.get(gap.unwrap_or(GAP_MAX_BYTES)..).unwrap_or_default()).0
}

/// The number that a text begins with, and the rest.
fn version(text: &[u8]) -> (u64, &[u8]) {
    let end = text.iter().position(|b| !matches!(b, b'0'..=b'9' | b'.')).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let (mut scale, mut version) = (FIRST_PART, 0u64);
    for part in digits.split(|b| *b == b'.') {
        let digit = |n: u64, b: &u8| n.saturating_mul(10).saturating_add(u64::from(b - b'0'));
        version = version.saturating_add(part.iter().fold(0, digit).saturating_mul(scale));
        scale /= PART;
    }
    (version, rest)
}

/// `5.0+`, `5.0-`, `5.0`, `5.0=`, `5.0~6.0`.
fn range(text: &[u8]) -> Option<(u64, u64)> {
    let (first, rest) = version(text);
    match rest {
        b"" | b"=" => Some((first, first)),
        b"+" => Some((first, u64::MAX)),
        b"-" => Some((0, first)),
        [b'~', last @ ..] if last.first().is_some_and(u8::is_ascii_digit) => {
            let (last, rest) = version(last);
            rest.is_empty().then_some((first, last))
        }
        _ => None,
    }
}

fn value(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let http = Rc::clone(r.gen());
    let table = &http.shared.main.get::<AgentMain>().tables[arg.data];
    let found = r.header(HeaderId::UserAgent).and_then(|agent| table.value(agent));
    out.extend_from_slice(found.or(table.default.as_deref()).unwrap_or_default());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, number) in [
            ("/6.0", 6 * FIRST_PART),
            (" 9.1;", 9 * FIRST_PART + FIRST_PART / PART),
            ("/12.0.742.112", 12 * FIRST_PART + 742 * PART + 112),
            ("/1.2.3.4.5", FIRST_PART + 2 * PART * PART + 3 * PART + 4),
            ("; 9.0", 0),
            ("/abcdefgh9", 0),
            ("/99999999999999999999999", u64::MAX),
            ("", 0),
        ] {
            assert_eq!(version_behind(text.as_bytes()), number, "{text}");
        }
    }

    #[test]
    fn ranges() {
        let v = |n: u64| n * FIRST_PART;
        for (text, expected) in [
            ("5.0+", Some((v(5), u64::MAX))),
            ("5-", Some((0, v(5)))),
            ("5", Some((v(5), v(5)))),
            ("5.0=", Some((v(5), v(5)))),
            ("5.0~6.0", Some((v(5), v(6)))),
            ("5~", None),
            ("5~6+", None),
            ("5+6", None),
            ("x", None),
        ] {
            assert_eq!(range(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn names_are_looked_for_from_the_end() {
        let mut table = Table::default();
        table.keyword(b"Safari").greedy = true;
        for (name, value) in [("Chrome", "c"), ("MSIE", "m"), ("Safari", "s")] {
            table.keyword(name.as_bytes()).values.push((0, u64::MAX, value.as_bytes().into()));
        }
        for (agent, expected) in [
            ("Mozilla/5.0 Chrome/13.0 Safari/535.1", Some("c")),
            ("Mozilla/5.0 Version/1 Safari/535.1", Some("s")),
            ("Chrome/1 MSIE 9.0", Some("m")),
            ("chrome/1", None),
            ("", None),
        ] {
            assert_eq!(table.value(agent.as_bytes()), expected.map(str::as_bytes), "{agent}");
        }
    }
}
