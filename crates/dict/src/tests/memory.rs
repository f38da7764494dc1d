//! Numbers of entries are those of OpenResty's own tests, where they have some.

use super::{get, has, keys, number, set, text, Random, NOW};
use crate::{Dict, IncrError, Mode, PushError, Refused, Stored, Value, ValueRef};

const FORCED: Result<Stored, Refused> = Ok(Stored { forcible: true });
const NO_MEMORY: Result<Stored, Refused> = Err(Refused::NoMemory { forcible: false });

fn long(bytes: usize) -> Vec<u8> {
    vec![b'a'; bytes]
}

fn set_long(dict: &Dict, key: &str, bytes: usize, mode: Mode) -> Result<Stored, Refused> {
    dict.set(key.as_bytes(), ValueRef::Text(&long(bytes)), 0, 0, mode, NOW)
}

/// Sets short entries until others are given up; answers which one was the first.
fn first_forced(dict: &Dict) -> usize {
    (1..10_000)
        .find(|i| set(dict, &format!("key{i:05}"), text(&format!("val{i:05}"))) == FORCED)
        .unwrap()
}

#[test]
fn fresh_ones() {
    let dict = Dict::named(16 << 10, 4);
    assert_eq!((dict.capacity(), dict.free_space()), (16384, 4096));
    let dict = Dict::named(100 << 10, 5);
    assert_eq!((dict.capacity(), dict.free_space()), (102400, 90112));
    for size in [0, 1, 700, 4096, 8191] {
        let dict = Dict::new(size);
        assert_eq!((dict.capacity(), dict.free_space()), (size, 0));
        set(&dict, "k", text("v")).unwrap_err();
    }
}

#[test]
fn small_entries_fill_pages() {
    let dict = Dict::named(16 << 10, 4);
    for i in 1..=63 {
        let (key, value) = (format!("key{i:05}"), format!("val{i:05}"));
        assert_eq!(set(&dict, &key, text(&value)), Ok(Stored { forcible: false }));
        assert_eq!(dict.free_space(), if i < 32 { 4096 } else { 0 });
    }
    assert_eq!(set(&dict, "key00064", text("val00064")), FORCED);
    assert_eq!(dict.free_space(), 0);
    assert!(!has(&dict, "key00001") && has(&dict, "key00002"));
    dict.flush_all();
    dict.flush_expired(0, NOW);
    assert_eq!(dict.free_space(), 4096);
    assert_eq!(first_forced(&Dict::named(100 << 10, 5)), 736);
}

#[test]
fn the_least_recently_used_goes() {
    let dict = Dict::new(16 << 10);
    let first = first_forced(&dict);
    // Of those left the second is the oldest until it is used.
    assert_eq!(keys(&dict, 1, NOW), ["key00002"]);
    get(&dict, "key00002", NOW).unwrap();
    assert_eq!(dict.incr(b"counter1", 1.0, Some(0.0), 0, NOW), Ok((1.0, true)));
    assert!(has(&dict, "key00002") && !has(&dict, "key00003"));
    assert_eq!(dict.set(b"safe", text("12345678"), 0, 0, Mode::SafeSet, NOW), NO_MEMORY);
    assert_eq!(dict.set(b"safe", text("12345678"), 0, 0, Mode::SafeAdd, NOW), NO_MEMORY);
    assert_eq!(dict.push(b"list", number(1.0), true, NOW), Err(PushError::NoMemory));
    assert_eq!(keys(&dict, 0, NOW).len(), first - 1);
    // Expired ones that are the oldest make room by themselves.
    dict.expire(b"key00004", 1, NOW);
    let later = dict.set(b"later", text("12345678"), 0, 0, Mode::Set, NOW + 1);
    assert_eq!(later, Ok(Stored { forcible: false }));
}

#[test]
fn safe_modes_end_where_it_is_full() {
    for mode in [Mode::SafeSet, Mode::SafeAdd] {
        let dict = Dict::new(100 << 10);
        let value = |i: usize| " hello".repeat(10) + &i.to_string();
        let set =
            |i: usize| dict.set(format!("key_{i}").as_bytes(), text(&value(i)), 0, 0, mode, NOW);
        assert_eq!((1..1000).find(|i| set(*i) == NO_MEMORY), Some(353));
        assert_eq!(get(&dict, "key_353", NOW), None);
        assert_eq!(get(&dict, "key_1", NOW), Some(Value::Text(value(1).into_bytes())));
    }
}

#[test]
fn too_large_ones() {
    let dict = Dict::new(50 << 10);
    assert_eq!(set_long(&dict, "foo", 100_000, Mode::Set), NO_MEMORY);
    for i in 0..40 {
        set(&dict, &i.to_string(), number(1.0)).unwrap();
    }
    let refused = set_long(&dict, "39", 100_000, Mode::Set);
    assert_eq!(refused, Err(Refused::NoMemory { forcible: true }));
    // 30 were given up, and the one under the key.
    assert_eq!(keys(&dict, 0, NOW).len(), 9);
    let tiny = Dict::new(4096);
    assert_eq!(tiny.incr(b"n", 1.0, Some(0.0), 0, NOW), Err(IncrError::NoMemory));
}

#[test]
fn runs_of_pages_join() {
    let dict = Dict::named(20 << 10, 4);
    for _ in 0..2 {
        set_long(&dict, "foo", 4000, Mode::Set).unwrap();
        set_long(&dict, "bar", 4001, Mode::Set).unwrap();
        assert_eq!(set_long(&dict, "baz", 8102, Mode::Set), FORCED);
        assert_eq!(keys(&dict, 0, NOW), ["baz"]);
    }
    let dict = Dict::named(25 << 10, 4);
    let set = |key, bytes, mode| set_long(&dict, key, bytes, mode).is_ok();
    for (key, bytes) in [("foo", 4000), ("bar", 4001), ("baz", 4002)] {
        assert!(set(key, bytes, Mode::Set));
    }
    // Two single pages are no run of two.
    dict.delete(b"foo", NOW);
    assert!(!set("blah", 8100, Mode::SafeSet));
    dict.delete(b"baz", NOW);
    assert!(!set("blah", 8100, Mode::SafeSet));
    dict.delete(b"bar", NOW);
    assert!(set("blah", 12010, Mode::SafeSet));
}

#[test]
fn small_ones_hold_pages() {
    let dict = Dict::named(20 << 10, 4);
    set_long(&dict, "bar", 4000, Mode::Set).unwrap();
    for i in 1..=50 {
        set(&dict, &format!("foo{i}"), text("aaaaa")).unwrap();
    }
    assert_eq!(set_long(&dict, "baz", 8100, Mode::SafeSet), NO_MEMORY);
    dict.delete(b"bar", NOW);
    assert_eq!(set_long(&dict, "baz", 8100, Mode::SafeSet), NO_MEMORY);
}

#[test]
fn lists_fill_pages() {
    let dict = Dict::named(100 << 10, 4);
    for i in 1..=2920 {
        assert_eq!(dict.push(b"foo", text("bar"), true, NOW), Ok(i));
    }
    assert_eq!(dict.push(b"foo", text("bar"), true, NOW), Err(PushError::NoMemory));
    // What is left of a list that has no first element is nothing.
    let refused = dict.push(b"new", ValueRef::Text(&long(100_000)), true, NOW);
    assert_eq!((refused, has(&dict, "new")), (Err(PushError::NoMemory), false));
    dict.delete(b"foo", NOW);
    assert_eq!(dict.free_space(), Dict::named(100 << 10, 4).free_space());
}

#[test]
fn lists_make_room_for_values() {
    let dict = Dict::new(900 << 10);
    let push_all = || {
        (0..100_000)
            .find(|i| dict.push(format!("{i:05}").as_bytes(), number(1.0), true, NOW).is_err())
            .unwrap()
    };
    let most = push_all();
    assert_eq!(dict.get_keys(0, NOW).len(), most);
    dict.flush_all();
    assert_eq!(push_all(), most);
    assert_eq!(set_long(&dict, "v", 4000, Mode::SafeSet), NO_MEMORY);
    // Lists and their elements are in pages of their own, so that one more is not enough.
    assert_eq!(set(&dict, "v", number(2.0)), FORCED);
    assert_eq!(get(&dict, "v", NOW), Some(Value::Number(2.0)));
}

/// Whatever is done, all memory comes back.
#[test]
fn nothing_leaks() {
    let mut random = Random(3);
    let dict = Dict::new(200 << 10);
    let fresh = dict.free_space();
    let mut now = NOW;
    for i in 0..30_000 {
        now += random.below(20) as u64;
        let key = format!("key{}", random.below(300)).into_bytes();
        let value = long(random.below(if i % 3 == 0 { 9000 } else { 150 }));
        let (value, exptime) = (ValueRef::Text(&value), random.below(3) as u64 * 500);
        let mode = [Mode::Set, Mode::SafeSet, Mode::Add, Mode::Replace][random.below(4)];
        match random.below(9) {
            0..=2 => drop(dict.set(&key, value, exptime, 0, mode, now)),
            3 => drop(dict.incr(&key, 1.0, Some(0.0), exptime, now)),
            4 | 5 => drop(dict.push(&key, value, i % 2 == 0, now)),
            6 => drop(dict.pop(&key, i % 2 == 0, now)),
            7 => drop(dict.expire(&key, exptime, now)),
            _ => drop(dict.get(&key, now)),
        }
        if random.below(2000) == 0 {
            dict.flush_all();
        }
    }
    assert!(dict.free_space() < fresh);
    assert!(dict.drop_oldest(usize::MAX) > 0);
    assert_eq!((dict.free_space(), dict.get_keys(0, now).len()), (fresh, 0));
}
