//! What `ps` shows of a process. The kernel shows the memory in which the arguments were handed
//! over, so a title is written there; the environment that lies behind is moved away for room.
//!
//! Windows: nothing.

use std::ffi::{CStr, CString, OsString};
use std::sync::{Mutex, OnceLock};

static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Addresses of the first byte of the room and of the one past its last.
static ROOM: Mutex<Option<(usize, usize)>> = Mutex::new(None);

extern "C" {
    static mut environ: *mut *mut libc::c_char;
}

/// The command line as it was given, the program's name first, whatever title covers it now.
pub fn arguments() -> &'static [OsString] {
    ARGUMENTS.get_or_init(|| std::env::args_os().collect())
}

/// Makes room for titles. Call it before any other thread is started; where `/proc` is not mounted,
/// titles are not shown.
pub fn prepare() {
    arguments();
    let mut room = ROOM.lock().unwrap_or_else(|e| e.into_inner());
    let Some([arg_start, arg_end, env_start, env_end]) = places() else { return };
    if room.is_some() || arg_start >= arg_end {
        return;
    }
    let mut end = arg_end;
    if env_start == arg_end && env_end > env_start {
        // SAFETY: there is one thread, so that nobody reads the environment meanwhile.
        unsafe { move_environment() };
        end = env_end;
    }
    *room = Some((arg_start, end));
}

/// Where the kernel has put arguments and environment: the fields 48 to 51 of `/proc/self/stat`.
fn places() -> Option<[usize; 4]> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may hold blanks; the field behind it is the third.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(45).map_while(|n| n.parse().ok());
    let found = [fields.next()?, fields.next()?, fields.next()?, fields.next()?];
    found.iter().all(|n| *n != 0).then_some(found)
}

/// Copies every string of the environment to memory of its own, which is never given back.
///
/// # Safety
/// There must be no other thread.
unsafe fn move_environment() {
    // SAFETY: `environ` ends in a null pointer and its entries are C strings; the copies live on.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            *entry = CString::from(CStr::from_ptr(*entry)).into_raw();
            entry = entry.add(1);
        }
    }
}

/// Shows this as the process's title, cut where there is no more room.
pub fn set(text: &str) {
    let room = ROOM.lock().unwrap_or_else(|e| e.into_inner());
    let Some((start, end)) = *room else { return };
    let len = text.len().min(end - start - 1);
    // SAFETY: the kernel made this memory writable for this process; `prepare` has copied what was
    // in it, nothing else points there, and the lock lets one thread write at a time.
    unsafe {
        let to = start as *mut u8;
        std::ptr::copy_nonoverlapping(text.as_ptr(), to, len);
        std::ptr::write_bytes(to.add(len), 0, end - start - len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_are_those_of_the_arguments() {
        let [start, end, ..] = places().unwrap();
        let shown = std::fs::read("/proc/self/cmdline").unwrap();
        assert_eq!(end - start, shown.len());
        assert!(!arguments().is_empty());
    }
}
