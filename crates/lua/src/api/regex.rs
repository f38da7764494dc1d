//! `ngx.re`: expressions are compiled and matched here, everything else is the Lua side's.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::ANY;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_script::regex::{Captures, Regex, RegexOptions, DEFAULT_MATCH_LIMIT_STEPS};

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("re_compile", ANY, compile),
    OpRow::any("re_exec", ANY, exec),
    OpRow::any("re_free", ANY, free),
    OpRow::any("re_replace", ANY, replace),
];

/// Expressions that are not kept and that somebody may go on with.
const LOOSE_MAX: usize = 64;

/// What a state has compiled, by numbers.
#[derive(Default)]
pub(crate) struct Compiled {
    known: RefCell<Known>,
}

#[derive(Default)]
struct Known {
    all: HashMap<u32, Rc<Regex>>,
    captures: Captures,
    /// Those that are not kept: who has one frees it, but code may leave off before that. The oldest go.
    loose: VecDeque<u32>,
    kept: u64,
    next: u32,
    is_told: bool,
}

/// Flags that go before a pattern in PCRE's own way, by the letters of the options.
const INLINE: &[(u8, &str)] = &[(b's', "s"), (b'x', "x"), (b'U', "U"), (b'J', "J"), (b'D', "J")];

fn pattern(text: &[u8], options: &[u8]) -> Vec<u8> {
    let has = |o: u8| options.contains(&o);
    let mut out = Vec::with_capacity(text.len() + 24);
    if has(b'u') {
        out.extend_from_slice(b"(*UTF)");
    }
    let flags: String = INLINE.iter().filter(|(o, _)| has(*o)).map(|(_, f)| *f).collect();
    // Verbs of the pattern's own stand before everything else.
    let verbs = match text.starts_with(b"(*") {
        true => text.iter().position(|b| *b == b')').map_or(0, |at| at + 1),
        false => 0,
    };
    out.extend_from_slice(&text[..verbs]);
    if !flags.is_empty() {
        out.extend_from_slice(format!("(?{flags})").as_bytes());
    }
    if has(b'a') {
        out.extend_from_slice(b"\\G(?:");
    }
    out.extend_from_slice(&text[verbs..]);
    if has(b'a') {
        // A comment of an extended pattern ends with its line.
        out.extend_from_slice(if has(b'x') { b"\n)" } else { b")" });
    }
    out
}

/// A pattern and its options; the number it is known by, and a list of its groups' names.
fn compile(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let has = |o: u8| args.b.contains(&o);
    let main = state.vm.main();
    let limit = main.and_then(|m| m.regex_match_limit.as_option().copied()).unwrap_or(0);
    let steps = if limit == 0 { DEFAULT_MATCH_LIMIT_STEPS } else { limit as u32 };
    let options =
        RegexOptions { caseless: has(b'i'), multiline: has(b'm'), match_limit_steps: steps };
    let whole = pattern(args.a, args.b);
    let made = Regex::new(&whole, options).map_err(|e| match Regex::new(args.a, options) {
        // Its errors are told of the pattern as it was written.
        Err(own) => own,
        Ok(_) => e,
    });
    let regex = match made {
        Ok(regex) => regex,
        Err(e) => return answer.fail(e.to_string()),
    };
    let mut known = state.vm.compiled.known.borrow_mut();
    let keep = has(b'o');
    let max = main.and_then(|m| m.regex_cache.as_option().copied()).unwrap_or(1024);
    let is_kept = keep && known.kept < max;
    if keep && !is_kept && !std::mem::replace(&mut known.is_told, true) {
        state.vm.log(LogLevel::Warn, &format!("lua exceeding regex cache max entries ({max})"));
    }
    known.kept += u64::from(is_kept);
    known.next = known.next.wrapping_add(1);
    let number = known.next;
    let mut list = answer.list();
    list.number(f64::from(number)).number(regex.captures_len() as f64 - 1.0).boolean(is_kept);
    for (name, at) in regex.names() {
        list.text(name.as_bytes()).number(at as f64);
    }
    known.all.insert(number, Rc::new(regex));
    if !is_kept {
        known.loose.push_back(number);
        if known.loose.len() > LOOSE_MAX {
            let oldest = known.loose.pop_front();
            oldest.map(|number| known.all.remove(&number));
        }
    }
    code::LIST
}

/// What PCRE says of a beginning behind the subject's end.
const BAD_OFFSET: &str = "-33";

/// Matches expression `args.i` from byte `args.x` on; the places of the groups as pairs of numbers. `FALSE` says that
/// it has been let go of.
fn exec(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let mut known = state.vm.compiled.known.borrow_mut();
    let known = &mut *known;
    let Some(regex) = known.all.get(&(args.i as u32)) else { return code::FALSE };
    if args.x > args.a.len() as f64 {
        return answer.fail(BAD_OFFSET);
    }
    match regex.exec_at(args.a, args.x as usize, &mut known.captures) {
        Ok(false) => code::NIL,
        Err(e) => answer.fail(e.code.to_string()),
        Ok(true) => {
            for (from, to) in known.captures.offsets() {
                answer.text.extend_from_slice(&from.to_ne_bytes());
                answer.text.extend_from_slice(&to.to_ne_bytes());
            }
            code::PLACES
        }
    }
}

/// What is longer is put together by the Lua side, whose memory is counted.
const REPLACED_MAX_BYTES: usize = 16 << 20;

/// A piece of a replacement.
enum Part<'a> {
    Text(&'a [u8]),
    Group(usize),
}

/// The first of what the Lua side has packed: a byte that says whether it is a group, four for its number or the
/// length of the text that follows.
fn part(packed: &[u8]) -> Option<(Part<'_>, &[u8])> {
    let (is_group, rest) = packed.split_first()?;
    let (number, rest) = rest.split_first_chunk::<4>()?;
    let number = u32::from_le_bytes(*number) as usize;
    if *is_group == 1 {
        return Some((Part::Group(number), rest));
    }
    let (text, rest) = rest.split_at_checked(number)?;
    Some((Part::Text(text), rest))
}

/// The subject with what expression `args.i` finds replaced by the parts of `args.b`, once or (`args.x`) everywhere,
/// and how often that was.
fn replace(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let mut known = state.vm.compiled.known.borrow_mut();
    let known = &mut *known;
    let Some(regex) = known.all.get(&(args.i as u32)) else { return code::OTHERWISE };
    let (subject, mut copied, mut at) = (args.a, 0, 0);
    while at <= subject.len() {
        match regex.exec_at(subject, at, &mut known.captures) {
            Ok(true) => {}
            Ok(false) => break,
            Err(e) => return answer.fail(e.code.to_string()),
        }
        let Some(found) = known.captures.range(0) else { break };
        answer.x += 1.0;
        // A look behind may have found what has been copied already.
        answer.text.extend_from_slice(subject.get(copied..found.start).unwrap_or_default());
        let mut parts = args.b;
        while let Some((one, rest)) = part(parts) {
            answer.text.extend_from_slice(match one {
                Part::Text(text) => text,
                Part::Group(group) => known.captures.text(subject, group),
            });
            parts = rest;
        }
        if answer.text.len() > REPLACED_MAX_BYTES {
            return code::OTHERWISE;
        }
        copied = found.end;
        at = if found.is_empty() || found.end <= at { found.end.max(at) + 1 } else { found.end };
        if args.x == 0.0 {
            break;
        }
    }
    if answer.x == 0.0 {
        return code::NIL;
    }
    answer.text.extend_from_slice(&subject[copied..]);
    code::TEXT
}

fn free(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    let mut known = state.vm.compiled.known.borrow_mut();
    let number = args.i as u32;
    known.all.remove(&number);
    known.loose.retain(|loose| *loose != number);
    code::TRUE
}
