//! Seeded fuzz drivers: every parser of bytes from outside, for a time that is given.
//!
//!     weir-fuzz [SECONDS]
//!
//! Rounds are numbered, and a round's number is its seed: `WEIR_FUZZ_SEED` starts there.

#![allow(clippy::print_stdout)]

mod random;
mod targets;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::thread::available_parallelism;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use random::Random;
use targets::{Target, TARGETS};

/// The clock is read once in so many rounds.
const ROUNDS_AT_ONCE: u64 = 64;

fn main() -> ExitCode {
    let arg = std::env::args().nth(1).unwrap_or_else(|| "5".to_owned());
    let Ok(seconds) = arg.parse::<u64>() else {
        eprintln!("weir-fuzz [SECONDS]: not a number: {arg}");
        return ExitCode::FAILURE;
    };
    let first = first_round();
    println!("from round {first} (WEIR_FUZZ_SEED={first})");
    let only = std::env::var("WEIR_FUZZ_ONLY").ok();
    let chosen = TARGETS.iter().filter(|t| only.as_deref().is_none_or(|name| name == t.name));
    let (waiting, all_good) = (Mutex::new(chosen), AtomicBool::new(true));
    let next = || waiting.lock().ok()?.next();
    // One target takes one processor.
    std::thread::scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(target) = next() {
                    let end = Instant::now() + Duration::from_secs(seconds);
                    match run(target, first, |_| Instant::now() < end) {
                        Ok(rounds) => println!("{}, {rounds} rounds: ok", target.name),
                        Err(failure) => {
                            println!("{failure}");
                            all_good.store(false, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    match all_good.into_inner() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn first_round() -> u64 {
    let given = std::env::var("WEIR_FUZZ_SEED").ok().and_then(|s| s.parse().ok());
    given.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(1, |t| t.as_micros() as u64)
    })
}

/// Rounds until `more` says no; how many there were, or the first that failed.
fn run(target: &Target, first: u64, more: impl Fn(u64) -> bool) -> Result<u64, String> {
    let mut done = 0;
    while done == 0 || more(done) {
        for _ in 0..ROUNDS_AT_ONCE {
            round(target, first.wrapping_add(done))?;
            done += 1;
        }
    }
    Ok(done)
}

fn round(target: &Target, number: u64) -> Result<(), String> {
    let mut random = Random::new(number);
    let input = random.mutate(target.seeds, target.pieces);
    catch_unwind(AssertUnwindSafe(|| (target.check)(&input, &mut random))).map_err(|_| {
        format!(
            "{}: FAILED; WEIR_FUZZ_SEED={number} WEIR_FUZZ_ONLY={} repeats it; the input:\n\"{}\"",
            target.name,
            target.name,
            input.escape_ascii()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: u64 = 2000;

    #[test]
    fn a_few_rounds_of_every_target() {
        for target in TARGETS {
            run(target, 1, |done| done < ROUNDS).unwrap();
        }
    }

    #[test]
    fn a_failure_names_its_round() {
        let target = Target {
            name: "fails",
            seeds: &[b"x"],
            pieces: &[b"y"],
            check: |_, random| assert!(random.below(10) > 0),
        };
        let failure = run(&target, 1, |_| true).unwrap_err();
        let number = failure.split("WEIR_FUZZ_SEED=").nth(1).unwrap().split(' ').next().unwrap();
        assert!(round(&target, number.parse().unwrap()).is_err());
    }
}
