//! What Windows starts a program with: one line, which that takes apart itself, and its variables one behind the other.

use crate::service::words::command_line;
use std::io;

/// The shell's own words. What stands behind them is its line as it is: with `/s` it takes away the outer two quotes alone.
pub(crate) const SHELL_WORDS: &[u8] = b"/d /s /c";

fn text(bytes: &[u8]) -> io::Result<&str> {
    let text = std::str::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    match text.contains('\0') {
        true => Err(io::ErrorKind::InvalidInput.into()),
        false => Ok(text),
    }
}

fn with_end(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// The line of a program with these arguments, of which the first is its own name.
///
/// # Errors
///
/// One is not UTF-8, of which the system makes its own form.
pub(crate) fn line(arguments: &[&[u8]]) -> io::Result<Vec<u16>> {
    let wide = |word: &[u8]| Ok(text(word)?.encode_utf16().collect::<Vec<u16>>());
    let mut line = match arguments {
        [name, words @ ..] => {
            let words = words.iter().map(|word| wide(word)).collect::<io::Result<Vec<_>>>()?;
            // No sign stands for a quote in the first.
            let name = text(name)?.replace('"', "");
            command_line(&name.encode_utf16().collect::<Vec<_>>(), &words)
        }
        [] => Vec::new(),
    };
    line.push(0);
    Ok(line)
}

/// The line of the system's shell: its name, its own words, and what it is to take as it is.
///
/// # Errors
///
/// One is not UTF-8.
pub(crate) fn shell_line(arguments: &[&[u8]]) -> io::Result<Vec<u16>> {
    match arguments {
        [name, words, rest] => {
            Ok(with_end(&format!("\"{}\" {} \"{}\"", text(name)?, text(words)?, text(rest)?)))
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Variables, of which each is `NAME=value`, as a program is given them. Names that differ in case alone are one variable's,
/// of which the first stands; one that has no name is none. What is needed is there in any case.
///
/// # Errors
///
/// One is not UTF-8.
pub(crate) fn block<'a>(
    variables: impl Iterator<Item = &'a [u8]>,
    needed: &'a [String],
) -> io::Result<Vec<u16>> {
    let mut all = Vec::new();
    for variable in variables.chain(needed.iter().map(String::as_bytes)) {
        let variable = text(variable)?;
        // The shell has some whose names begin with the sign.
        let sign = variable.bytes().skip(1).position(|b| b == b'=');
        if let Some(at) = sign {
            all.push((variable[..=at].to_uppercase(), variable));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.dedup_by(|later, first| later.0 == first.0);
    let mut block: Vec<u16> = all.iter().flat_map(|(_, variable)| with_end(variable)).collect();
    block.push(0);
    Ok(block)
}

/// Whether that is a file of the shell's own lines, which takes apart what it is given by rules of its own: with words that
/// are quoted for a program others could be run.
pub(crate) fn is_batch(path: &str) -> bool {
    let path = path.trim_end_matches(['.', ' ']).to_ascii_lowercase();
    path.ends_with(".bat") || path.ends_with(".cmd")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shown(text: Vec<u16>) -> String {
        String::from_utf16(&text).unwrap()
    }

    #[test]
    fn words_are_taken_apart_as_they_were() {
        for (word, quoted) in [
            ("a", "a"),
            ("", "\"\""),
            ("a b\\", "\"a b\\\\\""),
            ("%PATH%&x", "%PATH%&x"),
            ("ä", "ä"),
        ] {
            let line = line(&[b"C:/a b.exe", word.as_bytes()]).unwrap();
            assert_eq!(shown(line), format!("\"C:/a b.exe\" {quoted}\0"));
        }
        assert_eq!(shown(line(&[b"a\"b"]).unwrap()), "\"ab\"\0");
        assert!(line(&[b"a", b"\xff"]).is_err() && line(&[b"a", b"b\0c"]).is_err());
        let words: [&[u8]; 3] = [b"cmd.exe", SHELL_WORDS, b"echo \"a b\" & exit 3"];
        let of_shell = shell_line(&words).unwrap();
        assert_eq!(shown(of_shell), "\"cmd.exe\" /d /s /c \"echo \"a b\" & exit 3\"\0");
        // Only who says so has a line of the shell's.
        let as_words = line(&words).unwrap();
        assert_eq!(shown(as_words), "\"cmd.exe\" \"/d /s /c\" \"echo \\\"a b\\\" & exit 3\"\0");
    }

    #[test]
    fn variables_stand_in_order_and_once() {
        let needed = ["SystemRoot=C:\\w".to_owned()];
        let block = |all: &[&[u8]]| shown(block(all.iter().copied(), &needed).unwrap());
        let all: [&[u8]; 6] = [b"b=1", b"A=1=2", b"a=3", b"=C:=C:\\x", b"none", b"=none"];
        assert_eq!(block(&all), "=C:=C:\\x\0A=1=2\0b=1\0SystemRoot=C:\\w\0\0");
        assert_eq!(block(&[b"SYSTEMROOT=D:\\"]), "SYSTEMROOT=D:\\\0\0");
        assert_eq!(block(&[]), "SystemRoot=C:\\w\0\0");
    }

    #[test]
    fn the_shells_own_files() {
        assert!(is_batch("C:\\a.BAT") && is_batch("a.cmd. ") && !is_batch("a.cmd.exe"));
    }
}
