//! What a test run counts.

use std::ops::AddAssign;

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Tally {
    pub const PASSED: Tally = Tally { passed: 1, failed: 0, skipped: 0 };
    pub const FAILED: Tally = Tally { passed: 0, failed: 1, skipped: 0 };
    pub const SKIPPED: Tally = Tally { passed: 0, failed: 0, skipped: 1 };

    pub fn summary(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The counts of a line of cargo's: `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
pub fn result_line(line: &str) -> Option<Tally> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, counts) = rest.split_once(". ")?;
    let mut tally = Tally::default();
    for part in counts.split(';') {
        let Some((number, what)) = part.trim().split_once(' ') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match what {
            "passed" => tally.passed += number,
            "failed" => tally.failed += number,
            "ignored" => tally.skipped += number,
            _ => {}
        }
    }
    Some(tally)
}

/// Whether a test says that it was skipped (`weir_tests::skip`). With one test thread, cargo's line
/// about the test has begun before.
pub fn is_skip_line(line: &str) -> bool {
    line.starts_with("skipped: ") || line.contains(" ... skipped: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines() {
        let line = "test result: FAILED. 12 passed; 2 failed; 3 ignored; 0 measured; 9 filtered \
                    out; finished in 0.50s";
        assert_eq!(result_line(line), Some(Tally { passed: 12, failed: 2, skipped: 3 }));
        assert_eq!(result_line("test a ... ok"), None);
        assert!(is_skip_line("skipped: a: no curl") && is_skip_line("test a ... skipped: a: no"));
        assert!(!is_skip_line("test skipped ... ok"));
        assert_eq!(Tally::PASSED.summary(), "1 passed, 0 failed, 0 skipped");
    }
}
