//! nginx's page allocator without the memory: which page every allocation would be in, how many pages are
//! free, and when there is no room.
//!
//! Small allocations are chunks of a power of two and share pages with others of their class; larger ones are
//! runs of whole pages, so that a run may be missing although enough single pages are free.

pub const PAGE_BYTES: u64 = 4096;
/// The allocator's header, and for each of its nine classes a list's head and counters.
const HEADER_BYTES: u64 = 200 + 9 * (24 + 32);
/// What it keeps per page.
const RECORD_BYTES: u64 = 24;
/// So many pages are counted at most: 256 GB.
const MAX_PAGES: u64 = 1 << 26;
const CLASSES: usize = 9;
const MIN_SHIFT: u32 = 3;
const PAGE_SHIFT: u32 = 12;
/// The list of free runs, behind those of pages with free chunks.
const FREE: usize = CLASSES;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The first of a run of free pages.
    Free,
    /// Inside such a run; the last one's `run` is the number of the first.
    Gap,
    /// Of an allocation of whole pages.
    Whole,
    Chunks(u8),
}

#[derive(Clone, Copy)]
struct Page {
    kind: Kind,
    /// Chunks in use.
    used: u16,
    run: u32,
    next: u32,
    prev: u32,
}

const UNTOUCHED: Page = Page { kind: Kind::Gap, used: 0, run: 0, next: NONE, prev: NONE };

pub struct Slab {
    /// Those that have been touched and the first of the run behind them.
    pages: Vec<Page>,
    heads: [u32; CLASSES + 1],
    free: u32,
}

impl Slab {
    pub fn new(size_bytes: u64) -> Slab {
        let all = pages_of(size_bytes);
        let mut slab = Slab { pages: Vec::new(), heads: [NONE; CLASSES + 1], free: all };
        if all > 0 {
            slab.pages.push(Page { kind: Kind::Free, run: all, ..UNTOUCHED });
            slab.link(FREE, 0);
        }
        slab
    }

    pub fn free_bytes(&self) -> u64 {
        u64::from(self.free) * PAGE_BYTES
    }

    /// The page of an allocation; it is what `free` wants.
    pub fn alloc(&mut self, bytes: usize) -> Option<u32> {
        let bytes = bytes as u64;
        if bytes > PAGE_BYTES / 2 {
            return self.take(u32::try_from(bytes.div_ceil(PAGE_BYTES)).ok()?);
        }
        let shift = bytes.next_power_of_two().trailing_zeros().max(MIN_SHIFT);
        let class = (shift - MIN_SHIFT) as usize;
        let n = match self.heads[class] {
            NONE => {
                let n = self.take(1)?;
                let page = &mut self.pages[n as usize];
                (page.kind, page.used) = (Kind::Chunks(class as u8), 0);
                self.link(class, n);
                n
            }
            n => n,
        };
        let page = &mut self.pages[n as usize];
        page.used += 1;
        if page.used == chunks(class) {
            self.unlink(class, n);
        }
        Some(n)
    }

    pub fn free(&mut self, n: u32) {
        let page = self.pages[n as usize];
        let Kind::Chunks(class) = page.kind else {
            self.release(n, page.run);
            return;
        };
        let class = usize::from(class);
        if page.used == chunks(class) {
            self.link(class, n);
        }
        self.pages[n as usize].used = page.used - 1;
        if page.used == 1 {
            self.unlink(class, n);
            self.release(n, 1);
        }
    }

    /// A run of pages, of the first free one that is long enough.
    fn take(&mut self, count: u32) -> Option<u32> {
        let mut n = self.heads[FREE];
        while n != NONE && self.pages[n as usize].run < count {
            n = self.pages[n as usize].next;
        }
        let found = *self.pages.get(n as usize)?;
        let rest = n + count;
        let touched = rest as usize + usize::from(found.run > count);
        if self.pages.len() < touched {
            self.pages.resize(touched, UNTOUCHED);
        }
        if found.run > count {
            // What is left has the run's place in the list.
            self.set_run(rest, found.run - count);
            let place = &mut self.pages[rest as usize];
            (place.next, place.prev) = (found.next, found.prev);
            self.relink(rest);
        } else {
            self.unlink(FREE, n);
        }
        for page in &mut self.pages[n as usize..rest as usize] {
            page.kind = Kind::Whole;
        }
        self.pages[n as usize].run = count;
        self.free -= count;
        Some(n)
    }

    /// Pages become free and join those beside them.
    fn release(&mut self, n: u32, count: u32) {
        self.free += count;
        let (mut first, mut run) = (n, count);
        let after = n + count;
        if let Some(Page { kind: Kind::Free, run: more, .. }) =
            self.pages.get(after as usize).copied()
        {
            self.unlink(FREE, after);
            self.pages[after as usize].kind = Kind::Gap;
            run += more;
        }
        for page in &mut self.pages[n as usize..after as usize] {
            page.kind = Kind::Gap;
        }
        let before = n.checked_sub(1).map(|before| (before, self.pages[before as usize]));
        let joined = match before {
            Some((before, Page { kind: Kind::Free, .. })) => Some(before),
            Some((_, Page { kind: Kind::Gap, run, .. })) => Some(run),
            _ => None,
        };
        if let Some(before) = joined {
            self.unlink(FREE, before);
            run += self.pages[before as usize].run;
            first = before;
        }
        self.set_run(first, run);
        self.link(FREE, first);
    }

    fn set_run(&mut self, first: u32, run: u32) {
        let page = &mut self.pages[first as usize];
        (page.kind, page.run) = (Kind::Free, run);
        // Nothing is ever behind a last page that has no record yet.
        if let Some(last) = self.pages.get_mut((first + run - 1) as usize).filter(|_| run > 1) {
            last.run = first;
        }
    }

    fn link(&mut self, list: usize, n: u32) {
        let page = &mut self.pages[n as usize];
        (page.next, page.prev) = (self.heads[list], NONE);
        if let Some(second) = self.pages.get_mut(self.heads[list] as usize) {
            second.prev = n;
        }
        self.heads[list] = n;
    }

    /// Makes the neighbours of a free run know it.
    fn relink(&mut self, n: u32) {
        let Page { next, prev, .. } = self.pages[n as usize];
        match self.pages.get_mut(prev as usize) {
            Some(page) => page.next = n,
            None => self.heads[FREE] = n,
        }
        if let Some(page) = self.pages.get_mut(next as usize) {
            page.prev = n;
        }
    }

    fn unlink(&mut self, list: usize, n: u32) {
        let Page { next, prev, .. } = self.pages[n as usize];
        match self.pages.get_mut(prev as usize) {
            Some(page) => page.next = next,
            None => self.heads[list] = next,
        }
        if let Some(page) = self.pages.get_mut(next as usize) {
            page.prev = prev;
        }
    }
}

/// The pages of a zone that begins at a page: what is left of it without header and records.
fn pages_of(size_bytes: u64) -> u32 {
    let pages = size_bytes.saturating_sub(HEADER_BYTES) / (PAGE_BYTES + RECORD_BYTES);
    let pages = pages.min(MAX_PAGES);
    let start = (HEADER_BYTES + pages * RECORD_BYTES).next_multiple_of(PAGE_BYTES);
    pages.min(size_bytes.saturating_sub(start) / PAGE_BYTES) as u32
}

/// Chunks of a page; where they are smaller than 64 bytes, some are the map of the others.
fn chunks(class: usize) -> u16 {
    let shift = class as u32 + MIN_SHIFT;
    let all = 1u16 << (PAGE_SHIFT - shift);
    if shift >= 6 {
        return all;
    }
    all - (all / 8 / (1 << shift)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_zones() {
        assert_eq!(pages_of(16 << 10), 3);
        assert_eq!(pages_of(20 << 10), 4);
        assert_eq!(pages_of(25 << 10), 5);
        assert_eq!(pages_of(100 << 10), 24);
        assert_eq!((pages_of(0), pages_of(8000)), (0, 0));
        assert_eq!(u64::from(pages_of(u64::MAX)), MAX_PAGES);
        assert_eq!(Slab::new(0).alloc(1), None);
    }

    #[test]
    fn chunks_of_pages() {
        let all: Vec<u16> = (0..CLASSES).map(chunks).collect();
        assert_eq!(all, [504, 254, 127, 64, 32, 16, 8, 4, 2]);
    }

    #[test]
    fn runs_split_and_join() {
        let mut slab = Slab::new(100 << 10);
        let all: Vec<u32> = (0..24).map(|_| slab.alloc(4096).unwrap()).collect();
        assert_eq!((slab.alloc(1), slab.free_bytes()), (None, 0));
        slab.free(all[3]);
        slab.free(all[5]);
        assert_eq!(slab.alloc(4097), None);
        slab.free(all[4]);
        let three = slab.alloc(3 * 4096).unwrap();
        assert_eq!(three, all[3]);
        slab.free(three);
        for n in all.iter().filter(|n| !(3..6).contains(*n)) {
            slab.free(*n);
        }
        assert_eq!(slab.free_bytes(), 24 * 4096);
        let whole = slab.alloc(24 * 4096).unwrap();
        slab.free(whole);
    }

    /// Whatever is allocated and freed in whatever order: no page is in two allocations, and all come back.
    #[test]
    fn pages_are_neither_lost_nor_given_twice() {
        let mut slab = Slab::new(1 << 20);
        let (mut seed, mut live) = (7u64, Vec::new());
        let mut random = move |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..20_000 {
            if random(5) < 3 {
                let bytes = [20, 60, 100, 700, 2048, 3000, 9000][random(7) as usize];
                live.extend(slab.alloc(bytes).map(|n| (n, bytes)));
            } else if !live.is_empty() {
                let (n, _) = live.swap_remove(random(live.len() as u64) as usize);
                slab.free(n);
            }
            let mut whole: Vec<(u32, u32)> = live
                .iter()
                .filter(|(_, bytes)| *bytes > 2048)
                .map(|(n, bytes)| (*n, n + bytes.div_ceil(4096) as u32))
                .collect();
            whole.sort_unstable();
            assert!(whole.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
        for (n, _) in live {
            slab.free(n);
        }
        assert_eq!(slab.free, pages_of(1 << 20));
        assert!(slab.alloc(slab.free as usize * 4096).is_some());
    }
}
