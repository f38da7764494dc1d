//! The local socket by which a running server is asked: made so that only its owner may open it, and waited at
//! beside a word to end.
//!
//! Windows: a named pipe with the same rights.

use crate::sockets::{UnixListener, UnixStream};
use crate::{machine, trusted};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::fs::{fchmod, FileType, Mode};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// So many may wait to be answered.
const BACKLOG: i32 = 8;
const MODE: u32 = 0o600;
/// What the system tells of its Unix sockets; no more of it is looked at.
const TABLE: &str = "/proc/net/unix";
const TABLE_MAX_BYTES: u64 = 16 << 20;

/// A connection with who asks, or with who is asked.
pub type Link = UnixStream;

/// A socket under a name, and which file it is.
pub struct Named {
    listener: UnixListener,
    /// The file that was made.
    file: (u64, u64),
}

/// Listens under a name. What is there under it goes, if it is a socket: nobody else's than a server's that has
/// left it behind or has another name for it by now.
///
/// # Errors
///
/// The system's; a file that is no socket is there; the name is too long for a socket's (107 bytes).
pub fn listen(path: &Path) -> io::Result<Named> {
    trusted::may_bind(path)?;
    match path.symlink_metadata() {
        Ok(there) if there.file_type().is_socket() => trusted::remove(path)?,
        Ok(_) => return Err(Errno::EXIST.into()),
        Err(_) => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file gets the rights that the socket has when it is bound: there is no moment with others.
    fchmod(&socket, Mode::from_raw_mode(MODE))?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let file = path.symlink_metadata()?;
    let is_ours =
        FileType::from_raw_mode(file.mode()) == FileType::Socket && file.mode() & 0o077 == 0;
    if !is_ours {
        return Err(Errno::PERM.into());
    }
    Ok(Named { listener: OwnedFd::from(socket).into(), file: (file.dev(), file.ino()) })
}

impl Named {
    /// Whether what is under a name is this one.
    fn is_at(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok_and(|f| (f.dev(), f.ino()) == self.file)
    }

    /// Gives it another name, if it has that one.
    ///
    /// # Errors
    ///
    /// The system's; `NotFound`: it does not have that name.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.is_at(from) {
            true => trusted::rename(from, to),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Takes its name away, if it has that one.
    pub fn remove(&self, path: &Path) {
        if self.is_at(path) {
            // Somebody may have removed it.
            let _ = trusted::remove(path);
        }
    }

    /// Waits for askers from now on, until the other value is dropped.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn answering(&self) -> io::Result<(Answering, End)> {
        let (end, other) = UnixStream::pair()?;
        Ok((Answering { listener: self.listener.try_clone()?, end }, End { _other: other }))
    }
}

/// Ends the waiting when it is dropped.
pub struct End {
    _other: UnixStream,
}

/// Who waits for askers.
pub struct Answering {
    listener: UnixListener,
    end: UnixStream,
}

impl Answering {
    /// Waits until it may be asked: it may.
    ///
    /// # Errors
    ///
    /// None.
    pub fn begin(&self) -> io::Result<()> {
        Ok(())
    }

    /// The next who asks; `None` once waiting is to end.
    pub fn next(&self) -> Option<Link> {
        loop {
            let mut fds = [&self.listener as &dyn AsFd, &self.end]
                .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN));
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return None,
            }
            if !fds[1].revents().is_empty() {
                return None;
            }
            match self.listener.accept() {
                Ok((link, _)) => return Some(link),
                // Another process that has the socket too was quicker, or he has gone.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => {}
                // Out of descriptors: not in a circle.
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(200)),
            }
        }
    }
}

/// Goes to the server under a name.
///
/// # Errors
///
/// The system's.
pub fn connect(path: &Path) -> io::Result<Link> {
    UnixStream::connect(path)
}

/// Where a process is asked: at one of the sockets that it has open, by the name with that ending that it was bound to.
///
/// # Errors
///
/// The system's: it may not be looked at, or there is none.
pub fn of_process(pid: u32, suffix: &str) -> io::Result<Option<PathBuf>> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let targets = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    let inode =
        |t: PathBuf| Some(t.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    let inodes: Vec<String> = targets.filter_map(inode).collect();
    let table = machine::beginning(format!("/proc/{pid}/net/unix").as_ref(), TABLE_MAX_BYTES)?;
    let table = String::from_utf8_lossy(&table);
    let mut bound = table.lines().filter_map(bound_to);
    let its =
        bound.find(|(inode, name)| name.ends_with(suffix) && inodes.iter().any(|i| i == inode));
    Ok(its.map(|(_, name)| name.into()))
}

/// Where servers of this machine are asked, by that ending; not all need be there still.
pub fn of_all(suffix: &str) -> Vec<PathBuf> {
    let table = machine::beginning(Path::new(TABLE), TABLE_MAX_BYTES).unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let names = table.lines().filter_map(bound_to).map(|(_, name)| name);
    let mut names: Vec<&str> = names.filter(|name| name.ends_with(suffix)).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(PathBuf::from).collect()
}

/// Inode and name of a socket, by a line of the system's table: number, references, protocol, flags, kind, state, inode,
/// name.
fn bound_to(line: &str) -> Option<(&str, &str)> {
    let name = &line[line.find(" /")? + 1..];
    Some((line.split_ascii_whitespace().nth(6)?, name))
}

/// Whether a server may be there to be asked.
pub fn may_be_at(path: &Path) -> bool {
    path.exists()
}

/// Whether who answers is root's or this user's own.
///
/// # Errors
///
/// The system's.
pub fn is_own(link: &Link) -> io::Result<bool> {
    let uid = who(link)?;
    Ok(uid == 0 || uid == crate::process::uid())
}

/// The user at the other end.
///
/// # Errors
///
/// The system's.
pub fn who(link: &Link) -> io::Result<u32> {
    crate::process::peer_uid(link)
}

/// Whether who asks is still there. He has said all that he has to say.
pub fn is_there(link: &UnixStream) -> bool {
    let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::IN;
    let mut fds = [PollFd::new(link, PollFlags::IN | PollFlags::RDHUP)];
    let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&none)).is_ok() && !fds[0].revents().intersects(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_socket_is_found_by_its_process() {
        const ENDING: &str = ".runtime-control";
        let name = format!("weir inquiry {}{ENDING}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let pid = std::process::id();
        assert_eq!(of_process(pid, ENDING).unwrap(), None);
        let _named = listen(&path).unwrap();
        assert_eq!(of_process(pid, ENDING).unwrap(), Some(path.clone()));
        assert!(of_all(ENDING).contains(&path) && !of_all(".other-control").contains(&path));
        assert!(may_be_at(&path) && is_own(&connect(&path).unwrap()).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(!may_be_at(&path));
    }

    #[test]
    fn only_the_owner_may_ask_and_the_end_is_heard() {
        let path = std::env::temp_dir().join(format!("weir-inquiry-{}", std::process::id()));
        let first = listen(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let second = listen(&path).unwrap();
        assert!(second.is_at(&path) && !first.is_at(&path));
        let (answering, end) = second.answering().unwrap();
        let asker = connect(&path).unwrap();
        let link = answering.next().unwrap();
        assert!(is_there(&link));
        drop(asker);
        assert!(!is_there(&link));
        drop(end);
        assert!(answering.next().is_none());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "kept").unwrap();
        assert!(listen(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        std::fs::remove_file(&path).unwrap();
    }
}
