//! Files of the system's that are read again and again, also when no descriptor is left: they stay open.

use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

/// What of such a file is read at most.
const MOST_BYTES: usize = 16 * 1024;

/// It is opened when it is read first, and again by a process that was forked: `/proc/self` is another's then.
pub(crate) struct KeptFile {
    path: &'static str,
    open: Mutex<Option<(u32, File)>>,
}

impl KeptFile {
    pub(crate) const fn new(path: &'static str) -> KeptFile {
        KeptFile { path, open: Mutex::new(None) }
    }

    /// Its beginning as it is now. Windows has none of these, and whoever makes `\proc` there is not the system.
    pub(crate) fn read(&self) -> Option<String> {
        if cfg!(windows) {
            return None;
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let me = std::process::id();
        if open.as_ref().is_none_or(|(pid, _)| *pid != me) {
            *open = Some((me, File::open(self.path).ok()?));
        }
        let (_, file) = open.as_ref()?;
        let mut text = vec![0; MOST_BYTES];
        let bytes = read_from_start(file, &mut text).ok()?;
        text.truncate(bytes);
        String::from_utf8(text).ok()
    }
}

#[cfg(unix)]
fn read_from_start(file: &File, into: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, into, 0)
}

#[cfg(windows)]
fn read_from_start(file: &File, into: &mut [u8]) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, into, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_read_again_is_new() {
        static UPTIME: KeptFile = KeptFile::new("/proc/uptime");
        let first = UPTIME.read().unwrap();

        while UPTIME.read().unwrap() == first {
            std::hint::spin_loop();
        }
        assert!(KeptFile::new("/nothing/here").read().is_none());
    }
}
