//! The search for several strings at once: a table of shifts by the byte where the shortest would
//! end (Boyer, Moore and Horspool), so that most of the text is not looked at.

/// What a search met first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    None,
    Match {
        start: usize,
        pattern: usize,
    },
    /// The text ends in what may be the beginning of a pattern.
    Partial {
        start: usize,
    },
}

/// Patterns in lower case; none is empty.
pub struct Matcher {
    patterns: Vec<Vec<u8>>,
    /// Length of the shortest.
    least: usize,
    /// How far the next place that can match is away, by the byte under the shortest's end.
    shift: Box<[u8; 256]>,
    /// Patterns sorted by that byte and in their own order, and where each byte's begin.
    sorted: Vec<u8>,
    begins: Box<[u8; 257]>,
}

impl Matcher {
    /// `None` without patterns, or with more than a byte can number.
    pub fn new(patterns: Vec<Vec<u8>>) -> Option<Matcher> {
        let least = patterns.iter().map(Vec::len).min().filter(|n| *n > 0)?;
        let count = u8::try_from(patterns.len()).ok()?;
        let reach = least.min(255);
        let mut shift = Box::new([reach as u8; 256]);
        for pattern in &patterns {
            for back in 0..reach {
                let byte = usize::from(pattern[least - 1 - back]);
                shift[byte] = shift[byte].min(back as u8);
            }
        }
        let mut sorted: Vec<u8> = (0..count).collect();
        let key = |n: &u8| patterns[usize::from(*n)][least - 1];
        sorted.sort_by_key(key);
        let begin = |byte: usize| sorted.partition_point(|n| usize::from(key(n)) < byte) as u8;
        let begins = Box::new(std::array::from_fn(begin));
        Some(Matcher { patterns, least, shift, sorted, begins })
    }

    pub fn pattern_len(&self, pattern: usize) -> usize {
        self.patterns[pattern].len()
    }

    /// The first place where a pattern that is not `used` begins; of several, the first pattern.
    pub fn find(&self, text: &[u8], used: &[bool]) -> Found {
        let mut at = 0;
        while let Some(byte) = text.get(at + self.least - 1) {
            let byte = usize::from(byte.to_ascii_lowercase());
            match usize::from(self.shift[byte]) {
                0 => {}
                shift => {
                    at += shift;
                    continue;
                }
            }
            let (from, to) = (usize::from(self.begins[byte]), usize::from(self.begins[byte + 1]));
            let candidates = self.sorted[from..to].iter().map(|n| usize::from(*n));
            for pattern in candidates.filter(|n| !used[*n]) {
                match self.compare(&text[at..], pattern) {
                    Compared::Whole => return Found::Match { start: at, pattern },
                    Compared::Beginning => return Found::Partial { start: at },
                    Compared::Different => {}
                }
            }
            at += 1;
        }
        self.find_beginning(text, at, used)
    }

    /// The rest of the text is shorter than any pattern.
    fn find_beginning(&self, text: &[u8], from: usize, used: &[bool]) -> Found {
        for at in from..text.len() {
            let begins =
                |n: usize| !used[n] && matches!(self.compare(&text[at..], n), Compared::Beginning);
            if (0..self.patterns.len()).any(begins) {
                return Found::Partial { start: at };
            }
        }
        Found::None
    }

    fn compare(&self, text: &[u8], pattern: usize) -> Compared {
        let pattern = &self.patterns[pattern];
        let n = text.len().min(pattern.len());
        match is_same(&text[..n], &pattern[..n]) {
            false => Compared::Different,
            true if n == pattern.len() => Compared::Whole,
            true => Compared::Beginning,
        }
    }
}

/// Whether a text is this in lower case. Most is as it is written there.
#[inline]
fn is_same(text: &[u8], lower: &[u8]) -> bool {
    text == lower || text.eq_ignore_ascii_case(lower)
}

enum Compared {
    Different,
    Whole,
    /// The text ends before the pattern does.
    Beginning,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(patterns: &[&str]) -> Matcher {
        Matcher::new(patterns.iter().map(|p| p.as_bytes().to_vec()).collect()).unwrap()
    }

    fn find(patterns: &[&str], text: &str) -> Found {
        matcher(patterns).find(text.as_bytes(), &vec![false; patterns.len()])
    }

    #[test]
    fn order() {
        let hit = |start, pattern| Found::Match { start, pattern };
        assert_eq!(find(&["b", "a"], "xab"), hit(1, 1));
        assert_eq!(find(&["ab", "abc"], "xABC"), hit(1, 0));
        assert_eq!(find(&["abc", "ab"], "xABC"), hit(1, 0));
        assert_eq!(find(&["abcd", "ab"], "xabc"), Found::Partial { start: 1 });
        assert_eq!(find(&["abcd", "ab"], "xabce"), hit(1, 1));
        assert_eq!(find(&["bc", "abd"], "abc"), hit(1, 0));
        assert_eq!(find(&["aa"], "ba"), Found::Partial { start: 1 });
        assert_eq!(find(&["aa"], "ab"), Found::None);
        assert_eq!(find(&["aa"], ""), Found::None);
        assert!(Matcher::new(Vec::new()).is_none());
    }

    #[test]
    fn used_patterns_are_skipped() {
        let m = matcher(&["a", "ab"]);
        let text = b"xab";
        assert_eq!(m.find(text, &[true, false]), Found::Match { start: 1, pattern: 1 });
        assert_eq!(m.find(text, &[true, true]), Found::None);
    }

    /// Against a plain search, over random texts of few letters.
    #[test]
    fn random() {
        let mut seed = 11u32;
        let mut next = |below: u32| {
            seed ^= seed << 13;
            seed ^= seed >> 17;
            seed ^= seed << 5;
            seed % below
        };
        for _ in 0..3000 {
            let mut word = |most: u32| -> Vec<u8> {
                (0..1 + next(most)).map(|_| b'a' + next(3) as u8).collect()
            };
            let patterns: Vec<Vec<u8>> = (0..3).map(|_| word(4)).collect();
            let text = word(12);
            let used = vec![false; 3];
            let m = Matcher::new(patterns.clone()).unwrap();
            let plain = (0..text.len()).find_map(|at| {
                let rest = &text[at..];
                let hit = patterns
                    .iter()
                    .enumerate()
                    .find(|(_, p)| rest.starts_with(p) || p.starts_with(rest));
                hit.map(|(n, p)| match rest.starts_with(p) {
                    true => Found::Match { start: at, pattern: n },
                    false => Found::Partial { start: at },
                })
            });
            assert_eq!(m.find(&text, &used), plain.unwrap_or(Found::None), "{patterns:?} {text:?}");
        }
    }
}
