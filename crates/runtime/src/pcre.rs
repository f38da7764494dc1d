//! PCRE2 itself, for who wants more of it than the crate `pcre2` has: its options as they are, its DFA matching, and
//! what it takes for matching lent to one expression after the other.
//!
//! An expression is compiled for its machine code (JIT) only where that is asked for: it takes some ten times as long.
//! What the JIT has no memory for is matched again by the interpreter, in memory that is given back. Whatever neither
//! can tell is an error by PCRE's number, and never "no".

use pcre2_sys as sys;
use std::ffi::c_int;
use std::ptr::{self, NonNull};

/// Backtracking steps that one match may take where nobody has said.
const STEPS: u32 = 1_000_000;
/// Memory for backtracking. It stays with the [`Matcher`].
const HEAP_KIB: u32 = 1024;
/// What the interpreter may take when a match is done again: the library's own limit of steps, and memory for 1 MB of
/// subject in pieces of a byte.
const AGAIN_STEPS: u32 = 10_000_000;
const AGAIN_HEAP_KIB: u32 = 524_288;
/// What a stack of the JIT's begins with.
const JIT_STACK_BYTES: usize = 32 * 1024;
/// A subject longer than this may need more steps than the first limit for being long.
const LONG_SUBJECT_BYTES: usize = 32_768;
/// What DFA matching may take. All states that the expression can be in are looked at for each byte, and compared with
/// each other: `(a+)+` has one more with each byte. That there are places for no more than 166 (six numbers each) is
/// what bounds the time; OpenResty has 100 numbers. It goes into itself for recursion and looks around, on the thread's
/// stack (400 bytes each time, 1 KB unoptimised).
const DFA_NUMBERS: usize = 1000;
const DFA_DEPTH: u32 = 1000;
const DFA_HEAP_KIB: u32 = 32_768;

/// The error of who begins behind the subject's end.
pub const BAD_OFFSET: i32 = sys::PCRE2_ERROR_BADOFFSET;
/// That of who has no room for the answer.
pub const NO_MEMORY: i32 = sys::PCRE2_ERROR_NOMEMORY;

/// What an expression is compiled with.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Options {
    pub caseless: bool,
    pub multiline: bool,
    pub dot_all: bool,
    pub extended: bool,
    pub anchored: bool,
    pub utf: bool,
    pub duplicate_names: bool,
    /// As JavaScript reads it: `\u0061`, `[]`, and groups that took no part match as what is empty.
    pub javascript: bool,
    pub jit: bool,
    /// All ways are gone at once and the longest match is taken; there are no groups.
    pub dfa: bool,
}

impl Options {
    fn bits(self) -> u32 {
        let javascript =
            sys::PCRE2_ALT_BSUX | sys::PCRE2_ALLOW_EMPTY_CLASS | sys::PCRE2_MATCH_UNSET_BACKREF;
        [
            (self.caseless, sys::PCRE2_CASELESS),
            (self.multiline, sys::PCRE2_MULTILINE),
            (self.dot_all, sys::PCRE2_DOTALL),
            (self.extended, sys::PCRE2_EXTENDED),
            (self.anchored, sys::PCRE2_ANCHORED),
            (self.utf, sys::PCRE2_UTF),
            (self.duplicate_names, sys::PCRE2_DUPNAMES),
            (self.javascript, javascript),
        ]
        .iter()
        .filter(|(is_set, _)| *is_set)
        .fold(0, |all, (_, bits)| all | bits)
    }
}

/// A pattern that is not one: why, and where in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPattern {
    pub reason: String,
    pub offset: usize,
}

/// A compiled expression.
pub struct Expression {
    code: NonNull<sys::pcre2_code_8>,
    groups: u32,
    is_dfa: bool,
}

impl Drop for Expression {
    fn drop(&mut self) {
        // SAFETY: it was made by `pcre2_compile`, and nobody has it any more.
        unsafe { sys::pcre2_code_free_8(self.code.as_ptr()) }
    }
}

impl Expression {
    /// # Errors
    ///
    /// The pattern is not one, or there is no memory for it.
    pub fn new(pattern: &[u8], options: Options) -> Result<Expression, BadPattern> {
        let (mut error, mut offset) = (0, 0);
        // SAFETY: the pattern is there for as long as the call, which copies what it needs of it. It never reads more
        // than the length says; an empty slice's pointer is not null.
        let code = unsafe {
            sys::pcre2_compile_8(
                pattern.as_ptr(),
                pattern.len(),
                options.bits(),
                &mut error,
                &mut offset,
                ptr::null_mut(),
            )
        };
        let Some(code) = NonNull::new(code) else {
            return Err(BadPattern { reason: reason(error), offset: offset.min(pattern.len()) });
        };
        let mut made = Expression { code, groups: 1, is_dfa: options.dfa };
        made.groups += made.number(sys::PCRE2_INFO_CAPTURECOUNT);
        if options.jit && !options.dfa {
            // Where it fails (a system without it, an item it does not know) the interpreter matches.
            // SAFETY: the code is one, and nobody else has it yet.
            unsafe { sys::pcre2_jit_compile_8(code.as_ptr(), sys::PCRE2_JIT_COMPLETE) };
        }
        Ok(made)
    }

    /// How many groups there are, the whole match among them: at least 1.
    pub fn groups(&self) -> usize {
        self.groups as usize
    }

    /// Whether it has no groups but the whole match.
    pub fn is_dfa(&self) -> bool {
        self.is_dfa
    }

    /// Names of groups and their numbers, in the library's order.
    pub fn names(&self) -> Vec<(Vec<u8>, usize)> {
        let count = self.number(sys::PCRE2_INFO_NAMECOUNT) as usize;
        let each = self.number(sys::PCRE2_INFO_NAMEENTRYSIZE) as usize;
        let mut table: *const u8 = ptr::null();
        // SAFETY: for this question the library writes a pointer.
        unsafe {
            let into = (&raw mut table).cast();
            sys::pcre2_pattern_info_8(self.code.as_ptr(), sys::PCRE2_INFO_NAMETABLE, into);
        }
        if table.is_null() || each < 3 {
            return Vec::new();
        }
        // SAFETY: the table has so many entries of that size, and is the code's for as long as that is there.
        let table = unsafe { std::slice::from_raw_parts(table, count * each) };
        // Two bytes of a number, and a name that ends with a zero.
        let entry = |entry: &[u8]| {
            let number = usize::from(entry[0]) << 8 | usize::from(entry[1]);
            let name = entry[2..].split(|byte| *byte == 0).next().unwrap_or_default();
            (name.to_vec(), number)
        };
        table.chunks_exact(each).map(entry).collect()
    }

    fn number(&self, what: u32) -> u32 {
        let mut number: u32 = 0;
        // SAFETY: for what is asked here the library writes a `uint32_t`.
        unsafe { sys::pcre2_pattern_info_8(self.code.as_ptr(), what, (&raw mut number).cast()) };
        number
    }
}

/// The library's words for an error.
pub fn reason(error: c_int) -> String {
    let mut text = [0u8; 256];
    // SAFETY: so many bytes are there to be written to.
    let length = unsafe { sys::pcre2_get_error_message_8(error, text.as_mut_ptr(), text.len()) };
    let length = usize::try_from(length).unwrap_or(0);
    String::from_utf8_lossy(text.get(..length).unwrap_or_default()).into_owned()
}

/// What a match may take.
struct Limits(NonNull<sys::pcre2_match_context_8>);

impl Drop for Limits {
    fn drop(&mut self) {
        // SAFETY: it is this value's own.
        unsafe { sys::pcre2_match_context_free_8(self.0.as_ptr()) }
    }
}

impl Limits {
    fn new(steps: u32, heap_kib: u32, depth: Option<u32>) -> Option<Limits> {
        // SAFETY: without a general context the library asks for memory by malloc.
        let limits = NonNull::new(unsafe { sys::pcre2_match_context_create_8(ptr::null_mut()) })?;
        // SAFETY: it is a match context that nobody else has.
        unsafe {
            sys::pcre2_set_match_limit_8(limits.as_ptr(), steps);
            sys::pcre2_set_heap_limit_8(limits.as_ptr(), heap_kib);
            if let Some(depth) = depth {
                sys::pcre2_set_depth_limit_8(limits.as_ptr(), depth);
            }
        }
        Some(Limits(limits))
    }
}

/// What the JIT's code has for going back. As long as nobody asks for one it has 32 KB of the thread's stack.
struct Stack(NonNull<sys::pcre2_jit_stack_8>);

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: it is this value's own.
        unsafe { sys::pcre2_jit_stack_free_8(self.0.as_ptr()) }
    }
}

/// Where the groups of a match are written to, with the interpreter's memory.
struct Places {
    data: NonNull<sys::pcre2_match_data_8>,
    groups: u32,
}

impl Drop for Places {
    fn drop(&mut self) {
        // SAFETY: it is this value's own.
        unsafe { sys::pcre2_match_data_free_8(self.data.as_ptr()) }
    }
}

impl Places {
    fn new(groups: u32) -> Option<Places> {
        // SAFETY: without a general context the library asks for memory by malloc.
        let data = unsafe { sys::pcre2_match_data_create_8(groups, ptr::null_mut()) };
        Some(Places { data: NonNull::new(data)?, groups })
    }

    /// The beginnings and ends by turns of the first `groups` groups.
    fn of(&self, groups: usize) -> &[usize] {
        let groups = groups.min(self.groups as usize);
        // SAFETY: there are two numbers for each group it was made for.
        unsafe {
            let places = sys::pcre2_get_ovector_pointer_8(self.data.as_ptr());
            std::slice::from_raw_parts(places, groups * 2)
        }
    }
}

/// Matches expressions, one at a time: what that takes is asked for once.
pub struct Matcher {
    first: Limits,
    /// That `first` has been given.
    stack: Option<Stack>,
    again: Limits,
    dfa: Limits,
    /// Somebody has said how many steps there are.
    is_strict: bool,
    places: Places,
    /// What was found by matching again.
    found_again: Vec<usize>,
    states: Vec<c_int>,
}

impl Matcher {
    /// One whose matches take so many steps, or the usual number. There may be no memory for it.
    pub fn new(steps: Option<u32>) -> Option<Matcher> {
        let first = steps.unwrap_or(STEPS);
        Some(Matcher {
            first: Limits::new(first, HEAP_KIB, None)?,
            stack: None,
            again: Limits::new(steps.unwrap_or(AGAIN_STEPS), AGAIN_HEAP_KIB, None)?,
            dfa: Limits::new(steps.unwrap_or(AGAIN_STEPS), DFA_HEAP_KIB, Some(DFA_DEPTH))?,
            is_strict: steps.is_some(),
            places: Places::new(16)?,
            found_again: Vec::new(),
            states: Vec::new(),
        })
    }

    /// Lets the JIT's code go back further, in memory that grows up to so many bytes and stays. What that is not enough
    /// for is matched by the interpreter as before. `false`: there is no memory for it.
    pub fn set_jit_stack(&mut self, bytes: usize) -> bool {
        let least = bytes.min(JIT_STACK_BYTES);
        // SAFETY: without a general context the library asks for memory by malloc.
        let stack = unsafe { sys::pcre2_jit_stack_create_8(least, bytes, ptr::null_mut()) };
        let Some(stack) = NonNull::new(stack) else { return false };
        // SAFETY: both are this matcher's, which matches one expression at a time; the stack goes when another takes
        // its place here, or with the limits that refer to it.
        unsafe {
            let limits = self.first.0.as_ptr();
            sys::pcre2_jit_stack_assign_8(limits, None, stack.as_ptr().cast());
        }
        self.stack = Some(Stack(stack));
        true
    }

    /// Searches from byte `at` on, which `^` and looks behind see past. A match's groups are beginnings and ends by
    /// turns; those that took no part, and are not the last that did, are [`UNSET`]; groups behind that are missing.
    ///
    /// # Errors
    ///
    /// The match was given up, with PCRE's number: whether there is one is not known.
    pub fn find(
        &mut self,
        expression: &Expression,
        subject: &[u8],
        at: usize,
    ) -> Result<Option<&[usize]>, i32> {
        if expression.is_dfa {
            return self.find_dfa(expression, subject, at);
        }
        if self.places.groups < expression.groups {
            self.places = Places::new(expression.groups).ok_or(sys::PCRE2_ERROR_NOMEMORY)?;
        }
        let first = search(expression, &self.first, &self.places, subject, at, 0);
        let is_again = match first {
            sys::PCRE2_ERROR_JIT_STACKLIMIT
            | sys::PCRE2_ERROR_DEPTHLIMIT
            | sys::PCRE2_ERROR_HEAPLIMIT => true,
            sys::PCRE2_ERROR_MATCHLIMIT => !self.is_strict && subject.len() > LONG_SUBJECT_BYTES,
            _ => false,
        };
        if !is_again {
            return told(first, &self.places);
        }
        let places = Places::new(expression.groups).ok_or(sys::PCRE2_ERROR_NOMEMORY)?;
        let found = search(expression, &self.again, &places, subject, at, sys::PCRE2_NO_JIT);
        let Some(found) = told(found, &places)? else { return Ok(None) };
        self.found_again.clear();
        self.found_again.extend_from_slice(found);
        // The interpreter's memory goes with its places.
        Ok(Some(&self.found_again))
    }

    fn find_dfa(
        &mut self,
        expression: &Expression,
        subject: &[u8],
        at: usize,
    ) -> Result<Option<&[usize]>, i32> {
        self.states.resize(DFA_NUMBERS, 0);
        // SAFETY: as in `search`. The numbers are there to be written to, and are as many as is said.
        let found = unsafe {
            sys::pcre2_dfa_match_8(
                expression.code.as_ptr(),
                pointer(subject),
                subject.len(),
                at,
                0,
                self.places.data.as_ptr(),
                self.dfa.0.as_ptr(),
                self.states.as_mut_ptr(),
                self.states.len(),
            )
        };
        // What follows the longest are shorter matches, of which there may be more than places.
        told(if found >= 0 { 1 } else { found }, &self.places)
    }
}

fn search(
    expression: &Expression,
    limits: &Limits,
    places: &Places,
    subject: &[u8],
    at: usize,
    options: u32,
) -> c_int {
    // SAFETY: all of them are whole and no other thread has them, for neither can be sent or shared. The subject is
    // there for as long as the call, and the library checks `at` by its length, and that it is UTF-8 where it has to
    // be. The places keep a pointer to the subject that nobody here reads.
    unsafe {
        sys::pcre2_match_8(
            expression.code.as_ptr(),
            pointer(subject),
            subject.len(),
            at,
            options,
            places.data.as_ptr(),
            limits.0.as_ptr(),
        )
    }
}

/// One that can be read even where there is nothing: old versions of the library did so.
fn pointer(subject: &[u8]) -> *const u8 {
    static NOTHING: [u8; 1] = [0];
    if subject.is_empty() {
        NOTHING.as_ptr()
    } else {
        subject.as_ptr()
    }
}

/// What the library's number means: of groups, or an error.
fn told(number: c_int, places: &Places) -> Result<Option<&[usize]>, i32> {
    match usize::try_from(number) {
        Ok(0) => Err(sys::PCRE2_ERROR_INTERNAL),
        Ok(groups) => Ok(Some(places.of(groups))),
        Err(_) if number == sys::PCRE2_ERROR_NOMATCH => Ok(None),
        Err(_) => Err(number),
    }
}

/// The places of a group that took no part.
pub const UNSET: usize = sys::PCRE2_UNSET;

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, options: Options, subject: &[u8]) -> Result<Option<Vec<usize>>, i32> {
        let expression = Expression::new(pattern.as_bytes(), options).expect(pattern);
        let mut matcher = Matcher::new(None).expect("memory");
        matcher.find(&expression, subject, 0).map(|found| found.map(<[usize]>::to_vec))
    }

    const PLAIN: Options = Options {
        caseless: false,
        multiline: false,
        dot_all: false,
        extended: false,
        anchored: false,
        utf: false,
        duplicate_names: false,
        javascript: false,
        jit: false,
        dfa: false,
    };
    const JIT: Options = Options { jit: true, ..PLAIN };
    const DFA: Options = Options { dfa: true, ..PLAIN };

    #[test]
    fn groups_and_names() {
        for options in [PLAIN, JIT] {
            let found = find("(a)|(?<n>b)(c)?", options, b"xb").expect("no error");
            assert_eq!(
                found,
                Some(vec![1, 2, UNSET, UNSET, 1, 2]),
                "groups behind the last are missing"
            );
            assert_eq!(find("a", options, b""), Ok(None));
            let (text, many) = ("a".repeat(40), "(a)".repeat(40));
            let found = find(&many, options, text.as_bytes()).expect("no error").expect("a match");
            assert_eq!(
                (found.len(), found[81]),
                (82, 40),
                "more groups than there were places for"
            );
        }
        let two = Options { duplicate_names: true, ..PLAIN };
        let expression = Expression::new(b"(?<b>a)(?<a>b)(?<b>c)", two).expect("a pattern");
        let name = |name: &str, n| (name.as_bytes().to_vec(), n);
        assert_eq!(expression.names(), [name("a", 2), name("b", 1), name("b", 3)]);
        assert_eq!(expression.groups(), 4);
    }

    #[test]
    fn patterns_that_are_none() {
        let bad = Expression::new(b"a)b", PLAIN).err().expect("an error");
        assert_eq!((bad.reason.as_str(), bad.offset), ("unmatched closing parenthesis", 1));
        assert_eq!(Expression::new(b"[", PLAIN).err().map(|bad| bad.offset), Some(1));
    }

    #[test]
    fn all_ways_at_once() {
        assert_eq!(find("a|aa|aaa", DFA, b"aaab"), Ok(Some(vec![0, 3])), "the longest");
        assert_eq!(find("(a)+?", DFA, b"xaaa"), Ok(Some(vec![1, 4])), "no groups");
        assert_eq!(find("x", DFA, b"aaa"), Ok(None));
        assert_eq!(find("", DFA, b""), Ok(Some(vec![0, 0])));
        assert_eq!(find("(a)\\1", DFA, b"aa"), Err(-42), "what it cannot do is an error");
        let evil = [&b"a".repeat(2000)[..], b"!"].concat();
        assert_eq!(find("^(a|aa)+$", DFA, &evil), Ok(None), "in no more time than there are bytes");
        assert_eq!(
            find(&"(?:a?)".repeat(2000), DFA, &evil),
            Err(-43),
            "so many states are not followed"
        );
        let deep = "(".repeat(50_000) + ")";
        let error = find("(\\((?1)*\\))", DFA, deep.as_bytes()).expect_err("too deep");
        assert!([-53, -63].contains(&error), "{error}");
    }

    #[test]
    fn limits_hold_with_and_without_the_jit() {
        let evil = [&b"a".repeat(64)[..], b"!"].concat();
        for options in [PLAIN, JIT] {
            assert_eq!(find("^(a+)+$", options, &evil), Err(-47));
            let expression = Expression::new(b"^(a|b)*?[cd]$", options).expect("a pattern");
            let mut strict = Matcher::new(Some(100)).expect("memory");
            assert_eq!(strict.find(&expression, &b"ab".repeat(50_000), 0), Err(-47), "{options:?}");
            assert_eq!(strict.find(&expression, b"abd", 0).map(|found| found.is_some()), Ok(true));
            assert_eq!(strict.find(&expression, b"abd", 4), Err(BAD_OFFSET));
        }
    }

    #[test]
    fn long_subjects_match() {
        let path = b"/abcdef".repeat(5_000);
        for options in [PLAIN, JIT] {
            let found = find("^(?:a|b|/|[c-f])+$", options, &path);
            assert_eq!(found, Ok(Some(vec![0, path.len()])), "{options:?}");
        }
    }

    /// Where the JIT's code has no room, the interpreter needs more steps than there are here.
    #[test]
    fn a_stack_that_is_asked_for_is_used() {
        let path = b"/abcdef".repeat(5_000);
        let expression = Expression::new(b"^(?:a|b|/|[c-f])+$", JIT).expect("a pattern");
        let mut matcher = Matcher::new(Some(10_000)).expect("memory");
        let is_found = |matcher: &mut Matcher| {
            matcher.find(&expression, &path, 0).map(|found| found.is_some())
        };
        assert_eq!(is_found(&mut matcher), Err(-47));
        assert!(matcher.set_jit_stack(4096));
        assert_eq!(is_found(&mut matcher), Err(-47));
        assert!(matcher.set_jit_stack(8 << 20));
        assert_eq!(is_found(&mut matcher), Ok(true));
    }

    #[test]
    fn text_that_is_not() {
        for dfa in [false, true] {
            let utf = Options { utf: true, dfa, ..PLAIN };
            assert_eq!(find("^.$", utf, "\u{e9}".as_bytes()), Ok(Some(vec![0, 2])));
            assert!(find("^.$", utf, b"\xc3").is_err());
        }
    }
}
