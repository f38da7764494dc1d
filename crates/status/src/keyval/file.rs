//! A zone's file: an object of JSON, whose values are texts, or `{"value": …, "expire": …}` with the date (milliseconds since
//! 1970) until when a pair is there.

use super::store::{Entry, Fault, Kind, Store};
use serde_json::Value;
use weir_core::figures::write_text;
use weir_runtime::clock;

/// The longest file that is read.
pub(super) const MAX_BYTES: u64 = 256 << 20;

fn wall_ms() -> u64 {
    let (secs, ms) = clock::wall();
    u64::try_from(secs).unwrap_or(0) * 1000 + u64::from(ms)
}

/// What a store has, to be written.
pub(super) fn text(store: &Store) -> Vec<u8> {
    let (now_ms, wall_ms) = (clock::mono_ms(), wall_ms());
    let mut out = b"{".to_vec();
    for (n, (key, entry)) in store.iter(now_ms).enumerate() {
        out.extend_from_slice(if n > 0 { b",\n" } else { b"\n" });
        write_text(&String::from_utf8_lossy(key), &mut out);
        out.push(b':');
        let value = String::from_utf8_lossy(&entry.value);
        match entry.until_ms {
            None => write_text(&value, &mut out),
            Some(until) => {
                out.extend_from_slice(b"{\"value\":");
                write_text(&value, &mut out);
                let until = wall_ms.saturating_add(until.saturating_sub(now_ms));
                out.extend_from_slice(format!(",\"expire\":{until}}}").as_bytes());
            }
        }
    }
    out.extend_from_slice(b"\n}\n");
    out
}

/// Puts what a file has into an empty store; what has had its time is left out.
pub(super) fn fill(store: &mut Store, text: &[u8]) -> Result<(), String> {
    let value: Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let Value::Object(all) = value else { return Err("it is to be an object".to_string()) };
    let (now_ms, wall_ms) = (clock::mono_ms(), wall_ms());
    for (key, value) in all {
        let (text, until) = match &value {
            Value::String(text) => (text, None),
            Value::Object(pair) => match (pair.get("value"), pair.get("expire")) {
                (Some(Value::String(text)), Some(until)) => (text, until.as_u64()),
                _ => return Err(format!("\"{key}\" has no \"value\" and \"expire\"")),
            },
            _ => return Err(format!("\"{key}\" has no text")),
        };
        if until.is_some_and(|until| until <= wall_ms) {
            continue;
        }
        let until_ms = until.map(|until| now_ms.saturating_add(until - wall_ms));
        let entry = Entry { value: text.clone().into_bytes(), until_ms };
        match store.add(key.as_bytes(), entry, now_ms) {
            Ok(()) => {}
            Err(Fault::Full) => return Err("the zone is too small for it".to_string()),
            Err(_) => return Err(format!("\"{key}\" is no key of this zone")),
        }
    }
    Ok(())
}

/// Reads a file; what it has is written and read again, and is the same then. Whether it is one.
///
/// # Panics
///
/// What was written is not read.
pub fn file_goes_round(text: &[u8]) -> bool {
    const BYTES: u64 = 1 << 20;
    let mut store = Store::new(Kind::Text, BYTES);
    if fill(&mut store, text).is_err() {
        return false;
    }
    let now_ms = clock::mono_ms();
    let mut again = Store::new(Kind::Text, BYTES);
    assert_eq!(fill(&mut again, &self::text(&store)), Ok(()));
    for (key, entry) in store.iter(now_ms) {
        // One whose time runs out meanwhile.
        let late = entry.until_ms.is_some_and(|until| until < now_ms.saturating_add(10_000));
        assert!(late || again.find(key, now_ms) == Some(&entry.value[..]));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut store = Store::new(Kind::Text, 1 << 20);
        let until_ms = Some(clock::mono_ms() + 60_000);
        for (key, until_ms) in [("a\"\\\n\u{e9}", None), ("b", until_ms), ("c", Some(u64::MAX))] {
            let entry = Entry { value: b"v\"\n".to_vec(), until_ms };
            assert_eq!(store.add(key.as_bytes(), entry, 0), Ok(()));
        }
        let mut again = Store::new(Kind::Text, 1 << 20);
        assert_eq!(fill(&mut again, &text(&store)), Ok(()));
        let now = clock::mono_ms();
        assert_eq!(again.find("a\"\\\n\u{e9}".as_bytes(), now), Some(&b"v\"\n"[..]));
        assert!(again.find(b"b", now).is_some() && again.find(b"b", now + 70_000).is_none());
        assert!(again.find(b"c", now + 70_000).is_some());
        for wrong in ["", "[]", "{\"a\":1}", "{\"a\":{\"value\":1}}", "{\"\":\"x\"}"] {
            assert!(fill(&mut again, wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
