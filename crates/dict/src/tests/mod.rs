mod memory;
mod snapshots;
mod threads;
mod values;

use crate::{Dict, Mode, Refused, Stored, Value, ValueRef};

const NOW: u64 = 1_700_000_000_000;

fn text(text: &str) -> ValueRef<'_> {
    ValueRef::Text(text.as_bytes())
}

fn number(n: f64) -> ValueRef<'static> {
    ValueRef::Number(n)
}

fn set(dict: &Dict, key: &str, value: ValueRef<'_>) -> Result<Stored, Refused> {
    dict.set(key.as_bytes(), value, 0, 0, Mode::Set, NOW)
}

fn set_for(dict: &Dict, key: &str, value: ValueRef<'_>, exptime_ms: u64) {
    dict.set(key.as_bytes(), value, exptime_ms, 0, Mode::Set, NOW).unwrap();
}

fn get(dict: &Dict, key: &str, now_ms: u64) -> Option<Value> {
    dict.get(key.as_bytes(), now_ms).unwrap().map(|(value, _)| value)
}

fn has(dict: &Dict, key: &str) -> bool {
    dict.ttl(key.as_bytes(), NOW).is_some()
}

fn keys(dict: &Dict, max: usize, now_ms: u64) -> Vec<String> {
    let keys = dict.get_keys(max, now_ms).into_iter();
    keys.map(|key| String::from_utf8(key).unwrap()).collect()
}

/// The same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}
