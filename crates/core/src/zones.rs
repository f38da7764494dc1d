//! Shared zones: memory of fixed size that all workers use and that outlives a reload when name,
//! kind and size are the same.
//!
//! Workers are threads, so a zone is ordinary memory; its size is counted as nginx's allocator
//! would, so that a zone holds about as many entries as it does there.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};

use crate::figures::Figures;
use weir_base::units;
use weir_module::{slot, ArgsExt, Cf, ConfResult, ConfType, Diagnostic, Directive, Level};

const PAGE_BYTES: u64 = 4096;
/// nginx's allocator: its header, and what it keeps per page.
const HEADER_BYTES: u64 = 600;
const PER_PAGE_BYTES: u64 = 32;

/// The zones that the configuration declares or names; one name space for all modules of all protocols.
#[derive(Default)]
pub(crate) struct ZoneNames {
    declared: HashMap<Vec<u8>, Declared>,
}

struct Declared {
    kind: &'static str,
    size: u64,
}

impl ConfType for ZoneNames {
    const LEVEL: Level = Level::Global;
    slot!();
}

/// Checks a name against those declared already.
pub fn declare(
    cf: &mut Cf,
    d: &Directive,
    i: usize,
    name: &[u8],
    kind: &'static str,
    size: u64,
) -> ConfResult {
    let zones = &mut cf.get::<ZoneNames>().declared;
    let shown = String::from_utf8_lossy(name);
    if let Some(known) = zones.get_mut(name) {
        if known.kind != kind {
            return Err(d.bad(
                i,
                format!(
                    "the shared memory zone \"{shown}\" is already declared for a different use"
                ),
            ));
        }
        if size != 0 && known.size != 0 && known.size != size {
            return Err(d.bad(
                i,
                format!(
                    "the size {size} of shared memory zone \"{shown}\" conflicts with already \
                     declared size {}",
                    known.size
                ),
            ));
        }
        known.size = known.size.max(size);
        return Ok(());
    }
    zones.insert(name.to_vec(), Declared { kind, size });
    Ok(())
}

/// Whether a zone of that name and kind has been declared.
pub fn is_declared(cf: &mut Cf, name: &[u8], kind: &str) -> bool {
    cf.get::<ZoneNames>().declared.get(name).is_some_and(|z| z.kind == kind)
}

/// Whether a zone has been named, and never been given a size.
pub fn lacks_size(cf: &mut Cf, name: &[u8]) -> bool {
    cf.get::<ZoneNames>().declared.get(name).is_some_and(|z| z.size == 0)
}

/// Name and size of a `zone=name:size` parameter.
pub fn name_and_size(d: &Directive, i: usize) -> ConfResult<Option<(Vec<u8>, u64)>> {
    let Some(value) = d.keyed(i, "zone") else { return Ok(None) };
    let shown = || String::from_utf8_lossy(d.arg(i)).into_owned();
    let invalid = || d.bad(i, format!("invalid zone size \"{}\"", shown()));
    let at = value.iter().position(|b| *b == b':').ok_or_else(invalid)?;
    let size = units::parse_size(&value[at + 1..]).ok_or_else(invalid)?;
    if size < 8 * PAGE_BYTES {
        return Err(d.bad(i, format!("zone \"{}\" is too small", shown())));
    }
    Ok(Some((value[..at].to_vec(), size)))
}

/// A zone that was named and never given a size.
pub fn undeclared(name: &[u8]) -> Diagnostic {
    let shown = String::from_utf8_lossy(name);
    let hint = "no directive says how large the zone is: give it a size, or look whether its name is right";
    Diagnostic::emerg(format!("zero size shared memory zone \"{shown}\"")).hint(hint.to_string())
}

/// Bytes of a zone that entries can have.
pub fn usable_bytes(size: u64) -> u64 {
    size.saturating_sub(HEADER_BYTES) / (PAGE_BYTES + PER_PAGE_BYTES) * PAGE_BYTES
}

/// What one allocation takes: a power of two, or whole pages.
pub fn chunk_bytes(len: usize) -> u64 {
    let len = len as u64;
    if len > PAGE_BYTES / 2 {
        return len.div_ceil(PAGE_BYTES) * PAGE_BYTES;
    }
    len.next_power_of_two().max(8)
}

/// Pages of a zone, as NGINX Plus shows those of its memory; `size` is what was asked for.
pub fn put_pages(name: &[u8], size: u64, used_bytes: u64, figures: &mut Figures) {
    let used = used_bytes.div_ceil(PAGE_BYTES);
    let all = usable_bytes(size) / PAGE_BYTES;
    let pages = [("used", used), ("free", all.saturating_sub(used))];
    figures.entry(name).group("pages").put_all(&pages);
}

/// The sizes of nginx's small allocations.
const SLOTS: [u64; 9] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048];

/// What entries of a zone take, one allocation for each as nginx's allocator would make it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    slots: [u64; SLOTS.len()],
    pages: u64,
}

impl Chunks {
    fn count(&mut self, len: usize) -> (&mut u64, u64) {
        let bytes = chunk_bytes(len);
        match SLOTS.iter().position(|size| *size == bytes) {
            Some(at) => (&mut self.slots[at], 1),
            None => (&mut self.pages, bytes / PAGE_BYTES),
        }
    }

    /// So many allocations of so many bytes more.
    pub fn add(&mut self, len: usize, times: u64) {
        let (count, each) = self.count(len);
        *count += each * times;
    }

    /// One less.
    pub fn remove(&mut self, len: usize) {
        let (count, each) = self.count(len);
        *count = count.saturating_sub(each);
    }

    /// Pages of a zone of that size, and what of them is in use, as NGINX Plus shows them. How often something was
    /// allocated is not counted.
    pub fn put(&self, size: u64, figures: &mut Figures) {
        let pages_of = |size: u64, n: u64| (n * size).div_ceil(PAGE_BYTES);
        let each = || SLOTS.into_iter().zip(self.slots);
        let used = self.pages + each().map(|(size, n)| pages_of(size, n)).sum::<u64>();
        let all = usable_bytes(size) / PAGE_BYTES;
        let pages = [("used", used), ("free", all.saturating_sub(used))];
        figures.group("pages").put_all(&pages);
        let slots = figures.group("slots");
        for (size, n) in each().filter(|(_, n)| *n > 0) {
            let free = pages_of(size, n) * PAGE_BYTES / size - n;
            slots.group(&size.to_string()).put_all(&[("used", n), ("free", free)]);
        }
    }
}

/// The size that a zone was given where it was named; 0 if it was not, or not yet.
pub fn size_of(cf: &mut Cf, name: &[u8]) -> u64 {
    cf.get::<ZoneNames>().declared.get(name).map_or(0, |z| z.size)
}

struct Live {
    size: u64,
    zone: Weak<dyn Any + Send + Sync>,
}

/// The zones that a generation in use has, by kind and name, and at which number of them those are
/// looked for that none has any more.
struct AllLive {
    zones: BTreeMap<(&'static str, Vec<u8>), Live>,
    sweep_at: usize,
}

static LIVE: Mutex<AllLive> = Mutex::new(AllLive { zones: BTreeMap::new(), sweep_at: 0 });

impl AllLive {
    fn sweep(&mut self) {
        if self.zones.len() >= self.sweep_at {
            self.zones.retain(|_, l| l.zone.strong_count() > 0);
            self.sweep_at = 2 * self.zones.len() + 16;
        }
    }
}

/// The zone of that kind, name and size, made when there is none. `check` may refuse a zone that
/// exists, with a reason.
pub fn attach<Z: Any + Send + Sync>(
    kind: &'static str,
    name: &[u8],
    size: u64,
    check: impl FnOnce(&Z) -> ConfResult,
    make: impl FnOnce() -> Z,
) -> ConfResult<Arc<Z>> {
    let mut live = LIVE.lock().unwrap_or_else(|e| e.into_inner());
    live.sweep();
    let key = (kind, name.to_vec());
    let found = live.zones.get(&key).filter(|l| l.size == size);
    let known = found.and_then(|l| l.zone.upgrade()).and_then(|z| z.downcast::<Z>().ok());
    if let Some(zone) = known {
        check(&zone)?;
        return Ok(zone);
    }
    let zone = Arc::new(make());
    let shared: Arc<dyn Any + Send + Sync> = Arc::<Z>::clone(&zone);
    let zone_ref = Arc::downgrade(&shared);
    // A zone of another size takes the name over; requests in flight keep the old one alive.
    live.zones.insert(key, Live { size, zone: zone_ref });
    Ok(zone)
}

/// The zones of a kind that are in use, by their names.
pub fn named<Z: Any + Send + Sync>(kind: &'static str) -> Vec<(Vec<u8>, Arc<Z>)> {
    let live = LIVE.lock().unwrap_or_else(|e| e.into_inner());
    let of_kind = live.zones.range((kind, Vec::new())..).take_while(|((k, _), _)| *k == kind);
    let found = of_kind
        .filter_map(|((_, name), l)| Some((name.clone(), l.zone.upgrade()?.downcast::<Z>().ok()?)));
    found.collect()
}

/// The zones that are in use; they live while the handles do.
pub fn in_use() -> Vec<Arc<dyn Any + Send + Sync>> {
    let live = LIVE.lock().unwrap_or_else(|e| e.into_inner());
    live.zones.values().filter_map(|l| l.zone.upgrade()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(chunk_bytes(1), 8);
        assert_eq!(chunk_bytes(40), 64);
        assert_eq!(chunk_bytes(64), 64);
        assert_eq!(chunk_bytes(2049), 4096);
        assert_eq!(chunk_bytes(5000), 8192);
        assert_eq!(usable_bytes(32 * 1024), 7 * 4096);
        // nginx's documentation: a megabyte is about 16 thousand states of 64 bytes.
        let states = usable_bytes(1 << 20) / 64;
        assert!((15_000..=16_384).contains(&states), "{states}");
    }

    #[test]
    fn what_entries_take_is_told_in_pages_and_slots() {
        let mut chunks = Chunks::default();
        chunks.add(100, 33);
        chunks.add(9000, 2);
        chunks.add(1, 1);
        chunks.remove(1);
        let (mut figures, mut text) = (Figures::default(), Vec::new());
        chunks.put(64 * 1024, &mut figures);
        figures.write_json(&mut text);
        assert_eq!(
            String::from_utf8_lossy(&text),
            "{\"pages\":{\"used\":8,\"free\":7},\"slots\":{\"128\":{\"used\":33,\"free\":31}}}"
        );
    }

    #[test]
    fn zones_live_as_long_as_they_are_used() {
        let make = || Mutex::new(1);
        let ok = |_: &Mutex<i32>| Ok(());
        let attach = |size| attach("test", b"z", size, ok, make).unwrap_or_else(|_| panic!());
        let first = attach(100);
        assert!(Arc::ptr_eq(&first, &attach(100)));
        let other = attach(200);
        assert!(!Arc::ptr_eq(&first, &other));
        drop(first);
        drop(other);
        let fresh = attach(200);
        assert_eq!(Arc::strong_count(&fresh), 1);
    }
}
