//! `match`: what an answer of a server that is well looks like.

use std::ops::RangeInclusive;
use weir_base::units;
use weir_core::Session;
use weir_http::vars::template;
use weir_http::Request;
use weir_module::{ArgsExt, Cf, ConfResult, Directive};
use weir_script::regex::{MatchError, Regex, RegexOptions};
use weir_script::template::Template;

/// One `match` block. Without a `status`, any does.
#[derive(Default)]
pub(super) struct Match {
    status: Option<(bool, Vec<RangeInclusive<u16>>)>,
    headers: Vec<(Vec<u8>, Wanted)>,
    body: Option<(bool, Regex)>,
    require: Vec<Template>,
}

/// What a field is to be; `false` for the contrary.
enum Wanted {
    There(bool),
    Same(bool, Vec<u8>),
    Like(bool, Regex),
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Match {
    /// Reads the block.
    pub(super) fn read(cf: &mut Cf, d: &Directive) -> ConfResult<Match> {
        let mut m = Match::default();
        for rule in d.children() {
            if rule.is_block() {
                return Err(rule.fail("unexpected \"{\""));
            }
            if rule.args.is_empty() {
                let name = rule.name();
                return Err(
                    rule.fail(format!("invalid number of arguments in \"{name}\" directive"))
                );
            }
            m.add(cf, rule)?;
        }
        Ok(m)
    }

    fn add(&mut self, cf: &mut Cf, rule: &Directive) -> ConfResult {
        let is_first = match rule.name.as_bytes() {
            b"status" => self.status.replace(statuses(rule)?).is_none(),
            b"body" => self.body.replace(body(rule)?).is_none(),
            b"header" => {
                self.headers.push(header(rule)?);
                true
            }
            b"require" => {
                for i in 0..rule.args.len() {
                    self.require.push(template(cf, rule, i)?);
                }
                true
            }
            _ => {
                let text = format!("unknown directive \"{}\" in \"match\"", rule.name());
                let hint = "it has status, header, body and require".to_string();
                return Err(rule.fail(text).hint(hint));
            }
        };
        match is_first {
            true => Ok(()),
            false => Err(rule.error("is duplicate")),
        }
    }

    pub(super) fn looks_at_body(&self) -> bool {
        self.body.is_some()
    }

    /// Judges an answer whose body, as far as it is wanted, has been read; an error is what was looked at.
    pub(super) fn judge(&self, r: &mut Request, body: &[u8]) -> Result<&'static str, &'static str> {
        let status = r.exchange.head.status;
        if let Some((positive, ranges)) = &self.status {
            if ranges.iter().any(|range| range.contains(&status)) != *positive {
                return Err("checking status code");
            }
        }
        if !self.headers.iter().all(|(name, wanted)| wanted.is_met(r, name)) {
            return Err("checking response header");
        }
        if let Some((positive, regex)) = &self.body {
            // What cannot be told is no match, and no contrary of one.
            if regex.is_match(body).ok() != Some(*positive) {
                return Err("checking response body");
            }
        }
        let is_set = |value: Vec<u8>| !value.is_empty() && value != b"0";
        match self.require.iter().all(|t| is_set(r.eval(t))) {
            true => Ok("checking response"),
            false => Err("checking required variables"),
        }
    }
}

impl Wanted {
    fn is_met(&self, r: &Request, name: &[u8]) -> bool {
        let same = |field: &&[u8]| field.eq_ignore_ascii_case(name);
        let mut values = r.exchange.fields().filter(|(n, _)| same(n)).map(|(_, v)| v);
        match self {
            Wanted::There(there) => values.next().is_some() == *there,
            Wanted::Same(positive, text) => values.any(|v| v == text) == *positive,
            // What cannot be told is no match, and no contrary of one.
            Wanted::Like(positive, regex) => values
                .try_fold(false, |found, v| Ok::<_, MatchError>(found | regex.is_match(v)?))
                .is_ok_and(|found| found == *positive),
        }
    }
}

/// `status 200 301-303`, `status ! 500`
fn statuses(rule: &Directive) -> ConfResult<(bool, Vec<RangeInclusive<u16>>)> {
    let negated = rule.arg(0) == b"!";
    let from = usize::from(negated);
    if rule.args.len() == from {
        return Err(rule.error("has no status code"));
    }
    let range = |i: usize| {
        let text = rule.arg(i);
        let (first, last) = weir_base::bytes::split_once(text, b'-').unwrap_or((text, text));
        let code = |text: &[u8]| units::parse_int(text).and_then(|n| u16::try_from(n).ok());
        let range = code(first).zip(code(last));
        let range = range.filter(|(a, b)| (100..=999).contains(a) && b >= a && *b <= 999);
        let (first, last) =
            range.ok_or_else(|| rule.bad(i, format!("invalid status \"{}\"", lossy(text))))?;
        Ok(first..=last)
    };
    Ok((!negated, (from..rule.args.len()).map(range).collect::<ConfResult<_>>()?))
}

/// `header NAME`, `header ! NAME`, `header NAME = VALUE`, and with `!=`, `~` and `!~`.
fn header(rule: &Directive) -> ConfResult<(Vec<u8>, Wanted)> {
    let name = |i: usize| rule.arg(i).to_vec();
    match (rule.args.len(), rule.arg(0), rule.arg(1)) {
        (1, _, _) => Ok((name(0), Wanted::There(true))),
        (2, b"!", _) => Ok((name(1), Wanted::There(false))),
        (3, _, b"=") => Ok((name(0), Wanted::Same(true, name(2)))),
        (3, _, b"!=") => Ok((name(0), Wanted::Same(false, name(2)))),
        (3, _, op @ (b"~" | b"!~")) => Ok((name(0), Wanted::Like(op == b"~", regex(rule, 2)?))),
        _ => {
            let hint =
                "write header NAME; header ! NAME; or header NAME = VALUE; with =, !=, ~ or !~";
            Err(rule.error("has invalid parameters").hint(hint.to_string()))
        }
    }
}

/// `body ~ PATTERN`, `body !~ PATTERN`
fn body(rule: &Directive) -> ConfResult<(bool, Regex)> {
    match (rule.args.len(), rule.arg(0)) {
        (2, op @ (b"~" | b"!~")) => Ok((op == b"~", regex(rule, 1)?)),
        _ => {
            let hint = "write body ~ PATTERN; or body !~ PATTERN;".to_string();
            Err(rule.error("has invalid parameters").hint(hint))
        }
    }
}

fn regex(rule: &Directive, i: usize) -> ConfResult<Regex> {
    Regex::new(rule.arg(i), RegexOptions::default()).map_err(|e| rule.bad(i, e.to_string()))
}

/// What an answer is judged by where no `match` is named.
pub(super) fn usual(r: &Request) -> Result<&'static str, &'static str> {
    match r.exchange.head.status {
        200..=399 => Ok("checking status code"),
        _ => Err("checking status code"),
    }
}
