//! Fields of an event by their names as ECS writes them, with dots: nested or not.

use serde_json::Value;

/// An event's JSON; what is none is `None`.
pub fn parse(json: &[u8]) -> Option<Value> {
    serde_json::from_slice(json).ok()
}

/// The field of that name, be it `{"a":{"b":1}}` or `{"a.b":1}`.
pub fn find<'a>(event: &'a Value, name: &str) -> Option<&'a Value> {
    let object = event.as_object()?;
    if let Some(found) = object.get(name) {
        return Some(found);
    }
    let dots = name.match_indices('.').map(|(at, _)| at);
    dots.rev().find_map(|at| find(object.get(&name[..at])?, &name[at + 1..]))
}

/// A plain value as text, without quotes; none of an object or `null`.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is) => Some(is.to_string()),
        Value::Array(values) => values.first().and_then(text),
        Value::Null | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_or_with_dots() {
        let event = parse(br#"{"a":{"b":{"c":1},"d.e":"x"},"f.g":[true],"h":null}"#).unwrap();
        let text_of = |name| find(&event, name).and_then(text);
        assert_eq!(text_of("a.b.c").as_deref(), Some("1"));
        assert_eq!(text_of("a.d.e").as_deref(), Some("x"));
        assert_eq!(text_of("f.g").as_deref(), Some("true"));
        assert_eq!(text_of("a.b"), None);
        assert_eq!(text_of("h"), None);
        assert_eq!(text_of("a.x.c"), None);
        assert_eq!(parse(b"{"), None);
    }
}
