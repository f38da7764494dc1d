//! What a service is told of itself, as Windows writes it: its command line, which is one text that programs take apart
//! again, its name, and the texts and number of its events.

use super::RUN;
use std::time::{Duration, Instant};

const SPACE: u16 = b' ' as u16;
const QUOTE: u16 = b'"' as u16;
const BACKSLASH: u16 = b'\\' as u16;
const PERCENT: u16 = b'%' as u16;

/// A service's name is a key's in the registry, too.
const NAME_MAX: usize = 80;
/// The event log takes a text of some 31,800.
const EVENT_MAX: usize = 8000;

/// A command line that is taken apart into these words again. The program's name has quotes in any case: without them a
/// path with a space names another program as well, and whoever may make that one is started in its place.
pub fn command_line(program: &[u16], words: &[Vec<u16>]) -> Vec<u16> {
    let mut line = vec![QUOTE];
    line.extend_from_slice(program);
    line.push(QUOTE);
    for word in words {
        line.push(SPACE);
        push_word(word, &mut line);
    }
    line
}

/// Backslashes mean themselves, except in front of a quote, where each is written twice.
fn push_word(word: &[u16], line: &mut Vec<u16>) {
    let is_special = |c: &u16| *c == QUOTE || u8::try_from(*c).is_ok_and(|c| c <= b' ');
    if !word.is_empty() && !word.iter().any(is_special) {
        return line.extend_from_slice(word);
    }
    line.push(QUOTE);
    let mut backslashes = 0;
    for c in word {
        match *c {
            BACKSLASH => backslashes += 1,
            QUOTE => {
                line.extend(std::iter::repeat_n(BACKSLASH, backslashes + 1));
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        line.push(*c);
    }
    line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
    line.push(QUOTE);
}

/// Why a command line is not what a service would be started with.
pub fn refused(line: &[u16]) -> Option<&'static str> {
    // The system looks for variables in it, and there is no way to say that a percent sign is none.
    if line.iter().filter(|c| **c == PERCENT).count() > 1 {
        return Some(
            "two percent signs: the system takes what is between them for a variable's name; \
             put the directives into the configuration, or name the folders otherwise",
        );
    }
    // A word of the registry and of a process ends there.
    line.contains(&0).then_some("a character of the number 0")
}

/// Whether a service's command line is one of this program's making.
pub fn is_ours(line: &[u16]) -> bool {
    let line = String::from_utf16_lossy(line);
    let behind = line.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    behind.is_some_and(|(_, words)| words.starts_with(&format!(" {} {} ", RUN[0], RUN[1])))
}

/// What is wrong with a service's name.
pub fn bad_name(name: &str) -> Option<String> {
    let is_bad = |c: char| c.is_control() || matches!(c, '/' | '\\' | '"' | '%');
    match name.trim() != name || name.is_empty() || name.len() > NAME_MAX || name.contains(is_bad) {
        true => Some(format!(
            "\"{name}\" is no name for a service: up to {NAME_MAX} characters, without / \\ \" and %"
        )),
        false => None,
    }
}

/// The text of an event. Of what strangers have sent nothing is a line's end or another character that nobody sees, and
/// nothing what the event log would put something else in the place of (`%20`).
pub fn event_text(text: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(text);
    let mut out = String::with_capacity(text.len());
    let mut last = ' ';
    for c in text.trim_end().chars().take(EVENT_MAX) {
        if last == '%' && (c == '%' || c.is_ascii_digit()) {
            out.push(' ');
        }
        match c {
            '\n' => out.push_str("\r\n"),
            '\r' => {}
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
        last = c;
    }
    out.encode_utf16().collect()
}

/// So many events are written in a while: strangers may be able to cause them.
pub struct Flow {
    most: u32,
    while_: Duration,
    begun: Option<Instant>,
    written: u32,
    left_out: u32,
}

impl Flow {
    pub const fn new(most: u32, while_: Duration) -> Flow {
        Flow { most, while_, begun: None, written: 0, left_out: 0 }
    }

    /// Whether one may be written now, and how many were left out before it.
    pub fn take(&mut self, now: Instant) -> Option<u32> {
        if self.begun.is_none_or(|begun| now.duration_since(begun) >= self.while_) {
            self.begun = Some(now);
            self.written = 0;
        }
        if self.written >= self.most {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    /// As Microsoft's C library and Rust's take a line apart.
    fn apart(line: &str) -> Vec<String> {
        let (program, rest) = line[1..].split_once('"').unwrap();
        let mut words = vec![program.to_string()];
        let (mut word, mut is_quoted, mut is_one) = (String::new(), false, false);
        let mut chars = rest.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                ' ' | '\t' if !is_quoted => {
                    if is_one {
                        words.push(std::mem::take(&mut word));
                    }
                    is_one = false;
                }
                '\\' => {
                    is_one = true;
                    let mut n = 1;
                    while chars.next_if_eq(&'\\').is_some() {
                        n += 1;
                    }
                    let is_before_quote = chars.peek() == Some(&'"');
                    let written = if is_before_quote { n / 2 } else { n };
                    word.extend(std::iter::repeat_n('\\', written));
                    if is_before_quote && n % 2 == 1 {
                        chars.next();
                        word.push('"');
                    }
                }
                '"' => {
                    is_one = true;
                    match is_quoted && chars.next_if_eq(&'"').is_some() {
                        true => word.push('"'),
                        false => is_quoted = !is_quoted,
                    }
                }
                c => {
                    is_one = true;
                    word.push(c);
                }
            }
        }
        if is_one {
            words.push(word);
        }
        words
    }

    #[test]
    fn command_lines_are_taken_apart_again() {
        let program = r"C:\Program Files\We ir\weir.exe";
        let hostile = [
            "",
            " ",
            "plain",
            "two words",
            "\t",
            "\"",
            "\"\"",
            "a\"b",
            "a\\\"b",
            r"C:\",
            r"C:\a b\",
            r"C:\a b\\",
            "\\",
            r"\\server\share x\",
            "\\\\\"\\\\",
            "x\" --evil \"y",
            "env A=\"b c\"; user x;",
            "line\nend",
            "ä€😀 z",
            r#"\"#,
            r#"" \"#,
        ];
        for word in hostile {
            let line = String::from_utf16(&command_line(&wide(program), &[wide(word)])).unwrap();
            assert_eq!(apart(&line), [program, word], "{line}");
        }
        let all: Vec<Vec<u16>> = hostile.iter().map(|w| wide(w)).collect();
        let line = String::from_utf16(&command_line(&wide(program), &all)).unwrap();
        assert_eq!(apart(&line)[1..], hostile, "{line}");
        let short =
            command_line(&wide("w"), &[wide("service"), wide("run"), wide("-p"), wide(r"D:\x y\")]);
        assert_eq!(String::from_utf16(&short).unwrap(), r#""w" service run -p "D:\x y\\""#);
    }

    #[test]
    fn what_the_system_would_change_is_refused() {
        assert_eq!(refused(&wide(r"C:\100%\weir.exe")), None);
        assert!(refused(&wide(r"C:\%TEMP%\weir.exe")).is_some_and(|why| why.contains("variable")));
        assert!(refused(&wide("a\0b")).is_some());
    }

    #[test]
    fn other_services_are_told_from_ours() {
        assert!(is_ours(&wide(r#""C:\we ir\weir.exe" service run -n weir -p C:\w"#)));
        for other in [
            r"C:\weir\weir.exe service run -n weir",
            r#""C:\x.exe" serve -n "service run ""#,
            r#""C:\x.exe service run -n x"#,
            r"C:\Windows\System32\spoolsv.exe",
            "",
        ] {
            assert!(!is_ours(&wide(other)), "{other}");
        }
    }

    #[test]
    fn names() {
        for good in ["weir", "Weir 2", "wéir", "a.b-c_d"] {
            assert_eq!(bad_name(good), None);
        }
        for bad in ["", " ", "a ", "a/b", "a\\b", "a\"b", "a%b", "a\nb", &"x".repeat(81)] {
            assert!(bad_name(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn texts_of_events() {
        let text = |t: &[u8]| String::from_utf16(&event_text(t)).unwrap();
        assert_eq!(text(b"a\nb\r\n"), "a\r\nb");
        assert_eq!(text(b"/%20x%%1 100%"), "/% 20x% % 1 100%");
        assert_eq!(text(b"a\0\x1b[1m\xff"), "a\\u{0}\\u{1b}[1m\u{fffd}");
        assert_eq!(text(&b"x".repeat(EVENT_MAX + 1)).len(), EVENT_MAX);
    }

    #[test]
    fn events_are_bounded() {
        let start = Instant::now();
        let mut flow = Flow::new(2, Duration::from_secs(60));
        let mut at = |secs| flow.take(start + Duration::from_secs(secs));
        assert_eq!([at(0), at(0), at(1), at(59)], [Some(0), Some(0), None, None]);
        assert_eq!([at(60), at(61), at(62), at(200)], [Some(2), Some(0), None, Some(1)]);
    }
}
