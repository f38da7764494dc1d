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
    Request {
        key: Key::of(text),
        key_text: text,
        min_uses: 1,
        parts: false,
        variant,
        log: &|_, _| {},
    }
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

const PAD: crate::partial::Pad = |mut head, len| {
    let more = len.checked_sub(head.len())?;
    head.extend(std::iter::repeat_n(b' ', more));
    Some(head)
};

fn part<'a>(
    key: &[u8],
    etag: &str,
    (from, to): (u64, u64),
    old: Option<&'a Arc<Stored>>,
) -> crate::NewPart<'a> {
    let meta = Meta { status: 200, valid_sec: i64::MAX, etag: etag.into(), ..Meta::default() };
    let head = b"HTTP/1.1 200 OK    ".to_vec();
    let key_text = Box::leak(key.to_vec().into_boxed_slice());
    crate::NewPart {
        key: Key::of(key),
        meta,
        key_text,
        head,
        from,
        to,
        body_len: 100,
        old,
        pad: PAD,
    }
}

/// The parts of an entry, and its bytes.
fn open_parts(store: &Store, key: &[u8]) -> (Opened, Option<Arc<Stored>>) {
    let (opened, _) = store.open(&Request { parts: true, ..wanted(key) }).expect("opened");
    let stored = match &opened {
        Opened::Incomplete(stored) | Opened::Fresh(stored) => Some(Arc::clone(stored)),
        _ => None,
    };
    (opened, stored)
}

fn bytes_of(stored: &Stored, from: u64, to: u64) -> Vec<u8> {
    match &stored.body {
        Body::Memory(text) => text[from as usize..to as usize].to_vec(),
        Body::File { file, start } => {
            let mut text = vec![0; (to - from) as usize];
            files::read_exact_at(file, &mut text, start + from).expect("there");
            text
        }
    }
}

/// Whoever writes at the same time as others: what the list says is there, and nothing else is served.
#[test]
fn parts_written_at_once_are_true_and_holes_are_no_answer() {
    let dir = std::env::temp_dir().join(format!("weir-partial-{}", std::process::id()));
    let store = Store::new(b"c", 1 << 20, &dir, [1, 0, 0], params(100_000));
    let body: Vec<u8> = (0..100).collect();
    let enter = || store.enter(Key::of(b"/p"), 1).expect("room");
    let begin = |range, old: Option<&Arc<Stored>>| {
        store.begin_part(part(b"/p", "\"e\"", range, old)).expect("a file").expect("room")
    };
    let filling = || store.fills.begin(b"/p");
    let mut first = begin((0, 10), None);
    first.write(&body[..10]).expect("written");
    assert!(matches!(open_parts(&store, b"/p").0, Opened::Missing), "not before it is all there");
    assert!(first.write(b"more").is_err());
    store.commit_part(enter(), &filling(), first).expect("kept");
    let (opened, old) = open_parts(&store, b"/p");
    assert!(matches!(opened, Opened::Incomplete(_)), "{opened:?}");
    assert!(matches!(store.open(&wanted(b"/p")).expect("opened").0, Opened::Missing));
    assert!(store.hit(&wanted(b"/p")).is_none());
    // Two at once, one of which ends early; a third that is given up.
    let (mut a, mut b, mut gone) = (
        begin((10, 40), old.as_ref()),
        begin((60, 100), old.as_ref()),
        begin((40, 60), old.as_ref()),
    );
    a.write(&body[10..25]).expect("written");
    gone.write(&body[40..60]).expect("written");
    b.write(&body[60..100]).expect("written");
    drop(gone);
    store.commit_part(enter(), &filling(), b).expect("kept");
    store.commit_part(enter(), &filling(), a).expect("kept");
    let (_, now) = open_parts(&store, b"/p");
    let parts = now.as_ref().and_then(|s| s.parts.clone()).expect("parts");
    assert!(parts.hold(0, 25) && parts.hold(60, 100) && !parts.hold(25, 26) && !parts.hold(59, 60));
    assert_eq!(bytes_of(now.as_ref().expect("stored"), 60, 100), body[60..]);
    // The last: an answer like any other, to who held the parts too.
    let mut last = begin((20, 60), now.as_ref());
    last.write(&body[20..60]).expect("written");
    store.commit_part(enter(), &filling(), last).expect("kept");
    let (opened, whole) = open_parts(&store, b"/p");
    assert!(matches!(opened, Opened::Fresh(_)), "{opened:?}");
    assert_eq!(bytes_of(whole.as_ref().expect("stored"), 0, 100), body);
    assert_eq!(bytes_of(old.as_ref().expect("stored"), 0, 10), body[..10]);
    assert!(matches!(store.open(&wanted(b"/p")).expect("opened").0, Opened::Fresh(_)));
    // A late writer of what is complete by now does nothing to it; nor does one of what is gone.
    let mut late = begin((30, 50), now.as_ref());
    late.write(&body[30..50]).expect("written");
    store.commit_part(enter(), &filling(), late).expect("nothing to do");
    assert!(matches!(open_parts(&store, b"/p").0, Opened::Fresh(_)));
    let mut orphan = begin((30, 50), now.as_ref());
    orphan.write(&body[30..50]).expect("written");
    assert!(store.purge(&Key::of(b"/p")));
    store.commit_part(enter(), &filling(), orphan).expect("nothing to do");
    assert!(matches!(open_parts(&store, b"/p").0, Opened::Missing));
    // Another representation never adds to a file.
    let old = now.as_ref();
    let other = store.begin_part(part(b"/p", "\"f\"", (0, 5), old)).expect("a file").expect("room");
    drop(other);
    assert!(store.all_keys().is_empty(), "what is given up leaves nothing");
    // A purge that is to be done little by little reaches what was begun before it, whatever is added.
    let store = Arc::new(store);
    let mut first = begin_of(&store, (0, 10), None);
    first.write(&body[..10]).expect("written");
    store.commit_part(enter_of(&store), &store.fills.begin(b"/p"), first).expect("kept");
    let (_, old) = open_parts(&store, b"/p");
    let mut more = begin_of(&store, (10, 20), old.as_ref());
    let pace = Pace { files: 1, sleep_ms: 10_000, threshold_ms: 10_000 };
    let filling = store.fills.begin(b"/p");
    store.fills.purge(|text| text == b"/p");
    assert!(store.purge_slowly(b"/p", pace));
    more.write(&body[10..20]).expect("written");
    store.commit_part(enter_of(&store), &filling, more).expect("not kept");
    assert!(matches!(open_parts(&store, b"/p").0, Opened::Missing));
    let _ = std::fs::remove_dir_all(&dir);
}

fn begin_of(store: &Store, range: (u64, u64), old: Option<&Arc<Stored>>) -> crate::PartFill {
    store.begin_part(part(b"/p", "\"e\"", range, old)).expect("a file").expect("room")
}

fn enter_of(store: &Store) -> Handle {
    store.enter(Key::of(b"/p"), 1).expect("room")
}

fn quiet() -> (crate::manager::Log, Arc<Mutex<Vec<String>>>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&said);
    let log: crate::manager::Log = Arc::new(move |level: &str, text: &str| {
        to.lock().unwrap().push(format!("{level}: {text}"));
    });
    (log, said)
}

fn is_there(store: &Store, text: &[u8]) -> bool {
    matches!(store.open(&wanted(text)).expect("looked up").0, Opened::Fresh(_))
}

/// Another process of the same directory.
fn restarted(dir: &Path) -> Arc<Store> {
    Arc::new(Store::new(b"p", 1 << 20, dir, [1, 0, 0], params(100_000)))
}

#[test]
fn a_purge_that_was_begun_is_finished_by_who_comes_next() {
    let dir = std::env::temp_dir().join(format!("weir-resumed-{}", std::process::id()));
    let purges = dir.join(crate::purger::DIR);
    let left = || std::fs::read_dir(&purges).map_or(0, |d| d.count());
    let store = restarted(&dir);
    for text in [b"/a/1", b"/a/2", b"/b/1"] {
        fill(&store, text, b"body");
    }
    let pace = Pace { files: 1, sleep_ms: 60_000, threshold_ms: 60_000 };
    assert!(store.purge_slowly(b"/a/", pace));
    drop(store);
    let (log, said) = quiet();
    let next = restarted(&dir);
    assert_eq!(left(), 1);
    next.resume_purges(&log);
    assert!(!is_there(&next, b"/a/1") && !is_there(&next, b"/a/2") && is_there(&next, b"/b/1"));
    for _ in 0..1000 {
        if left() == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(left(), 0, "it has been finished");
    assert!(said.lock().unwrap().is_empty());
    // What is stored since is not meant.
    fill(&next, b"/a/1", b"new");
    next.resume_purges(&log);
    assert!(is_there(&next, b"/a/1"));
    // What cannot be read is not taken for nothing; nor is what is a link to elsewhere.
    for spoil in [0, 1] {
        let next = restarted(&dir);
        fill(&next, b"/b/2", b"body");
        match spoil {
            0 => std::fs::write(purges.join("0-1-0"), b"odd").unwrap(),
            _ => std::fs::create_dir(purges.join("0-1-1")).unwrap(),
        }
        next.resume_purges(&log);
        assert!(!is_there(&next, b"/b/2"), "{spoil}");
        let said = std::mem::take(&mut *said.lock().unwrap());
        assert!(said.len() == 1 && said[0].contains("does not say what was purged"), "{said:?}");
        drop(next);
        let _ = std::fs::remove_dir_all(&purges);
        std::fs::create_dir(&purges).unwrap();
    }
    // More than may be kept in mind.
    let next = restarted(&dir);
    std::thread::sleep(std::time::Duration::from_millis(50));
    fill(&next, b"/b/3", b"body");
    (0..100).for_each(|n| std::fs::write(purges.join(format!("0-2-{n}")), b"odd").unwrap());
    next.resume_purges(&log);
    assert!(!is_there(&next, b"/b/3"));
    assert_eq!(said.lock().unwrap().len(), 1);
    // Too long to be written down, or nowhere to write it: to be done at once.
    assert!(!next.purge_slowly(&[b'x'; 10_000], pace));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(&purges, b"no directory").unwrap();
    assert!(!restarted(&dir).purge_slowly(b"/a", pace));
    let _ = std::fs::remove_dir_all(&dir);
}

fn in_memory(store: &Store, text: &[u8]) -> bool {
    store.hit(&wanted(text)).is_some()
}

fn loaded(dir: &Path, memory_bytes: u64, levels: [u8; 3]) -> (Arc<Store>, Vec<String>) {
    // Of one shard, which has one order.
    let store = Arc::new(Store::new(b"p", 1 << 16, dir, levels, params(memory_bytes)));
    let (log, said) = quiet();
    crate::manager::load(&Arc::downgrade(&store), &log);
    let said = said.lock().unwrap().iter().filter(|s| s.starts_with("warn")).cloned().collect();
    (store, said)
}

#[test]
fn memory_is_as_it_was_after_a_restart() {
    let dir = std::env::temp_dir().join(format!("weir-warm-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let list = dir.join(crate::warm::NAME);
    let text = |n: u32| format!("/{n}").into_bytes();
    let (store, said) = loaded(&dir, 1 << 20, [1, 0, 0]);
    assert!(said.is_empty());
    (0..20).for_each(|n| fill(&store, &text(n), &vec![b'x'; 10_000]));
    assert!((0..5).all(|n| in_memory(&store, &text(n))), "those are used last");
    store.note_memory().unwrap();
    let written = std::fs::metadata(&list).unwrap().modified().unwrap();
    store.note_memory().unwrap();
    assert_eq!(std::fs::metadata(&list).unwrap().modified().unwrap(), written, "nothing is new");
    drop(store);
    // All of it, without a request; what was used last stays longest.
    let (store, said) = loaded(&dir, 1 << 20, [1, 0, 0]);
    assert!(said.is_empty() && store.budget.used() > 200_000 && store.zone.entries() == 20);
    assert!((0..20).all(|n| in_memory(&store, &text(n))));
    drop(store);
    // What there is room for: the last used.
    let (store, _) = loaded(&dir, 60_000, [1, 0, 0]);
    assert!((0..5).all(|n| in_memory(&store, &text(n))) && !in_memory(&store, &text(10)));
    assert!(store.budget.used() <= 60_000);
    let order = store.zone.memory_keys(100);
    fill(&store, b"/more", &vec![b'x'; 10_000]);
    let gone: Vec<Key> =
        order.iter().copied().filter(|k| store.zone.memory(k, 0).is_none()).collect();
    assert_eq!(gone, order[order.len() - gone.len()..], "the coldest goes first");
    assert!(!gone.is_empty());
    // Files that are least used go first: not those.
    let first = store.zone.remove_oldest(None).unwrap().key;
    assert!((0..5).all(|n| Key::of(&text(n)) != first));
    drop(store);
    // No memory, no list; nor is the one that is there touched.
    let (store, said) = loaded(&dir, 0, [1, 0, 0]);
    store.note_memory().unwrap();
    assert!(said.is_empty() && list.exists());
    // What is not one is passed over, and nothing is waited for.
    let good = std::fs::read(&list).unwrap();
    let purged = restarted(&dir);
    assert!(purged.purge(&Key::of(&text(1))));
    for (spoil, words) in [
        (good[..good.len() - 1].to_vec(), "not a list"),
        (vec![0; 3_000_000], "not a list"),
        (Vec::new(), "not a list"),
    ] {
        std::fs::write(&list, spoil).unwrap();
        let (store, said) = loaded(&dir, 1 << 20, [1, 0, 0]);
        assert!(said.len() == 1 && said[0].contains(words), "{said:?}");
        assert_eq!((store.budget.used(), store.zone.entries()), (0, 20));
    }
    std::fs::write(&list, &good).unwrap();
    let (_, said) = loaded(&dir, 1 << 20, [2, 0, 0]);
    assert!(said.len() == 1 && said[0].contains("levels"), "{said:?}");
    let _ = std::fs::remove_file(&list);
    std::fs::create_dir(&list).unwrap();
    let (store, said) = loaded(&dir, 1 << 20, [2, 0, 0]);
    assert!(said.len() == 1 && store.note_memory().is_err(), "{said:?}");
    let _ = std::fs::remove_dir_all(&dir);
}

/// The list is not written before it has been read, and what was purged or is broken does not come back by it.
#[test]
fn a_list_brings_nothing_back() {
    let dir = std::env::temp_dir().join(format!("weir-list-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let (store, _) = loaded(&dir, 1 << 20, [1, 0, 0]);
    for text in [b"/a/1", b"/a/2", b"/b/1", b"/b/2"] {
        fill(&store, text, b"body");
    }
    store.note_memory().unwrap();
    assert!(store.purge(&Key::of(b"/b/1")));
    std::fs::write(store.path(&Key::of(b"/b/2")), vec![b'x'; 500]).unwrap();
    let pace = Pace { files: 1, sleep_ms: 60_000, threshold_ms: 60_000 };
    assert!(store.purge_slowly(b"/a/", pace));
    drop(store);
    let next = restarted(&dir);
    let before = std::fs::read(dir.join(crate::warm::NAME)).unwrap();
    next.note_memory().unwrap();
    assert_eq!(
        std::fs::read(dir.join(crate::warm::NAME)).unwrap(),
        before,
        "not before it is read"
    );
    let (log, _) = quiet();
    next.resume_purges(&log);
    crate::manager::load(&Arc::downgrade(&next), &log);
    for text in [b"/a/1", b"/a/2", b"/b/1", b"/b/2"] {
        assert!(!in_memory(&next, text) && !is_there(&next, text));
    }
    assert_eq!(next.budget.used(), 0);
    let _ = std::fs::remove_dir_all(&dir);
}

/// Whoever has opened a file before a purge, and keeps what it has read behind that, keeps nothing alive.
#[test]
fn what_was_read_before_a_purge_is_not_kept_behind_it() {
    let dir = std::env::temp_dir().join(format!("weir-race-{}", std::process::id()));
    let store = Store::new(b"c", 1 << 20, &dir, [1, 0, 0], params(100_000));
    fill(&store, b"/a", b"body");
    let key = Key::of(b"/a");
    let mut stored = read(&store.path(&key)).unwrap().unwrap();
    assert!(store.purge(&key));
    // As `look` does it.
    store.to_memory(&mut stored).unwrap();
    assert!(store.zone.adopt(key, 4096, i64::MAX));
    store.zone.keep_memory(&key, Arc::new(stored), None);
    assert!(!in_memory(&store, b"/a"), "its file is gone");
    let _ = std::fs::remove_dir_all(&dir);
}

/// What varies is found by its heads, which takes its time: it is not served meanwhile.
#[test]
fn variants_of_what_has_changed_are_gone_at_once() {
    let dir = std::env::temp_dir().join(format!("weir-variants-{}", std::process::id()));
    let pace = Pace { files: 1, sleep_ms: 20, threshold_ms: 1000 };
    let slow = Params { manager: pace, ..params(100_000) };
    let store = Arc::new(Store::new(b"p", 1 << 20, &dir, [1, 0, 0], slow));
    (0..30).for_each(|n| fill(&store, format!("/{n}").as_bytes(), b"body"));
    let variant = Key::of(b"/v of somebody");
    let handle = store.enter(variant, 1).expect("room");
    let (vary, variant_key) = (b"foo".to_vec(), Some(variant));
    let meta =
        Meta { status: 200, valid_sec: i64::MAX, vary, variant: variant_key, ..Meta::default() };
    let head = b"HTTP/1.1 200 OK\r\n\r\n";
    let mut spool = Spool::new(entry::encode(&meta, b"/v", head, 0), store.temp_beside(&variant));
    spool.write(b"old").expect("written");
    store.commit(handle, meta, &store.fills.begin(b"/v"), head, spool).expect("committed");
    let is_variant = |_: &[u8]| variant;
    let ask = Request { key: variant, variant: &is_variant, ..wanted(b"/v") };
    assert!(matches!(store.open(&ask).expect("opened").0, Opened::Fresh(_)));
    assert!(store.hit(&ask).is_some());
    store.forget(b"/v");
    assert!(store.hit(&ask).is_none());
    assert!(matches!(store.open(&ask).expect("opened").0, Opened::Missing));
    assert!(is_there(&store, b"/7"), "others are");
    let is_done = || !store.path(&variant).exists();
    (0..1000).take_while(|_| !is_done()).for_each(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
    });
    assert!(is_done());
    let _ = std::fs::remove_dir_all(&dir);
}
