//! A file seen as memory.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

/// Maps that much of a file, to be read and written.
///
/// # Errors
///
/// The system's.
#[cfg(unix)]
pub(super) fn begin(file: &File, len: usize, is_fresh: bool) -> io::Result<NonNull<u8>> {
    use std::os::fd::AsRawFd;
    // A fresh one's pages are made now, by this thread, and not when the appender first touches them.
    let flags = libc::MAP_SHARED | if is_fresh { libc::MAP_POPULATE } else { 0 };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a mapping of a file at an address of the system's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?)
}

#[cfg(windows)]
pub(super) fn begin(file: &File, len: usize, _: bool) -> io::Result<NonNull<u8>> {
    use std::os::windows::io::AsRawHandle;
    use windows_sys::Win32::Foundation::CloseHandle;
    use windows_sys::Win32::System::Memory::{
        CreateFileMappingW, MapViewOfFile, FILE_MAP_ALL_ACCESS, PAGE_READWRITE,
    };
    let (high, low) = ((len as u64 >> 32) as u32, len as u32);
    // SAFETY: handles that are there for the calls; the view outlives the mapping's, which is closed.
    let view = unsafe {
        let of = file.as_raw_handle();
        let mapping = CreateFileMappingW(of, ptr::null(), PAGE_READWRITE, high, low, ptr::null());
        if mapping.is_null() {
            return Err(io::Error::last_os_error());
        }
        let view = MapViewOfFile(mapping, FILE_MAP_ALL_ACCESS, 0, 0, len);
        CloseHandle(mapping);
        view
    };
    NonNull::new(view.Value.cast()).ok_or_else(io::Error::last_os_error)
}

/// Ends it.
///
/// # Safety
///
/// It was begun with this length, and nobody has anything of it.
#[cfg(unix)]
pub(super) unsafe fn end(start: NonNull<u8>, len: usize) {
    // SAFETY: as the caller says.
    unsafe { libc::munmap(start.as_ptr().cast(), len) };
}

/// Ends it.
///
/// # Safety
///
/// It was begun, and nobody has anything of it.
#[cfg(windows)]
pub(super) unsafe fn end(start: NonNull<u8>, _: usize) {
    use windows_sys::Win32::System::Memory::{UnmapViewOfFile, MEMORY_MAPPED_VIEW_ADDRESS};
    // SAFETY: as the caller says.
    unsafe { UnmapViewOfFile(MEMORY_MAPPED_VIEW_ADDRESS { Value: start.as_ptr().cast() }) };
}

/// Takes that much room on the disk.
///
/// # Errors
///
/// The system's: there is none.
#[cfg(unix)]
pub(super) fn allocate(file: &File, bytes: usize) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: a call on an open descriptor.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) } {
        0 => Ok(()),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

#[cfg(windows)]
pub(super) fn allocate(file: &File, bytes: usize) -> io::Result<()> {
    file.set_len(bytes as u64)
}
