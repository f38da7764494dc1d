//! What was found out, over the end of a process: a line for each server that a check has asked, told to the process that
//! takes this one's place before that serves, so that it neither asks servers that are known to be unwell nor leaves those alone that
//! are known to be well. (With nginx and Tengine a new program begins at nothing.)

use super::{Known, Name, Standing, KNOWN};
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::PoisonError;

/// So many servers are told of.
const MAX: usize = 10_000;

/// What is known in the process, as a text.
pub fn read_all() -> String {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut out = String::new();
    for (name, standing) in &known.all {
        if let Some(s) = standing.upgrade().filter(|s| s.asked_ms.load(Ordering::Relaxed) > 0) {
            line(&mut out, name, &s);
        }
    }
    out
}

fn line(out: &mut String, (block, upstream, number, peer): &Name, s: &Standing) {
    let numbers = [
        u64::from(s.is_up()),
        s.passes().into(),
        s.fails().into(),
        s.asked_ms.load(Ordering::Relaxed),
        s.checks.get(),
        s.failed.get(),
        s.unhealthy.get(),
        u64::from(s.last_passed.load(Ordering::Relaxed)),
    ];
    // Writing into a String cannot fail.
    let _ = write!(out, "{block} {number} {} {}", hex(upstream), hex(peer));
    numbers.iter().for_each(|n| {
        let _ = write!(out, " {n}");
    });
    out.push('\n');
}

/// Takes what another process knew; it is there for the checks that the configuration has. Lines that are none are passed over.
pub fn know(text: &str) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, standing) in text.lines().filter_map(parse).take(MAX) {
        known.told.insert(name, standing);
    }
}

fn parse(line: &str) -> Option<(Name, Standing)> {
    let mut words = line.split(' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (block, check) = (number()?, number()?);
    let (upstream, peer) = (unhex(words.next()?)?, unhex(words.next()?)?);
    let n: Vec<u64> = words.filter_map(|n| n.parse().ok()).collect();
    let [up, passes, fails, asked_ms, checks, failed, unhealthy, last_passed] = n[..] else {
        return None;
    };
    let s = Standing::default();
    s.up.store(up != 0, Ordering::Relaxed);
    s.passes.store(u32::try_from(passes).ok()?, Ordering::Relaxed);
    s.fails.store(u32::try_from(fails).ok()?, Ordering::Relaxed);
    // The clock is the machine's, and the same for both.
    s.asked_ms.store(asked_ms, Ordering::Relaxed);
    s.checks.add(checks);
    s.failed.add(failed);
    s.unhealthy.add(unhealthy);
    s.last_passed.store(last_passed != 0, Ordering::Relaxed);
    Some(((u32::try_from(block).ok()?, upstream, u32::try_from(check).ok()?, peer), s))
}

impl Known {
    /// What another process knew, once.
    pub(super) fn told(&mut self, name: &Name) -> Option<Standing> {
        self.told.remove(name)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("x"), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [a, b] => Some((digit(*a)? * 16 + digit(*b)?) as u8),
        _ => None,
    };
    text.strip_prefix('x')?.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_round() {
        let name: Name = (8, b"u x".to_vec(), 2, b"127.0.0.1:80".to_vec());
        let s = Standing::default();
        s.up.store(true, Ordering::Relaxed);
        s.passes.store(3, Ordering::Relaxed);
        s.asked_ms.store(77, Ordering::Relaxed);
        s.checks.add(5);
        let (mut text, mut again) = (String::new(), String::new());
        line(&mut text, &name, &s);
        let (known, standing) = parse(text.trim_end()).unwrap();
        assert_eq!(known, name);
        line(&mut again, &known, &standing);
        assert_eq!(again, text);
        assert!(parse("").is_none() && parse("1 2 x x 1").is_none() && parse("1 2 3 4").is_none());
    }
}
