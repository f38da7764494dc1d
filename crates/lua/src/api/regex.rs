//! `ngx.re`: expressions are compiled and matched here, everything else is the Lua side's.

use crate::conf::LuaMain;
use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::ANY;
use foldhash::{HashMap, HashMapExt};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use weir_core::logger::LogLevel;
use weir_runtime::pcre::{self, BadPattern, Expression, Matcher, Options};

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("re_compile", ANY, compile),
    OpRow::any("re_exec", ANY, exec),
    OpRow::any("re_free", ANY, free),
    OpRow::any("re_replace", ANY, replace),
    OpRow::any("re_jit_stack", ANY, |state, args, _| {
        let mut known = state.vm.compiled.known.borrow_mut();
        let matcher = known.matcher(state.vm.main());
        match matcher.is_some_and(|matcher| matcher.set_jit_stack(args.x as usize)) {
            true => code::TRUE,
            false => code::FALSE,
        }
    }),
];

/// Expressions that are not kept and that somebody may go on with.
const LOOSE_MAX: usize = 64;

/// What a state has compiled, by numbers.
#[derive(Default)]
pub(crate) struct Compiled {
    known: RefCell<Known>,
}

struct Known {
    all: HashMap<u64, Expression>,
    /// Asked for with the first expression.
    matcher: Option<Matcher>,
    /// Those that are not kept: who has one frees it, but code may leave off before that. The oldest go.
    loose: VecDeque<u64>,
    kept: u64,
    /// The last number. Lua's numbers are whole up to 2^53 of them.
    last: u64,
    is_told: bool,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            all: HashMap::new(),
            matcher: None,
            loose: VecDeque::new(),
            kept: 0,
            last: 0,
            is_told: false,
        }
    }
}

impl Known {
    fn add(&mut self, expression: Expression, is_kept: bool) -> u64 {
        self.last += 1;
        self.all.insert(self.last, expression);
        if is_kept {
            self.kept += 1;
            return self.last;
        }
        self.loose.push_back(self.last);
        if self.loose.len() > LOOSE_MAX {
            let oldest = self.loose.pop_front();
            oldest.map(|number| self.all.remove(&number));
        }
        self.last
    }

    fn free(&mut self, number: u64) {
        self.all.remove(&number);
        // It is the last one but for who has gone on with others meanwhile.
        if let Some(at) = self.loose.iter().rposition(|loose| *loose == number) {
            self.loose.remove(at);
        }
    }

    /// Who matches, with the limits of that configuration; there may be no memory for one.
    fn matcher(&mut self, main: Option<&LuaMain>) -> Option<&mut Matcher> {
        if self.matcher.is_none() {
            let limit = main.and_then(|m| m.regex_match_limit.as_option().copied()).unwrap_or(0);
            let steps = u32::try_from(limit).unwrap_or(u32::MAX);
            self.matcher = Matcher::new((steps > 0).then_some(steps));
        }
        self.matcher.as_mut()
    }

    /// The expression of that number and who matches it.
    fn at_hand(&mut self, number: u64) -> Option<(&Expression, &mut Matcher)> {
        Some((self.all.get(&number)?, self.matcher.as_mut()?))
    }
}

/// nginx's line.
fn told(pattern: &[u8], bad: &BadPattern) -> String {
    let whole = String::from_utf8_lossy(pattern);
    let mut told = format!("pcre2_compile() failed: {} in \"{whole}\"", bad.reason);
    if let Some(rest) = pattern.get(bad.offset..).filter(|rest| !rest.is_empty()) {
        told.push_str(&format!(" at \"{}\"", String::from_utf8_lossy(rest)));
    }
    told
}

/// The letters of the options. Machine code is made for who asks for it, and for what stays: it takes longer than
/// matching a short subject a hundred times. (`U` is UTF-8 that is not looked at whether it is, which nobody can allow.)
fn options(letters: &[u8], is_kept: bool) -> Options {
    let has = |letter: u8| letters.contains(&letter);
    Options {
        caseless: has(b'i'),
        multiline: has(b'm'),
        dot_all: has(b's'),
        extended: has(b'x'),
        anchored: has(b'a'),
        utf: has(b'u') || has(b'U'),
        duplicate_names: has(b'D'),
        javascript: has(b'J'),
        jit: is_kept || has(b'j'),
        dfa: has(b'd'),
    }
}

/// A pattern and its options; the number it is known by, and a list of its groups' names.
fn compile(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let main = state.vm.main();
    let mut known = state.vm.compiled.known.borrow_mut();
    if known.matcher(main).is_none() {
        let shown = args.a.escape_ascii();
        return answer.fail(format!("regex \"{shown}\" compilation failed: no memory"));
    }
    let keep = args.b.contains(&b'o');
    let max = main.and_then(|m| m.regex_cache.as_option().copied()).unwrap_or(1024);
    let is_kept = keep && known.kept < max;
    let expression = match Expression::new(args.a, options(args.b, is_kept)) {
        Ok(expression) => expression,
        Err(bad) => return answer.fail(told(args.a, &bad)),
    };
    if keep && !is_kept && !std::mem::replace(&mut known.is_told, true) {
        state.vm.log(LogLevel::Warn, &format!("lua exceeding regex cache max entries ({max})"));
    }
    let (groups, names) = (expression.groups(), expression.names());
    let number = known.add(expression, is_kept);
    let mut list = answer.list();
    list.number(number as f64).number(groups as f64 - 1.0).boolean(is_kept);
    for (name, at) in names {
        list.text(&name).number(at as f64);
    }
    code::LIST
}

/// The places of a group, if it took part.
fn place(found: &[usize], group: usize) -> Option<Range<usize>> {
    let at = group.checked_mul(2)?;
    let (&from, &to) = (found.get(at)?, found.get(at + 1)?);
    // A match can be told to begin behind its end, by \K in a look-ahead.
    (from != pcre::UNSET).then_some(from.min(to)..to)
}

/// Places go to Lua as numbers of 32 bits, of which the last says that there is none.
const NO_PLACE: u32 = u32::MAX;

/// Matches expression `args.id` from byte `args.x` on; the places of the groups as pairs of numbers. `FALSE` says that
/// it has been let go of.
fn exec(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let mut known = state.vm.compiled.known.borrow_mut();
    let Some((expression, matcher)) = known.at_hand(args.id) else { return code::FALSE };
    if args.a.len() >= NO_PLACE as usize {
        return answer.fail("the subject is too long");
    }
    if args.x > args.a.len() as f64 {
        return answer.fail(pcre::BAD_OFFSET.to_string());
    }
    match matcher.find(expression, args.a, args.x as usize) {
        Ok(None) => code::NIL,
        Err(e) => answer.fail(e.to_string()),
        Ok(Some(found)) => {
            let groups = if expression.is_dfa() { 1 } else { expression.groups() };
            answer.text.resize(groups * 8, 0);
            for (group, pair) in answer.text.chunks_exact_mut(8).enumerate() {
                let (from, to) = match place(found, group) {
                    Some(place) => (place.start as u32, place.end as u32),
                    None => (NO_PLACE, NO_PLACE),
                };
                let (first, second) = pair.split_at_mut(4);
                first.copy_from_slice(&from.to_ne_bytes());
                second.copy_from_slice(&to.to_ne_bytes());
            }
            code::PLACES
        }
    }
}

/// No replaced text is longer: a template that repeats a long match would take all memory.
const REPLACED_MAX_BYTES: usize = 256 << 20;

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

/// The subject with what expression `args.id` finds replaced by the parts of `args.b`, once or (`args.x`) everywhere,
/// and how often that was. `FALSE` is as in [`exec`].
fn replace(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let most = state.vm.text_max_bytes().min(REPLACED_MAX_BYTES);
    let mut known = state.vm.compiled.known.borrow_mut();
    let Some((expression, matcher)) = known.at_hand(args.id) else { return code::FALSE };
    let (subject, mut copied, mut at) = (args.a, 0, 0);
    while at <= subject.len() {
        let groups = match matcher.find(expression, subject, at) {
            Ok(Some(groups)) => groups,
            Ok(None) => break,
            Err(e) => return answer.fail(e.to_string()),
        };
        let Some(found) = place(groups, 0) else { return code::FALSE };
        answer.x += 1.0;
        // A look behind may have found what has been copied already.
        answer.text.extend_from_slice(subject.get(copied..found.start).unwrap_or_default());
        let mut parts = args.b;
        while let Some((one, rest)) = part(parts) {
            let piece = match one {
                Part::Text(text) => text,
                Part::Group(group) => {
                    place(groups, group).and_then(|place| subject.get(place)).unwrap_or_default()
                }
            };
            if answer.text.len() + piece.len() > most {
                return answer.fail(pcre::NO_MEMORY.to_string());
            }
            answer.text.extend_from_slice(piece);
            parts = rest;
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
    state.vm.compiled.known.borrow_mut().free(args.id);
    code::TRUE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_end() {
        let expression = || Expression::new(b"a", Options::default()).ok();
        let mut known =
            Known { matcher: Matcher::new(None), last: (1 << 31) - 2, ..Known::default() };
        let all: Vec<u64> = (0..4).filter_map(|_| Some(known.add(expression()?, true))).collect();
        assert_eq!(all, [(1 << 31) - 1, 1 << 31, (1 << 31) + 1, (1 << 31) + 2]);
        known.last = u64::from(u32::MAX) - 1;
        let all: Vec<u64> = (0..3).filter_map(|_| Some(known.add(expression()?, false))).collect();
        assert_eq!(all, [u64::from(u32::MAX), 1 << 32, (1 << 32) + 1]);
        for number in all {
            // As it comes back from Lua.
            let number = number as f64 as u64;
            assert!(known.at_hand(number).is_some());
            known.free(number);
            assert!(known.at_hand(number).is_none());
        }
        assert_eq!((known.all.len(), known.loose.len(), known.kept), (4, 0, 4));
    }

    #[test]
    fn what_nobody_frees_goes() {
        let mut known = Known { matcher: Matcher::new(None), ..Known::default() };
        for _ in 0..LOOSE_MAX + 10 {
            known.add(Expression::new(b"a", Options::default()).expect("a pattern"), false);
        }
        assert_eq!((known.all.len(), known.loose.len()), (LOOSE_MAX, LOOSE_MAX));
        assert!(known.at_hand(10).is_none() && known.at_hand(11).is_some());
    }
}
