//! Typed configuration slots: one per module and level, found by a small number instead of a hash.

use crate::ConfResult;
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// At which level of a protocol's block a slot lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Once per configuration: the main and `events` contexts.
    Global,
    /// Once per `http` block.
    Main,
    /// Once per `server`.
    Server,
    /// Once per `location` (and per `if` and `limit_except`, which are unnamed locations).
    Location,
}

/// A module's configuration at one level.
pub trait ConfType: Any + Send + Sync + Default {
    const LEVEL: Level;
    /// The place where the slot's number is kept; write `slot!();` in the impl.
    fn key() -> &'static SlotKey;
    /// Fills what this level left unset from the outer level.
    fn merge(&mut self, _parent: &Self) -> ConfResult {
        Ok(())
    }
}

/// Declares the slot's number inside an `impl ConfType`.
#[macro_export]
macro_rules! slot {
    () => {
        fn key() -> &'static $crate::SlotKey {
            static KEY: $crate::SlotKey = $crate::SlotKey::new();
            &KEY
        }
    };
}

/// A slot's number, given out at first use.
pub struct SlotKey(AtomicUsize);

static NEXT: AtomicUsize = AtomicUsize::new(1);

impl SlotKey {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> SlotKey {
        SlotKey(AtomicUsize::new(0))
    }

    pub fn number(&self) -> usize {
        match self.0.load(Ordering::Relaxed) {
            0 => self.assign(),
            n => n,
        }
    }

    #[cold]
    fn assign(&self) -> usize {
        let fresh = NEXT.fetch_add(1, Ordering::Relaxed);
        match self.0.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => fresh,
            Err(taken) => taken,
        }
    }
}

type AnyConf = dyn Any + Send + Sync;

/// The slots of one level: written while the configuration is read, shared once it is merged.
#[derive(Default, Clone)]
pub struct Slots(Vec<Option<Arc<AnyConf>>>);

impl Slots {
    /// The slot for writing, made when missing. Only while the configuration is read.
    pub fn get_mut<T: ConfType>(&mut self) -> &mut T {
        let n = T::key().number();
        if self.0.len() <= n {
            self.0.resize(n + 1, None);
        }
        let place = &mut self.0[n];
        let arc = place.get_or_insert_with(|| Arc::new(T::default()));
        Arc::get_mut(arc)
            .and_then(|any| any.downcast_mut::<T>())
            .expect("slots are written only while they are not shared")
    }

    pub fn find<T: ConfType>(&self) -> Option<&T> {
        self.0.get(T::key().number()).and_then(|s| s.as_ref()).and_then(|a| a.downcast_ref())
    }

    /// The slot itself, for keeping a direct handle on it.
    pub fn share<T: ConfType>(&self) -> Arc<T> {
        let slot = self.0.get(T::key().number()).and_then(Option::as_ref);
        slot.and_then(|s| Arc::clone(s).downcast().ok())
            .expect("a slot that a module registered exists after the merge")
    }

    /// The slot for reading. Every registered slot exists after the merge.
    #[inline]
    pub fn get<T: ConfType>(&self) -> &T {
        self.find::<T>().expect("a slot that a module registered exists after the merge")
    }
}

/// What the walker needs to make and merge a slot without knowing its type.
pub struct SlotVtable {
    pub level: Level,
    pub create: fn(&mut Slots),
    pub merge: fn(&mut Slots, &Slots) -> ConfResult,
}

impl SlotVtable {
    pub const fn of<T: ConfType>() -> SlotVtable {
        SlotVtable { level: T::LEVEL, create: create::<T>, merge: merge::<T> }
    }
}

fn create<T: ConfType>(slots: &mut Slots) {
    slots.get_mut::<T>();
}

fn merge<T: ConfType>(child: &mut Slots, parent: &Slots) -> ConfResult {
    let fallback = T::default();
    let outer = parent.find::<T>().unwrap_or(&fallback);
    child.get_mut::<T>().merge(outer)
}
