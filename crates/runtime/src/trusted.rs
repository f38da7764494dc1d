//! Files that a process with root's rights opens by name. Whoever may write the directory may put
//! anything under that name, and must not thereby choose what is written to, truncated or given
//! away: a symbolic link leads only where its owner could have gone, and what changes its owner is
//! an open descriptor, never a name. Processes without root's rights follow links as always.

use rustix::fs::{
    fchmod, fchown, fstat, openat, readlinkat, stat, FileType, Mode, OFlags, Stat, Uid, CWD,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// What logs and the pid file are created with, whatever the umask.
const MODE: u32 = 0o644;
/// What directories for temporary files and caches are created with.
const DIR_MODE: u32 = 0o700;
/// A name that comes and goes is tried this often.
const TRIES: usize = 8;

/// A file, and how it was come by.
#[derive(Debug)]
pub struct Opened {
    pub file: File,
    /// It was not there before.
    created: bool,
    by_link: bool,
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
    // A pipe that nobody reads must not stop the master.
    let waits = if is_root { OFlags::NONBLOCK } else { OFlags::empty() };
    for _ in 0..TRIES {
        let fresh = flags | OFlags::CREATE | OFlags::EXCL;
        match openat(CWD, path, fresh, Mode::from_raw_mode(MODE)) {
            Ok(fd) => {
                fchmod(&fd, Mode::from_raw_mode(MODE))?;
                return Ok(Opened { file: fd.into(), created: true, by_link: false });
            }
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        match openat(CWD, path, flags | OFlags::NOFOLLOW | waits, Mode::empty()) {
            Ok(fd) => {
                return waiting(fd).map(|file| Opened { file, created: false, by_link: false })
            }
            // Gone again.
            Err(Errno::NOENT) => continue,
            Err(Errno::LOOP) => {}
            Err(e) => return Err(e.into()),
        }
        let fd = match is_root {
            true => follow(path, flags | waits)?,
            false => openat(CWD, path, flags | OFlags::CREATE, Mode::from_raw_mode(MODE))?,
        };
        return waiting(fd).map(|file| Opened { file, created: false, by_link: true });
    }
    Err(Errno::NOENT.into())
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

/// Opens what a link leads to: anything for root's own links, for others what is its owner's.
fn follow(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let link = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let owner = fstat(&link)?.st_uid;
    // Read from the descriptor: the link that was looked at, not one put in its place.
    let target = readlinkat(&link, "", Vec::new())?;
    let target = path.parent().unwrap_or(Path::new("")).join(as_path(target.as_bytes()));
    if owner == 0 {
        return Ok(openat(CWD, &target, flags | OFlags::CREATE, Mode::from_raw_mode(MODE))?);
    }
    let fd = openat(CWD, &target, flags, Mode::empty())?;
    match fstat(&fd)?.st_uid == owner {
        true => Ok(fd),
        false => Err(Errno::LOOP.into()),
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes))
}

impl Opened {
    /// Gives a log to the user who is to open it again, as nginx does; the group stays. Left alone
    /// is what is no plain file, what was come by through a link or has a second name, and what
    /// somebody else may have moved there.
    pub fn give(&self, path: &Path, uid: u32) -> io::Result<()> {
        let now = fstat(&self.file)?;
        let is_plain = FileType::from_raw_mode(now.st_mode) == FileType::RegularFile;
        if !is_plain || self.by_link || now.st_nlink > 1 {
            return Ok(());
        }
        if now.st_uid != uid {
            if !self.created && !only_root_writes(path.parent().unwrap_or(Path::new("."))) {
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

fn only_root_writes(dir: &Path) -> bool {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    stat(dir).is_ok_and(|s| s.st_uid == 0 && s.st_mode & 0o022 == 0)
}

/// Makes a directory of the serving process's own, or gives it one that is there. The answer tells
/// why it was left alone.
pub fn give_dir(path: &Path, uid: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::mkdir(path, Mode::from_raw_mode(DIR_MODE)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let dir = match openat(CWD, path, flags | OFlags::NOFOLLOW, Mode::empty()) {
        // A link: the kernel looks whether it is a directory first.
        Err(Errno::LOOP | Errno::NOTDIR) => follow_dir(path, flags)?,
        other => other?,
    };
    let now = fstat(&dir)?;
    if now.st_uid != uid {
        fchown(&dir, Some(Uid::from_raw(uid)), None)?;
    }
    grant(&dir, &now, 0o700)
}

/// Opens the directory that a link leads to, under the rule of [`follow`].
fn follow_dir(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let link = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let owner = fstat(&link)?.st_uid;
    let target = readlinkat(&link, "", Vec::new())?;
    let target = path.parent().unwrap_or(Path::new("")).join(as_path(target.as_bytes()));
    let dir = openat(CWD, &target, flags, Mode::empty())?;
    match owner == 0 || fstat(&dir)?.st_uid == owner {
        true => Ok(dir),
        false => Err(Errno::LOOP.into()),
    }
}

/// Sets the rights of the socket that was just bound to this name: of the socket, whatever may
/// have been put in its place.
pub fn open_socket_to_all(path: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = openat(CWD, path, flags, Mode::empty())?;
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
        std::fs::remove_dir_all(dir).unwrap();
    }
}
