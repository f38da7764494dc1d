use super::*;

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern.as_bytes(), RegexOptions::default()).unwrap()
}

fn caseless(pattern: &[u8]) -> Regex {
    Regex::new(pattern, RegexOptions { caseless: true, ..RegexOptions::default() }).unwrap()
}

#[test]
fn groups() {
    let regex = regex("^/(?<year>\\d+)/(x)?(?<rest>.*)$");
    assert_eq!(regex.captures_len(), 4);
    assert_eq!(regex.names().collect::<Vec<_>>(), [("year", 1), ("rest", 3)]);
    let mut captures = Captures::new();
    let subject = b"/2026/abc";
    assert_eq!(regex.exec(subject, &mut captures), Ok(true));
    assert_eq!(captures.offsets(), [(0, 9), (1, 5), (UNSET, UNSET), (6, 9)]);
    assert_eq!(captures.text(subject, 1), b"2026");
    assert_eq!(captures.text(subject, 2), b"");
    assert_eq!(captures.text(subject, 3), b"abc");
    assert_eq!(captures.text(subject, 9), b"");
    assert_eq!(captures.range(2), None);
    assert_eq!(regex.exec(b"/x/", &mut captures), Ok(false));
    assert!(captures.is_empty());
}

#[test]
fn dialect() {
    let yes = |regex: &Regex, subject: &[u8]| regex.is_match(subject).unwrap();
    assert!(yes(&caseless(b"\\.PHP$"), b"/a.php"));
    assert!(!yes(&regex("\\.PHP$"), b"/a.php"));
    assert!(yes(&regex("^(?!/admin)"), b"/x"));
    assert!(yes(&regex("(?<=a)b"), b"ab"));
    assert!(yes(&regex("(a+)+\\1"), b"aa"));
    assert!(yes(&regex("^.$"), b"\xff"), "bytes, not characters");
    assert!(yes(&regex(""), b""));
    assert!(yes(&regex("^a$"), b"a\n"));
    assert!(!yes(&regex("^b"), b"a\nb"));
    let options = RegexOptions { multiline: true, ..RegexOptions::default() };
    assert!(yes(&Regex::new(b"^b", options).unwrap(), b"a\nb"));
}

#[test]
fn patterns_that_begin_with_options() {
    let utf = regex("(*UTF8)^.$");
    assert_eq!(utf.is_match("\u{e9}".as_bytes()), Ok(true));
    let error = utf.is_match(b"\xe9").unwrap_err();
    assert!(error.to_string().starts_with("pcre2_match() failed: -"), "{error}");
    assert!(regex("(*UCP)(*UTF)^\\w$").is_match("\u{e9}".as_bytes()).unwrap());
    assert!(regex("(*ANYCRLF)(?m)^b$").is_match(b"a\rb\r").unwrap());
    assert!(regex("(*LIMIT_MATCH=100)a").is_match(b"a").unwrap());
}

#[test]
fn latin1_patterns() {
    let regex = Regex::new(b"^caf[\xe8\xe9]$", RegexOptions::default()).unwrap();
    assert_eq!(regex.is_match(b"caf\xe9"), Ok(true));
    assert_eq!(regex.is_match("caf\u{e9}".as_bytes()), Ok(false));
    assert_eq!(regex.pattern(), b"^caf[\xe8\xe9]$");
}

#[test]
fn limits_hold() {
    let regex = regex("^(a+)+$");
    let subject = [&b"a".repeat(64)[..], b"!"].concat();
    let error = regex.is_match(&subject).unwrap_err();
    assert_eq!(error.code, -47, "{error}");
    assert!(error.to_string().contains("match limit exceeded"), "{error}");
    let low = RegexOptions { match_limit_steps: 1, ..RegexOptions::default() };
    let regex = Regex::new(b"^(a|b)*?[cd]$", low).unwrap();
    assert!(regex.is_match(&b"ab".repeat(1000)).is_err());
}

/// Subjects that the JIT has no memory for, up to what a request's head can be made to hold.
#[test]
fn long_subjects_match() {
    for pattern in
        ["^/([^/]+/)*admin/", "^(?:/[^/]*)*$", "^(..)*.$", "^(?:a|b|/|dmin)+$", "^(\\w+|/)+?$"]
    {
        let regex = regex(pattern);
        for pieces in [10, 1_400, 16_000, 130_000, 260_000] {
            let subject = [&b"/admin/"[..], &b"ab//".repeat(pieces)].concat();
            assert_eq!(regex.is_match(&subject), Ok(true), "{pattern} {pieces}");
        }
    }
    let regex = regex("^/([^/]+/)*admin/([^/]+/)*(end)?");
    let subject = [&b"/admin/"[..], &b"a/".repeat(520_000)].concat();
    assert_eq!(regex.is_match(&subject), Ok(true));
    let mut captures = Captures::new();
    let subject = [&b"/x/admin/"[..], &b"abc/".repeat(50_000), b"end"].concat();
    assert_eq!(regex.exec(&subject, &mut captures), Ok(true));
    assert_eq!(captures.text(&subject, 1), b"x/");
    assert_eq!(captures.text(&subject, 3), b"end");
}

#[test]
fn errors_as_nginx_words_them() {
    for (pattern, expected) in [
        (&b"(a"[..], "pcre2_compile() failed: missing closing parenthesis in \"(a\""),
        (b"a)b", "pcre2_compile() failed: unmatched closing parenthesis in \"a)b\" at \")b\""),
        (b"*a", "pcre2_compile() failed: quantifier does not follow a repeatable item in \"*a\" at \"*a\""),
        (b"[a", "pcre2_compile() failed: missing terminating ] for character class in \"[a\""),
    ] {
        let error = Regex::new(pattern, RegexOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let error = Regex::new(b"\xe9)x", RegexOptions::default()).unwrap_err();
    assert_eq!(error.offset, Some(1));
}

#[test]
fn searching_on() {
    let regex = regex("a(.)");
    let mut captures = Captures::new();
    assert_eq!(regex.exec_at(b"a1a2", 1, &mut captures), Ok(true));
    assert_eq!(captures.range(1), Some(3..4));
    assert_eq!(regex.exec_at(b"a1", 3, &mut captures), Ok(false));
}

#[test]
fn from_many_threads() {
    let regex = regex("^(\\d+)-(\\w+)$");
    std::thread::scope(|scope| {
        for thread in 0..2 * SLOTS {
            let regex = &regex;
            scope.spawn(move || {
                let mut captures = Captures::new();
                for n in 0..200 {
                    let subject = format!("{n}-t{thread}");
                    assert_eq!(regex.exec(subject.as_bytes(), &mut captures), Ok(true));
                    let text = captures.text(subject.as_bytes(), 2);
                    assert_eq!(text, format!("t{thread}").as_bytes());
                }
            });
        }
    });
}

#[test]
fn storage_is_used_again() {
    let regex = regex("(a)(b)?");
    let mut captures = Captures::new();
    regex.exec(b"ab", &mut captures).unwrap();
    let (pointer, capacity) = (captures.groups.as_ptr(), captures.groups.capacity());
    for _ in 0..10 {
        regex.exec(b"a", &mut captures).unwrap();
    }
    assert_eq!((captures.groups.as_ptr(), captures.groups.capacity()), (pointer, capacity));
    assert_eq!(regex.slots.iter().filter(|slot| slot.0.lock().unwrap().is_some()).count(), 1);
}
