//! What clients send: JSON, in bounds.

use super::refusal::{Outcome, Refusal};
use crate::strict::inner_names_are_there_once;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::collections::HashSet;
use std::fmt;
use weir_http::body::{self, BodyError};
use weir_http::Request;
use weir_wire::http1::names::HeaderId;

/// The longest body that is read.
const BODY_MAX_BYTES: usize = 1 << 20;
/// So many members an object has at most.
const MEMBERS_MAX: usize = 10_000;

/// A value of an object.
pub(super) struct Input(Value);

impl Input {
    pub(super) fn is_nested(&self) -> bool {
        self.0.is_object() || self.0.is_array()
    }

    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(super) fn text(&self) -> Option<String> {
        self.0.as_str().map(str::to_string)
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.0.as_u64()
    }

    pub(super) fn flag(&self) -> Option<bool> {
        self.0.as_bool()
    }

    /// The members of an object in it.
    pub(super) fn members(self) -> Option<Vec<(String, Input)>> {
        match self.0 {
            Value::Object(all) => Some(all.into_iter().map(|(name, v)| (name, Input(v))).collect()),
            _ => None,
        }
    }
}

/// The members of an object as they were sent: serde_json's own map keeps the last of those with one name.
struct Members(Vec<(String, Input)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Members, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut all = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    all.push((name, Input(value)));
                }
                Ok(Members(all))
            }
        }
        from.deserialize_map(All)
    }
}

/// The members of the object that a body is, as they were sent.
pub(super) fn members(body: &[u8]) -> Outcome<Vec<(String, Input)>> {
    let wrong = |text: String| Refusal::new(415, "JsonError", text);
    let Members(members) = serde_json::from_slice(body).map_err(|e| wrong(e.to_string()))?;
    inner_names_are_there_once(body).map_err(wrong)?;
    match members.len() {
        0..=MEMBERS_MAX => Ok(members),
        _ => Err(wrong(format!("it has more than {MEMBERS_MAX} members"))),
    }
}

/// The same; what is said of one that is named twice, by its name.
pub(super) fn object(
    body: &[u8],
    twice: impl FnOnce(&str) -> Refusal,
) -> Outcome<Vec<(String, Input)>> {
    let members = members(body)?;
    let mut seen = HashSet::with_capacity(members.len());
    match members.iter().find(|(name, _)| !seen.insert(name.as_str())) {
        None => Ok(members),
        Some((name, _)) => Err(twice(name)),
    }
}

/// Whether a body is said to be JSON, which no page of another site can say unasked.
pub(super) fn said_to_be_json(r: &Request) -> Outcome<()> {
    let kind = r.header(HeaderId::ContentType).unwrap_or_default();
    let bare = kind.split(|b| *b == b';').next().unwrap_or_default();
    match weir_base::bytes::trim_ows(bare).eq_ignore_ascii_case(b"application/json") {
        true => Ok(()),
        false => {
            let text = "send it as \"Content-Type: application/json\"";
            Err(Refusal::new(415, "JsonError", text))
        }
    }
}

/// Why there is no body.
pub(super) enum NoBody {
    Refused(Refusal),
    Closed,
}

/// Reads the body.
pub(super) async fn read(r: &mut Request) -> Result<Vec<u8>, NoBody> {
    let mut all = Vec::new();
    loop {
        match body::next(r).await {
            Ok(Some(piece)) if all.len() + piece.len() <= BODY_MAX_BYTES => {
                all.extend_from_slice(&piece);
            }
            Ok(Some(_)) => {
                let text = format!("the body is longer than {BODY_MAX_BYTES} bytes");
                // What is still to come is thrown away.
                let _ = body::discard(r);
                return Err(NoBody::Refused(Refusal::new(413, "BodyTooLarge", text)));
            }
            Ok(None) => return Ok(all),
            Err(BodyError::Closed) => return Err(NoBody::Closed),
            Err(BodyError::Status(status)) => {
                let text = "reading request body failed";
                return Err(NoBody::Refused(Refusal::new(status, "BodyReadError", text)));
            }
        }
    }
}
