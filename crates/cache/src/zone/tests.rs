//! A seeded driver for the zone, against a plain list.

use super::*;

const SMALL: u64 = ENTRY_BYTES * 8;

fn key(n: u64) -> Key {
    Key::of(&n.to_le_bytes())
}

fn enter(zone: &Arc<Zone>, n: u64, min_uses: u32, gone: &mut Vec<Key>) -> (Handle, Found) {
    let mut room = |removed: Removed| gone.push(removed.key);
    zone.enter(key(n), min_uses, 0, 100, &mut room).expect("not all in use")
}

/// Fills an entry at once.
fn fill(zone: &Arc<Zone>, n: u64, gone: &mut Vec<Key>) {
    enter(zone, n, 1, gone).0.filled(4096, None);
}

#[test]
fn the_least_recently_used_goes_first() {
    let zone = Arc::new(Zone::new(SMALL));
    let mut gone = Vec::new();
    (0..8).for_each(|n| fill(&zone, n, &mut gone));
    drop(enter(&zone, 0, 1, &mut gone));
    assert!(gone.is_empty());
    fill(&zone, 8, &mut gone);
    fill(&zone, 9, &mut gone);
    assert_eq!(gone, [key(1), key(2)]);
    assert!(zone.over_watermark());
    assert_eq!(zone.file_bytes(), 8 * 4096);
}

#[test]
fn bounds_and_order_hold_whatever_comes() {
    let mut seed = 7u64;
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let zone = Arc::new(Zone::new(SMALL));
    let mut order: Vec<u64> = Vec::new();
    for _ in 0..20_000 {
        let n = random(24);
        let mut gone = Vec::new();
        if random(20) == 0 {
            assert_eq!(zone.purge(&key(n)), order.contains(&n));
            order.retain(|k| *k != n);
            continue;
        }
        fill(&zone, n, &mut gone);
        let known = order.contains(&n);
        order.retain(|k| *k != n);
        let want: Vec<Key> = match !known && order.len() == 8 {
            true => vec![key(order.remove(0))],
            false => Vec::new(),
        };
        order.push(n);
        assert_eq!(gone, want);
        assert_eq!(zone.entries(), order.len());
        assert_eq!(zone.file_bytes(), order.len() as u64 * 4096);
    }
}

#[test]
fn an_entry_in_use_stays() {
    let zone = Arc::new(Zone::new(SMALL));
    let mut gone = Vec::new();
    let held = enter(&zone, 0, 1, &mut gone).0;
    (1..20).for_each(|n| fill(&zone, n, &mut gone));
    assert!(!gone.contains(&key(0)) && zone.entries() == 8);
    drop(held);
    // Nothing was filled, so nothing is remembered.
    assert_eq!(zone.entries(), 7);
}

#[test]
fn a_large_zone_holds_what_its_size_says() {
    let zone = Arc::new(Zone::new(1 << 20));
    let mut gone = Vec::new();
    (0..20_000).for_each(|n| fill(&zone, n, &mut gone));
    assert_eq!(zone.entries(), zone.entries_max());
    assert!(zone.entries() as u64 * ENTRY_BYTES <= 1 << 20);
    assert_eq!(gone.len(), 20_000 - zone.entries());
}

#[test]
fn uses_and_errors() {
    let zone = Arc::new(Zone::new(SMALL));
    let mut gone = Vec::new();
    let (first, found) = enter(&zone, 1, 2, &mut gone);
    assert!(matches!(found, Found::Fresh));
    drop(first);
    let (mut second, found) = enter(&zone, 1, 2, &mut gone);
    assert!(matches!(found, Found::Known { exists: false, .. }));
    second.remember_error(404, 50);
    drop(second);
    assert!(matches!(enter(&zone, 1, 2, &mut gone).1, Found::Error(404)));
    let late = zone.enter(key(1), 2, 51, 100, &mut |_| {});
    assert!(matches!(late, Some((_, Found::Fresh))));
}

#[test]
fn whoever_waits_is_woken_when_the_lock_is_given_back() {
    let zone = Arc::new(Zone::new(SMALL));
    let mut gone = Vec::new();
    let mut owner = enter(&zone, 1, 1, &mut gone).0;
    assert!(matches!(owner.lock(0, 1000), Lock::Owned));
    let mut other = enter(&zone, 1, 1, &mut gone).0;
    let Lock::Wait { filled, until_ms: 1000 } = other.lock(1, 1000) else { panic!("must wait") };
    assert!(filled.has_changed().is_ok());
    owner.filled(10, None);
    assert!(filled.has_changed().is_err());
    assert!(other.begin_update());
    // Too old a lock is taken over, and its first owner no longer gives it back.
    let mut late = enter(&zone, 1, 1, &mut gone).0;
    assert!(matches!(late.lock(2000, 1000), Lock::Owned));
    drop(other);
    let mut last = enter(&zone, 1, 1, &mut gone).0;
    assert!(matches!(last.lock(2001, 1000), Lock::Wait { .. }));
}

#[test]
fn all_keys_are_found_however_many() {
    let zone = Arc::new(Zone::new(8 << 20));
    let wanted: std::collections::BTreeSet<Key> =
        (0..5000u32).map(|n| Key::of(&n.to_le_bytes())).collect();
    assert!(wanted.iter().all(|key| zone.adopt(*key, 1, 0)));
    assert_eq!(zone.keys().into_iter().collect::<std::collections::BTreeSet<_>>(), wanted);
    assert!(zone.purge(wanted.iter().next().unwrap()));
    assert_eq!(zone.keys().len(), wanted.len() - 1);
}

/// A file that an error has taken the place of is removed, or it would be there uncounted for ever.
#[test]
fn no_file_is_left_behind_an_error() {
    let zone = Arc::new(Zone::new(SMALL));
    let mut gone = Vec::new();
    fill(&zone, 1, &mut gone);
    let mut handle = enter(&zone, 1, 1, &mut gone).0;
    handle.remember_error(502, 10);
    drop(handle);
    assert_eq!((zone.file_bytes(), gone.len()), (4096, 0), "as long as it is known");
    let mut room = |removed: Removed| gone.push(removed.key);
    let (_handle, found) = zone.enter(key(1), 1, 11, 100, &mut room).expect("room");
    assert!(matches!(found, Found::Fresh), "{found:?}");
    assert_eq!((zone.file_bytes(), gone), (0, vec![key(1)]));
}
