//! What crosses the border to Lua: questions, answers, and how far code has gone. All of it is safe code.

use crate::machine::code;
use crate::watch::Verdict;
use std::fmt::Write as _;
use weir_base::bytes::fmt_u64;

/// What Lua asks with.
pub(crate) struct Args<'a> {
    pub i: i32,
    /// The same where it is a number that something is known by.
    pub id: u64,
    pub a: &'a [u8],
    pub b: &'a [u8],
    pub x: f64,
    pub y: f64,
}

/// What it is answered besides a code. It is the engine's, and used again.
#[derive(Default)]
pub(crate) struct Answer {
    pub text: Vec<u8>,
    pub x: f64,
}

/// Who answers Lua.
pub(crate) trait Host {
    /// The code is for the Lua side to know what is in the answer.
    fn call(&mut self, op: i32, args: &Args<'_>, answer: &mut Answer) -> i32;

    /// Code has run for so long, and is at this place now: what becomes of it.
    fn overdue(&mut self, ms: u64, place: &str) -> Verdict;

    /// So many samples of a profile have found code here: its calls from the outermost, between semicolons.
    fn sampled(&mut self, turns: u64, stack: &str);
}

/// Answers nobody: finalizers may run where a state ends.
pub(crate) struct Nobody;

impl Host for Nobody {
    /// Nothing has come of it.
    fn call(&mut self, _: i32, _: &Args<'_>, _: &mut Answer) -> i32 {
        BROKEN
    }

    fn overdue(&mut self, _: u64, _: &str) -> Verdict {
        Verdict::GoesOn
    }

    fn sampled(&mut self, _: u64, _: &str) {}
}

/// Behind the code of an answer that was none.
pub(crate) const BROKEN: i32 = -9;

/// What an operation that was refused says in front of its text.
pub(crate) fn refusal(answered: i32) -> &'static [u8] {
    match answered {
        code::RAISED => b"",
        code::NO_REQUEST => b"no request found",
        code::FORBIDDEN => b"API disabled in the context of ",
        code::FORBIDDEN_NOW => b"API disabled in the current context",
        _ => b"internal error",
    }
}

/// One call of a coroutine's.
pub(crate) struct Call {
    pub file: String,
    pub name: Option<String>,
    /// Where it is; below 1 where that is not Lua.
    pub line: i32,
    /// Where the function begins.
    pub begins: i32,
    /// Of the innermost: the line of the call that it has just come back from; 0 if it has not.
    pub back_from: i32,
}

/// Where code is, by its calls from the innermost outwards, as lines.
pub(crate) fn place(calls: &[Call]) -> String {
    let mut text = String::from("stack traceback:");
    for call in calls {
        let _ = write!(text, "\n\t{}", call.file);
        if call.line > 0 {
            let _ = write!(text, ":{}", call.line);
        }
        if let Some(name) = &call.name {
            let _ = write!(text, ": in '{name}'");
        }
    }
    text
}

/// Places of what Lua gives to be kept.
pub(crate) mod kept {
    /// Tells of an error of code that does not wait.
    pub(crate) const FAILED: usize = 0;
    /// Calls code with the arguments of a `set_by_lua`, and is told its value.
    pub(crate) const SET: usize = 1;
    pub(crate) const RESULT: usize = 2;
    /// Tells of an error that has ended a coroutine.
    pub(crate) const ABORTED: usize = 3;
    /// The tables of `ngx.ctx`, by numbers.
    pub(crate) const CONTEXTS: usize = 4;
    /// The coroutines that code begins on.
    pub(crate) const ENTRIES: usize = 5;
    /// Code that is for one run.
    pub(crate) const HELD: usize = 6;
    /// Does a job in a state apart.
    pub(crate) const APART: usize = 7;
    /// The code of a number is behind these.
    pub(crate) const CODES: usize = 8;
}

/// How far a coroutine has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Went {
    Ended,
    /// It waits for that number.
    Waits(u64),
    /// It wants its run to end.
    Left,
    /// It waits for nothing.
    Yielded,
    /// By an error, which it still has.
    Failed,
}

impl Went {
    /// As Lua is told it.
    pub(crate) fn number(self) -> f64 {
        match self {
            Went::Ended => -1.0,
            Went::Failed => -2.0,
            Went::Left => -3.0,
            Went::Yielded => -4.0,
            Went::Waits(id) => id as f64,
        }
    }
}

/// What a coroutine that has waited is given.
pub(crate) struct Values<'a> {
    pub code: i32,
    pub x: f64,
    pub text: &'a [u8],
}

/// How an entry has failed: nothing of it can be relied on but the text.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error that nobody caught.
    Error(String),
    /// There is no memory left for this engine.
    Memory,
}

/// What an entry has come to.
pub(crate) type Entered<T> = Result<T, Failure>;

/// One value of a list.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Item<'a> {
    Nil,
    Boolean(bool),
    Number(f64),
    Text(&'a [u8]),
    /// Names and values by turns, which are all that follows.
    Table(&'a [u8]),
}

/// The values that [`List`](crate::machine::List) has written.
#[derive(Clone, Copy)]
pub(crate) struct Items<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let (tag, rest) = self.0.split_first()?;
        let (item, rest) = match tag {
            1 => (Item::Boolean(true), rest),
            4 => (Item::Boolean(false), rest),
            2 => {
                let (length, rest) = rest.split_first_chunk::<4>()?;
                let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
                let (text, rest) = rest.split_at(length);
                (Item::Text(text), rest)
            }
            3 => {
                let (number, rest) = rest.split_first_chunk::<8>()?;
                (Item::Number(f64::from_le_bytes(*number)), rest)
            }
            5 => (Item::Table(rest), &[][..]),
            _ => (Item::Nil, rest),
        };
        self.0 = rest;
        Some(item)
    }
}

/// Writes a number as OpenResty does (`%.14g`), if it is a whole one with so few digits: most are, and Lua would keep a text
/// of each. Whether it was one.
pub(crate) fn put_whole(out: &mut Vec<u8>, number: f64) -> bool {
    const FIRST_TOO_LONG: f64 = 1e14;
    let whole = number as i64;
    let is_one = whole as f64 == number && number.abs() < FIRST_TOO_LONG;
    if is_one {
        if whole < 0 {
            out.push(b'-');
        }
        fmt_u64(out, whole.unsigned_abs());
    }
    is_one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_as_lua_writes_them() {
        let text = |number| {
            let mut out = Vec::new();
            put_whole(&mut out, number).then(|| String::from_utf8(out).expect("digits"))
        };
        assert_eq!(text(0.0).as_deref(), Some("0"));
        assert_eq!(text(-0.0).as_deref(), Some("0"));
        assert_eq!(text(-17.0).as_deref(), Some("-17"));
        assert_eq!(text(99_999_999_999_999.0).as_deref(), Some("99999999999999"));
        for other in [0.5, 1e14, -1e14, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(text(other), None, "{other}");
        }
    }
    use crate::machine::List;

    #[test]
    fn what_is_written_is_read() {
        let mut text = Vec::new();
        List(&mut text)
            .number(1.5)
            .nil()
            .boolean(true)
            .boolean(false)
            .text(b"ab")
            .table()
            .text(b"c");
        let all: Vec<_> = Items(&text).collect();
        let [.., Item::Table(inner)] = all[..] else { panic!("{all:?}") };
        assert_eq!(
            all[..5],
            [
                Item::Number(1.5),
                Item::Nil,
                Item::Boolean(true),
                Item::Boolean(false),
                Item::Text(b"ab")
            ]
        );
        assert_eq!(Items(inner).collect::<Vec<_>>(), [Item::Text(b"c")]);
        assert_eq!(Items(&text[..3]).count(), 0, "half a number is none");
    }
}
