//! Since when is counted: by this process, or by the first of those that have handed their figures on to it.

use super::kept::{self, Fields, Keeps, Known};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use weir_runtime::clock;

struct Began(AtomicU64);

impl Began {
    fn each(&self, fields: &mut Fields<'_>) {
        // Who is told a time goes back to it; what has come since a text is none.
        let back = &mut |ms| {
            if ms > 0 {
                self.0.fetch_min(ms, Ordering::Relaxed);
            }
        };
        fields.number("ms", self.0.load(Ordering::Relaxed), back);
    }
}

impl Keeps for Began {
    fn read(&self, out: &mut String) {
        self.each(&mut Fields::Read(out));
    }

    fn add(&self, known: &Known) {
        self.each(&mut Fields::Add(known));
    }
}

/// In milliseconds since 1970. To be asked first when the process begins to serve.
pub fn began_ms() -> u64 {
    static BEGAN: OnceLock<Arc<Began>> = OnceLock::new();
    let now = || Began(AtomicU64::new(process_began_ms()));
    BEGAN.get_or_init(|| kept::named("counting", b"began", now)).0.load(Ordering::Relaxed)
}

/// The same of this process alone, for what it is not told by those before it.
pub fn process_began_ms() -> u64 {
    static BEGAN: OnceLock<u64> = OnceLock::new();
    *BEGAN.get_or_init(|| clock::wall_us() / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_began_first_counts() {
        let began = Began(AtomicU64::new(50));
        let mut text = String::new();
        began.read(&mut text);
        assert!(text.contains("ms 0 50"), "{text}");
        for (told, expected) in [(70, 50), (0, 50), (30, 30)] {
            began.each(&mut Fields::Add(&Known::of("ms", told)));
            assert_eq!(began.0.load(Ordering::Relaxed), expected);
        }
    }
}
