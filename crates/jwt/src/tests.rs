//! Tokens that another library (jwcrypto) has made, by the keys beside them.

use std::sync::Arc;

use super::keys::KeySet;
use super::token::{check, Kind};

const KEYS: &[u8] = include_bytes!("../testdata/keys.json");
const TOKENS: &str = include_str!("../testdata/tokens.tsv");

fn token(name: &str) -> &'static str {
    let line = TOKENS.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    line.unwrap_or_else(|| panic!("no token {name}"))
}

fn sets() -> Vec<Arc<KeySet>> {
    vec![Arc::default(), Arc::new(KeySet::parse(KEYS).unwrap())]
}

fn subject(name: &str, kind: Kind) -> Result<String, String> {
    let token = check(token(name).as_bytes(), kind, &sets())?;
    Ok(token.claims.get("sub").and_then(|sub| sub.as_str()).unwrap_or_default().to_string())
}

#[test]
fn signatures() {
    for name in [
        "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256",
        "ES384", "ES512", "EdDSA", "no-kid",
    ] {
        assert_eq!(subject(name, Kind::Signed).as_deref(), Ok("alice"), "{name}");
    }
    for name in ["Ed448", "wrong-kid", "unknown-kid", "stranger", "confused"] {
        assert_eq!(subject(name, Kind::Signed), Err("no key fits its signature".into()), "{name}");
    }
    let why = |name: &str| subject(name, Kind::Signed).unwrap_err();
    assert!(why("none").contains("algorithm \"none\" is not known"));
    assert!(why("crit").contains("\"crit\""));
    assert!(why("list").contains("payload is no object"));
    assert!(why("dir/A128GCM").contains("not of three parts"));
}

/// A token stays what it is in every byte.
#[test]
fn what_was_changed_does_not_hold() {
    for (name, kind) in [
        ("HS256", Kind::Signed),
        ("ES512", Kind::Signed),
        ("A128KW/A128CBC-HS256", Kind::Encrypted),
        ("dir/A192GCM", Kind::Encrypted),
    ] {
        let whole = token(name).as_bytes();
        for at in 0..whole.len() {
            let mut other = whole.to_vec();
            // Not the last bits of a part, which stand for nothing.
            other[at] = match other[at] {
                b'.' => continue,
                b'A'..=b'Z' => other[at] + 32,
                b'a'..=b'z' => other[at] - 32,
                _ => b'A',
            };
            let changes =
                super::token::decode(part(&other, at)) != super::token::decode(part(whole, at));
            assert!(!changes || check(&other, kind, &sets()).is_err(), "{name} at {at}");
        }
        for len in 0..whole.len() {
            assert!(check(&whole[..len], kind, &sets()).is_err(), "{name} to {len}");
        }
    }
}

/// The part that a place is in.
fn part(text: &[u8], at: usize) -> &[u8] {
    let begin = text[..at].iter().rposition(|b| *b == b'.').map_or(0, |n| n + 1);
    let end = text[at..].iter().position(|b| *b == b'.').map_or(text.len(), |n| at + n);
    &text[begin..end]
}

#[test]
fn encryption() {
    let sealed =
        TOKENS.lines().filter_map(|line| line.split('\t').next()).filter(|name| name.contains('/'));
    let mut count = 0;
    for name in sealed.chain(["sealed-no-kid"]) {
        assert_eq!(subject(name, Kind::Encrypted).as_deref(), Ok("alice"), "{name}");
        count += 1;
    }
    assert_eq!(count, 19);
    assert_eq!(subject("nested", Kind::Nested).as_deref(), Ok("alice"));
    assert_eq!(subject("nested-forged", Kind::Nested), Err("no key fits its signature".into()));
    let why = |name: &str| subject(name, Kind::Encrypted).unwrap_err();
    assert_eq!(why("sealed-zip"), "it is compressed");
    assert!(why("sealed-text").contains("payload is not JSON"));
    assert!(why("HS256").contains("not of five parts"));
}

#[test]
fn sets_that_are_none() {
    for (text, why) in [
        ("", "EOF"),
        ("[]", "no list \"keys\""),
        ("{\"keys\":{}}", "no list \"keys\""),
        ("{\"keys\":[1]}", "key 0 is no object"),
        ("{\"keys\":[{}]}", "no \"kty\""),
        ("{\"keys\":[{\"kty\":\"oct\"}]}", "no \"k\""),
        ("{\"keys\":[{\"kty\":\"oct\",\"k\":\"\"}]}", "not base64url"),
        (
            "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AA\",\"y\":\"AA\"}]}",
            "have 32 bytes",
        ),
    ] {
        let said = KeySet::parse(text.as_bytes()).err().unwrap_or_default();
        assert!(said.contains(why), "{text}: {said}");
    }
    assert!(KeySet::parse(b"{\"keys\":[{\"kty\":\"new\"}]}").is_ok());
    let many = format!("{{\"keys\":[{}]}}", ["{\"kty\":\"new\"}"; 257].join(","));
    assert!(KeySet::parse(many.as_bytes()).is_err());
    assert!(KeySet::parse("[".repeat(100_000).as_bytes()).is_err());
}
