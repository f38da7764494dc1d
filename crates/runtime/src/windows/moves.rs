//! Files that take another's name, and the names that files have.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use windows_sys::Win32::Foundation::{ERROR_SHARING_VIOLATION, MAX_PATH};
use windows_sys::Win32::Storage::FileSystem::{GetLongPathNameW, MoveFileExW, DELETE};

/// Who holds a file for a moment, to look for viruses or to read it, is waited for so long in between.
const PAUSES_MS: [u64; 7] = [0, 1, 2, 4, 8, 16, 32];

fn wide(path: &Path) -> Vec<u16> {
    path.as_os_str().encode_wide().chain([0]).collect()
}

/// Puts a file in the place of another, which somebody may be reading for as long as they like. Where such a file is not
/// replaced (some kinds of disks), it is called otherwise first, by a name beside `from`: between the two it is not there.
/// Who holds it is waited for a while.
///
/// # Errors
///
/// The system's. What was there is there again, unless somebody else has put theirs there meanwhile.
pub fn supplant(from: &Path, to: &Path, aside: impl Fn(&Path) -> PathBuf) -> io::Result<()> {
    over(from, to, &PAUSES_MS, aside)
}

/// The same for who may not wait: what is held, or is somebody else's turn, is an error at once.
///
/// # Errors
///
/// As above.
pub fn supplant_at_once(
    from: &Path,
    to: &Path,
    aside: impl Fn(&Path) -> PathBuf,
) -> io::Result<()> {
    over(from, to, &PAUSES_MS[..1], aside)
}

fn over(
    from: &Path,
    to: &Path,
    pauses: &[u64],
    aside: impl Fn(&Path) -> PathBuf,
) -> io::Result<()> {
    let mut last = std::fs::rename(from, to);
    match &last {
        Err(e) if is_held(e, to) => {}
        _ => return last,
    }
    if over_read_only(from, to) {
        return Ok(());
    }
    for pause in pauses {
        std::thread::sleep(Duration::from_millis(*pause));
        let Some(_turn) = turn(pauses.len() > 1) else { return last };
        last = match std::fs::rename(from, to) {
            Err(e) if is_held(&e, to) => in_turn(from, to, &aside(from), pauses),
            done => return done,
        };
        match &last {
            Err(e) if is_held(e, to) || e.kind() == io::ErrorKind::AlreadyExists => {}
            // Somebody has just removed or moved it.
            Err(e) if e.kind() == io::ErrorKind::NotFound && from.is_file() => {}
            _ => return last,
        }
    }
    last
}

/// Two that do this with one file at once would each find the other's in the way.
fn turn(may_wait: bool) -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    match TURN.try_lock() {
        Ok(turn) => Some(turn),
        Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
        Err(TryLockError::WouldBlock) => {
            may_wait.then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }
}

/// Replaces a file that nobody may write to, and that is not held besides: in one step too.
fn over_read_only(from: &Path, to: &Path) -> bool {
    if !set_read_only(to, false) {
        return false;
    }
    let done = std::fs::rename(from, to).is_ok();
    if !done {
        set_read_only(to, true);
    }
    done
}

/// Whether it was otherwise before, and is so now.
#[allow(clippy::permissions_set_readonly_false)]
fn set_read_only(file: &Path, is_so: bool) -> bool {
    let Ok(mut rights) = std::fs::metadata(file).map(|meta| meta.permissions()) else {
        return false;
    };
    let is_other = rights.readonly() != is_so;
    rights.set_readonly(is_so);
    is_other && std::fs::set_permissions(file, rights).is_ok()
}

fn is_held(e: &io::Error, to: &Path) -> bool {
    let is_open = e.raw_os_error().map(i32::unsigned_abs) == Some(ERROR_SHARING_VIOLATION);
    (is_open || e.kind() == io::ErrorKind::PermissionDenied) && to.is_file()
}

fn in_turn(from: &Path, to: &Path, aside: &Path, pauses: &[u64]) -> io::Result<()> {
    // Who holds what is to come there is waited for before what is there goes.
    OpenOptions::new().access_mode(DELETE).open(from)?;
    move_new(to, aside)?;
    let done = move_new(from, to);
    let is_back = || {
        pauses.iter().any(|pause| {
            std::thread::sleep(Duration::from_millis(*pause));
            move_new(aside, to).is_ok() || to.is_file()
        })
    };
    // If somebody else's is there by now it is the newer one.
    if done.is_ok() || is_back() {
        // Nobody asks for it any more.
        let _ = remove(aside);
    }
    done
}

/// Moves a file to where none is.
fn move_new(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (wide(from), wide(to));
    // SAFETY: both end in a zero and outlive the call.
    match unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), 0) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Removes a file, one that is read-only too. It is gone once nobody has it open.
///
/// # Errors
///
/// The system's; it is as it was.
pub fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && set_read_only(file, false) => {
            let done = std::fs::remove_file(file);
            if done.is_err() {
                set_read_only(file, true);
            }
            done
        }
        done => done,
    }
}

/// Whether a path is in the system's longest form (`\\?\`), which calls take at any length.
fn paths_own(path: &[u16]) -> bool {
    path.starts_with(&[b'\\', b'\\', b'?', b'\\'].map(u16::from))
}

/// The path of a file or folder with long names throughout.
///
/// # Errors
///
/// The system's: there is none, or it is not to be known, as of one that is longer than the call takes.
pub fn long_name(path: &Path) -> io::Result<String> {
    let short = wide(path);
    if short.len() > MAX_PATH as usize && !paths_own(&short) {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    let mut long = vec![0; short.len().max(MAX_PATH as usize)];
    loop {
        let room = u32::try_from(long.len()).unwrap_or(u32::MAX);
        // SAFETY: the name ends in a zero, and there is so much room.
        let len = unsafe { GetLongPathNameW(short.as_ptr(), long.as_mut_ptr(), room) } as usize;
        match len {
            0 => return Err(io::Error::last_os_error()),
            len if len < long.len() => {
                return Ok(OsString::from_wide(&long[..len]).to_string_lossy().into_owned())
            }
            len => long.resize(len, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_only_file_is_replaced_and_nothing_is_left() {
        let dir = std::env::temp_dir().join(format!("weir-moves-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (from, to) = (dir.join("from"), dir.join("to"));
        std::fs::write(&to, "old").unwrap();
        let mut rights = std::fs::metadata(&to).unwrap().permissions();
        rights.set_readonly(true);
        std::fs::set_permissions(&to, rights).unwrap();
        std::fs::write(&from, "new").unwrap();
        supplant(&from, &to, |path| path.with_extension("aside")).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        assert!(!over_read_only(&from, &to), "it is not read-only");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_that_is_removed_meanwhile_is_replaced() {
        let dir = std::env::temp_dir().join(format!("weir-moves-gone-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (from, to) = (dir.join("from"), dir.join("to"));
        let ends = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            // It is open for a while, and then gone.
            scope.spawn(|| {
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    let held = std::fs::File::open(&to);
                    std::thread::sleep(Duration::from_millis(1));
                    let _ = std::fs::remove_file(&to);
                    drop(held);
                }
            });
            for _ in 0..300 {
                std::fs::write(&from, "new").unwrap();
                if let Err(e) = supplant(&from, &to, |path| path.with_extension("aside")) {
                    assert_ne!(e.kind(), io::ErrorKind::NotFound, "{e}");
                }
            }
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
