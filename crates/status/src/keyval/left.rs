//! Zones without a file outlive the process that serves, as shared memory does in NGINX Plus: each change is noted in memory
//! that its master has too (`runtime::journal`), before it is answered, and the process that the master starts after
//! one that was killed puts what is there into its zones. Where there is no master nothing is noted.
//!
//! What is noted takes at most four times what the zones have, and [`SPARE_BYTES`] twice. Lock order: zones, then the journal.

use super::{Entry, Zone};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use weir_base::crc32c::crc32c;
use weir_runtime::clock;
use weir_runtime::journal::Journal;

/// So much may be noted besides before it is written anew.
const SPARE_BYTES: u64 = 256 * 1024;

type Pairs = BTreeMap<Vec<u8>, Entry>;

#[derive(Default)]
struct Left {
    journal: Option<Arc<Journal>>,
    /// By their names and what else makes them the same.
    zones: BTreeMap<Vec<u8>, Weak<Zone>>,
    /// What a process before has left and nobody has taken yet.
    found: BTreeMap<Vec<u8>, Pairs>,
    is_read: bool,
    /// It is written anew when it is longer.
    anew_bytes: u64,
}

static LEFT: Mutex<Option<Left>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Left>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called by a master before its first serving process, and where one is to serve beside another: what either notes is
/// its own. Without memory for it zones begin empty.
pub fn keep() {
    let journal = Journal::new(crc32c).ok().map(Arc::new);
    *lock() = Some(Left { journal, ..Left::default() });
}

/// What a serving process that is started rather than forked is to be handed.
pub fn copies() -> io::Result<Vec<File>> {
    match lock().as_ref().and_then(|left| left.journal.as_ref()) {
        Some(journal) => journal.files().into_iter().map(File::try_clone).collect(),
        None => Ok(Vec::new()),
    }
}

/// Takes it in such a process.
pub fn have(files: [File; 2]) {
    let journal = Some(Arc::new(Journal::of(files, crc32c)));
    *lock() = Some(Left { journal, ..Left::default() });
}

/// A change of a zone's pairs.
pub(crate) enum Note<'a> {
    /// `None`: it is gone.
    Pair(&'a [u8], Option<&'a Entry>),
    Clear,
}

/// Zone, kind, and for a pair until when it is there, its key and its value.
fn record(zone: &[u8], note: &Note) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |text: &[u8]| {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text);
    };
    put(zone);
    match note {
        Note::Clear => {}
        Note::Pair(key, None) => put(key),
        Note::Pair(key, Some(entry)) => {
            put(key);
            put(&entry.value);
            put(&entry.until_ms.unwrap_or(u64::MAX).to_le_bytes());
        }
    }
    out
}

/// Does to what was found before what a record says.
fn replay(found: &mut BTreeMap<Vec<u8>, Pairs>, mut record: &[u8]) -> Option<()> {
    let mut next = || {
        let (len, rest) = record.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        record = rest;
        Some(text)
    };
    let pairs = found.entry(next()?.to_vec()).or_default();
    let Some(key) = next() else {
        pairs.clear();
        return Some(());
    };
    match next() {
        None => drop(pairs.remove(key)),
        Some(value) => {
            let until = u64::from_le_bytes(next()?.try_into().ok()?);
            let until_ms = Some(until).filter(|ms| *ms < u64::MAX);
            pairs.insert(key.to_vec(), Entry { value: value.to_vec(), until_ms });
        }
    }
    Some(())
}

/// A zone without a file is about to serve: what was left for it is put into it.
pub(super) fn begin(zone: &Arc<Zone>) {
    let pairs = {
        let mut left = lock();
        let Some(left) = left.as_mut() else { return };
        let Left { journal: Some(journal), found, is_read, zones, .. } = left else { return };
        if !std::mem::replace(is_read, true) {
            journal.read(|record| {
                // One that cannot be read is none of ours.
                let _ = replay(found, record);
            });
        }
        zones.insert(zone.key.clone(), Arc::downgrade(zone));
        found.remove(&zone.key).unwrap_or_default()
    };
    if pairs.is_empty() {
        return;
    }
    let (now_ms, mut store) = (clock::mono_ms(), zone.write());
    for (key, entry) in pairs {
        // What had room before has it again, unless its time is over.
        let _ = store.add(&key, entry, now_ms);
    }
}

/// All zones of the configuration have begun: what was left for others is forgotten.
pub fn begun() {
    let journal = {
        let mut left = lock();
        let Some(left) = left.as_mut() else { return };
        left.found.clear();
        left.journal.clone()
    };
    journal.iter().for_each(|journal| write_anew(journal));
}

/// What becomes of what was noted, when the zone is locked no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Then {
    #[default]
    Nothing,
    /// It is to be written anew, beside what goes on.
    Anew,
    /// The same at once.
    AnewNow,
}

/// Notes what has changed in a zone that is locked for that.
pub(super) fn note(zone: &Zone, notes: &[Note]) -> Then {
    let (journal, most) = match lock().as_ref() {
        Some(Left { journal: Some(journal), anew_bytes, .. }) => (Arc::clone(journal), *anew_bytes),
        _ => return Then::Nothing,
    };
    let records: Vec<Vec<u8>> = notes.iter().map(|note| record(&zone.key, note)).collect();
    match journal.add(&records) {
        Ok(bytes) if bytes <= most => Then::Nothing,
        Ok(bytes) if bytes <= most.saturating_mul(2) => Then::Anew,
        Ok(_) | Err(_) => Then::AnewNow,
    }
}

/// Writes what zones have in the place of all that was noted: by a thread, so that no worker waits for it, unless that is late.
pub(super) fn follow(then: Then) {
    static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);
    let write = || {
        let journal = lock().as_ref().and_then(|left| left.journal.clone());
        journal.iter().for_each(|journal| write_anew(journal));
    };
    match then {
        Then::Nothing => {}
        Then::Anew if !IS_UNDER_WAY.swap(true, Ordering::Relaxed) => {
            let work = move || {
                write();
                IS_UNDER_WAY.store(false, Ordering::Relaxed);
            };
            if std::thread::Builder::new().name("keyval".into()).spawn(work).is_err() {
                IS_UNDER_WAY.store(false, Ordering::Relaxed);
            }
        }
        Then::Anew => {}
        Then::AnewNow => write(),
    }
}

fn write_anew(journal: &Journal) {
    // One at a time: who waits finds it done, and does it again, which is seldom.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let zones: Vec<Arc<Zone>> = {
        let mut left = lock();
        let Some(left) = left.as_mut() else { return };
        left.zones.retain(|_, zone| zone.strong_count() > 0);
        left.zones.values().filter_map(Weak::upgrade).collect()
    };
    // Nothing is noted while all are held.
    let stores: Vec<_> = zones.iter().map(|zone| (zone, zone.read())).collect();
    let now_ms = clock::mono_ms();
    let pairs = stores.iter().flat_map(|(zone, store)| {
        let note = |(key, entry)| record(&zone.key, &Note::Pair(key, Some(entry)));
        store.iter(now_ms).map(note).collect::<Vec<_>>()
    });
    let records: Vec<Vec<u8>> = pairs.collect();
    // Where there is no memory for it what was noted goes on, and it is tried again with the next change.
    if let Ok(bytes) = journal.begin(&records) {
        if let Some(left) = lock().as_mut() {
            left.anew_bytes = 2 * bytes + SPARE_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_say_what_has_changed() {
        let entry = |value: &str, until_ms| Entry { value: value.as_bytes().to_vec(), until_ms };
        let mut found = BTreeMap::new();
        let (a, b) = (entry("1", None), entry("", Some(5)));
        for note in [
            Note::Pair(b"gone", Some(&a)),
            Note::Clear,
            Note::Pair(b"a", Some(&a)),
            Note::Pair(b"b", Some(&a)),
            Note::Pair(b"b", Some(&b)),
            Note::Pair(b"c", Some(&b)),
            Note::Pair(b"c", None),
        ] {
            assert_eq!(replay(&mut found, &record(b"z", &note)), Some(()));
        }
        let expected = BTreeMap::from([(b"a".to_vec(), a), (b"b".to_vec(), b)]);
        assert_eq!(found, BTreeMap::from([(b"z".to_vec(), expected)]));
        assert_eq!(replay(&mut found, b"\x05\0\0\0zz"), None);
    }
}
