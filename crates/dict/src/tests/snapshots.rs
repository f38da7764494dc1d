use super::{get, keys, number, set, set_for, text, Random, NOW};
use crate::{BadSnapshot, Dict, Mode, Value, ValueRef};

fn sample() -> Dict {
    let dict = Dict::new(1 << 20);
    dict.set(b"text", text("some text"), 0, 77, Mode::Set, NOW).unwrap();
    set_for(&dict, "number", number(1.5), 1000);
    set_for(&dict, "expired", number(1.5), 10);
    for value in [text("a"), number(2.0), text("")] {
        dict.push(b"list", value, false, NOW).unwrap();
    }
    dict.expire(b"list", 500, NOW);
    set(&dict, "true", ValueRef::Boolean(true)).unwrap();
    set(&dict, "false", ValueRef::Boolean(false)).unwrap();
    set(&dict, "nan", number(f64::NAN)).unwrap();
    get(&dict, "text", NOW).unwrap();
    dict
}

#[test]
fn there_and_back() {
    let bytes = sample().snapshot(NOW + 100);
    let dict = Dict::new(1 << 20);
    let now = 5000;
    set(&dict, "number", text("what was there")).unwrap();
    assert_eq!(dict.restore(&bytes, now), Ok(6));
    assert_eq!(keys(&dict, 0, now), ["number", "list", "true", "false", "nan", "text"]);
    assert_eq!(dict.get(b"text", now), Ok(Some((Value::Text(b"some text".to_vec()), 77))));
    assert_eq!((dict.ttl(b"text", now), dict.ttl(b"number", now)), (Some(0), Some(900)));
    assert_eq!(get(&dict, "number", now), Some(Value::Number(1.5)));
    assert_eq!(get(&dict, "true", now), Some(Value::Boolean(true)));
    assert_eq!(get(&dict, "false", now), Some(Value::Boolean(false)));
    assert!(matches!(get(&dict, "nan", now), Some(Value::Number(n)) if n.is_nan()));
    assert_eq!((dict.ttl(b"list", now), dict.llen(b"list", now)), (Some(400), Ok(3)));
    assert_eq!(dict.pop(b"list", true, now), Ok(Some(Value::Text(b"a".to_vec()))));
    assert_eq!(dict.pop(b"list", true, now), Ok(Some(Value::Number(2.0))));
    let empty = Dict::new(1 << 20).snapshot(NOW);
    assert_eq!(dict.restore(&empty, now), Ok(0));
}

#[test]
fn many_entries_take_many_slices() {
    let dict = Dict::new(4 << 20);
    for i in 0..5000 {
        set(&dict, &format!("{i:05}"), text(&"v".repeat(i % 400))).unwrap();
    }
    let other = Dict::new(4 << 20);
    assert_eq!(other.restore(&dict.snapshot(NOW), NOW), Ok(5000));
    assert_eq!(other.get_keys(0, NOW), dict.get_keys(0, NOW));
    assert_eq!(other.free_space(), dict.free_space());
    assert_eq!(dict.drop_oldest(4000), 4000);
    assert_eq!(keys(&dict, 1, NOW), ["04000"]);
}

#[test]
fn smaller_ones_keep_the_newest() {
    let dict = Dict::new(1 << 20);
    for i in 0..2000 {
        set(&dict, &format!("{i:05}"), number(1.0)).unwrap();
    }
    let push =
        || (0..100).for_each(|_| assert!(dict.push(b"list", number(1.0), true, NOW).is_ok()));
    push();
    let small = Dict::new(32 << 10);
    assert_eq!(small.restore(&dict.snapshot(NOW), NOW), Ok(2001));
    let kept = keys(&small, 0, NOW);
    assert!(kept.len() > 20 && kept.len() < 200, "{}", kept.len());
    assert_eq!((kept.last().unwrap().as_str(), small.llen(b"list", NOW)), ("list", Ok(100)));
    // A list comes whole or not at all.
    push();
    let tiny = Dict::new(12 << 10);
    assert_eq!(tiny.restore(&dict.snapshot(NOW), NOW), Ok(2000));
    assert_eq!(Dict::new(0).restore(&dict.snapshot(NOW), NOW), Ok(0));
}

fn with_sum(mut bytes: Vec<u8>) -> Vec<u8> {
    let at = bytes.len() - 8;
    let step = |sum: u64, b: &u8| (sum ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3);
    let sum = bytes[..at].iter().fold(0xcbf2_9ce4_8422_2325, step);
    bytes[at..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn damage_is_refused() {
    let bytes = sample().snapshot(NOW);
    let dict = Dict::new(1 << 20);
    assert_eq!(with_sum(bytes.clone()), bytes);
    for len in 0..bytes.len() {
        assert_eq!(dict.restore(&bytes[..len], NOW), Err(BadSnapshot));
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            assert_eq!(dict.restore(&bad, NOW), Err(BadSnapshot));
        }
    }
    assert_eq!(dict.get_keys(0, NOW).len(), 0);
}

/// Whoever makes the bytes can make the sum too.
#[test]
fn malice_is_borne() {
    let bytes = sample().snapshot(NOW);
    let dict = Dict::new(64 << 10);
    let fresh = dict.free_space();
    let mut random = Random(11);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut bad = bytes.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bad.len());
            bad[at] = [0, 1, 4, 0x7f, 0xff, random.below(256) as u8][random.below(6)];
        }
        if random.below(4) == 0 {
            bad.truncate(17 + 8 + random.below(bad.len() - 24));
            let records = bad.len() as u64 - 25;
            bad[9..17].copy_from_slice(&records.to_le_bytes());
        }
        match dict.restore(&with_sum(bad), NOW + random.below(9000) as u64) {
            Ok(_) => taken += 1,
            Err(BadSnapshot) => refused += 1,
        }
    }
    assert!(taken > 1000 && refused > 1000, "{taken} {refused}");
    dict.drop_oldest(usize::MAX);
    assert_eq!(dict.free_space(), fresh);
}

/// A list that says it has four thousand million elements.
#[test]
fn lengths_are_not_believed() {
    let mut bytes = b"weirdict\x01".to_vec();
    let record = [&[4, 1, 0][..], &[0; 12], b"k", &[255; 4]].concat();
    bytes.extend_from_slice(&(record.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&record);
    bytes.extend_from_slice(&[0; 8]);
    assert_eq!(Dict::new(1 << 20).restore(&with_sum(bytes), NOW), Err(BadSnapshot));
}
