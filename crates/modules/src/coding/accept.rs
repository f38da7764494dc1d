//! What a client takes: `Accept-Encoding` with its weights (RFC 9110, section 12.5.3), and which coding is the
//! best of those that are on.

use super::{Coding, Lacking, Wanted};
use crate::gzip::Gzip;
use crate::gzip_ok::gzip_ok;
use weir_http::generation::Location;
use weir_http::Request;
use weir_wire::http1::names::HeaderId;

/// The codings, the first before the others where a client weighs them alike: brotli makes text the smallest, zstd is
/// quicker than gzip and smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    Brotli,
    Zstd,
    Gzip,
}

impl Rank {
    pub const ALL: [Rank; 3] = [Rank::Brotli, Rank::Zstd, Rank::Gzip];

    /// The word of Accept-Encoding and Content-Encoding.
    pub fn word(self) -> &'static [u8] {
        match self {
            Rank::Brotli => b"br",
            Rank::Zstd => b"zstd",
            Rank::Gzip => b"gzip",
        }
    }

    fn wanted(self, loc: &Location) -> &Wanted {
        match self {
            Rank::Brotli => crate::brotli::Brotli::wanted(loc),
            Rank::Zstd => crate::zstd::Zstd::wanted(loc),
            Rank::Gzip => Gzip::wanted(loc),
        }
    }
}

/// How much a client wants a coding, in thousandths; 0 is not at all. For gzip nginx's conditions hold besides.
pub fn weight(r: &mut Request, coding: Rank) -> u16 {
    if r.kept::<Lacking>().is_some_and(|lacking| lacking.0.contains(&coding)) {
        return 0;
    }
    // What becomes part of another answer must be plain.
    if r.is_part() || (coding == Rank::Gzip && !gzip_ok(r)) {
        return 0;
    }
    let Some(accepted) = r.header(HeaderId::AcceptEncoding) else { return 0 };
    match coding {
        // `gzip_ok` has said yes: a weight that it reads otherwise is a small one.
        Rank::Gzip => named(accepted, b"gzip").unwrap_or(0).max(1),
        _ => named(accepted, coding.word()).or_else(|| named(accepted, b"*")).unwrap_or(0),
    }
}

/// Whether a coding is the best for this response of those that are on.
pub fn is_best(r: &mut Request, loc: &Location, coding: Rank) -> bool {
    let own = weight(r, coding);
    own > 0
        && Rank::ALL.into_iter().filter(|other| *other != coding).all(|other| {
            let wanted = other.wanted(loc);
            if !*wanted.on || !wanted.has(r) {
                return true;
            }
            let weight = weight(r, other);
            weight < own || (weight == own && coding < other)
        })
}

/// The weight of a word that is named, in thousandths.
fn named(value: &[u8], word: &[u8]) -> Option<u16> {
    value.split(|b| *b == b',').find_map(|item| {
        let mut parts = item.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        if !parts.next().unwrap_or_default().eq_ignore_ascii_case(word) {
            return None;
        }
        let weight = parts.find_map(|p| p.strip_prefix(b"q=").or_else(|| p.strip_prefix(b"Q=")));
        Some(weight.map_or(1000, thousandths))
    })
}

/// `0.5` is 500. What is no weight counts as none at all: 1.
fn thousandths(text: &[u8]) -> u16 {
    let Some(rest) = text.strip_prefix(b"0") else { return 1000 };
    let digits = rest.strip_prefix(b".").unwrap_or(b"").iter().take_while(|b| b.is_ascii_digit());
    digits.zip([100, 10, 1]).map(|(digit, place)| u16::from(digit - b'0') * place).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights() {
        for (value, word, weight) in [
            ("br", "br", Some(1000)),
            ("gzip, BR;q=0.5", "br", Some(500)),
            ("gzip,br ; q=0.125 ,x", "br", Some(125)),
            ("br;q=0", "br", Some(0)),
            ("br;q=0.", "br", Some(0)),
            ("br;q=0.000", "br", Some(0)),
            ("br;Q=0.0009", "br", Some(0)),
            ("br;q=1.000", "br", Some(1000)),
            ("br;q=x", "br", Some(1000)),
            ("br;q=", "br", Some(1000)),
            ("br;level=3;q=0.2", "br", Some(200)),
            ("brx, xbr", "br", None),
            ("", "br", None),
            ("*;q=0.3", "*", Some(300)),
            (";;,,q=1", "zstd", None),
        ] {
            assert_eq!(named(value.as_bytes(), word.as_bytes()), weight, "{value}");
        }
    }
}
