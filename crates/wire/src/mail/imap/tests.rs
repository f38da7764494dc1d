use super::*;
use crate::mail::StartTls;

/// Every command of a text in a line, `+` where a literal is waited for.
fn read(text: &str, max: usize) -> String {
    let mut buf = text.as_bytes();
    let mut reader = Reader::new(max);
    let mut out: Vec<String> = Vec::new();
    while !buf.is_empty() {
        let (len, word) = match reader.command(buf) {
            Progress::NeedMore => {
                out.push("more".into());
                break;
            }
            Progress::Continue => {
                out.push("+".into());
                continue;
            }
            Progress::Done { len, verdict } => (len, verdict),
        };
        let tag = String::from_utf8_lossy(reader.tag()).into_owned();
        let word = match word {
            Verdict::Good(command) => format!("{command:?}"),
            Verdict::Invalid { hides_literal: true } => "hides".into(),
            Verdict::Invalid { hides_literal: false } => "invalid".into(),
            Verdict::TooLong => "too long".into(),
        };
        let mut line = tag + &word;
        if !matches!(&*word, "invalid" | "hides" | "too long") {
            for arg in reader.args() {
                line.push('|');
                line.push_str(&String::from_utf8_lossy(&arg.value(buf)));
            }
        }
        out.push(line);
        if word == "too long" {
            break;
        }
        buf = &buf[len..];
    }
    out.join(";")
}

#[test]
fn commands_are_read() {
    for (text, expected) in [
        ("a01 NOOP\r\n", "a01 Noop"),
        ("a.b-c_1   logout\n", "a.b-c_1 Logout"),
        ("a LOGIN  x   y\r\n", "a Login|x|y"),
        ("a LOGIN x y z\r\n", "a Login|x|y|z"),
        ("a LOGIN x y z 4\r\n", "a invalid"),
        ("a LOGIN x \r\n", "a Login|x"),
        ("a LOGIN\r\n", "a Login"),
        ("a LOGIN\r x\r\n", "a invalid"),
        ("a LOGIN x\ry\r\n", "a invalid"),
        ("a LOGI x y\r\n", "a invalid"),
        ("a LO1IN x y\r\n", "a invalid"),
        ("a \r\n", "a invalid"),
        ("a\r\n", "* invalid"),
        ("\r\n", "* invalid"),
        ("a+b NOOP\r\n", "* invalid"),
        // An empty tag is as good as any.
        (" NOOP\r\n", " Noop"),
        ("a NOOP\r\nb NOOP\nc", "a Noop;b Noop;more"),
        ("a bad\r\n\r\nb NOOP\r\n", "a invalid;* invalid;b Noop"),
        ("12345678901234567890123456789012 NOOP\r\n", "12345678901234567890123456789012 Noop"),
        ("123456789012345678901234567890123 NOOP\r\n", "* invalid"),
    ] {
        assert_eq!(read(text, 4096), expected, "{text:?}");
    }
}

#[test]
fn strings() {
    for (text, expected) in [
        (r#"a LOGIN "x y" "z""#, "a Login|x y|z"),
        (r#"a LOGIN "te\\\"st" x"y"#, r#"a Login|te\"st|x"y"#),
        (r#"a LOGIN "" """#, "a Login||"),
        (r#"a LOGIN "x""y""#, "a Login|x|y"),
        (r#"a LOGIN x\y z"#, r"a Login|x\y|z"),
        (r#"a LOGIN "x y"#, "a Login|x y"),
        ("a LOGIN x \"\\", "a invalid"),
    ] {
        assert_eq!(read(&format!("{text}\r\n"), 4096), expected, "{text:?}");
    }
    // A quote that was left open is nothing to the next command.
    assert_eq!(read("a LOGIN \"x y\r\nb LOGIN x y\r\n", 4096), "a Login|x y;b Login|x|y");
}

#[test]
fn literals() {
    for (text, expected) in [
        ("a LOGIN {3}\r\nx\ny {2}\r\nzz\r\n", "+;+;a Login|x\ny|zz"),
        ("a LOGIN {3+}\r\nx\"y {2+}\nz}\r\n", "a Login|x\"y|z}"),
        ("a LOGIN {3+}\r\nx\\y \"\\\\\"\r\n", "a Login|x\\y|\\"),
        ("a LOGIN x {0}\r\n\r\n", "+;a Login|x|"),
        ("a LOGIN {0+}\r\n {1+}\r\ny\n", "a Login||y"),
        ("a LOGIN {}\r\n x\r\n", "+;a Login||x"),
        ("a LOGIN {2}\r\r\nxx y\r\n", "+;a Login|xx|y"),
        ("a LOGIN {2}\r\nxxx\r\n", "+;a invalid"),
        ("a LOGIN {x}\r\n", "a invalid"),
        ("a LOGIN {2\r\n", "a invalid"),
        ("a LOGIN {2+x}\r\n", "a invalid"),
        ("a LOGIN {99999999999999999999}\r\n", "a invalid"),
        ("a LOGIN {3}\r\nxx", "+;more"),
        ("a LOGIN 1 2 3 {3}\r\n", "a invalid"),
    ] {
        assert_eq!(read(text, 4096), expected, "{text:?}");
    }
    for (text, expected) in [
        ("a FOOBAR {10+}\r\ntest\r\n", "a hides;* invalid"),
        ("a FOOBAR {1+}\n", "a hides"),
        ("{1+}\r\n", "* hides"),
        ("{1+}\n", "* invalid"),
        ("a FOOBAR {10}\r\n", "a invalid"),
        ("a LOGIN 1 2 3 {3+}\r\n", "a hides"),
    ] {
        assert_eq!(read(text, 4096), expected, "{text:?}");
    }
}

#[test]
fn limits() {
    assert_eq!(read("a NOOP\r\nb NOOP\r\n", 8), "a Noop;b Noop");
    assert_eq!(read("a NOOP\r\n", 7), "a too long");
    assert_eq!(read("abcdefghij", 7), "* too long");
    assert_eq!(read("a LOGIN {10+}\r\n0123456789 x\r\n", 30), "a Login|0123456789|x");
    assert_eq!(read("a LOGIN {10+}\r\n0123456789 x\r\n", 28), "a too long");
    assert_eq!(read("a LOGIN {1000000}\r\n0123456789", 28), "+;a too long");
}

/// Responses go on where the command ended: the same tag, the same limit.
#[test]
fn responses() {
    let mut reader = Reader::new(40);
    let done = |len, command| Progress::done(len, Verdict::Good(command));
    let text = b"a AUTHENTICATE LOGIN\r\n";
    assert_eq!(reader.command(text), done(22, Command::Authenticate));
    for (text, args) in
        [(&b"AAA=\r\n"[..], &[&b"AAA="[..]][..]), (b"\n", &[b""]), (b" x\n", &[b"", b"x"])]
    {
        assert_eq!(reader.response(text), done(text.len(), Command::Authenticate));
        let found: Vec<_> = reader.args().iter().map(|a| a.range.of(text)).collect();
        assert_eq!((found.as_slice(), reader.tag()), (args, &b"a "[..]));
    }
    let invalid = Verdict::Invalid { hides_literal: false };
    assert_eq!(reader.response(b"x\ry\n"), Progress::done(4, invalid));
    assert_eq!(reader.response(b"xyz"), Progress::NeedMore);
    assert_eq!(reader.response(b"xyzx"), Progress::done(4, Verdict::TooLong));
    assert_eq!(reader.command(b"b NOOP\r\n"), done(8, Command::Noop));
    assert_eq!(reader.tag(), b"b ");
}

#[test]
fn lists_are_composed() {
    let defaults: Vec<&[u8]> = DEFAULT_CAPABILITIES.iter().map(|c| c.as_bytes()).collect();
    let lists = lists(&defaults, AuthMethods::PLAIN.with(AuthMethods::EXTERNAL));
    let first = "* CAPABILITY IMAP4 IMAP4rev1 UIDPLUS";
    let auth = " AUTH=PLAIN AUTH=EXTERNAL";
    for (starttls, tls, rest) in [
        (StartTls::Off, false, format!("{auth}\r\n")),
        (StartTls::On, false, format!("{auth} STARTTLS\r\n")),
        (StartTls::On, true, format!("{auth}\r\n")),
        (StartTls::Only, false, " STARTTLS LOGINDISABLED\r\n".to_owned()),
        (StartTls::Only, true, format!("{auth}\r\n")),
    ] {
        assert_eq!(lists.of(starttls, tls), format!("{first}{rest}").as_bytes());
    }
}
