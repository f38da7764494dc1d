//! The memory tier's bound, held by answers and their forms together.

use super::*;

fn params(memory_bytes: u64) -> Params {
    let pace = Pace { files: 100, sleep_ms: 50, threshold_ms: 200 };
    Params {
        use_temp_path: false,
        inactive_secs: 600,
        max_bytes: u64::MAX,
        min_free_bytes: 0,
        memory_bytes,
        manager: pace,
        loader: pace,
        purger: None,
    }
}

fn fill(store: &Store, text: &[u8], body: &[u8]) {
    let handle = store.enter(Key::of(text), 1).expect("room");
    let meta = Meta { status: 200, valid_sec: i64::MAX, ..Meta::default() };
    let head = b"HTTP/1.1 200 OK\r\n\r\n";
    let mut spool =
        Spool::new(entry::encode(&meta, text, head, 0), store.temp_beside(&handle.key()));
    spool.write(body).expect("written");
    store.commit(handle, meta, &store.fills.begin(text), head, spool).expect("committed");
}

fn wanted(text: &[u8]) -> Request<'_> {
    let variant = &|_: &[u8]| Key([0; 16]);
    Request { key: Key::of(text), key_text: text, min_uses: 1, variant, log: &|_, _| {} }
}

#[test]
fn the_bound_is_kept_by_answers_and_forms() {
    const LIMIT: u64 = 100_000;
    let dir = std::env::temp_dir().join(format!("weir-store-{}", std::process::id()));
    let store = Store::new(b"c", 1 << 20, &dir, [1, 0, 0], params(LIMIT));
    let mut held = Vec::new();
    for n in 0..60u32 {
        let text = format!("key {n}").into_bytes();
        fill(&store, &text, &vec![1; 10_000]);
        assert!(store.budget.used() <= LIMIT, "after {n}");
        let Some((_, stored)) = store.hit(&wanted(&text)) else { continue };
        stored.forms.keep(1, &Bytes::from(vec![2; 3_000]));
        assert!(store.budget.used() <= LIMIT, "form after {n}");
        // A slow client's hold counts.
        if n % 10 == 0 {
            held.push(stored);
        }
    }
    assert!(store.hit(&wanted(b"key 59")).is_some(), "the newest is there");
    assert!(store.zone.entries() == 60);
    let (opened, _) = store.open(&wanted(b"key 1")).expect("opened");
    assert!(matches!(opened, Opened::Fresh(_)), "the others are on disk");
    drop((held, opened));
    store.set_params(&params(0));
    assert_eq!(store.budget.used(), 0);
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn what_is_purged_slowly_is_not_there_at_once() {
    let dir = std::env::temp_dir().join(format!("weir-purger-{}", std::process::id()));
    let store = Arc::new(Store::new(b"p", 1 << 20, &dir, [1, 0, 0], params(100_000)));
    for n in 0..20 {
        fill(&store, format!("/a/{n}").as_bytes(), b"body");
    }
    fill(&store, b"/b", b"body");
    let pace = Pace { files: 1, sleep_ms: 1000, threshold_ms: 1000 };
    assert!(store.hit(&wanted(b"/a/3")).is_some());
    assert!(store.purge_slowly(b"/a/", pace));
    for n in 0..20 {
        let text = format!("/a/{n}").into_bytes();
        assert!(store.hit(&wanted(&text)).is_none(), "{n}");
        let (opened, _) = store.open(&wanted(&text)).expect("looked up");
        assert!(matches!(opened, Opened::Missing), "{n}: {opened:?}");
    }
    assert!(store.hit(&wanted(b"/b")).is_some());
    // What is kept from now on is not meant, once the file system's clock has gone on.
    std::thread::sleep(std::time::Duration::from_millis(50));
    fill(&store, b"/a/3", b"new");
    assert!(store.hit(&wanted(b"/a/3")).is_some());
    let _ = std::fs::remove_dir_all(&dir);
}
