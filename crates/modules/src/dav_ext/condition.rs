//! `If` (RFC 4918, section 10.4): what must be true for a request to be done, and which locks its client holds.

/// The most of it that is looked at.
const CONDITIONS_MAX: usize = 200;

/// One of several lists; it holds if all in it do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct List<'a> {
    /// The URL that it is about; `None` is the request's own.
    pub(super) resource: Option<&'a [u8]>,
    pub(super) conditions: Vec<Condition<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Condition<'a> {
    pub(super) negated: bool,
    pub(super) what: What<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum What<'a> {
    /// A lock's token.
    Token(&'a [u8]),
    /// With its quotes.
    Etag(&'a [u8]),
}

/// Its lists; `None` where it is no such field.
pub(super) fn parse(text: &[u8]) -> Option<Vec<List<'_>>> {
    let (mut rest, mut lists, mut resource) = (text, Vec::new(), None);
    let mut left = CONDITIONS_MAX;
    loop {
        rest = rest.trim_ascii_start();
        match rest.split_first() {
            None => return Some(lists).filter(|lists| !lists.is_empty()),
            Some((b'<', inner)) => {
                let (url, after) = until(inner, b'>')?;
                (resource, rest) = (Some(url), after);
            }
            Some((b'(', inner)) => {
                let (conditions, after) = list(inner, &mut left)?;
                lists.push(List { resource, conditions });
                rest = after;
            }
            Some(_) => return None,
        }
    }
}

fn list<'a>(text: &'a [u8], left: &mut usize) -> Option<(Vec<Condition<'a>>, &'a [u8])> {
    let (mut rest, mut conditions) = (text, Vec::new());
    loop {
        rest = rest.trim_ascii_start();
        if let Some(after) = rest.strip_prefix(b")") {
            return Some((conditions, after)).filter(|(c, _)| !c.is_empty());
        }
        *left = left.checked_sub(1)?;
        let negated = rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"not"));
        if negated {
            rest = rest[3..].trim_ascii_start();
        }
        let (first, inner) = rest.split_first()?;
        let (what, after) = match first {
            b'<' => until(inner, b'>').map(|(token, after)| (What::Token(token), after))?,
            b'[' => until(inner, b']').map(|(etag, after)| (What::Etag(etag), after))?,
            _ => return None,
        };
        conditions.push(Condition { negated, what });
        rest = after;
    }
}

fn until(text: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(end, text)?;
    Some((&text[..at], &text[at + 1..]))
}

/// The tokens that are shown, whatever the lists come to.
pub(super) fn tokens(lists: &[List<'_>]) -> Vec<Vec<u8>> {
    let conditions = lists.iter().flat_map(|l| &l.conditions).filter(|c| !c.negated);
    let token = |c: &Condition<'_>| match c.what {
        What::Token(token) => Some(token.to_vec()),
        What::Etag(_) => None,
    };
    conditions.filter_map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        let lists = parse(text.as_bytes())?;
        let condition = |c: &Condition<'_>| {
            let (kind, text) = match c.what {
                What::Token(t) => ("t", t),
                What::Etag(t) => ("e", t),
            };
            format!("{}{kind}{}", if c.negated { "!" } else { "" }, String::from_utf8_lossy(text))
        };
        let list = |l: &List<'_>| {
            let all: Vec<_> = l.conditions.iter().map(condition).collect();
            format!(
                "{}({})",
                l.resource.map_or("", |r| std::str::from_utf8(r).unwrap()),
                all.join(" ")
            )
        };
        Some(lists.iter().map(list).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn lists() {
        for (text, expected) in [
            ("(<a>)", Some("(ta)")),
            (
                " ( <a> [\"e\"] ) (Not <DAV:no-lock>[W/\"x\"])",
                Some("(ta e\"e\") (!tDAV:no-lock eW/\"x\")"),
            ),
            (
                "<http://h/a> (<a>)(<b>) </b>(NOT [\"c\"])",
                Some("http://h/a(ta) http://h/a(tb) /b(!e\"c\")"),
            ),
            ("", None),
            ("()", None),
            ("(<a>", None),
            ("(<a)", None),
            ("<a>", None),
            ("x", None),
            ("(not)", None),
        ] {
            assert_eq!(shown(text).as_deref(), expected, "{text}");
        }
        assert_eq!(shown(&format!("({})", "<a>".repeat(201))), None);
    }

    #[test]
    fn tokens_that_are_shown() {
        let lists = parse(b"(<a> Not <b>) (<c> [\"e\"])").unwrap();
        assert_eq!(tokens(&lists), [b"a", b"c"]);
    }
}
