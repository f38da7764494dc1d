//! Compressed forms of an entity that is kept in memory: made once per coding and level.

use bytes::Bytes;
use std::cell::{Cell, RefCell};

/// At most this many forms are kept per entity.
const FORMS_MAX: usize = 4;

/// The forms of one entity, and how much room they may take together.
#[derive(Default)]
pub struct Forms {
    kept: RefCell<Vec<(u32, Bytes)>>,
    bytes: Cell<usize>,
}

impl Forms {
    /// The form with that key (coding and level), made by `make` if it is not kept yet.
    pub fn get(&self, key: u32, make: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
        if let Some((_, form)) = self.kept.borrow().iter().find(|(k, _)| *k == key) {
            return Some(form.clone());
        }
        let form = make()?;
        let mut kept = self.kept.borrow_mut();
        if kept.len() < FORMS_MAX {
            self.bytes.set(self.bytes.get() + form.len());
            kept.push((key, form.clone()));
        }
        Some(form)
    }

    /// Memory that the forms take.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }
}
