//! A token's text (RFC 7515, section 7.1; RFC 7516, section 7.1) and what becomes of it with keys.

use serde_json::{Map, Value};

use crate::keys::{Key, KeySet};
use crate::{decrypt, verify};

type Object = Map<String, Value>;

/// What a location wants a token to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Signed,
    Encrypted,
    /// A signed one that is encrypted.
    Nested,
}

/// What holds of a token whose signature or seal does.
#[derive(Default)]
pub struct Token {
    pub header: Object,
    pub claims: Object,
    /// What was encrypted; of a signed token nothing.
    pub payload: Vec<u8>,
}

/// Base64url without padding (RFC 7515, section 2), nothing else.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    match text.contains(&b'=') {
        true => None,
        false => weir_base::base64::decode_url(text),
    }
}

fn object(text: &[u8], what: &str) -> Result<Object, String> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(format!("its {what} is no object")),
        Err(e) => Err(format!("its {what} is not JSON: {e}")),
    }
}

/// A header and the names in it that decide.
struct Header {
    fields: Object,
    alg: String,
    id: Option<String>,
}

impl Header {
    fn parse(part: &[u8]) -> Result<Header, String> {
        let text = decode(part).ok_or("its header is not base64url")?;
        let fields = object(&text, "header")?;
        let own = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_string);
        let alg = own("alg").ok_or("its header has no \"alg\"")?;
        // What must be understood is not (RFC 7515, section 4.1.11).
        if fields.contains_key("crit") {
            return Err("its header has \"crit\"".into());
        }
        let id = own("kid");
        Ok(Header { fields, alg, id })
    }

    fn keys<'k>(
        &'k self,
        sets: &'k [impl AsRef<KeySet>],
        usage: &'k str,
    ) -> impl Iterator<Item = &'k Key> {
        let all = sets.iter().flat_map(|set| &set.as_ref().keys);
        all.filter(move |key| key.may_be(self.id.as_deref(), &self.alg, usage))
    }
}

/// Checks a token.
///
/// # Errors
///
/// Why it does not hold.
pub fn check(text: &[u8], kind: Kind, sets: &[impl AsRef<KeySet>]) -> Result<Token, String> {
    match kind {
        Kind::Signed => signed(text, sets),
        Kind::Encrypted => {
            let (header, payload) = encrypted(text, sets)?;
            let claims = object(&payload, "payload")?;
            Ok(Token { header, claims, payload })
        }
        Kind::Nested => {
            let (_, payload) = encrypted(text, sets)?;
            let inner = signed(&payload, sets)?;
            Ok(Token { payload, ..inner })
        }
    }
}

/// What a signed token says of itself, whether it holds or not.
pub fn unchecked(text: &[u8]) -> Option<Token> {
    let mut parts = text.splitn(3, |b| *b == b'.');
    let header = object(&decode(parts.next()?)?, "header").ok()?;
    let claims = object(&decode(parts.next()?)?, "payload").ok()?;
    Some(Token { header, claims, payload: Vec::new() })
}

fn signed(text: &[u8], sets: &[impl AsRef<KeySet>]) -> Result<Token, String> {
    let parts: Vec<&[u8]> = text.splitn(4, |b| *b == b'.').collect();
    let &[header, claims, signature] = &parts[..] else {
        return Err("it is not of three parts".into());
    };
    let said = &text[..header.len() + 1 + claims.len()];
    let header = Header::parse(header)?;
    let signature = decode(signature).ok_or("its signature is not base64url")?;
    let claims = decode(claims).ok_or("its payload is not base64url")?;
    if !verify::is_known(&header.alg) {
        return Err(format!("its signature's algorithm \"{}\" is not known", header.alg));
    }
    let holds = header
        .keys(sets, "sig")
        .any(|key| verify::holds(&header.alg, &key.material, said, &signature));
    if !holds {
        return Err("no key fits its signature".into());
    }
    Ok(Token { claims: object(&claims, "payload")?, header: header.fields, payload: Vec::new() })
}

fn encrypted(text: &[u8], sets: &[impl AsRef<KeySet>]) -> Result<(Object, Vec<u8>), String> {
    let parts: Vec<&[u8]> = text.splitn(6, |b| *b == b'.').collect();
    let &[said, key, iv, sealed, tag] = &parts[..] else {
        return Err("it is not of five parts".into());
    };
    let header = Header::parse(said)?;
    // What is compressed may come to any length.
    if header.fields.contains_key("zip") {
        return Err("it is compressed".into());
    }
    let part = |text: &[u8]| decode(text).ok_or("a part of it is not base64url");
    let (key, iv, sealed, tag) = (part(key)?, part(iv)?, part(sealed)?, part(tag)?);
    let enc =
        header.fields.get("enc").and_then(Value::as_str).ok_or("its header has no \"enc\"")?;
    let sealed = decrypt::Sealed { enc, said, iv: &iv, text: &sealed, tag: &tag };
    sealed.check()?;
    let wrapped = decrypt::Wrapped::new(&header.alg, &header.fields, &key)?;
    let opened = header.keys(sets, "enc").find_map(|key| {
        let key = wrapped.open(&key.material, sealed.key_bytes())?;
        sealed.open(&key)
    });
    Ok((header.fields, opened.ok_or("no key opens it")?))
}
