//! The memory tier over a restart: which entries are in it is noted now and then, and at the end, and read by the
//! loader before all else.
//!
//! The list is a hint: keys alone, so that it can name nothing outside the cache, the last used first, no more than
//! [`KEYS_MAX`]. It is written beside its place and renamed, and never before it has been read. What is damaged or of
//! another layout is passed over with a warning. Entries come in only as far as memory is free: what is asked for
//! meanwhile is never put out for them.

use crate::entry::crc32;
use crate::manager::{Log, Work};
use crate::purger::open_plain;
use crate::spool;
use crate::store::Store;
use crate::Key;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Weak;
use std::time::Duration;
use weir_runtime::{clock, files};

/// Below the store's directory.
pub(crate) const NAME: &str = "memory.list";
const MAGIC: [u8; 8] = *b"weirmem1";
/// Mark, checksum, levels, and one byte.
const FIXED_BYTES: usize = 16;
/// A megabyte of them.
pub(crate) const KEYS_MAX: usize = 65_536;
const PERIOD_MS: u64 = 60_000;

/// What a store knows of its list.
#[derive(Default)]
pub(crate) struct Warm {
    /// It has been read: from now on it may be written.
    is_read: AtomicBool,
    noted_ms: AtomicU64,
    /// The checksum of what was written last.
    noted: AtomicU64,
    /// That it cannot be written has been said.
    told: AtomicBool,
}

/// Whether a file's name is that of a list that is being written.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_prefix(NAME).is_some_and(|rest| rest.starts_with('.'))
}

fn encode(keys: &[Key], levels: &[u8; 3]) -> Vec<u8> {
    let mut rest = Vec::with_capacity(4 + keys.len() * 16);
    rest.extend_from_slice(levels);
    rest.push(0);
    keys.iter().for_each(|key| rest.extend_from_slice(&key.0));
    [&MAGIC[..], &crc32(&rest).to_le_bytes(), &rest].concat()
}

/// The keys; an error says what is wrong.
fn decode(bytes: &[u8], levels: &[u8; 3]) -> Result<Vec<Key>, &'static str> {
    let bad = "is not a list of what was in memory";
    let (magic, rest) = bytes.split_first_chunk().ok_or(bad)?;
    let (sum, rest) = rest.split_first_chunk().ok_or(bad)?;
    let (theirs, keys) = rest.split_first_chunk::<4>().ok_or(bad)?;
    let is_good = *magic == MAGIC && u32::from_le_bytes(*sum) == crc32(rest);
    if !is_good || keys.len() % 16 != 0 || keys.len() / 16 > KEYS_MAX {
        return Err(bad);
    }
    if theirs[..3] != levels[..] {
        return Err("is of other \"levels\"");
    }
    Ok(keys.chunks_exact(16).filter_map(|key| Some(Key(key.try_into().ok()?))).collect())
}

impl Store {
    fn list(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    /// Notes what is in memory, if it is time to.
    pub(crate) fn note_memory_now_and_then(&self, log: &Log) {
        let (now, warm) = (clock::mono_ms(), &self.warm);
        if now.saturating_sub(warm.noted_ms.load(Ordering::Relaxed)) < PERIOD_MS {
            return;
        }
        warm.noted_ms.store(now, Ordering::Relaxed);
        if let Err(e) = self.note_memory() {
            if !warm.told.swap(true, Ordering::Relaxed) {
                let shown = self.list().display().to_string();
                log("warn", &format!("\"{shown}\" cannot be written ({e}): memory begins empty"));
            }
        }
    }

    /// Notes what is in memory.
    pub fn note_memory(&self) -> io::Result<()> {
        if self.budget.limit() == 0 || !self.warm.is_read.load(Ordering::Acquire) {
            return Ok(());
        }
        let text = encode(&self.zone.memory_keys(KEYS_MAX), &self.levels);
        // One more than it is, for none at all.
        let sum = u64::from(crc32(&text)) + 1;
        if self.warm.noted.swap(sum, Ordering::Relaxed) == sum {
            return Ok(());
        }
        let temp = spool::beside(&self.list());
        let mut file = spool::create_private(&temp)?;
        let done = file.write_all(&text).and_then(|()| files::replace(&temp, &self.list()));
        if done.is_err() {
            self.warm.noted.store(0, Ordering::Relaxed);
            let _ = std::fs::remove_file(&temp);
        }
        done
    }

    /// What was in memory, as far as can be told.
    fn noted(&self, log: &Log) -> Vec<Key> {
        if self.budget.limit() == 0 {
            return Vec::new();
        }
        let most = FIXED_BYTES + KEYS_MAX * 16;
        let mut text = Vec::new();
        let read = open_plain(&self.list())
            .and_then(|file| file.take(most as u64 + 1).read_to_end(&mut text));
        let keys = match read {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(e) => Err(e.to_string()),
            Ok(_) => decode(&text, &self.levels).map_err(str::to_string),
        };
        keys.unwrap_or_else(|why| {
            let shown = self.list().display().to_string();
            log("warn", &format!("\"{shown}\" {why}: memory begins empty"));
            Vec::new()
        })
    }
}

/// Reads into memory what was there; answers what that was, the last used first.
pub(crate) fn begin(store: &Weak<Store>, log: &Log) -> Vec<Key> {
    let Some(live) = store.upgrade() else { return Vec::new() };
    let keys = live.noted(log);
    let mut work = Work::new(live.params().loader);
    drop(live);
    for key in &keys {
        let Some(live) = store.upgrade() else { return Vec::new() };
        // What cannot be read is for who asks for it.
        if !live.warm_up(key).unwrap_or(true) {
            break;
        }
        if work.is_enough() {
            let pace = live.params().loader;
            drop(live);
            std::thread::sleep(Duration::from_millis(pace.sleep_ms));
            work = Work::new(pace);
        }
    }
    if let Some(live) = store.upgrade() {
        live.warm.noted_ms.store(clock::mono_ms(), Ordering::Relaxed);
        live.warm.is_read.store(true, Ordering::Release);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let keys: Vec<Key> = (0..50u8).map(|n| Key::of(&[n])).collect();
        let text = encode(&keys, &[1, 2, 0]);
        assert_eq!(decode(&text, &[1, 2, 0]), Ok(keys));
        assert_eq!(decode(&text, &[1, 1, 0]), Err("is of other \"levels\""));
        assert_eq!(decode(&encode(&[], &[0; 3]), &[0; 3]), Ok(Vec::new()));
        for at in 0..text.len() {
            let mut torn = text.clone();
            torn[at] ^= 1;
            assert!(decode(&torn, &[1, 2, 0]).is_err(), "byte {at}");
            assert!(decode(&text[..at], &[1, 2, 0]).is_err(), "{at} bytes");
        }
        let many = encode(&vec![Key([0; 16]); KEYS_MAX + 1], &[0; 3]);
        assert!(decode(&many, &[0; 3]).is_err());
        let of = [NAME, "memory.list.0123456789", "memory.lists", "memory"];
        assert_eq!(of.map(is_temporary), [false, true, false, false]);
    }
}
