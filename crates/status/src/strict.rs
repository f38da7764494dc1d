//! JSON in which no object names a member twice: serde_json's values keep the last of them.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

/// Nothing in a text of JSON is named twice in its object.
///
/// # Errors
///
/// Something is, or it is no JSON, in words.
pub(crate) fn names_are_there_once(text: &[u8]) -> Result<(), String> {
    look(text, Look { counts: true })
}

/// The same of all that is below the outermost object, which has words of its own for it.
pub(crate) fn inner_names_are_there_once(text: &[u8]) -> Result<(), String> {
    look(text, Look { counts: false })
}

fn look(text: &[u8], all: Look) -> Result<(), String> {
    all.deserialize(&mut serde_json::Deserializer::from_slice(text)).map_err(|e| e.to_string())
}

/// Whether names of the object count here; further below they do.
#[derive(Clone, Copy)]
struct Look {
    counts: bool,
}

const BELOW: Look = Look { counts: true };

impl<'de> DeserializeSeed<'de> for Look {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(BELOW)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if self.counts {
                if seen.contains(&name) {
                    return Err(A::Error::custom(format!("\"{name}\" is there twice")));
                }
                seen.insert(name);
            }
            map.next_value_seed(BELOW)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_where_they_stand() {
        let text = r#"{"a":[1,-2,1.5,1e300,true,null,"x\u00e9",{"b":{"a":{}}}],"b":"a","c":18446744073709551616}"#;
        assert_eq!(names_are_there_once(text.as_bytes()), Ok(()));
        let outer = r#"{"a":1,"a":1}"#;
        assert_eq!(inner_names_are_there_once(outer.as_bytes()), Ok(()));
        assert!(names_are_there_once(outer.as_bytes()).is_err());
        for inner in [r#"{"x":{"a":1,"b":2,"\u0061":3}}"#, r#"[[{"a":1,"a":1}]]"#] {
            for look in [names_are_there_once, inner_names_are_there_once] {
                let e = look(inner.as_bytes()).unwrap_err();
                assert!(e.starts_with("\"a\" is there twice"), "{e}");
            }
        }
    }
}
