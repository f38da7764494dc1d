//! `modern_browser` and `ancient_browser` (nginx's `ngx_http_browser_module`): variables that tell old browsers
//! by `User-Agent`.

use memchr::memmem;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::variables::{VarArg, Variable};
use weir_http::module::HttpModule;
use weir_http::Request;
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable,
};
use weir_wire::http1::names::HeaderId;

/// How a browser is known, and where its version stands.
struct Mask {
    browser: &'static str,
    /// Bytes in front of which nothing is looked for.
    skip: usize,
    /// What the version follows.
    mark: &'static [u8],
    /// From the mark's beginning to the version.
    add: usize,
}

/// Asked in this order: Opera calls itself MSIE too.
const MASKS: [Mask; 5] = [
    Mask { browser: "opera", skip: 0, mark: b"Opera", add: 6 },
    Mask { browser: "msie", skip: 25, mark: b"MSIE ", add: 5 },
    Mask { browser: "gecko", skip: 13, mark: b"rv:", add: 3 },
    Mask { browser: "safari", skip: 13, mark: b"Safari/", add: 7 },
    Mask { browser: "konqueror", skip: 25, mark: b"Konqueror/", add: 10 },
];

/// No version: an Opera that is not listed is ancient.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Default)]
struct Modern {
    /// The least version of each of [`MASKS`] that is.
    versions: [Option<u64>; MASKS.len()],
    /// Whoever is in no list is.
    unlisted: bool,
}

impl Modern {
    fn is_set(&self) -> bool {
        self.unlisted || self.lists()
    }

    fn lists(&self) -> bool {
        self.versions.iter().any(Option::is_some)
    }
}

#[derive(Clone, Default)]
struct Ancient {
    texts: Vec<Arc<[u8]>>,
    netscape4: bool,
}

#[derive(Default)]
struct BrowserLoc {
    modern: Modern,
    ancient: Ancient,
    modern_value: Option<Arc<[u8]>>,
    ancient_value: Option<Arc<[u8]>>,
}

impl ConfType for BrowserLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &BrowserLoc) -> ConfResult {
        if !self.modern.is_set() {
            self.modern.clone_from(&parent.modern);
        } else if self.modern.lists() {
            self.modern.versions[0].get_or_insert(NEVER);
        }
        if self.ancient.texts.is_empty() && !self.ancient.netscape4 {
            self.ancient.clone_from(&parent.ancient);
        }
        for (own, outer) in [
            (&mut self.modern_value, &parent.modern_value),
            (&mut self.ancient_value, &parent.ancient_value),
        ] {
            if own.is_none() {
                own.clone_from(outer);
            }
        }
        Ok(())
    }
}

const ROWS: &[Row] = &[
    Row::new(
        "modern_browser",
        Context::HSL,
        Arity::ONE_TWO,
        "",
        "From which version on a browser (msie, gecko, opera, safari, konqueror) is modern; unlisted: all others are.",
        set_modern,
    ),
    Row::new(
        "ancient_browser",
        Context::HSL,
        Arity::ONE_MORE,
        "",
        "Texts in User-Agent by which a browser is ancient; netscape4 stands for Mozilla/1 to Mozilla/4.",
        set_ancient,
    ),
    Row::new(
        "modern_browser_value",
        Context::HSL,
        Arity::ONE,
        "1",
        "The value of $modern_browser.",
        |cf, d| {
            cf.get::<BrowserLoc>().modern_value = Some(d.arg(0).into());
            Ok(())
        },
    ),
    Row::new(
        "ancient_browser_value",
        Context::HSL,
        Arity::ONE,
        "1",
        "The value of $ancient_browser.",
        |cf, d| {
            cf.get::<BrowserLoc>().ancient_value = Some(d.arg(0).into());
            Ok(())
        },
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<BrowserLoc>()],
    variables: &[
        Variable::new("msie", msie),
        Variable::new("modern_browser", |r, _, out| value(r, out, true)),
        Variable::new("ancient_browser", |r, _, out| value(r, out, false)),
    ],
    ..HttpModule::EMPTY
};

fn set_modern(cf: &mut Cf, d: &Directive) -> ConfResult {
    let modern = &mut cf.get::<BrowserLoc>().modern;
    if d.args.len() == 1 {
        if d.arg(0) != b"unlisted" {
            return Err(d.bad(0, "a browser needs the version from which on it is modern"));
        }
        modern.unlisted = true;
        return Ok(());
    }
    let name = d.arg(0);
    let Some(at) = MASKS.iter().position(|m| name.eq_ignore_ascii_case(m.browser.as_bytes()))
    else {
        let shown = String::from_utf8_lossy(name);
        return Err(d.bad(0, format!("unknown browser name \"{shown}\"")));
    };
    let (version, rest) = version(d.arg(1));
    if !rest.is_empty() {
        let shown = String::from_utf8_lossy(d.arg(1));
        return Err(d.bad(1, format!("invalid browser version \"{shown}\"")));
    }
    // Of several the first counts, as in nginx.
    modern.versions[at].get_or_insert(version);
    Ok(())
}

fn set_ancient(cf: &mut Cf, d: &Directive) -> ConfResult {
    let ancient = &mut cf.get::<BrowserLoc>().ancient;
    for arg in d.args.iter() {
        match &arg.text[..] {
            b"netscape4" => ancient.netscape4 = true,
            text => ancient.texts.push(text.into()),
        }
    }
    Ok(())
}

/// A version as a number, two digits for each part behind a dot, and what follows it.
fn version(text: &[u8]) -> (u64, &[u8]) {
    let end = text.iter().position(|b| !matches!(b, b'0'..=b'9' | b'.')).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let mut scale = 1_000_000;
    let mut version: u64 = 0;
    for part in digits.split(|b| *b == b'.') {
        let number =
            part.iter().fold(0u64, |n, b| n.saturating_mul(10).saturating_add(u64::from(b - b'0')));
        version = version.saturating_add(number.saturating_mul(scale));
        scale /= 100;
    }
    (version, rest)
}

fn is_modern(conf: &BrowserLoc, agent: Option<&[u8]>) -> bool {
    let Some(agent) = agent else { return conf.modern.unlisted };
    for (mask, least) in MASKS.iter().zip(&conf.modern.versions) {
        let Some(least) = least else { continue };
        let rest = agent.get(mask.skip..).unwrap_or_default();
        let Some(at) = memmem::find(rest, mask.mark) else { continue };
        let Some(text) = rest.get(at + mask.add..).filter(|t| !t.is_empty()) else { continue };
        return version(text).0 >= *least;
    }
    if conf.modern.lists() && !conf.modern.unlisted {
        return false;
    }
    if conf.ancient.netscape4 && is_netscape4(agent) {
        return false;
    }
    if conf.ancient.texts.iter().any(|text| memmem::find(agent, text).is_some()) {
        return false;
    }
    conf.modern.unlisted
}

fn is_netscape4(agent: &[u8]) -> bool {
    let rest = agent.strip_prefix(b"Mozilla/").filter(|_| agent.len() > b"Mozilla/4.72 ".len());
    rest.and_then(<[u8]>::first).is_some_and(|b| matches!(b, b'1'..=b'4'))
}

fn value(r: &mut Request, out: &mut Vec<u8>, modern: bool) -> bool {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<BrowserLoc>();
    let value = if modern { &conf.modern_value } else { &conf.ancient_value };
    let holds = is_modern(conf, r.header(HeaderId::UserAgent)) == modern;
    if holds {
        out.extend_from_slice(value.as_deref().unwrap_or(b"1"));
    }
    true
}

fn msie(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let agent = r.header(HeaderId::UserAgent).unwrap_or_default();
    let names_it = memmem::find(agent, b"MSIE ").is_some_and(|at| at + 7 < agent.len());
    if names_it && memmem::find(agent, b"Opera").is_none() {
        out.push(b'1');
    }
    true
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions() {
        for (text, number, rest) in [
            ("5", 5_000_000, ""),
            ("5.5", 5_050_000, ""),
            ("1.7.8)", 1_070_800, ")"),
            ("125.2.3.4 ", 125_020_304, " "),
            ("x", 0, "x"),
            ("99999999999999999999999", u64::MAX, ""),
        ] {
            assert_eq!(version(text.as_bytes()), (number, rest.as_bytes()), "{text}");
        }
    }
}
