//! Files that a process with root's rights opens by name. Whoever may write the directory may put
//! anything under that name, and must not thereby choose what is written to, truncated or given
//! away: a symbolic link, of the file or of a directory on the way to it ([`crate::walk`]), leads
//! only where its owner could have gone, and what changes its owner is
//! an open descriptor, never a name. Processes without root's rights follow links as always.
//!
//! Windows: nobody is root, and files are opened as they are named.

use crate::walk::{self, Place};
use rustix::fs::PROC_SUPER_MAGIC;
use rustix::fs::{
    fchmod, fchown, fstat, fstatfs, mkdirat, openat, renameat, unlinkat, AtFlags, Dir, FileType,
    Mode, OFlags, Stat, Uid, CWD,
};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// What logs and the pid file are created with.
const MODE: u32 = 0o644;
/// What directories for temporary files and caches are created with, and those that lead there:
/// others must get through them.
const DIR_MODE: u32 = 0o700;
const PARENT_MODE: u32 = 0o755;
/// A name that comes and goes is tried this often.
const TRIES: usize = 8;

/// Whether the umask takes rights away from that.
static OBEYS_UMASK: AtomicBool = AtomicBool::new(false);

/// As in nginx, a process that stays where it was started makes its logs and its pid file by the umask that it has
/// from there. Those of a daemon, which sets one of its own there, can be read whatever that was.
pub fn obey_umask(obeys: bool) {
    OBEYS_UMASK.store(obeys, Ordering::Relaxed);
}

/// Of a file that was just created.
fn let_read(file: &OwnedFd) -> rustix::io::Result<()> {
    match OBEYS_UMASK.load(Ordering::Relaxed) {
        true => Ok(()),
        false => fchmod(file, Mode::from_raw_mode(MODE)),
    }
}

/// A file, and how it was come by.
#[derive(Debug)]
pub struct Opened {
    pub file: File,
    /// It was not there before.
    created: bool,
    by_link: bool,
    /// Where it is; without root's rights nobody asks.
    place: Option<Place>,
}

/// Opens for appending; creates what is not there.
pub fn append(path: &Path) -> io::Result<Opened> {
    open(path, OFlags::APPEND, crate::process::is_root())
}

/// Writes a file whole. One that has other names too is not touched with root's rights.
pub fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let is_root = crate::process::is_root();
    let file = open(path, OFlags::empty(), is_root)?.file;
    if is_root && fstat(&file)?.st_nlink > 1 {
        return Err(Errno::MLINK.into());
    }
    file.set_len(0)?;
    io::Write::write_all(&mut &file, text)
}

fn open(path: &Path, how: OFlags, is_root: bool) -> io::Result<Opened> {
    let flags = how | OFlags::WRONLY | OFlags::CLOEXEC;
    let fresh = flags | OFlags::CREATE | OFlags::EXCL;
    if !is_root {
        let file = open_plainly(path, flags)?.into();
        return Ok(Opened { file, created: false, by_link: false, place: None });
    }
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(Errno::ISDIR.into());
    }
    let (mut place, name) = walk::parent(path)?;
    let mut name = name.to_os_string();
    let mut by_link = false;
    for _ in 0..TRIES {
        match openat(&place.dir, &name, fresh, Mode::from_raw_mode(MODE)) {
            Ok(fd) => {
                let_read(&fd)?;
                let file = fd.into();
                return Ok(Opened { file, created: true, by_link, place: Some(place) });
            }
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        // A pipe that nobody reads must not stop the master.
        let there = flags | OFlags::NONBLOCK;
        let opened = match openat(&place.dir, &name, there | OFlags::NOFOLLOW, Mode::empty()) {
            // Gone again.
            Err(Errno::NOENT) => continue,
            Err(Errno::LOOP) => {
                by_link = true;
                follow(&mut place, &mut name, there)?
            }
            other => Some(other?),
        };
        let Some(fd) = opened else { continue };
        let file = waiting(fd)?;
        return Ok(Opened { file, created: false, by_link, place: Some(place) });
    }
    Err(Errno::LOOP.into())
}

/// The way of a process that has no rights to be misused.
fn open_plainly(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(MODE);
    match openat(CWD, path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
        Ok(fd) => let_read(&fd).map(|()| fd),
        Err(Errno::EXIST) => openat(CWD, path, flags | OFlags::CREATE, mode),
        Err(e) => Err(e),
    }
}

/// Undoes `NONBLOCK`, which was for the opening alone: but a pipe stays so, or one whose reader
/// stalls would hold the master.
fn waiting(fd: OwnedFd) -> io::Result<File> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    let is_pipe = FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::Fifo;
    if flags.contains(OFlags::NONBLOCK) && !is_pipe {
        rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK)?;
    }
    Ok(fd.into())
}

/// Follows the link of that name. Root's own may lead anywhere: place and name are then those of
/// its target. What the link of another leads to is opened, if it is his.
fn follow(place: &mut Place, name: &mut OsString, flags: OFlags) -> io::Result<Option<OwnedFd>> {
    let Some(link) = walk::link(&place.dir, name)? else { return Ok(None) };
    if link.owner != 0 {
        let fd = openat(&place.dir, &link.target, flags, Mode::empty())?;
        return match fstat(&fd)?.st_uid == link.owner {
            true => Ok(Some(fd)),
            false => Err(Errno::LOOP.into()),
        };
    }
    // Those of `/proc/self/fd` lead to what has no name.
    if fstatfs(&place.dir)?.f_type == PROC_SUPER_MAGIC {
        return Ok(Some(openat(&place.dir, name.as_os_str(), flags, Mode::empty())?));
    }
    place.go(link.target.parent().unwrap_or(Path::new("")))?;
    *name = link.target.file_name().ok_or(Errno::ISDIR)?.to_os_string();
    Ok(None)
}

impl Opened {
    /// Gives a log to the user who is to open it again, as nginx does; the group stays. Left alone
    /// is what is no plain file, what was come by through a link or has a second name, and what
    /// somebody else may have moved there.
    pub fn give(&self, uid: u32) -> io::Result<()> {
        let now = fstat(&self.file)?;
        let is_plain = FileType::from_raw_mode(now.st_mode) == FileType::RegularFile;
        if !is_plain || self.by_link || now.st_nlink > 1 {
            return Ok(());
        }
        if now.st_uid != uid {
            if !self.created && !self.place.as_ref().is_some_and(Place::only_root_writes) {
                return Ok(());
            }
            fchown(&self.file, Some(Uid::from_raw(uid)), None)?;
        }
        grant(&self.file, &now, 0o600)
    }
}

/// The owner gets these rights besides those there are.
fn grant(file: impl std::os::fd::AsFd, now: &Stat, rights: u32) -> io::Result<()> {
    match now.st_mode & rights == rights {
        true => Ok(()),
        false => Ok(fchmod(file, Mode::from_raw_mode((now.st_mode & 0o7777) | rights))?),
    }
}

/// Makes a directory that only its owner may enter, and where that is wanted those on the way to
/// it; one that is there is left as it is.
pub fn make_dir(path: &Path, with_parents: bool) -> io::Result<()> {
    if with_parents {
        make_way(path.parent().unwrap_or(Path::new("")))?;
    }
    Ok(make_one(path, DIR_MODE)?)
}

fn make_way(dir: &Path) -> rustix::io::Result<()> {
    if dir.as_os_str().is_empty() || dir.exists() {
        return Ok(());
    }
    make_way(dir.parent().unwrap_or(Path::new("")))?;
    make_one(dir, PARENT_MODE)
}

fn make_one(path: &Path, mode: u32) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    let made = match crate::process::is_root() {
        true => {
            let (place, name) = walk::parent(path)?;
            mkdirat(&place.dir, name, mode)
        }
        false => rustix::fs::mkdir(path, mode),
    };
    match made {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// Removes a name.
pub fn remove(path: &Path) -> io::Result<()> {
    if !crate::process::is_root() {
        return std::fs::remove_file(path);
    }
    let (place, name) = walk::parent(path)?;
    Ok(unlinkat(&place.dir, name, AtFlags::empty())?)
}

/// Gives a file another name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    if !crate::process::is_root() {
        return std::fs::rename(from, to);
    }
    let (old, name) = walk::parent(from)?;
    let (new, new_name) = walk::parent(to)?;
    Ok(renameat(&old.dir, name, &new.dir, new_name)?)
}

/// Makes a directory of the serving process's own, or gives it one that is there. The answer tells
/// why it was left alone.
pub fn give_dir(path: &Path, uid: u32) -> io::Result<()> {
    given(path, uid).map(drop)
}

/// The same with the plain files in it that belong to whoever it belonged to: a queue that another
/// user has left. What has a second name stays, and so does all else.
pub fn give_dir_and_files(path: &Path, uid: u32) -> io::Result<()> {
    let (dir, before) = given(path, uid)?;
    if before == uid {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut failed = None;
    for entry in Dir::read_from(&dir)? {
        let opened = match openat(&dir, entry?.file_name(), flags, Mode::empty()) {
            Ok(file) => file,
            // A link, or gone: nothing of the queue's.
            Err(Errno::LOOP | Errno::NOENT | Errno::NXIO) => continue,
            Err(e) => {
                failed = Some(e);
                continue;
            }
        };
        let now = fstat(&opened)?;
        let is_plain = FileType::from_raw_mode(now.st_mode) == FileType::RegularFile;
        if is_plain && now.st_uid == before && now.st_nlink == 1 {
            fchown(&opened, Some(Uid::from_raw(uid)), None)?;
        }
    }
    failed.map_or(Ok(()), |e| Err(e.into()))
}

/// The directory, and who has had it.
fn given(path: &Path, uid: u32) -> io::Result<(OwnedFd, u32)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (mut place, name) = walk::parent(path)?;
    match mkdirat(&place.dir, name, Mode::from_raw_mode(DIR_MODE)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let dir = match openat(&place.dir, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
        // A link: the kernel looks whether it is a directory first.
        Err(Errno::LOOP | Errno::NOTDIR) => {
            place.follow(&walk::link(&place.dir, name)?.ok_or(Errno::NOTDIR)?)?;
            openat(&place.dir, ".", flags, Mode::empty())?
        }
        other => other?,
    };
    let now = fstat(&dir)?;
    if now.st_uid != uid {
        fchown(&dir, Some(Uid::from_raw(uid)), None)?;
    }
    grant(&dir, &now, 0o700)?;
    Ok((dir, now.st_uid))
}

/// Whether a socket may be bound to this name. The name is what clients connect to and is told to
/// them, so that it is bound as it stands and looked at before and behind.
pub fn may_bind(path: &Path) -> io::Result<()> {
    if crate::process::is_root() {
        walk::parent(path)?;
    }
    Ok(())
}

/// Sets the rights of the socket that was just bound to this name: of the socket, whatever may
/// have been put in its place.
pub fn open_socket_to_all(path: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = match crate::process::is_root() {
        true => {
            let (place, name) = walk::parent(path)?;
            openat(&place.dir, name, flags, Mode::empty())?
        }
        false => openat(CWD, path, flags, Mode::empty())?,
    };
    let now = fstat(&socket)?;
    let is_own = now.st_uid == crate::process::uid() && now.st_nlink == 1;
    if !is_own || FileType::from_raw_mode(now.st_mode) != FileType::Socket {
        return Err(Errno::PERM.into());
    }
    // A descriptor that only names a file has its rights changed by this name of it.
    let name = format!("/proc/self/fd/{}", socket.as_raw_fd());
    Ok(rustix::fs::chmod(name, Mode::from_raw_mode(0o666))?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::{symlink, MetadataExt};

    #[test]
    fn links_of_others_lead_only_to_what_is_theirs() {
        if !crate::process::is_root() {
            return;
        }
        let dir = std::env::temp_dir().join(format!("weir-trusted-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (mine, theirs) = (dir.join("mine"), dir.join("theirs"));
        std::fs::write(&mine, "").unwrap();
        std::fs::write(&theirs, "").unwrap();
        std::os::unix::fs::chown(&theirs, Some(7), None).unwrap();
        let link = |name: &str, to: &Path, uid| {
            let path = dir.join(name);
            symlink(to, &path).unwrap();
            std::os::unix::fs::lchown(&path, Some(uid), None).unwrap();
            path
        };
        assert!(append(&link("a", &mine, 0)).unwrap().by_link);
        assert!(append(&link("b", &theirs, 7)).is_ok());
        assert!(append(&link("c", &mine, 7)).is_err());
        assert!(append(&link("d", &dir.join("new"), 7)).is_err());
        assert!(!dir.join("new").exists());
        append(&link("e", &dir.join("new"), 0)).unwrap();
        assert!(dir.join("new").exists());
        assert!(write(&link("f", &mine, 7), b"1").is_err());
        let outside = dir.join("outside");
        std::fs::create_dir(&outside).unwrap();
        assert!(give_dir(&link("g", &outside, 7), 7).is_err());
        assert_eq!(outside.metadata().unwrap().uid(), 0);
        give_dir(&link("h", &outside, 0), 7).unwrap();
        assert_eq!(outside.metadata().unwrap().uid(), 7);
        // With what was its owner's in it, but not what has another name elsewhere, or another owner.
        for (name, uid) in [("his", 7), ("roots", 0), ("two", 7)] {
            std::fs::write(outside.join(name), "").unwrap();
            chown_to(&outside.join(name), uid);
        }
        std::fs::hard_link(outside.join("two"), dir.join("two")).unwrap();
        symlink(&mine, outside.join("link")).unwrap();
        give_dir_and_files(&outside, 8).unwrap();
        let owner = |name: &str| outside.join(name).metadata().unwrap().uid();
        let owners = ["his", "roots", "two", "link"].map(owner);
        assert_eq!((outside.metadata().unwrap().uid(), owners), (8, [8, 0, 7, 0]));
        for name in ["his", "roots", "two", "link"] {
            std::fs::remove_file(outside.join(name)).unwrap();
        }
        let way = dir.join("way");
        let (made, roots) = (link("way", &outside, 7).join("t/u"), dir.join("i/t/u"));
        chown_to(&outside, 0);
        assert!(make_dir(&way.join("t"), false).is_err() && make_dir(&made, true).is_err());
        assert!(remove(&way.join("x")).is_err() && may_bind(&way.join("s")).is_err());
        assert!(rename(&mine, &way.join("x")).is_err() && rename(&way.join("x"), &mine).is_err());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        link("i", &outside, 0);
        make_dir(&roots, true).unwrap();
        make_dir(&roots, true).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(&outside.join("t")), mode(&outside.join("t/u"))), (0o755, 0o700));
        rename(&mine, &dir.join("i/x")).unwrap();
        remove(&dir.join("i/x")).unwrap();
        assert!(!mine.exists() && !outside.join("x").exists());
        std::fs::remove_dir_all(dir).unwrap();
    }

    fn chown_to(path: &Path, uid: u32) {
        std::os::unix::fs::chown(path, Some(uid), None).unwrap();
    }
}
