//! Where in the text an error belongs that was found when the whole was put together: a certificate
//! that cannot be read, a zone or a variable that nobody defines, a server that lacks something. nginx
//! names a line or nothing for these; what the message quotes or names is looked for in the text, first
//! in the block that it was found in.

use std::collections::HashMap;
use weir_conf::{Level, Position, Word};
use weir_module::{Diagnostic, Directive};

/// Gives each of these a word to be underlined that has none, where there is one that it may be about.
pub fn point<'a>(found: impl Iterator<Item = &'a mut Diagnostic>, directives: &[Directive]) {
    let mut text = None;
    // A notice is one line.
    for e in found.filter(|e| e.span.is_none() && e.level <= Level::Warn) {
        text.get_or_insert_with(|| Text::of(directives)).point(e);
    }
}

/// A directive and the block that it stands in.
struct Entry<'a> {
    directive: &'a Directive,
    parent: Option<usize>,
    /// Behind what stands in it.
    end: usize,
}

/// All directives in the order in which they are written.
struct Text<'a> {
    entries: Vec<Entry<'a>>,
    /// By where errors say that a directive is, and by its first argument.
    by_position: HashMap<Position, usize>,
}

impl<'a> Text<'a> {
    fn of(directives: &'a [Directive]) -> Text<'a> {
        let mut text = Text { entries: Vec::new(), by_position: HashMap::new() };
        text.add(directives, None);
        text
    }

    /// Blocks are no deeper than the parser lets them be.
    fn add(&mut self, directives: &'a [Directive], parent: Option<usize>) {
        for directive in directives {
            let at = self.entries.len();
            let first = directive.args.first().map(|w| w.span.start());
            for position in [Some(directive.position()), first].into_iter().flatten() {
                self.by_position.entry(position).or_insert(at);
            }
            self.entries.push(Entry { directive, parent, end: at + 1 });
            self.add(directive.children(), Some(at));
            self.entries[at].end = self.entries.len();
        }
    }

    fn point(&self, e: &mut Diagnostic) {
        let about = About::of(&e.message);
        let place = e.at.or(e.within).and_then(|p| self.by_position.get(&p).copied());
        let found = match place {
            Some(at) => self.around(at, &about, e.at.is_some()),
            None if e.at.is_none() => self.best(&about, 0..self.entries.len()),
            None => None,
        };
        let Some((directive, word)) = found else { return };
        e.span = Some(word.span);
        if e.at.is_none() && about.is_of_its_line {
            e.at = Some(directive.position());
        }
    }

    /// In this directive, in what stands in it, in what is set around it; otherwise the directive itself,
    /// if the error names its place.
    fn around(
        &self,
        at: usize,
        about: &About,
        is_named: bool,
    ) -> Option<(&'a Directive, &'a Word)> {
        let own = self.entries[at].directive;
        if let (true, Some(word)) = (is_named, own.args.iter().find(|w| about.quotes(w))) {
            return Some((own, word));
        }
        let blocks = std::iter::successors(self.entries[at].parent, |p| self.entries[*p].parent);
        let of = |block: Option<usize>| {
            let all = self.entries.iter().enumerate();
            all.filter(move |(_, e)| e.parent == block).map(|(i, _)| i)
        };
        self.best(about, at..self.entries[at].end)
            .or_else(|| blocks.map(Some).chain([None]).find_map(|b| self.best(about, of(b))))
            .or_else(|| is_named.then_some((own, &own.name)))
            .or_else(|| self.best(about, 0..self.entries.len()))
    }

    fn best(
        &self,
        about: &About,
        of: impl Iterator<Item = usize>,
    ) -> Option<(&'a Directive, &'a Word)> {
        let found = of.filter_map(|i| {
            let directive = self.entries[i].directive;
            about.probe(directive).map(|(rank, word)| (rank, directive, word))
        });
        found.min_by_key(|(rank, ..)| *rank).map(|(_, directive, word)| (directive, word))
    }
}

/// What a message is about, by its words.
struct About<'a> {
    quoted: Vec<&'a str>,
    kind: Kind<'a>,
    /// Directives that it names, the likeliest first; with arguments if it has them.
    named: Vec<Vec<&'a str>>,
    /// nginx finds this when it reads the directive, and names its line.
    is_of_its_line: bool,
}

#[derive(Debug, PartialEq)]
enum Kind<'a> {
    Variable(&'a str),
    Zone(&'a str),
    /// An argument of this directive.
    Of(&'a str, &'a str),
    /// An argument of a directive of TLS.
    Tls(&'a str),
    /// A file, if it quotes one.
    Other,
}

impl About<'_> {
    fn of(message: &str) -> About<'_> {
        let quotes = message.split('"').collect::<Vec<_>>();
        let (before, quoted, after) = match quotes.as_slice() {
            // The zone is the second that is quoted: `"proxy_cache" zone "x" is unknown`.
            [_, _, zone, quoted, after, ..] if zone.trim() == "zone" => (*zone, *quoted, *after),
            [before, quoted, after, ..] => (*before, *quoted, *after),
            _ => (message, "", ""),
        };
        let not_found = before.strip_prefix("host not found in ").map(str::trim_end);
        let kind = match not_found {
            _ if after.starts_with(" variable") => Kind::Variable(quoted),
            _ if before.trim_end().ends_with("zone") => Kind::Zone(quoted),
            Some(name) => Kind::Of(name, quoted),
            None if before.starts_with("SSL_CTX_set") || before.contains("TLS version") => {
                Kind::Tls(quoted)
            }
            None => Kind::Other,
        };
        let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let plain = quotes.iter().step_by(2).flat_map(|text| text.split(|c| !of_name(c)));
        let plain = plain.filter(|word| word.contains('_')).map(|word| vec![word]);
        let quoted: Vec<&str> = quotes.iter().skip(1).step_by(2).copied().collect();
        fn words<'a>(text: &&'a str) -> Vec<&'a str> {
            text.split(' ').filter(|w| *w != "...").collect()
        }
        // A message says first what lacks, and then what needs it.
        let mut named: Vec<Vec<&str>> = plain.collect();
        named.extend(quotes.iter().skip(1).step_by(2).map(words));
        named.reverse();
        let is_of_its_line =
            matches!(kind, Kind::Of(..)) || message.starts_with("unknown analytics zone ");
        About { quoted, kind, named, is_of_its_line }
    }

    /// How well a directive fits, the best first, and the word of it.
    fn probe<'d>(&self, d: &'d Directive) -> Option<(usize, &'d Word)> {
        if let Some(word) = d.args.iter().find(|w| self.is_of_kind(d, w)) {
            return Some((0, word));
        }
        let has = |word: &&str| d.args.iter().any(|w| w == *word);
        let fits = |words: &Vec<&str>| match words.as_slice() {
            [name, args @ ..] => d.name == **name && args.iter().all(has),
            [] => false,
        };
        let is_off = matches!(d.args.as_slice(), [only] if only == "off");
        let rank = self.named.iter().position(fits).filter(|_| !is_off)?;
        Some((1 + rank, &d.name))
    }

    fn is_of_kind(&self, d: &Directive, word: &Word) -> bool {
        let text = word.to_str();
        match self.kind {
            Kind::Variable(name) => names_variable(&text, name),
            Kind::Zone(name) => {
                (text == name && names_zones(&d.name.to_str()))
                    || text.strip_prefix("zone=") == Some(name)
            }
            Kind::Of(directive, value) => d.name == *directive && text == value,
            Kind::Tls(value) => {
                let first = value.split(' ').next();
                d.name.to_str().contains("ssl_") && (text == value || first == Some(&*text))
            }
            Kind::Other => {
                let mut paths = self.quoted.iter().filter(|q| q.contains('/'));
                !text.is_empty() && paths.any(|path| is_end_of_path(&text, path))
            }
        }
    }

    /// Whether what it quotes is in this word.
    fn quotes(&self, word: &Word) -> bool {
        let text = word.to_str();
        self.quoted.iter().any(|q| !q.is_empty() && text.contains(q))
    }
}

/// Whether a directive's arguments are names of zones: of others one may be called the same by chance.
fn names_zones(directive: &str) -> bool {
    const OTHERS: [&str; 4] = ["limit_conn", "req_status", "req_status_show", "analytics"];
    directive.contains("zone") || directive.ends_with("_cache") || OTHERS.contains(&directive)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_messages_are_about() {
        let kind = |m| About::of(m).kind;
        assert_eq!(kind("unknown \"x\" variable"), Kind::Variable("x"));
        assert_eq!(kind("zero size shared memory zone \"z\""), Kind::Zone("z"));
        assert_eq!(kind("\"proxy_cache\" zone \"one\" is unknown"), Kind::Zone("one"));
        assert_eq!(kind("host not found in resolver \"x.y\""), Kind::Of("resolver", "x.y"));
        assert_eq!(kind("cannot load certificate \"/etc/x.crt\": no"), Kind::Other);
        let named = |m| About::of(m).named;
        assert_eq!(named("no \"a\" is for the \"b ... c\" directive"), [vec!["b", "c"], vec!["a"]]);
        assert_eq!(named("no a_b or a_c for a_d"), [["a_d"], ["a_c"], ["a_b"]]);
    }

    #[test]
    fn words() {
        assert!(names_variable("a${Host}b", "host") && names_variable("$a$b", "b"));
        assert!(!names_variable("$hosts", "host") && !names_variable("host", "host"));
        assert!(is_end_of_path("x.crt", "/etc/x.crt") && is_end_of_path("/etc/x", "/etc/x"));
        assert!(!is_end_of_path("x.crt", "/etc/xx.crt") && !is_end_of_path("/x", "/etc/x"));
    }
}
