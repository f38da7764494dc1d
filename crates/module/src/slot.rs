//! Typed configuration slots: one per module and level, found by a small number instead of a hash.
//!
//! A level's table has pages of a few slots. While the configuration is read a level has the slots that
//! it says something about; [`Heirs`](crate::Heirs) then fills in the others, shared where they are the same.

use crate::ConfResult;
use foldhash::{HashSet, HashSetExt as _};
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

/// Slots that stand together: a level that says something about one of them has these of its own,
/// and shares all other pages with the level around it.
const PAGE_SLOTS: usize = 8;

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

/// A slot's number, given out at first use. A page has slots of one level, so that the tables of two levels
/// can be joined.
pub struct SlotKey(AtomicUsize);

/// Beyond every table, so that a slot without a number is found in none.
const NO_NUMBER: usize = usize::MAX;

/// What has been given out.
struct Numbers {
    /// The next of each level.
    next: [usize; 4],
    pages: usize,
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { next: [0; 4], pages: 0 });

impl Numbers {
    fn give(&mut self, level: Level) -> usize {
        let next = &mut self.next[level as usize];
        if next.is_multiple_of(PAGE_SLOTS) {
            *next = self.pages * PAGE_SLOTS;
            self.pages += 1;
        }
        *next += 1;
        *next - 1
    }
}

impl SlotKey {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> SlotKey {
        SlotKey(AtomicUsize::new(NO_NUMBER))
    }

    fn number(&self, level: Level) -> usize {
        match self.0.load(Ordering::Relaxed) {
            NO_NUMBER => self.assign(level),
            n => n,
        }
    }

    #[cold]
    fn assign(&self, level: Level) -> usize {
        let fresh = NUMBERS.lock().unwrap_or_else(|e| e.into_inner()).give(level);
        match self.0.compare_exchange(NO_NUMBER, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => fresh,
            Err(taken) => taken,
        }
    }
}

/// A slot of any type.
pub type AnyConf = dyn Any + Send + Sync;

/// In the places of slots that a level does not have.
struct Nothing;

static NOTHING: LazyLock<Arc<AnyConf>> = LazyLock::new(|| Arc::new(Nothing));

/// Slots that stand together. Every place holds something, so that looking one up is as short as can be.
pub(crate) struct Page(pub(crate) [Arc<AnyConf>; PAGE_SLOTS]);

static NO_PAGE: LazyLock<Arc<Page>> = LazyLock::new(Arc::default);

impl Default for Page {
    fn default() -> Page {
        Page(std::array::from_fn(|_| Arc::clone(&NOTHING)))
    }
}

impl Page {
    pub(crate) const SLOTS: usize = PAGE_SLOTS;

    /// The page of a level that has none of its slots.
    pub(crate) fn nothing() -> Arc<Page> {
        Arc::clone(&NO_PAGE)
    }

    pub(crate) fn is_nothing(page: &Arc<Page>) -> bool {
        Arc::ptr_eq(page, &NO_PAGE)
    }

    /// The slot in a place, if there is one.
    pub(crate) fn slot(&self, i: usize) -> Option<&Arc<AnyConf>> {
        Some(&self.0[i]).filter(|slot| !slot.is::<Nothing>())
    }

    pub(crate) fn take(&mut self, i: usize) -> Option<Arc<AnyConf>> {
        let slot = std::mem::replace(&mut self.0[i], Arc::clone(&NOTHING));
        (!slot.is::<Nothing>()).then_some(slot)
    }
}

/// The slots of one level: written while the configuration is read, shared once it is merged.
#[derive(Default, Clone)]
pub struct Slots(pub(crate) Vec<Arc<Page>>);

impl Slots {
    /// The slot for writing, made when missing. Only while the configuration is read, or where a level
    /// has one of its own.
    pub fn get_mut<T: ConfType>(&mut self) -> &mut T {
        let n = T::key().number(T::LEVEL);
        if self.0.len() <= n / PAGE_SLOTS {
            self.0.resize_with(n / PAGE_SLOTS + 1, Page::nothing);
        }
        let page = &mut self.0[n / PAGE_SLOTS];
        if Page::is_nothing(page) {
            *page = Arc::default();
        }
        let page = Arc::get_mut(page).expect("pages are written only while they are not shared");
        let arc = &mut page.0[n % PAGE_SLOTS];
        if !arc.is::<T>() {
            *arc = Arc::new(T::default());
        }
        Arc::get_mut(arc)
            .and_then(|any| any.downcast_mut::<T>())
            .expect("slots are written only while they are not shared")
    }

    #[inline]
    fn place<T: ConfType>(&self) -> Option<&Arc<AnyConf>> {
        let n = T::key().0.load(Ordering::Relaxed);
        Some(&self.0.get(n / PAGE_SLOTS)?.0[n % PAGE_SLOTS])
    }

    #[inline]
    pub fn find<T: ConfType>(&self) -> Option<&T> {
        self.place::<T>().and_then(|a| a.downcast_ref())
    }

    /// Adds the slots of another level.
    pub fn join(&mut self, other: Slots) {
        self.0.resize_with(self.0.len().max(other.0.len()), Page::nothing);
        for (place, page) in self.0.iter_mut().zip(other.0).filter(|(_, p)| !Page::is_nothing(p)) {
            *place = page;
        }
    }

    /// The slot itself, for keeping a direct handle on it.
    pub fn share<T: ConfType>(&self) -> Arc<T> {
        self.place::<T>()
            .and_then(|s| Arc::clone(s).downcast().ok())
            .expect("a slot that a module registered exists after the merge")
    }

    /// The slot for reading. Every registered slot exists after the merge.
    #[inline]
    pub fn get<T: ConfType>(&self) -> &T {
        self.find::<T>().expect("a slot that a module registered exists after the merge")
    }
}

/// The slots of one type in these tables, each once, in the order in which they are first met.
pub fn distinct<T: ConfType>(tables: &[Slots]) -> Vec<&T> {
    let mut seen = HashSet::new();
    let mut last = std::ptr::null();
    let mut is_new = |slot: &&T| {
        let here: *const T = *slot;
        here != std::mem::replace(&mut last, here) && seen.insert(here)
    };
    tables.iter().filter_map(Slots::find::<T>).filter(|slot| is_new(slot)).collect()
}

/// What becomes of a level's own slot, or of none, below the outer level's.
pub type MergeFn = fn(
    own: Option<Arc<AnyConf>>,
    outer: Option<&AnyConf>,
    unnamed: bool,
) -> ConfResult<Arc<AnyConf>>;

/// What the walker needs to make and merge a slot without knowing its type.
pub struct SlotVtable {
    pub level: Level,
    pub create: fn(&mut Slots),
    pub number: fn() -> usize,
    pub merge: MergeFn,
}

impl SlotVtable {
    pub const fn of<T: ConfType>() -> SlotVtable {
        SlotVtable {
            level: T::LEVEL,
            create: |slots| _ = slots.get_mut::<T>(),
            number: || T::key().number(T::LEVEL),
            merge: |own, outer, _| merged(own, outer, T::merge),
        }
    }
}

/// Merges a slot of one type by the rule that is given.
pub fn merged<T: ConfType>(
    own: Option<Arc<AnyConf>>,
    outer: Option<&AnyConf>,
    merge: impl FnOnce(&mut T, &T) -> ConfResult,
) -> ConfResult<Arc<AnyConf>> {
    let mut own = own.unwrap_or_else(|| Arc::new(T::default()));
    let slot = Arc::get_mut(&mut own)
        .and_then(|any| any.downcast_mut::<T>())
        .expect("a slot is merged once, before it is shared");
    match outer.and_then(|any| any.downcast_ref::<T>()) {
        Some(outer) => merge(slot, outer)?,
        None => merge(slot, &T::default())?,
    }
    Ok(own)
}
