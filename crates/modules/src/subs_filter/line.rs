//! One line, and what the pairs make of it.

use memchr::memmem::Finder;
use weir_core::values::CaptureSet;
use weir_core::Session;
use weir_http::module::FilterError;
use weir_http::Request;
use weir_script::regex::Regex;
use weir_script::template::Template;

/// What a line may become before the response is given up: pairs can double it each.
const MADE_MAX_BYTES: usize = 16 * 1024 * 1024;

/// What is searched for and what replaces it.
pub struct Pair {
    pub search: Search,
    pub value: Template,
    /// The first place of a response alone.
    pub once: bool,
}

pub enum Search {
    Regex(Regex),
    Exact(Box<Finder<'static>>),
    /// In lower case.
    Caseless(Box<[u8]>),
    /// A string that is another for each response.
    Computed {
        pattern: Template,
        caseless: bool,
    },
}

impl Search {
    pub fn of(pattern: Template, caseless: bool) -> Search {
        let found = pattern.as_constant().and_then(|text| Search::string(text, caseless));
        found.unwrap_or(Search::Computed { pattern, caseless })
    }

    /// `None` for an empty string, which is nowhere.
    fn string(text: &[u8], caseless: bool) -> Option<Search> {
        match caseless {
            _ if text.is_empty() => None,
            true => Some(Search::Caseless(text.to_ascii_lowercase().into())),
            false => Some(Search::Exact(Box::new(Finder::new(text).into_owned()))),
        }
    }

    /// Where the next match is, from `at` on.
    fn find(
        &self,
        r: &mut Request,
        line: &[u8],
        at: usize,
    ) -> Result<Option<(usize, usize)>, FilterError> {
        Ok(match self {
            Search::Exact(finder) => {
                finder.find(&line[at..]).map(|n| (at + n, at + n + finder.needle().len()))
            }
            Search::Caseless(lower) => {
                find_caseless(&line[at..], lower).map(|n| (at + n, at + n + lower.len()))
            }
            Search::Regex(regex) => {
                let found = regex.exec_at(line, at, &mut r.values.captures.captures);
                let found = r.judge_match(found, regex, line).map_err(|_| FilterError::Broken)?;
                let range = found.then(|| r.values.captures.captures.range(0)).flatten();
                range.map(|range| (range.start.max(at), range.end.max(at)))
            }
            Search::Computed { .. } => None,
        })
    }
}

/// Where a text that is not empty, in lower case, is in a line whose letters' case does not count.
fn find_caseless(line: &[u8], lower: &[u8]) -> Option<usize> {
    let (first, last) = (lower[0], line.len().checked_sub(lower.len())?);
    let places = memchr::memchr2_iter(first, first.to_ascii_uppercase(), &line[..=last]);
    places.into_iter().find(|n| line[*n..*n + lower.len()].eq_ignore_ascii_case(lower))
}

/// What one response has of its own.
pub struct Lines {
    /// Of pairs whose string is computed.
    own: Vec<Option<Search>>,
    /// Pairs that have had their one place.
    used: Vec<bool>,
}

impl Lines {
    pub fn new(r: &mut Request, pairs: &[Pair]) -> Lines {
        let own = pairs.iter().map(|pair| match &pair.search {
            Search::Computed { pattern, caseless } => Search::string(&r.eval(pattern), *caseless),
            _ => None,
        });
        Lines { own: own.collect(), used: vec![false; pairs.len()] }
    }

    /// What becomes of a line; `None`: it stays.
    pub fn replace(
        &mut self,
        r: &mut Request,
        pairs: &[Pair],
        line: &[u8],
    ) -> Result<Option<Vec<u8>>, FilterError> {
        let mut made: Option<Vec<u8>> = None;
        for (n, pair) in pairs.iter().enumerate() {
            let search = self.own[n].as_ref().unwrap_or(&pair.search);
            if pair.once && self.used[n] {
                continue;
            }
            let next = replace_one(r, search, pair, made.as_deref().unwrap_or(line))?;
            if next.is_some() {
                self.used[n] = true;
                made = next;
            }
        }
        Ok(made)
    }
}

/// One pair on one line. What the request has captured itself is as it was afterwards.
fn replace_one(
    r: &mut Request,
    search: &Search,
    pair: &Pair,
    line: &[u8],
) -> Result<Option<Vec<u8>>, FilterError> {
    if !matches!(search, Search::Regex(_)) {
        return replace_in(r, search, pair, line);
    }
    let mut own = CaptureSet::default();
    if pair.value.uses_captures() {
        own.subject = line.to_vec();
    }
    let outer = std::mem::replace(&mut r.values.captures, own);
    let made = replace_in(r, search, pair, line);
    r.values.captures = outer;
    made
}

fn replace_in(
    r: &mut Request,
    search: &Search,
    pair: &Pair,
    line: &[u8],
) -> Result<Option<Vec<u8>>, FilterError> {
    let Some(mut found) = search.find(r, line, 0)? else { return Ok(None) };
    let (mut out, mut at) = (Vec::with_capacity(line.len() + 64), 0);
    loop {
        let (start, end) = found;
        out.extend_from_slice(&line[at..start]);
        let value = r.eval(&pair.value);
        out.extend_from_slice(&value);
        if out.len() > MADE_MAX_BYTES {
            return Err(too_long(r));
        }
        at = end;
        // Behind a match of nothing one byte is passed over, so that the search goes on.
        if start == end && end < line.len() {
            out.push(line[end]);
            at += 1;
        }
        if pair.once || at >= line.len() {
            break;
        }
        match search.find(r, line, at)? {
            Some(next) => found = next,
            None => break,
        }
    }
    out.extend_from_slice(&line[at..]);
    Ok(Some(out))
}

#[cold]
fn too_long(r: &Request) -> FilterError {
    let text = format!("subs_filter made more than {MADE_MAX_BYTES} bytes of one line");
    r.log(weir_core::logger::LogLevel::Error, &text);
    FilterError::Broken
}

#[cfg(test)]
mod tests {
    use super::find_caseless;

    #[test]
    fn caseless() {
        for (line, lower, at) in [
            ("xAbC", "abc", Some(1)),
            ("ab", "abc", None),
            ("", "a", None),
            ("aaB", "ab", Some(1)),
            ("a1", "1", Some(1)),
        ] {
            assert_eq!(find_caseless(line.as_bytes(), lower.as_bytes()), at, "{line} {lower}");
        }
    }
}
