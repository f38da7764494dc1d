//! Manual pages, from what the program says of itself.

use super::deb::{run, VERSION};
use std::path::Path;
use std::process::Command;

/// `weir(8)`: the template, with usage and options as `weir -h` gives them.
pub fn program(template: &str, binary: &Path) -> Result<String, String> {
    // Help goes to standard error, as nginx's does.
    let output = Command::new(binary).arg("-h").output().map_err(|e| e.to_string())?;
    let help = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(template
        .replace("@DATE@", "")
        .replace("@VERSION@", VERSION)
        .replace("@USAGE@", usage(&help).trim_end())
        .replace("@OPTIONS@", options(&help).trim_end()))
}

/// From `Usage:` to the first empty line.
fn usage(help: &str) -> String {
    let lines = help.lines().take_while(|l| !l.is_empty());
    let words = lines.map(|l| l.trim_start_matches("Usage:").trim());
    words.map(|l| escaped(l) + "\n").collect()
}

/// `  -c filename   : set configuration file`
fn options(help: &str) -> String {
    let all = help.lines().filter(|l| l.starts_with("  -")).filter_map(|l| l.split_once(" : "));
    all.map(|(option, text)| format!(".TP\n.B {}\n{}\n", escaped(option.trim()), escaped(text)))
        .collect()
}

/// `weir.conf(5)`: every directive, in the words of `weir help DIRECTIVE`.
pub fn directives(binary: &Path) -> Result<String, String> {
    let help = |name: Option<&str>| run(Command::new(binary).arg("help").args(name));
    let list = help(None)?;
    let mut out = format!(
        ".TH WEIR.CONF 5 \"\" \"Weir {VERSION}\" \"File formats\"\n.SH NAME\n\
         weir.conf \\- configuration of weir(8)\n.SH DESCRIPTION\n\
         The language is that of nginx.conf: directives that end in a semicolon, and blocks of them \
         in braces. Where nothing else is said, a directive does what nginx's documentation says of \
         it.\n.SH DIRECTIVES\n"
    );
    for name in list.lines().filter_map(|l| l.strip_prefix("  ")) {
        out.push_str(&format!(".SS {}\n", escaped(name)));
        out.push_str(&section(name, &help(Some(name))?));
    }
    out.push_str(".SH SEE ALSO\n.BR weir (8)\n");
    Ok(out)
}

/// Each row is its sentence and its facts.
fn section(name: &str, text: &str) -> String {
    let mut out = String::new();
    for line in text.lines().filter(|l| *l != name).map(str::trim) {
        match line.split_once(": ") {
            Some((word @ ("Takes" | "Context" | "Default" | "Note"), rest)) => {
                out.push_str(&format!(".br\n{word}: {}\n", escaped(rest.trim())));
            }
            _ => out.push_str(&format!(".PP\n{}\n", escaped(line))),
        }
    }
    out
}

/// Nothing in it is a request or an escape of troff's, and a minus sign can be copied.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    if text.starts_with(['.', '\'']) {
        out.push_str("\\&");
    }
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '"' => out.push_str("\\(dq"),
            '…' => out.push_str("..."),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages() {
        let help = "Usage: weir [-t]\n       weir help\n\nOptions:\n  -c file   : a \"file\"\n";
        assert_eq!(usage(help), "weir [\\-t]\nweir help\n");
        assert_eq!(options(help), ".TP\n.B \\-c file\na \\(dqfile\\(dq\n");
        let text = "a_b\n  Does.\n  Takes:    1 argument\n";
        assert_eq!(section("a_b", text), ".PP\nDoes.\n.br\nTakes: 1 argument\n");
        assert_eq!(escaped(".x\\y"), "\\&.x\\ey");
    }
}
