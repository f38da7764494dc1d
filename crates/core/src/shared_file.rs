//! A file that several processes write by turns: while one takes another's place (an upgrade, a change of user) both serve
//! by the same `state` files, and what either has answered as done is to be there afterwards.
//!
//! A text is written beside and takes the name as a whole. Who changes something holds a lock on the directory, reads what
//! another process has written since, changes that, and writes it. What was read or written last is kept open, so that no
//! other file can have its number: another number under the name is another process's text (or somebody's who has put
//! a file there by its name). A file that is changed in place may be half of what it will be: it is read at the next reload.
//!
//! Who may read a new one is its owner alone (pairs may be secrets), and stays as somebody has made it. Behind a link it is the
//! link's file that is replaced.
//!
//! Who only looks is told by [`catch_up`] before an answer that must be the newest, and otherwise by a thread ten times a second.
//! The thread also writes what could not be written (a full disk, say), after pauses that grow, until it is; so do a reload
//! and the end of the process, each once.

use crate::logger::{ErrorLog, LogLevel};
use crate::os_text;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::{Duration, Instant};
use weir_base::crc32c::crc32c;
use weir_runtime::files::{self, open_regular, private, Identity, Pinned, Stamp};

/// Another process has its turn in a few milliseconds; one that is stopped is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(2);
/// How often files are looked at for others' changes.
const FOLLOW: Duration = Duration::from_millis(100);
/// What could not be written is tried again after the first pause, then after pauses that double, up to the last.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(30);
/// As many links as the system follows.
const LINKS_MAX: usize = 40;

/// The file, and what this process knows of it.
pub struct SharedFile {
    path: PathBuf,
    max_bytes: u64,
    turn: Mutex<()>,
    seen: Mutex<Seen>,
    /// What is in memory could not be written.
    is_behind: AtomicBool,
    /// What processes that were killed have left beside it is cleared away by the first that is written.
    is_cleared: AtomicBool,
}

/// A text that was read or written: the check sum tells of one that was changed in place.
struct Known {
    identity: Identity,
    sum: u32,
    /// Open, so that no other one gets its number.
    _file: Pinned,
}

/// When a file is read whose number is known.
#[derive(Clone, Copy, PartialEq)]
enum Same {
    Stays,
    IsReadAgain,
}

/// Files are kept open as long as their numbers are compared with.
#[derive(Default)]
struct Seen {
    known: Option<Known>,
    /// What could not be read as what it should be, told once.
    bad: Option<(Identity, Pinned)>,
    /// What could not be opened, or is no regular file, told once.
    odd: Option<Stamp>,
}

/// What is kept in such a file.
pub trait Kept: Send + Sync {
    /// The file, if there is one.
    fn file(&self) -> Option<Arc<SharedFile>>;
    /// Puts what another process has written in the place of what is in memory.
    ///
    /// # Errors
    ///
    /// It is not such a text, in words; nothing is changed.
    fn take(&self, text: &[u8]) -> Result<(), String>;
    /// What is in memory, to be written.
    fn text(&self) -> Vec<u8>;
}

impl<T: Kept> Kept for Arc<T> {
    fn file(&self) -> Option<Arc<SharedFile>> {
        T::file(self)
    }

    fn take(&self, text: &[u8]) -> Result<(), String> {
        T::take(self, text)
    }

    fn text(&self) -> Vec<u8> {
        T::text(self)
    }
}

/// Why nothing is changed, or not all.
#[derive(Debug)]
pub enum Failure {
    /// Another process does not end its turn.
    Busy,
    /// What is there cannot be read; nothing is changed.
    Unread(String),
    /// It is changed in memory, and not written.
    Unwritten(String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedFile {
    /// Nothing is read or opened.
    pub fn new(path: PathBuf, max_bytes: u64) -> Arc<SharedFile> {
        let (turn, seen) = (Mutex::default(), Mutex::default());
        let (is_behind, is_cleared) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(SharedFile { path, max_bytes, turn, seen, is_behind, is_cleared })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// Whether another text has the name than was read or written here last, and was not found bad.
    fn is_newer(&self) -> bool {
        let Ok(identity) = Identity::at(&self.path) else { return false };
        let seen = lock(&self.seen);
        let is_known = seen.known.as_ref().is_some_and(|known| known.identity == identity);
        let is_bad = seen.bad.as_ref().is_some_and(|(bad, _)| *bad == identity);
        let is_odd = |odd: Stamp| self.named().is_some_and(|found| Stamp::of(&found) == odd);
        !is_known && !is_bad && !seen.odd.is_some_and(is_odd)
    }

    /// What has the name now.
    fn named(&self) -> Option<Metadata> {
        std::fs::metadata(&self.path).ok()
    }

    /// Reads what another process has written, in this one's turn.
    fn read(&self, same: Same, take: impl Fn(&[u8]) -> Result<(), String>) -> Result<(), String> {
        let wrong = |e: io::Error| os_text(&e);
        let file = match open_regular(&self.path) {
            Ok(file) => file,
            // What is in memory counts.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => {
                // What is no file at all cannot be kept open: that it is there is told once all the same.
                lock(&self.seen).odd = self.named().map(|found| Stamp::of(&found));
                return Err(wrong(e));
            }
        };
        let identity = Identity::of_open(&file).map_err(wrong)?;
        let known =
            lock(&self.seen).known.as_ref().filter(|k| k.identity == identity).map(|k| k.sum);
        if known.is_some() && same == Same::Stays {
            return Ok(());
        }
        let mut text = Vec::new();
        (&file).take(self.max_bytes.saturating_add(1)).read_to_end(&mut text).map_err(wrong)?;
        let sum = crc32c(&text);
        if known == Some(sum) {
            return Ok(());
        }
        let file = Pinned::new(file);
        let taken = match text.len() as u64 > self.max_bytes {
            true => Err(format!("the file has more than {} bytes", self.max_bytes)),
            false => take(&text),
        };
        let mut seen = lock(&self.seen);
        match &taken {
            Ok(()) => {
                let known = Some(Known { identity, sum, _file: file });
                *seen = Seen { known, ..Seen::default() };
                // What another process has answered as done counts before what this one could not write.
                self.is_behind.store(false, Ordering::Relaxed);
            }
            Err(_) => (seen.bad, seen.odd) = (Some((identity, file)), None),
        }
        taken
    }

    /// Puts a text in its place as a whole; if that fails, it is tried again later.
    fn write(&self, text: &[u8]) -> io::Result<()> {
        self.is_behind.store(true, Ordering::Relaxed);
        let file = replace(&place(&self.path), text)?;
        self.is_behind.store(false, Ordering::Relaxed);
        let identity = Identity::of_open(&file)?;
        let known = Some(Known { identity, sum: crc32c(text), _file: Pinned::new(file) });
        *lock(&self.seen) = Seen { known, ..Seen::default() };
        Ok(())
    }

    /// Removes the texts of processes that were killed before these had their name. Whoever may have one at work is kept out.
    fn clear_away(&self) {
        if self.is_cleared.swap(true, Ordering::Relaxed) {
            return;
        }
        let path = place(&self.path);
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return };
        // What another zone is kept in may be called like that.
        let others: Vec<PathBuf> =
            those(|_| true).iter().filter_map(|(k, _)| Some(place(k.file()?.path()))).collect();
        let is_others = |found: &Path| {
            let is_it = |other: &PathBuf| {
                other.file_name() == found.file_name() && is_same_file(other, found)
            };
            others.iter().any(is_it)
        };
        for found in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let found_name = found.file_name();
            let rest = name.to_str().and_then(|own| found_name.to_str()?.strip_prefix(own));
            let id = rest.and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".new"));
            let is_number = |id: &str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
            if id.is_some_and(is_number) && !is_others(&found.path()) {
                // If it does not go now, it does no harm.
                let _ = std::fs::remove_file(found.path());
            }
        }
    }

    /// Keeps other processes out until it is dropped. `None` where directories cannot be locked, or not opened: what follows
    /// tells of that.
    fn lock_directory(&self) -> Result<Option<File>, Failure> {
        let path = place(&self.path);
        let Some(directory) = path.parent() else { return Ok(None) };
        let end = Instant::now() + PATIENCE;
        loop {
            match files::try_lock_dir(directory) {
                Ok(lock) => return Ok(Some(lock)),
                Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(LOOK),
                Err(TryLockError::WouldBlock) => return Err(Failure::Busy),
                Err(TryLockError::Error(e)) => return unlocked(directory, &e),
            }
        }
    }
}

/// Who cannot open a directory cannot write there, of which what follows tells; a file there that is to be locked may be the
/// only one that cannot be opened, and without turns changes of others are lost.
fn unlocked(directory: &Path, e: &io::Error) -> Result<Option<File>, Failure> {
    match files::LOCK_NAME.filter(|_| e.kind() != io::ErrorKind::NotFound) {
        None => Ok(None),
        Some(name) => {
            let path = directory.join(name);
            Err(Failure::Unread(format!("\"{}\": {}", path.display(), os_text(e))))
        }
    }
}

/// Changes what is kept, with the newest there is, and writes it. It blocks.
///
/// # Errors
///
/// What `change` says, and the file's own.
pub fn change<T, E: From<Failure>>(
    kept: &dyn Kept,
    change: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let Some(file) = kept.file() else { return change() };
    let _turn = lock(&file.turn);
    let all = file.lock_directory()?;
    if all.is_some() {
        file.clear_away();
    }
    file.read(Same::Stays, |text| kept.take(text)).map_err(Failure::Unread)?;
    let done = change()?;
    file.write(&kept.text()).map_err(|e| Failure::Unwritten(os_text(&e)))?;
    Ok(done)
}

/// Takes over what another process has written, if it has. It blocks.
///
/// # Errors
///
/// The file cannot be read, in words; what is in memory stays.
pub fn read(kept: &dyn Kept) -> Result<(), String> {
    read_if(kept, Same::Stays)
}

fn read_if(kept: &dyn Kept, same: Same) -> Result<(), String> {
    let Some(file) = kept.file() else { return Ok(()) };
    let _turn = lock(&file.turn);
    file.read(same, |text| kept.take(text))
}

/// Writes what could not be written before; whether it was this that did it. It blocks.
fn write_again(kept: &dyn Kept) -> Result<bool, String> {
    let Some(file) = kept.file() else { return Ok(false) };
    let _turn = lock(&file.turn);
    let busy = |_| "another process is writing it".to_string();
    let _all = file.lock_directory().map_err(busy)?;
    file.read(Same::Stays, |text| kept.take(text))?;
    if !file.is_behind() {
        return Ok(false);
    }
    file.write(&kept.text()).map(|()| true).map_err(|e| os_text(&e))
}

/// Where the text is to be: what a link leads to, whether it is there yet or not.
pub(crate) fn place(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let Ok(to) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| to.clone(), |directory| directory.join(&to));
    }
    path
}

/// Whether both names lead to one file, or would.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    let found = |path: &Path| Identity::at(path).ok();
    let is_one = |a: &Path, b: &Path| a == b || found(a).is_some_and(|a| found(b) == Some(a));
    let (a, b) = (&*place(a), &*place(b));
    // One that is not there yet is known by its folder.
    let folders = a.parent().zip(b.parent());
    is_one(a, b) || a.file_name() == b.file_name() && folders.is_some_and(|(a, b)| is_one(a, b))
}

/// Puts a file in the place of another one as a whole, and gives it.
fn replace(path: &Path, text: &[u8]) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    // Where nothing can be locked both processes may write.
    name.push(format!(".{}.new", std::process::id()));
    let beside = Path::new(&name);
    match std::fs::remove_file(beside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // A file of its own: what somebody else may have put there is not followed.
    let mut file = private(OpenOptions::new().write(true).create_new(true)).open(beside)?;
    // Who may read it stays as somebody has made it.
    if let Ok(before) = std::fs::symlink_metadata(path) {
        if before.is_file() {
            file.set_permissions(before.permissions())?;
        }
    }
    let written = file.write_all(text).and_then(|()| file.sync_data());
    match written.and_then(|()| files::replace(beside, path)) {
        Ok(()) => Ok(file),
        Err(e) => {
            // It is of no use to anybody; that it stays does no harm.
            let _ = std::fs::remove_file(beside);
            Err(e)
        }
    }
}

type Follower = (Weak<dyn Kept>, Arc<ErrorLog>);

/// Of all generations in use.
static FOLLOWERS: Mutex<Vec<Follower>> = Mutex::new(Vec::new());

/// What is there counts, whoever has put or changed it, and what other processes write is taken over from now on, as
/// long as it is there; what cannot be read is told to `log`. It blocks.
pub fn follow(kept: &Arc<dyn Kept>, log: &Arc<ErrorLog>) {
    static THREAD: Once = Once::new();
    {
        let mut all = lock(&FOLLOWERS);
        let own = Arc::downgrade(kept);
        all.retain(|(k, _)| k.strong_count() > 0 && !Weak::ptr_eq(k, &own));
        all.push((own, Arc::clone(log)));
    }
    tell(read_if(&**kept, Same::IsReadAgain), &**kept, log);
    // Without the thread what another process writes is seen with the next question or change.
    THREAD.call_once(|| {
        let _ = std::thread::Builder::new().name("state files".into()).spawn(|| {
            let (mut pause, mut since) = (RETRY_FIRST, None);
            loop {
                std::thread::sleep(FOLLOW);
                catch_up();
                if those(SharedFile::is_behind).is_empty() {
                    (pause, since) = (RETRY_FIRST, None);
                } else if since.get_or_insert_with(Instant::now).elapsed() >= pause {
                    write_left(false);
                    (pause, since) = ((pause * 2).min(RETRY_LAST), None);
                }
            }
        });
    });
}

/// Those that are followed, by what is so of their files.
fn those(is_so: fn(&SharedFile) -> bool) -> Vec<(Arc<dyn Kept>, Arc<ErrorLog>)> {
    let all: Vec<_> = {
        let all = lock(&FOLLOWERS);
        all.iter().filter_map(|(kept, log)| Some((kept.upgrade()?, Arc::clone(log)))).collect()
    };
    // Asked without the lock: who is asked may have others to wait for.
    all.into_iter().filter(|(kept, _)| kept.file().is_some_and(|file| is_so(&file))).collect()
}

fn newer() -> Vec<(Arc<dyn Kept>, Arc<ErrorLog>)> {
    those(SharedFile::is_newer)
}

/// Tries once to write what could not be written; `at_end`: for the last time, which is told if it fails. It blocks.
pub fn write_left(at_end: bool) {
    for (kept, log) in those(SharedFile::is_behind) {
        let Some(file) = kept.file() else { continue };
        let path = file.path().display();
        match write_again(&*kept) {
            Ok(true) => {
                let text =
                    format!("state file \"{path}\" is written again, with all that has changed");
                log.log(LogLevel::Notice, None, text.as_bytes());
            }
            Err(e) if at_end => {
                let text = format!(
                    "state file \"{path}\" cannot be written ({e}): what has changed since it could be is lost"
                );
                log.log(LogLevel::Error, None, text.as_bytes());
            }
            Ok(false) | Err(_) => {}
        }
    }
}

/// Whether another process has written something that is not taken over yet: a look at each file's name.
pub fn any_newer() -> bool {
    !newer().is_empty()
}

/// Takes over what other processes have written. It blocks.
pub fn catch_up() {
    for (kept, log) in newer() {
        tell(read(&*kept), &*kept, &log);
    }
}

fn tell(read: Result<(), String>, kept: &dyn Kept, log: &ErrorLog) {
    if let (Err(e), Some(file)) = (read, kept.file()) {
        let text = format!("state file \"{}\": {e}", file.path().display());
        log.log(LogLevel::Error, None, text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number, as one process has it.
    struct Number(Arc<SharedFile>, Mutex<u64>);

    impl Number {
        fn new(path: &Path) -> Number {
            Number(SharedFile::new(path.to_path_buf(), 100), Mutex::new(0))
        }

        fn add(&self) -> Result<u64, Failure> {
            change(self, || {
                *lock(&self.1) += 1;
                Ok(*lock(&self.1))
            })
        }
    }

    impl Kept for Number {
        fn file(&self) -> Option<Arc<SharedFile>> {
            Some(Arc::clone(&self.0))
        }

        fn take(&self, text: &[u8]) -> Result<(), String> {
            let text = String::from_utf8_lossy(text);
            *lock(&self.1) = text.trim().parse().map_err(|_| "no number".to_string())?;
            Ok(())
        }

        fn text(&self) -> Vec<u8> {
            lock(&self.1).to_string().into_bytes()
        }
    }

    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("weir-shared-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn two_that_write_by_turns_lose_nothing() {
        let dir = directory("turns");
        let both = [(); 2].map(|()| Number::new(&dir.join("n")));
        std::thread::scope(|scope| {
            for one in &both {
                scope.spawn(|| (0..100).for_each(|_| assert!(one.add().is_ok())));
            }
        });
        for one in &both {
            read(one).unwrap();
            assert_eq!(*lock(&one.1), 200);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_no_text_of_its_kind_changes_nothing() {
        let dir = directory("bad");
        let one = Number::new(&dir.join("n"));
        assert_eq!(one.add().unwrap(), 1);
        replace(one.0.path(), b"x").unwrap();
        assert!(one.0.is_newer());
        assert!(read(&one).is_err());
        // It is told once.
        assert!(!one.0.is_newer());
        assert!(matches!(one.add(), Err(Failure::Unread(_))));
        assert_eq!(std::fs::read(one.0.path()).unwrap(), b"x");
        replace(one.0.path(), &[b'1'; 101]).unwrap();
        assert!(matches!(one.add(), Err(Failure::Unread(_))));
        replace(one.0.path(), b"7").unwrap();
        assert_eq!(one.add().unwrap(), 8);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn who_may_read_it_stays() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = directory("mode");
        let one = Number::new(&dir.join("n"));
        one.add().unwrap();
        std::fs::set_permissions(one.0.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        one.add().unwrap();
        let mode = std::fs::metadata(one.0.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn who_does_not_end_its_turn_is_not_waited_for() {
        let dir = directory("busy");
        let held = File::open(&dir).unwrap();
        held.lock().unwrap();
        assert!(matches!(Number::new(&dir.join("n")).add(), Err(Failure::Busy)));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
