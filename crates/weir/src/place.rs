//! Where in the text an error belongs that was found when the whole was put together: a certificate
//! that cannot be read, a zone or a variable that nobody defines. nginx names no line for these; what
//! the message quotes is looked for in the text.

use weir_conf::Word;
use weir_module::{Diagnostic, Directive};

/// Points an error without a place at the first word that it may be about.
pub fn find(e: &mut Diagnostic, directives: &[Directive]) {
    if e.span.is_some() || e.at.is_some() {
        return;
    }
    let Some(about) = About::of(&e.message) else { return };
    if let Some(word) = first(directives, &about) {
        e.span = Some(word.span);
    }
}

/// What a message is about, by its words.
struct About<'a> {
    quoted: &'a str,
    kind: Kind,
}

enum Kind {
    Variable,
    Zone,
    File,
}

impl About<'_> {
    fn of(message: &str) -> Option<About<'_>> {
        let quotes = message.split('"').collect::<Vec<_>>();
        let (before, quoted, after) = match quotes.as_slice() {
            // The zone is the second that is quoted: `"proxy_cache" zone "x" is unknown`.
            [_, _, zone, quoted, after, ..] if zone.trim() == "zone" => (*zone, *quoted, *after),
            [before, quoted, after, ..] => (*before, *quoted, *after),
            _ => return None,
        };
        let kind = match () {
            () if after.starts_with(" variable") => Kind::Variable,
            () if before.trim_end().ends_with("zone") => Kind::Zone,
            () if quoted.contains('/') => Kind::File,
            () => return None,
        };
        Some(About { quoted, kind })
    }

    fn matches(&self, word: &Word) -> bool {
        let text = String::from_utf8_lossy(word.as_bytes());
        match self.kind {
            Kind::Variable => names_variable(&text, self.quoted),
            Kind::Zone => text == self.quoted || text.strip_prefix("zone=") == Some(self.quoted),
            Kind::File => !text.is_empty() && is_end_of_path(&text, self.quoted),
        }
    }
}

/// A file is shown with its whole path, and written as it may be.
fn is_end_of_path(written: &str, shown: &str) -> bool {
    shown.strip_suffix(written).is_some_and(|before| {
        before.is_empty() || before.ends_with('/') && !written.starts_with('/')
    })
}

fn names_variable(text: &str, name: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices('$').any(|(at, _)| {
        let rest = &text[at + 1..];
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let found = rest.get(..name.len()).filter(|n| n.eq_ignore_ascii_case(name));
        found.is_some() && !rest[name.len()..].starts_with(of_name)
    })
}

fn first<'a>(directives: &'a [Directive], about: &About) -> Option<&'a Word> {
    directives.iter().find_map(|d| {
        let own = d.args.iter().find(|w| about.matches(w));
        own.or_else(|| first(d.children(), about))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_messages_are_about() {
        let quoted = |m| About::of(m).map(|a| a.quoted);
        assert_eq!(quoted("unknown \"x\" variable"), Some("x"));
        assert_eq!(quoted("zero size shared memory zone \"z\""), Some("z"));
        assert_eq!(quoted("\"proxy_cache\" zone \"one\" is unknown"), Some("one"));
        assert_eq!(quoted("cannot load certificate \"/etc/x.crt\": no"), Some("/etc/x.crt"));
        assert_eq!(quoted("no \"events\" section in configuration"), None);
    }

    #[test]
    fn words() {
        assert!(names_variable("a${Host}b", "host") && names_variable("$a$b", "b"));
        assert!(!names_variable("$hosts", "host") && !names_variable("host", "host"));
        assert!(is_end_of_path("x.crt", "/etc/x.crt") && is_end_of_path("/etc/x", "/etc/x"));
        assert!(!is_end_of_path("x.crt", "/etc/xx.crt") && !is_end_of_path("/x", "/etc/x"));
    }
}
