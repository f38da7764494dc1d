use super::reading::Reading;
use super::*;
use crate::receiver::{EventId, Kept};
use std::path::PathBuf;

struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn dir(name: &str) -> Dir {
    let path = std::env::temp_dir().join(format!("weir-queue-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    Dir(path)
}

fn queue(dir: &Dir) -> Queue {
    let queue = Queue::new(&dir.0, MIN_BYTES);
    queue.fill().unwrap();
    queue
}

fn push(queue: &Queue, text: &str) {
    queue.push_shared(text.as_bytes(), 5, Kind::Access, Severity::Info);
}

fn texts(reading: &Reading, events: usize, bytes: usize) -> Vec<(EventId, String)> {
    let entries = reading.take(events, bytes).entries;
    entries.iter().map(|e| (e.id, String::from_utf8(e.json.to_vec()).unwrap())).collect()
}

#[test]
fn what_is_done_is_not_given_again_also_to_the_next_process() {
    let dir = dir("done");
    let first = queue(&dir);
    let mut reading = Reading::default();
    ["a", "b", "c", "d"].iter().for_each(|text| push(&first, text));
    reading.follow(&first);
    assert_eq!(reading.waiting().events, 4);
    let all = texts(&reading, 10, 1000);
    assert_eq!(all.iter().map(|(_, t)| t.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    // A gap: what stands behind it is done here, and is sent once more by another process.
    reading.done(&[all[0].0, all[2].0]);
    assert_eq!(reading.waiting().events, 2);
    assert_eq!(texts(&reading, 10, 1000), [all[1].clone(), all[3].clone()]);
    assert_eq!(texts(&reading, 1, 1000), [all[1].clone()]);
    assert!(reading.take(1, 1000).is_full);
    // One is given whatever its size.
    assert_eq!(texts(&reading, 10, 0), [all[1].clone()]);
    first.seal();
    drop((first, reading));

    let second = queue(&dir);
    let mut reading = Reading::default();
    assert_eq!(reading.adopt(&second).unwrap(), SPARE);
    assert_eq!(texts(&reading, 10, 1000), all[1..]);
    assert_eq!(reading.waiting().events, 3);
    reading.done(&all[1..].iter().map(|(id, _)| *id).collect::<Vec<_>>());
    assert_eq!(reading.clean(&second), super::reading::Lost::default());
    let own = reading.waiting();
    assert_eq!((own.bytes, own.events, own.oldest_ms), (0, 0, 0));
    // Only the second queue's own segments are left.
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), SPARE);
}

#[test]
fn the_bound_holds_and_what_is_over_it_is_counted() {
    let dir = dir("bound");
    let queue = queue(&dir);
    let text = "x".repeat(60_000);
    for _ in 0..100 {
        push(&queue, &text);
        queue.fill().unwrap();
    }
    assert!(queue.is_full.load(Ordering::Relaxed));
    let held: u64 =
        std::fs::read_dir(&dir.0).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
    assert!(held <= MIN_BYTES, "{held}");
    let mut reading = Reading::default();
    reading.follow(&queue);
    let kept = texts(&reading, 1000, usize::MAX).len() as u64;
    assert_eq!(kept + queue.dropped.load(Ordering::Relaxed), 100);
    // More at hand would only have taken room.
    assert_eq!(queue.spare_wanted.load(Ordering::Relaxed), SPARE);
}

#[test]
fn a_batch_on_its_way_is_found_as_it_was() {
    let dir = dir("state");
    let queue = queue(&dir);
    push(&queue, "a");
    let mut reading = Reading::default();
    reading.follow(&queue);
    let ranges = reading.take(10, 1000).ranges;
    let mut state = State::open(&dir.0).unwrap();
    state.keep(b"mine").unwrap();
    state.note(&ranges).unwrap();
    // A living process's is not taken.
    assert!(State::left(&dir.0).unwrap().is_none());
    push(&queue, "b");
    drop(state);
    let state = State::open(&dir.0).unwrap();
    assert_eq!((state.bytes(), state.in_flight()), (&b"mine"[..], &ranges[..]));
    let again = reading.take_again(state.in_flight()).entries;
    assert_eq!(again.iter().map(|e| e.json).collect::<Vec<_>>(), [b"a"]);
    reading.done_all(&ranges);
    assert_eq!(texts(&reading, 10, 1000)[0].1, "b");
}

#[test]
fn a_state_that_is_half_written_is_the_one_before() {
    let dir = dir("half");
    let mut state = State::open(&dir.0).unwrap();
    state.keep(b"one").unwrap();
    state.keep(b"two").unwrap();
    drop(state);
    let path = std::fs::read_dir(&dir.0).unwrap().next().unwrap().unwrap().path();
    let mut text = std::fs::read(&path).unwrap();
    let at = text.windows(3).position(|w| w == b"two").unwrap();
    text[at] = b'x';
    std::fs::write(&path, text).unwrap();
    assert_eq!(State::open(&dir.0).unwrap().bytes(), b"one");
    assert!(State::none().keep(b"x").is_err());
}
