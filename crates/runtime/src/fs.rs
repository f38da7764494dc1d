//! What the system says about file systems, and files that others read as they are written.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// A path of the bytes that a configuration or a request has: where paths are bytes, just these.
#[cfg(unix)]
pub fn bytes_path(bytes: &[u8]) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).into()
}

#[cfg(not(unix))]
pub fn bytes_path(bytes: &[u8]) -> std::path::PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Bytes that an ordinary user may still write there.
#[cfg(unix)]
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends in NUL and outlives the call; the buffer is a whole statvfs.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the kernel has filled the buffer.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_bavail * stat.f_frsize)
}

#[cfg(not(unix))]
pub fn free_bytes(_: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Opens for appending, and creates what is not there. Neither opening a fifo nor writing to it waits
/// for a reader: that is an error (`ENXIO`, `EAGAIN`).
#[cfg(unix)]
pub fn append_at_once(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.create(true).append(true).custom_flags(libc::O_NONBLOCK).open(path)
}

#[cfg(not(unix))]
pub fn append_at_once(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

/// Writes all of it, and waits for the reader of a pipe, also of one that was opened not to wait.
pub fn write_waiting(mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => await_reader(file),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Returns when something may be written; writing tells whether that is so.
#[cfg(unix)]
fn await_reader(file: &File) {
    let fd = std::os::fd::AsRawFd::as_raw_fd(file);
    let mut ask = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut ask, 1, -1) };
}

#[cfg(not(unix))]
fn await_reader(_: &File) {}
