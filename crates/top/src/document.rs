//! A server's answer: all its figures at one moment.

pub use serde_json::Value;

/// One look at a server.
#[derive(Clone, Debug)]
pub struct Look {
    /// Microseconds of a clock that never goes back: the server's own, or else of who has asked.
    pub at_us: u64,
    pub tree: Value,
}

impl Look {
    /// Reads a document; `at_us` is when it came.
    pub fn read(text: &[u8], at_us: u64) -> Result<Look, String> {
        if weir_base::json::is_too_much(text) {
            return Err("the answer is more than the figures of a server".into());
        }
        let tree: Value =
            serde_json::from_slice(text).map_err(|e| format!("the answer is no figures ({e})"))?;
        if !tree.is_object() {
            return Err("the answer is no figures".into());
        }
        let at_us = number(&tree, "now_us").unwrap_or(at_us);
        Ok(Look { at_us, tree })
    }
}

/// What stands at a path of names parted by `/`; the whole for an empty one.
pub fn at<'a>(tree: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').filter(|name| !name.is_empty()).try_fold(tree, |at, name| at.get(name))
}

pub fn number(tree: &Value, path: &str) -> Option<u64> {
    at(tree, path)?.as_u64()
}

/// A text, or what else stands there as one.
pub fn text(tree: &Value, path: &str) -> Option<String> {
    match at(tree, path)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(n) => Some(n.to_string()),
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.into()),
        _ => None,
    }
}
