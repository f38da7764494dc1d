//! What all parts of one page may take together, however they are nested.
//!
//! nginx bounds the depth alone, so that a page that includes itself twice asks for 2^50 parts. An
//! honest page is put together from some hundred fragments, a few documents deep: it may have
//! [`MADE_MAX`]. What grows without a page's text growing is a document within itself, under one
//! name or under ever new ones: a part that one of those around it has the path of, or that is
//! deeper than [`FLAT_NESTED`], counts against [`REPEATED_MAX`] too. A thread of comments that is
//! put together that way stays below.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::rc::Rc;

/// Parts within parts.
const NESTED_MAX: u8 = 50;
/// Parts of a page that run at a time. Slices of one answer count only here.
const LIVE_MAX: usize = 1000;
/// Parts of a page in all.
const MADE_MAX: usize = 4096;
/// Those that are within themselves, or deeper than `FLAT_NESTED`.
const REPEATED_MAX: usize = 1000;
const FLAT_NESTED: u8 = 4;
/// From so many on, each document of a page should run one part at a time.
const CROWDED: usize = 500;
/// Memory of a page's parts that waits for its turn: from the first on a part waits until what it
/// has put out is taken, at the second no further part is made.
const AHEAD_BYTES: u64 = 4 * 1024 * 1024;
const MAX_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Default)]
pub(super) struct Page {
    made: Cell<usize>,
    repeated: Cell<usize>,
    live: Cell<usize>,
    /// Memory of what waits.
    pub(super) bytes: Cell<u64>,
    /// The reasons that have been told, a bit each.
    told: Cell<u8>,
}

/// Why no further part is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Full {
    Nested,
    Live,
    Made,
    Repeated,
    Bytes,
}

impl Full {
    pub(super) fn text(self) -> &'static str {
        match self {
            Full::Nested => "subrequests cycle",
            Full::Live => "too many subrequests of one page at a time",
            Full::Made => "too many subrequests of one page",
            Full::Repeated => "too many subrequests of one page within themselves",
            Full::Bytes => "subrequests of one page hold too much",
        }
    }
}

impl Page {
    pub(super) fn is_ahead(&self) -> bool {
        self.bytes.get() > AHEAD_BYTES
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.live.get() >= CROWDED
    }

    /// Counts a part, unless it would be one too many.
    pub(super) fn admit(&self, way: &Way) -> Result<(), Full> {
        self.has_room(way)?;
        if self.made.get() >= MADE_MAX {
            return Err(Full::Made);
        }
        if way.repeats() {
            if self.repeated.get() >= REPEATED_MAX {
                return Err(Full::Repeated);
            }
            self.repeated.set(self.repeated.get() + 1);
        }
        self.made.set(self.made.get() + 1);
        Ok(())
    }

    /// Whether one more may run now.
    pub(super) fn has_room(&self, way: &Way) -> Result<(), Full> {
        if way.nested > NESTED_MAX {
            return Err(Full::Nested);
        }
        if self.live.get() >= LIVE_MAX {
            return Err(Full::Live);
        }
        match self.bytes.get() >= MAX_BYTES {
            true => Err(Full::Bytes),
            false => Ok(()),
        }
    }

    /// Whether this reason is new: each is told once, or the log would grow by more than the page.
    pub(super) fn is_news(&self, why: Full) -> bool {
        let bit = 1 << why as u8;
        self.told.replace(self.told.get() | bit) & bit == 0
    }
}

/// One part; it counts until it is dropped.
pub(super) struct Live(Rc<Page>);

impl Live {
    pub(super) fn new(page: &Rc<Page>) -> Live {
        page.live.set(page.live.get() + 1);
        Live(Rc::clone(page))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.set(self.0.live.get() - 1);
    }
}

/// What a part is within.
#[derive(Default)]
pub(super) struct Way {
    /// Of the path, arguments left out: who counts in them still includes himself.
    hash: u64,
    nested: u8,
    above: Option<Rc<Way>>,
}

impl Way {
    pub(super) fn of_main(path: &[u8]) -> Way {
        Way { hash: hash(path), nested: 0, above: None }
    }

    /// A copy of a request, on its own.
    pub(super) fn of_copy() -> Way {
        Way { nested: 1, ..Way::default() }
    }

    pub(super) fn to(above: &Rc<Way>, path: &[u8]) -> Way {
        let nested = above.nested.saturating_add(1);
        Way { hash: hash(path), nested, above: Some(Rc::clone(above)) }
    }

    /// Whether this part is within itself, as far as can be told.
    fn repeats(&self) -> bool {
        if self.nested > FLAT_NESTED {
            return true;
        }
        let mut above = self.above.as_deref();
        while let Some(way) = above {
            if way.hash == self.hash {
                return true;
            }
            above = way.above.as_deref();
        }
        false
    }
}

fn hash(path: &[u8]) -> u64 {
    thread_local! {
        static STATE: foldhash::fast::RandomState = foldhash::fast::RandomState::default();
    }
    STATE.with(|state| state.hash_one(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of the page, of which each asks for `width` more of the given paths.
    fn made(page: &Page, way: &Rc<Way>, width: usize, path: fn(usize) -> String) -> usize {
        let mut count = 0;
        for at in 0..width {
            let part = Rc::new(Way::to(way, path(at).as_bytes()));
            if page.admit(&part).is_ok() {
                count += 1 + made(page, &part, width, path);
            }
        }
        count
    }

    #[test]
    fn what_includes_itself_ends_long_before_what_is_wide() {
        let main = Rc::new(Way::of_main(b"/page"));
        let page = Page::default();
        assert_eq!(made(&page, &main, 2, |_| "/page".into()), REPEATED_MAX);
        assert!(page.is_news(Full::Repeated) && !page.is_news(Full::Repeated));
        // Under names of its own, it is the depth that tells.
        let few = made(&Page::default(), &main, 2, |at| format!("/{at}"));
        assert!(few <= REPEATED_MAX + 62, "{few}");
        let page = Page::default();
        let wide = (0..MADE_MAX + 1).filter(|_| page.admit(&Way::to(&main, b"/part")).is_ok());
        assert_eq!(wide.count(), MADE_MAX);
    }
}
