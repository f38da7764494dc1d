//! The allocators: the program's own, mimalloc, and giving back what it and the system's keep.

#[cfg(not(windows))]
use crate::kept_file::KeptFile;
use libmimalloc_sys as mi;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr;

/// The program's allocator. mimalloc is asked for an alignment only where its blocks do not have it
/// by themselves: when asked, it takes its slow way for most sizes beyond 1 KB, to allocate and to
/// free. Even unasked it has no quick way for blocks of 1 to 4 KB, which is what futures are: a worker
/// keeps some of those itself ([`keep_blocks`]), and of those that servers' answers are read into. Who asks
/// for a block gets the one that was used last, which the processor's cache still has.
pub struct Memory;

/// Every block of at least that size is so aligned (mimalloc's `MI_MAX_ALIGN_SIZE`).
const ALIGNED_BYTES: usize = 16;

fn is_aligned(layout: Layout) -> bool {
    layout.align() <= ALIGNED_BYTES && layout.align() <= layout.size()
}

/// None up to that size is kept: all that is done with such a block is inlined wherever there is one, so it is
/// little.
const PLAIN_MAX_BYTES: usize = 1024;

#[inline]
fn is_plain(layout: Layout) -> bool {
    layout.size() <= PLAIN_MAX_BYTES && is_aligned(layout)
}

/// Blocks that a thread keeps of each size that futures have.
const KEPT_MAX: u16 = 512;
/// What is read of an answer at once, and blocks of that size that are kept.
const READ_BYTES: usize = 32 * 1024;
const READ_KEPT_MAX: u16 = 16;
/// The last is the one for reading.
const SIZES: usize = 9;

/// Blocks of one size, each of which begins with the address of the next.
struct Kept {
    first: Cell<*mut u8>,
    /// How many more are kept; 0 in threads that keep none.
    room: Cell<u16>,
}

thread_local! {
    static KEPT: [Kept; SIZES] =
        const { [const { Kept { first: Cell::new(ptr::null_mut()), room: Cell::new(0) } }; SIZES] };
}

/// Which of the sizes that are kept a layout is of: mimalloc's own between 1 and 4 KB, or the one for reading.
#[inline]
fn size_of(layout: Layout) -> Option<usize> {
    match layout.size() {
        _ if layout.align() > ALIGNED_BYTES => None,
        size @ 1025..=2048 => Some((size - 1025) / 256),
        size @ 2049..=4096 => Some(4 + (size - 2049) / 512),
        READ_BYTES => Some(SIZES - 1),
        _ => None,
    }
}

/// How large blocks are made that may be kept, so that they serve any layout of their size.
#[inline]
fn whole(size: usize) -> usize {
    match size {
        1025..=2048 => size.next_multiple_of(256),
        2049..=4096 => size.next_multiple_of(512),
        _ => size,
    }
}

impl Kept {
    #[inline]
    fn take(&self) -> *mut u8 {
        let block = self.first.get();
        if !block.is_null() {
            // SAFETY: it is a free block of this thread, of 1 KB at least, aligned and written by `give`.
            self.first.set(unsafe { block.cast::<*mut u8>().read() });
            self.room.set(self.room.get() + 1);
        }
        block
    }

    /// Whether there was room for it.
    ///
    /// # Safety
    ///
    /// The block is free, of this size, and nobody else's.
    #[inline]
    unsafe fn give(&self, block: *mut u8) -> bool {
        let room = self.room.get();
        if room == 0 {
            return false;
        }
        // SAFETY: the caller's promise; it has 1 KB at least and is aligned.
        unsafe { block.cast::<*mut u8>().write(self.first.get()) };
        self.first.set(block);
        self.room.set(room - 1);
        true
    }
}

/// From now on this thread keeps blocks; for threads that live as long as the process.
pub fn keep_blocks() {
    KEPT.with(|all| {
        all.iter().for_each(|kept| kept.room.set(KEPT_MAX));
        all[SIZES - 1].room.set(READ_KEPT_MAX);
    });
}

/// The thread ends: what it keeps is nobody's otherwise.
pub fn keep_no_blocks() {
    free_blocks();
    KEPT.with(|all| all.iter().for_each(|kept| kept.room.set(0)));
}

/// Gives the blocks that this thread keeps to the allocator.
fn free_blocks() {
    KEPT.with(|all| {
        for kept in all {
            loop {
                let block = kept.take();
                if block.is_null() {
                    break;
                }
                // SAFETY: it came from the allocator, and is no longer in the list.
                unsafe { mi::mi_free(block.cast()) };
            }
        }
    });
}

// SAFETY: mimalloc's functions fulfil the contract of `GlobalAlloc`: null when there is no memory, no
// unwinding, any thread may free or resize. A block from one of its functions for allocating may be
// given to any other, so that it does not matter which one it came from. The alignment is the
// layout's: either it was asked for, or the block is large enough to have it. A block that is kept is of
// its whole size, however it was allocated, and in one list alone; the lists are the thread's own and
// need no end, so that they can be used at any time of its life.
unsafe impl GlobalAlloc for Memory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_plain(layout) {
            // SAFETY: any size may be asked for.
            true => unsafe { mi::mi_malloc(layout.size()) }.cast(),
            false => alloc_large(layout),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_aligned(layout) {
            // SAFETY: as in `alloc`.
            true => unsafe { mi::mi_zalloc(whole(layout.size())) }.cast(),
            // SAFETY: as above; a layout's alignment is a power of two.
            false => unsafe { mi::mi_zalloc_aligned(layout.size(), layout.align()) }.cast(),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match layout.size() <= PLAIN_MAX_BYTES {
            // SAFETY: the caller gives a block of this allocator.
            true => unsafe { mi::mi_free(block.cast()) },
            // SAFETY: the caller gives a block of this allocator and layout, which was made whole.
            false => unsafe { dealloc_large(block, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match layout.align() <= ALIGNED_BYTES && layout.align() <= size {
            // SAFETY: the caller gives a block of this allocator.
            true => unsafe { mi::mi_realloc(block.cast(), whole(size)) }.cast(),
            // SAFETY: as above; a layout's alignment is a power of two.
            false => unsafe { mi::mi_realloc_aligned(block.cast(), size, layout.align()) }.cast(),
        }
    }
}

#[inline(never)]
fn alloc_large(layout: Layout) -> *mut u8 {
    if let Some(size) = size_of(layout) {
        let block = KEPT.with(|all| all[size].take());
        if !block.is_null() {
            return block;
        }
    }
    match is_aligned(layout) {
        // SAFETY: any size may be asked for.
        true => unsafe { mi::mi_malloc(whole(layout.size())) }.cast(),
        // SAFETY: as above; a layout's alignment is a power of two.
        false => unsafe { mi::mi_malloc_aligned(layout.size(), layout.align()) }.cast(),
    }
}

/// # Safety
///
/// The block is of this allocator and layout, made whole, and used no more.
#[inline(never)]
unsafe fn dealloc_large(block: *mut u8, layout: Layout) {
    if let Some(size) = size_of(layout) {
        // SAFETY: the caller's promise.
        if KEPT.with(|all| unsafe { all[size].give(block) }) {
            return;
        }
    }
    // SAFETY: the same.
    unsafe { mi::mi_free(block.cast()) }
}

extern "C" {
    fn mi_collect(force: bool);
}

/// Gives free memory back to the system: what this thread's part of the allocator keeps for it, and
/// all that no thread owns. Blocks that were freed elsewhere are returned to the thread that
/// allocated them, so a thread gives back what it has allocated itself. It takes time in proportion
/// to that, and is for after something large has gone, never for the way of a request.
pub fn give_back() {
    free_blocks();
    // SAFETY: it takes no pointer, and the allocator allows it at any time from any thread.
    unsafe { mi_collect(true) };
    // Libraries in C (PCRE2) allocate with the system's.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: no pointer is passed, and glibc locks what it looks at.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Has the system back memory by pages of the usual size alone. mimalloc asks for huge ones: a page that
/// is given back then costs or saves 2 MB, or comes again because its neighbours are in use.
#[cfg(target_os = "linux")]
extern "C" fn use_small_pages() {
    // SAFETY: no pointer is passed. A kernel that does not know the option changes nothing.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// The system runs it before `main`, and before what is not numbered: the first block that is allocated,
/// which is none of ours, would have a huge page.
#[cfg(target_os = "linux")]
#[used]
#[link_section = ".init_array.00101"]
static AT_START: extern "C" fn() = use_small_pages;

/// The memory that this process has resident, in bytes; `None` where the system does not say.
#[cfg(windows)]
pub fn resident_bytes() -> Option<u64> {
    use windows_sys::Win32::System::ProcessStatus::{
        K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS,
    };
    use windows_sys::Win32::System::Threading::GetCurrentProcess;
    let size = std::mem::size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    let mut found = PROCESS_MEMORY_COUNTERS { cb: size, ..PROCESS_MEMORY_COUNTERS::default() };
    // SAFETY: this process, and so much room as is said.
    match unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &mut found, size) } {
        0 => None,
        _ => Some(found.WorkingSetSize as u64),
    }
}

/// The memory that this process has resident, in bytes; `None` where the system does not say.
#[cfg(not(windows))]
pub fn resident_bytes() -> Option<u64> {
    static STATM: KeptFile = KeptFile::new("/proc/self/statm");
    let text = STATM.read()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

#[cfg(unix)]
fn page_bytes() -> u64 {
    // SAFETY: it takes and gives numbers alone.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" {
        fn mi_usable_size(block: *const u8) -> usize;
    }

    #[test]
    fn blocks_are_aligned_and_keep_what_they_hold() {
        for size in (1..200).chain([1000, 1025, 2384, 5000, 40_000, 3 << 20]) {
            for align in [1, 2, 8, 16, 32, 128, 4096] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the layout is not of size 0; the block is used within its size and given
                // back with the size it has by then.
                unsafe {
                    let block = Memory.alloc(layout);
                    assert_eq!(block as usize % align, 0, "{layout:?}");
                    block.write(7);
                    let larger = Memory.realloc(block, layout, size * 3);
                    assert_eq!((larger as usize % align, larger.read()), (0, 7), "{layout:?}");
                    Memory.dealloc(larger, Layout::from_size_align(size * 3, align).unwrap());
                    let zeroed = Memory.alloc_zeroed(layout);
                    assert_eq!((zeroed as usize % align, zeroed.read()), (0, 0), "{layout:?}");
                    Memory.dealloc(zeroed, layout);
                }
            }
        }
    }

    #[test]
    fn a_thread_that_keeps_blocks_gets_them_again_whatever_of_their_size_is_asked_for() {
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        std::thread::spawn(move || {
            keep_blocks();
            let pairs = [(1025, 1280), (1793, 2048), (2049, 2560), (3585, 4096)];
            for (least, most) in pairs.into_iter().chain([(READ_BYTES, READ_BYTES)]) {
                // SAFETY: as in the other test.
                unsafe {
                    let block = Memory.alloc_zeroed(layout(least));
                    Memory.dealloc(block, layout(least));
                    let again = Memory.alloc(layout(most));
                    assert_eq!(again, block);
                    assert!(mi_usable_size(again.cast()) >= most);
                    let grown = Memory.realloc(again, layout(most), most + 1);
                    assert!(mi_usable_size(grown.cast()) >= whole(most + 1));
                    Memory.dealloc(grown, layout(most + 1));
                    let many: Vec<_> = (0..600).map(|_| Memory.alloc(layout(least))).collect();
                    let mut places = many.clone();
                    places.sort();
                    places.dedup();
                    assert_eq!(places.len(), many.len());
                    many.into_iter().for_each(|block| Memory.dealloc(block, layout(least)));
                }
            }
            let rooms = || KEPT.with(|all| all.iter().map(|k| k.room.get()).collect::<Vec<_>>());
            assert!(rooms().contains(&0));
            free_blocks();
            assert_eq!(rooms()[..SIZES - 1], [KEPT_MAX; SIZES - 1]);
            assert_eq!(rooms()[SIZES - 1], READ_KEPT_MAX);
        })
        .join()
        .unwrap();
    }
}
