//! Compressed forms of an entity that is kept in memory: made once per coding and level.

use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// At most this many forms are kept per entity.
const FORMS_MAX: usize = 4;

/// Whoever bounds the memory that forms take.
pub trait Room: Send + Sync {
    /// The form as it may be kept, or `None` when there is no room for it.
    fn keep(&self, form: &Bytes) -> Option<Bytes>;
}

/// The forms of one entity, and how much room they take together. Workers may share them.
#[derive(Default)]
pub struct Forms {
    kept: Mutex<Vec<(u32, Bytes)>>,
    bytes: AtomicUsize,
    room: Option<Box<dyn Room>>,
}

impl Forms {
    /// Forms within somebody's bound.
    pub fn bounded(room: Box<dyn Room>) -> Forms {
        Forms { room: Some(room), ..Forms::default() }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<(u32, Bytes)>> {
        self.kept.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The form with that key (coding and level), made by `make` if it is not kept yet. Nothing is
    /// locked while it is made.
    pub fn get(&self, key: u32, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        if let Some((_, form)) = self.kept().iter().find(|(k, _)| *k == key) {
            return Some(form.clone());
        }
        let form = make()?;
        if self.kept().len() >= FORMS_MAX {
            return Some(form);
        }
        let kept = match &self.room {
            None => form.clone(),
            Some(room) => match room.keep(&form) {
                Some(kept) => kept,
                None => return Some(form),
            },
        };
        let mut list = self.kept();
        if list.len() < FORMS_MAX && list.iter().all(|(k, _)| *k != key) {
            self.bytes.fetch_add(kept.len(), Ordering::Relaxed);
            list.push((key, kept));
        }
        Some(form)
    }

    /// Memory that the forms take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
