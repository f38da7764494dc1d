//! Directives of `Cache-Control` and the fields like it (RFC 9111, section 5.2; RFC 9213).

use super::dictionary::{self, Value};
use weir_base::units::parse_int;

/// Seconds that cannot be read, or are too many to be told apart from ever.
const SECS_MAX: u64 = i32::MAX as u64;

/// A directive about the whole answer, or about fields of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Qualified {
    pub(crate) whole: bool,
    pub(crate) fields: Vec<Vec<u8>>,
}

/// What a response says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Says {
    pub(crate) no_store: bool,
    pub(crate) no_cache: Qualified,
    pub(crate) private: Qualified,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) must_understand: bool,
    pub(crate) max_age_secs: Option<u64>,
    pub(crate) s_maxage_secs: Option<u64>,
    pub(crate) while_revalidate_secs: Option<u64>,
    pub(crate) if_error_secs: Option<u64>,
}

/// What a request says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asks {
    pub(crate) no_cache: bool,
    pub(crate) no_store: bool,
    pub(crate) only_if_cached: bool,
    pub(crate) max_age_secs: Option<u64>,
    pub(crate) min_fresh_secs: Option<u64>,
    pub(crate) max_stale_secs: Option<u64>,
    pub(crate) if_error_secs: Option<u64>,
}

/// The items of a list, commas between quotes aside: names, and what follows `=` without its quotes.
pub(crate) fn items(value: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut items = Vec::new();
    let (mut begin, mut quoted, mut escaped) = (0, false, false);
    for (i, byte) in value.iter().chain(b",").enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted || i == value.len() => {
                let item = value[begin..i].trim_ascii();
                begin = i + 1;
                if !item.is_empty() {
                    items.push(split(item));
                }
            }
            _ => {}
        }
    }
    items
}

fn split(item: &[u8]) -> (&[u8], &[u8]) {
    let Some(at) = memchr::memchr(b'=', item) else { return (item, b"") };
    let value = item[at + 1..].trim_ascii();
    let inside = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\""));
    (item[..at].trim_ascii(), inside.unwrap_or(value))
}

/// Whether each item is a name, or a name with a word or a whole quoted string behind `=`.
fn is_well_formed(value: &[u8]) -> bool {
    let is_word = |text: &[u8]| {
        !text.is_empty()
            && text.iter().all(|b| b.is_ascii_graphic() && !b"\"(),;<=>?[\\]{}".contains(b))
    };
    let mut rest = value.trim_ascii();
    while !rest.is_empty() {
        let len = rest.iter().position(|b| matches!(b, b',' | b'=')).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(len);
        let Some(argument) = behind.strip_prefix(b"=") else {
            let name = name.trim_ascii();
            if !name.is_empty() && !is_word(name) {
                return false;
            }
            rest = behind.get(1..).unwrap_or_default().trim_ascii_start();
            continue;
        };
        let len = match argument.first() {
            Some(b'"') => quoted_len(argument),
            _ => Some(argument.iter().position(|b| *b == b',').unwrap_or(argument.len())),
        };
        let Some((text, behind)) = len.map(|len| argument.split_at(len)) else { return false };
        let is_whole = text.first() == Some(&b'"') || is_word(text.trim_ascii_end());
        let behind = behind.trim_ascii_start();
        if !is_word(name) || !is_whole || !matches!(behind.first(), None | Some(b',')) {
            return false;
        }
        rest = behind.get(1..).unwrap_or_default().trim_ascii_start();
    }
    true
}

/// How long the quoted string is that begins here, if it ends.
fn quoted_len(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (i, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(i + 1),
            _ => {}
        }
    }
    None
}

/// Seconds; what is none makes an answer stale, as what the standard encourages.
fn secs(value: &[u8]) -> u64 {
    let is_long = value.len() > 10 && value.iter().all(u8::is_ascii_digit);
    match parse_int(value) {
        _ if is_long => SECS_MAX,
        Some(n) => n.min(SECS_MAX),
        None => 0,
    }
}

/// The first one counts.
fn first(place: &mut Option<u64>, value: &[u8]) {
    if place.is_none() {
        *place = Some(secs(value));
    }
}

fn qualify(place: &mut Qualified, value: &[u8]) {
    let names = value.split(|b| matches!(b, b',' | b' ' | b'\t')).filter(|n| !n.is_empty());
    let before = place.fields.len();
    place.fields.extend(names.map(<[u8]>::to_vec));
    place.whole |= place.fields.len() == before;
}

impl Says {
    /// Adds what one field says.
    pub(crate) fn hear(&mut self, value: &[u8]) {
        if !is_well_formed(value) {
            self.find_forbidden(value);
        }
        for (name, value) in items(value) {
            match &*name.to_ascii_lowercase() {
                b"no-store" => self.no_store = true,
                b"no-cache" => qualify(&mut self.no_cache, value),
                b"private" => qualify(&mut self.private, value),
                b"public" => self.public = true,
                b"must-revalidate" | b"proxy-revalidate" => self.must_revalidate = true,
                b"must-understand" => self.must_understand = true,
                b"max-age" => first(&mut self.max_age_secs, value),
                b"s-maxage" => first(&mut self.s_maxage_secs, value),
                b"stale-while-revalidate" => first(&mut self.while_revalidate_secs, value),
                b"stale-if-error" => first(&mut self.if_error_secs, value),
                _ => {}
            }
        }
    }

    /// Where a field is malformed, nobody knows what of it was meant: what would forbid counts wherever it is.
    pub(crate) fn find_forbidden(&mut self, value: &[u8]) {
        let value = value.to_ascii_lowercase();
        let has = |word: &[u8]| memchr::memmem::find(&value, word).is_some();
        self.private.whole |= has(b"no-store") || has(b"private");
        self.no_cache.whole |= has(b"no-cache");
    }

    /// What a field for caches like this one says (`CDN-Cache-Control`, all its lines as one), which is a
    /// dictionary (RFC 8941); `None` where it is none, is empty or has a directive with a value of another type
    /// than it takes: then it is as if it were not there. Of what is said twice the last counts, but what
    /// forbids counts always.
    pub(crate) fn targeted(value: &[u8]) -> Option<Says> {
        let all = dictionary::parse(value).filter(|all| !all.is_empty())?;
        let mut says = Says::default();
        for (name, value) in all {
            says.hear_member(name, &value)?;
        }
        Some(says)
    }

    fn hear_member(&mut self, name: &[u8], value: &Value) -> Option<()> {
        let yes = || match value {
            Value::Bool(yes) => Some(*yes),
            _ => None,
        };
        let secs = || match value {
            Value::Integer(n) => Some(Some(u64::try_from(*n).unwrap_or(0).min(SECS_MAX))),
            _ => None,
        };
        let limit = |place: &mut Qualified| {
            match value {
                Value::Bool(yes) => place.whole |= yes,
                Value::Text(names) => qualify(place, names),
                _ => return None,
            }
            Some(())
        };
        match name {
            b"no-store" => self.no_store |= yes()?,
            b"no-cache" => limit(&mut self.no_cache)?,
            b"private" => limit(&mut self.private)?,
            b"public" => self.public = yes()?,
            b"must-revalidate" | b"proxy-revalidate" => self.must_revalidate |= yes()?,
            b"must-understand" => self.must_understand = yes()?,
            b"max-age" => self.max_age_secs = secs()?,
            b"s-maxage" => self.s_maxage_secs = secs()?,
            b"stale-while-revalidate" => self.while_revalidate_secs = secs()?,
            b"stale-if-error" => self.if_error_secs = secs()?,
            _ => {}
        }
        Some(())
    }
}

impl Asks {
    /// Adds what one field says.
    pub(crate) fn hear(&mut self, value: &[u8]) {
        for (name, value) in items(value) {
            match &*name.to_ascii_lowercase() {
                b"no-cache" => self.no_cache = true,
                b"no-store" => self.no_store = true,
                b"only-if-cached" => self.only_if_cached = true,
                b"max-age" => first(&mut self.max_age_secs, value),
                b"min-fresh" => first(&mut self.min_fresh_secs, value),
                b"max-stale" if value.is_empty() => self.max_stale_secs = Some(SECS_MAX),
                b"max-stale" => first(&mut self.max_stale_secs, value),
                b"stale-if-error" => first(&mut self.if_error_secs, value),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_in_a_list() {
        let mut says = Says::default();
        says.hear(b"Private=\"Set-Cookie, X-A\" , max-age=60,max-age=9, no-cache, x=\"a, no-store\\\", b\"");
        assert_eq!(says.private.fields, [&b"Set-Cookie"[..], b"X-A"]);
        assert!(!says.private.whole && says.no_cache.whole && !says.no_store);
        assert_eq!(says.max_age_secs, Some(60));
        says.hear(b"s-maxage=x, stale-if-error=99999999999999999999, private");
        assert_eq!((says.s_maxage_secs, says.if_error_secs), (Some(0), Some(SECS_MAX)));
        assert!(says.private.whole);
        assert_eq!(items(b",, a ,\"b,c"), [(&b"a"[..], &b""[..]), (b"\"b,c", b"")]);
        let mut asks = Asks::default();
        asks.hear(b"max-stale, min-fresh=\"5\"");
        assert_eq!((asks.max_stale_secs, asks.min_fresh_secs), (Some(SECS_MAX), Some(5)));
    }

    #[test]
    fn a_field_for_us_must_be_a_dictionary() {
        let targeted = |value: &[u8]| Says::targeted(value).map(|says| says.max_age_secs);
        assert_eq!(targeted(b"max-age=5, private"), Some(Some(5)));
        assert_eq!(targeted(b"max-age=5;x=y, max-age=6"), Some(Some(6)));
        for none in
            [&b""[..], b" , ", b"Max-Age=5", b"=5", b"max age=5", b"max-age=\"5\"", b"private=1"]
        {
            assert_eq!(targeted(none), None);
        }
        let says = Says::targeted(b"no-store, private, no-store=?0, private=?0").unwrap();
        assert!(says.no_store && says.private.whole);
    }

    #[test]
    fn what_is_malformed_forbids_all_the_more() {
        for good in ["", ",, a ,", "a=b,c", "x=\"a, private\" , b", "a=\"\\\"\", max-age=-1"] {
            assert!(is_well_formed(good.as_bytes()), "{good}");
        }
        for bad in [
            "x=\"a, private",
            "x=\"a\\\", private",
            "private =x",
            "a= private",
            "x=\"\"private",
            "\"private",
            "x private",
            "private=",
        ] {
            assert!(!is_well_formed(bad.as_bytes()), "{bad}");
            let mut says = Says::default();
            says.hear(bad.as_bytes());
            assert!(says.private.whole, "{bad}");
        }
    }
}
