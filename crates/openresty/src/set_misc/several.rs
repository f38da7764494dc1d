//! Directives that make a variable of several strings.

use super::lists::List;
use super::{MiscLoc, MiscMain};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use weir_base::bytes::fmt_u64;
use weir_base::units::parse_int;
use weir_core::eval::with_scratch;
use weir_core::logger::LogLevel;
use weir_core::session::Part;
use weir_core::Session;
use weir_http::vars::template;
use weir_http::Request;
use weir_module::{ArgsExt, Cf, ConfResult, Directive};
use weir_modules::rewrite::{self, Failed, Program, Step};
use weir_script::template::{Template, VarId};

/// A variable becomes what `make` makes of its value and two strings.
struct Several {
    target: VarId,
    first: Template,
    second: Template,
    make: Make,
}

enum Make {
    IfEmpty,
    Hmac(hmac::Algorithm),
    Random,
    /// Where it has come to.
    Rotate(Arc<AtomicU64>),
    /// Of this list, or of the one that the first string names.
    Hashed(Option<List>),
}

/// No value has been rotated yet.
const NOT_YET: u64 = u64::MAX;

impl Step for Several {
    fn run(&self, at: &mut Program<'_>) -> Result<(), Failed> {
        with_scratch(|first| {
            at.eval(&self.first, first);
            with_scratch(|second| {
                at.eval(&self.second, second);
                with_scratch(|out| self.set(at.r, first, second, out))
            })
        })
    }
}

impl Several {
    fn set(
        &self,
        r: &mut Request,
        first: &[u8],
        second: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        match &self.make {
            Make::IfEmpty => {
                r.var(self.target, out);
                if out.is_empty() {
                    out.extend_from_slice(first);
                }
            }
            Make::Hmac(algorithm) => {
                let key = hmac::Key::new(*algorithm, first);
                out.extend_from_slice(hmac::sign(&key, second).as_ref());
            }
            Make::Random => {
                let (from, to) = range(r, "set_random", first, second)?;
                fmt_u64(out, random(r, from, to)?);
            }
            Make::Rotate(place) => {
                let (from, to) = range(r, "set_rotate", first, second)?;
                with_scratch(|now| {
                    r.var(self.target, now);
                    fmt_u64(out, rotate(r, place, now, from, to));
                });
            }
            Make::Hashed(list) => {
                let named;
                let list = match list {
                    Some(list) => list,
                    None => {
                        named = list_named(r, first)?;
                        &named
                    }
                };
                let at = hash(second) as u32 as usize % list.len().max(1);
                out.extend_from_slice(list.get(at).map_or(&[], |name| name));
            }
        }
        r.set_var(self.target, out);
        Ok(())
    }
}

/// The two numbers, the lesser first.
fn range(r: &Request, name: &str, first: &[u8], second: &[u8]) -> Result<(u64, u64), Failed> {
    let read = |what: &str, value: &[u8]| {
        parse_int(value).filter(|n| *n <= i64::MAX as u64).ok_or_else(|| {
            let shown = String::from_utf8_lossy(value);
            let text = format!("{name}: bad \"{what}\" argument value: \"{shown}\"");
            r.log(LogLevel::Error, &text);
            Failed
        })
    };
    let (from, to) = (read("from", first)?, read("to", second)?);
    Ok((from.min(to), from.max(to)))
}

fn random(r: &Request, from: u64, to: u64) -> Result<u64, Failed> {
    let mut bytes = [0; 16];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        r.log(LogLevel::Error, "set_random: the system gives no random bytes");
        return Err(Failed);
    }
    // Of so many bits the rest is even enough.
    Ok(from + (u128::from_le_bytes(bytes) % u128::from(to - from + 1)) as u64)
}

/// One more than the value, or than what the location has come to where there is none.
fn rotate(r: &Request, place: &AtomicU64, now: &[u8], from: u64, to: u64) -> u64 {
    let given = parse_int(now).filter(|n| *n < NOT_YET);
    if given.is_none() && !now.is_empty() {
        let shown = String::from_utf8_lossy(now);
        r.log(LogLevel::Error, &format!("set_rotate: bad current value: \"{shown}\""));
    }
    let next = |before: u64| match given.unwrap_or(before) {
        NOT_YET => from,
        n if (from..to).contains(&(n + 1)) || n + 1 == to => n + 1,
        _ => from,
    };
    let before = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(next(n)));
    next(before.unwrap_or(NOT_YET))
}

fn list_named(r: &Request, name: &[u8]) -> Result<List, Failed> {
    let part = Rc::clone(r.part());
    part.main().get::<MiscMain>().lists.find(name).cloned().ok_or_else(|| {
        let shown = String::from_utf8_lossy(name);
        let text = format!("set_hashed_upstream: upstream list \"{shown}\" is not defined");
        r.log(LogLevel::Error, &text);
        Failed
    })
}

/// nginx's hash of a name in lower case.
fn hash(key: &[u8]) -> u64 {
    let add = |hash: u64, b: &u8| hash.wrapping_mul(31).wrapping_add(b.to_ascii_lowercase().into());
    key.iter().fold(0, add)
}

fn set(cf: &mut Cf, d: &Directive, make: Make) -> ConfResult {
    let target = rewrite::variable(cf, d, 0, d.arg(0))?;
    let first = template(cf, d, 1)?;
    let second = match d.args.len() {
        2 => Template::constant(b""),
        _ => template(cf, d, 2)?,
    };
    rewrite::append(cf, Several { target, first, second, make });
    Ok(())
}

pub(super) fn set_if_empty(cf: &mut Cf, d: &Directive) -> ConfResult {
    set(cf, d, Make::IfEmpty)
}

pub(super) fn set_hmac(cf: &mut Cf, d: &Directive) -> ConfResult {
    let algorithm = match d.name().as_str() {
        "set_hmac_sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        _ => hmac::HMAC_SHA256,
    };
    set(cf, d, Make::Hmac(algorithm))
}

pub(super) fn set_random(cf: &mut Cf, d: &Directive) -> ConfResult {
    set(cf, d, Make::Random)
}

pub(super) fn set_rotate(cf: &mut Cf, d: &Directive) -> ConfResult {
    let begin = || Arc::new(AtomicU64::new(NOT_YET));
    let place = Arc::clone(cf.get::<MiscLoc>().rotated.get_or_insert_with(begin));
    set(cf, d, Make::Rotate(place))
}

pub(super) fn set_hashed_upstream(cf: &mut Cf, d: &Directive) -> ConfResult {
    let list = match d.arg(1).contains(&b'$') {
        true => None,
        false => {
            let list = cf.get::<MiscMain>().lists.find(d.arg(1)).cloned();
            let shown = String::from_utf8_lossy(d.arg(1));
            let text = format!("upstream list \"{shown}\" is not defined yet");
            Some(list.ok_or_else(|| d.bad(1, text))?)
        }
    };
    set(cf, d, Make::Hashed(list))
}
