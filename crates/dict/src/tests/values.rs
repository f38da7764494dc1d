use super::{get, has, keys, number, set, set_for, text, NOW};
use crate::{
    Dict, IncrError, IsList, Mode, NotList, PushError, Refused, Stored, Value, ValueRef,
    MAX_KEY_BYTES,
};

const OK: Result<Stored, Refused> = Ok(Stored { forcible: false });

#[test]
fn values_and_flags() {
    let dict = Dict::new(1 << 20);
    assert_eq!(dict.set(b"t", text("hello"), 0, 7, Mode::Set, NOW), OK);
    assert_eq!(dict.set(b"b", ValueRef::Boolean(true), 0, u32::MAX, Mode::Set, NOW), OK);
    assert_eq!(set(&dict, "n", number(-0.5)), OK);
    assert_eq!(set(&dict, "", text("")), OK);
    assert_eq!(dict.get(b"t", NOW), Ok(Some((Value::Text(b"hello".to_vec()), 7))));
    assert_eq!(dict.get(b"b", NOW), Ok(Some((Value::Boolean(true), u32::MAX))));
    assert_eq!(dict.get(b"n", NOW), Ok(Some((Value::Number(-0.5), 0))));
    assert_eq!(dict.get(b"", NOW), Ok(Some((Value::Text(Vec::new()), 0))));
    assert_eq!(dict.get(b"none", NOW), Ok(None));
    let len = dict.get_with(b"t", NOW, |value, flags| match value {
        ValueRef::Text(text) => (text.len(), flags),
        _ => (0, 0),
    });
    assert_eq!(len, Ok(Some((5, 7))));
}

/// Reading a clock costs as much as the rest of an operation.
#[test]
fn nobody_asks_for_the_time_before_something_has_a_time_to_live() {
    let never: fn() -> u64 = || panic!("no need to know");
    let later: fn() -> u64 = || NOW + 10;
    let dict = Dict::new(1 << 20);
    let read = |now| dict.get_with(b"k", now, |value, _| Value::from(value));
    assert_eq!(dict.set(b"k", number(1.0), 0, 0, Mode::Set, never), OK);
    assert_eq!(dict.incr(b"k", 1.0, None, 0, never), Ok((2.0, false)));
    assert_eq!(read(never), Ok(Some(Value::Number(2.0))));
    dict.flush_all();
    assert_eq!(read(never), Ok(None));
    assert_eq!(dict.set(b"k", number(3.0), 10, 0, Mode::Set, NOW), OK);
    assert_eq!(read(later), Ok(None));
}

/// The memory of one as long is used again, whatever its kind.
#[test]
fn values_change_kind() {
    let dict = Dict::new(1 << 20);
    for value in [number(1.0), text("eightlen"), number(2.0), text("8 bytes!"), text("more than 8")]
    {
        set(&dict, "k", value).unwrap();
        assert_eq!(get(&dict, "k", NOW), Some(value.into()));
    }
    for value in [text("x"), ValueRef::Boolean(false), text("y"), ValueRef::Boolean(true)] {
        set(&dict, "k", value).unwrap();
        assert_eq!(get(&dict, "k", NOW), Some(value.into()));
    }
}

#[test]
fn modes() {
    let dict = Dict::new(1 << 20);
    let with = |mode, value| dict.set(b"k", text(value), 100, 0, mode, NOW);
    assert_eq!(with(Mode::Replace, "a"), Err(Refused::NotFound));
    assert_eq!(with(Mode::Add, "b"), OK);
    assert_eq!(with(Mode::Add, "c"), Err(Refused::Exists));
    assert_eq!(with(Mode::SafeAdd, "c"), Err(Refused::Exists));
    assert_eq!(with(Mode::Replace, "d"), OK);
    assert_eq!(with(Mode::SafeSet, "e"), OK);
    assert_eq!(get(&dict, "k", NOW), Some(Value::Text(b"e".to_vec())));
    let later = |mode| dict.set(b"k", text("f"), 0, 0, mode, NOW + 100);
    assert_eq!(later(Mode::Replace), Err(Refused::NotFound));
    assert_eq!(later(Mode::Add), OK);
    dict.delete(b"k", NOW);
    dict.delete(b"k", NOW);
    assert_eq!(get(&dict, "k", NOW), None);
    assert_eq!(Refused::NoMemory { forcible: true }.to_string(), "no memory");
}

#[test]
fn long_keys() {
    let dict = Dict::new(1 << 20);
    let (long, longer) = (vec![b'k'; MAX_KEY_BYTES], vec![b'k'; MAX_KEY_BYTES + 1]);
    assert_eq!(dict.set(&long, number(1.0), 0, 0, Mode::Set, NOW), OK);
    assert_eq!(dict.get(&long, NOW), Ok(Some((Value::Number(1.0), 0))));
    let refused = dict.set(&longer, number(1.0), 0, 0, Mode::Set, NOW);
    assert_eq!(refused, Err(Refused::KeyTooLong));
    assert_eq!(dict.incr(&longer, 1.0, Some(0.0), 0, NOW), Err(IncrError::KeyTooLong));
    assert_eq!(dict.push(&longer, number(1.0), true, NOW), Err(PushError::KeyTooLong));
    assert_eq!(dict.get(&longer, NOW), Ok(None));
}

#[test]
fn expiry() {
    let dict = Dict::new(1 << 20);
    set(&dict, "oldest", number(0.0)).unwrap();
    set_for(&dict, "k", number(1.0), 100);
    assert_eq!(dict.ttl(b"k", NOW + 40), Some(60));
    assert_eq!((dict.ttl(b"oldest", NOW), dict.ttl(b"none", NOW)), (Some(0), None));
    assert_eq!(get(&dict, "k", NOW + 99), Some(Value::Number(1.0)));
    assert_eq!(get(&dict, "k", NOW + 100), None);
    assert_eq!(dict.ttl(b"k", NOW + 110), Some(-10));
    assert_eq!(dict.get_stale(b"k", NOW + 100), Ok(Some((Value::Number(1.0), 0, true))));
    assert_eq!(dict.get_stale(b"k", NOW + 99), Ok(Some((Value::Number(1.0), 0, false))));
    assert_eq!(dict.get_stale(b"none", NOW), Ok(None));
    // It is still there and may live again.
    assert!(dict.expire(b"k", 50, NOW + 200));
    assert_eq!(dict.ttl(b"k", NOW + 200), Some(50));
    assert!(dict.expire(b"k", 0, NOW + 200));
    assert_eq!(dict.ttl(b"k", NOW + 200), Some(0));
    assert!(!dict.expire(b"none", 0, NOW));
    set_for(&dict, "forever", number(1.0), u64::MAX);
    assert!(get(&dict, "forever", u64::MAX - 1).is_some());
}

/// Two at a time, from the oldest on and no further than the first that lives.
#[test]
fn expired_ones_go_when_others_are_used() {
    let dict = Dict::new(1 << 20);
    for key in ["a", "b", "c", "d"] {
        set_for(&dict, key, number(1.0), 10);
    }
    set(&dict, "e", number(1.0)).unwrap();
    set_for(&dict, "f", number(1.0), 10);
    assert_eq!(dict.get(b"none", NOW + 10), Ok(None));
    assert!(!has(&dict, "a") && !has(&dict, "b") && has(&dict, "c"));
    for _ in 0..5 {
        assert_eq!(dict.get(b"none", NOW + 10), Ok(None));
    }
    assert!(!has(&dict, "d") && has(&dict, "e") && has(&dict, "f"));
}

#[test]
fn numbers_are_counted() {
    let dict = Dict::new(1 << 20);
    assert_eq!(dict.incr(b"n", 1.0, None, 0, NOW), Err(IncrError::NotFound));
    assert_eq!(dict.incr(b"n", 1.0, Some(41.0), 100, NOW), Ok((42.0, false)));
    assert_eq!(dict.incr(b"n", 0.5, Some(7.0), 0, NOW), Ok((42.5, false)));
    assert_eq!(dict.ttl(b"n", NOW), Some(100));
    assert_eq!(dict.incr(b"n", 1.0, None, 0, NOW + 100), Err(IncrError::NotFound));
    set(&dict, "oldest", number(0.0)).unwrap();
    set_for(&dict, "t", text("long text"), 10);
    assert_eq!(dict.incr(b"t", 1.0, Some(0.0), 0, NOW), Err(IncrError::NotNumber));
    assert_eq!(dict.incr(b"t", 1.0, Some(0.0), 0, NOW + 10), Ok((1.0, false)));
    dict.set(b"8", text("eightlen"), 10, 9, Mode::Set, NOW).unwrap();
    assert_eq!(dict.incr(b"8", 1.0, Some(1.0), 0, NOW + 10), Ok((2.0, false)));
    assert_eq!(dict.get(b"8", NOW), Ok(Some((Value::Number(2.0), 0))));
}

#[test]
fn flushing() {
    let dict = Dict::new(1 << 20);
    for i in 0..10 {
        set(&dict, &i.to_string(), number(1.0)).unwrap();
    }
    dict.flush_all();
    assert_eq!(keys(&dict, 0, NOW), Vec::<String>::new());
    // As there: the oldest goes at once, and two more.
    assert!(!has(&dict, "2") && has(&dict, "3"));
    assert_eq!(dict.ttl(b"3", NOW), Some(1 - NOW as i64));
    assert_eq!(dict.get_stale(b"4", NOW), Ok(Some((Value::Number(1.0), 0, true))));
    assert!(dict.expire(b"9", 0, NOW));
    set(&dict, "8", number(3.0)).unwrap();
    assert_eq!(keys(&dict, 0, NOW), ["9", "8"]);
    let left = ["3", "4", "5", "6", "7"].iter().filter(|key| has(&dict, key)).count();
    assert_eq!(dict.flush_expired(2, NOW), 2);
    assert_eq!(dict.flush_expired(0, NOW), left - 2);
    assert_eq!(keys(&dict, 0, NOW), ["9", "8"]);
    assert_eq!(dict.drop_oldest(1), 1);
    assert_eq!(keys(&dict, 0, NOW), ["8"]);
    assert_eq!((dict.drop_oldest(0), dict.drop_oldest(9), dict.drop_oldest(9)), (0, 1, 0));
}

#[test]
fn keys_by_use() {
    let dict = Dict::new(1 << 20);
    for key in ["a", "b", "c", "d"] {
        set(&dict, key, number(1.0)).unwrap();
    }
    set_for(&dict, "e", number(1.0), 10);
    assert_eq!(keys(&dict, 0, NOW), ["a", "b", "c", "d", "e"]);
    get(&dict, "a", NOW).unwrap();
    dict.incr(b"c", 1.0, None, 0, NOW).unwrap();
    // Neither of these is a use.
    dict.ttl(b"b", NOW);
    dict.expire(b"b", 500, NOW);
    assert_eq!(keys(&dict, 0, NOW), ["b", "d", "e", "a", "c"]);
    assert_eq!(keys(&dict, 3, NOW + 10), ["b", "d", "a"]);
    // A refused one is.
    dict.set(b"b", number(1.0), 0, 0, Mode::Add, NOW).unwrap_err();
    assert_eq!(keys(&dict, 1, NOW), ["d"]);
}

#[test]
fn lists_have_two_ends() {
    let dict = Dict::new(1 << 20);
    let push = |value, left| dict.push(b"l", value, left, NOW);
    assert_eq!(push(text("b"), true), Ok(1));
    assert_eq!(push(number(1.0), true), Ok(2));
    assert_eq!(push(text("c"), false), Ok(3));
    assert_eq!(push(ValueRef::Boolean(true), true), Err(PushError::BadValue));
    assert_eq!(dict.llen(b"l", NOW), Ok(3));
    assert_eq!(dict.pop(b"l", true, NOW), Ok(Some(Value::Number(1.0))));
    assert_eq!(dict.pop(b"l", false, NOW), Ok(Some(Value::Text(b"c".to_vec()))));
    assert_eq!(dict.pop(b"l", false, NOW), Ok(Some(Value::Text(b"b".to_vec()))));
    assert_eq!(dict.pop(b"l", true, NOW), Ok(None));
    assert_eq!(dict.llen(b"l", NOW), Ok(0));
    assert!(!has(&dict, "l"));
}

#[test]
fn lists_and_values_do_not_mix() {
    let dict = Dict::new(1 << 20);
    set(&dict, "oldest", number(0.0)).unwrap();
    dict.push(b"l", text("a"), true, NOW).unwrap();
    set(&dict, "v", text("a")).unwrap();
    assert_eq!(dict.get(b"l", NOW), Err(IsList));
    assert_eq!(dict.get_stale(b"l", NOW), Err(IsList));
    assert_eq!(dict.get_with(b"l", NOW, |_, _| ()), Err(IsList));
    assert_eq!(dict.push(b"v", text("b"), true, NOW), Err(PushError::NotList));
    assert_eq!(dict.pop(b"v", true, NOW), Err(NotList));
    assert_eq!(dict.llen(b"v", NOW), Err(NotList));
    assert_eq!(dict.incr(b"l", 1.0, Some(0.0), 0, NOW), Err(IncrError::NotNumber));
    assert_eq!(dict.set(b"l", text("b"), 0, 0, Mode::Add, NOW), Err(Refused::Exists));
    assert_eq!(dict.set(b"l", text("b"), 0, 0, Mode::Replace, NOW), OK);
    assert_eq!(get(&dict, "l", NOW), Some(Value::Text(b"b".to_vec())));
}

#[test]
fn lists_expire() {
    let dict = Dict::new(1 << 20);
    set(&dict, "oldest", number(0.0)).unwrap();
    dict.push(b"l", text("a"), true, NOW).unwrap();
    assert!(dict.expire(b"l", 10, NOW));
    dict.push(b"l", text("b"), true, NOW).unwrap();
    assert_eq!((dict.ttl(b"l", NOW), dict.llen(b"l", NOW + 10)), (Some(10), Ok(0)));
    assert_eq!(dict.pop(b"l", true, NOW + 10), Ok(None));
    // A new one, which lives for ever.
    assert_eq!(dict.push(b"l", text("c"), true, NOW + 10), Ok(1));
    assert_eq!(dict.ttl(b"l", NOW), Some(0));
    dict.flush_all();
    assert_eq!(dict.incr(b"l", 1.0, Some(0.0), 0, NOW), Ok((1.0, false)));
    set_for(&dict, "v", text("x"), 10);
    assert_eq!(dict.push(b"v", text("y"), true, NOW + 10), Ok(1));
}
