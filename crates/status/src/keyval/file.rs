//! A zone's file: an object of JSON, whose values are texts, or `{"value": …, "expire": …}` with the date (milliseconds since
//! 1970) until when a pair is there.

use super::store::{Entry, Fault, Kind, Store};
use crate::strict::names_are_there_once;
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

/// The date of a pair; what is before 1970 is over as well.
fn date(said: &Value) -> Option<u64> {
    said.as_u64().or_else(|| said.as_i64().map(|_| 0))
}

/// Puts what a file has into an empty store; what has had its time is left out. A pair without a date is there for as long as the
/// zone says, as one that the API puts.
pub(super) fn fill(store: &mut Store, text: &[u8], timeout_ms: Option<u64>) -> Result<(), String> {
    let value: Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    names_are_there_once(text)?;
    let Value::Object(all) = value else { return Err("it is to be an object".to_string()) };
    let (now_ms, wall_ms) = (clock::mono_ms(), wall_ms());
    for (key, value) in all {
        let (text, until) = match &value {
            Value::String(text) => (text, timeout_ms.map(|ms| wall_ms.saturating_add(ms))),
            Value::Object(pair) => match (pair.get("value"), pair.get("expire")) {
                (Some(Value::String(text)), Some(until)) => {
                    let date = date(until).ok_or_else(|| {
                        format!("\"expire\" of \"{key}\" is no date (milliseconds since 1970)")
                    })?;
                    (text, Some(date))
                }
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
    if fill(&mut store, text, None).is_err() {
        return false;
    }
    let now_ms = clock::mono_ms();
    let mut again = Store::new(Kind::Text, BYTES);
    assert_eq!(fill(&mut again, &self::text(&store), None), Ok(()));
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
        assert_eq!(fill(&mut again, &text(&store), None), Ok(()));
        let now = clock::mono_ms();
        assert_eq!(again.find("a\"\\\n\u{e9}".as_bytes(), now), Some(&b"v\"\n"[..]));
        assert!(again.find(b"b", now).is_some() && again.find(b"b", now + 70_000).is_none());
        assert!(again.find(b"c", now + 70_000).is_some());
        let twice = "{\"d\":\"1\",\"d\":\"2\"}";
        let inner = "{\"d\":{\"value\":\"x\",\"expire\":1,\"expire\":99999999999999}}";
        for wrong in ["", "[]", twice, inner, "{\"a\":1}", "{\"a\":{\"value\":1}}", "{\"\":\"x\"}"]
        {
            assert!(fill(&mut again, wrong.as_bytes(), None).is_err(), "{wrong}");
        }
    }

    /// How long a pair of such a file is there, in seconds: `None` for ever.
    fn lasts(date: &str, timeout_ms: Option<u64>) -> Result<Option<Option<u64>>, String> {
        let mut store = Store::new(Kind::Text, 1 << 20);
        let pair = match date {
            "" => "{\"k\":\"v\"}".to_string(),
            date => format!("{{\"k\":{{\"value\":\"v\",\"expire\":{date}}}}}"),
        };
        fill(&mut store, pair.as_bytes(), timeout_ms)?;
        let now_ms = clock::mono_ms();
        let entry = store.iter(now_ms).next().map(|(_, entry)| entry.until_ms);
        Ok(entry.map(|until| until.map(|until| (until - now_ms).div_ceil(1000))))
    }

    #[test]
    fn dates_are_dates() {
        let in_a_minute = (wall_ms() + 60_000).to_string();
        assert_eq!(lasts(&in_a_minute, None), Ok(Some(Some(60))));
        assert_eq!(lasts(&in_a_minute, Some(1000)), Ok(Some(Some(60))), "a date counts");
        for over in ["0", "1", "-1", "-9223372036854775808"] {
            assert_eq!(lasts(over, None), Ok(None), "{over}");
        }
        let last = u64::MAX.to_string();
        assert!(lasts(&last, None).is_ok_and(|there| there.is_some_and(|until| until.is_some())));
        for wrong in
            ["null", "\"soon\"", "1e300", "1.5", "18446744073709551616", "true", "{}", "[1]"]
        {
            assert!(lasts(wrong, None).is_err_and(|e| e.contains("is no date")), "{wrong}");
        }
        // Without one the zone's time counts.
        assert_eq!((lasts("", None), lasts("", Some(5000))), (Ok(Some(None)), Ok(Some(Some(5)))));
        assert!(lasts("", Some(u64::MAX)).is_ok_and(|there| there.is_some()));
    }
}
