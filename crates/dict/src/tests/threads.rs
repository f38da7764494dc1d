use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{get, number, set, set_for, text, NOW};
use crate::{Dict, Value};

#[test]
fn four_threads_count() {
    let dict = Dict::new(1 << 20);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for i in 0..20_000u32 {
                    dict.incr(b"all", 1.0, Some(0.0), 0, NOW).unwrap();
                    dict.incr(&i.to_le_bytes()[..1], 1.0, Some(0.0), 0, NOW).unwrap();
                }
            });
        }
    });
    assert_eq!(get(&dict, "all", NOW), Some(Value::Number(80_000.0)));
    assert_eq!(dict.get(&[31], NOW), Ok(Some((Value::Number(316.0), 0))));
}

/// What goes through all entries comes to an end and misses none that stays, whatever others use meanwhile.
#[test]
fn walks_among_others() {
    let dict = Dict::new(8 << 20);
    for i in 0..10_000 {
        set(&dict, &format!("stays{i}"), number(1.0)).unwrap();
        set_for(&dict, &format!("expires{i}"), number(1.0), 10);
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..3 {
            let (dict, done) = (&dict, &done);
            scope.spawn(move || {
                let mut i = thread;
                while !done.load(Ordering::Relaxed) {
                    i = (i + 7) % 500;
                    get(dict, &format!("stays{i}"), NOW).unwrap();
                    set(dict, &format!("new{i}"), text("new")).unwrap();
                    dict.delete(format!("new{i}").as_bytes(), NOW);
                }
            });
        }
        for _ in 0..5 {
            let keys = dict.get_keys(0, NOW + 10);
            let distinct: HashSet<&Vec<u8>> = keys.iter().collect();
            assert_eq!(distinct.len(), keys.len());
            let stays = distinct.iter().filter(|key| key.starts_with(b"stays")).count();
            assert!(stays >= 9_500, "{stays}");
        }
        let other = Dict::new(8 << 20);
        assert!(other.restore(&dict.snapshot(NOW + 10), NOW).unwrap() >= 9_500);
        dict.flush_expired(0, NOW + 10);
        done.store(true, Ordering::Relaxed);
    });
    let left = dict.get_keys(0, NOW);
    assert_eq!(left.iter().filter(|key| key.starts_with(b"expires")).count(), 0);
    assert_eq!(left.iter().filter(|key| key.starts_with(b"stays")).count(), 10_000);
}

/// A reader that panics leaves a dictionary that works.
#[test]
fn panics_do_no_harm() {
    let dict = Dict::new(1 << 20);
    set(&dict, "k", number(1.0)).unwrap();
    let panicked = thread::scope(|scope| {
        scope.spawn(|| dict.get_with(b"k", NOW, |_, _| panic!("on purpose"))).join().is_err()
    });
    assert!(panicked);
    assert_eq!(get(&dict, "k", NOW), Some(Value::Number(1.0)));
}
