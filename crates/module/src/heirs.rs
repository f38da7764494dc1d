//! Inheritance between levels: what a level says nothing about is made once from the level around it, and
//! all levels that say nothing share it.

use crate::slot::{AnyConf, Page, Slots};
use crate::{ConfResult, Level, SlotVtable};
use foldhash::HashMap;
use std::sync::Arc;

/// What levels inherit depends on what is inherited from, and on whether the level is a block without a
/// name (`if`, `limit_except`), which inherits more.
type From = (usize, bool);

/// The slots of one level of all blocks, as they are inherited. What is inherited from is kept beside
/// what is made of it, so that it keeps its address.
pub struct Heirs {
    /// By the slots' numbers.
    vtables: Vec<Option<&'static SlotVtable>>,
    slots: HashMap<From, (Option<Arc<AnyConf>>, Arc<AnyConf>)>,
    pages: HashMap<From, (Option<Arc<Page>>, Arc<Page>)>,
}

impl Heirs {
    /// `vtables` may be of any level; those of these are merged, in the order in which they have got
    /// their numbers.
    pub fn new(levels: &[Level], vtables: impl Iterator<Item = &'static SlotVtable>) -> Heirs {
        let mut by_number: Vec<Option<&'static SlotVtable>> = Vec::new();
        for v in vtables.filter(|v| levels.contains(&v.level)) {
            let n = (v.number)();
            by_number.resize(by_number.len().max(n + 1), None);
            by_number[n] = Some(v);
        }
        Heirs { vtables: by_number, slots: HashMap::default(), pages: HashMap::default() }
    }

    /// Merges what a level says with the level around it, and takes over what it does not say.
    pub fn fill(&mut self, own: &mut Slots, outer: &Slots, unnamed: bool) -> ConfResult {
        let pages = self.vtables.len().div_ceil(Page::SLOTS);
        own.0.reserve_exact(pages.saturating_sub(own.0.len()));
        own.0.resize_with(own.0.len().max(pages), Page::nothing);
        for (at, page) in own.0.iter_mut().enumerate() {
            let outer = outer.0.get(at).filter(|page| !Page::is_nothing(page));
            if Page::is_nothing(page) {
                *page = self.page(at, outer, unnamed)?;
                continue;
            }
            let slots = Arc::get_mut(page).expect("a level is merged once");
            self.merge_page(at, slots, outer, unnamed)?;
        }
        Ok(())
    }

    fn merge_page(
        &mut self,
        at: usize,
        page: &mut Page,
        outer: Option<&Arc<Page>>,
        unnamed: bool,
    ) -> ConfResult {
        for i in 0..Page::SLOTS {
            let n = at * Page::SLOTS + i;
            let Some(Some(vtable)) = self.vtables.get(n) else { continue };
            let outer = outer.and_then(|page| page.slot(i));
            page.0[i] = match page.take(i) {
                Some(own) => (vtable.merge)(Some(own), outer.map(|slot| &**slot), unnamed)?,
                None => self.slot(n, vtable, outer, unnamed)?,
            };
        }
        Ok(())
    }

    /// A page of which a level says nothing.
    fn page(
        &mut self,
        at: usize,
        outer: Option<&Arc<Page>>,
        unnamed: bool,
    ) -> ConfResult<Arc<Page>> {
        let from = (outer.map_or(at, |page| Arc::as_ptr(page).addr()), unnamed);
        if let Some((_, made)) = self.pages.get(&from) {
            return Ok(Arc::clone(made));
        }
        let mut page = Page::default();
        self.merge_page(at, &mut page, outer, unnamed)?;
        let made = Arc::new(page);
        self.pages.insert(from, (outer.cloned(), Arc::clone(&made)));
        Ok(made)
    }

    /// A slot of which a level says nothing.
    fn slot(
        &mut self,
        n: usize,
        vtable: &SlotVtable,
        outer: Option<&Arc<AnyConf>>,
        unnamed: bool,
    ) -> ConfResult<Arc<AnyConf>> {
        // No address is as small as a slot's number.
        let from = (outer.map_or(n, |slot| Arc::as_ptr(slot).addr()), unnamed);
        if let Some((_, made)) = self.slots.get(&from) {
            return Ok(Arc::clone(made));
        }
        let made = (vtable.merge)(None, outer.map(|slot| &**slot), unnamed)?;
        self.slots.insert(from, (outer.cloned(), Arc::clone(&made)));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{slot, ConfType, Val};

    #[derive(Default)]
    struct Shared(Val<u32>);

    impl ConfType for Shared {
        const LEVEL: Level = Level::Location;
        slot!();
        fn merge(&mut self, outer: &Shared) -> ConfResult {
            self.0.merge(&outer.0, || 7);
            Ok(())
        }
    }

    /// Counts how often it is merged: by how deep it is.
    #[derive(Default)]
    struct Deep(u32, bool);

    impl ConfType for Deep {
        const LEVEL: Level = Level::Location;
        slot!();
    }

    const DEEP: SlotVtable = SlotVtable {
        merge: |own, outer, unnamed| {
            crate::merged(own, outer, |own: &mut Deep, outer: &Deep| {
                *own = Deep(outer.0 + 1, unnamed);
                Ok(())
            })
        },
        ..SlotVtable::of::<Deep>()
    };

    static VTABLES: [SlotVtable; 2] = [SlotVtable::of::<Shared>(), DEEP];

    fn heirs() -> Heirs {
        Heirs::new(&[Level::Location], VTABLES.iter())
    }

    fn child(heirs: &mut Heirs, outer: &Slots, unnamed: bool) -> Slots {
        let mut own = Slots::default();
        heirs.fill(&mut own, outer, unnamed).unwrap();
        own
    }

    #[test]
    fn what_says_nothing_is_the_same() {
        let mut heirs = heirs();
        let mut http = Slots::default();
        http.get_mut::<Deep>();
        let servers = [child(&mut heirs, &http, false), child(&mut heirs, &http, false)];
        let inner = [child(&mut heirs, &servers[0], false), child(&mut heirs, &servers[1], false)];
        assert!(std::ptr::eq(servers[0].get::<Shared>(), servers[1].get()));
        assert!(std::ptr::eq(inner[0].get::<Deep>(), inner[1].get()));
        assert_eq!((*servers[0].get::<Shared>().0, servers[0].get::<Deep>().0), (7, 1));
        assert_eq!(inner[0].get::<Deep>().0, 2);
        let tables = [&servers[..], &inner[..]].concat();
        assert_eq!(crate::distinct::<Deep>(&tables).len(), 2);
    }

    #[test]
    fn what_says_something_is_its_own() {
        let mut heirs = heirs();
        let http = Slots::default();
        let quiet = child(&mut heirs, &http, false);
        let mut loud = Slots::default();
        loud.get_mut::<Shared>().0.set(1);
        heirs.fill(&mut loud, &http, false).unwrap();
        let below = child(&mut heirs, &loud, false);
        assert_eq!((*loud.get::<Shared>().0, *below.get::<Shared>().0), (1, 1));
        assert_eq!(*quiet.get::<Shared>().0, 7);
        assert!(std::ptr::eq(loud.get::<Deep>(), quiet.get()));
    }

    #[test]
    fn a_block_without_a_name_is_told_apart() {
        let mut heirs = heirs();
        let outer = child(&mut heirs, &Slots::default(), false);
        let inner = [child(&mut heirs, &outer, false), child(&mut heirs, &outer, true)];
        assert_eq!(inner.map(|i| i.get::<Deep>().1), [false, true]);
    }

    #[test]
    fn an_error_is_that_of_the_level_that_meets_it() {
        #[derive(Default)]
        struct Bad(bool);
        impl ConfType for Bad {
            const LEVEL: Level = Level::Location;
            slot!();
            fn merge(&mut self, _: &Bad) -> ConfResult {
                match self.0 {
                    true => Ok(()),
                    false => Err(crate::Diagnostic::emerg("bad".to_string())),
                }
            }
        }
        static BAD: [SlotVtable; 1] = [SlotVtable::of::<Bad>()];
        let mut heirs = Heirs::new(&[Level::Location], BAD.iter());
        let mut own = Slots::default();
        own.get_mut::<Bad>().0 = true;
        heirs.fill(&mut own, &Slots::default(), false).unwrap();
        assert!(heirs.fill(&mut Slots::default(), &Slots::default(), false).is_err());
    }
}
