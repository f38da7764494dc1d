//! Numbers as people read them, in few columns.

const STEPS: [&str; 6] = ["", "k", "M", "G", "T", "P"];

fn scaled(mut n: f64, step: f64, units: &[&str]) -> String {
    let mut at = 0;
    // What is shown as 1000 is one of the next.
    while n >= step - 0.5 && at + 1 < units.len() {
        n /= step;
        at += 1;
    }
    match at {
        0 => format!("{n:.0}"),
        _ if n < 9.95 => format!("{n:.1}{}", units[at]),
        _ => format!("{n:.0}{}", units[at]),
    }
}

pub fn count(n: f64) -> String {
    scaled(n, 1000.0, &STEPS)
}

/// Few have a fraction.
pub fn rate(n: f64) -> String {
    match n {
        0.0 => "0".into(),
        n if n < 9.95 => format!("{n:.1}"),
        n => count(n),
    }
}

pub fn bytes(n: f64) -> String {
    scaled(n, 1024.0, &["", "K", "M", "G", "T", "P"])
}

pub fn percent(n: f64) -> String {
    match n {
        n if n > 0.0 && n < 9.95 => format!("{n:.1}%"),
        n => format!("{n:.0}%"),
    }
}

/// Of microseconds.
pub fn time(us: u64) -> String {
    let ms = us as f64 / 1000.0;
    match us {
        0..1_000 => format!("{us}us"),
        1_000..9_950 => format!("{ms:.1}ms"),
        9_950..999_500 => format!("{ms:.0}ms"),
        999_500..99_500_000 => format!("{:.1}s", ms / 1000.0),
        _ => format!("{:.0}s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (n, expected) in [(0.0, "0"), (999.0, "999"), (999.6, "1.0k"), (12_345.0, "12k")] {
            assert_eq!(count(n), expected);
        }
        assert_eq!([rate(0.25), rate(9.99), rate(1500.0)], ["0.2", "10", "1.5k"]);
        assert_eq!([bytes(1023.0), bytes(1024.0), bytes(3e9)], ["1023", "1.0K", "2.8G"]);
        assert_eq!([percent(0.0), percent(0.5), percent(100.0)], ["0%", "0.5%", "100%"]);
        let us = [7, 1500, 42_000, 999_700, 100_000_000];
        assert_eq!(us.map(time), ["7us", "1.5ms", "42ms", "1.0s", "100s"]);
    }
}
