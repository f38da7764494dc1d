//! Logs whose names have variables: opened for each line, or kept open per worker where
//! `open_log_file_cache` says so.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::rc::Rc;

use weir_runtime::{clock, files, paths};

/// `open_log_file_cache`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileCache {
    pub max: usize,
    /// Unused for this long, a file is closed.
    pub inactive_secs: i64,
    /// After this long it is checked that the name still means the same file.
    pub valid_secs: i64,
    /// Named less often than this, a file is not kept.
    pub min_uses: u64,
}

struct Entry {
    file: Option<Rc<File>>,
    uses: u64,
    used: i64,
    /// The number of its last use, for finding the least recent.
    turn: u64,
    checked: i64,
}

#[derive(Default)]
struct Open {
    entries: HashMap<Vec<u8>, Entry>,
    turn: u64,
    /// When unused files were last closed.
    swept: i64,
}

thread_local! {
    static OPEN: RefCell<Open> = RefCell::default();
}

pub fn open(cache: Option<&FileCache>, path: &[u8]) -> io::Result<Rc<File>> {
    match cache {
        Some(cache) => OPEN.with_borrow_mut(|open| cached(open, cache, path)),
        None => fresh(path),
    }
}

fn fresh(path: &[u8]) -> io::Result<Rc<File>> {
    files::append_at_once(&paths::path(path)).map(Rc::new)
}

fn cached(all: &mut Open, cache: &FileCache, path: &[u8]) -> io::Result<Rc<File>> {
    let now = clock::wall_secs();
    all.turn += 1;
    let turn = all.turn;
    if all.swept != now {
        all.swept = now;
        all.entries.retain(|_, e| now - e.used <= cache.inactive_secs);
    }
    let mut uses = 1;
    if let Some(entry) = all.entries.get_mut(path) {
        entry.uses += 1;
        entry.used = now;
        entry.turn = turn;
        uses = entry.uses;
        if let Some(file) = &entry.file {
            let is_due = now - entry.checked >= cache.valid_secs;
            if !is_due || files::is_named(file, &paths::path(path)) {
                if is_due {
                    entry.checked = now;
                }
                return Ok(Rc::clone(file));
            }
        }
    }
    // A file that cannot be opened takes no place.
    let file = fresh(path)?;
    if !all.entries.contains_key(path) {
        all.make_room(cache.max);
    }
    let kept = (uses >= cache.min_uses).then(|| Rc::clone(&file));
    let entry = Entry { file: kept, uses, used: now, turn, checked: now };
    all.entries.insert(path.to_vec(), entry);
    Ok(file)
}

impl Open {
    fn make_room(&mut self, max: usize) {
        while self.entries.len() >= max {
            let oldest = self.entries.iter().min_by_key(|(_, e)| e.turn).map(|(p, _)| p.clone());
            let Some(oldest) = oldest else { return };
            self.entries.remove(&oldest);
        }
    }
}

/// Closes all kept files of this worker.
pub fn forget_all() {
    OPEN.with_borrow_mut(|open| open.entries.clear());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_bounded_and_checked() {
        let dir = std::env::temp_dir().join(format!("weir-log-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = |n: &str| paths::bytes(&dir.join(n)).to_vec();
        let cache = FileCache { max: 2, inactive_secs: 100, valid_secs: 100, min_uses: 2 };
        let mut open = Open::default();
        let first = cached(&mut open, &cache, &path("a")).unwrap();
        let second = cached(&mut open, &cache, &path("a")).unwrap();
        let third = cached(&mut open, &cache, &path("a")).unwrap();
        assert!(!Rc::ptr_eq(&first, &second) && Rc::ptr_eq(&second, &third));
        for name in ["b", "c", "d"] {
            cached(&mut open, &cache, &path(name)).unwrap();
        }
        assert_eq!(open.entries.len(), 2);
        let checking = FileCache { max: 9, inactive_secs: 100, valid_secs: 0, min_uses: 1 };
        let kept = cached(&mut open, &checking, &path("e")).unwrap();
        assert!(Rc::ptr_eq(&kept, &cached(&mut open, &checking, &path("e")).unwrap()));
        std::fs::remove_file(dir.join("e")).unwrap();
        assert!(!Rc::ptr_eq(&kept, &cached(&mut open, &checking, &path("e")).unwrap()));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
