//! The allocators: the program's own, mimalloc, and giving back what it and the system's keep.

use libmimalloc_sys as mi;
use std::alloc::{GlobalAlloc, Layout};

/// The program's allocator. mimalloc is asked for an alignment only where its blocks do not have it
/// by themselves: when asked, it takes its slow way for most sizes beyond 1 KB, to allocate and to
/// free.
pub struct Memory;

/// Every block of at least that size is so aligned (mimalloc's `MI_MAX_ALIGN_SIZE`).
const ALIGNED_BYTES: usize = 16;

fn is_aligned(layout: Layout) -> bool {
    layout.align() <= ALIGNED_BYTES && layout.align() <= layout.size()
}

// SAFETY: mimalloc's functions fulfil the contract of `GlobalAlloc`: null when there is no memory, no
// unwinding, any thread may free or resize. A block from one of its functions for allocating may be
// given to any other, so that it does not matter which one it came from. The alignment is the
// layout's: either it was asked for, or the block is large enough to have it.
unsafe impl GlobalAlloc for Memory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_aligned(layout) {
            // SAFETY: any size may be asked for.
            true => unsafe { mi::mi_malloc(layout.size()) }.cast(),
            // SAFETY: as above; a layout's alignment is a power of two.
            false => unsafe { mi::mi_malloc_aligned(layout.size(), layout.align()) }.cast(),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_aligned(layout) {
            // SAFETY: as in `alloc`.
            true => unsafe { mi::mi_zalloc(layout.size()) }.cast(),
            // SAFETY: as in `alloc`.
            false => unsafe { mi::mi_zalloc_aligned(layout.size(), layout.align()) }.cast(),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller gives a block of this allocator.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match layout.align() <= ALIGNED_BYTES && layout.align() <= size {
            // SAFETY: the caller gives a block of this allocator.
            true => unsafe { mi::mi_realloc(block.cast(), size) }.cast(),
            // SAFETY: as above; a layout's alignment is a power of two.
            false => unsafe { mi::mi_realloc_aligned(block.cast(), size, layout.align()) }.cast(),
        }
    }
}

extern "C" {
    fn mi_collect(force: bool);
}

/// Gives free memory back to the system: what this thread's part of the allocator keeps for it, and
/// all that no thread owns. Blocks that were freed elsewhere are returned to the thread that
/// allocated them, so a thread gives back what it has allocated itself. It takes time in proportion
/// to that, and is for after something large has gone, never for the way of a request.
pub fn give_back() {
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
pub fn use_small_pages() {
    #[cfg(target_os = "linux")]
    // SAFETY: no pointer is passed. A kernel that does not know the option changes nothing.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
