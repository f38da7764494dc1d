//! Compressed forms of an entity that is kept in memory: made once per coding and level.

use bytes::Bytes;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use tokio::sync::MutexGuard;

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
    /// There was none for one of them.
    is_refused: AtomicBool,
    /// Whose turn it is to make one.
    making: tokio::sync::Mutex<()>,
}

impl Forms {
    /// Forms within somebody's bound.
    pub fn bounded(room: Box<dyn Room>) -> Forms {
        Forms { room: Some(room), ..Forms::default() }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<(u32, Bytes)>> {
        self.kept.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The form with that key (coding and level), if it is kept.
    pub fn find(&self, key: u32) -> Option<Bytes> {
        self.kept().iter().find(|(k, _)| *k == key).map(|(_, form)| form.clone())
    }

    /// Keeps a form that was made, if there is room.
    pub fn keep(&self, key: u32, form: &Bytes) {
        if self.kept().len() >= FORMS_MAX {
            return;
        }
        // Nothing is locked while room is made.
        let kept = match &self.room {
            None => Some(form.clone()),
            Some(room) => room.keep(form),
        };
        let Some(kept) = kept else {
            return self.is_refused.store(true, Ordering::Relaxed);
        };
        let mut list = self.kept();
        if list.len() < FORMS_MAX && list.iter().all(|(k, _)| *k != key) {
            self.bytes.fetch_add(kept.len(), Ordering::Relaxed);
            list.push((key, kept));
        }
    }

    /// Waits until nobody else makes a form of the same entity. Nobody does, and it is no use to wait, where forms
    /// are not kept.
    pub async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        match self.is_refused.load(Ordering::Relaxed) || self.kept().len() >= FORMS_MAX {
            true => None,
            false => Some(self.making.lock().await),
        }
    }

    /// Memory that the forms take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
