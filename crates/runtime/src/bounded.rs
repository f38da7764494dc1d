//! Memory with a bound, for a library of C's that takes an allocator.

use std::alloc::{alloc, dealloc, realloc, Layout};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

/// What one user of it has taken, and may take, in bytes.
#[derive(Debug)]
pub struct Bounded {
    used: Cell<usize>,
    max: Cell<usize>,
    refused: Cell<bool>,
}

impl Bounded {
    /// Nothing taken yet, of so many bytes.
    pub const fn new(max_bytes: usize) -> Bounded {
        Bounded { used: Cell::new(0), max: Cell::new(max_bytes), refused: Cell::new(false) }
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Bytes that there may be.
    pub fn max(&self) -> usize {
        self.max.get()
    }

    /// There may be so many bytes from now on.
    pub fn set_max(&self, max_bytes: usize) {
        self.max.set(max_bytes);
    }

    /// Whether something was refused since this was last asked.
    pub fn take_refused(&self) -> bool {
        self.refused.take()
    }
}

/// The alignment that objects of C's may want.
const ALIGN: usize = 16;

/// What `lua_newstate` wants: makes `wanted` bytes of what was `had`; nothing for none, null where there is no room.
///
/// # Safety
///
/// `ud` is a [`Bounded`] that outlives the library's use of it, on one thread; `old` came from here with `had` bytes,
/// or is null.
pub unsafe extern "C" fn allocate(
    ud: *mut c_void,
    old: *mut c_void,
    had: usize,
    wanted: usize,
) -> *mut c_void {
    // SAFETY: `ud` is the `Bounded` of the engine, which lives longer than its state. `old` came from here with
    // `had` bytes (0 where it is null), as Lua's contract says.
    unsafe {
        let memory = &*ud.cast::<Bounded>();
        let had = if old.is_null() { 0 } else { had };
        if wanted == 0 {
            if had > 0 {
                dealloc(old.cast(), Layout::from_size_align_unchecked(had, ALIGN));
                memory.used.set(memory.used.get() - had);
            }
            return ptr::null_mut();
        }
        let used = memory.used.get() - had + wanted;
        if wanted > had && used > memory.max.get() || wanted > isize::MAX as usize - ALIGN {
            memory.refused.set(true);
            return ptr::null_mut();
        }
        let fresh = match had {
            0 => alloc(Layout::from_size_align_unchecked(wanted, ALIGN)),
            _ => realloc(old.cast(), Layout::from_size_align_unchecked(had, ALIGN), wanted),
        };
        if !fresh.is_null() {
            memory.used.set(used);
        }
        fresh.cast()
    }
}
