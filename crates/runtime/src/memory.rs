//! The allocators: free memory that they keep goes back to the system.

// The allocator itself is chosen in the program; named here so that its functions are linked.
use libmimalloc_sys as _;

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
